#include "engine/golden/op_inputs.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <list>
#include <map>
#include <numeric>
#include <string_view>

#include "engine/backend/call_op.h"
#include "engine/golden/golden_run.h"
#include "engine/golden/saved_case.h"
#include "engine/model/numbers.h"
#include "engine/model/synthetic_fill.h"
#include "engine/session/tap_copies.h"
#include "kernels/cpu/rope_table.h"
#include "kernels/layout/records.h"
#include "kernels/params/op_table.h"
#include "kernels/params/paged_params.h"
#include "kernels/params/tensor_view.h"

namespace attnscope {
namespace {

constexpr std::int64_t kHidden = 512, kHeads = 8, kQLora = 128, kOLora = 64, kGroups = 2;
constexpr std::int64_t kIndexHeads = 8, kTopK = 64, kVocab = 256, kWindow = 128;
constexpr std::int64_t kIndexDim = AS_INDEX_DIM;
constexpr std::int64_t kBlockTokens = 64;       // of a window block
constexpr std::int64_t kFullBlockTokens = 256;  // of a block of compressed rows
constexpr std::int64_t kRatio = 4, kWideRatio = 128, kStateBlockRows = 4;
constexpr std::int64_t kKvHeads = 2, kHeadSize = 96, kKvRows = 16;  // of dense attention
constexpr double kEps = 1e-6;

bf16_t rounded(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  return {static_cast<std::uint16_t>((bits + 0x7fffu + (bits >> 16 & 1)) >> 16)};
}

}  // namespace

// Integers alone until the last, exact step: the same everywhere.
class OpInputs::Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed * 0x9e3779b97f4a7c15u + 0x632be59bd9b4e019u) {}

  std::uint64_t next() { return mix64(state_ += 0x9e3779b97f4a7c15u); }
  std::int64_t below(std::int64_t n) { return static_cast<std::int64_t>(next() >> 33) % n; }
  // Mean 0, deviation about 1: the sum of four of 16 bits, centred, a multiple of 2^-15.
  float normal() {
    const std::uint64_t bits = next();
    std::int64_t sum = -131070;
    for (int shift = 0; shift < 64; shift += 16) sum += static_cast<int>(bits >> shift & 0xffff);
    return static_cast<float>(sum) * 0x1p-15f;
  }

 private:
  std::uint64_t state_;
};

// One request's blocks in one group, and its row of the table.
struct OpInputs::Table {
  std::vector<std::int32_t> ids;  // [R,C]
  std::int64_t columns = 1, blocks = 1;

  std::int64_t slot(std::int64_t request, std::int64_t row, std::int64_t rows_per_block) const {
    const std::int64_t block = ids[to_size(request * columns + row / rows_per_block)];
    return block * rows_per_block + row % rows_per_block;
  }
};

struct OpInputs::State {
  State(as_op_id an_op, const GoldenCase& a_shape)
      : op(an_op), shape(a_shape), random(a_shape.seed) {
    for (std::size_t r = 0; r < shape.lengths.size(); ++r) {
      const std::int64_t length = shape.lengths[r];
      starts.push_back(static_cast<std::int32_t>(positions.size()));
      for (std::int64_t p = std::max<std::int64_t>(0, length - shape.new_tokens); p < length; ++p) {
        positions.push_back(p);
        token_to_req.push_back(static_cast<std::int32_t>(r));
      }
      seq_lens.push_back(static_cast<std::int32_t>(length));
      longest = std::max(longest, length);
    }
    starts.push_back(static_cast<std::int32_t>(positions.size()));
    tokens = static_cast<std::int64_t>(positions.size());
    requests = static_cast<std::int64_t>(shape.lengths.size());
    fill();
  }

  // ---- memory

