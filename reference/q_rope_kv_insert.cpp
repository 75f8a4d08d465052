// Per-head query norm and RoPE, KV RoPE and insertion into the window cache; inverse RoPE.
#include <cmath>
#include <optional>
#include <vector>

#include "kernels/layout/records.h"
#include "reference/matmul.h"
#include "reference/norm.h"
#include "reference/ops.h"
#include "reference/rope.h"
#include "reference/rows.h"
#include "reference/tensors.h"

namespace attnscope::reference {

namespace {

constexpr std::int64_t kGrain = 4;  // tokens of a thread at least

// A query's head, with the roundings of other implementations where q_norm asks for them.
void normalise_head(double* x, double eps, std::int32_t q_norm, const Precision& precision) {
  if (precision.exact || q_norm == AS_Q_NORM_FP32) {
    return normalise(x, AS_HEAD_DIM, eps, nullptr, precision);
  }
  const bool all_steps = q_norm == AS_Q_NORM_BF16;
  const auto step = [&](double value) { return all_steps ? round_to_bf16(value) : value; };
  double sum = 0;
  for (int i = 0; i < AS_HEAD_DIM; ++i) sum = precision.sum(sum + step(x[i] * x[i]));
  const double factor = round_to_bf16(1 / std::sqrt(step(step(sum / double{AS_HEAD_DIM}) + eps)));
  for (int i = 0; i < AS_HEAD_DIM; ++i) x[i] = round_to_bf16(x[i] * factor);
}

void insert_rows(const as_q_rope_kv_insert_params& p, const Integers& slots, const CacheRows& cache,
                 const Precision& precision) {
  const FloatRows kv_row(p.kv_row, "kv_row", {slots.size(0), AS_HEAD_DIM});
  std::vector<double> row(AS_HEAD_DIM);
  for (std::int64_t t = 0; t < slots.size(0); ++t) {
    if (slots.get(t) < 0) continue;
    kv_row.load(t, row.data());
    cache.store(slots.get(t), t, row.data(), precision, {p.scale_floor, AS_FP4_EVEN});
  }
}

}  // namespace

void q_rope_kv_insert(const as_q_rope_kv_insert_params& p, const Precision& precision) {
  const Integers slots(p.slots, "slots", {kAny});
  const std::int64_t tokens = slots.size(0);
  const CacheRows cache(p.cache, "cache", AS_RECORD_LATENT, AS_HEAD_DIM);
  check_rule("q_norm", p.q_norm, AS_Q_NORM_BF16_FACTOR);
  check_rule("scale_floor", p.scale_floor, AS_SCALE_FLOOR_1E8);
  if (p.rows_given != 0) return insert_rows(p, slots, cache, precision);

  const Integers positions(p.positions, "positions", {tokens});
  const FloatRows q_raw(p.q_raw, "q_raw", {tokens, kAny, AS_HEAD_DIM});
  const std::int64_t heads = q_raw.size(1);
  const FloatRows q(p.q, "q", {tokens, heads, AS_HEAD_DIM});
  const FloatRows kv(p.kv, "kv", {tokens, AS_HEAD_DIM});
  const Rope rope(p.rope, precision.exact);
  std::optional<FloatRows> kv_row;
  if (present(p.kv_row)) kv_row.emplace(p.kv_row, "kv_row", Shape{tokens, AS_HEAD_DIM});

  for_rows(tokens, kGrain, [&](std::int64_t first, std::int64_t last) {
    std::vector<double> row(AS_HEAD_DIM);
    for (std::int64_t t = first; t < last; ++t) {
      const RopeRow rotation = rope.row(positions.get(t));
      for (std::int64_t h = 0; h < heads; ++h) {
        q_raw.load(t * heads + h, row.data());
        normalise_head(row.data(), p.eps, p.q_norm, precision);
        rotate(row.data() + AS_NOPE_DIM, rotation, false);
        precision.bf16(row.data(), AS_HEAD_DIM);
        q.store(t * heads + h, row.data());
      }
    }
  });
  // One after the other: of two rows for one slot the later one stays.
  std::vector<double> row(AS_HEAD_DIM);
  for (std::int64_t t = 0; t < tokens; ++t) {
    if (slots.get(t) < 0) continue;
    kv.load(t, row.data());
    rotate(row.data() + AS_NOPE_DIM, rope.row(positions.get(t)), false);
    precision.bf16(row.data(), AS_HEAD_DIM);
    if (kv_row) kv_row->store(t, row.data());
    cache.store(slots.get(t), t, row.data(), precision, {p.scale_floor, AS_FP4_EVEN});
  }
}

void inverse_rope(const as_inverse_rope_params& p, const Precision& precision) {
  const FloatRows o(p.o, "o", {kAny, kAny, AS_HEAD_DIM});
  const std::int64_t tokens = o.size(0);
  const std::int64_t heads = o.size(1);
  const FloatRows out(p.out, "out", {tokens, heads, AS_HEAD_DIM});
  const Integers positions(p.positions, "positions", {tokens});
  const Rope rope(p.rope, precision.exact);
  for_rows(tokens, kGrain, [&](std::int64_t first, std::int64_t last) {
    std::vector<double> row(AS_HEAD_DIM);
    for (std::int64_t t = first; t < last; ++t) {
      const RopeRow rotation = rope.row(positions.get(t));
      for (std::int64_t h = 0; h < heads; ++h) {
        o.load(t * heads + h, row.data());
        rotate(row.data() + AS_NOPE_DIM, rotation, true);
        precision.bf16(row.data(), AS_HEAD_DIM);
        out.store(t * heads + h, row.data());
      }
    }
  });
}

}  // namespace attnscope::reference
