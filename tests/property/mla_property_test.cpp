// The ops of absorbed MLA and of the indexer that scores tokens, against both references: pages of
// odd sizes, both kinds of latent rows, lists with holes and without entries, both rules of scales.
// Rows that no token sees hold NaN. Planted bugs fail.
#include <algorithm>
#include <climits>
#include <cmath>
#include <cstring>
#include <numeric>

#include "engine/model/numbers.h"
#include "kernels/layout/mla_rows.h"
#include "kernels/mutants/mutants.h"
#include "kernels/params/mla_params.h"
#include "kernels/params/row_format.h"
#include "tests/property/checks.h"

namespace attnscope::properties {
namespace mla {

const Lane& sim() { return *reference::sim_lane(); }
const Lane& exact() { return *reference::exact_lane(); }

// Requests in shuffled pages, and the same rows one behind the other; 0xff where nothing is put.
class Rows {
 public:
  Rows(std::int32_t record, std::int64_t width, const std::vector<std::int64_t>& lengths,
       std::int32_t in_page, Random& random)
      : in_page_(in_page) {
    std::int64_t blocks = 3, rows = 0;
    for (const std::int64_t n : lengths) {
      first_row_.push_back(static_cast<std::int32_t>(rows));
      rows += n;
      blocks += ceil_div(n, in_page);
      columns_ = std::max(columns_, ceil_div(n, in_page) + 1);
    }
    std::vector<std::int32_t> ids(to_size(blocks - 1));
    std::iota(ids.begin(), ids.end(), 1);
    std::shuffle(ids.begin(), ids.end(), random);
    for (const std::int64_t n : lengths) {
      for (std::int64_t c = 0; c < columns_; ++c) {
        const bool mine = c < ceil_div(n, in_page);
        table_.push_back(mine ? ids.back() : INT_MAX);
        if (mine) ids.pop_back();
      }
    }
    const as_row_layout l = as_row_layout_of(record, width, 1, in_page);
    const std::int64_t stride = as_round_up(l.page + 4, 4);
    slab_.assign(to_size(blocks * stride), 0xff);
    bytes_.assign(to_size(std::max<std::int64_t>(rows, 1) * l.row), 0xff);
    paged.data = make_tensor(slab_.data(), {blocks, l.page});
    paged.data.stride[0] = stride;
    paged.record = logical.record = record;
    paged.width = logical.width = static_cast<std::int32_t>(width);
    paged.rows_per_block = in_page;
    logical.addressing = AS_LOGICAL;
    logical.data = make_tensor(bytes_.data(), {std::max<std::int64_t>(rows, 1), l.row});
    requests_ = static_cast<std::int64_t>(lengths.size());
  }
  std::int64_t slot(std::int64_t r, std::int64_t p) const {
    return std::int64_t{table_[to_size(r * columns_ + p / in_page_)]} * in_page_ + p % in_page_;
  }
  std::int64_t row(std::int64_t r, std::int64_t p) const { return first_row_[to_size(r)] + p; }
  void put(std::int64_t r, std::int64_t p, const std::vector<unsigned char>& bytes) {
    as_row_put(&paged, slot(r, p), bytes.data());
    as_row_put(&logical, row(r, p), bytes.data());
  }
  as_tensor table() const { return make_tensor(table_.data(), {requests_, columns_}); }
  as_tensor logical_table() const { return make_tensor(first_row_.data(), {requests_, 1}); }

  as_cache paged{}, logical{};

