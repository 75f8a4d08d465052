// AS_OP_SLOT_MAPPING, AS_OP_SWA_INDEX and AS_OP_C128_INDEX.
#include <algorithm>
#include <climits>
#include <numeric>

#include "tests/property/checks.h"

namespace attnscope::properties {
namespace {

// Table entries that no token of the step needs.
constexpr std::int32_t kStray[] = {INT_MAX, -5, 0, INT_MIN};

// Tables [G,R,C] of shuffled block ids; garbage until an entry is needed.
class Tables {
 public:
  Tables(std::int64_t groups, std::int64_t requests, std::int64_t columns, Random& random,
         Memory* memory, std::int32_t first_id = 1)
      : tensor_(memory->make(AS_I32, {groups, requests, columns}, 4)),
        ids_(static_cast<std::size_t>(groups * requests * columns)) {
    std::iota(ids_.begin(), ids_.end(), first_id);
    std::shuffle(ids_.begin(), ids_.end(), random);
    for (std::int64_t i = 0; i < groups * requests * columns; ++i) {
      *at<std::int32_t>(tensor_, i / (requests * columns), i / columns % requests, i % columns) =
          kStray[i % 4];
    }
  }

  // Gives entries first..last of a request their blocks.
  void need(std::int64_t group, std::int64_t request, std::int64_t first, std::int64_t last) {
    for (std::int64_t c = first; c <= last; ++c) {
      const std::int64_t flat = (group * tensor_.shape[1] + request) * tensor_.shape[2] + c;
      *at<std::int32_t>(tensor_, group, request, c) = ids_[static_cast<std::size_t>(flat)];
    }
  }

  const as_tensor& tensor() const { return tensor_; }
  // [R,C] of one group.
  as_tensor group(std::int64_t g) const {
    as_tensor t = tensor_;
    t.rank = 2;
    t.data = at<std::int32_t>(tensor_, g);
    for (int i = 0; i < 2; ++i) {
      t.shape[i] = tensor_.shape[i + 1];
      t.stride[i] = tensor_.stride[i + 1];
    }
    return t;
  }

