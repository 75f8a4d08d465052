#include "app/gui/bubble.h"

#include <fmt/format.h>

#include <algorithm>

#include "app/gui/theme.h"

namespace attnscope::gui {

std::optional<ImRect> panel_rect(const char* panel_id) {
  const ImGuiWindow* window = ImGui::FindWindowByName(fmt::format("###{}", panel_id).c_str());
  if (window == nullptr || !window->WasActive || window->Hidden) return std::nullopt;
  if (window->DockIsActive && !window->DockTabIsVisible) return std::nullopt;
  // With the tab, where it has the place alone.
  const ImGuiDockNode* node = window->DockNode;
  return node != nullptr ? node->Rect() : window->Rect();
}

// On the side of the target with the most room, else over its lower part.
ImVec2 Bubble::place(const std::optional<ImRect>& target, ImVec2 size) const {
  const ImGuiViewport* screen = ImGui::GetMainViewport();
  const ImRect all(screen->WorkPos, {screen->WorkPos.x + screen->WorkSize.x,
                                     screen->WorkPos.y + screen->WorkSize.y});
  ImVec2 at = {all.GetCenter().x - size.x / 2, all.GetCenter().y - size.y / 2};
  if (target) {
    const float gap = px(14);
    const ImVec2 centre = target->GetCenter();
    const float rooms[] = {
        all.Max.y - target->Max.y - size.y - gap, target->Min.y - all.Min.y - size.y - gap,
        target->Min.x - all.Min.x - size.x - gap, all.Max.x - target->Max.x - size.x - gap};
    const ImVec2 places[] = {{centre.x - size.x / 2, target->Max.y + gap},
                             {centre.x - size.x / 2, target->Min.y - size.y - gap},
                             {target->Min.x - size.x - gap, centre.y - size.y / 2},
                             {target->Max.x + gap, centre.y - size.y / 2}};
    const auto best = std::max_element(std::begin(rooms), std::end(rooms)) - std::begin(rooms);
    at = rooms[best] >= 0 ? places[best]
                          : ImVec2(centre.x - size.x / 2, target->Max.y - size.y - px(10));
  }
  const float margin = px(8);
  at.x = std::max(all.Min.x + margin, std::min(at.x, all.Max.x - size.x - margin));
  at.y = std::max(all.Min.y + margin, std::min(at.y, all.Max.y - size.y - margin));
  return {std::floor(at.x), std::floor(at.y)};
}

// The nearest place beside another bubble; where none has the room, as it was.
ImVec2 Bubble::clear_of(const char* other, ImVec2 at, ImVec2 size) {
  const ImGuiWindow* window = ImGui::FindWindowByName(other);
  if (window == nullptr || !window->Active || window->Hidden) return at;
  const ImRect taken = window->Rect();
  const auto overlaps = [&](ImVec2 p) { return taken.Overlaps({p, {p.x + size.x, p.y + size.y}}); };
  if (!overlaps(at)) return at;
  const ImGuiViewport* screen = ImGui::GetMainViewport();
  const float gap = px(8);
  const ImRect all(screen->WorkPos.x, screen->WorkPos.y, screen->WorkPos.x + screen->WorkSize.x,
                   screen->WorkPos.y + screen->WorkSize.y);
  const ImVec2 places[] = {{at.x, taken.Max.y + gap},
                           {at.x, taken.Min.y - size.y - gap},
                           {taken.Max.x + gap, at.y},
                           {taken.Min.x - size.x - gap, at.y}};
  ImVec2 best = at;
  float least = FLT_MAX;
  for (const ImVec2 p : places) {
    if (!all.Contains(ImRect{p, {p.x + size.x, p.y + size.y}})) continue;
    const float far = std::abs(p.x - at.x) + std::abs(p.y - at.y);
    if (far >= least) continue;
    least = far;
    best = p;
  }
  return best;
}

bool Bubble::begin(const char* name, const char* panel_id, float width, const char* beside) {
  target_ = panel_id != nullptr ? panel_rect(panel_id) : std::nullopt;
  const ImGuiViewport* screen = ImGui::GetMainViewport();
  const float wide = std::min(px(width), std::max(px(120), screen->WorkSize.x - px(24)));
  const float tall = std::max(px(80), screen->WorkSize.y - px(24));
  const ImVec2 size = size_.x > 0 ? size_ : ImVec2(wide, px(160));
  const ImVec2 at = place(target_, size);
  ImGui::SetNextWindowPos(beside != nullptr ? clear_of(beside, at, size) : at);
  ImGui::SetNextWindowSizeConstraints({wide, 0}, {wide, tall});
  ImGui::PushStyleColor(ImGuiCol_WindowBg, ImGui::GetStyleColorVec4(ImGuiCol_PopupBg));
  ImGui::PushStyleColor(ImGuiCol_Border, theme().accent);
  ImGui::PushStyleVar(ImGuiStyleVar_WindowPadding, {px(14), px(12)});
  ImGui::PushStyleVar(ImGuiStyleVar_WindowRounding, px(6));
  const ImGuiWindowFlags flags = ImGuiWindowFlags_NoTitleBar | ImGuiWindowFlags_NoSavedSettings |
                                 ImGuiWindowFlags_NoDocking | ImGuiWindowFlags_NoResize |
                                 ImGuiWindowFlags_NoMove | ImGuiWindowFlags_AlwaysAutoResize |
                                 ImGuiWindowFlags_NoFocusOnAppearing | ImGuiWindowFlags_NoNav;
  return ImGui::Begin(name, nullptr, flags);
}

void Bubble::end() {
  ImGuiWindow* window = ImGui::GetCurrentWindow();
  size_ = window->Size;
  // Above the panels, below dialogs.
  if (ImGui::GetTopMostPopupModal() == nullptr &&
      !ImGui::IsPopupOpen("", ImGuiPopupFlags_AnyPopupId | ImGuiPopupFlags_AnyPopupLevel)) {
    ImGui::BringWindowToDisplayFront(window);
  }
  if (target_ && !window->Hidden) {
    ImDrawList* list = window->DrawList;
    list->PushClipRectFullScreen();
    const float half = px(1);
    list->AddRect({target_->Min.x + half, target_->Min.y + half},
                  {target_->Max.x - half, target_->Max.y - half}, theme().accent, px(4), px(2));
    // The arrow leaves the edge that faces the panel.
    const ImRect own = window->Rect();
    const float side = px(8);
    const ImVec2 to = target_->GetCenter();
    const float x = ImClamp(to.x, own.Min.x + 2 * side, own.Max.x - 2 * side);
    const float y = ImClamp(to.y, own.Min.y + 2 * side, own.Max.y - 2 * side);
    if (own.Min.y >= target_->Max.y) {
      list->AddTriangleFilled({x - side, own.Min.y}, {x + side, own.Min.y}, {x, own.Min.y - side},
                              theme().accent);
    } else if (own.Max.y <= target_->Min.y) {
      list->AddTriangleFilled({x - side, own.Max.y}, {x + side, own.Max.y}, {x, own.Max.y + side},
                              theme().accent);
    } else if (own.Max.x <= target_->Min.x) {
      list->AddTriangleFilled({own.Max.x, y - side}, {own.Max.x, y + side}, {own.Max.x + side, y},
                              theme().accent);
    } else if (own.Min.x >= target_->Max.x) {
      list->AddTriangleFilled({own.Min.x, y - side}, {own.Min.x, y + side}, {own.Min.x - side, y},
                              theme().accent);
    }
    list->PopClipRect();
  }
  ImGui::End();
  ImGui::PopStyleVar(2);
  ImGui::PopStyleColor(2);
}

}  // namespace attnscope::gui
