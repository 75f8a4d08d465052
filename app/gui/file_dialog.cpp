#include "app/gui/file_dialog.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "app/gui/icons.h"
#include "app/gui/text_input.h"
#include "app/gui/widgets.h"
#include "app/text/format.h"
#include "app/text/text.h"
#include "engine/capture/capture.h"
#include "engine/golden/golden_values.h"

namespace attnscope::gui {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMostRecentFiles = 10;
constexpr std::size_t kMostFilesLookedAt = 1000;  // whether a folder holds goldens
constexpr const char* kExtension = ".json";

}  // namespace

void remember(Settings& settings, const std::string& path) {
  settings.scenario = path;
  const bool is_file =
      path.find('/') != std::string::npos || path.ends_with(kExtension) || path.ends_with(".acap");
  if (!is_file) return;
  std::error_code code;
  const fs::path absolute = fs::absolute(path, code);
  const std::string name = code ? path : absolute.lexically_normal().string();
  settings.scenario = name;
  std::erase(settings.recent, name);
  settings.recent.insert(settings.recent.begin(), name);
  if (settings.recent.size() > kMostRecentFiles) settings.recent.pop_back();
}

namespace {

bool is_folder(const std::string& path) {
  std::error_code code;
  return fs::is_directory(path, code);
}

std::string parent(const std::string& path) { return fs::path(path).parent_path().string(); }

bool is_golden_folder(const std::string& path) {
  std::error_code code;
  const fs::directory_iterator files(path, code);
  std::size_t looked_at = 0;
  for (auto at = files; !code && at != fs::directory_iterator(); at.increment(code)) {
    if (at->path().filename().string().ends_with(kSpecSuffix)) return true;
    if (++looked_at == kMostFilesLookedAt) break;
  }
  return false;
}

// A folder that is a document, not a place where documents are.
bool opens_as_one(const std::string& folder) {
  return is_capture_folder(folder) || is_golden_folder(folder);
}

}  // namespace

std::string opening_command(const std::string& path) {
  return (is_golden_folder(path) ? "review.open=" : "scenario.open=") + path;
}

void FileDialog::register_commands(Ui& ui) {
  ui.commands.add(
      {.id = "scenario.open",
       .title = "Open ..",
       .group = "File",
       .help = "Opens a scenario by name or file, a capture or a folder of goldens; without one, "
               "asks for it.",
       .shortcut = "Ctrl+O",
       .argument = "NAME or FILE",
       .run = [this, &ui](std::string_view value) -> Result<void> {
         if (value.empty()) {
           start(ui, false);
           return {};
         }
         const std::string path(value);
         if (is_golden_folder(path)) return ui.commands.run("review.open=" + path);
         if (auto ok = ui.bench.open_scenario(path); !ok) return ok;
         remember(ui.settings, path);
         return {};
       }});
  ui.commands.add({.id = "scenario.save_as",
                   .title = "Save scenario as ..",
                   .group = "File",
                   .help = "Writes the scenario, as it is edited, to another file.",
                   .shortcut = "Ctrl+Shift+S",
                   .argument = "FILE",
                   .run = [this, &ui](std::string_view value) -> Result<void> {
                     if (value.empty()) {
                       start(ui, true);
                       return {};
                     }
                     const std::string path(value);
                     auto ok = ui.commands.run("scenario.save=" + path);
                     if (ok) remember(ui.settings, path);
                     return ok;
                   }});
}

void FileDialog::start(const Ui& ui, bool saving) {
  saving_ = saving;
  shipped_ = scenario_names();
  overwrite_.clear();
  error_.clear();
  typed_.clear();
  const std::string& now = ui.bench.setup().scenario.path;
  std::vector<std::string> places;
  if (!now.empty() && (!saving || !is_shipped(now))) places.push_back(parent(now));
  if (!ui.settings.recent.empty()) places.push_back(parent(ui.settings.recent.front()));
  std::error_code code;
  const fs::path here = fs::current_path(code);
  if (!code) places.push_back(here.string());
  places.push_back(home_folder());
  const auto at = std::ranges::find_if(places, is_folder);
  enter(at != places.end() ? *at : "/");
  if (saving) {
    const std::string& name = ui.bench.setup().scenario.name;
    typed_ = (name.empty() ? "scenario" : name) + kExtension;
    std::ranges::replace(typed_, '/', '-');
  }
  dialog_.open();
}

