// The plan of a step's attention for the layers of one type: what each multiprocessor works on, how
// evenly, and how a token's splits become one result.
//
//   PlanView view = plan_view(info.config, info.layout, step.metadata, layer, row);
//   sentence(view.sentence);
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/cache/cache_layout.h"
#include "engine/metadata/step_metadata.h"
#include "engine/model/model_config.h"

namespace attnscope {

// A split of a row.
struct PlanBar {
  std::int64_t split = -1, row = -1;  // of the plan; token row of the step
  std::int64_t begin = 0, end = 0;    // tiles of the row's lists
  std::int64_t part = -1;             // of the plan: its block of the grid
  std::int64_t worker = -1;           // line of the drawing
  std::int64_t start = 0;             // tiles that its worker has worked on before
  std::int64_t tiles() const { return end - begin; }
};

struct PlanView {
  std::string why_empty;  // not empty: nothing to show, for this reason
  bool off = false;       // because no plan is asked for
  std::string sentence;
  std::string rule;  // "own", "flashmla"
  std::string type;  // of the layer: "C4A"
  std::int64_t multiprocessors = 0;
  std::int64_t shared_by = 1;  // multiprocessors that work on one part, each on its heads
  std::int64_t rows = 0, splits = 0, combined = 0;
  std::vector<PlanBar> bars;       // by split
  std::vector<std::int64_t> load;  // tiles by worker
  std::int64_t busiest = 0;        // the largest load
  double mean = 0;                 // of the workers that have any
  std::int64_t working = 0;        // these
  // Of the selected row: its bars, in the order in which they are combined, and what happens.
  std::vector<std::int64_t> selected;
  std::string row_sentence;
};

// layer: index among those that run, -1 = the first. row: token row of the step, -1 = none.
PlanView plan_view(const ModelConfig& config, const CacheLayout& layout, const StepMetadata& step,
                   int layer, std::int64_t row);

}  // namespace attnscope
