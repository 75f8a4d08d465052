#include "app/gui/quiet_frames.h"

#include <imgui.h>
#include <imgui_internal.h>

#include <algorithm>
#include <utility>

namespace attnscope::gui {
namespace {

constexpr int kSettled = 6;  // layouts and first views take some frames after a change

// Whether the input of this frame may change more than what the mouse points at.
bool acts(const ImGuiContext& context) {
  const auto moves = [](const ImGuiInputEvent& event) {
    return event.Type == ImGuiInputEventType_MousePos;
  };
  const auto& events = context.InputEventsTrail;
  return !std::all_of(events.begin(), events.end(), moves) || ImGui::IsAnyMouseDown() ||
         context.ActiveId != 0 || context.ActiveIdPreviousFrame != 0 ||
         context.OpenPopupStack.Size > 0 || context.DragDropActive || context.NavAnyRequest ||
         context.WheelingWindow != nullptr || context.MovingWindow != nullptr;
}

// Somebody reads what a frame consists of: all of it is drawn.
bool is_read(const ImGuiContext& context) {
  return context.LogEnabled || context.TestEngineHookItems;
}

}  // namespace

void QuietFrames::begin(bool changed) {
  const ImGuiContext& context = *ImGui::GetCurrentContext();
  // A new texture of letters has them in other places.
  const ImTextureData* letters = ImGui::GetIO().Fonts->TexData;
  const int texture = letters != nullptr ? letters->UniqueID : -1;
  changed = changed || std::exchange(font_texture_, texture) != texture;
  quiet_ = changed || acts(context) || is_read(context) ? 0 : std::min(quiet_ + 1, kSettled);
  const ImGuiWindow* hovered = context.HoveredWindow;
  left_ = std::exchange(under_, hovered != nullptr ? hovered->RootWindow : nullptr);
}

bool QuietFrames::quiet() const { return quiet_ == kSettled; }

bool QuietFrames::keep(const ImGuiWindow* window) const {
  const bool kept = quiet() && window != nullptr && window->WasActive && !window->Hidden &&
                    !window->Appearing && window->RootWindow == window && window != under_ &&
                    window != left_;
  if (kept) ImGui::SetNextWindowRefreshPolicy(ImGuiWindowRefreshFlags_TryToAvoidRefresh);
  return kept;
}

// ImGui leaves a docked window out of what its dock draws then.
void QuietFrames::kept(ImGuiWindow* window) {
  ImGuiWindow* parent = window->ParentWindow;
  if (!window->SkipRefresh || !window->DockIsActive || parent == nullptr) return;
  window->BeginOrderWithinParent = static_cast<short>(parent->DC.ChildWindows.Size);
  parent->DC.ChildWindows.push_back(window);
  // The dock draws its scrollbars too.
  window->DrawList = parent->DrawList;
  window->SkipItems = false;
  if (window->ScrollbarX) ImGui::Scrollbar(ImGuiAxis_X);
  if (window->ScrollbarY) ImGui::Scrollbar(ImGuiAxis_Y);
  window->SkipItems = true;
  window->DrawList = nullptr;
}

}  // namespace attnscope::gui