void FileDialog::enter(const std::string& folder) {
  Result<FolderList> list = list_folder(folder, kExtension);
  focus_ = true;
  chosen_ = -1;
  if (!list) {
    error_ = list.error().text();
    return;
  }
  error_.clear();
  list_ = std::move(*list);
  opened_.clear();
  for (const FolderItem& item : list_.items) {
    opened_.push_back(!saving_ && item.folder && opens_as_one(listed_path(item.name)));
  }
  if (!saving_) typed_.clear();
}

// A folder is entered, a file opened or saved.
void FileDialog::activate(Ui& ui, const std::string& path) {
  overwrite_.clear();
  if (is_folder(path) && (saving_ || !opens_as_one(path))) {
    enter(path);
    return;
  }
  if (!saving_) {
    finish(ui, path);
    return;
  }
  std::string file = path;
  if (!file.ends_with(kExtension)) file += kExtension;
  std::error_code code;
  if (fs::exists(file, code)) {
    overwrite_ = file;
    error_.clear();
    return;
  }
  finish(ui, file);
}

void FileDialog::finish(Ui& ui, const std::string& path) {
  overwrite_.clear();
  const auto ok = ui.commands.run(saving_ ? "scenario.save_as=" + path : opening_command(path));
  if (ok) {
    dialog_.close();
  } else {
    error_ = ok.error().text();
    focus_ = true;
  }
}

void FileDialog::draw_places(Ui& ui) {
  std::string opened, entered;
  if (!saving_) {
    ImGui::SeparatorText("shipped");
    for (const std::string& name : shipped_) {
      if (ImGui::Selectable(name.c_str())) opened = name;
    }
    if (!ui.settings.recent.empty()) {
      ImGui::SeparatorText("recent");
      for (const std::string& path : ui.settings.recent) {
        const std::string shown = fs::path(path).filename().string();
        if (ImGui::Selectable(fmt::format("{}##{}", shown, path).c_str())) opened = path;
        if (ImGui::IsItemHovered(ImGuiHoveredFlags_ForTooltip)) tooltip(path);
      }
    }
  }
  ImGui::SeparatorText("folders");
  std::error_code code;
  const std::string here = fs::current_path(code).string();
  const std::pair<const char*, std::string> places[] = {
      {"Home", home_folder()}, {"Working folder", here}, {"Root", "/"}};
  for (const auto& [name, path] : places) {
    if (!path.empty() && ImGui::Selectable(name)) entered = path;
  }
  if (!opened.empty()) finish(ui, opened);
  if (!entered.empty()) enter(entered);
}

void FileDialog::draw_items(Ui& ui) {
  std::string activated;
  if (list_.items.empty()) {
    ImGui::TextDisabled("No folders and no .json files here.");
  }
  ImGuiListClipper clipper;
  clipper.Begin(static_cast<int>(list_.items.size()));
  if (scroll_ && chosen_ >= 0) clipper.IncludeItemByIndex(chosen_);
  while (clipper.Step()) {
    for (int i = clipper.DisplayStart; i < clipper.DisplayEnd; ++i) {
      const FolderItem& item = list_.items[static_cast<std::size_t>(i)];
      const bool capture = opened_[static_cast<std::size_t>(i)];
      const char* mark = capture ? icon::kRecord : item.folder ? icon::kFolder : "   ";
      const std::string label = fmt::format("{}  {}##{}", mark, item.name, item.name);
      if (ImGui::Selectable(label.c_str(), i == chosen_, ImGuiSelectableFlags_AllowDoubleClick)) {
        chosen_ = i;
        typed_ = item.name;
        focus_ = true;
        if ((item.folder && !capture) || ImGui::IsMouseDoubleClicked(ImGuiMouseButton_Left)) {
          activated = listed_path(item.name);
        }
      }
      if (!item.folder) {
        const std::string bytes = format_bytes(static_cast<double>(item.bytes));
        const float right = ImGui::GetContentRegionAvail().x + ImGui::GetCursorPosX();
        ImGui::SameLine();
        ImGui::SetCursorPosX(right - ImGui::CalcTextSize(bytes.c_str()).x - px(6));
        ImGui::TextDisabled("%s", bytes.c_str());
      }
      if (scroll_ && i == chosen_) ImGui::SetScrollHereY();
    }
  }
  scroll_ = false;
  if (list_.cut) ImGui::TextDisabled("More than %zu: type the name.", list_.items.size());
  if (!activated.empty()) activate(ui, activated);
}

