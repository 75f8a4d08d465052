// Inputs of the ops of DeepSeek-V4 that no other family has.
#pragma once

#include "engine/golden/input_maker.h"

namespace attnscope {

std::unique_ptr<InputMaker> deepseek_v4_inputs(as_op_id op, const GoldenCase& shape);

}  // namespace attnscope
