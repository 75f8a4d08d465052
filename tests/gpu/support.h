// What the GPU tests share: the two ways to call the CUDA lane, comparison with the CPU lane and
// with ref.sim.
#pragma once

#include <string>

#include "tests/property/checks.h"

namespace attnscope::gpu_tests {

using properties::Memory;
using properties::Random;
using properties::Report;

// Host tensors (the session's way), or tensors laid out on the GPU.
enum class Way { kHost, kDevice };
const Lane& lane(Way way);
inline std::string way_name(Way way) { return way == Way::kHost ? "host" : "gpu"; }

// The CPU lane on all threads.
const Lane& cpu_lane();

// The same params with outputs of their own, of the same types, poisoned.
OpParams same_outputs(const OpParams& params, Memory* memory);

// Runs the op in the CUDA lane, in the CPU lane and, if asked, in ref.sim (caches must be given as
// the reference wants them in `sim`), and judges every output tensor by its tolerance.
void check_against_cpu(Way way, const OpParams& params, Memory* memory, Report* report);
void check_against_sim(const OpParams& ran, Memory* memory, Report* report);

}  // namespace attnscope::gpu_tests
