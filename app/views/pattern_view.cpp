#include "app/views/pattern_view.h"

#include <algorithm>

#include "app/views/worst_element.h"
#include "engine/model/numbers.h"
#include "engine/trace/axis_words.h"

namespace attnscope {

std::vector<ErrorFinding> pattern_of(const StepTrace& step, const OpTrace& op,
                                     const TapResult& result, std::int64_t rope_dim) {
  const TapCopy* tap = op.tap(result.tap);
  if (result.verdict != Verdict::kWrong || tap == nullptr) return {};
  const auto kept = kept_rule(op, *tap, result.dtype);
  if (!kept || kept->rule.top_k) return {};
  const WrongElements wrong = wrong_elements(tap->value, tap->reference, kept->mask, kept->rule);
  PatternContext context;
  context.rope_dims = rope_dim;
  const std::vector<TapAxis> axes = axes_of(step, op, *tap);
  if (!axes.empty() && axes[0].link == AxisLink::kToken) {
    for (std::int64_t i = 0; i < axes[0].size; ++i) {
      const std::int64_t token = token_row_at(step, op, i);
      if (token < 0 || token >= step.metadata.num_tokens_in_step()) break;
      context.positions.push_back(step.metadata.positions[to_size(token)]);
      context.requests.push_back(step.metadata.token_to_req[to_size(token)]);
    }
  }
  std::vector<ErrorFinding> out = error_pattern(wrong, split_axes(tap->axes), context);
  const std::string rows = kept_rows(step);
  if (!out.empty() && !rows.empty()) out.back().sentence += " (" + rows + ")";
  return out;
}

}  // namespace attnscope
