// Goldens of an op case that was saved (engine/opcase): NAME.json and NAME.safetensors beside the
// definition hold the inputs, bit for bit.
#pragma once

#include "engine/golden/golden_run.h"
#include "engine/opcase/op_case.h"

namespace attnscope {

// AS_BAD_INPUT for a case that is not there, that cannot be read, or of an op that no lane runs by
// itself.
Result<OpCase> read_saved_case(const GoldenSpec& spec);

// The outputs of a call beside ref.sim's, of the same inputs: GoldenValues::judged and fault. name:
// of the case.
Result<void> judge_case(const OpCase& done, const LaneRegistry& registry,
                        const GoldenRunOptions& options, const std::string& name,
                        GoldenValues& out);

// The case's op on the lane that the definition (or the options) names.
Result<void> run_saved_case(const GoldenSpec& spec, const LaneRegistry& registry,
                            const GoldenRunOptions& options, GoldenValues& out);

}  // namespace attnscope