  as_tensor make(std::int32_t dtype, std::initializer_list<std::int64_t> extents) {
    std::int64_t n = 1;
    for (const std::int64_t e : extents) n *= e;
    auto& bytes = memory.emplace_back(to_size(n * as_dtype_size(dtype)), std::uint8_t{0xff});
    return make_tensor(static_cast<void*>(bytes.data()), dtype, extents);
  }
  template <class T>
  as_tensor keep(const std::vector<T>& values, std::initializer_list<std::int64_t> extents) {
    const as_tensor t = make(kDtypeOf<T>, extents);
    std::memcpy(t.data, values.data(), values.size() * sizeof(T));
    return t;
  }
  as_tensor normals(std::int32_t dtype, std::initializer_list<std::int64_t> extents,
                    float scale = 1, float mean = 0) {
    const as_tensor t = make(dtype, extents);
    for (std::int64_t i = 0; i < as_tensor_numel(&t); ++i) {
      const float v = mean + scale * random.normal();
      if (dtype == AS_F32) {
        static_cast<float*>(t.data)[i] = v;
      } else {
        static_cast<bf16_t*>(t.data)[i] = rounded(v);
      }
    }
    return t;
  }

  // ---- tables and caches

  // rows: of each request.
  Table make_table(const std::vector<std::int64_t>& rows, std::int64_t rows_per_block) {
    Table table;
    std::int64_t used = 0;
    for (const std::int64_t n : rows) {
      used += ceil_div(n, rows_per_block);
      table.columns = std::max(table.columns, ceil_div(n, rows_per_block));
    }
    table.blocks = used + 1;  // and the null block
    std::vector<std::int32_t> ids(to_size(used));
    std::iota(ids.begin(), ids.end(), 1);
    for (std::int64_t i = used - 1; i > 0; --i) {
      std::swap(ids[to_size(i)], ids[to_size(random.below(i + 1))]);
    }
    for (const std::int64_t n : rows) {
      for (std::int64_t c = 0; c < table.columns; ++c) {
        const bool mine = c < ceil_div(n, rows_per_block);
        table.ids.push_back(mine ? ids.back() : 0);
        if (mine) ids.pop_back();
      }
    }
    return table;
  }
  std::vector<std::int64_t> rows_at(std::int64_t ratio) const {
    std::vector<std::int64_t> rows;
    rows.reserve(shape.lengths.size());
    for (const std::int64_t length : shape.lengths) rows.push_back(length / ratio);
    return rows;
  }
  as_tensor table_tensor(const Table& table) { return keep(table.ids, {requests, table.columns}); }

  // Every row that a request has holds values; the null block and what lies behind holds NaN.
  as_cache make_cache(const Table& table, std::int32_t record, std::int64_t width,
                      std::int64_t rows_per_block, bool filled) {
    const std::int64_t page = as_row_layout_of(record, width, 1, rows_per_block).page;
    as_cache cache{};
    cache.data = make(AS_U8, {table.blocks, page});
    cache.record = record;
    cache.addressing = AS_PAGED;
    cache.rows_per_block = static_cast<std::int32_t>(rows_per_block);
    cache.width = static_cast<std::int32_t>(width);
    const as_row_layout one = as_row_layout_of(record, width, 1, 1);
    std::vector<std::uint8_t> row(static_cast<std::size_t>(one.row), 0);
    for (std::int64_t s = rows_per_block; filled && s < table.blocks * rows_per_block; ++s) {
      fill_row(one, row.data());
      as_row_put(&cache, s, row.data());
    }
    return cache;
  }
  // Padding stays as it is. Elements of all parts, then scales.
  void fill_row(const as_row_layout& l, std::uint8_t* row) {
    const auto code = [&] {  // e4m3, all but its two NaN
      const auto byte = static_cast<std::uint8_t>(random.next() >> 40);
      return (byte & 0x7f) == 0x7f ? std::uint8_t{0x7e} : byte;
    };
    const auto exponent = [&] { return static_cast<std::uint8_t>(119 + random.below(3)); };
    const auto put = [](std::uint8_t* at, const auto& value) {
      std::memcpy(at, &value, sizeof(value));
    };
    for (std::int64_t i = 0; i < l.width; ++i) {
      const as_element_place e = as_element_at(&l, 0, 0, i);
      if (e.code == AS_CODE_E4M3) {
        put(row + e.at, code());
      } else if (e.code == AS_CODE_BF16) {
        put(row + e.at, rounded(random.normal()));
      } else {
        put(row + e.at, random.normal());
      }
    }
    for (std::int32_t i = 0; i < l.format->num_parts; ++i) {
      const as_part_span part = as_part_in_row(&l, 0, i);
      for (std::int64_t k = 0; k < part.num_scales; ++k) {
        if (l.format->parts[i].scale == AS_CODE_UE8M0) {
          put(row + part.scales + k, exponent());
        } else {
          const float scale = std::bit_cast<float>(std::uint32_t{exponent()} << 23);
          put(row + part.scales + 4 * k, scale);
        }
      }
    }
  }

