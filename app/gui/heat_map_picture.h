// The textures of a heat map: the whole matrix reduced to the screen, and the visible part in full
// when zoomed in. Made again only when values, range or colours change, in slices over frames.
#pragma once

#include <imgui.h>

#include <cstdint>
#include <vector>

#include "app/gui/cell_texture.h"
#include "app/views/matrix_scan.h"

namespace attnscope::gui {

// Colours of a range of values; min and max map to the ends.
class ColourRange {
 public:
  // Makes the table again when something changed (theme and colour map included).
  void set(double min, double max, bool is_signed);
  double min() const { return min_; }
  double max() const { return max_; }
  std::uint64_t version() const { return version_; }  // grows with every change
  ImU32 colour(double value) const;                   // of a finite value, clamped
  bool outside(double value) const { return value < min_ || value > max_; }
  // unit 0..1 along the colour bar.
  ImU32 at(float unit) const;

 private:
  double min_ = 0, max_ = 1;
  bool is_signed_ = false;
  ImU32 mark_ = 0;  // changes with the theme and the colour map
  std::uint64_t version_ = 0;
  std::vector<ImU32> table_;
};

// Cells [x0, x1) x [y0, y1).
struct CellRect {
  double x0 = 0, y0 = 0, x1 = 1, y1 = 1;
};

class HeatMapPicture {
 public:
  // What the texture itself shows, because cells are too small to draw it over them.
  struct Patterns {
    bool absent = false, outside = false;
    friend bool operator==(const Patterns&, const Patterns&) = default;
  };
  void forget();  // the values changed
  // Brings the picture up to date, within the deadline. False: more to do next frame.
  bool advance(const MatrixScan& scan, const CellValue& value, const CellAbsent& absent,
               const CellRect& view, ImVec2 pixels, Patterns patterns, const ColourRange& range,
               ScanClock::time_point deadline);
  void draw(ImDrawList* list, ImVec2 min, ImVec2 max, const CellRect& view) const;
  // What is on screen at the cell; null while nothing is.
  const ReducedMatrix* shown() const;

 private:
  struct Layer {
    ReducedMatrix matrix;  // shown, when valid
    ReducedMatrix next;    // being made; height 0 = none
    CellTexture texture;
    bool valid = false;          // `matrix` is of the current values
    std::uint64_t coloured = 0;  // range version of the texture
    Patterns patterns;
    void colour(const ColourRange& range, Patterns wanted);
    void draw(ImDrawList* list, ImVec2 min, ImVec2 max, const CellRect& view) const;
  };
  bool update(Layer& layer, ReducedMatrix wanted, const MatrixScan& scan, const CellValue& value,
              const CellAbsent& absent, Patterns patterns, const ColourRange& range,
              ScanClock::time_point deadline);
  Layer whole_, detail_;
  bool use_detail_ = false;
};

}  // namespace attnscope::gui