 private:
  as_tensor tensor_;
  std::vector<std::int32_t> ids_;
};

// Two padding tokens after the others; their position means nothing.
void pad(Tokens* tokens) {
  for (const std::int64_t position : {std::int64_t{3}, std::int64_t{1000003}}) {
    tokens->token_to_req.push_back(-1);
    tokens->positions.push_back(position);
  }
}

std::int64_t longest(const std::vector<std::int64_t>& lengths) {
  return *std::max_element(lengths.begin(), lengths.end());
}

}  // namespace

Report check_window(const Lane& lane, const WindowCase& c) {
  Report report(case_seed("window " + c.name));
  Random random(report.seed());
  Memory memory;
  Tokens tokens = last_tokens(c.lengths, c.queries);
  const auto requests = static_cast<std::int64_t>(c.lengths.size());
  std::vector<std::int32_t> query_start_loc = {0};
  std::vector<std::int32_t> seq_lens;
  Tables tables(c.groups, requests, longest(c.lengths) / c.block_size + 2, random, &memory);
  for (std::int64_t r = 0; r < requests; ++r) {
    const std::int64_t length = c.lengths[static_cast<std::size_t>(r)];
    const std::int64_t queries = std::min(c.queries, length);
    query_start_loc.push_back(static_cast<std::int32_t>(query_start_loc.back() + queries));
    seq_lens.push_back(static_cast<std::int32_t>(length));
    const std::int64_t oldest = std::max<std::int64_t>(length - queries - c.window + 1, 0);
    for (std::int64_t g = 0; g < c.groups && length > 0; ++g) {
      tables.need(g, r, oldest / c.block_size, (length - 1) / c.block_size);
    }
  }
  pad(&tokens);
  const std::int64_t n = tokens.size();
  OpParams engine;
  auto& p = engine.init<as_swa_index_params>(AS_OP_SWA_INDEX);
  p.tables = tables.tensor();
  p.query_start_loc = memory.ints(query_start_loc, {requests + 1});
  p.seq_lens = memory.ints(seq_lens, {requests});
  p.token_to_req = memory.ints(tokens.token_to_req, {n});
  p.indices = memory.make(AS_I32, {c.groups, n, c.window}, 3);
  p.lens = memory.make(AS_I32, {n});
  p.block_size = c.block_size;
  p.window = c.window;
  if (!run(lane, engine, &report)) return report;
  memory.check_guards(&report);
  judge_integers(engine, &memory, &report);
  return report;
}

namespace {

class WindowProperty : public testing::TestWithParam<WindowCase> {};

TEST_P(WindowProperty, EqualsBothReferences) {
  const Report report = check_window(*cpu::lane(), GetParam());
  EXPECT_TRUE(report.ok()) << report;
}

const WindowCase kWindowCases[] = {
    {"no_tokens", {0, 0}, 1},
    {"first_tokens", {1, 3, 0, 4}, 5, 64, 128, 2},
    {"window_edges", {127, 128, 129}, 1, 64, 128, 3},
    {"window_edges_of_five", {127, 128, 129, 0, 255, 256}, 5, 64, 128},
    {"whole_prompt", {300, 1}, 300, 64, 128},
    {"long", {2050, 2051}, 2, 64, 128, 2},
    {"one_token_blocks", {2051, 130}, 2, 1, 128},
    {"odd_blocks", {255, 2050, 53}, 5, 53, 128},
    {"odd_blocks_and_window", {127, 128, 61}, 5, 61, 127},
    {"window_of_one", {129, 1}, 2, 3, 1},
};
INSTANTIATE_TEST_SUITE_P(Shapes, WindowProperty, testing::ValuesIn(kWindowCases),
                         name_of<WindowCase>);

// Lengths that the other two ops see, with the last tokens of each as the step.
const std::vector<std::int64_t> kLengthSets[] = {
    {0, 0}, {1, 3, 0, 4}, {127, 128, 129}, {255, 256}, {2050, 2051, 5}};

class SlotMappingProperty : public testing::TestWithParam<std::int64_t> {};  // queries

TEST_P(SlotMappingProperty, EqualsBothReferences) {
  Report report(case_seed("slot_mapping " + std::to_string(GetParam())));
  Random random(report.seed());
  Memory memory;
  // Full group first, last, or none; odd blocks beside those that entries need.
  const std::vector<std::vector<std::int32_t>> layouts = {{256, 0, 64, 128, 64, 128, 4, 8, 8, 128},
                                                          {53, 128, 61, 7, 128, 0},
                                                          {1, 2, 3, 4, 512, 0},
                                                          {64, 128}};
  for (const std::vector<std::int32_t>& groups : layouts) {
    const auto num_groups = static_cast<std::int64_t>(groups.size() / 2);
    std::int32_t full = -1;
    std::int64_t smallest = INT_MAX;
    for (std::int64_t g = 0; g < num_groups; ++g) {
      const auto i = static_cast<std::size_t>(2 * g);
      if (groups[i + 1] == 0) full = static_cast<std::int32_t>(g);
      smallest = std::min<std::int64_t>(smallest, groups[i]);
    }
    for (const std::vector<std::int64_t>& lengths : kLengthSets) {
      Tokens tokens = last_tokens(lengths, GetParam());
      const auto requests = static_cast<std::int64_t>(lengths.size());
      // The full group of 256 tokens with ids whose slots need more than 32 bits.
      Tables tables(num_groups, requests, longest(lengths) / smallest + 1, random, &memory,
                    full == 0 ? 1 << 30 : 1);
      for (std::size_t t = 0; t < tokens.positions.size(); ++t) {
        for (std::int64_t g = 0; g < num_groups; ++g) {
          const std::int64_t column = tokens.positions[t] / groups[static_cast<std::size_t>(2 * g)];
          tables.need(g, tokens.token_to_req[t], column, column);
        }
      }
      pad(&tokens);
      const std::int64_t n = tokens.size();
      OpParams engine;
      auto& p = engine.init<as_slot_mapping_params>(AS_OP_SLOT_MAPPING);
      p.groups = memory.ints(groups, {num_groups, 2});
      p.tables = tables.tensor();
      p.positions = memory.ints64(tokens.positions);
      p.token_to_req = memory.ints(tokens.token_to_req, {n});
      p.slots = memory.make(AS_I64, {num_groups, n}, 2);
      p.mla_group = full;
      if (full >= 0) {
        p.c4_slots = memory.make(AS_I64, {n});
        p.c128_slots = memory.make(AS_I64, {n});
        p.c4_lens = memory.make(AS_I32, {n});
      }
      ASSERT_TRUE(run(*cpu::lane(), engine, &report)) << report;
      judge_integers(engine, &memory, &report);
    }
  }
  memory.check_guards(&report);
  EXPECT_TRUE(report.ok()) << report;
}

INSTANTIATE_TEST_SUITE_P(Queries, SlotMappingProperty, testing::Values(1, 2, 5, 200));

class C128IndexProperty : public testing::TestWithParam<std::int32_t> {};  // rows per block

TEST_P(C128IndexProperty, EqualsBothReferences) {
  const std::int32_t rows = GetParam();
  Report report(case_seed("c128_index " + std::to_string(rows)));
  Random random(report.seed());
  Memory memory;
  for (const std::int64_t queries : {1, 2, 5, 130}) {
    for (const std::vector<std::int64_t>& lengths : kLengthSets) {
      Tokens tokens = last_tokens(lengths, queries);
      const auto requests = static_cast<std::int64_t>(lengths.size());
      Tables tables(1, requests, longest(lengths) / 128 / rows + 2, random, &memory);
      for (std::int64_t r = 0; r < requests; ++r) {
        const std::int64_t entries = lengths[static_cast<std::size_t>(r)] / 128;
        if (entries > 0) tables.need(0, r, 0, (entries - 1) / rows);
      }
      pad(&tokens);
      const std::int64_t n = tokens.size();
      const std::int64_t width = as_c128_index_width(longest(lengths), 4096);
      OpParams engine;
      auto& p = engine.init<as_c128_index_params>(AS_OP_C128_INDEX);
      p.table = tables.group(0);
      p.positions = memory.ints64(tokens.positions);
      p.token_to_req = memory.ints(tokens.token_to_req, {n});
      p.indices = memory.make(AS_I32, {n, width}, 1);
      p.lens = memory.make(AS_I32, {n});
      p.ratio = 128;
      p.rows_per_block = rows;
      ASSERT_TRUE(run(*cpu::lane(), engine, &report)) << report;
      judge_integers(engine, &memory, &report);
    }
  }
  memory.check_guards(&report);
  EXPECT_TRUE(report.ok()) << report;
}

INSTANTIATE_TEST_SUITE_P(PageRows, C128IndexProperty, testing::Values(1, 2, 3, 53, 61, 64));

}  // namespace
}  // namespace attnscope::properties
