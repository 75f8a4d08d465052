// Tables and lists of a batch over odd sizes, sequences without tokens, room behind the end, holes;
// their planted bugs, each alone and with others; the seed's own example.
#include <algorithm>
#include <climits>
#include <span>

#include "engine/backend/attention_metadata.h"
#include "kernels/mutants/mutants.h"
#include "tests/property/helper_checks.h"

namespace attnscope::properties {
namespace {

using Ints = std::vector<std::int32_t>;

std::int32_t number_between(Random& random, std::int32_t low, std::int32_t high) {
  return low + static_cast<std::int32_t>(below(random, high - low + 1));
}

std::int32_t as_int(std::int64_t n) { return static_cast<std::int32_t>(n); }

as_tensor ints_of(const Ints& values, std::vector<std::int64_t> shape, std::int64_t pad,
                  Memory* memory) {
  as_tensor t = memory->make(AS_I32, std::move(shape), pad);
  std::size_t next = 0;
  for_each_row(t, [&](std::int64_t, char* row) {
    for (std::int64_t i = 0; i < t.shape[t.rank - 1]; ++i) {
      reinterpret_cast<std::int32_t*>(row)[i] = values[next++];
    }
  });
  return t;
}

// Lengths that end on borders of blocks, just behind them, anywhere, and nowhere.
std::int32_t any_length(const TableCase& c, Random& random) {
  const std::int64_t most = c.columns * c.block_size;
  switch (below(random, 5)) {
    case 0:
      return 0;
    case 1:
      return as_int(c.block_size * number_between(random, 0, as_int(c.columns)));
    case 2:
      return as_int(
          std::min(most, c.block_size * number_between(random, 0, as_int(c.columns)) + 1));
    default:
      return number_between(random, 0, as_int(most));
  }
}

Ints any_lengths(const TableCase& c, Random& random) {
  Ints lengths;
  for (std::int64_t r = 0; r < c.sequences; ++r) lengths.push_back(any_length(c, random));
  return lengths;
}

// Ids of blocks; `holes`: some are null, negative or the given one.
Ints any_blocks(const TableCase& c, bool holes, std::int32_t null_block, Random& random) {
  Ints ids;
  for (std::int64_t i = 0; i < c.sequences * c.columns; ++i) {
    const std::int64_t kind = holes ? below(random, 4) : 3;
    ids.push_back(kind == 0 ? -1 : kind == 1 ? null_block : number_between(random, 0, INT_MAX - 1));
  }
  return ids;
}

// Runs the op on a lane and on the reference, and compares all of its outputs.
template <class Params>
void run_both(const Lane& lane, as_op_id op, const Params& p,
              std::initializer_list<as_tensor Params::*> outputs, Memory* memory, Report* report) {
  Params sim = p;
  for (as_tensor Params::*out : outputs) {
    const as_tensor& t = p.*out;
    sim.*out = memory->make(t.dtype, std::vector<std::int64_t>(t.shape, t.shape + t.rank));
  }
  if (!run_helper(*reference::sim_lane(), op, sim, report)) return;
  if (!run_helper(lane, op, p, report)) return;
  for (as_tensor Params::*out : outputs) {
    judge_equal(std::to_string(op) + " output", p.*out, sim.*out, report);
  }
  memory->check_guards(report);
}

}  // namespace

Report check_sequence_table(const Lane& lane, const TableCase& c) {
  Report report(case_seed(c.name));
  Random random(report.seed());
  Memory memory;
  auto p = helper_params<as_sequence_table_params>();
  Ints query, computed;
  std::int64_t tokens = 0;
  for (const std::int32_t length : any_lengths(c, random)) {
    query.push_back(below(random, 3) == 0 ? std::min(length, 1)
                                          : number_between(random, 0, length));
    computed.push_back(length - query.back());
    tokens += query.back();
  }
  p.query_lens = ints_of(query, {c.sequences}, 0, &memory);
  p.computed = ints_of(computed, {c.sequences}, 0, &memory);
  p.cu_seqlens = memory.make(AS_I32, {c.sequences + 1});
  p.seq_lens = memory.make(AS_I32, {c.sequences});
  p.blocks = memory.make(AS_I32, {c.sequences, c.columns}, c.pad);
  p.token_to_seq = memory.make(AS_I32, {tokens + c.room});
  p.positions = memory.make(AS_I64, {tokens + c.room});
  p.block_size = as_int(c.block_size);
  using P = as_sequence_table_params;
  run_both(lane, AS_OP_SEQUENCE_TABLE, p,
           {&P::cu_seqlens, &P::seq_lens, &P::blocks, &P::token_to_seq, &P::positions}, &memory,
           &report);
  return report;
}

Report check_page_indices(const Lane& lane, const TableCase& c) {
  Report report(case_seed(c.name));
  Random random(report.seed());
  Memory memory;
  auto p = helper_params<as_page_indices_params>();
  const Ints lengths = any_lengths(c, random);
  std::int64_t pages = 0;
  for (const std::int32_t length : lengths) pages += (length + c.block_size - 1) / c.block_size;
  p.table = ints_of(any_blocks(c, true, 0, random), {c.sequences, c.columns}, c.pad, &memory);
  p.seq_lens = ints_of(lengths, {c.sequences}, 0, &memory);
  p.indptr = memory.make(AS_I32, {c.sequences + 1});
  p.indices = memory.make(AS_I32, {pages + c.room});
  p.last_page_len = memory.make(AS_I32, {c.sequences});
  p.block_size = as_int(c.block_size);
  using P = as_page_indices_params;
  run_both(lane, AS_OP_PAGE_INDICES, p, {&P::indptr, &P::indices, &P::last_page_len}, &memory,
           &report);
  return report;
}

Report check_compact_tables(const Lane& lane, const TableCase& c) {
  Report report(case_seed(c.name));
  Random random(report.seed());
  Memory memory;
  auto p = helper_params<as_compact_tables_params>();
  p.null_block = c.room % 2 == 0 ? 0 : 77;
  Ints lens;
  for (std::int64_t r = 0; r < c.sequences; ++r)
    lens.push_back(number_between(random, 0, as_int(c.columns)));
  p.table =
      ints_of(any_blocks(c, true, p.null_block, random), {c.sequences, c.columns}, c.pad, &memory);
  p.lens = ints_of(lens, {c.sequences}, 0, &memory);
  p.compact = memory.make(AS_I32, {c.sequences, c.columns}, 2 * c.pad);
  p.columns = memory.make(AS_I32, {c.sequences, c.columns}, c.pad);
  p.kept = memory.make(AS_I32, {c.sequences});
  using P = as_compact_tables_params;
  run_both(lane, AS_OP_COMPACT_TABLES, p, {&P::compact, &P::columns, &P::kept}, &memory, &report);
  return report;
}

Report check_pad_rows(const Lane& lane, const TableCase& c) {
  Report report(case_seed(c.name));
  Random random(report.seed());
  Memory memory;
  auto p = helper_params<as_pad_rows_params>();
  Ints starts{0};
  for (std::int64_t r = 0; r < c.sequences; ++r) {
    const bool none = below(random, 4) == 0;
    starts.push_back(starts.back() + (none ? 0 : number_between(random, 0, as_int(c.columns))));
  }
  const std::int64_t values = starts.back() + c.room;
  Ints all;
  for (std::int64_t i = 0; i < values; ++i) all.push_back(number_between(random, 1, INT_MAX - 1));
  p.values = ints_of(all, {values}, 0, &memory);
  p.starts = ints_of(starts, {c.sequences + 1}, 0, &memory);
  p.rows = memory.make(AS_I32, {c.sequences, c.columns}, c.pad);
  p.pad = -1;
  run_both(lane, AS_OP_PAD_ROWS, p, {&as_pad_rows_params::rows}, &memory, &report);
  return report;
}

std::vector<TableCase> table_cases() {
  std::vector<TableCase> cases;
  for (const std::int64_t sequences : {0, 1, 5, 33, 300}) {
    for (const std::int64_t block : {1, 16, 24}) {
      for (const std::int64_t columns : {1, 7, 70}) {
        TableCase c;
        c.name = "s" + std::to_string(sequences) + "_b" + std::to_string(block) + "_c" +
                 std::to_string(columns);
        c.sequences = sequences;
        c.block_size = block;
        c.columns = columns;
        c.room = static_cast<std::int64_t>(cases.size() % 3 == 1 ? 0 : cases.size() % 7);
        c.pad = static_cast<std::int64_t>(cases.size() % 4);
        cases.push_back(c);
      }
    }
  }
  return cases;
}

namespace {

void expect_tables_right(const Report& report) { EXPECT_TRUE(report.ok()) << report; }

using CheckTable = Report (*)(const Lane&, const TableCase&);
struct TableOp {
  as_op_id op;
  CheckTable check;
};
constexpr TableOp kTableOps[] = {{AS_OP_SEQUENCE_TABLE, check_sequence_table},
                                 {AS_OP_PAGE_INDICES, check_page_indices},
                                 {AS_OP_COMPACT_TABLES, check_compact_tables},
                                 {AS_OP_PAD_ROWS, check_pad_rows}};

class BatchTables : public testing::TestWithParam<TableCase> {};
TEST_P(BatchTables, MatchTheReference) {
  for (const TableOp& op : kTableOps) expect_tables_right(op.check(*cpu::lane(), GetParam()));
}
INSTANTIATE_TEST_SUITE_P(Sizes, BatchTables, testing::ValuesIn(table_cases()), name_of<TableCase>);

// Of the ops that this lane has in the place of the CPU lane's, those that some case shows wrong.
std::vector<as_op_id> accused(const std::vector<const Lane*>& planted) {
  Lane lane = *cpu::lane();
  for (const Lane* mutant : planted) {
    for (const TableOp& op : kTableOps) {
      if (mutant->ops[op.op] != nullptr) lane.ops[op.op] = mutant->ops[op.op];
    }
  }
  std::vector<as_op_id> wrong;
  for (const TableOp& op : kTableOps) {
    const std::vector<TableCase> cases = table_cases();
    const bool shown =
        std::ranges::any_of(cases, [&](const TableCase& c) { return !op.check(lane, c).ok(); });
    if (shown) wrong.push_back(op.op);
  }
  return wrong;
}

as_op_id op_of(const Lane& mutant) {
  for (const TableOp& op : kTableOps) {
    if (mutant.ops[op.op] != nullptr) return op.op;
  }
  return AS_OP_COUNT;
}

std::vector<Lane> table_bugs() {
  std::vector<Lane> bugs;
  for (const Lane& mutant : mutants::helpers()) {
    if (op_of(mutant) != AS_OP_COUNT) bugs.push_back(mutant);
  }
  return bugs;
}

TEST(BatchTableBugs, AreNamedAloneAndNobodyElse) {
  std::vector<as_op_id> spoiled;
  for (const Lane& mutant : table_bugs()) {
    EXPECT_EQ(accused({&mutant}), std::vector<as_op_id>{op_of(mutant)}) << mutant.name;
    EXPECT_EQ(mutant.ops.count(), 1) << mutant.name;
    spoiled.push_back(op_of(mutant));
  }
  for (const TableOp& op : kTableOps) {
    EXPECT_GE(std::ranges::count(spoiled, op.op), 3) << op.op;
  }
}

TEST(BatchTableBugs, AreNamedWithOthers) {
  const std::vector<Lane> all = table_bugs();
  for (std::size_t i = 0; i < all.size(); ++i) {
    const Lane& one = all[i];
    const Lane& other = all[(i + 5) % all.size()];
    std::vector<as_op_id> wanted{op_of(one)};
    if (op_of(other) != op_of(one)) wanted.push_back(op_of(other));
    std::ranges::sort(wanted);
    EXPECT_EQ(accused({&one, &other}), wanted) << one.name << " and " << other.name;
  }
}

std::string table_refusal(as_op_id op, const void* params) {
  as_error error{};
  return cpu::lane()->ops[op](params, nullptr, &error) == AS_OK ? "" : error.message;
}

// Two prompts and two decodes in blocks of 16, which do not follow one another in memory.
struct MixedBatch {
  Memory memory;
  as_sequence_table_params sequences = helper_params<as_sequence_table_params>();
  MixedBatch() {
    sequences.query_lens = memory.ints({10, 1, 8, 1}, {4});
    sequences.computed = memory.ints({0, 24, 0, 29}, {4});
    sequences.cu_seqlens = memory.make(AS_I32, {5});
    sequences.seq_lens = memory.make(AS_I32, {4});
    sequences.blocks = memory.make(AS_I32, {4, 3});
    sequences.token_to_seq = memory.make(AS_I32, {24});
    sequences.positions = memory.make(AS_I64, {24});
    sequences.block_size = 16;
  }
};

Ints ints_in(const as_tensor& t) {
  Ints values;
  for (std::int64_t i = 0; i < as_tensor_numel(&t); ++i) {
    values.push_back(static_cast<const std::int32_t*>(t.data)[i]);
  }
  return values;
}

TEST(MixedBatches, HaveTheListsOfTheKnownExample) {
  MixedBatch batch;
  const auto& s = batch.sequences;
  ASSERT_EQ(table_refusal(AS_OP_SEQUENCE_TABLE, &s), "");
  EXPECT_EQ(ints_in(s.cu_seqlens), (Ints{0, 10, 11, 19, 20}));
  EXPECT_EQ(ints_in(s.seq_lens), (Ints{10, 25, 8, 30}));
  EXPECT_EQ(ints_in(s.blocks), (Ints{0, -1, -1, 0, 1, -1, 0, -1, -1, 0, 1, -1}));
  EXPECT_EQ(ints_in(s.token_to_seq),
            (Ints{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 2, 2, 2, 2, 2, 2, 2, 2, 3, -1, -1, -1, -1}));

  // The slots of its tokens, by the op of every step.
  auto slots = helper_params<as_slot_mapping_params>();
  slots.groups = batch.memory.ints({16, 0}, {1, 2});
  slots.tables = batch.memory.ints({0, 1, -1, 2, 3, 5, 4, -1, -1, 6, 7, 8}, {1, 4, 3});
  slots.positions = s.positions;
  slots.token_to_req = s.token_to_seq;
  slots.slots = batch.memory.make(AS_I64, {1, 24});
  slots.mla_group = -1;
  ASSERT_EQ(table_refusal(AS_OP_SLOT_MAPPING, &slots), "");
  const std::int64_t* slot = at<std::int64_t>(slots.slots);
  EXPECT_EQ(std::vector<std::int64_t>(slot, slot + 24),
            (std::vector<std::int64_t>{0,  1,  2,  3,  4,  5,  6,  7,   8,  9,  56, 64,
                                       65, 66, 67, 68, 69, 70, 71, 125, -1, -1, -1, -1}));

  auto pages = helper_params<as_page_indices_params>();
  pages.table = batch.memory.ints({0, 1, -1, 2, 3, 5, 4, -1, -1, 6, 7, 8}, {4, 3});
  pages.seq_lens = s.seq_lens;
  pages.indptr = batch.memory.make(AS_I32, {5});
  pages.indices = batch.memory.make(AS_I32, {8});
  pages.last_page_len = batch.memory.make(AS_I32, {4});
  pages.block_size = 16;
  ASSERT_EQ(table_refusal(AS_OP_PAGE_INDICES, &pages), "");
  EXPECT_EQ(ints_in(pages.indptr), (Ints{0, 1, 3, 4, 6}));
  EXPECT_EQ(ints_in(pages.indices), (Ints{0, 2, 3, 4, 6, 7, -1, -1}));
  EXPECT_EQ(ints_in(pages.last_page_len), (Ints{10, 9, 8, 14}));

  // And the table of them again.
  auto table = helper_params<as_pad_rows_params>();
  table.values = pages.indices;
  table.starts = pages.indptr;
  table.rows = batch.memory.make(AS_I32, {4, 3});
  table.pad = -1;
  ASSERT_EQ(table_refusal(AS_OP_PAD_ROWS, &table), "");
  EXPECT_EQ(ints_in(table.rows), (Ints{0, -1, -1, 2, 3, -1, 4, -1, -1, 6, 7, -1}));
}

// A block id of 28 bits has slots of more than 32.
TEST(MixedBatches, HaveSlotsOf64Bits) {
  Memory memory;
  auto p = helper_params<as_slot_mapping_params>();
  p.groups = memory.ints({16, 0}, {1, 2});
  p.tables = memory.ints({200'000'000}, {1, 1, 1});
  p.positions = memory.ints64({3});
  p.token_to_req = memory.ints({0}, {1});
  p.slots = memory.make(AS_I64, {1, 1});
  p.mla_group = -1;
  ASSERT_EQ(table_refusal(AS_OP_SLOT_MAPPING, &p), "");
  EXPECT_EQ(*at<std::int64_t>(p.slots), 3'200'000'003);
}

// The ops give what the engine's metadata of a step says, in both of its forms.
TEST(BatchTables, AgreeWithTheMetadataOfAStep) {
  StepMetadata step;
  step.groups = {16, 0};
  step.columns = 4;
  step.num_computed = {0, 31, 5, 40, 0};
  step.num_scheduled_tokens = {20, 1, 1, 24, 0};
  step.query_start_loc = {0};
  for (std::size_t r = 0; r < step.num_computed.size(); ++r) {
    const std::int32_t from = step.num_computed[r], query = step.num_scheduled_tokens[r];
    step.live.push_back(as_int(static_cast<std::int64_t>(r)));
    step.seq_lens.push_back(from + query);
    step.query_start_loc.push_back(step.query_start_loc.back() + query);
    for (std::int32_t i = 0; i < query; ++i) step.positions.push_back(from + i);
    for (std::int32_t c = 0; c < 4; ++c) step.tables.push_back(as_int(10 * as_int(r) + c + 1));
  }
  step.slots.assign(step.positions.size(), 0);
  const MetadataLimits limits{.requests = 8, .tokens = 64, .columns = 4};
  auto tables = MetadataBuilder::make(MetadataForm::kBlockTables, limits);
  auto pages = MetadataBuilder::make(MetadataForm::kPagedIndices, limits);
  ASSERT_TRUE(tables && pages);
  const auto by_table = tables->build(step, 0, {}), by_page = pages->build(step, 0, {});
  ASSERT_TRUE(by_table && by_page);
  const CommonMetadata& common = by_table->common;
  const auto ints = [](std::span<const std::int32_t> values) {
    return Ints(values.begin(), values.end());
  };

  Memory memory;
  const auto sequences = common.padded_requests(), tokens = common.padded_tokens();
  Ints query, computed;
  for (std::size_t r = 0; r < common.rows.size(); ++r) {
    query.push_back(common.query_start_loc[r + 1] - common.query_start_loc[r]);
    computed.push_back(common.seq_lens[r] - query.back());
  }
  auto s = helper_params<as_sequence_table_params>();
  s.query_lens = memory.ints(query, {sequences});
  s.computed = memory.ints(computed, {sequences});
  s.cu_seqlens = memory.make(AS_I32, {sequences + 1});
  s.seq_lens = memory.make(AS_I32, {sequences});
  s.blocks = memory.make(AS_I32, {sequences, 4});
  s.token_to_seq = memory.make(AS_I32, {tokens});
  s.positions = memory.make(AS_I64, {tokens});
  s.block_size = 16;
  ASSERT_EQ(table_refusal(AS_OP_SEQUENCE_TABLE, &s), "");
  EXPECT_EQ(ints_in(s.cu_seqlens), ints(common.query_start_loc));
  EXPECT_EQ(ints_in(s.seq_lens), ints(common.seq_lens));
  EXPECT_EQ(ints_in(s.token_to_seq), ints(common.token_to_req));
  EXPECT_TRUE(std::ranges::equal(
      common.positions, std::span(at<std::int64_t>(s.positions), common.positions.size())));

  const auto& form = std::get<PagedIndices>(by_page->form);
  auto p = helper_params<as_page_indices_params>();
  p.table = memory.ints(ints(std::get<BlockTables>(by_table->form).tables), {sequences, 4});
  p.seq_lens = s.seq_lens;
  p.indptr = memory.make(AS_I32, {sequences + 1});
  p.indices = memory.make(AS_I32, {static_cast<std::int64_t>(form.indices.size())});
  p.last_page_len = memory.make(AS_I32, {sequences});
  p.block_size = 16;
  ASSERT_EQ(table_refusal(AS_OP_PAGE_INDICES, &p), "");
  EXPECT_EQ(ints_in(p.indptr), ints(form.indptr));
  EXPECT_EQ(ints_in(p.indices), ints(form.indices));
  EXPECT_EQ(ints_in(p.last_page_len), ints(form.last_page_len));
}

// What a window of the last blocks has left, whatever the places.
TEST(CompactTables, KeepWhereABlockStood) {
  Memory memory;
  auto p = helper_params<as_compact_tables_params>();
  p.table = memory.ints({0, 0, 41, 0, 57, 9, 3, 4, -1, 5, 6, 7}, {2, 6});
  p.lens = memory.ints({5, 6}, {2});
  p.compact = memory.make(AS_I32, {2, 6});
  p.columns = memory.make(AS_I32, {2, 6});
  p.kept = memory.make(AS_I32, {2});
  ASSERT_EQ(table_refusal(AS_OP_COMPACT_TABLES, &p), "");
  EXPECT_EQ(ints_in(p.compact), (Ints{41, 57, -1, -1, -1, -1, 3, 4, 5, 6, 7, -1}));
  EXPECT_EQ(ints_in(p.columns), (Ints{2, 4, -1, -1, -1, -1, 0, 1, 3, 4, 5, -1}));
  EXPECT_EQ(ints_in(p.kept), (Ints{2, 5}));
}

TEST(BatchTables, RefuseWhatDoesNotFit) {
  MixedBatch batch;
  as_sequence_table_params s = batch.sequences;
  s.token_to_seq = batch.memory.make(AS_I32, {19});
  s.positions = batch.memory.make(AS_I64, {19});
  EXPECT_EQ(table_refusal(AS_OP_SEQUENCE_TABLE, &s),
            "sequence_table: query_lens add up to 20 tokens; token_to_seq holds 19");
  s = batch.sequences;
  s.block_size = 8;
  EXPECT_EQ(table_refusal(AS_OP_SEQUENCE_TABLE, &s),
            "sequence_table: sequence 1 has 25 rows, which 3 columns of 8 rows do not hold");
  s.block_size = 0;
  EXPECT_NE(table_refusal(AS_OP_SEQUENCE_TABLE, &s), "");
  s = batch.sequences;
  s.computed = batch.memory.ints({0, -1, 0, 0}, {4});
  EXPECT_EQ(table_refusal(AS_OP_SEQUENCE_TABLE, &s),
            "sequence_table: computed[1] is -1; it counts and starts at 0");
  s.computed = batch.memory.ints({INT_MAX, 0, 0, 0}, {4});
  EXPECT_NE(table_refusal(AS_OP_SEQUENCE_TABLE, &s).find("seq_lens"), std::string::npos);

  Memory& memory = batch.memory;
  auto pages = helper_params<as_page_indices_params>();
  pages.table = memory.ints({1, 2}, {1, 2});
  pages.seq_lens = memory.ints({17}, {1});
  pages.indptr = memory.make(AS_I32, {2});
  pages.indices = memory.make(AS_I32, {1});
  pages.last_page_len = memory.make(AS_I32, {1});
  pages.block_size = 16;
  EXPECT_EQ(table_refusal(AS_OP_PAGE_INDICES, &pages),
            "page_indices: the sequences have 2 blocks; indices holds 1");

  auto compact = helper_params<as_compact_tables_params>();
  compact.table = memory.ints({1, 2}, {1, 2});
  compact.lens = memory.ints({3}, {1});
  compact.compact = memory.make(AS_I32, {1, 2});
  compact.columns = memory.make(AS_I32, {1, 2});
  compact.kept = memory.make(AS_I32, {1});
  EXPECT_EQ(table_refusal(AS_OP_COMPACT_TABLES, &compact),
            "compact_tables: lens[0] is 3; a row of table has 2 entries");

  auto rows = helper_params<as_pad_rows_params>();
  rows.values = memory.ints({1, 2, 3}, {3});
  rows.rows = memory.make(AS_I32, {2, 2});
  const auto starts = [&](const Ints& values) {
    rows.starts = memory.ints(values, {3});
    return table_refusal(AS_OP_PAD_ROWS, &rows);
  };
  EXPECT_EQ(starts({0, 2, 3}), "");
  EXPECT_EQ(starts({0, 3, 3}), "pad_rows: row 0 has 3 values; rows has 2 columns");
  EXPECT_EQ(starts({0, 2, 4}), "pad_rows: starts[2] is 4; they ascend from 0 to at most 3");
  EXPECT_EQ(starts({0, 2, 1}), "pad_rows: starts[2] is 1; they ascend from 0 to at most 3");
  EXPECT_EQ(starts({1, 2, 3}), "pad_rows: starts[0] is 1; they ascend from 0 to at most 3");
}

}  // namespace
}  // namespace attnscope::properties
