#include "engine/trace/judged_taps.h"

#include <limits>
#include <utility>

namespace attnscope {

TapResult judged_wrong(as_op_id op, std::string tap, std::int64_t elements, std::int64_t beyond,
                       std::string note) {
  TapResult result;
  result.op = op;
  result.tap = std::move(tap);
  result.elements = elements;
  result.tolerance = "exact";
  result.introduced = ErrorFigures{0, 0, 0, beyond, beyond};
  result.verdict = Verdict::kWrong;
  result.budget_used = std::numeric_limits<double>::infinity();
  result.note = std::move(note);
  return result;
}

}  // namespace attnscope
