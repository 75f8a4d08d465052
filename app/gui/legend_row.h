// The legend of a map or strip: entries side by side that wrap where the next one would not fit.
//
//   LegendRow row;
//   row.swatch(owner_colour(0), "manual 35");
//   row.mark(LegendMark::kFresh, "taken now");
#pragma once

#include <imgui.h>

#include <string>

namespace attnscope::gui {

enum class LegendMark { kFresh, kFreed, kSlot, kPicked, kHost };

// A mark inside a cell, as strips and maps draw it.
void draw_mark(ImDrawList* list, LegendMark mark, ImVec2 min, ImVec2 max);

class LegendRow {
 public:
  // True while the mouse is over the entry.
  bool swatch(ImU32 colour, const std::string& text);
  bool hatched(const std::string& text);
  bool outlined(const std::string& text);
  bool mark(LegendMark mark, const std::string& text);

 private:
  void place(const std::string& text);

  bool first_ = true;
};

}  // namespace attnscope::gui
