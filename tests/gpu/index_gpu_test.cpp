// The ops that make indexer queries and lists on the GPU, against the CPU lane: AS_OP_INDEXER_Q,
// AS_OP_TOPK_TO_SLOTS, AS_OP_C128_INDEX, AS_OP_SLOT_MAPPING, AS_OP_SWA_INDEX.
#include <algorithm>

#include "tests/gpu/support.h"

namespace attnscope::gpu_tests {
namespace {

using properties::below;

constexpr Way kWays[] = {Way::kHost, Way::kDevice};

struct QueryCase {
  std::string name;
  Way way = Way::kHost;
  std::int32_t format = AS_RECORD_INDEX_FP8;
  std::int64_t tokens = 1, heads = 1;
  std::int32_t hadamard = AS_HADAMARD_OFF;
  float scale = 1.0f;
};
void PrintTo(const QueryCase& c, std::ostream* out) { *out << c.name; }

class GpuIndexerQ : public testing::TestWithParam<QueryCase> {};

TEST_P(GpuIndexerQ, GivesTheBytesOfTheCpuLane) {
  const QueryCase& c = GetParam();
  Report report(properties::case_seed("gpu indexer_q " + c.name));
  Random random(report.seed());
  Memory memory;
  const bool fp4 = c.format == AS_RECORD_INDEX_MXFP4;
  OpParams engine;
  auto& p = engine.init<as_indexer_q_params>(AS_OP_INDEXER_Q);
  p.q_raw = memory.normals(AS_BF16, {c.tokens, c.heads, AS_INDEX_DIM}, random, c.scale, 3);
  p.weights_raw = memory.normals(AS_BF16, {c.tokens, c.heads}, random, 1.0f, 1);
  std::vector<std::int64_t> positions;
  for (std::int64_t t = 0; t < c.tokens; ++t) positions.push_back(below(random, 4096));
  p.positions = memory.ints64(positions);
  p.rope = properties::compressed_rope();
  p.q_row = memory.make(AS_BF16, {c.tokens, c.heads, AS_INDEX_DIM}, 1);
  p.q = memory.make(AS_U8, {c.tokens, c.heads, fp4 ? 64 : 128}, 2);
  if (fp4) p.q_scale = memory.make(AS_U8, {c.tokens, c.heads, 4}, 1);
  p.weights = memory.make(AS_F32, {c.tokens, c.heads}, 1);
  p.format = c.format;
  p.hadamard = c.hadamard;
  ASSERT_TRUE(properties::run(lane(c.way), engine, &report)) << report;
  memory.check_guards(&report);
  const OpParams sim = properties::with_own_outputs(engine, &memory);
  ASSERT_TRUE(properties::run(*reference::sim_lane(), sim, &report)) << report;
  properties::judge(engine, sim, "q_row", &report);
  // Bytes and weights given the same row.
  OpParams given = same_outputs(engine, &memory);
  auto& g = given.get<as_indexer_q_params>();
  g.q_row = p.q_row;
  g.rows_given = 1;
  ASSERT_TRUE(properties::run(cpu_lane(), given, &report)) << report;
  properties::judge_equal("q", p.q, g.q, &report);
  properties::judge_equal("weights", p.weights, g.weights, &report);
  if (fp4) properties::judge_equal("q_scale", p.q_scale, g.q_scale, &report);
  // And from given rows in the CUDA lane.
  OpParams again = same_outputs(given, &memory);
  auto& a = again.get<as_indexer_q_params>();
  a.q_row = p.q_row;
  ASSERT_TRUE(properties::run(lane(c.way), again, &report)) << report;
  properties::judge_equal("q from given rows", a.q, g.q, &report);
  EXPECT_TRUE(report.ok()) << report;
}

std::vector<QueryCase> query_cases() {
  std::vector<QueryCase> all;
  for (Way way : kWays) {
    for (std::int32_t format : {AS_RECORD_INDEX_FP8, AS_RECORD_INDEX_MXFP4}) {
      for (std::int64_t tokens : {1, 4, 74, 321}) {
        for (std::int64_t heads : {1, 5, 8, 64}) {
          if (tokens * heads > 5000) continue;
          for (std::int32_t hadamard : {AS_HADAMARD_OFF, AS_HADAMARD_ON, AS_HADAMARD_ROUNDED}) {
            for (float scale : {1.0f, 1e-6f, 1e6f}) {
              QueryCase c{"", way, format, tokens, heads, hadamard, scale};
              c.name = way_name(way) + "_" + std::to_string(all.size());
              all.push_back(std::move(c));
            }
          }
        }
      }
    }
  }
  return all;
}
INSTANTIATE_TEST_SUITE_P(Grid, GpuIndexerQ, testing::ValuesIn(query_cases()),
                         properties::name_of<QueryCase>);

struct ListCase {
  std::string name;
  Way way = Way::kHost;
  std::int32_t block = 256;  // tokens of a block of the full group
  std::int64_t batch = 1, queries = 1;
};
void PrintTo(const ListCase& c, std::ostream* out) { *out << c.name; }

// Requests of a step with block tables of shuffled ids.
struct Step {
  explicit Step(const ListCase& c, Random& random, Memory* memory) {
    for (std::int64_t r = 0; r < c.batch; ++r) {
      const std::int64_t length = c.queries + below(random, 900);
      lengths.push_back(length);
      query_start_loc.push_back(static_cast<std::int32_t>(token_to_req.size()));
      for (std::int64_t q = length - c.queries; q < length; ++q) {
        token_to_req.push_back(static_cast<std::int32_t>(r));
        positions.push_back(q);
      }
      seq_lens.push_back(static_cast<std::int32_t>(length));
    }
    query_start_loc.push_back(static_cast<std::int32_t>(token_to_req.size()));
    token_to_req.push_back(-1);  // padding
    positions.push_back(0);
    tokens = static_cast<std::int64_t>(positions.size());
    for (std::int64_t i = 0; i < 3 * c.batch * kColumns; ++i) {
      table.push_back(static_cast<std::int32_t>(below(random, 1 << 20)));
    }
    tables = memory->ints(table, {3, c.batch, kColumns});
  }
  as_tensor group(std::int64_t g) const {
    as_tensor t = tables;
    t.rank = 2;
    t.data = at<std::int32_t>(tables, g);
    for (int i = 0; i < 2; ++i) {
      t.shape[i] = tables.shape[i + 1];
      t.stride[i] = tables.stride[i + 1];
    }
    return t;
  }