  as_rope make_rope() {
    as_rope rope{};
    rope.base = 160000;
    rope.factor = 1;
    rope.original_max_pos = 65536;
    rope.beta_fast = 32;
    rope.beta_slow = 1;
    rope.table = make(AS_F32, {longest, AS_ROPE_DIM});
    cpu::build_rope_table(rope, longest, static_cast<float*>(rope.table.data), nullptr);
    return rope;
  }

  // ---- by token

  as_tensor positions_tensor() { return keep(positions, {tokens}); }
  as_tensor request_tensor() { return keep(token_to_req, {tokens}); }
  // Slot of each token's row; of its entry, where it ends one, with a ratio.
  as_tensor slots_of(const Table& table, std::int64_t rows_per_block, std::int64_t ratio = 1) {
    std::vector<std::int64_t> slots;
    for (std::int64_t t = 0; t < tokens; ++t) {
      const std::int64_t p = positions[to_size(t)];
      const bool ends = (p + 1) % ratio == 0;
      slots.push_back(ends ? table.slot(token_to_req[to_size(t)], p / ratio, rows_per_block) : -1);
    }
    return keep(slots, {tokens});
  }
  std::vector<std::int32_t> visible(std::int64_t ratio) const {
    std::vector<std::int32_t> lens;
    lens.reserve(positions.size());
    for (const std::int64_t p : positions)
      lens.push_back(static_cast<std::int32_t>((p + 1) / ratio));
    return lens;
  }

