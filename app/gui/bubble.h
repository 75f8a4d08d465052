// A note beside a panel, with an arrow to it: the tour and the lessons speak through it.
#pragma once

#include <imgui.h>
#include <imgui_internal.h>

#include <optional>

namespace attnscope::gui {

// Where a panel stands now; nullopt when it is closed or behind another tab.
std::optional<ImRect> panel_rect(const char* panel_id);

class Bubble {
 public:
  // panel_id: whom it points at; nullptr or an unseen panel: it stands in the middle of the screen.
  // width: pixels at scale 1. beside: another one's name, which it never covers. Ends with end() in
  // any case.
  bool begin(const char* name, const char* panel_id, float width, const char* beside = nullptr);
  void end();

 private:
  ImVec2 place(const std::optional<ImRect>& target, ImVec2 size) const;
  static ImVec2 clear_of(const char* other, ImVec2 at, ImVec2 size);

  ImVec2 size_{0, 0};  // of the last frame
  std::optional<ImRect> target_;
};

}  // namespace attnscope::gui
