#include "app/gui/lesson.h"

#include <fmt/format.h>

#include <algorithm>
#include <random>

#include "app/gui/icons.h"
#include "app/gui/widgets.h"
#include "app/text/text.h"
#include "app/views/error_view.h"

namespace attnscope::gui {
namespace {

constexpr const char* kNotPlanted = "no bug is planted; Help, Try it plants one";

// Of the session's model.
std::vector<const Lesson*> lessons_here(const Ui& ui) {
  return lessons(ui.bench.snapshot()->info->config);
}

std::string names_of(const std::vector<const Lesson*>& all) {
  std::string names;
  for (const Lesson* lesson : all) {
    names += fmt::format("{}{}", names.empty() ? "" : ", ", lesson->name);
  }
  return names;
}

}  // namespace

void LessonCard::register_commands(Ui& ui) {
  const auto has_session = [&ui] {
    return ui.bench.snapshot() != nullptr && !lessons_here(ui).empty();
  };
  const auto planted = [this, &ui] { return lesson_ != nullptr || !ui.bench.planted().empty(); };
  constexpr const char* kNoLessons = "no session is open whose model has lessons";
  ui.commands.add({.id = "lesson.open",
                   .title = "Try it: plant a bug ..",
                   .group = "Help",
                   .help = "Replaces one op by a wrong one, and shows how it is found.",
                   .run = [this](std::string_view) -> Result<void> {
                     list_.open();
                     return {};
                   },
                   .enabled = has_session,
                   .why_disabled = kNoLessons});
  ui.commands.add({.id = "lesson.plant",
                   .title = "Plant a bug ..",
                   .group = "Help",
                   .help = "Plants a bug by its name: " + names_of(all_lessons()) + ".",
                   .argument = "NAME",
                   .run = [this, &ui](std::string_view name) { return plant(ui, name, false); },
                   .enabled = has_session,
                   .why_disabled = kNoLessons,
                   .in_menu = false});
  ui.commands.add({.id = "lesson.random",
                   .title = "Plant a bug, any",
                   .group = "Help",
                   .help = "Plants one of the bugs without saying which.",
                   .run = [this, &ui](std::string_view) -> Result<void> {
                     static std::mt19937 random{std::random_device{}()};
                     std::vector<const Lesson*> all = lessons_here(ui);
                     if (all.size() > 1) std::erase(all, lesson_);
                     std::uniform_int_distribution<std::size_t> any(0, all.size() - 1);
                     const Lesson* next = all[any(random)];
                     return plant(ui, next->name, true);
                   },
                   .enabled = has_session,
                   .why_disabled = kNoLessons});
  ui.commands.add({.id = "lesson.remove",
                   .title = "Take the bug out",
                   .group = "Help",
                   .help = "Puts the right op back, and runs on from there.",
                   .shortcut = "Backspace",
                   .run = [this, &ui](std::string_view) -> Result<void> {
                     remove(ui);
                     return {};
                   },
                   .enabled = planted,
                   .why_disabled = kNotPlanted});
  const auto turner = [&](const char* id, const char* title, const char* help, int by) {
    ui.commands.add({.id = id,
                     .title = title,
                     .group = "Help",
                     .help = help,
                     .run = [this, &ui, by](std::string_view) -> Result<void> {
                       hidden_ = false;
                       if (!pages_.empty()) turn(ui, page_ + by);
                       return {};
                     },
                     .enabled = planted,
                     .why_disabled = kNotPlanted,
                     .in_menu = false});
  };
  turner("lesson.next", "Next page about the bug", "Cell, op, element, reason.", 1);
  turner("lesson.back", "Previous page about the bug", "Reason, element, op, cell.", -1);
}

Result<void> LessonCard::plant(Ui& ui, std::string_view name, bool secret) {
  const std::vector<const Lesson*> all = lessons_here(ui);
  const auto lesson = std::ranges::find_if(all, [&](const Lesson* l) { return name == l->name; });
  if (lesson == all.end()) {
    return usage_error(fmt::format("lesson.plant: this model has no bug '{}'", shortened(name, 40)),
                       "bugs: " + names_of(all));
  }
  lesson_ = *lesson;
  ui.bench.plant(lesson_->name);
  secret_ = secret;
  hidden_ = false;
  page_ = -1;
  pages_.clear();
  version_ = ~std::uint64_t{0};
  searched_.reset();
  list_.close();
  return {};
}

void LessonCard::remove(Ui& ui) {
  ui.bench.remove_planted();
  lesson_ = nullptr;
  pages_.clear();
  page_ = -1;
}

void LessonCard::turn(Ui& ui, int page) {
  page_ = std::clamp(page, 0, static_cast<int>(pages_.size()) - 1);
  // Pages are made anew while commands move the cursor.
  const std::vector<std::string> commands = pages_[static_cast<std::size_t>(page_)].commands;
  for (const std::string& command : commands) {
    const std::string id = command.substr(0, command.find('='));
    if (ui.commands.find(id) != nullptr) ui.run(command);
  }
}

// Follows what is planted, also by others, and waits for the first wrong tap.
void LessonCard::refresh(Ui& ui) {
  if (version_ == ui.bench.version()) return;
  version_ = ui.bench.version();
  const std::string& planted = ui.bench.planted();
  if (planted.empty()) {
    lesson_ = nullptr;
    pages_.clear();
    page_ = -1;
  } else if (lesson_ == nullptr || planted != lesson_->name) {
    lesson_ = find_lesson(planted);
    searched_.reset();
    pages_.clear();
    page_ = -1;
  }
  const Snapshot* snapshot = ui.bench.snapshot();
  if (lesson_ == nullptr || snapshot == nullptr || ui.bench.busy()) {
    searched_.reset();
    return;
  }
  // Cursor and selection change more often than the picture.
  if (searched_.get() == snapshot) return;
  searched_ = ui.bench.shared_snapshot();
  const TapResult* wrong = first_wrong(*snapshot);
  if (wrong == nullptr) {
    pages_.clear();
    page_ = -1;
    return;
  }
  const bool fresh = pages_.empty();
  pages_ = lesson_pages(*lesson_, *snapshot, *wrong);
  if (fresh) turn(ui, 0);
}

void LessonCard::draw_list(Ui& ui) {
  if (!list_.begin("Try it", {560, 0})) return;
  ImGui::TextWrapped(
      "One op is replaced by a wrong one. Everything else stays as it is: find out which op it is, "
      "or let a note lead you there.");
  ImGui::Spacing();
  for (const Lesson* lesson : lessons_here(ui)) {
    const bool now = lesson_ == lesson;
    if (ImGui::Selectable(fmt::format("##{}", lesson->name).c_str(), now,
                          ImGuiSelectableFlags_SpanAvailWidth,
                          {0, ImGui::GetTextLineHeight() + px(8)})) {
      ui.run(fmt::format("lesson.plant={}", lesson->name));
    }
    const ImVec2 at = ImGui::GetItemRectMin();
    ImDrawList* list = ImGui::GetWindowDrawList();
    list->AddText({at.x + px(8), at.y + px(4)}, now ? theme().bad : theme().text_dim, icon::kBug);
    list->AddText({at.x + px(32), at.y + px(4)}, theme().text, lesson->symptom);
  }
  ImGui::Spacing();
  if (ImGui::Button("Any of them")) ui.run("lesson.random");
  ImGui::SameLine();
  if (lesson_ != nullptr && ImGui::Button("Take the bug out")) {
    ui.run("lesson.remove");
    list_.close();
  }
  list_.end();
}

void LessonCard::draw_page(Ui& ui) {
  const LessonPage& page = pages_[static_cast<std::size_t>(page_)];
  coloured(theme().accent, fmt::format("{} of {}  {}", page_ + 1, pages_.size(), page.title));
  const bool last = page_ + 1 == static_cast<int>(pages_.size());
  if (last) coloured(theme().bad, fmt::format("{}  mutant {}", icon::kBug, lesson_->name));
  ImGui::TextWrapped("%s", page.text.c_str());
  if (!panel_rect(page.panel.c_str())) {
    const std::string show = "panel." + page.panel;
    if (ui.commands.find(show) != nullptr) command_button(ui, show, "Show the panel");
  }
}

void LessonCard::draw_card(Ui& ui) {
  if (lesson_ == nullptr || hidden_) return;
  const char* panel =
      page_ >= 0 ? pages_[static_cast<std::size_t>(page_)].panel.c_str() : "timeline";
  if (bubble_.begin("##lesson", panel, 400)) {
    const std::string title = secret_ ? "A bug is planted" : lesson_->symptom;
    coloured(theme().bad, icon::kBug);
    ImGui::SameLine();
    ImGui::TextUnformatted(title.c_str());
    ImGui::Separator();
    if (page_ >= 0) {
      draw_page(ui);
    } else if (ui.bench.busy()) {
      ImGui::TextWrapped("%s  %s ..", icon::kSpinner,
                         ui.bench.running().empty() ? "planting" : ui.bench.running().c_str());
    } else {
      ImGui::TextWrapped(
          "The bug has not shown itself yet. Some need a longer prompt, or a step that completes "
          "an entry.");
      command_button(ui, "run.until_wrong");
    }
    ImGui::Spacing();
    if (page_ > 0) {
      if (ImGui::Button("Back")) ui.run("lesson.back");
      ImGui::SameLine();
    }
    if (page_ >= 0 && page_ + 1 < static_cast<int>(pages_.size())) {
      if (ImGui::Button("Next")) ui.run("lesson.next");
      ImGui::SameLine();
    }
    command_button(ui, "lesson.remove");
    ImGui::SameLine();
    if (ImGui::Button("Hide")) hidden_ = true;
  }
  bubble_.end();
}

void LessonCard::draw(Ui& ui) {
  refresh(ui);
  draw_list(ui);
  draw_card(ui);
}

std::unique_ptr<Overlay> make_lesson() { return std::make_unique<LessonCard>(); }

}  // namespace attnscope::gui
