// Two captures beside each other: the op that is wrong is named, whatever step, batch or block its
// tokens fell into.
#include "engine/capture/capture_diff.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>

#include "app/reports/capture_record.h"
#include "engine/capture/recorded_sums.h"
#include "engine/family/models.h"
#include "tests/unit/app/trace_session.h"

namespace attnscope {
namespace capture_diff_test {

namespace fs = std::filesystem;

class CaptureDiffTest : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::temp_directory_path() / ("attnscope-diff-" + std::to_string(getpid()));
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }

  std::shared_ptr<const Capture> record(const std::string& name, const Scenario& scenario,
                                        const std::vector<std::string>& lanes = {"cpu"},
                                        CaptureLevel level = CaptureLevel::kFull) {
    RecordOptions options;
    options.run.session.references = References::kNone;
    options.run.session.threads = 2;
    options.run.session.lanes = lanes;
    options.run.steps = 12;
    options.rows = 0;
    options.capture.level = level;
    const std::string path = (folder_ / name).string();
    auto result = record_scenario(scenario, all_lanes(), options, path, nullptr);
    EXPECT_TRUE(result) << result.error().text();
    auto capture = Capture::open(path);
    EXPECT_TRUE(capture) << capture.error().text();
    return *capture;
  }
  CaptureDiff diff(const Capture& a, const Capture& b) {
    setenv("ATTNSCOPE_ASSETS", ATTNSCOPE_SOURCE_DIR "/assets", 1);
    auto tolerances = Tolerances::load();
    EXPECT_TRUE(tolerances);
    auto out = diff_captures(a, b, *tolerances);
    EXPECT_TRUE(out) << out.error().text();
    return *out;
  }

  fs::path folder_;
};

std::int64_t counted(const CaptureDiff& d, DiffVerdict v) {
  return d.counts[static_cast<std::size_t>(v)];
}

TEST_F(CaptureDiffTest, TheSameRunIsEqual) {
  const auto a = record("a.acap", small_scenario());
  const CaptureDiff d = diff(*a, *a);
  EXPECT_TRUE(d.same());
  EXPECT_EQ(counted(d, DiffVerdict::kWithin), 0);
  EXPECT_GT(counted(d, DiffVerdict::kEqual), 500);
  EXPECT_TRUE(d.states.empty());
  EXPECT_GT(d.tokens, 100);
}

// Another budget cuts the prompts otherwise: the same tokens, other steps, batches and blocks.
TEST_F(CaptureDiffTest, OtherStepsAndBlocksForTheSameTokens) {
  const auto a = record("a.acap", small_scenario());
  Scenario other = small_scenario();
  other.limits.token_budget = 41;
  const auto b = record("b.acap", other);
  const CaptureDiff d = diff(*a, *b);
  for (const OpDiff& op : d.ops) {
    if (op.verdict == DiffVerdict::kUnknown || op.verdict == DiffVerdict::kWithin) continue;
    for (const TapDiff& t : op.taps) {
      EXPECT_TRUE(t.within || !t.output) << as_op_find(op.a.op)->name << " " << t.tap << " step "
                                         << op.a.step << " and " << op.b.step << ": " << t.evidence;
    }
  }
  EXPECT_TRUE(d.same()) << d.first->text;
  EXPECT_GT(counted(d, DiffVerdict::kEqual), 500);
  EXPECT_FALSE(d.states.empty());
}

// Rows of rejected drafts are nobody's tokens; those of drafts that held are.
TEST_F(CaptureDiffTest, DraftsBesideThemselvesAndBesideNone) {
  const auto plain = record("a.acap", small_scenario(40, 14));
  Scenario drafting = small_scenario(40, 14);
  drafting.serving.drafts = {3, {1, 3, 0}};
  const auto drafted = record("d.acap", drafting);
  const CaptureDiff same = diff(*drafted, *drafted);
  EXPECT_TRUE(same.same());
  EXPECT_GT(counted(same, DiffVerdict::kEqual), 500);
  for (const auto& [a, b] : {std::pair(plain, drafted), std::pair(drafted, plain)}) {
    const CaptureDiff d = diff(*a, *b);
    EXPECT_TRUE(d.same());
    EXPECT_GT(d.tokens, 80 + 15);
  }
}

