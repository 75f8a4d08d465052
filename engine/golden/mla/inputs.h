// Inputs of the ops of absorbed MLA that no other family has.
#pragma once

#include "engine/golden/input_maker.h"

namespace attnscope {

std::unique_ptr<InputMaker> mla_inputs(as_op_id op, const GoldenCase& shape);

}  // namespace attnscope
