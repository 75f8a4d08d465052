// A kernel that looks blocks up in the table of the step before: the session and a capture name it.
// Captures and sessions hold what each step was given.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <filesystem>

#include "app/reports/capture_record.h"
#include "app/reports/causes_run.h"
#include "app/reports/run.h"
#include "app/wiring/wiring.h"
#include "kernels/cpu/cpu_lane.h"
#include "kernels/params/indexer_params.h"
#include "kernels/params/op_table.h"
#include "kernels/params/step_params.h"
#include "kernels/params/tensor_view.h"
#include "tests/unit/app/small_scenario.h"

namespace attnscope {
namespace stale_tables_test {

// The table of the last call, as the device has it that a new one was not copied to.
struct Held {
  std::vector<std::int32_t> values;
  std::array<std::int64_t, 3> shape{};  // groups, requests, columns
};
Held held;

// Runs the right op with the entries of the last call; those that it did not have are null.
template <class Params>
std::int32_t with_held(as_op_id op, as_tensor Params::*table, const void* params,
                       const as_call* call, as_error* error) {
  Params p = *static_cast<const Params*>(params);
  const as_tensor own = p.*table;
  const bool grouped = own.rank == 3;
  const std::array<std::int64_t, 3> shape = {grouped ? own.shape[0] : 1, own.shape[own.rank - 2],
                                             own.shape[own.rank - 1]};
  Held now{{}, shape};
  std::vector<std::int32_t> stale;
  for (std::int64_t g = 0; g < shape[0]; ++g) {
    for (std::int64_t r = 0; r < shape[1]; ++r) {
      for (std::int64_t c = 0; c < shape[2]; ++c) {
        now.values.push_back(grouped ? *at<std::int32_t>(own, g, r, c)
                                     : *at<std::int32_t>(own, r, c));
        const bool there = g < held.shape[0] && r < held.shape[1] && c < held.shape[2];
        const std::int64_t from = (g * held.shape[1] + r) * held.shape[2] + c;
        stale.push_back(there ? held.values[static_cast<std::size_t>(from)] : 0);
      }
    }
  }
  const bool first = held.values.empty();
  held = std::move(now);
  if (!first) {
    p.*table = grouped ? make_tensor(stale.data(), {shape[0], shape[1], shape[2]})
                       : make_tensor(stale.data(), {shape[1], shape[2]});
  }
  return cpu::lane()->ops[op](&p, call, error);
}

std::int32_t stale_slots(const void* params, const as_call* call, as_error* error) {
  return with_held(AS_OP_SLOT_MAPPING, &as_slot_mapping_params::tables, params, call, error);
}
std::int32_t stale_selection(const void* params, const as_call* call, as_error* error) {
  return with_held(AS_OP_TOPK_TO_SLOTS, &as_topk_to_slots_params::table, params, call, error);
}

LaneRegistry with_stale_lane() {
  LaneRegistry lanes = all_lanes();
  Lane stale{};
  stale.name = "stale";
  stale.description = "tables of the step before";
  stale.ops[AS_OP_SLOT_MAPPING] = stale_slots;
  stale.ops[AS_OP_TOPK_TO_SLOTS] = stale_selection;
  lanes.add(stale);
  return lanes;
}

// The first request ends early: the second one's row of the table moves up then.
Scenario two_requests() {
  Scenario scenario = small_scenario(30, 6);
  scenario.model = narrow_model({0, 1});  // one layer that selects: one call a step
  scenario.requests.resize(2);
  scenario.requests[0].max_new_tokens = 2;
  return scenario;
}

void expect_named(const Explanation& why, const char* tap) {
  const auto named = std::ranges::find(
      why.hypotheses.likely, std::string("the block table of the step before"), &Hypothesis::lane);
  ASSERT_NE(named, why.hypotheses.likely.end()) << testing::PrintToString(why.lines());
  EXPECT_TRUE(named->whole);
  const auto lines = why.causes();
  EXPECT_TRUE(std::ranges::any_of(lines, [&](const std::string& line) {
    return line.starts_with("the block table of the step before gives the same output: ") &&
           line.find(std::string("(") + tap + ")") != std::string::npos;
  })) << testing::PrintToString(lines);
}

TEST(StaleTables, AreNamedInARunAndInACapture) {
  setenv("ATTNSCOPE_ASSETS", ATTNSCOPE_SOURCE_DIR "/assets", 1);
  const LaneRegistry lanes = with_stale_lane();
  const Scenario scenario = two_requests();
  const struct {
    as_op_id op;
    const char* tap;
  } cases[] = {{AS_OP_SLOT_MAPPING, "tables"}, {AS_OP_TOPK_TO_SLOTS, "table"}};
  for (const auto& c : cases) {
    SCOPED_TRACE(as_op_find(c.op)->name);
    RunOptions options;
    options.session.references = References::kSim;
    options.session.threads = 2;
    options.session.lanes = {"cpu", std::string(as_op_find(c.op)->name) + "=stale"};
    options.explain_seconds = 60;
    held = {};
    const auto ran = run_scenario(scenario, lanes, options, nullptr);
    ASSERT_TRUE(ran) << ran.error().text();
    ASSERT_TRUE(ran->why) << "nothing is wrong";
    EXPECT_EQ(ran->why->op, as_op_find(c.op)->name);
    expect_named(*ran->why, c.tap);

    RecordOptions record;
    record.run = options;
    record.run.explain_seconds = 0;
    record.rows = 0;
    record.capture.level = CaptureLevel::kFull;
    const std::string path = (std::filesystem::temp_directory_path() /
                              ("attnscope-stale-" + std::to_string(getpid()) + ".acap"))
                                 .string();
    held = {};
    const auto recorded = record_scenario(scenario, lanes, record, path, nullptr);
    ASSERT_TRUE(recorded) << recorded.error().text();
    const auto capture = Capture::open(path);
    ASSERT_TRUE(capture) << capture.error().text();
    std::optional<Place> wrong;
    for (const auto& step : (*capture)->summaries()) {
      for (const TapResult& r : step->results) {
        if (r.verdict == Verdict::kWrong && !wrong) wrong = Place{step->step, r.layer, r.op};
      }
    }
    ASSERT_TRUE(wrong);
    EXPECT_EQ(wrong->op, c.op);
    const auto causes = causes_in_capture(**capture, all_lanes(), *wrong, 2);
    ASSERT_TRUE(causes) << causes.error().text();
    expect_named(causes->why, c.tap);
    std::filesystem::remove_all(path);
  }
}

// A table that is up to date is not called stale, whatever else is wrong.
TEST(StaleTables, AreNotNamedForAnotherMistake) {
  setenv("ATTNSCOPE_ASSETS", ATTNSCOPE_SOURCE_DIR "/assets", 1);
  RunOptions options;
  options.session.references = References::kSim;
  options.session.threads = 2;
  options.session.lanes = {"mutant:topk_rebased_twice"};
  options.explain_seconds = 60;
  const auto ran = run_scenario(two_requests(), all_lanes(), options, nullptr);
  ASSERT_TRUE(ran) << ran.error().text();
  ASSERT_TRUE(ran->why);
  // Of two requests another mistake takes the first one's table too: both are said.
  std::vector<std::string> named;
  for (const Hypothesis& h : ran->why->hypotheses.likely) {
    if (h.whole) named.push_back(h.lane);
  }
  EXPECT_EQ(named, (std::vector<std::string>{"mutant:topk_rebased_twice",
                                             "mutant:topk_table_of_request_before"}));
  EXPECT_NE(ran->why->causes().back().find("2 mistakes give the same output"), std::string::npos);
}

}  // namespace stale_tables_test
}  // namespace attnscope