// Checksums that were recorded beside the values say whether those are read as they were written,
// and whether two captures differ where they are said to.
TEST_F(CaptureDiffTest, RecordedSumsAreHeldAgainstValuesAndAgainstEachOther) {
  const auto a = record("a.acap", small_scenario());
  const auto b = record("b.acap", small_scenario(), {"cpu", "residual=mutant:residual_missing"});
  const std::int64_t step = 2;
  const auto trace = *a->trace(step), other = *b->trace(step);
  const auto entry = *a->entry(step), other_entry = *b->entry(step);
  EXPECT_EQ(check_recorded(*entry, *trace), "");
  EXPECT_TRUE(a->verify());
  const auto altered = [&](const auto& alter) {
    TraceEntry changed = *entry;
    for (OpEntry& op : changed.ops) {
      if (op.op == AS_OP_Q_ROPE_KV_INSERT && op.layer == 1) alter(op);
    }
    return check_recorded(changed, *trace);
  };
  const auto tap = [](OpEntry& op, const char* name) -> TapStats& {
    return *std::ranges::find(op.taps, std::string(name), &TapEntry::name)->stats;
  };
  const auto expect_said = [](const std::string& said, const std::string& what) {
    EXPECT_NE(said.find("layer 1, q_rope_kv_insert: " + what), std::string::npos) << said;
  };
  expect_said(altered([&](OpEntry& op) { tap(op, "q").checksum.back() ^= 1; }),
              "tap q has checksum");
  expect_said(altered([&](OpEntry& op) { op.rows[0].stats->checksum.back() ^= 1; }), "cache: ");
  expect_said(altered([&](OpEntry& op) { tap(op, "q").mean += 1e-3; }), "a statistic of tap q");
  expect_said(altered([&](OpEntry& op) { tap(op, "q").max *= 2; }), "a statistic of tap q");

  RowMatch match{trace.get(), other.get(), {}, nullptr};
  for (const std::int32_t row : trace->kept) match.rows.push_back({row, row});
  const RecordedSums sums(match, *entry, *other_entry);
  const auto same = [&](as_op_id op, const char* name) {
    return sums.same({step, 0, op}, {step, 0, op}, name);
  };
  EXPECT_EQ(same(AS_OP_RESIDUAL, "out"), false);
  EXPECT_EQ(same(AS_OP_ATTN_NORM, "y"), true);
  EXPECT_EQ(same(AS_OP_Q_ROPE_KV_INSERT, "cache"), true);
  EXPECT_EQ(same(AS_OP_ATTN_NORM, "none"), std::nullopt);
  match.rows.pop_back();
  EXPECT_EQ(RecordedSums(match, *entry, *other_entry)
                .same({step, 0, AS_OP_ATTN_NORM}, {step, 0, AS_OP_ATTN_NORM}, "y"),
            std::nullopt);
}

TEST_F(CaptureDiffTest, APlantedBugIsNamed) {
  const auto a = record("a.acap", small_scenario());
  for (const auto& [op, mutant] :
       std::vector<std::pair<std::string, std::string>>{{"swa_index", "window_off_by_one"}}) {
    const auto b =
        record("b.acap", small_scenario(), {"cpu", fmt::format("{}=mutant:{}", op, mutant)});
    const CaptureDiff d = diff(*a, *b);
    EXPECT_FALSE(d.same());
    ASSERT_TRUE(d.first);
    EXPECT_EQ(as_op_find(d.first->op.a.op)->name, op) << d.first->text;
    EXPECT_EQ(d.first->op.verdict, DiffVerdict::kOrigin);
    EXPECT_NE(d.first->text.find("its inputs agree"), std::string::npos) << d.first->text;
    EXPECT_GT(counted(d, DiffVerdict::kInherited), 0);
  }
}

TEST_F(CaptureDiffTest, APlantedBugOfDenseAttentionIsNamed) {
  Scenario scenario = small_scenario(40, 2);
  scenario.model = *preset("tiny-llama");
  const auto a = record("a.acap", scenario);
  EXPECT_TRUE(a->verify());
  EXPECT_TRUE(diff(*a, *a).same());
  const auto b = record("b.acap", scenario, {"cpu", "paged_attention=mutant:kv_group_off_by_one"});
  const CaptureDiff d = diff(*a, *b);
  ASSERT_TRUE(d.first);
  EXPECT_EQ(d.first->op.a.op, AS_OP_PAGED_ATTENTION) << d.first->text;
}

