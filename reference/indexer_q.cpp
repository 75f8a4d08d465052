// Queries of the indexer and the weights of its heads.
#include <cmath>
#include <optional>
#include <vector>

#include "kernels/layout/records.h"
#include "reference/norm.h"
#include "reference/ops.h"
#include "reference/rope.h"
#include "reference/rows.h"
#include "reference/tensors.h"

namespace attnscope::reference {

namespace {

constexpr std::int64_t kScaleBytes = AS_INDEX_DIM / AS_MXFP4_BLOCK;

void check_format(std::int32_t format) {
  if (format == AS_RECORD_INDEX_FP8 || format == AS_RECORD_INDEX_MXFP4) return;
  throw BadInput("format is " + std::to_string(format) +
                 "; allowed: AS_RECORD_INDEX_FP8 (2), AS_RECORD_INDEX_MXFP4 (3)");
}

// Where the query values go: codes of one format, or plain values.
class QueryOutput {
 public:
  QueryOutput(const as_indexer_q_params& p, std::int64_t tokens, std::int64_t heads)
      : codes_(p.q.dtype == AS_U8),
        fp8_(p.format == AS_RECORD_INDEX_FP8),
        quantiser_{p.scale_floor, p.fp4_rule} {
    if (!codes_) {
      plain_.emplace(p.q, "q", Shape{tokens, heads, AS_INDEX_DIM});
    } else if (fp8_) {
      bytes_.emplace(p.q, "q", Shape{tokens, heads, AS_INDEX_DIM});
    } else {
      bytes_.emplace(p.q, "q", Shape{tokens, heads, AS_INDEX_DIM / 2});
      scales_.emplace(p.q_scale, "q_scale", Shape{tokens, heads, kScaleBytes});
    }
  }

  // Writes the query of token t, head j; returns the scale that its head weight has to carry.
  double store(std::int64_t t, std::int64_t heads, std::int64_t j, const double* values) const {
    if (!codes_) {
      plain_->store(t * heads + j, values);
      return 1;
    }
    if (!fp8_) {
      encode_mxfp4(values, AS_INDEX_DIM, bytes_->row(t, j), scales_->row(t, j),
                   quantiser_.fp4_rule);
      return 1;
    }
    return std::ldexp(1.0,
                      encode_fp8(values, AS_INDEX_DIM, bytes_->row(t, j), quantiser_.scale_floor));
  }

 private:
  bool codes_;
  bool fp8_;
  Quantiser quantiser_;
  std::optional<FloatRows> plain_;
  std::optional<Bytes> bytes_;
  std::optional<Bytes> scales_;
};

}  // namespace

void indexer_q(const as_indexer_q_params& p, const Precision& precision) {
  check_format(p.format);
  check_rule("scale_floor", p.scale_floor, AS_SCALE_FLOOR_1E8);
  check_rule("fp4_rule", p.fp4_rule, AS_FP4_DOWN);
  check_rule("hadamard", p.hadamard, AS_HADAMARD_ROUNDED);
  const FloatRows weights_raw(p.weights_raw, "weights_raw", {kAny, kAny});
  const std::int64_t tokens = weights_raw.size(0);
  const std::int64_t heads = weights_raw.size(1);
  const FloatRows weights(p.weights, "weights", {tokens, heads});
  const FloatRows source(p.rows_given != 0 ? p.q_row : p.q_raw,
                         p.rows_given != 0 ? "q_row" : "q_raw", {tokens, heads, AS_INDEX_DIM});
  const QueryOutput q(p, tokens, heads);
  std::optional<FloatRows> q_row;
  std::optional<Integers> positions;
  std::optional<Rope> rope;
  if (p.rows_given == 0) {
    if (present(p.q_row)) q_row.emplace(p.q_row, "q_row", Shape{tokens, heads, AS_INDEX_DIM});
    positions.emplace(p.positions, "positions", Shape{tokens});
    rope.emplace(p.rope, precision.exact);
  }
  const double dim_scale = precision.fp32(1 / std::sqrt(static_cast<double>(AS_INDEX_DIM)));
  const double head_scale = precision.fp32(1 / std::sqrt(static_cast<double>(heads)));

  std::vector<double> row(AS_INDEX_DIM);
  std::vector<double> token_weights(static_cast<std::size_t>(heads));
  for (std::int64_t t = 0; t < tokens; ++t) {
    weights_raw.load(t, token_weights.data());
    const RopeRow rotation = rope ? rope->row(positions->get(t)) : RopeRow{};
    for (std::int64_t j = 0; j < heads; ++j) {
      source.load(t * heads + j, row.data());
      if (p.rows_given == 0) {
        rotate(row.data() + AS_INDEX_DIM - AS_ROPE_DIM, rotation, false);
        if (p.hadamard == AS_HADAMARD_ROUNDED) precision.bf16(row.data(), AS_INDEX_DIM);
        if (p.hadamard != 0) hadamard_transform(row.data(), AS_INDEX_DIM);
        precision.bf16(row.data(), AS_INDEX_DIM);
      }
      if (q_row) q_row->store(t * heads + j, row.data());
      double& w = token_weights[static_cast<std::size_t>(j)];
      w = precision.fp32(w * q.store(t, heads, j, row.data()));
      w = precision.fp32(w * dim_scale);
      w = precision.fp32(w * head_scale);
    }
    weights.store(t, token_weights.data());
  }
}

}  // namespace attnscope::reference
