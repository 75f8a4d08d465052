// A matrix as a picture: a texture with exact cell picking, zoom to where a cell shows its number,
// range control with histogram, named axes. NaN magenta, infinities marked, out of range striped.
#pragma once

#include <imgui.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace attnscope::gui {

struct HeatMapData {
  std::int64_t rows = 0, columns = 0;
  std::function<double(std::int64_t row, std::int64_t column)> value;
  // Cells that hold no value at all (masked, unread): drawn hatched. Empty = none.
  std::function<bool(std::int64_t row, std::int64_t column)> absent;
  bool is_signed = false;  // diverging colours around 0
  // What the colours span at least, where the user has set nothing: of maps that lie beside each
  // other the same. low > high: as far as the values go.
  double low = 0, high = -1;
  std::string row_axis = "row", column_axis = "column";
  std::function<std::string(std::int64_t)> row_name, column_name;  // labels; empty = numbers
  std::string value_name = "value";                                // with unit: for the tooltip
  std::function<std::string(std::int64_t row, std::int64_t column)> note;  // one more line of it
  std::uint64_t version = 0;  // the picture is made again when it changes
};

// Names of row and column, value in full precision, note: what a tooltip says.
std::string cell_text(const HeatMapData& data, std::int64_t row, std::int64_t column);

// A row's or column's label by its name function, which may be empty.
std::string index_label(const std::function<std::string(std::int64_t)>& name, std::int64_t index);

struct HeatMapEvents {
  bool hovered = false, clicked = false;
  std::int64_t row = -1, column = -1;  // of hovered or clicked
};

class HeatMap {
 public:
  HeatMap();
  ~HeatMap();
  // Draws into the space given (x, y > 0), with range control above when `controls`. selected: cell
  // framed in the accent colour, -1 = none (row or column alone frames that line). Larger matrices
  // than the screen are reduced by the largest magnitude per pixel; zooming shows single cells.
  // Wheel zooms (Shift: rows alone, Ctrl: columns alone), drag pans, double click resets. Keyboard:
  // Alt with an arrow moves the selection (arrows alone are the app's).
  HeatMapEvents draw(const char* id, const HeatMapData& data, ImVec2 size,
                     std::int64_t selected_row, std::int64_t selected_column, bool controls = true);
  // Range in force (autofit unless the user set one).
  double range_min() const;
  double range_max() const;
  void reset_range();
  // The next picture shows the selected cell large enough to be read; one that is selected later is
  // brought into view too, at the zoom there is.
  void zoom_to_selected();
  // A large matrix is still being read: more frames are needed to finish the picture.
  bool busy() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace attnscope::gui
