// Scores of the entries one token sees: bars by entry or by rank, the selected set coloured, the
// threshold as a line, entries that differ from the reference marked. Up to a million entries:
// where several share a pixel, their extremes are shown.
#pragma once

#include <imgui.h>
#include <implot.h>

#include <cstdint>
#include <vector>

#include "app/gui/cell_texture.h"
#include "app/views/top_k_view.h"

namespace attnscope::gui {

enum class ScoreOrder { kEntry, kRank, kThreshold };

struct ScorePlotEvents {
  std::int32_t hovered = -1, clicked = -1;  // entries; -1 = none
};

class ScorePlot {
 public:
  // version: of the view. The view must have entries. Wheel zooms, drag pans, double click resets.
  ScorePlotEvents draw(const char* id, const TopKView& view, std::uint64_t version,
                       ScoreOrder order, std::int64_t selected, ImVec2 size);
  // The next picture shows all of its entries, whatever was zoomed into.
  void fit_again() {
    refit_ = true;
    zoomed_ = false;
  }

 private:
  struct Frame;  // one frame's geometry
  void fit(const TopKView& view, ScoreOrder order);
  void reduce(const TopKView& view, Frame& frame);
  // One bar a place; where several share a pixel, one picture of all columns, painted when
  // something in it changes: thousands of bars one pixel wide are slow on a software renderer.
  void draw_bars(const TopKView& view, const Frame& frame);
  void paint_columns(const Frame& frame);
  void draw_changes(const TopKView& view, const Frame& frame) const;
  void draw_threshold(const TopKView& view, const Frame& frame) const;
  void draw_swaps(const TopKView& view, const Frame& frame) const;
  std::int32_t entry_under_mouse(const TopKView& view, const Frame& frame) const;

  ImPlotRect fitted_{0, 1, 0, 1};
  bool refit_ = true;  // put the fitted range in force
  bool zoomed_ = false;
  std::uint64_t version_ = ~std::uint64_t{0};
  ScoreOrder order_ = ScoreOrder::kEntry;
  // Reduced columns and what they were made for.
  std::vector<ScoreColumn> columns_;
  std::uint64_t columns_version_ = ~std::uint64_t{0};
  double columns_begin_ = 0, columns_end_ = 0;
  bool columns_by_rank_ = false;
  // Their picture, and what it was painted for.
  struct Painted {
    double low = 0, high = 0;
    float base = 0;
    int width = 0, height = 0;
    ImU32 colours[3] = {};
    friend bool operator==(const Painted&, const Painted&) = default;
  };
  CellTexture picture_;
  Painted painted_;
  bool repaint_ = true;
};

}  // namespace attnscope::gui
