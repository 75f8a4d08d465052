// The goldens of this repository hold, as a build server runs them; and they would not hold if a
// kernel had one of the planted bugs.
#include <gtest/gtest.h>

#include <array>
#include <filesystem>
#include <map>
#include <set>

#include "app/reports/golden_review.h"
#include "app/wiring/wiring.h"
#include "engine/golden/golden_run.h"
#include "engine/golden/op_inputs.h"
#include "kernels/mutants/mutants.h"

namespace attnscope {
namespace repository_goldens_test {

constexpr const char* kFolder = ATTNSCOPE_SOURCE_DIR "/tests/goldens";

GoldenFolder folder() {
  auto opened = GoldenFolder::open(kFolder);
  EXPECT_TRUE(opened) << opened.error().text();
  return *opened;
}
GoldenRunOptions ci() {
  GoldenRunOptions options;
  options.ci = true;
  options.origin = golden_origin(kFolder);
  return options;
}

TEST(RepositoryGoldens, AllHold) {
  GoldenFolder goldens = folder();
  EXPECT_TRUE(goldens.orphans().empty()) << goldens.orphans()[0].file;
  EXPECT_TRUE(goldens.pending().empty()) << goldens.pending()[0];
  const LaneRegistry lanes = all_lanes();
  for (const std::string& name : goldens.defined()) {
    const GoldenOutcome outcome = run_golden(goldens, name, lanes, ci());
    EXPECT_EQ(outcome.state, GoldenState::kPassed)
        << name << " is " << golden_state_name(outcome.state) << ": " << outcome.sentence;
    EXPECT_LE(std::filesystem::file_size(goldens.file(name, kAcceptedSuffix)), kSmallGolden);
    EXPECT_FALSE(outcome.accepted.origin.reason.empty()) << name;
    EXPECT_EQ(outcome.accepted.origin.commit.size(), 40u) << name;
  }
}

TEST(RepositoryGoldens, EveryOpHasThreeShapes) {
  const GoldenFolder goldens = folder();
  std::array<int, AS_OP_COUNT> shapes{};
  for (const std::string& name : goldens.defined()) {
    auto spec = goldens.spec(name);
    ASSERT_TRUE(spec) << spec.error().text();
    if (spec->op) shapes[*spec->op] += static_cast<int>(spec->cases.size());
    for (const GoldenTaps& taps : spec->taps) {
      if (!spec->op && !has_own_inputs(taps.op)) ++shapes[taps.op];
    }
  }
  for (int op = 0; op < AS_OP_COUNT; ++op) {
    EXPECT_GE(shapes[static_cast<std::size_t>(op)], 3) << as_op_find(op)->name;
  }
}

// Of the bugs that any traffic reaches; rare_mutants_test.cpp has the others.
TEST(RepositoryGoldens, NoPlantedBugOfAnOpGetsPast) {
  // Bugs that nothing shows at these shapes: one needs two gigabytes of cache, five are of FP8
  // projections, three of prompts over gathered rows, one is of calls over a batch of chunks.
  const std::set<std::string> unseen = {
      "mutant:page_offset_wraps",         "mutant:fp8_scale_truncated",
      "mutant:fp8_scale_of_next_block",   "mutant:fp8_scales_of_next_group",
      "mutant:fp8_output_scales_shifted", "mutant:fp8_output_turned_last",
      "mutant:gathered_part_offset_lost", "mutant:gathered_window_not_shifted",
      "mutant:gathered_length_not_added", "mutant:chunk_as_window"};
  // Inputs of their own have neither sides, biases nor masks: goldens of scenarios show these.
  const std::map<std::string, const char*> shown_by = {
      {"mutant:cross_keys_of_neighbour", "tiny_t5"},
      {"mutant:cross_causal", "tiny_t5"},
      {"mutant:cross_source_short", "tiny_t5"},
      {"mutant:decoder_begins_late", "tiny_t5"},
      {"mutant:bias_of_next_head", "tiny_t5"},
      {"mutant:bias_both_sides", "tiny_t5"},
      {"mutant:bias_mirrored", "tiny_t5"},
      {"mutant:bias_missing", "tiny_t5"},
      {"mutant:source_with_target", "tiny_t5"},
      {"mutant:mask_ignored", "tiny_mask"},
      {"mutant:mask_transposed", "tiny_mask"},
      {"mutant:mask_of_next_head", "tiny_mask"},
      {"mutant:mask_from_chunk", "tiny_mask_chunks"},
      {"mutant:mask_causal_across", "tiny_mask_across"},
      {"mutant:mask_from_source", "tiny_mask_across"},
      {"mutant:score_ignored", "tiny_mask"},
      {"mutant:score_twice", "tiny_mask"},
      {"mutant:cache_scale_of_next_head", "tiny_int8"},
      {"mutant:cache_zero_negated", "tiny_int8"},
      {"mutant:zero_point_ignored", "tiny_int8"},
      {"mutant:fp8_read_as_other", "tiny_fp8"},
      {"mutant:scale_of_keys_alone", "tiny_fp8"}};
  GoldenFolder goldens = folder();
  const LaneRegistry lanes = all_lanes();
  int seen = 0;
  for (const Lane& lane : mutants::lanes()) {
    for (int op = 0; op < AS_OP_COUNT; ++op) {
      if (lane.ops[op] == nullptr || !has_own_inputs(static_cast<as_op_id>(op))) continue;
      GoldenRunOptions options = ci();
      options.lanes = {lane.name};
      const auto elsewhere = shown_by.find(lane.name);
      const std::string name = elsewhere != shown_by.end()
                                   ? elsewhere->second
                                   : std::string("op_") + as_op_find(op)->name;
      const GoldenOutcome outcome = run_golden(goldens, name, lanes, options);
      const bool caught = outcome.state == GoldenState::kFailed;
      EXPECT_EQ(caught, !unseen.contains(lane.name)) << lane.name << ": " << outcome.sentence;
      seen += caught ? 1 : 0;
      if (elsewhere != shown_by.end()) break;  // of whichever op
    }
  }
  EXPECT_GT(seen, 50);
}

}  // namespace repository_goldens_test
}  // namespace attnscope
