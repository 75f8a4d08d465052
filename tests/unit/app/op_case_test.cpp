// Cases of every op: kept from a session, written, read, run again in other lanes; what damage in
// their files says.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <filesystem>
#include <random>
#include <set>
#include <span>

#include "app/reports/case_check.h"
#include "app/reports/case_of_capture.h"
#include "app/text/format.h"
#include "app/wiring/case_lane.h"
#include "app/wiring/wiring.h"
#include "engine/capture/capture_writer.h"
#include "engine/opcase/case_file.h"
#include "engine/session/session.h"
#include "engine/session/snapshot.h"
#include "engine/session/tap_copies.h"
#include "engine/session/trace_recorder.h"
#include "kernels/params/step_params.h"
#include "kernels/params/tensor_view.h"
#include "tests/unit/app/cli_fixture.h"
#include "tests/unit/app/small_merge.h"
#include "tests/unit/app/small_scenario.h"
#include "tests/unit/family_ops.h"

namespace attnscope {
namespace op_case_test {

// Keeps a case of every op of every layer in one step.
class Keeper : public SessionObserver {
 public:
  explicit Keeper(std::int64_t step) : step_(step) {}
  void op_done(const Session& session) override {
    if (session.cursor().step != step_) return;
    const OpParams& params = session.last_params();
    auto kept = keep_case(*find_case_op(params.op()), params.data(),
                          {"small", "cpu", step_, session.current().timings.back().layer});
    ASSERT_TRUE(kept) << kept.error().text();
    cases.push_back(std::move(*kept));
  }
  void step_done(const Session&) override {}
  void went_back(const Session&) override {}

  std::vector<OpCase> cases;