// A name as it stands in the list: blanks and "~" in it are its own.
bool FileDialog::is_listed(const std::string& name) const {
  return chosen_ >= 0 && list_.items[static_cast<std::size_t>(chosen_)].name == name;
}

std::string FileDialog::listed_path(const std::string& name) const {
  return (fs::path(list_.path) / name).string();
}

void FileDialog::handle_keys() {
  const int count = static_cast<int>(list_.items.size());
  const auto choose = [&](int item) {
    if (count == 0) return;
    chosen_ = std::clamp(item, 0, count - 1);
    typed_ = list_.items[static_cast<std::size_t>(chosen_)].name;
    scroll_ = focus_ = true;
  };
  if (ImGui::IsKeyPressed(ImGuiKey_DownArrow)) choose(chosen_ + 1);
  if (ImGui::IsKeyPressed(ImGuiKey_UpArrow)) choose(std::max(0, chosen_ - 1));
  if (ImGui::IsKeyChordPressed(ImGuiMod_Alt | ImGuiKey_UpArrow)) enter(parent(list_.path));
}

void FileDialog::draw_bottom(Ui& ui) {
  const char* verb = saving_ ? "Save" : "Open";
  const float button = ImGui::CalcTextSize(verb).x + px(40);
  if (focus_) ImGui::SetKeyboardFocusHere();
  focus_ = false;
  ImGui::SetNextItemWidth(std::max(px(60), ImGui::GetContentRegionAvail().x - button - px(8)));
  const std::string before = typed_;
  const bool entered = text_input("##path", typed_, saving_ ? "file name" : "file name or path",
                                  ImGuiInputTextFlags_EnterReturnsTrue);
  if (typed_ != before) overwrite_.clear();
  ImGui::SameLine();
  ImGui::BeginDisabled(trimmed(typed_).empty());
  const bool pressed = ImGui::Button(verb, {button, 0});
  ImGui::EndDisabled();
  if ((entered || pressed) && !trimmed(typed_).empty()) {
    activate(ui, is_listed(typed_) ? listed_path(typed_) : typed_path(list_.path, typed_));
  }
  if (!error_.empty()) paragraph(error_, Verdict::kWrong);
  if (overwrite_.empty()) return;
  caution(fmt::format("{} exists.", overwrite_));
  if (ImGui::Button("Overwrite it")) finish(ui, std::string(overwrite_));
  ImGui::SameLine();
  if (ImGui::Button("Keep it")) overwrite_.clear();
}

void FileDialog::draw(Ui& ui) {
  const char* title =
      saving_ ? "Save scenario###file dialog" : "Open scenario or capture###file dialog";
  if (!dialog_.begin(title, {760, 480})) return;
  handle_keys();
  if (ImGui::Button("Up")) enter(parent(list_.path));
  if (ImGui::IsItemHovered(ImGuiHoveredFlags_ForTooltip)) tooltip("The folder above. Alt+Up");
  ImGui::SameLine();
  ImGui::AlignTextToFramePadding();
  ImGui::TextUnformatted(list_.path.c_str());
  float below = ImGui::GetFrameHeightWithSpacing();
  if (!error_.empty()) below += 2 * ImGui::GetTextLineHeightWithSpacing();
  if (!overwrite_.empty()) {
    below += ImGui::GetTextLineHeightWithSpacing() + ImGui::GetFrameHeightWithSpacing() + px(6);
  }
  const float height = std::max(px(60), ImGui::GetContentRegionAvail().y - below - px(4));
  const float width = ImGui::GetContentRegionAvail().x;
  if (ImGui::BeginChild("##places", {std::min(px(190), width * 0.35f), height},
                        ImGuiChildFlags_Borders)) {
    draw_places(ui);
  }
  ImGui::EndChild();
  ImGui::SameLine();
  if (ImGui::BeginChild("##items", {0, height}, ImGuiChildFlags_Borders)) draw_items(ui);
  ImGui::EndChild();
  draw_bottom(ui);
  dialog_.end();
}

std::unique_ptr<Overlay> make_file_dialog() { return std::make_unique<FileDialog>(); }

}  // namespace attnscope::gui
