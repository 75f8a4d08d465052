#include "app/gui/dialog.h"

#include <algorithm>

#include "app/gui/theme.h"

namespace attnscope::gui {

bool Dialog::begin(const char* title, ImVec2 size, bool escape) {
  if (wanted_) {
    ImGui::OpenPopup(title);
    wanted_ = false;
    closing_ = false;
  }
  if (!ImGui::IsPopupOpen(title)) return false;
  const ImGuiViewport* screen = ImGui::GetMainViewport();
  const float margin = px(16);
  const ImVec2 room = {std::max(px(80), screen->WorkSize.x - margin),
                       std::max(px(60), screen->WorkSize.y - margin)};
  const float width = std::min(px(size.x), room.x);
  ImGuiWindowFlags flags = ImGuiWindowFlags_NoSavedSettings | ImGuiWindowFlags_NoMove |
                           ImGuiWindowFlags_NoResize | ImGuiWindowFlags_NoCollapse |
                           ImGuiWindowFlags_NoDocking;
  if (size.y > 0) {
    ImGui::SetNextWindowSize({width, std::min(px(size.y), room.y)}, ImGuiCond_Always);
  } else {
    ImGui::SetNextWindowSizeConstraints({width, 0}, {width, room.y});
    flags |= ImGuiWindowFlags_AlwaysAutoResize;
  }
  ImGui::SetNextWindowPos(screen->GetWorkCenter(), ImGuiCond_Always, {0.5f, 0.5f});
  bool open = true;
  push_field_style();
  if (!ImGui::BeginPopupModal(title, &open, flags)) {
    pop_field_style();
    return false;
  }
  appearing_ = ImGui::IsWindowAppearing();
  const bool beside = ImGui::IsMouseClicked(ImGuiMouseButton_Left) && !appearing_ &&
                      !ImGui::IsWindowHovered(ImGuiHoveredFlags_RootAndChildWindows |
                                              ImGuiHoveredFlags_AllowWhenBlockedByActiveItem |
                                              ImGuiHoveredFlags_AllowWhenBlockedByPopup) &&
                      !ImGui::IsPopupOpen("", ImGuiPopupFlags_AnyPopupId);
  if (beside || (escape && ImGui::IsKeyPressed(ImGuiKey_Escape, false))) closing_ = true;
  return true;
}

void Dialog::end() {
  if (closing_) ImGui::CloseCurrentPopup();
  closing_ = false;
  ImGui::EndPopup();
  pop_field_style();
}

void push_field_style() { ImGui::PushStyleColor(ImGuiCol_FrameBg, theme().surface); }

void pop_field_style() { ImGui::PopStyleColor(); }

}  // namespace attnscope::gui