 private:
  std::int64_t step_;
};

const std::vector<OpCase>& cases_of_step_two() {
  static const std::vector<OpCase> cases = [] {
    Keeper keeper(2);
    SessionOptions options;
    options.references = References::kSim;
    options.rewind_every = 0;
    auto session = Session::create(small_scenario(), all_lanes(), options);
    EXPECT_TRUE(session);
    (*session)->set_observer(&keeper);
    while ((*session)->history().size() < 3) EXPECT_TRUE((*session)->step());
    return keeper.cases;
  }();
  return cases;
}

// Two observers of one session.
struct Both : SessionObserver {
  SessionObserver &a, &b;
  Both(SessionObserver& first, SessionObserver& second) : a(first), b(second) {}
  void op_done(const Session& s) override { a.op_done(s), b.op_done(s); }
  void step_done(const Session& s) override { a.step_done(s), b.step_done(s); }
  void went_back(const Session& s) override { a.went_back(s), b.went_back(s); }
};

std::vector<Verdict> verdicts(const CaseRun& run) {
  std::vector<Verdict> out;
  for (const CaseTap& tap : run.taps) out.push_back(tap.verdict);
  return out;
}

class OpCaseTest : public CliTest {
 protected:
  static const LaneRegistry& registry() {
    static const LaneRegistry lanes = all_lanes();
    return lanes;
  }
  static Result<CaseRun> run_in(const OpCase& kept, const std::string& name,
                                bool judge_kept_lists = false) {
    static const Tolerances tolerances = *Tolerances::load();
    auto lane = find_case_lane(registry(), name, kept.op);
    if (!lane) return lane.error();
    CaseRunOptions options = case_options(registry(), kept.op, tolerances, nullptr);
    options.judge_kept_lists = judge_kept_lists;
    return run_case(kept, *lane, options);
  }
  static const OpCase& case_of(as_op_id op) {
    for (const OpCase& kept : cases_of_step_two()) {
      if (kept.op.id == op) return kept;
    }
    ADD_FAILURE() << "no case of " << as_op_find(op)->name;
    return cases_of_step_two().front();
  }
  // The message of a case whose text was changed.
  std::string error_of(const std::string& from, const std::string& to) const {
    const std::string file = path("changed.json");
    std::filesystem::remove(file);
    EXPECT_TRUE(write_case(case_of(AS_OP_SPARSE_ATTENTION), file));
    std::string text = read(file);
    const auto at = text.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    text.replace(at, from.size(), to);
    write("changed.json", text);
    auto kept = read_case(file);
    return kept ? "read" : kept.error().text();
  }
};

bool is_host_op(const CaseOp& op) { return op.id == AS_OP_SCHEDULE || op.id == AS_OP_BLOCK_TABLES; }

TEST_F(OpCaseTest, TapsAndFieldsCoverEveryParamsStruct) {
  for (int place = 0; const as_op_info* info = as_op_at(place); ++place) {
    const CaseOp op = *find_case_op(info->id);
    std::vector<int> covered(op.params_size, 0);
    const auto cover = [&](std::size_t offset, std::size_t size) {
      for (std::size_t i = offset; i < offset + size; ++i) ++covered[i];
    };
    cover(0, sizeof(as_params_head));
    for (const as_tap_info& tap : op.taps) {
      cover(tap.offset, tap.kind == AS_TAP_CACHE ? sizeof(as_cache) : sizeof(as_tensor));
    }
    for (const as_param_info& field : op.fields) {
      // A number that a struct had no room for lies in a tensor's `reserved`.
      const bool inside = std::ranges::any_of(op.taps, [&](const as_tap_info& tap) {
        return tap.kind != AS_TAP_CACHE && field.kind == AS_PARAM_INTEGER &&
               field.offset == tap.offset + offsetof(as_tensor, reserved);
      });
      if (inside) continue;
      cover(field.offset, field.kind == AS_PARAM_ROPE   ? sizeof(as_rope)
                          : field.kind == AS_PARAM_REAL ? sizeof(double)
                                                        : sizeof(std::int32_t));
    }
    int open = 0;
    for (const int n : covered) {
      EXPECT_LE(n, 1) << op.name;
      if (n == 0) ++open;
    }
    // An int32 `reserved` at most, and another where the struct has grown behind it.
    const int most = info->params_size > info->first_size ? 8 : 4;
    EXPECT_TRUE(open % 4 == 0 && open <= most)
        << op.name << ": " << open << " bytes are not told of";
  }
}

TEST_F(OpCaseTest, EveryOpComesBackFromItsFilesWithTheSameBits) {
  std::set<std::int32_t> seen;
  for (const OpCase& kept : cases_of_step_two()) {
    SCOPED_TRACE(kept.op.name + std::string(" of layer ") + std::to_string(kept.origin.layer));
    seen.insert(kept.op.id);
    ASSERT_TRUE(write_case(kept, path("x.json")));
    auto again = read_case(path("x.json"));
    ASSERT_TRUE(again) << again.error().text();
    EXPECT_EQ(again->origin.step, 2);
    EXPECT_EQ(again->tensors.size(), kept.tensors.size());
    EXPECT_EQ(again->caches.size(), kept.caches.size());
    if (!is_host_op(kept.op)) {
      auto run = run_in(*again, "cpu");
      ASSERT_TRUE(run) << run.error().text();
      EXPECT_TRUE(run->trespasses.empty()) << run->trespasses.front();
      EXPECT_FALSE(run->taps.empty());
      for (const CaseTap& tap : run->taps) EXPECT_EQ(tap.verdict, Verdict::kEqual) << tap.tap;
    }
    auto judged = run_in(*again, "ref.sim");
    ASSERT_TRUE(judged) << judged.error().text();
    for (const CaseTap& tap : judged->taps) {
      EXPECT_NE(tap.verdict, Verdict::kWrong) << tap.tap << ": " << tap.note;
    }
  }
  EXPECT_EQ(seen.size(), count_of_deepseek_v4());
}

TEST_F(OpCaseTest, PlantedBugsAreWrongInACase) {
  for (const auto& [op, mutant] : std::vector<std::pair<as_op_id, std::string>>{
           {AS_OP_SPARSE_ATTENTION, "mutant:sink_scaled"},
           {AS_OP_Q_ROPE_KV_INSERT, "mutant:key_not_rotated"},
           {AS_OP_INDEXER_TOPK, "mutant:topk_one_short"},
           {AS_OP_SWA_INDEX, "mutant:window_off_by_one"},
           {AS_OP_COMPRESS_INSERT, "mutant:pooled_by_mean"},
           {AS_OP_INDEXER_COMPRESSOR_STATE, "mutant:ape_missing"}}) {
    auto run = run_in(case_of(op), mutant);
    ASSERT_TRUE(run) << run.error().text();
    EXPECT_FALSE(run->right()) << mutant;
  }
}

// The entries of a token that sees fewer than a list has room for, one of them behind the -1s.
TEST_F(OpCaseTest, AKeptSelectionThatIsNoListIsWrong) {
  OpCase kept = case_of(AS_OP_INDEXER_TOPK);
  auto before = run_in(kept, "cpu", true);
  ASSERT_TRUE(before) << before.error().text();
  ASSERT_TRUE(before->right());
  StoredTensor& indices = kept.tensors.at("indices");
  const auto width = static_cast<std::size_t>(indices.shape.at(1));
  auto* entries = reinterpret_cast<std::int32_t*>(indices.bytes.data());
  const std::size_t tokens = indices.bytes.size() / sizeof(std::int32_t) / width;
  std::span<std::int32_t> list;
  std::int64_t token = 0;
  for (std::size_t t = 0; t < tokens; ++t) {
    const std::span<std::int32_t> its(entries + t * width, width);
    if (its[1] == -1 || its.back() != -1) continue;
    list = its;
    token = static_cast<std::int64_t>(t);
  }
  ASSERT_FALSE(list.empty());
  const std::int32_t moved = list[1];
  std::swap(list[1], list.back());
  auto run = run_in(kept, "cpu", true);
  ASSERT_TRUE(run) << run.error().text();
  EXPECT_FALSE(run->right());
  const CaseTap& tap = run->taps.front();
  EXPECT_EQ(tap.verdict, Verdict::kWrong);
  EXPECT_NE(tap.note.find("in the case, token"), std::string::npos) << tap.note;
  EXPECT_NE(tap.note.find("comes after a -1"), std::string::npos) << tap.note;
  EXPECT_EQ(tap.comparison.worst.index, (std::vector<std::int64_t>{token, 1}));
  EXPECT_EQ(tap.comparison.worst.value, moved);
  EXPECT_EQ(tap.comparison.worst.reference, -1);
}

// Codes of another engine that has no -0.
TEST_F(OpCaseTest, ZeroInThePlaceOfMinusZeroIsSaidToBeTheSame) {
  std::int64_t changed = 0;
  for (OpCase kept : cases_of_step_two()) {
    if (kept.op.id != AS_OP_Q_ROPE_KV_INSERT) continue;
    StoredCache& cache = kept.caches.at("cache");
    const auto row = static_cast<std::size_t>(cache.row_bytes());
    std::int64_t here = 0;
    for (std::size_t i = 0; i < cache.rows.size(); ++i) {
      if (i % row >= AS_NOPE_DIM || cache.rows[i] != 0x80) continue;
      cache.rows[i] = 0;
      ++here;
    }
    if (here == 0) continue;
    changed += here;
    auto run = run_in(kept, "ref.sim", true);
    ASSERT_TRUE(run) << run.error().text();
    EXPECT_TRUE(run->right());
    const auto tap = std::ranges::find(run->taps, "cache", &CaseTap::tap);
    ASSERT_NE(tap, run->taps.end());
    EXPECT_EQ(tap->note, std::to_string(here) +
                             " elements are 0 where -0 was expected, which is the same value");
  }
  EXPECT_GT(changed, 0);
}

// What is kept is run again before it is written.
TEST_F(OpCaseTest, ACaseThatIsNotItsCallIsNamed) {
  int ops = 0;
  for (const OpCase& kept : cases_of_step_two()) {
    const auto checked = check_kept(kept, all_lanes());
    EXPECT_TRUE(checked) << kept.op.name << ": " << checked.error().text();
    if (kept.op.name != std::string("sparse_attention")) continue;
    ++ops;
    OpCase other = kept;
    std::ranges::reverse(other.caches.at("cache").slots);
    const auto found = check_kept(other, all_lanes());
    ASSERT_FALSE(found);
    EXPECT_EQ(found.error().code, AS_INTERNAL);
    EXPECT_NE(found.error().message.find("sparse_attention: the case does not give again"),
              std::string::npos)
        << found.error().message;
    other.origin.lane = "plugin:mine";
    EXPECT_TRUE(check_kept(other, all_lanes()));
  }
  EXPECT_GT(ops, 0);
}

TEST_F(OpCaseTest, WritesBesideTheOutputsAreNamed) {
  auto spill = run_in(case_of(AS_OP_INDEXER_COMPRESSOR_STATE), "mutant:state_row_spills");
  ASSERT_TRUE(spill) << spill.error().text();
  EXPECT_FALSE(spill->right());
  auto in_place = run_in(case_of(AS_OP_INVERSE_ROPE), "mutant:inverse_rope_in_place");
  ASSERT_TRUE(in_place) << in_place.error().text();
  EXPECT_EQ(in_place->trespasses, std::vector<std::string>{"input o"});
}

TEST_F(OpCaseTest, AMergeOfTwoStatesIsACaseToo) {
  SmallMerge merge(0, 0, {3, 4, 5, 6}, 0.6931472f);
  const as_merge_states_params p = merge.params();
  auto kept = keep_case(*find_case_op(AS_OP_MERGE_STATES), &p, {"by hand", "me"});
  ASSERT_TRUE(kept) << kept.error().text();
  ASSERT_TRUE(write_case(*kept, path("merge.json")));
  auto again = read_case(path("merge.json"));
  ASSERT_TRUE(again) << again.error().text();
  for (const char* lane : {"cpu", "ref.sim"}) {
    auto run = run_in(*again, lane);
    ASSERT_TRUE(run) << run.error().text();
    EXPECT_TRUE(run->right()) << lane;
  }
}

// A case that knows nothing of what should come out is not right, and neither is one without an
// element.
TEST_F(OpCaseTest, WhereNothingIsComparedNothingIsRight) {
  ASSERT_EQ(
      run({"case", "save", "early", "--at", "1/0/sparse_attention", "-o", path("a.json")}).code, 0);
  std::string text = read(path("a.json"));
  const auto put = [&](const std::string& from, const std::string& to) {
    const std::size_t at = text.find(from);
    ASSERT_NE(at, std::string::npos) << from;
    text.replace(at, from.size(), to);
  };
  put("\"unknown\": []", "\"unknown\": [\"o\", \"lse\"]");
  const std::size_t digest = text.find("\"digest\"");
  ASSERT_NE(digest, std::string::npos);
  text.erase(digest, text.find('\n', digest) + 1 - digest);
  write("a.json", text);
  for (const char* lane : {"cpu", "ref.sim", "mutant:sink_scaled"}) {
    const Outcome out = run({"case", "run", path("a.json"), "--lane", lane});
    EXPECT_EQ(out.code, 1) << lane << out.out << out.err;
    EXPECT_NE(out.out.find("not compared: nothing is known"), std::string::npos) << out.out;
    EXPECT_EQ(out.out.find("right"), std::string::npos) << out.out;
    const Outcome json = run({"case", "run", path("a.json"), "--lane", lane, "--json"});
    EXPECT_NE(json.out.find("\"right\": false"), std::string::npos) << json.out;
    EXPECT_NE(json.out.find("\"compared\": 0"), std::string::npos) << json.out;
  }
  // Only outputs can be unknown.
  text.replace(text.find("\"lse\"", text.find("\"unknown\"")), 5, "\"q\"");
  write("a.json", text);
  const Outcome named = run({"case", "run", path("a.json")});
  EXPECT_EQ(named.code, 3) << named.out;
  EXPECT_NE(named.err.find("puts out no tensor \"q\""), std::string::npos) << named.err;
  OpCase empty = case_of(AS_OP_RESIDUAL);
  for (auto& [name, tensor] : empty.tensors) {
    tensor.shape[0] = 0;
    tensor.bytes.clear();
  }
  ASSERT_TRUE(write_case(empty, path("empty.json")));
  const Outcome none = run({"case", "run", path("empty.json")});
  EXPECT_EQ(none.code, 1) << none.out << none.err;
  EXPECT_NE(none.out.find("not compared: the call has no element"), std::string::npos) << none.out;
}

TEST_F(OpCaseTest, StridesOfTensorsAreKept) {
  std::vector<float> logits = {1, 9, 3, -1, 2, 8, 4, -1};
  std::vector<std::int32_t> tokens = {1, 1};
  as_sample_params p{};
  p.head = {sizeof(p), AS_PARAMS_VERSION};
  p.logits = make_tensor(logits.data(), {2, 3});
  p.logits.stride[0] = 4;
  p.tokens = make_tensor(tokens.data(), {2});
  auto kept = keep_case(*find_case_op(AS_OP_SAMPLE), &p, {"by hand", "me"});
  ASSERT_TRUE(kept);
  ASSERT_TRUE(write_case(*kept, path("sample.json")));
  auto again = read_case(path("sample.json"));
  ASSERT_TRUE(again) << again.error().text();
  auto call = CaseCall::make(*again);
  ASSERT_TRUE(call);
  const auto& params = *static_cast<const as_sample_params*>(call->params());
  EXPECT_EQ(params.logits.stride[0], 4);
  EXPECT_EQ(*at<float>(params.logits, 1, 1), 8);
  auto run = run_in(*again, "cpu");
  ASSERT_TRUE(run) << run.error().text();
  EXPECT_TRUE(run->right());
}

TEST_F(OpCaseTest, DamageIsNamed) {
  EXPECT_NE(error_of("attnscope-case", "attnscope-cake").find("is no case"), std::string::npos);
  EXPECT_NE(error_of("\"version\": 1", "\"version\": 9").find("reads up to 1"), std::string::npos);
  EXPECT_NE(error_of("\"digest\": \"", "\"digest\": \"0").find("is not the file that"),
            std::string::npos);
  EXPECT_NE(error_of("\"op\": \"sparse_attention\"", "\"op\": \"sparse\"").find("unknown op"),
            std::string::npos);
  EXPECT_NE(error_of("\"changed.safetensors\"", "\"../x\"").find("is no name of a file"),
            std::string::npos);
  EXPECT_NE(error_of("\"rows_per_block\": 64", "\"rows_per_block\": 640").find("less than a page"),
            std::string::npos);
  EXPECT_NE(error_of("\"width\": 512", "\"width\": -1").find("width"), std::string::npos);
  EXPECT_NE(error_of("\"sinks\"", "\"sink\"").find("no tensor \"sink\""), std::string::npos);
  EXPECT_NE(error_of("\"strides\": {}", "\"strides\": {\"q\": [1]}").find("expected 3 numbers"),
            std::string::npos);
  EXPECT_NE(error_of("\"blocks\": 400", "\"blocks\": 1").find("expected ascending numbers"),
            std::string::npos);
  EXPECT_NE(error_of("\"version\": 1", "\"version\": 1, \"more\": 2").find("unknown key"),
            std::string::npos);
}

// A capture has no value where the tap's mask has none.
void expect_equal_values(const OpCase& live, const StoredTensor& kept, const as_tap_info& tap) {
  const StoredTensor& own = live.tensors.at(tap.name);
  if (tap.mask == AS_MASK_ALL) {
    EXPECT_EQ(kept.bytes, own.bytes) << tap.name;
    return;
  }
  const auto mask = std::ranges::find(live.op.taps, tap.mask_offset, &as_tap_info::offset);
  const as_tensor limits = stored_view(live.tensors.at(mask->name)), rows = stored_view(own);
  ASSERT_EQ(kept.bytes.size(), own.bytes.size()) << tap.name;
  const auto row = static_cast<std::size_t>(rows.stride[0] * as_dtype_size(rows.dtype));
  for (std::int64_t t = 0; t < rows.shape[0]; ++t) {
    const std::size_t first = static_cast<std::size_t>(t) * row;
    EXPECT_EQ(std::memcmp(kept.bytes.data() + first, own.bytes.data() + first,
                          static_cast<std::size_t>(bytes_with_values(tap, limits, t, rows))),
              0)
        << tap.name << ", row " << t;
  }
}

// What a capture holds of a step is all of its cases: the same numbers, inputs and rows, the same
// verdicts in every lane.
TEST_F(OpCaseTest, ACaptureGivesTheCasesOfItsSession) {
  Keeper keeper(2);
  TraceOptions rows;
  rows.all_rows = true;
  TraceRecorder recorder(rows);
  SessionOptions options;
  options.references = References::kNone;
  options.rewind_every = 0;
  auto session = Session::create(small_scenario(), all_lanes(), options);
  ASSERT_TRUE(session);
  Both both(keeper, recorder);
  (*session)->set_observer(&both);
  CaptureOptions full;
  full.level = CaptureLevel::kFull;
  full.weights = true;
  auto writer =
      CaptureWriter::create(path("all.acap"), full, *session_info(**session), {"", "small", {}});
  ASSERT_TRUE(writer) << writer.error().text();
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE((*session)->step());
    ASSERT_TRUE((*writer)->add(*recorder.summaries().back(), recorder.traces().back().get(),
                               session->get()));
  }
  ASSERT_TRUE((*writer)->finish());
  const auto capture = Capture::open(path("all.acap"));
  ASSERT_TRUE(capture) << capture.error().text();
  std::set<int> ops;
  for (const OpCase& live : keeper.cases) {
    const Place place{2, live.origin.layer, static_cast<as_op_id>(live.op.id)};
    SCOPED_TRACE(format_place(place));
    const auto made = case_of_capture(**capture, place);
    ASSERT_TRUE(made) << made.error().text();
    ASSERT_TRUE(write_case(*made, path("made.json")));
    const auto again = read_case(path("made.json"));
    ASSERT_TRUE(again) << again.error().text();
    EXPECT_EQ(again->integers, live.integers);
    EXPECT_EQ(again->reals, live.reals);
    for (const auto& [name, rope] : live.ropes) {
      EXPECT_EQ(again->ropes.at(name).positions, rope.positions);
      EXPECT_EQ(again->ropes.at(name).rows, rope.rows);
    }
    for (const auto& [name, cache] : live.caches) {
      EXPECT_EQ(again->caches.at(name).slots, cache.slots) << name;
      EXPECT_EQ(again->caches.at(name).rows, cache.rows) << name;
    }
    for (const as_tap_info& tap : live.op.taps) {
      if (tap.direction == AS_TAP_OUT || !live.tensors.contains(tap.name)) continue;
      ASSERT_TRUE(again->tensors.contains(tap.name)) << tap.name;
      expect_equal_values(live, again->tensors.at(tap.name), tap);
    }
    if (is_host_op(live.op)) continue;
    for (const char* lane : {"cpu", "ref.sim"}) {
      const auto of_live = run_in(live, lane), of_capture = run_in(*again, lane);
      ASSERT_TRUE(of_live && of_capture) << lane;
      EXPECT_EQ(of_capture->right(), of_capture->compared() > 0) << lane;
      EXPECT_EQ(verdicts(*of_capture), verdicts(*of_live)) << lane;
    }
    ops.insert(live.op.id);
  }
  EXPECT_EQ(ops.size(), count_of_deepseek_v4() - 2);
}

// What a capture lacks is said: rows of steps that it does not have, values, weights.
TEST_F(OpCaseTest, ACaptureSaysWhatACaseOfItLacks) {
  const auto record = [&](const std::string& name, std::vector<std::string> more) {
    std::vector<std::string> all = {"record", "early", "-o", path(name), "--steps", "3"};
    all.insert(all.end(), more.begin(), more.end());
    const Outcome out = run(all);
    EXPECT_LE(out.code, 1) << out.err;
  };
  const auto refused = [&](const std::string& name, const std::string& place) {
    const Outcome out = run({"case", "save", path(name), "--at", place, "-o", path("no.json")});
    EXPECT_EQ(out.code, 3) << out.out;
    return out.err;
  };
  record("late.acap", {"--level", "full", "--rows", "all", "--at-steps", "2", "--weights"});
  EXPECT_NE(refused("late.acap", "2/1/sparse_attention").find("was written by no step of the"),
            std::string::npos);
  record("bare.acap", {"--level", "full"});
  const std::string bare = refused("bare.acap", "2/1/wo_b");
  EXPECT_NE(bare.find("weight was recorded without its values; record with --weights"),
            std::string::npos)
      << bare;
  record("tables.acap", {"--level", "tables"});
  EXPECT_NE(refused("tables.acap", "2/1/attn_norm").find("without its values"), std::string::npos);
}

// A plan of attention is of all tokens of its step, and another one in each step.
TEST_F(OpCaseTest, AnAttentionByAPlanIsCutOutOfTheRowsOfOneRequest) {
  for (const bool some : {false, true}) {
    SCOPED_TRACE(some);
    std::vector<std::string> record = {"record",    "attention_plan", "-o",      path("plan.acap"),
                                       "--level",   "full",           "--steps", "7",
                                       "--weights", "--references",   "none",    "--force"};
    if (some) record.insert(record.end(), {"--request", "medium"});
    ASSERT_EQ(run(record).code, 0);
    const auto capture = Capture::open(path("plan.acap"));
    ASSERT_TRUE(capture) << capture.error().text();
    for (const std::int64_t step : {4, 6}) {
      for (const int layer : {0, 1, 2}) {
        const Place place{step, layer, AS_OP_SPARSE_ATTENTION};
        SCOPED_TRACE(format_place(place));
        const auto made = case_of_capture(**capture, place);
        ASSERT_TRUE(made) << made.error().text();
        const std::int64_t tokens = made->tensors.at("q").shape[0];
        EXPECT_EQ(made->origin.from.find(" tokens)") != std::string::npos, some);
        EXPECT_EQ(made->tensors.at("plan_rows").shape[0], tokens);
        for (const char* lane : {"cpu", "ref.sim"}) {
          const auto ran = run_in(*made, lane);
          ASSERT_TRUE(ran) << lane << ": " << ran.error().text();
          EXPECT_TRUE(ran->right()) << lane;
        }
      }
    }
    const auto plan = case_of_capture(**capture, {4, -1, AS_OP_ATTENTION_PLAN});
    EXPECT_EQ(static_cast<bool>(plan), !some);
    if (!plan) {
      EXPECT_NE(plan.error().text().find("--rows all"), std::string::npos) << plan.error().text();
    }
  }
}

TEST_F(OpCaseTest, ACaseReplacesAnotherAndLeavesNoTensorsOfIt) {
  const std::string file = path("turns.json");
  const auto files = [&] {
    std::set<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(path(""))) {
      const std::string name = entry.path().filename().string();
      if (name.starts_with("turns")) names.insert(name);
    }
    return names;
  };
  using Names = std::set<std::string>;
  ASSERT_TRUE(write_case(case_of(AS_OP_SAMPLE), file));
  EXPECT_EQ(files(), (Names{"turns.json", "turns.safetensors"}));
  ASSERT_TRUE(write_case(case_of(AS_OP_RESIDUAL), file));
  EXPECT_EQ(files(), (Names{"turns.json", "turns.json.safetensors"}));
  EXPECT_EQ(read_case(file)->op.id, AS_OP_RESIDUAL);
  ASSERT_TRUE(write_case(case_of(AS_OP_SAMPLE), file));
  EXPECT_EQ(files(), (Names{"turns.json", "turns.safetensors"}));
  // Tensors that have another name are somebody's.
  std::string text = read(file);
  const std::string own = "\"turns.safetensors\"";
  text.replace(text.find(own), own.size(), "\"turns-of-others.safetensors\"");
  write("turns.json", text);
  std::filesystem::rename(path("turns.safetensors"), path("turns-of-others.safetensors"));
  ASSERT_TRUE(write_case(case_of(AS_OP_SAMPLE), file));
  EXPECT_EQ(files(), (Names{"turns.json", "turns.safetensors", "turns-of-others.safetensors"}));
}

