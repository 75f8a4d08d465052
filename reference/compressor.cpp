// Compressors: saving a token's state row, and pooling a window of state rows into one entry.
#include <cmath>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "kernels/layout/records.h"
#include "reference/norm.h"
#include "reference/ops.h"
#include "reference/rope.h"
#include "reference/rows.h"
#include "reference/tensors.h"

namespace attnscope::reference {

namespace {

// Windows that an entry pools over: its own, and for ratio 4 also the one before it.
std::int64_t overlap(std::int32_t ratio) {
  if (ratio == 4) return 2;
  if (ratio == 128) return 1;
  throw BadInput("ratio is " + std::to_string(ratio) + "; allowed: 4, 128");
}

// Scores and values of the rows that one entry pools over, [rows][dim] each.
struct Pool {
  std::vector<double> values;
  std::vector<double> scores;
  std::int64_t rows = 0;
};

// Per channel: softmax of the scores over the rows, weighted sum of the values.
void pool_rows(const Pool& pool, std::int64_t dim, const Precision& precision, double* entry) {
  for (std::int64_t k = 0; k < dim; ++k) {
    double max = -std::numeric_limits<double>::infinity();
    for (std::int64_t r = 0; r < pool.rows; ++r) {
      max = std::fmax(max, pool.scores[static_cast<std::size_t>(r * dim + k)]);
    }
    double weight_sum = 0;
    double value_sum = 0;
    for (std::int64_t r = 0; r < pool.rows; ++r) {
      const auto i = static_cast<std::size_t>(r * dim + k);
      const double weight = std::exp(pool.scores[i] - max);
      weight_sum = precision.sum(weight_sum + weight);
      value_sum = precision.sum(value_sum + weight * pool.values[i]);
    }
    entry[k] = value_sum / weight_sum;
  }
}

// Gathers the state rows of positions position - coff*ratio + 1 .. position. A row is
// [C (coff*dim) | Z (coff*dim)]; with overlap, tokens of the earlier window give their first half
// channels, those of the entry's own window their second half. Positions before the request's first
// token have score -inf, so they are left out.
void gather(const as_compress_insert_params& p, const CacheRows& state, std::int64_t first_row,
            std::int64_t token, std::int64_t position, std::int64_t dim, Pool* pool) {
  const std::int64_t coff = overlap(p.ratio);
  const std::int64_t rows = coff * p.ratio;
  std::vector<double> row(static_cast<std::size_t>(2 * coff * dim));
  pool->values.resize(static_cast<std::size_t>(rows * dim));
  pool->scores.resize(pool->values.size());
  pool->rows = 0;
  for (std::int64_t i = 0; i < rows; ++i) {
    const std::int64_t j = position - rows + 1 + i;
    if (j < 0) continue;
    state.load(first_row + j, token, row.data());
    const std::int64_t half = i / p.ratio * dim;
    for (std::int64_t k = 0; k < dim; ++k) {
      const auto to = static_cast<std::size_t>(pool->rows * dim + k);
      pool->values[to] = row[static_cast<std::size_t>(half + k)];
      pool->scores[to] = row[static_cast<std::size_t>(coff * dim + half + k)];
    }
    ++pool->rows;
  }
}

}  // namespace

void compressor_state(const as_compressor_state_params& p, const Precision& precision) {
  const std::int64_t coff = overlap(p.ratio);
  const FloatRows proj(p.proj, "proj", {kAny, kAny});
  const std::int64_t tokens = proj.rows();
  const std::int64_t half = proj.cols() / 2;  // coff * d
  if (half % coff != 0 || proj.cols() % 2 != 0) {
    throw BadInput("proj has " + std::to_string(proj.cols()) + " columns; expected a multiple of " +
                   std::to_string(2 * coff));
  }
  const std::vector<double> ape = FloatRows(p.ape, "ape", {p.ratio, half}).load_all();
  const Integers positions(p.positions, "positions", {tokens});
  const Integers slots(p.slots, "slots", {tokens});
  const CacheRows state(p.state, "state", AS_RECORD_STATE, proj.cols());
  std::vector<double> row(static_cast<std::size_t>(proj.cols()));
  for (std::int64_t t = 0; t < tokens; ++t) {
    if (slots.get(t) < 0) continue;
    proj.load(t, row.data());
    const double* ape_row = ape.data() + positions.get(t) % p.ratio * half;
    for (std::int64_t k = 0; k < half; ++k) row[static_cast<std::size_t>(half + k)] += ape_row[k];
    precision.fp32(row.data(), proj.cols());
    state.store(slots.get(t), t, row.data(), precision);
  }
}

void compress_insert(const as_compress_insert_params& p, const Precision& precision) {
  const Integers slots(p.slots, "slots", {kAny});
  const std::int64_t tokens = slots.size(0);
  const bool latent = p.cache.record == AS_RECORD_LATENT;
  const std::int64_t dim = latent ? AS_HEAD_DIM : AS_INDEX_DIM;
  const CacheRows cache(p.cache, "cache", kAnyEntryRecord, dim);
  std::vector<double> entry(static_cast<std::size_t>(dim));
  check_rule("scale_floor", p.scale_floor, AS_SCALE_FLOOR_1E8);
  check_rule("fp4_rule", p.fp4_rule, AS_FP4_DOWN);
  check_rule("hadamard", p.hadamard, AS_HADAMARD_ROUNDED);
  const Quantiser quantiser{p.scale_floor, p.fp4_rule};

  if (p.rows_given != 0) {
    const FloatRows rows(p.row, "row", {tokens, dim});
    for (std::int64_t t = 0; t < tokens; ++t) {
      if (slots.get(t) < 0) continue;
      rows.load(t, entry.data());
      cache.store(slots.get(t), t, entry.data(), precision, quantiser);
    }
    return;
  }

  const CacheRows state(p.state, "state", AS_RECORD_STATE, 2 * overlap(p.ratio) * dim);
  const Integers table(p.table, "table", {kAny, kAny});
  const Integers token_to_req(p.token_to_req, "token_to_req", {tokens});
  const Integers positions(p.positions, "positions", {tokens});
  const std::vector<double> weight = FloatRows(p.weight, "weight", {dim}).load_all();
  const Rope rope(p.rope, precision.exact);
  const bool round_between = p.round_pooled != 0 && !precision.exact;
  std::optional<FloatRows> row;
  if (present(p.row)) row.emplace(p.row, "row", Shape{tokens, dim});

  Pool pool;
  for (std::int64_t t = 0; t < tokens; ++t) {
    if (slots.get(t) < 0) continue;
    const std::int64_t position = positions.get(t);
    if (position < 0 || (position + 1) % p.ratio != 0) {
      throw BadInput("token " + std::to_string(t) + " at position " + std::to_string(position) +
                     " has a slot but ends no window of " + std::to_string(p.ratio) +
                     "; its slot must be -1");
    }
    check_index(token_to_req.get(t), table.size(0), "request", t);
    gather(p, state, table.get(token_to_req.get(t), 0), t, position, dim, &pool);
    pool_rows(pool, dim, precision, entry.data());
    if (round_between) precision.bf16(entry.data(), dim);
    normalise(entry.data(), dim, p.eps, weight.data(), precision);
    if (round_between) precision.bf16(entry.data(), dim);
    rotate(entry.data() + dim - AS_ROPE_DIM, rope.row(position + 1 - p.ratio), false);
    if (p.hadamard == AS_HADAMARD_ROUNDED) precision.bf16(entry.data(), dim);
    if (p.hadamard != 0) hadamard_transform(entry.data(), dim);
    precision.bf16(entry.data(), dim);
    if (row) row->store(t, entry.data());
    cache.store(slots.get(t), t, entry.data(), precision, quantiser);
  }
}

}  // namespace attnscope::reference
