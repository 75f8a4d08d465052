// AS_OP_ROPE_KV_INSERT and AS_OP_PAGED_ATTENTION: layouts of pages, head sizes, groups of heads,
// windows, splits. Rows and pages that no token sees hold NaN.
#include <algorithm>
#include <climits>
#include <cmath>
#include <cstring>
#include <numeric>

#include "engine/model/mask_expression.h"
#include "engine/model/numbers.h"
#include "kernels/cpu/thread_pool.h"
#include "kernels/params/paged_params.h"
#include "kernels/params/row_format.h"
#include "tests/property/checks.h"

namespace attnscope::properties {
namespace {

// Blocks of requests in shuffled pages; entries behind a request's end are ids that do not exist.
class Blocks {
 public:
  Blocks(const std::vector<std::int64_t>& lengths, std::int64_t rows, Random& random)
      : rows_(rows) {
    for (std::int64_t n : lengths) {
      first_row_.push_back(static_cast<std::int32_t>(num_rows_));
      num_rows_ += n;
      count_ += ceil_div(n, rows);
      columns_ = std::max(columns_, ceil_div(n, rows) + 2);
    }
    std::vector<std::int32_t> ids(to_size(count_ - 1));
    std::iota(ids.begin(), ids.end(), 1);
    std::shuffle(ids.begin(), ids.end(), random);
    for (std::int64_t n : lengths) {
      for (std::int64_t c = 0; c < columns_; ++c) {
        const bool mine = c < ceil_div(n, rows);
        table_.push_back(mine ? ids.back() : c % 2 == 0 ? INT_MAX : -5);
        if (mine) ids.pop_back();
      }
    }
  }
  std::int64_t count() const { return count_; }
  std::int64_t num_rows() const { return num_rows_; }
  std::int64_t slot(std::int64_t r, std::int64_t p) const {
    return table_[to_size(r * columns_ + p / rows_)] * rows_ + p % rows_;
  }
  std::int64_t row(std::int64_t r, std::int64_t p) const { return first_row_[to_size(r)] + p; }
  // Blocks that lie before `position` are gone.
  void drop_below(std::int64_t r, std::int64_t position) {
    for (std::int64_t c = 0; c < position / rows_; ++c) table_[to_size(r * columns_ + c)] = -1;
  }
  // The first blocks of all requests are those of the first one.
  void share(std::int64_t blocks) {
    for (std::size_t r = 1; r < first_row_.size(); ++r) {
      std::copy_n(table_.begin(), blocks, table_.begin() + static_cast<std::int64_t>(r) * columns_);
    }
  }
  as_tensor table() const {
    return make_tensor(table_.data(), {static_cast<std::int64_t>(first_row_.size()), columns_});
  }
  as_tensor logical_table() const {
    return make_tensor(first_row_.data(), {static_cast<std::int64_t>(first_row_.size()), 1});
  }