  static constexpr std::int64_t kColumns = 960;
  std::int64_t tokens = 0;
  std::vector<std::int64_t> lengths, positions;
  std::vector<std::int32_t> token_to_req, query_start_loc, seq_lens, table;
  as_tensor tables{};
};

class GpuLists : public testing::TestWithParam<ListCase> {};

TEST_P(GpuLists, EqualTheCpuLane) {
  const ListCase& c = GetParam();
  Report report(properties::case_seed("gpu lists " + c.name));
  Random random(report.seed());
  Memory memory;
  const Step step(c, random, &memory);
  const std::int64_t n = step.tokens;
  const as_tensor token_to_req = memory.ints(step.token_to_req, {n});
  const as_tensor positions = memory.ints64(step.positions);

  OpParams mapping;
  auto& m = mapping.init<as_slot_mapping_params>(AS_OP_SLOT_MAPPING);
  m.groups = memory.ints({c.block, 0, 64, 128, 4, 8}, {3, 2});
  m.tables = step.tables;
  m.positions = positions;
  m.token_to_req = token_to_req;
  m.slots = memory.make(AS_I64, {3, n}, 2);
  m.c4_slots = memory.make(AS_I64, {n});
  if (c.block % 128 == 0) m.c128_slots = memory.make(AS_I64, {n});
  m.c4_lens = memory.make(AS_I32, {n});
  check_against_cpu(c.way, mapping, &memory, &report);
  // Rows of first tokens alone: none behind them, where the table may hold anything.
  for (const std::int32_t first : {0, 24, 4000}) {
    OpParams ended;
    auto& e = ended.init<as_slot_mapping_params>(AS_OP_SLOT_MAPPING);
    e = m;
    e.groups = memory.ints({c.block, 0, 64, as_reach_of_first(first), 4, 8}, {3, 2});
    e.slots = memory.make(AS_I64, {3, n}, 1);
    e.c4_slots = e.c128_slots = e.c4_lens = no_tensor();
    check_against_cpu(c.way, ended, &memory, &report);
  }

  OpParams window;
  auto& w = window.init<as_swa_index_params>(AS_OP_SWA_INDEX);
  w.tables = step.tables;
  w.query_start_loc = memory.ints(step.query_start_loc, {c.batch + 1});
  w.seq_lens = memory.ints(step.seq_lens, {c.batch});
  w.token_to_req = token_to_req;
  w.indices = memory.make(AS_I32, {3, n, 128}, 4);
  w.lens = memory.make(AS_I32, {n});
  w.block_size = c.block / 4 + 1;
  w.window = 128;
  check_against_cpu(c.way, window, &memory, &report);

  OpParams dense;
  auto& d = dense.init<as_c128_index_params>(AS_OP_C128_INDEX);
  d.table = step.group(1);
  d.positions = positions;
  d.token_to_req = token_to_req;
  d.indices = memory.make(AS_I32, {n, 128}, 1);
  d.lens = memory.make(AS_I32, {n});
  d.ratio = 128;
  d.rows_per_block = 2;
  check_against_cpu(c.way, dense, &memory, &report);

  OpParams selected;
  auto& s = selected.init<as_topk_to_slots_params>(AS_OP_TOPK_TO_SLOTS);
  s.indices = memory.make(AS_I32, {n, 61}, 2);
  for (std::int64_t t = 0; t < n; ++t) {
    for (std::int64_t k = 0; k < 61; ++k) {
      const bool none = below(random, 4) == 0;
      *at<std::int32_t>(s.indices, t, k) =
          none ? -1 : static_cast<std::int32_t>(below(random, 900));
    }
  }
  s.table = step.group(2);
  s.token_to_req = token_to_req;
  s.slots = memory.make(AS_I32, {n, 61}, 3);
  s.lens = memory.make(AS_I32, {n});
  s.rows_per_block = c.block / 4;
  check_against_cpu(c.way, selected, &memory, &report);
  memory.check_guards(&report);
  EXPECT_TRUE(report.ok()) << report;
}

std::vector<ListCase> list_cases() {
  std::vector<ListCase> all;
  for (Way way : kWays) {
    for (std::int32_t block : {8, 212, 244, 256, 276, 1024}) {
      for (std::int64_t batch : {1, 4, 74, 321}) {
        for (std::int64_t queries : {1, 2, 3}) {
          all.push_back({way_name(way) + "_block" + std::to_string(block) + "_b" +
                             std::to_string(batch) + "_q" + std::to_string(queries),
                         way, block, batch, queries});
        }
      }
    }
  }
  return all;
}
INSTANTIATE_TEST_SUITE_P(Grid, GpuLists, testing::ValuesIn(list_cases()),
                         properties::name_of<ListCase>);

}  // namespace
}  // namespace attnscope::gpu_tests
