// Whose fault it is where two captures differ: a lane that rounds otherwise is nobody's fault, be
// the difference ever so amplified; a planted bug beside it is named, and only that.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <map>
#include <set>
#include <tuple>

#include "app/reports/capture_record.h"
#include "app/reports/own_judge.h"
#include "app/workbench/capture_compare.h"
#include "engine/capture/capture_diff.h"
#include "engine/capture/op_blame.h"
#include "kernels/cpu/codec.h"
#include "kernels/cpu/cpu_lane.h"
#include "kernels/params/attention_params.h"
#include "kernels/params/dense_params.h"
#include "kernels/params/tensor_view.h"
#include "tests/unit/app/trace_session.h"

namespace attnscope {
namespace capture_blame_test {

namespace fs = std::filesystem;

double value(const as_tensor& t, std::int64_t row, std::int64_t column) {
  const auto bits = *at<std::uint16_t>(t, row, column);
  return static_cast<double>(cpu::bf16_to_float(bits));
}

std::vector<double> values(const as_tensor& t) {
  std::vector<double> all;
  all.reserve(static_cast<std::size_t>(as_tensor_numel(&t)));
  for (std::int64_t row = 0; row < t.shape[0]; ++row) {
    for (std::int64_t column = 0; column < t.shape[1]; ++column) {
      all.push_back(value(t, row, column));
    }
  }
  return all;
}

// In four sums, as one waits for itself.
double dot(const double* a, const double* b, std::int64_t count) {
  double sums[4] = {};
  for (std::int64_t i = 0; i < count; ++i) sums[i % 4] += a[i] * b[i];
  return sums[0] + sums[1] + sums[2] + sums[3];
}

// The other bf16 number beside the exact result: what another order of sums may give at worst.
void round_otherwise(std::uint16_t& bits, double exact) {
  const double now = static_cast<double>(cpu::bf16_to_float(bits));
  if (now == 0 || !std::isfinite(now)) return;
  const bool away = std::fabs(now) < std::fabs(exact);
  bits = static_cast<std::uint16_t>(away ? bits + 1 : bits - 1);
}

// Every third element of a projection is rounded to the other side.
template <as_op_id kOp>
std::int32_t linear(const void* params, const as_call* call, as_error* error) {
  const std::int32_t status = cpu::lane()->ops[kOp](params, call, error);
  const auto& p = *static_cast<const as_linear_params*>(params);
  if (status != AS_OK || p.y.dtype != AS_BF16) return status;
  const std::vector<double> inputs = values(p.x), weights = values(p.weight);
  const std::int64_t columns = p.x.shape[1];
  for (std::int64_t t = 0; t < p.y.shape[0]; ++t) {
    for (std::int64_t o = t % 3; o < p.y.shape[1]; o += 3) {
      const double exact = dot(inputs.data() + t * columns, weights.data() + o * columns, columns);
      round_otherwise(*at<std::uint16_t>(p.y, t, o), exact);
    }
  }
  return status;
}

std::int32_t residual(const void* params, const as_call* call, as_error* error) {
  const std::int32_t status = cpu::lane()->ops[AS_OP_RESIDUAL](params, call, error);
  const auto& p = *static_cast<const as_residual_params*>(params);
  if (status != AS_OK || p.out.data == p.h.data) return status;
  for (std::int64_t t = 0; t < p.out.shape[0]; ++t) {
    for (std::int64_t i = t % 5; i < p.out.shape[1]; i += 5) {
      const double exact = value(p.h, t, i) + value(p.y, t, i);
      if (exact == value(p.out, t, i)) continue;  // nothing was rounded
      round_otherwise(*at<std::uint16_t>(p.out, t, i), exact);
    }
  }
  return status;
}

// One step of bf16 here and there: a quarter of what attention may be off.
std::int32_t attention(const void* params, const as_call* call, as_error* error) {
  const std::int32_t status = cpu::lane()->ops[AS_OP_SPARSE_ATTENTION](params, call, error);
  const auto& p = *static_cast<const as_sparse_attention_params*>(params);
  if (status != AS_OK) return status;
  auto* o = static_cast<std::uint16_t*>(p.o.data);
  for (std::int64_t i = 0; i < as_tensor_numel(&p.o); ++i) {
    if (i % 8 == 0 && std::isfinite(cpu::bf16_to_float(o[i]))) o[i] ^= 1;
  }
  return status;
}

// Tokens at the end see more entries than are selected.
Scenario selective_scenario() {
  Scenario s = small_scenario(300);
  s.model = narrow_model({0, 1, 2});
  s.model.index_topk = 64;
  s.limits.token_budget = 128;
  return s;
}

LaneRegistry lanes_with_another() {
  LaneRegistry registry = all_lanes();
  Lane lane = *registry.find("cpu");
  lane.name = "rounds_otherwise";
  lane.description = "The CPU lane with other roundings, as another device has.";
  lane.ops[AS_OP_Q_KV_A_PROJ] = linear<AS_OP_Q_KV_A_PROJ>;
  lane.ops[AS_OP_Q_B_PROJ] = linear<AS_OP_Q_B_PROJ>;
  lane.ops[AS_OP_INDEXER_Q_PROJ] = linear<AS_OP_INDEXER_Q_PROJ>;
  lane.ops[AS_OP_INDEXER_WEIGHTS_PROJ] = linear<AS_OP_INDEXER_WEIGHTS_PROJ>;
  lane.ops[AS_OP_WO_B] = linear<AS_OP_WO_B>;
  lane.ops[AS_OP_RESIDUAL] = residual;
  lane.ops[AS_OP_SPARSE_ATTENTION] = attention;
  registry.add(lane);
  return registry;
}

class CaptureBlameTest : public testing::Test {
 protected:
  void SetUp() override {
    setenv("ATTNSCOPE_ASSETS", ATTNSCOPE_SOURCE_DIR "/assets", 1);
    auto tolerances = Tolerances::load();
    ASSERT_TRUE(tolerances);
    tolerances_ = *tolerances;
  }
  static void TearDownTestSuite() {
    kept().clear();
    fs::remove_all(folder());
  }