  template <class S>
  S& init() {
    return params.init<S>(op);
  }
  void linear(std::int64_t in, std::int64_t out, std::int32_t dtype = AS_BF16) {
    auto& p = init<as_linear_params>();
    p.x = normals(AS_BF16, {tokens, in});
    p.weight = normals(AS_BF16, {out, in}, in >= 512 ? 0x1p-4f : 0x1p-3f);
    p.y = make(dtype, {tokens, out});
  }
  void state_row(std::int64_t dim) {
    auto& p = init<as_compressor_state_params>();
    const std::int64_t half = 2 * dim;  // ratio 4 keeps two rows' worth
    const Table table = make_table(shape.lengths, kStateBlockRows);
    p.proj = normals(AS_F32, {tokens, 2 * half});
    p.ape = normals(AS_F32, {kRatio, half});
    p.positions = positions_tensor();
    p.slots = slots_of(table, kStateBlockRows);
    p.state = make_cache(table, AS_RECORD_STATE, 2 * half, kStateBlockRows, false);
    p.ratio = kRatio;
  }
  void compress(std::int64_t dim, std::int32_t record) {
    auto& p = init<as_compress_insert_params>();
    const Table states = make_table(shape.lengths, kStateBlockRows);
    p.state = make_cache(states, AS_RECORD_STATE, 4 * dim, kStateBlockRows, true);
    p.table = table_tensor(states);
    p.token_to_req = request_tensor();
    p.positions = positions_tensor();
    const std::int64_t rows = kFullBlockTokens / kRatio;
    const Table entries = make_table(rows_at(kRatio), rows);
    p.slots = slots_of(entries, rows, kRatio);
    p.weight = normals(AS_BF16, {dim}, 0x1p-3f, 1);
    p.rope = make_rope();
    p.row = make(AS_BF16, {tokens, dim});
    p.cache = make_cache(entries, record, dim, rows, false);
    p.eps = kEps;
    p.ratio = kRatio;
  }
  void norm() {
    auto& p = init<as_rms_norm_params>();
    p.x = normals(AS_BF16, {tokens, kHidden});
    p.weight = normals(AS_BF16, {kHidden}, 0x1p-3f, 1);
    p.y = make(AS_BF16, {tokens, kHidden});
    p.eps = kEps;
  }
  void slot_mapping() {
    auto& p = init<as_slot_mapping_params>();
    const std::vector<std::int32_t> groups = {kFullBlockTokens, 0,      kBlockTokens, kWindow,
                                              kBlockTokens,     kWindow};
    const Table full = make_table(shape.lengths, kFullBlockTokens);
    const Table window = make_table(shape.lengths, kBlockTokens);
    const Table second = make_table(shape.lengths, kBlockTokens);
    const std::int64_t columns = std::max(full.columns, window.columns);
    std::vector<std::int32_t> ids;
    for (const Table* table : {&full, &window, &second}) {
      for (std::int64_t r = 0; r < requests; ++r) {
        for (std::int64_t c = 0; c < columns; ++c) {
          ids.push_back(c < table->columns ? table->ids[to_size(r * table->columns + c)] : 0);
        }
      }
    }
    p.groups = keep(groups, {3, 2});
    p.tables = keep(ids, {3, requests, columns});
    p.positions = positions_tensor();
    p.token_to_req = request_tensor();
    p.slots = make(AS_I64, {3, tokens});
    p.c4_slots = make(AS_I64, {tokens});
    p.c128_slots = make(AS_I64, {tokens});
    p.c4_lens = make(AS_I32, {tokens});
    p.mla_group = 0;
  }
  void swa_index() {
    auto& p = init<as_swa_index_params>();
    const Table table = make_table(shape.lengths, kBlockTokens);
    p.tables = keep(table.ids, {1, requests, table.columns});
    p.query_start_loc = keep(starts, {requests + 1});
    p.seq_lens = keep(seq_lens, {requests});
    p.token_to_req = request_tensor();
    p.indices = make(AS_I32, {1, tokens, kWindow});
    p.lens = make(AS_I32, {tokens});
    p.block_size = kBlockTokens;
    p.window = kWindow;
  }
  void c128_index() {
    auto& p = init<as_c128_index_params>();
    p.table = table_tensor(make_table(shape.lengths, kFullBlockTokens));
    p.positions = positions_tensor();
    p.token_to_req = request_tensor();
    p.indices = make(AS_I32, {tokens, as_c128_index_width(longest, longest)});
    p.lens = make(AS_I32, {tokens});
    p.ratio = kWideRatio;
    p.rows_per_block = kFullBlockTokens / kWideRatio;
  }
  void q_rope_kv_insert() {
    auto& p = init<as_q_rope_kv_insert_params>();
    const Table table = make_table(shape.lengths, kBlockTokens);
    p.q_raw = normals(AS_BF16, {tokens, kHeads, AS_HEAD_DIM});
    p.kv = normals(AS_BF16, {tokens, AS_HEAD_DIM});
    p.positions = positions_tensor();
    p.rope = make_rope();
    p.slots = slots_of(table, kBlockTokens);
    p.q = make(AS_BF16, {tokens, kHeads, AS_HEAD_DIM});
    p.kv_row = make(AS_BF16, {tokens, AS_HEAD_DIM});
    p.cache = make_cache(table, AS_RECORD_LATENT, AS_HEAD_DIM, kBlockTokens, false);
    p.eps = kEps;
  }
  void indexer_q() {
    auto& p = init<as_indexer_q_params>();
    p.q_raw = normals(AS_BF16, {tokens, kIndexHeads, kIndexDim});
    p.weights_raw = normals(AS_BF16, {tokens, kIndexHeads});
    p.positions = positions_tensor();
    p.rope = make_rope();
    p.q_row = make(AS_BF16, {tokens, kIndexHeads, kIndexDim});
    p.q = make(AS_U8, {tokens, kIndexHeads, kIndexDim});
    p.weights = make(AS_F32, {tokens, kIndexHeads});
    p.format = AS_RECORD_INDEX_FP8;
  }
  void indexer_logits() {
    auto& p = init<as_indexer_logits_params>();
    const std::int64_t rows = kFullBlockTokens / kRatio;
    const Table table = make_table(rows_at(kRatio), rows);
    p.q = make(AS_U8, {tokens, kIndexHeads, kIndexDim});
    auto* codes = static_cast<std::uint8_t*>(p.q.data);
    for (std::int64_t i = 0; i < as_tensor_numel(&p.q); ++i) {
      codes[i] = static_cast<std::uint8_t>(random.next() >> 40) & 0xbf;  // magnitudes below 2
    }
    p.weights = normals(AS_F32, {tokens, kIndexHeads}, 0x1p-5f);
    p.cache = make_cache(table, AS_RECORD_INDEX_FP8, kIndexDim, rows, true);
    p.table = table_tensor(table);
    p.token_to_req = request_tensor();
    const auto lens = visible(kRatio);
    p.lens = keep(lens, {tokens});
    p.logits = make(AS_F32, {tokens, std::max(1, *std::ranges::max_element(lens))});
  }
  void indexer_topk() {
    auto& p = init<as_indexer_topk_params>();
    const auto lens = visible(kRatio);
    p.logits = normals(AS_F32, {tokens, std::max(1, *std::ranges::max_element(lens))});
    p.lens = keep(lens, {tokens});
    p.indices = make(AS_I32, {tokens, kTopK});
  }
  // Ascending entries out of the first `len`, then -1.
  std::vector<std::int32_t> choose(std::int64_t len, std::int64_t most) {
    std::vector<std::int32_t> out;
    for (std::int64_t e = 0; e < len; ++e) {
      const std::int64_t left = len - e, wanted = std::min(most, len) - std::ssize(out);
      if (random.below(left) < wanted) out.push_back(static_cast<std::int32_t>(e));
    }
    out.resize(to_size(most), -1);
    return out;
  }
  void topk_to_slots() {
    auto& p = init<as_topk_to_slots_params>();
    const std::int64_t rows = kFullBlockTokens / kRatio;
    std::vector<std::int32_t> indices;
    for (const std::int32_t len : visible(kRatio)) {
      const auto chosen = choose(len, kTopK);
      indices.insert(indices.end(), chosen.begin(), chosen.end());
    }
    p.indices = keep(indices, {tokens, kTopK});
    p.table = table_tensor(make_table(rows_at(kRatio), rows));
    p.token_to_req = request_tensor();
    p.slots = make(AS_I32, {tokens, kTopK});
    p.lens = make(AS_I32, {tokens});
    p.rows_per_block = static_cast<std::int32_t>(rows);
  }
  void sparse_attention() {
    auto& p = init<as_sparse_attention_params>();
    const std::int64_t rows = kFullBlockTokens / kRatio;
    const Table window = make_table(shape.lengths, kBlockTokens);
    const Table entries = make_table(rows_at(kRatio), rows);
    std::vector<std::int32_t> indices, lens, extra, extra_topk_length;
    for (std::int64_t t = 0; t < tokens; ++t) {
      const std::int64_t last = positions[to_size(t)], request = token_to_req[to_size(t)];
      const std::int64_t first = std::max<std::int64_t>(0, last - kWindow + 1);
      for (std::int64_t k = 0; k < kWindow; ++k) {
        const bool seen = first + k <= last;
        indices.push_back(
            seen ? static_cast<std::int32_t>(window.slot(request, first + k, kBlockTokens)) : -1);
      }
      lens.push_back(static_cast<std::int32_t>(last + 1 - first));
      const std::int64_t len = (last + 1) / kRatio;
      for (const std::int32_t e : choose(len, kTopK)) {
        extra.push_back(e < 0 ? -1 : static_cast<std::int32_t>(entries.slot(request, e, rows)));
      }
      extra_topk_length.push_back(static_cast<std::int32_t>(std::min(len, kTopK)));
    }
    p.q = normals(AS_BF16, {tokens, kHeads, AS_HEAD_DIM});
    p.cache = make_cache(window, AS_RECORD_LATENT, AS_HEAD_DIM, kBlockTokens, true);
    p.indices = keep(indices, {tokens, kWindow});
    p.topk_length = keep(lens, {tokens});
    p.extra_cache = make_cache(entries, AS_RECORD_LATENT, AS_HEAD_DIM, rows, true);
    p.extra_indices = keep(extra, {tokens, kTopK});
    p.extra_topk_length = keep(extra_topk_length, {tokens});
    p.sinks = normals(AS_F32, {kHeads});
    p.o = make(AS_BF16, {tokens, kHeads, AS_HEAD_DIM});
    p.lse = make(AS_F32, {tokens, kHeads});
    p.scale = 0x1p-6;  // deviations of 1 in a row of 512: logits of a few units
  }
  // K or V rows of bf16 heads, NaN where no request has any.
  as_cache make_kv_cache(const Table& table, std::int32_t record, std::int64_t size, bool filled) {
    const as_row_layout l = as_row_layout_of(record, kKvHeads * size, kKvHeads, kKvRows);
    as_cache cache{};
    cache.data = make(AS_U8, {table.blocks, l.page});
    cache.data.reserved = static_cast<std::int32_t>(kKvHeads);
    cache.record = record;
    cache.addressing = AS_PAGED;
    cache.rows_per_block = static_cast<std::int32_t>(kKvRows);
    cache.width = static_cast<std::int32_t>(kKvHeads * size);
    std::vector<bf16_t> row(to_size(kKvHeads * size));
    for (std::int64_t s = kKvRows; filled && s < table.blocks * kKvRows; ++s) {
      for (bf16_t& v : row) v = rounded(random.normal());
      as_row_put(&cache, s, row.data());
    }
    return cache;
  }
  void rope_kv_insert() {
    auto& p = init<as_rope_kv_insert_params>();
    const Table table = make_table(shape.lengths, kKvRows);
    p.q = normals(AS_BF16, {tokens, kHeads, kHeadSize});
    p.k = normals(AS_BF16, {tokens, kKvHeads, kHeadSize});
    p.v = normals(AS_BF16, {tokens, kKvHeads, kHeadSize});
    p.q_weight = normals(AS_BF16, {kHeadSize});
    p.k_weight = normals(AS_BF16, {kHeadSize});
    p.positions = positions_tensor();
    p.rope = make_rope();
    p.slots = slots_of(table, kKvRows);
    p.q_out = make(AS_BF16, {tokens, kHeads, kHeadSize});
    p.k_row = make(AS_BF16, {tokens, kKvHeads, kHeadSize});
    p.k_cache = make_kv_cache(table, AS_RECORD_BF16, kHeadSize, false);
    p.v_cache = make_kv_cache(table, AS_RECORD_BF16, kHeadSize, false);
    p.eps = kEps;
  }
  void paged_attention() {
    auto& p = init<as_paged_attention_params>();
    const Table table = make_table(shape.lengths, kKvRows);
    p.q = normals(AS_BF16, {tokens, kHeads, kHeadSize});
    p.k_cache = make_kv_cache(table, AS_RECORD_BF16 | AS_RECORD_HND, kHeadSize, true);
    p.v_cache = make_kv_cache(table, AS_RECORD_BF16 | AS_RECORD_HND, kHeadSize, true);
    p.table = table_tensor(table);
    p.token_to_req = request_tensor();
    p.positions = positions_tensor();
    p.seq_lens = keep(seq_lens, {requests});
    p.sinks = normals(AS_F32, {kHeads});
    p.o = make(AS_BF16, {tokens, kHeads, kHeadSize});
    p.lse = make(AS_F32, {tokens, kHeads});
    p.scale = 0x1p-3f;  // as sparse_attention: logits of a few units
    p.soft_cap = 20;
    p.causal = 1;
    p.window = static_cast<std::int32_t>(kWindow);
    p.num_splits = 2;
  }
  void fill();

