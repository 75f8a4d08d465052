// compress_insert, indexer_compress_insert: pools a window of state rows into one entry, norm,
// RoPE, quantisation, insertion.
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <vector>

#include "kernels/cpu/hadamard.h"
#include "kernels/cpu/norm.h"
#include "kernels/cpu/ops.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/quantise.h"
#include "kernels/cpu/rope.h"
#include "kernels/cpu/simd/simd.h"

namespace attnscope::cpu {
namespace {

using Bits = std::uint16_t;
using Params = as_compress_insert_params;

constexpr int kMaxRows = 128;

std::int64_t overlap(const Params& p) { return p.ratio == 4 ? 2 : 1; }  // coff

// Column and row of a position in the state's table; logical states have one column.
struct Place {
  std::int64_t column;
  std::int64_t row;
};
Place place_of(const as_cache& state, std::int64_t position) {
  if (state.addressing == AS_LOGICAL) return {0, position};
  return {position / state.rows_per_block, position % state.rows_per_block};
}

std::int64_t state_slot(const Params& p, std::int64_t request, std::int64_t position) {
  const Place place = place_of(p.state, position);
  const std::int64_t id = *at<std::int32_t>(p.table, request, place.column);
  const std::int64_t rows = p.state.addressing == AS_LOGICAL ? 1 : p.state.rows_per_block;
  return id * rows + place.row;
}

bool check_window(const Params& p, std::int64_t t, Check& check) {
  const std::int64_t request = *at<std::int32_t>(p.token_to_req, t);
  const std::int64_t position = *at<std::int64_t>(p.positions, t);
  if (request < 0 || position < 0 || (position + 1) % p.ratio != 0) {
    return check.fail(
        "token %lld has slot %lld but request %lld, position %lld; a token emits an "
        "entry when position + 1 is divisible by %d",
        static_cast<long long>(t), static_cast<long long>(*at<std::int64_t>(p.slots, t)),
        static_cast<long long>(request), static_cast<long long>(position), p.ratio);
  }
  if (!check.rope_position(p.rope, t, position + 1 - p.ratio)) return false;
  const std::int64_t oldest = position + 1 - overlap(p) * p.ratio;
  for (std::int64_t q = oldest < 0 ? 0 : oldest; q <= position; ++q) {
    if (!check.block("table", p.table, t, request, place_of(p.state, q).column)) return false;
    const std::int64_t slot = state_slot(p, request, q);
    if (slot >= cache_rows(p.state)) {
      return check.fail(
          "token %lld: position %lld lies in state slot %lld; the cache has rows 0 to "
          "%lld",
          static_cast<long long>(t), static_cast<long long>(q), static_cast<long long>(slot),
          static_cast<long long>(cache_rows(p.state) - 1));
    }
  }
  return true;
}

bool check_params(const Params& p, Check& check) {
  if (p.ratio != 4 && p.ratio != 128) return check.fail("ratio is %d; allowed: 4, 128", p.ratio);
  const bool latent = p.cache.record == AS_RECORD_LATENT;
  const std::int64_t dim = latent ? AS_HEAD_DIM : AS_INDEX_DIM;
  const std::int32_t record = p.cache.record == AS_RECORD_INDEX_MXFP4 ? AS_RECORD_INDEX_MXFP4
                              : latent                                ? AS_RECORD_LATENT
                                                                      : AS_RECORD_INDEX_FP8;
  if (latent && p.hadamard != 0) {
    return check.fail("hadamard is set for LATENT rows; it belongs to index keys only");
  }
  if (!check.range("scale_floor", p.scale_floor, AS_SCALE_FLOOR_1E4, AS_SCALE_FLOOR_1E8) ||
      !check.range("fp4_rule", p.fp4_rule, AS_FP4_EVEN, AS_FP4_DOWN) ||
      !check.range("hadamard", p.hadamard, AS_HADAMARD_OFF, AS_HADAMARD_ROUNDED) ||
      !check.cache("cache", p.cache, record, dim) ||
      !check.tensor("slots", p.slots, AS_I64, {kAny}) || !check.slots("slots", p.slots, p.cache)) {
    return false;
  }
  const std::int64_t tokens = p.slots.shape[0];
  if (p.rows_given != 0) return check.tensor("row", p.row, AS_BF16, {tokens, dim});
  if (!check.cache("state", p.state, AS_RECORD_STATE, 2 * overlap(p) * dim) ||
      !check.tensor("table", p.table, AS_I32, {kAny, kAny}) ||
      !check.tensor("token_to_req", p.token_to_req, AS_I32, {tokens}) ||
      !check.tensor("positions", p.positions, AS_I64, {tokens}) ||
      !check.tensor("weight", p.weight, AS_BF16, {dim}) || !check.rope(p.rope) ||
      !check.optional("row", p.row, AS_BF16, {tokens, dim}) ||
      !check.requests(p.token_to_req, p.table.shape[0])) {
    return false;
  }
  for (std::int64_t t = 0; t < tokens; ++t) {
    if (*at<std::int64_t>(p.slots, t) >= 0 && !check_window(p, t, check)) return false;
  }
  return true;
}

// The rows that a token's entry pools; positions before 0 have no pointers.
struct Window {
  int rows = 0;
  std::array<const float*, kMaxRows> values{};
  std::array<const float*, kMaxRows> scores{};
};

Window window_of(const Params& p, std::int64_t t, std::int64_t dim) {
  const std::int64_t request = *at<std::int32_t>(p.token_to_req, t);
  Window w;
  w.rows = static_cast<int>(overlap(p) * p.ratio);
  const std::int64_t oldest = *at<std::int64_t>(p.positions, t) + 1 - w.rows;
  for (int i = 0; i < w.rows; ++i) {
    if (oldest + i < 0) continue;
    const as_row_address row = as_cache_row(&p.state, state_slot(p, request, oldest + i));
    // With overlap the older half of the rows uses the first channels, the newer the second.
    const std::int64_t channel = i >= p.ratio ? dim : 0;
    w.values[i] = reinterpret_cast<const float*>(row.payload) + channel;
    w.scores[i] = w.values[i] + overlap(p) * dim;
  }
  return w;
}

// Softmax over the rows per channel, weighted sum of the values, norm.
void pool_and_norm(const Params& p, const Window& w, std::int64_t dim, float* y) {
  const simd::Kernels& simd = simd::kernels();
  simd.pool(w.values.data(), w.scores.data(), w.rows, dim, y);
  const float factor = inverse_rms(simd.sum_squares(y, dim), dim, p.eps);
  const Bits* weight = at<Bits>(p.weight);
  for (std::int64_t i = 0; i < dim; ++i) y[i] = y[i] * factor * bf16_to_float(weight[i]);
}

// The same with pooled and normed values rounded to bf16. In float64: a value that fp32 puts on the
// wrong side of a rounding boundary would move a whole bf16 step, and the Hadamard transform would
// spread that step over all dims.
void pool_and_norm_rounded(const Params& p, const Window& w, std::int64_t dim, float* y) {
  double squares = 0.0;
  for (std::int64_t k = 0; k < dim; ++k) {
    float best = -std::numeric_limits<float>::infinity();
    for (int i = 0; i < w.rows; ++i) {
      if (w.scores[i] != nullptr) best = std::max(best, w.scores[i][k]);
    }
    double weights = 0.0;
    double sum = 0.0;
    for (int i = 0; i < w.rows; ++i) {
      if (w.scores[i] == nullptr) continue;
      const double e = std::exp(static_cast<double>(w.scores[i][k]) - static_cast<double>(best));
      weights += e;
      sum += e * static_cast<double>(w.values[i][k]);
    }
    y[k] = round_bf16(sum / weights);
    squares += static_cast<double>(y[k]) * static_cast<double>(y[k]);
  }
  const double factor = 1.0 / std::sqrt(squares / static_cast<double>(dim) + p.eps);
  const Bits* weight = at<Bits>(p.weight);
  for (std::int64_t k = 0; k < dim; ++k) {
    const double scaled = static_cast<double>(y[k]) * factor;
    y[k] = round_bf16(scaled * static_cast<double>(bf16_to_float(weight[k])));
  }
}

// The row of token t before quantisation; `own` has room for one.
const Bits* make_row(const Params& p, std::int64_t t, std::int64_t dim, Bits* own) {
  if (p.rows_given != 0) return at<Bits>(p.row, t);
  float y[AS_HEAD_DIM];
  const Window window = window_of(p, t, dim);
  if (p.round_pooled != 0) {
    pool_and_norm_rounded(p, window, dim, y);
  } else {
    pool_and_norm(p, window, dim, y);
  }
  float* rotated = y + dim - AS_ROPE_DIM;
  const float* turn = rope_row(p.rope, *at<std::int64_t>(p.positions, t) + 1 - p.ratio);
  if (p.hadamard == AS_HADAMARD_ROUNDED) {
    rotate_to_bf16(rotated, turn);
    for (std::int64_t i = 0; i < dim - AS_ROPE_DIM; ++i) y[i] = round_bf16(y[i]);
  } else {
    rotate(rotated, turn);
  }
  if (p.hadamard != 0) hadamard(y);
  Bits* const row = present(p.row) ? at<Bits>(p.row, t) : own;
  simd::kernels().to_bf16(y, 1.0f, dim, row);
  return row;
}

}  // namespace

void compress_insert(const Params& p, const as_call* call, Check& check) {
  if (!check_params(p, check)) return;
  std::vector<std::int64_t> emitting;
  for (std::int64_t t = 0; t < p.slots.shape[0]; ++t) {
    if (*at<std::int64_t>(p.slots, t) >= 0) emitting.push_back(t);
  }
  parallel_for(
      call, static_cast<std::int64_t>(emitting.size()), 2,
      [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t i = begin; i < end; ++i) {
          const std::int64_t t = emitting[static_cast<std::size_t>(i)];
          Bits own[AS_HEAD_DIM];
          const Bits* row = make_row(p, t, p.cache.width, own);
          insert_row(p.cache, *at<std::int64_t>(p.slots, t), row, {p.scale_floor, p.fp4_rule});
        }
      });
}

}  // namespace attnscope::cpu
