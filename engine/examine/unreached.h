// Why no call of an op reaches a clause of contracts.
#pragma once

#include <string>
#include <string_view>

#include "engine/opcase/case_op.h"

namespace attnscope {

// By what the op is given, a sentence without its end: "it has no sinks".
std::string why_unreached(std::string_view clause, const CaseOp& op);

}  // namespace attnscope