  as_op_id op;
  GoldenCase shape;
  Random random;
  std::vector<std::int64_t> positions;
  std::vector<std::int32_t> token_to_req, starts, seq_lens;
  std::int64_t tokens = 0, requests = 0, longest = 1;
  std::list<std::vector<std::uint8_t>> memory;
  OpParams params;
};

void OpInputs::State::fill() {
  switch (op) {
    case AS_OP_SLOT_MAPPING:
      return slot_mapping();
    case AS_OP_SWA_INDEX:
      return swa_index();
    case AS_OP_C128_INDEX:
      return c128_index();
    case AS_OP_ATTN_NORM:
    case AS_OP_FINAL_NORM:
      return norm();
    case AS_OP_Q_KV_A_PROJ:
      return linear(kHidden, kQLora + AS_HEAD_DIM);
    case AS_OP_Q_KV_NORM: {
      auto& p = init<as_q_kv_norm_params>();
      p.qkv = normals(AS_BF16, {tokens, kQLora + AS_HEAD_DIM});
      p.q_weight = normals(AS_BF16, {kQLora}, 0x1p-3f, 1);
      p.kv_weight = normals(AS_BF16, {AS_HEAD_DIM}, 0x1p-3f, 1);
      p.qr = make(AS_BF16, {tokens, kQLora});
      p.kv = make(AS_BF16, {tokens, AS_HEAD_DIM});
      p.eps = kEps;
      return;
    }
    case AS_OP_Q_B_PROJ:
      return linear(kQLora, kHeads * AS_HEAD_DIM);
    case AS_OP_Q_ROPE_KV_INSERT:
      return q_rope_kv_insert();
    case AS_OP_COMPRESSOR_PROJ:
      return linear(kHidden, 4 * AS_HEAD_DIM, AS_F32);
    case AS_OP_COMPRESSOR_STATE:
      return state_row(AS_HEAD_DIM);
    case AS_OP_COMPRESS_INSERT:
      return compress(AS_HEAD_DIM, AS_RECORD_LATENT);
    case AS_OP_INDEXER_COMPRESSOR_PROJ:
      return linear(kHidden, 4 * kIndexDim, AS_F32);
    case AS_OP_INDEXER_COMPRESSOR_STATE:
      return state_row(kIndexDim);
    case AS_OP_INDEXER_COMPRESS_INSERT:
      return compress(kIndexDim, AS_RECORD_INDEX_FP8);
    case AS_OP_INDEXER_Q_PROJ:
      return linear(kQLora, kIndexHeads * kIndexDim);
    case AS_OP_INDEXER_Q:
      return indexer_q();
    case AS_OP_INDEXER_WEIGHTS_PROJ:
      return linear(kHidden, kIndexHeads);
    case AS_OP_INDEXER_LOGITS:
      return indexer_logits();
    case AS_OP_INDEXER_TOPK:
      return indexer_topk();
    case AS_OP_TOPK_TO_SLOTS:
      return topk_to_slots();
    case AS_OP_SPARSE_ATTENTION:
      return sparse_attention();
    case AS_OP_INVERSE_ROPE: {
      auto& p = init<as_inverse_rope_params>();
      p.o = normals(AS_BF16, {tokens, kHeads, AS_HEAD_DIM});
      p.positions = positions_tensor();
      p.rope = make_rope();
      p.out = make(AS_BF16, {tokens, kHeads, AS_HEAD_DIM});
      return;
    }
    case AS_OP_WO_A: {
      auto& p = init<as_grouped_linear_params>();
      const std::int64_t in = kHeads / kGroups * AS_HEAD_DIM;
      p.x = normals(AS_BF16, {tokens, kGroups, in});
      p.weight = normals(AS_BF16, {kGroups, kOLora, in}, 0x1p-5f);
      p.y = make(AS_BF16, {tokens, kGroups, kOLora});
      return;
    }
    case AS_OP_WO_B:
      return linear(kGroups * kOLora, kHidden);
    case AS_OP_RESIDUAL: {
      auto& p = init<as_residual_params>();
      p.h = normals(AS_BF16, {tokens, kHidden});
      p.y = normals(AS_BF16, {tokens, kHidden});
      p.out = make(AS_BF16, {tokens, kHidden});
      return;
    }
    case AS_OP_LM_HEAD:
      return linear(kHidden, kVocab, AS_F32);
    case AS_OP_SAMPLE: {
      auto& p = init<as_sample_params>();
      p.logits = normals(AS_F32, {tokens, kVocab});
      p.tokens = make(AS_I32, {tokens});
      return;
    }
    case AS_OP_ROPE_KV_INSERT:
      return rope_kv_insert();
    case AS_OP_PAGED_ATTENTION:
      return paged_attention();
    default:
      return;  // the engine's own ops: has_own_inputs() is false
  }
}

