#include "app/gui/input_queue.h"

#include <imgui.h>
#include <imgui_internal.h>

#include "app/gui/key_chord.h"

namespace attnscope::gui {
namespace {

using Events = ImVector<ImGuiInputEvent>;

// Events of the next frame: those before a modifier changes after another key was pressed.
int events_of_frame(const Events& events) {
  bool pressed = false;
  for (int i = 0; i < events.Size; ++i) {
    if (events[i].Type != ImGuiInputEventType_Key) continue;
    const ImGuiInputEventKey& key = events[i].Key;
    if (is_modifier(key.Key)) {
      if (pressed) return i;
    } else {
      pressed = pressed || key.Down;
    }
  }
  return events.Size;
}

}  // namespace

bool input_waits() { return ImGui::GetCurrentContext()->InputEventsQueue.Size > 0; }

void new_frame() {
  Events& events = ImGui::GetCurrentContext()->InputEventsQueue;
  const int now = events_of_frame(events);
  Events later;
  for (int i = now; i < events.Size; ++i) later.push_back(events[i]);
  events.resize(now);
  ImGui::NewFrame();
  for (const ImGuiInputEvent& event : later) events.push_back(event);
}

}  // namespace attnscope::gui