// Rows of codes are no numbers of one type: what differs is told by the field of the row, and what
// a row holds by the name of its format.
TEST_F(CaptureDiffTest, RowsOfOtherFormatsAreToldByTheirFields) {
  Scenario scenario = small_scenario(40, 2);
  scenario.model = *preset("tiny-llama");
  const auto evidence = [&](std::int32_t first, std::int32_t second) {
    scenario.model.dense.cache_record = first;
    const auto a = record("a.acap", scenario);
    scenario.model.dense.cache_record = second;
    const auto b = record("b.acap", scenario);
    const CaptureDiff d = diff(*a, *b);
    for (const OpDiff& op : d.ops) {
      for (const TapDiff& tap : op.taps) {
        if (tap.tap == "k_cache" && !tap.evidence.empty()) return tap.evidence;
      }
    }
    return std::string();
  };
  const std::string codes = evidence(AS_RECORD_FP8_TENSOR, AS_RECORD_E5M2_TENSOR);
  EXPECT_NE(codes.find(" of its row (e4m3 of element "), std::string::npos) << codes;
  EXPECT_NE(codes.find("; in the second e5m2 of element "), std::string::npos) << codes;
  const std::string sizes = evidence(AS_RECORD_BF16, AS_RECORD_FP8_TENSOR);
  EXPECT_NE(sizes.find("wrote a row of bf16, 128 bytes, in the first and of fp8_tensor, 64 bytes"),
            std::string::npos)
      << sizes;
}

// A row of a cache is named by who wrote it and by the row of the request that its slot stands for:
// an entry of four tokens has another number than its token. What lies elsewhere is said of both.
TEST_F(CaptureDiffTest, RowsAndSlotsAreNamedByTheirRequest) {
  const Scenario scenario = small_scenario(40, 2);
  const std::string& name = scenario.requests.front().name;
  const auto a = record("a.acap", scenario);
  const auto evidence = [&](const std::string& lane, as_op_id op, const char* tap) {
    const CaptureDiff d = diff(*a, *record(lane.substr(7) + ".acap", scenario, {lane}));
    for (const OpDiff& one : d.ops) {
      for (const TapDiff& t : one.taps) {
        if (one.a.op == op && t.tap == tap && !t.equal) return t.evidence;
      }
    }
    return std::string();
  };
  const auto expect = [](const std::string& text, const std::string& part) {
    EXPECT_NE(text.find(part), std::string::npos) << text;
  };
  expect(evidence("mutant:pooled_by_mean", AS_OP_COMPRESS_INSERT, "cache"),
         "request \"" + name + "\", token 3, row 0, byte ");
  expect(evidence("mutant:scale_rounded_down", AS_OP_Q_ROPE_KV_INSERT, "cache"),
         "request \"" + name + "\", token 0, row 0, byte ");
  expect(evidence("mutant:slot_of_other_group", AS_OP_SLOT_MAPPING, "slots"),
         ", which no request holds, ");
  expect(evidence("mutant:last_row_not_written", AS_OP_Q_ROPE_KV_INSERT, "cache"),
         "request \"medium\", token 23, row 23, byte 0 of its row (");
}

// Every tap has the axes that reading asks of it, in layers of every type.
TEST_F(CaptureDiffTest, FullCapturesOfEveryFamilyAreSound) {
  for (const char* model : {"tiny", "tiny-llama4", "tiny-v3", "tiny-v3.2"}) {
    SCOPED_TRACE(model);
    Scenario scenario = small_scenario(40, 2);
    scenario.model = *preset(model);
    const auto a = record(std::string(model) + ".acap", scenario);
    EXPECT_TRUE(a->verify());
    EXPECT_TRUE(diff(*a, *a).same());
  }
}

TEST_F(CaptureDiffTest, SaysWhatCannotBeCompared) {
  const auto a = record("a.acap", small_scenario());
  Scenario other = small_scenario();
  other.requests[0].name = "another";
  const auto b = record("b.acap", other);
  const CaptureDiff d = diff(*a, *b);
  ASSERT_FALSE(d.states.empty());
  EXPECT_NE(d.states.front().text.find("\"long\" is in the first capture alone"),
            std::string::npos);
  auto tolerances = Tolerances::load();
  const auto s = record("s.acap", small_scenario(), {"cpu"}, CaptureLevel::kSummary);
  const auto nothing = diff_captures(*a, *s, *tolerances);
  ASSERT_FALSE(nothing);
  EXPECT_NE(nothing.error().text().find("record both at --level tables"), std::string::npos);
  Scenario wide = small_scenario();
  wide.model = *preset("tiny", {0, 1});
  const auto w = record("w.acap", wide);
  EXPECT_FALSE(diff_captures(*a, *w, *tolerances));
}

}  // namespace capture_diff_test
}  // namespace attnscope
