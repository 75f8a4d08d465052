#include "app/views/score_terms.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "app/text/format.h"
#include "engine/trace/compare.h"
#include "kernels/cpu/codec.h"
#include "kernels/layout/records.h"
#include "kernels/params/row_format.h"
#include "kernels/params/tensor_view.h"

namespace attnscope {
namespace {

constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();

// Values as they enter the dot product: FP8 codes as they are, MXFP4 with its block scales.
std::vector<float> decoded(std::int32_t record, const std::uint8_t* codes,
                           const std::uint8_t* scales) {
  std::vector<float> values(AS_INDEX_DIM);
  const float one = 1;
  std::uint8_t plain[sizeof(one)];
  std::memcpy(plain, &one, sizeof(one));
  cpu::decode_row(record, AS_INDEX_DIM, codes, record == AS_RECORD_INDEX_FP8 ? plain : scales,
                  values.data());
  return values;
}

std::string sentence_of(const ScoreTerms& t, std::int64_t entry) {
  const auto largest =
      std::ranges::max_element(t.heads, {}, [](const ScoreTerm& h) { return std::fabs(h.term); });
  std::string text =
      fmt::format("Entry {} scores {}: {} of {} index heads add something", entry,
                  format_number(t.sum), std::ssize(t.heads) - t.cut, std::ssize(t.heads));
  if (largest->term != 0) {
    text += fmt::format(", head {} most with {}", largest->head, format_number(largest->term));
  }
  text += fmt::format("; the products of {} are negative and count as 0.", t.cut);
  if (!std::isnan(t.score) && t.score != t.sum) {
    text += fmt::format(" The op put out {}, {} apart.", format_number(t.score),
                        format_error(std::fabs(t.score - t.sum)));
  }
  return text;
}

}  // namespace

ScoreTerms score_terms(const ScoreInput& in) {
  ScoreTerms out;
  const std::int64_t heads = in.weights.shape[1];
  const bool fp4 = in.record == AS_RECORD_INDEX_MXFP4;
  const std::vector<float> key = decoded(in.record, in.key, in.key_scales);
  if (!fp4) {
    float scale = 1;
    std::memcpy(&scale, in.key_scales, sizeof(scale));
    out.key_scale = static_cast<double>(scale);
  }
  out.factor = 1 / std::sqrt(static_cast<double>(AS_INDEX_DIM) * static_cast<double>(heads));
  out.score = in.score;
  for (std::int64_t j = 0; j < heads; ++j) {
    ScoreTerm& t = out.heads.emplace_back();
    t.head = j;
    const std::vector<float> query =
        decoded(in.record, at<std::uint8_t>(in.q, in.row, j),
                fp4 ? at<std::uint8_t>(in.q_scale, in.row, j) : nullptr);
    for (std::size_t d = 0; d < key.size(); ++d) {
      t.dot += static_cast<double>(query[d]) * static_cast<double>(key[d]);
    }
    t.relu = std::max(t.dot, 0.0);
    out.cut += t.dot < 0 ? 1 : 0;
    t.weight = static_cast<double>(*at<float>(in.weights, in.row, j));
    t.raw = t.q_scale = kUnknown;
    if (present(in.weights_raw)) {
      t.raw = element(in.weights_raw, in.row, j);
      t.q_scale = fp4 ? 1 : t.weight / (t.raw * out.factor);
      // A power of two; the weight was rounded.
      if (!fp4 && t.raw != 0) t.q_scale = std::exp2(std::round(std::log2(t.q_scale)));
    }
    t.term = out.key_scale * t.weight * t.relu;
    out.sum += t.term;
  }
  out.sentence = sentence_of(out, in.entry);
  return out;
}

ScoreTerms score_terms(const StepTrace& step, int layer, std::int64_t row, std::int64_t entry,
                       std::int32_t record, std::span<const std::uint8_t> key) {
  ScoreTerms none;
  const OpTrace* logits = step.find_role(layer, AS_ROLE_SCORE);
  const std::int64_t kept = step.kept_index(row);
  if (logits == nullptr || kept < 0) {
    none.why_empty = "The index scores of this token are not kept.";
    return none;
  }
  ScoreInput in;
  const auto value = [](const OpTrace* op, const char* name) {
    const TapCopy* tap = op != nullptr ? op->tap(name) : nullptr;
    return tap != nullptr ? tap->value : as_tensor{};
  };
  in.q = value(logits, "q");
  in.q_scale = value(logits, "q_scale");
  in.weights = value(logits, "weights");
  in.weights_raw = value(step.find_role(layer, AS_ROLE_QUERY), "weights_raw");
  const as_tensor scores = value(logits, "logits");
  const bool fp4 = record == AS_RECORD_INDEX_MXFP4;
  const as_row_layout one = as_row_layout_of(record, AS_INDEX_DIM, 1, 1);
  if (!present(in.q) || !present(in.weights) || (fp4 && !present(in.q_scale)) ||
      std::ssize(key) != one.row) {
    none.why_empty = "The queries and weights of the index heads are not kept.";
    return none;
  }
  in.row = kept;
  in.record = record;
  in.key = key.data();
  in.key_scales = key.data() + one.payload;
  in.entry = entry;
  in.score =
      present(scores) && entry < columns_of(scores) ? element(scores, kept, entry) : kUnknown;
  if (std::isnan(in.score)) {
    none.why_empty = fmt::format("The token does not see entry {}.", entry);
    return none;
  }
  return score_terms(in);
}

}  // namespace attnscope