TEST_F(OpCaseTest, NumbersThatLeadOutOfATensorAreRefused) {
  OpCase kept = case_of(AS_OP_SPARSE_ATTENTION);
  StoredTensor& indices = kept.tensors["indices"];
  const std::int32_t far = 1 << 28;
  std::memcpy(indices.bytes.data(), &far, sizeof(far));
  for (const char* lane : {"cpu", "ref.sim"}) {
    auto run = run_in(kept, lane);
    ASSERT_FALSE(run);
    EXPECT_EQ(run.error().code, AS_BAD_INPUT);
    EXPECT_NE(run.error().message.find("the case cannot be run"), std::string::npos);
  }
  OpCase huge = case_of(AS_OP_SPARSE_ATTENTION);
  huge.tensors["q"].stride = {std::int64_t{1} << 39, 1 << 20, 1};
  auto run = run_in(huge, "cpu");
  ASSERT_FALSE(run);
  EXPECT_NE(run.error().code, AS_INTERNAL);
}

// Whatever stands in the files: an error, or a case that the lanes refuse or carry out.
TEST_F(OpCaseTest, NoDamageLeadsOutOfTheFiles) {
  std::mt19937_64 random(7);
  int read_in = 0, refused = 0, ran = 0;
  const auto attempt = [&](const std::string& file) {
    auto kept = read_case(file);
    if (!kept) {
      EXPECT_FALSE(kept.error().message.empty());
      ++refused;
      return;
    }
    ++read_in;
    for (const char* lane : {"cpu", "ref.sim"}) {
      auto run = run_in(*kept, lane);
      if (run) ++ran;
    }
  };
  for (const as_op_id op : {AS_OP_TOPK_TO_SLOTS, AS_OP_INDEXER_COMPRESS_INSERT}) {
    const std::string file = path("damaged.json");
    ASSERT_TRUE(write_case(case_of(op), file));
    std::string text = read(file);
    const std::size_t digest = text.find("\"digest\"");
    text.erase(digest, text.find('\n', digest) - digest + 1);  // the flips below are not noticed
    const std::string tensors_file = *case_tensors(file), tensors = read(tensors_file);
    for (std::size_t length = 0; length < text.size(); length += 3) {
      write("damaged.json", text.substr(0, length));
      attempt(file);
    }
    for (int i = 0; i < 400; ++i) {
      std::string changed = text;
      changed[random() % changed.size()] = static_cast<char>(' ' + random() % 95);
      write("damaged.json", changed);
      attempt(file);
    }
    write("damaged.json", text);
    for (int i = 0; i < 200; ++i) {
      std::string changed = tensors;
      const std::size_t within = i % 2 == 0 ? 2000 : changed.size();  // half of them in the header
      changed[random() % std::min(within, changed.size())] = static_cast<char>(random());
      write(std::filesystem::path(tensors_file).filename().string(), changed);
      attempt(file);
    }
  }
  EXPECT_GT(refused, 500);
  EXPECT_GT(read_in, 100);
  EXPECT_GT(ran, 100);
}

