#include "engine/session/verify/evidence.h"

#include <fmt/format.h>

#include <cmath>
#include <vector>

#include "engine/metadata/step_metadata.h"
#include "engine/trace/axis_words.h"
#include "kernels/params/row_format.h"
#include "kernels/params/tensor_view.h"

namespace attnscope {
namespace {

std::string token_place(std::int64_t token, const StepMetadata* step) {
  const bool known = step != nullptr && token < step->num_tokens_in_step();
  if (!known) return fmt::format("token {}", token);
  const auto t = static_cast<std::size_t>(token);
  const std::int32_t row = step->token_to_req[t];
  const std::int32_t request = row < 0 ? -1 : step->live[static_cast<std::size_t>(row)];
  return fmt::format("token {} (request {}, position {})", token, request, step->positions[t]);
}

std::string number(double v) {
  if (std::isnan(v)) return "NaN";
  return v == std::floor(v) && std::fabs(v) < 1e15 ? fmt::format("{:.0f}", v)
                                                   : fmt::format("{:.4g}", v);
}

}  // namespace

std::string evidence(const Comparison& c, const OpParams& params, const as_tap_info& tap,
                     const as_tensor& value, const StepMetadata* step) {
  if (c.worst.index.empty()) return c.note;
  if (as_op_role(params.op()) == AS_ROLE_SELECT) {  // "token 5: .."
    return token_place(c.worst.index[0], step) + c.note.substr(c.note.find(':'));
  }
  // No element alone: all of them.
  if (c.figures.beyond == 0 && c.anomalies == 0 && !c.note.empty()) return c.note;
  const std::vector<std::string> axes = split_axes(tap.axes);
  const bool sampled = params.info().phase == AS_PHASE_AFTER;  // rows to sample, not tokens
  std::string where;
  std::int64_t written = -1;
  for (std::size_t i = 0; i < c.worst.index.size() && i < axes.size(); ++i) {
    const std::int64_t at_index = c.worst.index[i];
    if (!where.empty()) where += ", ";
    if (i == 0 && axes[i] == "M") written = at_index;
    if (axes[i] == "T" || (i == 0 && axes[i] == "N")) {
      std::int64_t token = written = at_index;
      if (sampled && step != nullptr &&
          at_index < static_cast<std::int64_t>(step->sample_rows.size())) {
        token = step->sample_rows[static_cast<std::size_t>(at_index)];
      }
      where += token_place(token, step);
    } else {
      where += fmt::format("{} {}", axis_word(axes[i]), at_index);
    }
  }
  if (tap.kind == AS_TAP_CACHE && written >= 0) {
    const as_cache& cache = params.cache(tap.offset);
    const std::int64_t slot = *at<std::int64_t>(params.tensor(tap.mask_offset), written);
    if (cache.addressing == AS_PAGED && cache.rows_per_block > 0) {
      where += fmt::format(", slot {} (block {}, row {})", slot, slot / cache.rows_per_block,
                           slot % cache.rows_per_block);
    }
  }
  const std::string of_tokens =
      axes[0] == "T" && value.rank > 1
          ? fmt::format(" in {} of {} tokens", c.rows_beyond, value.shape[0])
          : "";
  const std::string worst = std::isfinite(c.budget_used) && c.budget_used > 1
                                ? fmt::format(", up to {:.3g} times the tolerance", c.budget_used)
                                : "";
  return fmt::format(
      "{}: {} instead of {}; {} of {} elements beyond the tolerance{}{}{}", where,
      number(c.worst.value), number(c.worst.reference), c.figures.beyond, c.elements, of_tokens,
      worst,
      c.anomalies > 0 ? fmt::format("; {} are NaN or infinite on one side only", c.anomalies) : "");
}

}  // namespace attnscope