  // What is recorded of the selective scenario is shared by all tests.
  std::shared_ptr<const Capture> record(const std::vector<std::string>& lanes,
                                        References references = References::kSim,
                                        CaptureLevel level = CaptureLevel::kFull) {
    std::shared_ptr<const Capture>& capture = kept()[{lanes, references, level}];
    if (capture == nullptr) capture = record(lanes, references, level, selective_scenario());
    return capture;
  }
  std::shared_ptr<const Capture> record(const std::vector<std::string>& lanes,
                                        References references, CaptureLevel level,
                                        const Scenario& scenario, std::int64_t steps = 4,
                                        std::int64_t rows = 0) {
    RecordOptions options;
    options.run.session.references = references;
    options.run.session.threads = 2;
    options.run.session.lanes = lanes;
    options.run.steps = steps;
    options.rows = rows;
    options.capture.level = level;
    options.capture.weights = level == CaptureLevel::kFull;
    static int recorded = 0;
    fs::create_directories(folder());
    const std::string path = (folder() / fmt::format("{}.acap", ++recorded)).string();
    auto result = record_scenario(scenario, lanes_with_another(), options, path, nullptr);
    EXPECT_TRUE(result) << result.error().text();
    auto capture = Capture::open(path);
    EXPECT_TRUE(capture) << capture.error().text();
    return *capture;
  }
  CaptureDiff diff(const Capture& a, const Capture& b) {
    auto out = diff_captures(a, b, tolerances_, {}, reference_judge(tolerances_));
    EXPECT_TRUE(out) << out.error().text();
    return *out;
  }
  // Ops that are origins, by name.
  static std::set<std::string> origins(const CaptureDiff& d) {
    std::set<std::string> out;
    for (const OpDiff& op : d.ops) {
      if (op.verdict == DiffVerdict::kOrigin) out.insert(as_op_find(op.a.op)->name);
    }
    return out;
  }

  Tolerances tolerances_;

