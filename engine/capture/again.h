// Commands that make again what a capture was made of, for messages that say what it lacks.
#pragma once

#include <string>

#include "engine/capture/capture_index.h"

namespace attnscope {

// "SCENARIO --profile deepseek ..", as `attnscope run` and its like take it; empty for a capture
// that was made of another engine's dump.
std::string scenario_words(const CaptureIndex& index);

// "Record it with: attnscope record .. -o FOLDER --force OPTIONS", FOLDER being `path`; of a
// capture without a scenario what to do instead.
std::string record_again(const CaptureIndex& index, const std::string& path,
                         const std::string& options);

}  // namespace attnscope