OpInputs::OpInputs(as_op_id op, const GoldenCase& shape)
    : state_(std::make_unique<State>(op, shape)) {}
OpInputs::~OpInputs() = default;

OpParams& OpInputs::params() { return state_->params; }

RowOwners OpInputs::owners() const {
  RowOwners owners;
  owners.requests = owners.sampled = state_->token_to_req;
  owners.tokens.resize(owners.requests.size());
  std::iota(owners.tokens.begin(), owners.tokens.end(), 0);
  return owners;
}

OpTrace OpInputs::trace(const std::string& lane) const {
  const OpParams& params = state_->params;
  OpTrace trace;
  trace.place = {0, -1, state_->op};
  trace.lane = lane;
  for (std::uint32_t i = 0; i < params.info().num_taps; ++i) {
    const as_tap_info& tap = params.info().taps[i];
    if (tap.kind == AS_TAP_TENSOR) {
      const as_tensor& tensor = params.tensor(tap.offset);
      if (!present(tensor) || as_tensor_numel(&tensor) == 0) continue;
      TapCopy copy = described_copy(tap);
      copy.value = tensor;
      trace.taps.push_back(std::move(copy));
    } else if (tap.direction == AS_TAP_OUT) {
      trace.rows.push_back(written_rows(params, tap, owners().tokens));
    }
  }
  return trace;
}