TEST_F(OpCaseTest, CommandsSaveRunAndShow) {
  const std::string file = path("norm.json");
  Outcome saved = run({"case", "save", "early", "--at", "1/1/attn_norm", "-o", file});
  EXPECT_EQ(saved.code, 0) << saved.err;
  EXPECT_NE(run({"case", "show", file}).out.find("eps = "), std::string::npos);
  const Outcome right = run({"case", "run", file, "--lane", "cpu", "--lane", "ref.exact"});
  EXPECT_EQ(right.code, 0) << right.err;
  const Outcome wrong = run({"case", "run", file, "--lane", "mutant:norm_weight_plus_one"});
  EXPECT_EQ(wrong.code, 1) << wrong.err;
  EXPECT_NE(wrong.out.find("worst at"), std::string::npos);
  EXPECT_EQ(run({"case", "run", file, "--lane", "nobody"}).code, 2);
  EXPECT_EQ(run({"case", "run", path("none.json")}).code, 3);
  EXPECT_EQ(run({"case", "save", "early", "--at", "1/1/attn_norm", "-o", path("x")}).code, 2);
  EXPECT_EQ(run({"case", "save", "early", "--at", "1/9/attn_norm", "-o", file}).code, 3);
  EXPECT_EQ(run({"case", "run", file, "--lane", "cpu", "--json"}).out.substr(0, 1), "{");
}