 private:
  std::int64_t rows_, count_ = 4, columns_ = 1, num_rows_ = 0;
  std::vector<std::int32_t> table_, first_row_;
};

// A K or V cache: pages with gaps, and the same rows one after another.
struct Pool {
  Pool(const Blocks& blocks, std::int32_t record, std::int64_t heads, std::int64_t size,
       std::int32_t rows, std::int64_t gap = 6) {
    const as_row_layout l = as_row_layout_of(record, heads * size, heads, rows);
    const std::int64_t stride = l.page + gap;
    slab.assign(to_size(blocks.count() * stride), 0xff);
    paged.data = make_tensor(slab.data(), {blocks.count(), l.page});
    paged.data.stride[0] = stride;
    paged.data.reserved = static_cast<std::int32_t>(heads);
    paged.record = record;
    paged.rows_per_block = rows;
    paged.width = static_cast<std::int32_t>(heads * size);
    bytes.assign(to_size(std::max<std::int64_t>(1, blocks.num_rows()) * l.row), 0xff);
    logical = paged;
    logical.addressing = AS_LOGICAL;
    logical.rows_per_block = 0;
    logical.data = make_tensor(bytes.data(), {std::max<std::int64_t>(1, blocks.num_rows()), l.row});
    logical.data.reserved = paged.data.reserved;
  }
  void put(std::int64_t slot, std::int64_t row, const std::vector<std::uint16_t>& values) {
    as_row_put(&paged, slot, values.data());
    as_row_put(&logical, row, values.data());
  }
  std::vector<unsigned char> slab, bytes;
  as_cache paged{}, logical{};
};

std::uint16_t code_of(float value, std::int32_t record) {
  const bool f16 = (record & ~AS_RECORD_HND) == AS_RECORD_F16;
  return f16 ? cpu::float_to_f16(value) : cpu::float_to_bf16(value);
}

// A row of codes that are numbers up to 4 before their scale, and of scales about 2^power, of int8
// 1/64 of it. Zero points are whole numbers.
void fill_codes(std::int32_t record, std::int64_t width, std::int64_t heads, int power,
                Random& random, std::vector<unsigned char>& row) {
  const as_row_layout l = as_row_layout_of(record, width, heads, 1);
  row.assign(to_size(l.row), 0);
  const auto put = [&](std::int64_t at, float number) {
    std::memcpy(row.data() + at, &number, sizeof(number));
  };
  for (std::int64_t i = 0; i < width; ++i) {
    const as_element_place e = as_element_at(&l, 0, i / l.width, i % l.width);
    std::uint8_t& code = row[to_size(e.at)];
    const auto small = [&] {
      if (e.code == AS_CODE_I8) return true;
      const float value = e.code == AS_CODE_E4M3
                              ? cpu::e4m3_to_float(code)
                              : cpu::f16_to_float(static_cast<std::uint16_t>(code << 8));
      return std::fabs(value) <= 4;
    };
    do code = static_cast<std::uint8_t>(random());
    while (!small());
    if (i % l.width != 0 || e.scale < 0) continue;
    const float scale = std::ldexp(0.5f + static_cast<float>(random() % 1000) * 1e-3f, power);
    put(e.scale, e.zero >= 0 ? scale / 64 : scale);
    if (e.zero >= 0) put(e.zero, static_cast<float>(static_cast<int>(random() % 256) - 128));
  }
}

bool in_codes(std::int32_t record) {
  return as_row_format_of(record)->parts[0].scale != AS_CODE_NONE;
}

// Of each head one that is no number, and an infinity where codes have one.
void spoil_codes(std::int32_t record, std::int64_t width, std::int64_t heads,
                 std::vector<unsigned char>& row) {
  const as_row_layout l = as_row_layout_of(record, width, heads, 1);
  const float none = std::numeric_limits<float>::quiet_NaN();
  for (std::int64_t h = 0; h < heads; ++h) {
    const as_element_place e = as_element_at(&l, 0, h, 3);
    row[to_size(e.at)] = 0x7f;
    if (e.code == AS_CODE_E5M2) row[to_size(as_element_at(&l, 0, h, 9).at)] = 0x7c;
    if (e.code == AS_CODE_I8) std::memcpy(row.data() + e.scale, &none, sizeof(none));
  }
}

// Those that a record has beside its cache.
as_tensor scales_beside(std::int32_t record, std::int64_t heads, float middle, Random& random,
                        Memory* memory) {
  const as_row_part& part = as_row_format_of(record)->parts[0];
  if (part.scale == AS_CODE_NONE || part.per == AS_PER_BLOCK) return no_tensor();
  const std::int64_t count = part.per == AS_PER_HEAD ? heads : 1;
  const as_tensor scales = memory->make(AS_F32, {count});
  for (std::int64_t h = 0; h < count; ++h) {
    *at<float>(scales, h) = middle * (0.5f + static_cast<float>(random() % 1000) * 1e-3f);
  }
  return scales;
}

// rising: by what power of two scales of rows of codes rise along a request.
void fill(Pool& pool, const Blocks& blocks, const std::vector<std::int64_t>& lengths,
          const std::vector<std::int64_t>& from, Random& random, std::int64_t rising = 0) {
  std::vector<std::uint16_t> row(to_size(pool.paged.width));
  for (std::size_t r = 0; r < lengths.size(); ++r) {
    const auto request = static_cast<std::int64_t>(r);
    for (std::int64_t p = from[r]; p < lengths[r]; ++p) {
      if (r > 0 && lengths[0] > p && blocks.slot(request, p) == blocks.slot(0, p)) {
        std::copy_n(pool.bytes.data() + blocks.row(0, p) * pool.logical.data.shape[1],
                    pool.logical.data.shape[1],
                    pool.bytes.data() + blocks.row(request, p) * pool.logical.data.shape[1]);
        continue;
      }
      if (in_codes(pool.paged.record)) {
        std::vector<unsigned char> codes;
        fill_codes(pool.paged.record, pool.paged.width, as_cache_heads(&pool.paged),
                   static_cast<int>(p * rising / lengths[r] - rising), random, codes);
        as_row_put(&pool.paged, blocks.slot(request, p), codes.data());
        as_row_put(&pool.logical, blocks.row(request, p), codes.data());
        continue;
      }
      for (std::uint16_t& v : row) v = code_of(normal(random), pool.paged.record);
      pool.put(blocks.slot(request, p), blocks.row(request, p), row);
    }
  }
}

// Gives the call the batch that the lane makes of it, and no chunk.
bool cut_into_chunks(const Lane& lane, const PagedCase& c, Memory* memory,
                     as_paged_attention_params* p, Report* report) {
  const std::int64_t n = p->positions.shape[0];
  std::vector<std::int32_t> starts = {0};
  for (const std::int64_t length : c.lengths) {
    starts.push_back(static_cast<std::int32_t>(starts.back() + std::min(c.queries, length)));
  }
  OpParams batch;
  auto& b = batch.init<as_local_batch_params>(AS_OP_LOCAL_BATCH);
  b.tables = p->table;
  b.tables.rank = 3;
  for (int d = 2; d > 0; --d) {
    b.tables.shape[d] = p->table.shape[d - 1];
    b.tables.stride[d] = p->table.stride[d - 1];
  }
  b.tables.shape[0] = 1;
  b.query_start_loc = memory->ints(starts, {static_cast<std::int64_t>(starts.size())});
  b.seq_lens = p->seq_lens;
  b.token_to_req = p->token_to_req;
  b.token_to_seq = memory->make(AS_I32, {n});
  b.local_positions = memory->make(AS_I64, {n});
  b.local_query_start_loc = memory->make(AS_I32, {n + 1});
  b.local_seq_lens = memory->make(AS_I32, {n});
  b.local_tables = memory->make(AS_I32, {1, n, c.chunk / c.rows});
  b.chunk = c.chunk;
  b.block_size = c.rows;
  if (!run(lane.ops[AS_OP_LOCAL_BATCH] != nullptr ? lane : *cpu::lane(), batch, report)) {
    return false;
  }
  p->table = b.local_tables;
  p->table.rank = 2;
  for (int d = 0; d < 2; ++d) {
    p->table.shape[d] = b.local_tables.shape[d + 1];
    p->table.stride[d] = b.local_tables.stride[d + 1];
  }
  p->token_to_req = b.token_to_seq;
  if (!c.mask.empty() || !c.score.empty()) p->places = p->positions;
  p->positions = b.local_positions;
  p->seq_lens = b.local_seq_lens;
  p->chunk = 0;
  return true;
}

}  // namespace

Report check_paged_attention(const Lane& lane, const PagedCase& c) {
  Report report(case_seed("paged " + c.name));
  Random random(report.seed());
  Memory memory;
  Tokens tokens = last_tokens(c.lengths, c.queries);
  // Padding at the end.
  tokens.token_to_req.push_back(-1);
  tokens.positions.push_back(0);
  const std::int64_t n = tokens.size();
  Blocks blocks(c.lengths, c.rows, random);
  if (c.common > 0) blocks.share(c.common / c.rows);
  std::vector<std::int64_t> seen_from;
  for (std::int64_t length : c.lengths) {
    const std::int64_t first = c.window > 0 ? length - c.queries - c.window + 1 : 0;
    seen_from.push_back(std::max<std::int64_t>(0, first));
    if (c.chunk > 0) {
      seen_from.back() = std::max<std::int64_t>(0, length - c.queries) / c.chunk * c.chunk;
    }
    seen_from.back() = std::min(length, std::max<std::int64_t>(seen_from.back(), c.first));
  }
  // Rows of first tokens are in other caches, and those beside the others hold NaN.
  std::vector<std::int64_t> first_lengths, seen_behind = seen_from;
  for (std::size_t r = 0; r < c.lengths.size(); ++r) {
    const std::int64_t first = std::min<std::int64_t>(c.lengths[r], c.wide);
    first_lengths.push_back(first);
    if (!c.both) seen_behind[r] = std::max(seen_behind[r], first);
  }
  Blocks first_blocks(first_lengths, c.wide_rows, random);
  if (c.common > 0) first_blocks.share(std::min<std::int64_t>(c.common, c.wide) / c.wide_rows);
  Pool k_wide(first_blocks, c.record_wide, c.kv_heads, c.size, c.wide_rows);
  Pool v_wide(first_blocks, c.record_wide, c.kv_heads, c.size_v, c.wide_rows);
  fill(k_wide, first_blocks, first_lengths, seen_from, random);
  fill(v_wide, first_blocks, first_lengths, seen_from, random);
  Pool k(blocks, c.record, c.kv_heads, c.size, c.rows, c.gap);
  const std::int32_t record_v = c.record_v != 0 ? c.record_v : c.record;
  Pool v(blocks, record_v, c.kv_heads, c.size_v, c.rows, c.gap);
  fill(k, blocks, c.lengths, seen_behind, random);
  fill(v, blocks, c.lengths, seen_behind, random, c.rising);
  if (c.bad_value >= 0 && in_codes(record_v)) {
    std::vector<unsigned char> row;
    fill_codes(record_v, v.paged.width, c.kv_heads, 0, random, row);
    spoil_codes(record_v, v.paged.width, c.kv_heads, row);
    as_row_put(&v.paged, blocks.slot(0, c.bad_value), row.data());
    as_row_put(&v.logical, blocks.row(0, c.bad_value), row.data());
  } else if (c.bad_value >= 0) {
    std::vector<std::uint16_t> row(to_size(v.paged.width), code_of(0.5f, c.record));
    for (std::int64_t head = 0; head < c.kv_heads; ++head) {
      row[to_size(head * c.size_v + 3)] =
          code_of(std::numeric_limits<float>::quiet_NaN(), c.record);
      row[to_size(head * c.size_v + 9)] = code_of(std::numeric_limits<float>::infinity(), c.record);
    }
    v.put(blocks.slot(0, c.bad_value), blocks.row(0, c.bad_value), row);
  }
  for (std::size_t r = 0; r < c.lengths.size(); ++r) {
    blocks.drop_below(static_cast<std::int64_t>(r), seen_behind[r]);
    first_blocks.drop_below(static_cast<std::int64_t>(r), std::min(seen_from[r], first_lengths[r]));
  }

  OpParams engine;
  auto& p = engine.init<as_paged_attention_params>(AS_OP_PAGED_ATTENTION);
  p.q = memory.normals(AS_BF16, {n, c.heads, c.size}, random, c.q_scale, 8);
  p.k_cache = k.paged;
  p.v_cache = v.paged;
  p.k_scale = scales_beside(c.record, c.kv_heads, 1, random, &memory);
  p.v_scale = scales_beside(record_v, c.kv_heads, 1, random, &memory);
  p.table = blocks.table();
  if (c.wide > 0) {
    p.k_wide = k_wide.paged;
    p.v_wide = v_wide.paged;
    p.wide_table = first_blocks.table();
    p.wide_tokens = c.wide;
  }
  p.token_to_req = memory.ints(tokens.token_to_req, {n});
  p.positions = memory.ints64(tokens.positions);
  const std::vector<std::int32_t> lens(c.lengths.begin(), c.lengths.end());
  p.seq_lens = memory.ints(lens, {static_cast<std::int64_t>(lens.size())});
  if (c.sinks) {
    p.sinks = memory.normals(AS_F32, {c.heads}, random, 2.0f);
    *at<float>(p.sinks, 0) = -kInfinity;
    if (c.heads > 2) *at<float>(p.sinks, 1) = kInfinity;
  }
  if (c.alibi > 0) {
    p.alibi_slopes = memory.make(AS_F32, {c.heads});
    float slope = c.alibi;
    for (std::int64_t h = 0; h < c.heads; ++h, slope *= 2.0f / 3.0f) {
      *at<float>(p.alibi_slopes, h) = slope;
    }
  }
  if (c.first > 0) {
    const std::vector<std::int32_t> first(lens.size(), c.first);
    p.first_rows = memory.ints(first, {static_cast<std::int64_t>(first.size())});
  }
  const auto starts = [&](std::int32_t first) {
    std::vector<std::int32_t> all;
    for (std::size_t r = 0; first != 0 && r < lens.size(); ++r) {
      all.push_back(first + 3 * static_cast<std::int32_t>(r));
    }
    return all.empty() ? no_tensor() : memory.ints(all, {static_cast<std::int64_t>(all.size())});
  };
  p.query_starts = starts(c.query_start);
  p.row_starts = starts(c.row_start);
  if (c.buckets > 0) p.position_bias = memory.normals(AS_F32, {c.buckets, c.heads}, random, 1.0f);
  p.bias_distance = c.distance;
  MaskCode mask, score;
  if (!c.mask.empty()) mask = *parse_mask(c.mask);
  if (!c.score.empty()) score = *parse_score(c.score);
  p.mask_code = mask.tensor();
  p.score_code = score.tensor();
  p.o = memory.make(AS_BF16, {n, c.heads, c.size_v}, 5);
  p.lse = memory.make(AS_F32, {n, c.heads}, 1);
  p.scale = 1 / std::sqrt(static_cast<double>(c.size));
  p.soft_cap = c.soft_cap;
  p.causal = c.causal;
  p.window = c.window;
  p.num_splits = c.splits;
  p.chunk = c.chunk;
  p.form = c.form;
  const as_paged_attention_params whole = p;
  if (c.local && !cut_into_chunks(lane, c, &memory, &p, &report)) return report;
  if (!run(lane, engine, &report)) return report;
  memory.check_guards(&report);
  for (std::int64_t h = 0; h < c.heads; ++h) {
    if (*at<float>(p.lse, n - 1, h) != -kInfinity) report.fail("lse", "padding is not -inf");
  }

  OpParams sim = with_own_outputs(engine, &memory);
  auto& s = sim.get<as_paged_attention_params>();
  s.k_cache = k.logical;
  s.v_cache = v.logical;
  s.table = blocks.logical_table();
  if (c.wide > 0) {
    s.k_wide = k_wide.logical;
    s.v_wide = v_wide.logical;
    s.wide_table = first_blocks.logical_table();
  }
  s.token_to_req = whole.token_to_req;
  s.positions = whole.positions;
  s.seq_lens = whole.seq_lens;
  s.chunk = whole.chunk;
  if (!run(*reference::sim_lane(), sim, &report)) return report;
  judge_all(engine, sim, &report);

  // Nothing is quantised: what differs from float64 is the order of sums and one rounding. Rounded
  // weights of values of size 1 to 4 move a result by up to 2^-9 of them, mostly far less.
  const double of_weights = c.rounded_weights ? 4e-3 : 0;
  OpParams exact = with_own_outputs(sim, &memory);
  if (!run(*reference::exact_lane(), exact, &report)) return report;
  const auto& e = exact.get<as_paged_attention_params>();
  judge_bound(
      "o against ref.exact", p.o, e.o, nullptr,
      [=](std::int64_t, std::int64_t, double value) {
        return 2 * kBf16Half * std::fabs(value) + 2e-5 + of_weights;
      },
      &report);
  judge_bound(
      "lse against ref.exact", p.lse, e.lse, nullptr,
      [](std::int64_t, std::int64_t, double value) { return 1e-5 + 2e-6 * std::fabs(value); },
      &report);
  return report;
}

Report check_rope_kv_insert(const Lane& lane, const RopeKvCase& c) {
  Report report(case_seed("rope kv " + c.name));
  Random random(report.seed());
  Memory memory;
  const Tokens tokens = last_tokens(c.lengths, c.queries);
  const std::int64_t n = tokens.size();
  const Blocks blocks(c.lengths, c.rows, random);
  const std::int64_t gap = in_codes(c.record) ? 8 : 6;
  Pool k(blocks, c.record, c.kv_heads, c.size, c.rows, gap);
  Pool v(blocks, c.record, c.kv_heads, c.size_v, c.rows, gap);
  constexpr std::int32_t kFirstRows = 4;  // of a page
  std::vector<std::int64_t> first_lengths;
  for (const std::int64_t length : c.lengths) first_lengths.push_back(std::min(length, c.wide));
  const Blocks first_blocks(first_lengths, kFirstRows, random);
  Pool k_wide(first_blocks, AS_RECORD_BF16, c.kv_heads, c.size, kFirstRows);
  Pool v_wide(first_blocks, AS_RECORD_BF16, c.kv_heads, c.size_v, kFirstRows);

  OpParams engine;
  auto& p = engine.init<as_rope_kv_insert_params>(AS_OP_ROPE_KV_INSERT);
  if (c.heads > 0) {
    p.q = memory.normals(AS_BF16, {n, c.heads, c.size}, random, c.scale, 3);
    p.q_out = memory.make(AS_BF16, {n, c.heads, c.size}, 3);
  }
  p.k = memory.normals(AS_BF16, {n, c.kv_heads, c.size}, random, c.scale, 1);
  p.v = memory.normals(AS_BF16, {n, c.kv_heads, c.size_v}, random, c.scale, 2);
  for (std::int64_t t = 0; c.special && t < n; ++t) {
    // In turn: a NaN, an infinity, zeros alone, the smallest number alone.
    constexpr std::uint16_t kSpecial[] = {0xffc1, 0xff80, 0, 1};
    for (std::int64_t i = 0; t % 5 > 1 && t % 5 < 4 && i < c.size_v; ++i) {
      *at<std::uint16_t>(p.v, t, 0, i) = 0;
    }
    if (t % 5 < 4) *at<std::uint16_t>(p.v, t, 0, 5) = kSpecial[t % 5];
  }
  p.k_scale = scales_beside(c.record, c.kv_heads, 0.01f, random, &memory);
  p.v_scale = scales_beside(c.record, c.kv_heads, 0.02f, random, &memory);
  if (c.norm) {
    p.q_weight = memory.normals(AS_BF16, {c.size}, random);
    p.k_weight = memory.normals(AS_BF16, {c.size}, random);
    p.eps = 1e-6;
    p.weight_plus_one = c.plus_one ? 1 : 0;
  }
  p.positions = memory.ints64(tokens.positions);
  std::vector<float> table;
  if (c.rotated > 0) {
    const std::int64_t most = *std::max_element(c.lengths.begin(), c.lengths.end());
    const std::int64_t half = c.rotated / 2;
    for (std::int64_t position = 0; position < most; ++position) {
      for (std::int64_t i = 0; i < c.rotated; ++i) {
        const double power = -2.0 * static_cast<double>(i % half) / static_cast<double>(c.rotated);
        const double angle = static_cast<double>(position) * std::pow(10000.0, power);
        table.push_back(static_cast<float>(i < half ? std::cos(angle) : std::sin(angle)));
      }
    }
    p.rope.base = 10000;
    p.rope.factor = 1;
    p.rope.table = make_tensor(table.data(), {most, c.rotated});
  }
  std::vector<std::int64_t> slots, wide_slots;
  for (std::int64_t t = 0; t < n; ++t) {
    const std::int64_t request = tokens.token_to_req[to_size(t)];
    const std::int64_t position = tokens.positions[to_size(t)];
    const bool first = position < c.wide && t % 5 != 4;
    wide_slots.push_back(first ? first_blocks.slot(request, position) : -1);
    const bool padding = n > 2 && t % 4 == 3;
    slots.push_back(
        padding ? -1 : blocks.slot(tokens.token_to_req[to_size(t)], tokens.positions[to_size(t)]));
  }
  p.slots = memory.ints64(slots);
  p.k_row = memory.make(AS_BF16, {n, c.kv_heads, c.size}, 7);
  p.k_cache = k.paged;
  p.v_cache = v.paged;
  p.style = c.style;
  const std::vector<unsigned char> k_before = k.slab, v_before = v.slab;
  const std::vector<unsigned char> k_wide_before = k_wide.slab, v_wide_before = v_wide.slab;
  if (c.wide > 0) {
    p.wide_slots = memory.ints64(wide_slots);
    p.k_wide = k_wide.paged;
    p.v_wide = v_wide.paged;
  }
  if (!run(lane, engine, &report)) return report;
  memory.check_guards(&report);

  OpParams sim = with_own_outputs(engine, &memory);
  auto& s = sim.get<as_rope_kv_insert_params>();
  const auto own_rows = [&](const as_cache& cache) {
    as_cache own = cache;
    own.addressing = AS_LOGICAL;
    own.data = memory.make(AS_U8, {n, as_cache_row_bytes(&cache)});
    own.data.reserved = cache.data.reserved;
    own.rows_per_block = 0;
    return own;
  };
  std::vector<std::int64_t> rows, wide_rows;
  for (std::int64_t t = 0; t < n; ++t) {
    rows.push_back(slots[to_size(t)] < 0 ? -1 : t);
    wide_rows.push_back(wide_slots[to_size(t)] < 0 ? -1 : t);
  }
  const auto own_caches = [&](as_rope_kv_insert_params& own) {
    own.k_cache = own_rows(k.paged);
    own.v_cache = own_rows(v.paged);
    if (c.wide == 0) return;
    own.wide_slots = memory.ints64(wide_rows);
    own.k_wide = own_rows(k_wide.paged);
    own.v_wide = own_rows(v_wide.paged);
  };
  s.slots = memory.ints64(rows);
  own_caches(s);
  if (!run(*reference::sim_lane(), sim, &report)) return report;
  // Rows of padding are made too, but nobody says which.
  judge(engine, sim, "k_row", &report);
  if (c.heads > 0) judge(engine, sim, "q_out", &report);

  // The bytes, given the lane's own row.
  OpParams given = sim;
  auto& g = given.get<as_rope_kv_insert_params>();
  g.k_row = p.k_row;
  g.rows_given = 1;
  own_caches(g);
  if (!run(*reference::sim_lane(), given, &report)) return report;
  const auto judge_pages = [&](const char* tap, const Pool& pool,
                               const std::vector<unsigned char>& before, const as_cache& records,
                               const std::vector<std::int64_t>& to) {
    std::vector<unsigned char> expected = before;
    as_cache view = pool.paged;
    view.data.data = expected.data();
    for (std::int64_t t = 0; t < n; ++t) {
      if (to[to_size(t)] >= 0) {
        as_row_put(&view, to[to_size(t)], at<unsigned char>(records.data, t));
      }
    }
    if (expected != pool.slab) report.fail(tap, "pages differ from those of ref.sim's rows");
  };
  judge_pages("k_cache", k, k_before, g.k_cache, slots);
  judge_pages("v_cache", v, v_before, g.v_cache, slots);
  if (c.wide == 0) return report;
  judge_pages("k_wide", k_wide, k_wide_before, g.k_wide, wide_slots);
  judge_pages("v_wide", v_wide, v_wide_before, g.v_wide, wide_slots);
  return report;
}

namespace {

constexpr std::int32_t kCodedRecords[] = {AS_RECORD_FP8_TENSOR,     AS_RECORD_FP8_HEAD,
                                          AS_RECORD_FP8_TOKEN_HEAD, AS_RECORD_E5M2_TENSOR,
                                          AS_RECORD_E5M2_HEAD,      AS_RECORD_E5M2_TOKEN_HEAD,
                                          AS_RECORD_INT8_TOKEN_HEAD};

}  // namespace

// Rows of codes: every record in both placements, over pages, splits, prompts, windows; one cache
// of codes beside one of numbers, or of other codes.
std::vector<PagedCase> coded_cases() {
  std::vector<PagedCase> cases;
  for (const std::int32_t record : kCodedRecords) {
    for (const std::int32_t placed : {record, record | AS_RECORD_HND}) {
      const std::string name = as_row_format_of(placed)->name;
      cases.push_back({name + "_decode", {300, 1, 65}, 2, 8, 2, 64, 64, 16, placed});
      cases.push_back({name + "_prefill", {90, 33}, 40, 6, 3, 48, 96, 5, placed, 30});
      cases.push_back({name + "_splits", {400}, 2, 4, 2, 128, 128, 8, placed, 0, 1, 5.0, true, 3});
      cases.push_back({name + "_wide", {70, 40}, 1, 4, 1, 256, 256, 16, placed});
      cases.push_back({name + "_odd", {70, 40}, 3, 2, 1, 36, 20, 7, placed});
      cases.push_back({name + "_before_bf16", {70, 40}, 3, 4, 2, 64, 64, 16, placed});
      cases.back().record_v = AS_RECORD_BF16;
      cases.push_back({name + "_behind_f16", {70, 40}, 3, 4, 2, 64, 64, 16, AS_RECORD_F16});
      cases.back().record_v = placed;
    }
  }
  // Many heads of a KV head, slopes, keys and values of different codes.
  for (const std::int32_t record : kCodedRecords) {
    const std::string name = as_row_format_of(record)->name;
    cases.push_back({name + "_many_heads", {100, 40}, 1, 21, 1, 64, 64, 16, record});
    cases.push_back({name + "_alibi", {90, 300}, 2, 8, 2, 128, 128, 16, record});
    cases.back().alibi = 0.7f;
    for (const std::int32_t record_v : {AS_RECORD_E5M2_TENSOR, AS_RECORD_INT8_TOKEN_HEAD}) {
      const std::string behind = as_row_format_of(record_v)->name;
      std::string both = name;
      both.append("_before_").append(behind);
      cases.push_back({both, {150, 17}, 2, 4, 2, 96, 128, 16, record});
      cases.back().record_v = record_v;
    }
  }
  for (PagedCase& c : cases) c.gap = 32;
  return cases;
}
// Ordinary rows; rows beyond what codes reach; the smallest ones; NaN, infinities and zeros.
std::vector<RopeKvCase> coded_rows() {
  std::vector<RopeKvCase> cases;
  for (const std::int32_t record : kCodedRecords) {
    const std::string name = as_row_format_of(record)->name;
    cases.push_back({name, {40, 3}, 7, 4, 2});
    cases.push_back({name + "_large", {40, 3}, 7, 4, 2});
    cases.back().scale = 3e4f;
    cases.push_back({name + "_largest", {40, 3}, 7, 4, 2});
    cases.back().scale = 5e37f;
    cases.back().rotated = 0;
    cases.push_back({name + "_small", {40, 3}, 7, 4, 2});
    cases.back().scale = 1e-4f;
    cases.push_back({name + "_smallest", {40, 3}, 7, 4, 2});
    cases.back().scale = 1e-39f;
    cases.back().rotated = 0;
    cases.push_back({name + "_special", {40, 9}, 12, 4, 2, 64, 40});
    cases.back().special = true;
    for (std::size_t i = cases.size() - 6; i < cases.size(); ++i) {
      cases[i].record = i % 2 == 0 ? record : record | AS_RECORD_HND;
    }
  }
  return cases;
}
namespace {

class PagedAttentionProperty : public testing::TestWithParam<PagedCase> {};

TEST_P(PagedAttentionProperty, MatchesBothReferences) {
  const Report report = check_paged_attention(*cpu::lane(), GetParam());
  EXPECT_TRUE(report.ok()) << report;
}

constexpr std::int32_t kHnd = AS_RECORD_BF16 | AS_RECORD_HND;
constexpr std::int32_t kF16Hnd = AS_RECORD_F16 | AS_RECORD_HND;

const PagedCase kPagedCases[] = {
    {"no_tokens", {0, 0}, 1, 4, 2},
    {"first_tokens", {1, 3, 0, 2}, 5, 4, 1, 64, 64, 1},
    {"block_of_one", {67, 130}, 3, 8, 2, 128, 128, 1},
    {"block_of_eight", {129, 5}, 4, 8, 8, 64, 64, 8, kHnd},
    {"block_of_48", {200, 47, 49}, 2, 6, 3, 96, 96, 48},
    {"odd_block", {150, 31}, 7, 4, 2, 80, 80, 31, AS_RECORD_F16},
    {"one_head", {300}, 2, 1, 1, 32, 32, 16, kF16Hnd},
    {"mqa_71", {190, 64}, 2, 71, 1, 64, 64, 16},
    {"mqa_many_heads", {100}, 1, 130, 1, 32, 32, 16},
    {"wide_heads", {90, 65}, 3, 4, 2, 256, 256, 16, kHnd},
    {"values_narrower", {120}, 2, 4, 2, 192, 128, 64},
    {"odd_sizes", {77, 12}, 3, 6, 2, 40, 72, 5},
    {"prefill", {97, 64}, 97, 8, 2, 64, 64, 16},
    {"prefill_of_a_long_request", {300}, 130, 4, 1, 32, 32, 8, kHnd},
    {"window", {200, 33, 3}, 3, 4, 2, 64, 64, 16, AS_RECORD_BF16, 32},
    {"window_below_a_block", {150, 40}, 5, 4, 2, 64, 64, 48, AS_RECORD_BF16, 7},
    {"window_of_one", {66, 2}, 4, 4, 2, 64, 64, 8, AS_RECORD_BF16, 1},
    {"window_prefill", {180}, 180, 4, 2, 32, 32, 16, AS_RECORD_F16, 50},
    {"not_causal", {70, 5}, 70, 4, 2, 64, 64, 16, AS_RECORD_BF16, 0, 0},
    {"soft_cap", {130, 9}, 4, 4, 2, 64, 64, 16, AS_RECORD_BF16, 0, 1, 5.0, false, 0, 4.0f},
    {"soft_cap_wide", {130}, 4, 4, 2, 64, 64, 16, kHnd, 40, 1, 50.0, true},
    {"sinks", {100, 1}, 3, 8, 2, 64, 64, 16, AS_RECORD_BF16, 0, 1, 0, true},
    {"splits_of_two", {300, 1, 65}, 3, 8, 2, 64, 64, 16, AS_RECORD_BF16, 0, 1, 0, true, 2},
    {"splits_of_seven", {500, 63}, 2, 4, 2, 128, 128, 16, kHnd, 0, 1, 0, false, 7},
    {"more_splits_than_rows", {5, 2}, 2, 4, 2, 64, 64, 16, AS_RECORD_BF16, 0, 1, 0, false, 64},
    {"splits_before_the_window", {400}, 2, 4, 2, 64, 64, 8, AS_RECORD_BF16, 70, 1, 0, false, 8},
    {"scores_far_apart", {200}, 2, 4, 2, 64, 64, 16, AS_RECORD_BF16, 0, 1, 0, false, 3, 30.0f},
    {"earlier_scores_vanish", {700}, 2, 4, 2, 64, 64, 16, kHnd, 0, 1, 0, false, 1, 3000.0f},
    {"long", {9000}, 2, 2, 1, 32, 32, 64},
};
INSTANTIATE_TEST_SUITE_P(Shapes, PagedAttentionProperty, testing::ValuesIn(kPagedCases),
                         name_of<PagedCase>);

INSTANTIATE_TEST_SUITE_P(Masked, PagedAttentionProperty, testing::ValuesIn(masked_cases()),
                         name_of<PagedCase>);
INSTANTIATE_TEST_SUITE_P(Placed, PagedAttentionProperty, testing::ValuesIn(placed_cases()),
                         name_of<PagedCase>);
INSTANTIATE_TEST_SUITE_P(Sided, PagedAttentionProperty, testing::ValuesIn(sided_cases()),
                         name_of<PagedCase>);
INSTANTIATE_TEST_SUITE_P(Alibi, PagedAttentionProperty, testing::ValuesIn(alibi_cases()),
                         name_of<PagedCase>);

INSTANTIATE_TEST_SUITE_P(Codes, PagedAttentionProperty, testing::ValuesIn(coded_cases()),
                         name_of<PagedCase>);

std::string chunk_name(std::int32_t rows, std::int32_t chunk, std::int64_t queries, bool local) {
  return "rows" + std::to_string(rows) + "_chunk" + std::to_string(chunk) + "_q" +
         std::to_string(queries) + (local ? "_local" : "_masked");
}

// Chunks of one page, of several, of a page of one token; requests that end with a chunk, begin
// one, have no token; a prompt over many chunks. By the batch of chunks, and by `chunk` alone.
std::vector<PagedCase> chunk_cases() {
  std::vector<PagedCase> cases;
  const std::pair<std::int32_t, std::int32_t> kSizes[] = {{16, 16}, {16, 32}, {16, 48}, {1, 7},
                                                          {1, 1},   {8, 256}, {48, 96}};
  for (const auto& [rows, chunk] : kSizes) {
    for (const std::int64_t queries : {std::int64_t{1}, std::int64_t{5}, std::int64_t{150}}) {
      for (const bool local : {true, false}) {
        PagedCase c{chunk_name(rows, chunk, queries, local), {}, queries, 4, 2, 32, 32, rows};
        c.lengths = {chunk, chunk + 1, 0, 2 * chunk + 3, 150, 1, chunk - 1};
        c.chunk = chunk;
        c.local = local;
        c.sinks = queries == 5;
        cases.push_back(std::move(c));
      }
    }
  }
  return cases;
}
INSTANTIATE_TEST_SUITE_P(Chunks, PagedAttentionProperty, testing::ValuesIn(chunk_cases()),
                         name_of<PagedCase>);

class RopeKvProperty : public testing::TestWithParam<RopeKvCase> {};

TEST_P(RopeKvProperty, MatchesTheReference) {
  const Report report = check_rope_kv_insert(*cpu::lane(), GetParam());
  EXPECT_TRUE(report.ok()) << report;
}

const RopeKvCase kRopeKvCases[] = {
    {"no_tokens", {0, 1}, 0, 4, 2},
    {"first_token", {1}, 1, 1, 1, 32, 32, 32, AS_ROPE_NEOX, false, false, 1},
    {"halves", {40, 3}, 5, 8, 2, 128, 128, 128},
    {"pairs", {40, 3}, 5, 8, 2, 128, 128, 128, AS_ROPE_GPTJ},
    {"partial_halves", {100, 7}, 4, 4, 4, 80, 80, 32, AS_ROPE_NEOX, false, false, 48, kHnd},
    {"partial_pairs", {100, 7}, 4, 4, 4, 96, 64, 48, AS_ROPE_GPTJ, false, false, 8, AS_RECORD_F16},
    {"norm", {300}, 9, 8, 1, 64, 64, 64, AS_ROPE_NEOX, true, false, 16, kF16Hnd},
    {"norm_plus_one", {65}, 9, 4, 2, 256, 256, 256, AS_ROPE_NEOX, true, true, 31},
    {"not_rotated", {33}, 5, 4, 2, 64, 64, 0, AS_ROPE_NEOX, true},
    {"keys_alone", {33, 4}, 5, 0, 3, 64, 40, 64},
    {"huge_in_f16",
     {20},
     6,
     2,
     2,
     64,
     64,
     64,
     AS_ROPE_NEOX,
     false,
     false,
     16,
     AS_RECORD_F16,
     60000.0f},
    {"tiny_in_f16",
     {20},
     6,
     2,
     2,
     64,
     64,
     64,
     AS_ROPE_GPTJ,
     false,
     false,
     16,
     AS_RECORD_F16,
     1e-6f},
};
INSTANTIATE_TEST_SUITE_P(Shapes, RopeKvProperty, testing::ValuesIn(kRopeKvCases),
                         name_of<RopeKvCase>);

INSTANTIATE_TEST_SUITE_P(Codes, RopeKvProperty, testing::ValuesIn(coded_rows()),
                         name_of<RopeKvCase>);

// One shape, every number of splits: the same within the tolerance of the op.
TEST(PagedSplits, ChangeNothingButRounding) {
  for (std::int32_t splits = 1; splits <= 12; ++splits) {
    PagedCase c{"all_splits", {700, 130, 1, 0}, 2, 4, 2, 64, 64, 16};
    c.splits = splits;
    const Report report = check_paged_attention(*cpu::lane(), c);
    EXPECT_TRUE(report.ok()) << splits << " splits: " << report;
  }
}

// The CPU lane on so many threads.
template <int threads>
std::int32_t attend_on(const void* params, const as_call*, as_error* error) {
  static cpu::ThreadPool pool(threads);
  as_call call{};
  call.struct_size = sizeof(call);
  call.threads = pool.handle();
  return cpu::lane()->ops[AS_OP_PAGED_ATTENTION](params, &call, error);
}

TEST(PagedThreads, GiveTheSameBytes) {
  Random random(7);
  Memory memory;
  const std::vector<std::int64_t> lengths = {9000, 300, 1};
  Blocks blocks(lengths, 16, random);
  Pool k(blocks, AS_RECORD_BF16, 2, 64, 16), v(blocks, AS_RECORD_BF16, 2, 64, 16);
  fill(k, blocks, lengths, {0, 0, 0}, random);
  fill(v, blocks, lengths, {0, 0, 0}, random);
  const Tokens tokens = last_tokens(lengths, 3);
  as_paged_attention_params p{};
  p.head = {sizeof(p), AS_PARAMS_VERSION};
  p.q = memory.normals(AS_BF16, {tokens.size(), 4, 64}, random);
  p.k_cache = k.paged;
  p.v_cache = v.paged;
  p.table = blocks.table();
  p.token_to_req = memory.ints(tokens.token_to_req, {tokens.size()});
  p.positions = memory.ints64(tokens.positions);
  p.seq_lens = memory.ints({9000, 300, 1}, {3});
  p.lse = memory.make(AS_F32, {tokens.size(), 4});
  p.scale = 0.125;
  p.causal = 1;
  for (const std::int32_t splits : {0, 3}) {
    p.num_splits = splits;
    as_tensor first{};
    for (const as_op_fn run : {attend_on<1>, attend_on<2>, attend_on<7>}) {
      p.o = memory.make(AS_BF16, {tokens.size(), 4, 64});
      as_error error{};
      ASSERT_EQ(run(&p, nullptr, &error), AS_OK) << error.message;
      if (first.data == nullptr) first = p.o;
      EXPECT_EQ(std::memcmp(first.data, p.o.data, tensor_bytes(p.o)), 0) << splits;
    }
  }
}

}  // namespace
}  // namespace attnscope::properties
