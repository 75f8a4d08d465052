// The pools of rows of a step whose sparse rows lie in host memory: what hit, what was missed, how
// much of a selection the step before had, and who leaves next.
//
//   RowPoolView view = row_pool_view(info, step, before, summary, layer);
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "engine/session/snapshot.h"
#include "engine/session/step/step_trace.h"

namespace attnscope {

// A layer that selects.
struct RowPoolLayer {
  PoolCounts counts;
  // Of the rows that its decoding requests selected, those that they had selected in the step
  // before; none = not known.
  std::optional<double> overlap;
};

struct RowPoolView {
  std::string why_empty;  // not empty: nothing to show, for this reason
  bool off = false;       // because all rows lie on the device
  std::string sentence;
  int layer = -1;  // published, that is shown
  std::int64_t tokens_per_row = 1;
  std::vector<PoolPlace> places;  // of its pool; empty where only counts are known
  std::vector<RowPoolLayer> layers;
};

// before: the step before, nullptr = not kept. layer: published; one without a pool shows the next
// one that has.
RowPoolView row_pool_view(const SessionInfo& info, const StepTrace& step, const StepTrace* before,
                          const StepSummary* summary, int layer);

const char* pool_place_name(PoolPlace::What what);  // "hit", "missed", ..

}  // namespace attnscope