// Token rows that a capture keeps are a call of their own.
TEST_F(OpCaseTest, AFullCaptureGivesCasesOfItsTensors) {
  const std::string capture = path("full.acap");
  const Outcome recorded = run({"record", "early", "-o", capture, "--level", "full", "--rows", "64",
                                "--steps", "2", "--weights"});
  ASSERT_EQ(recorded.code, 0) << recorded.err;
  for (const auto& [place, mutant] : std::vector<std::pair<std::string, std::string>>{
           {"1/1/residual", "mutant:residual_missing"},
           {"1/1/indexer_topk", ""},  // every entry is selected so early, whatever the scores
           {"1/2/q_kv_norm", "mutant:kv_norm_over_no_rope"},
           {"1/2/wo_a", "mutant:group_of_other_heads"},
           {"1/-/lm_head", "mutant:head_in_bf16"}}) {
    SCOPED_TRACE(place);
    const std::string file = path("a.json");
    const Outcome saved = run({"case", "save", capture, "--at", place, "-o", file});
    ASSERT_EQ(saved.code, 0) << saved.err;
    EXPECT_EQ(run({"case", "run", file, "--lane", "cpu", "--lane", "ref.sim"}).code, 0);
    if (mutant.empty()) continue;
    EXPECT_EQ(run({"case", "run", file, "--lane", mutant}).code, 1);
  }
  const Outcome cache =
      run({"case", "save", capture, "--at", "1/1/sparse_attention", "-o", path("c.json")});
  EXPECT_EQ(cache.code, 3);
  const std::string command =
      "attnscope case save early --at 1/1/sparse_attention -o sparse_attention.json";
  EXPECT_NE(cache.err.find(command), std::string::npos) << cache.err;
  EXPECT_EQ(run({"case", "save", capture, "--at", "9/1/residual", "-o", path("c.json")}).code, 3);
}

}  // namespace op_case_test
}  // namespace attnscope
