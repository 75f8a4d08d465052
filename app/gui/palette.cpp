#include "app/gui/palette.h"

#include <fmt/format.h>
#include <imgui_internal.h>

#include <algorithm>

#include "app/gui/dialog.h"
#include "app/gui/key_chord.h"
#include "app/gui/text_input.h"
#include "app/gui/widgets.h"

namespace attnscope::gui {
namespace {

constexpr const char* kPopup = "##palette";
constexpr std::size_t kMostRecentItems = 6;

bool is_enabled(const Ui& ui, const PaletteItem& item) {
  if (item.kind == PaletteItem::Kind::kNote) return false;
  const Command* command = ui.commands.find(item.id);
  return command == nullptr || !command->enabled || command->enabled();
}

}  // namespace

void Palette::register_commands(Ui& ui) {
  ui.commands.add({.id = "palette.open",
                   .title = "All commands ..",
                   .group = "Help",
                   .help = "Finds any command by a few letters, or goes to a step or an op.",
                   .shortcut = "Ctrl+P",
                   .run = [this](std::string_view) -> Result<void> {
                     wanted_ = true;
                     return {};
                   }});
  // What is run elsewhere while the palette is open closes it.
  const auto before = ui.commands.on_run;
  ui.commands.on_run = [this, before](const std::string& id) {
    if (before) before(id);
    if (id != "palette.open") closing_ = true;
  };
}

void Palette::start() {
  text_.clear();
  error_.clear();
  items_version_ = ~std::uint64_t{0};
  chosen_ = 0;
  focus_ = true;
  closing_ = false;
}

void Palette::refresh(const Ui& ui) {
  if (items_version_ == ui.bench.version() && items_text_ == text_) return;
  const bool typed = items_text_ != text_;
  items_version_ = ui.bench.version();
  items_text_ = text_;
  items_ = palette_items(ui.commands, text_, recent_, ui.bench.snapshot(), ui.bench.cursor(),
                         ui.bench.selection().request);
  if (typed) {
    chosen_ = 0;
    scroll_ = true;
    error_.clear();
  }
  chosen_ = std::clamp(chosen_, 0, std::max(0, static_cast<int>(items_.size()) - 1));
}

void Palette::ask_value(const std::string& id) {
  text_ = id + "=";
  focus_ = to_end_ = true;
  items_version_ = ~std::uint64_t{0};
}

void Palette::choose(Ui& ui, const PaletteItem& item) {
  if (item.kind == PaletteItem::Kind::kNote) return;
  if (item.asks) {
    ask_value(item.id);
    return;
  }
  const std::string id = item.id, run = item.run;  // the command may change the list
  if (auto ok = ui.commands.run(run); !ok) {
    error_ = ok.error().text();
    focus_ = true;
    return;
  }
  std::erase(recent_, id);
  recent_.insert(recent_.begin(), id);
  if (recent_.size() > kMostRecentItems) recent_.pop_back();
  closing_ = true;
}

void Palette::handle_keys() {
  const int count = static_cast<int>(items_.size());
  const auto move = [&](int by) {
    if (count == 0) return;
    chosen_ =
        std::abs(by) == 1 ? (chosen_ + by + count) % count : std::clamp(chosen_ + by, 0, count - 1);
    scroll_ = true;
  };
  if (ImGui::IsKeyPressed(ImGuiKey_DownArrow)) move(1);
  if (ImGui::IsKeyPressed(ImGuiKey_UpArrow)) move(-1);
  if (ImGui::IsKeyPressed(ImGuiKey_PageDown)) move(10);
  if (ImGui::IsKeyPressed(ImGuiKey_PageUp)) move(-10);
  if (ImGui::IsKeyPressed(ImGuiKey_Escape, false)) closing_ = true;
}

// True when Enter was pressed.
bool Palette::draw_field() {
  if (focus_) ImGui::SetKeyboardFocusHere();
  push_field_style();
  ImGui::PushStyleVar(ImGuiStyleVar_FramePadding, {px(10), px(8)});
  ImGui::SetNextItemWidth(-FLT_MIN);
  // A value is asked for after what is there.
  const bool entered = text_input(
      "##text", text_,
      "a command, token 1500, block 211, 7/2/sparse_attention, text of a prompt, or @ for failures",
      ImGuiInputTextFlags_EnterReturnsTrue, to_end_);
  ImGui::PopStyleVar();
  pop_field_style();
  if (ImGui::IsItemActive() && !focus_) to_end_ = false;
  focus_ = false;
  return entered;
}

void Palette::draw_row(const Ui& ui, const PaletteItem& item, bool chosen, float width,
                       float height) {
  ImDrawList* list = ImGui::GetWindowDrawList();
  const ImVec2 at = ImGui::GetItemRectMin();
  const Theme& t = theme();
  const bool enabled = is_enabled(ui, item);
  if (chosen) {
    list->AddRectFilled(at, {at.x + width, at.y + height}, with_alpha(t.accent, 0.20f), px(4));
  }
  const float y = at.y + (height - ImGui::GetTextLineHeight()) / 2;
  float right = at.x + width - px(10);
  const std::string keys = ui.commands.shortcut(item.id);
  const bool by_name = item.kind == PaletteItem::Kind::kCommand;
  if (by_name && !keys.empty()) {
    const float wide = ImGui::CalcTextSize(keys.c_str()).x;
    const float top = at.y + px(3), bottom = at.y + height - px(3);
    list->AddRectFilled({right - wide - px(8), top}, {right, bottom}, t.grid, px(3));
    list->AddText({right - wide - px(4), y}, enabled ? t.text : t.text_faint, keys.c_str());
    right -= wide + px(18);
  }
  const float left = at.x + px(10);
  const float title = std::min(ImGui::CalcTextSize(item.title.c_str()).x, right - left);
  text_cut(list, {left, y}, right - left, enabled ? t.text : t.text_faint, item.title);
  float x = left + title + px(12);
  const Command* command = ui.commands.find(item.id);
  std::string more = by_name ? item.group : item.detail;
  if (!enabled && command != nullptr) more = command->why_disabled;
  if (by_name && enabled) {
    ImGui::PushFont(numbers(), 0);
    const std::string id = item.asks ? item.id + "=" : item.id;
    const float wide = ImGui::CalcTextSize(id.c_str()).x;
    if (right - wide > x + px(60)) {
      list->AddText({right - wide, at.y + (height - ImGui::GetTextLineHeight()) / 2}, t.text_faint,
                    id.c_str());
      right -= wide + px(12);
    }
    ImGui::PopFont();
  }
  text_cut(list, {x, y}, right - x, t.text_dim, more);
}

void Palette::draw_rows(Ui& ui) {
  const float height = std::floor(ImGui::GetTextLineHeight() * 1.75f);
  const ImGuiViewport* screen = ImGui::GetMainViewport();
  const float most = std::max(height * 2, std::min(height * 14, screen->WorkSize.y * 0.6f));
  const float room = std::min(most, height * static_cast<float>(items_.size()));
  if (!ImGui::BeginChild("##rows", {0, room})) {
    ImGui::EndChild();
    return;
  }
  ImGui::PushStyleVar(ImGuiStyleVar_ItemSpacing, {0, 0});
  const float width = ImGui::GetContentRegionAvail().x;
  if (scroll_) {
    const float top = static_cast<float>(chosen_) * height;
    if (top < ImGui::GetScrollY()) ImGui::SetScrollY(top);
    if (top + height > ImGui::GetScrollY() + room) ImGui::SetScrollY(top + height - room);
    scroll_ = false;
  }
  int clicked = -1;
  ImGuiListClipper clipper;
  clipper.Begin(static_cast<int>(items_.size()), height);
  while (clipper.Step()) {
    for (int i = clipper.DisplayStart; i < clipper.DisplayEnd; ++i) {
      const PaletteItem& item = items_[static_cast<std::size_t>(i)];
      ImGui::PushID(i);
      if (ImGui::InvisibleButton(item.run.empty() ? "note" : item.run.c_str(), {width, height})) {
        clicked = i;
      }
      if (ImGui::IsItemHovered() &&
          (ImGui::GetIO().MouseDelta.x != 0 || ImGui::GetIO().MouseDelta.y != 0)) {
        chosen_ = i;
      }
      draw_row(ui, item, i == chosen_, width, height);
      ImGui::PopID();
    }
  }
  ImGui::PopStyleVar();
  ImGui::EndChild();
  if (clicked >= 0) {
    chosen_ = clicked;
    choose(ui, PaletteItem(items_[static_cast<std::size_t>(clicked)]));
  }
}

void Palette::draw_footer(const Ui& ui) {
  ImGui::Separator();
  if (!error_.empty()) {
    paragraph(error_, Verdict::kWrong);
    return;
  }
  std::string text = "Up and Down choose, Enter runs, Escape closes";
  if (!items_.empty()) {
    const PaletteItem& item = items_[static_cast<std::size_t>(chosen_)];
    const Command* command = ui.commands.find(item.id);
    if (item.kind == PaletteItem::Kind::kNote) {
      text = item.detail;
    } else if (command != nullptr && item.kind != PaletteItem::Kind::kPlace) {
      text = command->help;
      if (!command->argument.empty()) {
        text += fmt::format("{}Value: {}", text.empty() ? "" : "  ", command->argument);
      }
      if (!is_enabled(ui, item)) text += "  Not now: " + command->why_disabled + ".";
    }
  }
  dim(text);
}

void Palette::draw(Ui& ui) {
  if (wanted_) {
    wanted_ = false;
    start();
    ImGui::OpenPopup(kPopup);
  }
  const ImGuiViewport* screen = ImGui::GetMainViewport();
  const float width = std::max(px(160), std::min(px(680), screen->WorkSize.x - px(24)));
  ImGui::SetNextWindowPos(
      {screen->GetWorkCenter().x, screen->WorkPos.y + screen->WorkSize.y * 0.1f}, ImGuiCond_Always,
      {0.5f, 0});
  ImGui::SetNextWindowSizeConstraints({width, 0}, {width, screen->WorkSize.y * 0.9f});
  if (!ImGui::BeginPopup(kPopup, ImGuiWindowFlags_NoSavedSettings | ImGuiWindowFlags_NoMove |
                                     ImGuiWindowFlags_NoScrollbar)) {
    open_ = false;
    return;
  }
  const ImGuiKeyChord own = key_chord(ui.commands.shortcut("palette.open"));
  if (open_ && own != 0 && ImGui::IsKeyChordPressed(own)) closing_ = true;
  open_ = true;
  const bool entered = draw_field();
  refresh(ui);
  handle_keys();
  draw_rows(ui);
  if (entered && !items_.empty()) {
    choose(ui, PaletteItem(items_[static_cast<std::size_t>(chosen_)]));
    if (!closing_) focus_ = true;
  }
  draw_footer(ui);
  if (closing_) ImGui::CloseCurrentPopup();
  closing_ = false;
  ImGui::EndPopup();
}

std::unique_ptr<Overlay> make_palette() { return std::make_unique<Palette>(); }

}  // namespace attnscope::gui