bool has_own_inputs(as_op_id op) { return as_op_has(op, AS_BY_ENGINE) == 0; }

Result<LaneSelector> lanes_with_op(const LaneRegistry& registry,
                                   const std::vector<std::string>& choices, as_op_id op) {
  auto lanes = LaneSelector::make(registry, choices);
  if (!lanes) return lanes;
  const std::string name = as_op_find(op)->name;
  std::string wanted = lanes->lane(op);
  for (const std::string& choice : choices) {
    const std::size_t equals = choice.find('=');
    if (equals == std::string::npos) wanted = choice;
    if (equals != std::string::npos && choice.substr(0, equals) == name) {
      wanted = choice.substr(equals + 1);
    }
  }
  if (wanted == lanes->lane(op)) return lanes;
  return Error{AS_NO_ENVIRONMENT,
               fmt::format("lane {} has no {}: nothing of it was tested", wanted, name),
               fmt::format("lanes with it: {}", fmt::join(registry.lanes_of(op), ", "))};
}

Result<void> run_op_cases(const GoldenSpec& spec, const LaneRegistry& registry,
                          const GoldenRunOptions& options, GoldenValues& out) {
  auto lanes =
      lanes_with_op(registry, options.lanes.empty() ? spec.lanes : options.lanes, *spec.op);
  if (!lanes) return lanes.error();
  out.lanes = lanes->lane(*spec.op);
  for (const GoldenCase& one : spec.cases) {
    OpInputs inputs(*spec.op, one);
    const as_op_fn function = lanes->function(*spec.op);
    if (auto ran = call_op(function, inputs.params().data(), host_call(nullptr)); !ran) {
      return Error{ran.error().code,
                   fmt::format("{}: case '{}': {}", spec.path, one.name, ran.error().message),
                   {}};
    }
    collect_taps(inputs.trace(out.lanes), inputs.owners(), spec, one.name, out.taps);
    if (!options.judged) continue;
    auto kept = keep_case(*find_case_op(*spec.op), inputs.params().data(), {});
    if (!kept) return kept.error();
    if (auto ok = judge_case(*kept, registry, options, one.name, out); !ok) return ok;
  }
  return {};
}

}  // namespace attnscope