 private:
  std::int64_t in_page_, columns_ = 1, requests_ = 0;
  std::vector<std::int32_t> table_, first_row_;
  std::vector<unsigned char> slab_, bytes_;
};

std::vector<unsigned char> latent_row(std::int32_t record, Random& random) {
  std::vector<unsigned char> row(to_size(as_mla_row_bytes(record)));
  const auto put = [&](std::int64_t at, std::uint16_t bits) {
    std::memcpy(row.data() + at, &bits, 2);
  };
  if (record == AS_RECORD_BF16) {
    for (int i = 0; i < AS_MLA_WIDTH; ++i) put(2 * i, cpu::float_to_bf16(normal(random)));
    return row;
  }
  for (int i = 0; i < AS_LATENT_656_CODES; ++i) {
    row[to_size(i)] = cpu::float_to_e4m3(100 * normal(random));
  }
  for (int b = 0; b < AS_LATENT_656_BLOCKS; ++b) {
    const float scale = 0.01f + 0.003f * std::fabs(normal(random));
    std::memcpy(row.data() + AS_LATENT_656_SCALES + 4 * b, &scale, 4);
  }
  for (int i = 0; i < AS_MLA_ROPE; ++i) {
    put(AS_LATENT_656_ROPE + 2 * i, cpu::float_to_bf16(normal(random)));
  }
  return row;
}

const std::vector<MlaCase>& attention_cases() {
  static const std::vector<MlaCase> kCases = {
      {"one row", {1}, 1, 1, 64, AS_RECORD_LATENT_656, false},
      {"chunks", {130, 7, 64}, 9, 3, 64, AS_RECORD_LATENT_656, false},
      {"pages of five in bf16", {33, 100}, 20, 8, 5, AS_RECORD_BF16, false},
      {"many heads", {90}, 2, 130, 64, AS_RECORD_LATENT_656, false},
      {"lists", {140, 9, 65}, 6, 5, 64, AS_RECORD_LATENT_656, true},
      {"lists in bf16", {77, 30}, 40, 2, 7, AS_RECORD_BF16, true},
  };
  return kCases;
}

// Lists with holes, a row twice, and a token without any.
void make_lists(const Tokens& tokens, const Rows& rows, Random& random,
                std::vector<std::int32_t>& slots, std::vector<std::int32_t>& places,
                std::vector<std::int32_t>& lens, std::int64_t width) {
  for (std::int64_t t = 0; t < tokens.size(); ++t) {
    const std::int64_t r = tokens.token_to_req[to_size(t)], p = tokens.positions[to_size(t)];
    const std::int64_t len =
        t % 7 == 5 ? 0 : std::min<std::int64_t>(p + 1, below(random, width) + 1);
    for (std::int64_t k = 0; k < width; ++k) {
      const bool hole = k >= len || k % 11 == 9;
      const std::int64_t position = k == 3 ? 0 : below(random, p + 1);
      slots.push_back(k >= len ? INT_MAX
                      : hole   ? -1
                               : static_cast<std::int32_t>(rows.slot(r, position)));
      places.push_back(k >= len ? INT_MAX
                       : hole   ? -1
                                : static_cast<std::int32_t>(rows.row(r, position)));
    }
    lens.push_back(static_cast<std::int32_t>(len));
  }
}

Report check_attention(const Lane& lane, const MlaCase& c) {
  const std::string name = std::string("mla ") + c.name;
  Report report(case_seed(name));
  if (std::string_view(lane.name).starts_with("cuda")) report.judge_as("cuda");
  Random random(report.seed());
  Memory memory;
  Rows rows(c.record, AS_MLA_WIDTH, c.lengths, c.rows, random);
  for (std::size_t r = 0; r < c.lengths.size(); ++r) {
    for (std::int64_t p = 0; p < c.lengths[r]; ++p) {
      rows.put(static_cast<std::int64_t>(r), p, latent_row(c.record, random));
    }
  }
  const Tokens tokens = last_tokens(c.lengths, c.queries);
  const std::int64_t n = tokens.size();
  const as_tensor q = memory.normals(AS_BF16, {n, c.heads, AS_MLA_WIDTH}, random);
  std::vector<std::int32_t> seq_lens(c.lengths.begin(), c.lengths.end());
  std::vector<std::int32_t> slots, places, lens;
  const std::int64_t width = c.width;
  make_lists(tokens, rows, random, slots, places, lens, width);
  OpParams own, logical;
  const auto common = [&](auto& p, bool paged) {
    p.q = q;
    p.cache = paged ? rows.paged : rows.logical;
    p.scale = 0.06;
    p.o = memory.make(AS_BF16, {n, c.heads, AS_MLA_LATENT});
    p.lse = memory.make(AS_F32, {n, c.heads});
  };
  const auto fill = [&](OpParams& params, bool paged) {
    if (c.listed) {
      auto& p = params.init<as_sparse_mla_attention_params>(AS_OP_SPARSE_MLA_ATTENTION);
      common(p, paged);
      p.indices = make_tensor((paged ? slots : places).data(), {n, width});
      p.topk_length = make_tensor(lens.data(), {n});
      return;
    }
    auto& p = params.init<as_mla_attention_params>(AS_OP_MLA_ATTENTION);
    common(p, paged);
    p.table = paged ? rows.table() : rows.logical_table();
    p.token_to_req = make_tensor(tokens.token_to_req.data(), {n});
    p.positions = make_tensor(tokens.positions.data(), {n});
    p.seq_lens = make_tensor(seq_lens.data(), {static_cast<std::int64_t>(seq_lens.size())});
  };
  fill(own, true);
  fill(logical, false);
  const OpParams expected = with_own_outputs(logical, &memory);
  if (!run(lane, own, &report) || !run(sim(), expected, &report)) return report;
  judge_all(own, expected, &report);
  memory.check_guards(&report);
  return report;
}

const std::vector<RowCase>& row_cases() {
  static const std::vector<RowCase> kCases = {
      {"float scales", AS_RECORD_LATENT_656, AS_SCALE_FLOAT, 1, 1},
      {"powers of two", AS_RECORD_LATENT_656, AS_SCALE_POWER_OF_TWO, 300, 1},
      {"bf16, no transform", AS_RECORD_BF16, AS_SCALE_FLOAT, 1, 0},
      {"tiny numbers", AS_RECORD_LATENT_656, AS_SCALE_FLOAT, 1e-6f, 0},
  };
  return kCases;
}

// Slots of a few tokens, one without any; the same for logical rows.
const std::vector<std::int64_t> kSlots = {5, -1, 0, 17, 9, 2, 11};

// The lane's cache row by row against the reference's: bytes.
void judge_rows(const as_cache& own, const as_cache& expected, Report* report) {
  const std::int64_t bytes = as_cache_row_bytes(&own);
  std::vector<unsigned char> a(to_size(bytes)), b(to_size(bytes));
  for (std::int64_t s = 0; s < 20; ++s) {
    as_row_get(&own, s, a.data());
    as_row_get(&expected, s, b.data());
    const auto at = std::mismatch(a.begin(), a.end(), b.begin()).first;
    if (at != a.end()) {
      report->fail("cache", "slot " + std::to_string(s) + ", byte " +
                                std::to_string(at - a.begin()) + " differs");
    }
  }
}

struct CacheOfRows {
  CacheOfRows(std::int32_t record, std::int64_t width, bool paged) {
    const std::int32_t in_page = paged ? 4 : 1;
    const as_row_layout l = as_row_layout_of(record, width, 1, in_page);
    bytes.assign(to_size(20 / in_page * l.page), 0xff);
    cache.data = make_tensor(bytes.data(), {20 / in_page, paged ? l.page : l.row});
    if (!paged) cache.data.stride[0] = l.row;
    cache.record = record;
    cache.addressing = paged ? AS_PAGED : AS_LOGICAL;
    cache.rows_per_block = paged ? 4 : 0;
    cache.width = static_cast<std::int32_t>(width);
  }
  std::vector<unsigned char> bytes;
  as_cache cache{};
};

Report check_latent_rows(const Lane& lane, const RowCase& c) {
  Report report(case_seed(std::string("latent rows ") + c.name));
  Random random(report.seed());
  Memory memory;
  const auto n = static_cast<std::int64_t>(kSlots.size());
  CacheOfRows own_rows(c.record, AS_MLA_WIDTH, true), sim_rows(c.record, AS_MLA_WIDTH, false);
  OpParams own;
  auto& p = own.init<as_mla_kv_insert_params>(AS_OP_MLA_KV_INSERT);
  p.kv = memory.normals(AS_BF16, {n, AS_MLA_LATENT}, random, c.spread);
  p.qkv = memory.normals(AS_BF16, {n, 96 + AS_MLA_WIDTH}, random, c.spread, 8);
  p.positions = memory.ints64({4000, 1, 0, 77, 12, 5, 900});
  p.rope = plain_rope();
  p.slots = memory.ints64(kSlots);
  p.kv_row = memory.make(AS_BF16, {n, AS_MLA_WIDTH});
  p.cache = own_rows.cache;
  p.scale_rule = c.scale_rule;
  OpParams expected = with_own_outputs(own, &memory);
  expected.get<as_mla_kv_insert_params>().cache = sim_rows.cache;
  if (!run(lane, own, &report) || !run(sim(), expected, &report)) return report;
  judge(own, expected, "kv_row", &report);
  // What is stored is the lane's own row, quantised.
  auto& again = expected.get<as_mla_kv_insert_params>();
  again.kv_row = p.kv_row;
  again.rows_given = 1;
  if (run(sim(), expected, &report)) judge_rows(own_rows.cache, sim_rows.cache, &report);
  return report;
}

Report check_index_keys(const Lane& lane, const RowCase& c) {
  Report report(case_seed(std::string("index keys ") + c.name));
  Random random(report.seed());
  Memory memory;
  const auto n = static_cast<std::int64_t>(kSlots.size());
  CacheOfRows own_rows(kFp8, AS_INDEX_DIM, true), sim_rows(kFp8, AS_INDEX_DIM, false);
  OpParams own;
  auto& p = own.init<as_index_key_insert_params>(AS_OP_INDEX_KEY_INSERT);
  p.k = memory.normals(AS_BF16, {n, AS_INDEX_DIM}, random, c.spread, 16);
  for (std::int64_t t = 0; t < n; ++t) {  // a mean that is no rounding error
    for (int d = 0; d < AS_INDEX_DIM; ++d) {
      bf16_t& k = *at<bf16_t>(p.k, t, d);
      k = to_bf16(to_float(k) + c.spread);
    }
  }
  p.weight = memory.normals(AS_BF16, {AS_INDEX_DIM}, random);
  p.bias = memory.normals(AS_BF16, {AS_INDEX_DIM}, random, 0.5f);
  p.positions = memory.ints64({4000, 1, 0, 77, 12, 5, 900});
  p.rope = plain_rope();
  p.slots = memory.ints64(kSlots);
  p.row = memory.make(AS_BF16, {n, AS_INDEX_DIM});
  p.cache = own_rows.cache;
  p.eps = 1e-6;
  p.hadamard = c.hadamard;
  p.scale_rule = c.scale_rule;
  OpParams expected = with_own_outputs(own, &memory);
  expected.get<as_index_key_insert_params>().cache = sim_rows.cache;
  if (!run(lane, own, &report) || !run(sim(), expected, &report)) return report;
  judge(own, expected, "row", &report);
  auto& again = expected.get<as_index_key_insert_params>();
  again.row = p.row;
  again.rows_given = 1;
  if (run(sim(), expected, &report)) judge_rows(own_rows.cache, sim_rows.cache, &report);
  return report;
}

Report check_index_queries(const Lane& lane, const RowCase& c) {
  Report report(case_seed(std::string("index queries ") + c.name));
  Random random(report.seed());
  Memory memory;
  const std::int64_t n = 5, heads = 3;
  OpParams own;
  auto& p = own.init<as_index_query_params>(AS_OP_INDEX_QUERY);
  p.q_raw = memory.normals(AS_BF16, {n, heads, AS_INDEX_DIM}, random, c.spread);
  p.weights_raw = memory.normals(AS_F32, {n, heads}, random);
  p.positions = memory.ints64({4000, 1, 0, 77, 12});
  p.rope = plain_rope();
  p.q_row = memory.make(AS_BF16, {n, heads, AS_INDEX_DIM});
  p.q = memory.make(AS_U8, {n, heads, AS_INDEX_DIM});
  p.weights = memory.make(AS_F32, {n, heads});
  p.hadamard = c.hadamard;
  p.scale_rule = c.scale_rule;
  OpParams expected = with_own_outputs(own, &memory);
  auto& e = expected.get<as_index_query_params>();
  e.q = memory.make(AS_U8, {n, heads, AS_INDEX_DIM});
  if (!run(lane, own, &report) || !run(sim(), expected, &report)) return report;
  judge(own, expected, "q_row", &report);
  e.q_row = p.q_row;
  e.rows_given = 1;
  if (!run(sim(), expected, &report)) return report;
  judge_equal("q", p.q, e.q, &report);
  judge(own, expected, "weights", &report);
  return report;
}

Report check_absorbed(const Lane& lane, std::int64_t plain, std::int64_t values, std::int64_t n) {
  Report report(case_seed("absorbed " + std::to_string(plain)));
  Random random(report.seed());
  Memory memory;
  const std::int64_t heads = 3;
  OpParams own, up;
  auto& p = own.init<as_mla_q_absorb_params>(AS_OP_MLA_Q_ABSORB);
  p.q_raw = memory.normals(AS_BF16, {n, heads, plain + AS_MLA_ROPE}, random, 1, 8);
  p.kv_b = memory.normals(AS_BF16, {heads, plain + values, AS_MLA_LATENT}, random, 0.06f);
  std::vector<std::int64_t> positions(to_size(n));
  std::iota(positions.begin(), positions.end(), 100);
  p.positions = memory.ints64(positions);
  p.rope = plain_rope();
  p.q = memory.make(AS_BF16, {n, heads, AS_MLA_WIDTH});
  const OpParams expected = with_own_outputs(own, &memory);
  if (!run(lane, own, &report) || !run(sim(), expected, &report)) return report;
  judge_all(own, expected, &report);
  auto& v = up.init<as_mla_v_up_params>(AS_OP_MLA_V_UP);
  v.o = memory.normals(AS_BF16, {n, heads, AS_MLA_LATENT}, random);
  v.kv_b = p.kv_b;
  v.y = memory.make(AS_BF16, {n, heads, values});
  const OpParams expected_up = with_own_outputs(up, &memory);
  if (!run(lane, up, &report) || !run(sim(), expected_up, &report)) return report;
  judge_all(up, expected_up, &report);
  memory.check_guards(&report);
  return report;
}

bool all_hold(const Lane& lane) {
  bool ok = check_absorbed(lane, 40, 24).ok();
  for (const MlaCase& c : attention_cases()) ok = ok && check_attention(lane, c).ok();
  for (const RowCase& c : row_cases()) {
    ok = ok && check_latent_rows(lane, c).ok() && check_index_keys(lane, c).ok() &&
         check_index_queries(lane, c).ok();
  }
  return ok;
}

TEST(MlaProperties, AttentionIsTheReferences) {
  for (const MlaCase& c : attention_cases()) {
    const Report report = check_attention(*cpu::lane(), c);
    EXPECT_TRUE(report.ok()) << c.name << ": " << report;
  }
}

TEST(MlaProperties, RowsAreTheReferencesByteForByte) {
  for (const RowCase& c : row_cases()) {
    for (const auto check : {check_latent_rows, check_index_keys, check_index_queries}) {
      const Report report = check(*cpu::lane(), c);
      EXPECT_TRUE(report.ok()) << c.name << ": " << report;
    }
  }
}

TEST(MlaProperties, AbsorbedProductsAreTheReferences) {
  for (const auto& [plain, values] : {std::pair{8, 256}, {40, 24}, {128, 128}}) {
    const Report report = check_absorbed(*cpu::lane(), plain, values);
    EXPECT_TRUE(report.ok()) << plain << ": " << report;
  }
}

// softmax(q k) v of keys and values made of the latent row is what absorption gives: in ref.exact.
TEST(MlaProperties, AbsorptionChangesNothing) {
  Random random(case_seed("absorption"));
  const std::int64_t plain = 16, values = 24, rows = 30;
  std::vector<double> q(to_size(plain + AS_MLA_ROPE)),
      up(to_size((plain + values) * AS_MLA_LATENT));
  std::vector<double> cache(to_size(rows * AS_MLA_WIDTH)), absorbed(AS_MLA_WIDTH);
  std::vector<double> o(AS_MLA_LATENT), lse(1), y(to_size(values));
  for (auto* v : {&q, &up, &cache}) {
    for (double& x : *v) x = static_cast<double>(normal(random)) * (v == &up ? 0.06 : 1);
  }
  std::vector<std::int64_t> position = {0};
  const as_tensor kv_b = make_tensor(up.data(), {1, plain + values, AS_MLA_LATENT});
  Report report(1);
  OpParams a, b, c;
  auto& absorb = a.init<as_mla_q_absorb_params>(AS_OP_MLA_Q_ABSORB);
  absorb.q_raw = make_tensor(q.data(), {1, 1, plain + AS_MLA_ROPE});
  absorb.kv_b = kv_b;
  absorb.positions = make_tensor(position.data(), {1});  // turns nothing
  absorb.rope = plain_rope();
  absorb.q = make_tensor(absorbed.data(), {1, 1, AS_MLA_WIDTH});
  ASSERT_TRUE(run(exact(), a, &report)) << report;
  auto& attention = b.init<as_mla_attention_params>(AS_OP_MLA_ATTENTION);
  std::vector<std::int32_t> table = {0}, request = {0}, seq_lens = {30};
  std::vector<std::int64_t> last = {rows - 1};
  attention.q = absorb.q;
  attention.cache.data = make_tensor(cache.data(), {rows, AS_MLA_WIDTH});
  attention.cache.record = AS_RECORD_BF16;
  attention.cache.addressing = AS_LOGICAL;
  attention.cache.width = AS_MLA_WIDTH;
  attention.table = make_tensor(table.data(), {1, 1});
  attention.token_to_req = make_tensor(request.data(), {1});
  attention.positions = make_tensor(last.data(), {1});
  attention.seq_lens = make_tensor(seq_lens.data(), {1});
  attention.o = make_tensor(o.data(), {1, 1, AS_MLA_LATENT});
  attention.lse = make_tensor(lse.data(), {1, 1});
  attention.scale = 0.11;
  ASSERT_TRUE(run(exact(), b, &report)) << report;
  auto& out = c.init<as_mla_v_up_params>(AS_OP_MLA_V_UP);
  out.o = attention.o;
  out.kv_b = kv_b;
  out.y = make_tensor(y.data(), {1, 1, values});
  ASSERT_TRUE(run(exact(), c, &report)) << report;

  const auto made = [&](std::int64_t row, std::int64_t dim) {  // of keys, then values
    double sum = 0;
    for (int i = 0; i < AS_MLA_LATENT; ++i) {
      sum += up[to_size(dim * AS_MLA_LATENT + i)] * cache[to_size(row * AS_MLA_WIDTH + i)];
    }
    return sum;
  };
  std::vector<double> weight(to_size(rows));
  double total = 0;
  for (std::int64_t r = 0; r < rows; ++r) {
    double dot = 0;
    for (std::int64_t d = 0; d < plain; ++d) dot += q[to_size(d)] * made(r, d);
    for (int d = 0; d < AS_MLA_ROPE; ++d) {
      dot += q[to_size(plain + d)] * cache[to_size(r * AS_MLA_WIDTH + AS_MLA_LATENT + d)];
    }
    total += weight[to_size(r)] = std::exp(0.11 * dot);
  }
  EXPECT_NEAR(lse[0], std::log(total), 1e-9);
  for (std::int64_t d = 0; d < values; ++d) {
    double right = 0;
    for (std::int64_t r = 0; r < rows; ++r) {
      right += weight[to_size(r)] / total * made(r, plain + d);
    }
    EXPECT_NEAR(y[to_size(d)], right, 1e-9) << d;
  }
}

TEST(MlaProperties, PlantedBugsFail) {
  int planted = 0;
  for (const Lane& lane : mutants::lanes()) {
    bool of_mla = false;
    for (const as_op_id op :
         {AS_OP_MLA_Q_ABSORB, AS_OP_MLA_KV_INSERT, AS_OP_INDEX_QUERY, AS_OP_INDEX_KEY_INSERT,
          AS_OP_MLA_ATTENTION, AS_OP_SPARSE_MLA_ATTENTION, AS_OP_MLA_V_UP}) {
      of_mla = of_mla || lane.ops[op] != nullptr;
    }
    if (!of_mla) continue;
    ++planted;
    EXPECT_FALSE(all_hold(lane)) << lane.name << " passes";
  }
  EXPECT_GE(planted, 16);
}

}  // namespace mla
}  // namespace attnscope::properties
