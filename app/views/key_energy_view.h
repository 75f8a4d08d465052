// How the energy of index keys is spread over their dims, before and after the Hadamard transform,
// and what FP8 with one scale a key makes of both: why keys are transformed before they are stored.
//
//   KeyEnergyView view = key_energy_view(info, step, layer);
//   plot(view.before, view.after);
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/session/snapshot.h"
#include "engine/session/step/step_trace.h"

namespace attnscope {

// One of the two forms of the keys.
struct KeyForm {
  std::vector<double> energy;  // [dims] mean of squares over the keys, mean over dims 1
  double largest = 0;          // mean over keys of max|x| / root mean square
  double fp8_error = 0;        // of FP8 with one fp32 scale a key: root of the mean relative square
};

struct KeyEnergyView {
  std::string why_empty;     // not empty: nothing to show, for this reason
  int layer = -1;            // published number
  std::int64_t keys = 0;     // of the step, kept
  bool transformed = false;  // what is stored is `after`; else it is `before`
  KeyForm before, after;
  std::string sentence;
};

// layer: published number.
KeyEnergyView key_energy_view(const SessionInfo& info, const StepTrace& step, int layer);

}  // namespace attnscope