 private:
  using Kept = std::map<std::tuple<std::vector<std::string>, References, CaptureLevel>,
                        std::shared_ptr<const Capture>>;
  static Kept& kept() {
    static Kept captures;
    return captures;
  }
  static fs::path folder() {
    return fs::temp_directory_path() / ("attnscope-blame-" + std::to_string(getpid()));
  }
};

std::int64_t counted(const CaptureDiff& d, DiffVerdict v) {
  return d.counts[static_cast<std::size_t>(v)];
}

TEST_F(CaptureBlameTest, OtherRoundingsAreNobodysFault) {
  const auto a = record({"cpu"}), b = record({"rounds_otherwise"});
  const CaptureDiff d = diff(*a, *b);
  EXPECT_GT(counted(d, DiffVerdict::kWithin), 0);
  ASSERT_GT(counted(d, DiffVerdict::kInherited), 0) << "roundings grow on their way";
  EXPECT_EQ(origins(d), std::set<std::string>()) << d.first->text;
  EXPECT_TRUE(d.blameless());
  EXPECT_NE(d.first->text.find("each output is what its own inputs give"), std::string::npos)
      << d.first->text;
  for (const OpDiff& op : d.ops) {
    if (op.verdict != DiffVerdict::kInherited) continue;
    EXPECT_NE(op.inputs, DiffInputs::kEqual);
    EXPECT_TRUE(op.judged);
  }
}

TEST_F(CaptureBlameTest, APlantedBugBesideOtherRoundingsIsNamed) {
  const auto a = record({"cpu"});
  for (const auto& [op, mutant] :
       std::vector<std::pair<std::string, std::string>>{{"sparse_attention", "own_row_missed"},
                                                        {"wo_b", "activations_in_fp8"},
                                                        {"indexer_topk", "topk_takes_first"}}) {
    const auto b = record({"rounds_otherwise", fmt::format("{}=mutant:{}", op, mutant)});
    const CaptureDiff d = diff(*a, *b);
    EXPECT_EQ(origins(d), std::set<std::string>{op}) << mutant;
    ASSERT_TRUE(d.first);
    EXPECT_EQ(as_op_find(d.first->op.a.op)->name, op) << d.first->text;
    EXPECT_NE(d.first->text.find("the second's output is not what its own inputs give"),
              std::string::npos)
        << d.first->text;
    EXPECT_FALSE(d.blameless());
  }
}

// Without references the op runs again, where the capture holds all that it read.
TEST_F(CaptureBlameTest, WithoutReferencesOpsRunAgain) {
  const auto none = References::kNone;
  const auto a = record({"cpu"}, none), b = record({"rounds_otherwise"}, none);
  const CaptureDiff clean = diff(*a, *b);
  EXPECT_EQ(origins(clean), std::set<std::string>()) << clean.first->text;
  const auto c = record({"rounds_otherwise", "wo_b=mutant:activations_in_fp8"}, none);
  const CaptureDiff d = diff(*a, *c);
  EXPECT_EQ(origins(d), std::set<std::string>{"wo_b"});
  EXPECT_NE(d.first->text.find("the second's output is not what its own inputs give: y, "),
            std::string::npos)
      << d.first->text;
  // Nobody is asked: inputs that differ by rounding are said to.
  auto unasked = diff_captures(*a, *b, tolerances_);
  ASSERT_TRUE(unasked);
  for (const OpDiff& op : unasked->ops) {
    if (op.verdict == DiffVerdict::kOrigin) {
      EXPECT_EQ(op.inputs, DiffInputs::kEqual);
    }
    if (op.verdict != DiffVerdict::kInherited) continue;
    EXPECT_NE(op.why.find("could not be judged by itself: recorded without a reference"),
              std::string::npos)
        << op.why;
  }
}

// At level tables floats are known by their checksums alone.
TEST_F(CaptureBlameTest, TablesAloneNameTheOpByChecksums) {
  const auto none = References::kNone;
  const auto tables = CaptureLevel::kTables;
  const auto a = record({"cpu"}, none, tables);
  const auto b = record({"cpu", "indexer_topk=mutant:topk_takes_first"}, none, tables);
  const CaptureDiff d = diff(*a, *b);
  ASSERT_TRUE(d.first);
  EXPECT_EQ(as_op_find(d.first->op.a.op)->name, std::string("indexer_topk")) << d.first->text;
}

TEST_F(CaptureBlameTest, EqualTablesAreEqualByChecksums) {
  const auto a = record({"cpu"}, References::kNone, CaptureLevel::kTables);
  const CaptureDiff d = diff(*a, *a);
  EXPECT_TRUE(d.same());
  EXPECT_TRUE(d.whole()) << open_text(d);
  EXPECT_EQ(open_text(d), "");
  EXPECT_GT(counted(d, DiffVerdict::kEqual), 150);
  EXPECT_EQ(counted(d, DiffVerdict::kUnknown), d.placements);
  EXPECT_EQ(counted(d, DiffVerdict::kWithin), 0);
}

// The step is the same in both: of one more rows were kept.
TEST_F(CaptureBlameTest, ChecksumsOfOtherRowsAreNotTakenForOtherTokens) {
  const Scenario scenario = selective_scenario();
  const auto none = References::kNone;
  const auto a = record({"cpu"}, none, CaptureLevel::kTables, scenario, 2, 16);
  const auto b = record({"cpu"}, none, CaptureLevel::kFull, scenario, 2);
  const std::string open = open_text(diff(*a, *b));
  EXPECT_NE(open.find("were not kept, and its checksums are of other rows of the step"),
            std::string::npos)
      << open;
  EXPECT_EQ(open.find("other tokens"), std::string::npos) << open;
}

TEST_F(CaptureBlameTest, TablesNameAWrongFloatByTheVerdictOfItsRecording) {
  const auto sim = References::kSim;
  const auto tables = CaptureLevel::kTables;
  const std::string bug = "sparse_attention=mutant:sink_scaled";
  const auto a = record({"cpu"}, sim, tables);
  const auto b = record({"cpu", bug}, sim, tables);
  const CaptureDiff d = diff(*a, *b);
  EXPECT_FALSE(d.same());
  EXPECT_FALSE(d.blameless());
  EXPECT_EQ(origins(d), std::set<std::string>{"sparse_attention"});
  ASSERT_TRUE(d.first);
  EXPECT_EQ(d.first->op.verdict, DiffVerdict::kOrigin);
  EXPECT_EQ(d.first->op.inputs, DiffInputs::kEqual);
  for (const char* part : {"its inputs agree", "other checksums, ",
                           "the second's output is not what its own inputs give: "}) {
    EXPECT_NE(d.first->text.find(part), std::string::npos) << d.first->text;
  }
  EXPECT_GT(counted(d, DiffVerdict::kInherited), 0);
  EXPECT_EQ(counted(d, DiffVerdict::kUnknown), d.placements);
  EXPECT_EQ(open_text(d), "");
  // Lanes that round otherwise are nobody's fault here either.
  const auto c = record({"rounds_otherwise"}, sim, tables);
  const CaptureDiff rounded = diff(*a, *c);
  EXPECT_EQ(origins(rounded), std::set<std::string>());
  EXPECT_TRUE(rounded.blameless()) << open_text(rounded);
  EXPECT_GT(counted(rounded, DiffVerdict::kWithin), 0);
}

// Nobody judged, and by how much they differ is not known: it is named and left open.
TEST_F(CaptureBlameTest, TablesWithoutVerdictsLeaveItOpen) {
  const auto none = References::kNone;
  const auto tables = CaptureLevel::kTables;
  const std::string bug = "sparse_attention=mutant:sink_scaled";
  const auto a = record({"cpu"}, none, tables);
  const auto b = record({"cpu", bug}, none, tables);
  const CaptureDiff d = diff(*a, *b);
  EXPECT_FALSE(d.same());
  EXPECT_FALSE(d.blameless());
  ASSERT_TRUE(d.first);
  EXPECT_EQ(as_op_find(d.first->op.a.op)->name, std::string("sparse_attention")) << d.first->text;
  EXPECT_EQ(d.first->op.verdict, DiffVerdict::kDiffers);
  EXPECT_NE(d.first->text.find("by how much its output differs was not recorded"),
            std::string::npos)
      << d.first->text;
  EXPECT_NE(open_text(d).find("could not be judged by themselves: record both with --references"),
            std::string::npos)
      << open_text(d);
}

// Where blocks came is in no capture, however it is recorded.
TEST_F(CaptureBlameTest, MovesOfBlocksAreNamedWithoutAskingForMore) {
  const auto swap = load_scenario("swap");
  ASSERT_TRUE(swap) << swap.error().text();
  const auto none = References::kNone;
  const auto a = record({"cpu"}, none, CaptureLevel::kFull, *swap, 20);
  const std::string bug = "swap_out=mutant:half_block_sent";
  const auto b = record({"cpu", bug}, none, CaptureLevel::kFull, *swap, 20);
  const CaptureDiff d = diff(*a, *b);
  ASSERT_TRUE(d.first);
  EXPECT_TRUE(d.first->text.starts_with("swap_out in step 17 ")) << d.first->text;
  EXPECT_EQ(origins(d), std::set<std::string>{"swap_out"}) << "nor those who read what came back";
  const std::string open = open_text(d);
  EXPECT_NE(open.find("swap_in of step 19: captures keep blocks that left, not those that came."),
            std::string::npos)
      << open;
  EXPECT_EQ(open.find("Record both with --level"), std::string::npos) << open;
}

// Neither is what another lane made of the same blocks: the first that finds other rows there
// tells.
TEST_F(CaptureBlameTest, AMoveThatNobodyKeptIsNamedByItsFirstReader) {
  const auto swap = load_scenario("swap");
  ASSERT_TRUE(swap) << swap.error().text();
  const auto none = References::kNone, sim = References::kSim;
  const auto full = CaptureLevel::kFull;
  const std::string bug = "swap_in=mutant:blocks_come_reversed";
  const auto a = record({"cpu"}, none, full, *swap, 20);
  const auto b = record({"cpu", bug}, none, full, *swap, 20);
  const CaptureDiff d = diff(*a, *b);
  EXPECT_FALSE(d.same());
  EXPECT_FALSE(d.blameless());
  ASSERT_TRUE(d.first);
  EXPECT_EQ(origins(d), std::set<std::string>{"swap_in"}) << d.first->text;
  EXPECT_TRUE(d.first->text.starts_with(
      "swap_in in step 19 is where they part: its inputs agree, its output blocks does not: "
      "sparse_attention of layer 0 in step 19, on lane cpu in both and given the same besides, "
      "found other rows: o differs: request "))
      << d.first->text;
  EXPECT_EQ(open_text(d).find("could not be compared"), std::string::npos) << open_text(d);
  std::int64_t all = 0;
  for (const std::int64_t n : d.counts) all += n;
  EXPECT_EQ(all - d.count(DiffVerdict::kEqual), std::ssize(d.ops));
  // A reader on two lanes may have made the difference itself: nobody is named then.
  const auto both =
      record({"cpu", bug, "sparse_attention=rounds_otherwise"}, none, full, *swap, 20);
  const auto two = diff_captures(*a, *both, tolerances_);
  ASSERT_TRUE(two) << two.error().text();
  EXPECT_FALSE(two->same());
  EXPECT_EQ(origins(*two), std::set<std::string>()) << two->first->text;
  // One lane makes the same of the same.
  const auto again = record({"cpu"}, none, full, *swap, 20);
  const CaptureDiff same = diff(*a, *again);
  EXPECT_TRUE(same.same());
  EXPECT_TRUE(same.whole()) << open_text(same);
  // Who was compared while it was recorded is named, and nobody else.
  const auto judged = record({"cpu", bug}, sim, full, *swap, 20);
  const CaptureDiff named = diff(*a, *judged);
  EXPECT_EQ(origins(named), std::set<std::string>{"swap_in"}) << named.first->text;
  EXPECT_TRUE(named.first->text.starts_with("swap_in in step 19 is where they part"))
      << named.first->text;
  EXPECT_NE(named.first->text.find("the second's output is not what its own inputs give: blocks"),
            std::string::npos)
      << named.first->text;
  // A bug of a reader behind moves that are the same is its own.
  const auto reader = record({"cpu", "sparse_attention=mutant:sink_scaled"}, none, full, *swap, 20);
  EXPECT_EQ(origins(diff(*again, *reader)), std::set<std::string>{"sparse_attention"});
}

// Checksums are of all tokens of a step: other batches have others.
TEST_F(CaptureBlameTest, TablesOfOtherBatchesAreNotComparedAndThatIsSaid) {
  const auto none = References::kNone;
  const auto tables = CaptureLevel::kTables;
  const auto a = record({"cpu"}, none, tables);
  Scenario other = selective_scenario();
  other.limits.token_budget = 100;
  const auto b = record({"cpu"}, none, tables, other);
  const CaptureDiff d = diff(*a, *b);
  EXPECT_FALSE(d.whole());
  EXPECT_FALSE(d.blameless());
  EXPECT_GT(counted(d, DiffVerdict::kUnknown), d.placements);
  EXPECT_NE(open_text(d).find("ops could not be compared: "), std::string::npos) << open_text(d);
  RunPair pair;
  pair.diff = d;
  EXPECT_TRUE(pair.sentence().ends_with("Record both with --level full --rows all."))
      << pair.sentence();
}

// Both are right by themselves: what differs is how they were set up.
TEST_F(CaptureBlameTest, AnotherTopKIsNamed) {
  Scenario other = selective_scenario();
  other.model.index_topk = 128;
  const auto a = record({"cpu"});
  const auto b = record({"cpu"}, References::kSim, CaptureLevel::kFull, other);
  const CaptureDiff d = diff(*a, *b);
  ASSERT_FALSE(d.states.empty());
  EXPECT_EQ(d.states.front().what, "setup");
  EXPECT_EQ(d.states.front().text, "index_topk is 64 in the first capture and 128 in the second");
  ASSERT_TRUE(d.first);
  EXPECT_EQ(as_op_find(d.first->op.a.op)->name, std::string("indexer_topk")) << d.first->text;
  EXPECT_EQ(d.first->op.verdict, DiffVerdict::kOrigin);
  EXPECT_TRUE(d.first->op.setup);
  EXPECT_NE(d.first->text.find(" 64 entries in the first, "), std::string::npos) << d.first->text;
  EXPECT_EQ(origins(d), std::set<std::string>{"indexer_topk"});
  EXPECT_TRUE(d.blameless()) << open_text(d);
  EXPECT_NE(blameless_text(d).find("set up otherwise"), std::string::npos) << blameless_text(d);
  EXPECT_NE(blameless_text(d).find("index_topk is 64"), std::string::npos) << blameless_text(d);
}

TEST_F(CaptureBlameTest, AnotherSetupIsNamed) {
  const auto sim = References::kSim;
  const auto full = CaptureLevel::kFull;
  const auto one = [&](std::int64_t seed) {
    Scenario s = small_scenario(80);
    s.seed = static_cast<std::uint64_t>(seed);
    s.text = R"({"model": {"seed": )" + std::to_string(seed) + "}}";
    return s;
  };
  const auto first_setup = [](const CaptureDiff& d) {
    return d.states.empty() ? StateDiff{} : d.states.front();
  };
  const auto a = record({"cpu"}, sim, full, one(3));
  Scenario hadamard = one(3);
  hadamard.model.switches = *profile_switches("vllm,hadamard=on");
  Scenario eps = one(3);
  eps.model.rms_eps = 1e-3;
  const std::vector<std::pair<Scenario, std::string>> others = {
      {hadamard, "switch hadamard is off in the first capture and on in the second"},
      {eps, "rms_eps is 1e-06 in the first capture and 0.001 in the second"},
      {one(4), "the seed of the weights is 3 in the first capture and 4 in the second"}};
  for (const auto& [scenario, text] : others) {
    const auto b = record({"cpu"}, sim, full, scenario);
    const CaptureDiff d = diff(*a, *b);
    EXPECT_EQ(first_setup(d).what, "setup");
    EXPECT_EQ(first_setup(d).text, text);
    EXPECT_EQ(d.setup, text);
    ASSERT_TRUE(d.first) << text;
    EXPECT_TRUE(d.blameless()) << text << open_text(d);
    EXPECT_NE(blameless_text(d).find(text), std::string::npos) << blameless_text(d);
    // With other weights the layers are given another embedding already.
    if (scenario.seed != 3) continue;
    EXPECT_TRUE(d.first->op.setup) << d.first->text;
    EXPECT_NE(d.first->text.find(text), std::string::npos) << d.first->text;
  }
}

TEST_F(CaptureBlameTest, RanksAreNotComparedWithEachOther) {
  Scenario first = small_scenario(), second = small_scenario();
  first.parallel = {2, 0};
  second.parallel = {2, 1};
  const auto a = record({"cpu"}, References::kNone, CaptureLevel::kFull, first);
  const auto b = record({"cpu"}, References::kNone, CaptureLevel::kFull, second);
  const auto refused = diff_captures(*a, *b, tolerances_);
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().text().find("rank 0 of 2"), std::string::npos)
      << refused.error().text();
  EXPECT_NE(refused.error().text().find("other heads"), std::string::npos);
}

}  // namespace capture_blame_test
}  // namespace attnscope
