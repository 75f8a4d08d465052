// Goldens of an op case that was saved (engine/opcase): NAME.json and NAME.safetensors beside the
// definition hold the inputs, bit for bit.
#pragma once

#include "engine/golden/golden_run.h"

namespace attnscope {

// The case's op on the lane that the definition (or the options) names. AS_BAD_INPUT for a case
// that cannot be read, or of an op that no lane runs by itself.
Result<void> run_saved_case(const GoldenSpec& spec, const LaneRegistry& registry,
                            const GoldenRunOptions& options, GoldenValues& out);

}  // namespace attnscope
