// A sweep over pools of rows as plots and a table: what is missed by the pool's share of the rows
// and by the context, how alike consecutive selections are, and modelled throughput. Each says of
// which trace it is.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <vector>

#include "engine/offload/row_sweep.h"

namespace attnscope {

struct SweepCurve {
  std::string name;
  std::vector<double> x, y;
};

struct SweepPlot {
  std::string title, x;
  bool share = false;  // y from 0 to 1
  bool log_x = false;
  bool dots = false;  // no line joins them
  std::vector<SweepCurve> curves;
};

// Of one pool: of all layers, or (layer >= 0) of one.
struct SweepRow {
  std::string of;  // "ratio 0.2", "context 32,768"
  int layer = -1;
  std::int64_t pool_rows = 0, context = 0;
  double ratio = 0, missed = 0;
  std::optional<double> overlap;                       // of a layer
  std::array<std::optional<double>, kOverlaps> rates;  // tokens a second, modelled
  std::string best;
  std::string refused;
};

struct RowSweepView {
  std::string sentence, source;
  std::vector<SweepPlot> plots;
  std::vector<SweepRow> rows;
};

RowSweepView row_sweep_view(const RowSweep& sweep);

}  // namespace attnscope
