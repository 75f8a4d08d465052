// A session whose old rows and tensors rest in a file computes and shows what another one does.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <string>

#include "engine/io/resting_memory.h"
#include "kernels/params/tensor_view.h"
#include "tests/unit/app/trace_session.h"
#include "tests/unit/engine/resting_place.h"

namespace attnscope {
namespace resting_session_test {

using RestingSession = RestingTest;

// Long enough for rows to leave windows.
Scenario long_scenario() {
  Scenario scenario = small_scenario(900, 12);
  scenario.pool_blocks = 4000;
  return scenario;
}

std::unique_ptr<Session> session_of(bool rest, TraceRecorder& recorder,
                                    References references = References::kBoth) {
  SessionOptions options;
  options.references = references;
  options.threads = 2;
  options.rewind_every = 2;
  options.rest_old_rows = rest;
  auto session = Session::create(long_scenario(), all_lanes(), options);
  EXPECT_TRUE(session) << session.error().text();
  (*session)->set_observer(&recorder);
  return std::move(*session);
}

void expect_same(const as_tensor& a, const as_tensor& b, const std::string& where) {
  ASSERT_EQ(a.data == nullptr, b.data == nullptr) << where;
  if (a.data == nullptr) return;
  const std::int64_t bytes = as_tensor_numel(&a) * as_dtype_size(a.dtype);
  ASSERT_EQ(bytes, as_tensor_numel(&b) * as_dtype_size(b.dtype)) << where;
  EXPECT_EQ(std::memcmp(a.data, b.data, static_cast<std::size_t>(bytes)), 0) << where;
}

void expect_same(const StepTrace& a, const StepTrace& b) {
  ASSERT_EQ(a.ops.size(), b.ops.size());
  for (std::size_t i = 0; i < a.ops.size(); ++i) {
    const OpTrace &x = *a.ops[i], &y = *b.ops[i];
    EXPECT_EQ(x.place, y.place);
    EXPECT_EQ(x.worst, y.worst);
    ASSERT_EQ(x.taps.size(), y.taps.size());
    for (std::size_t t = 0; t < x.taps.size(); ++t) {
      const std::string where = std::to_string(a.step) + "/" + x.taps[t].name;
      expect_same(x.taps[t].value, y.taps[t].value, where);
      expect_same(x.taps[t].reference, y.taps[t].reference, where + ", reference");
    }
    ASSERT_EQ(x.attention == nullptr, y.attention == nullptr);
    if (!x.attention) continue;
    EXPECT_EQ(x.attention->weights, y.attention->weights);
    EXPECT_EQ(x.attention->slots, y.attention->slots);
    EXPECT_EQ(x.attention->window_rows.bytes, y.attention->window_rows.bytes);
    EXPECT_EQ(x.attention->extra_rows.bytes, y.attention->extra_rows.bytes);
  }
}

void expect_same(const Session& a, const Session& b) {
  ASSERT_EQ(a.history().size(), b.history().size());
  for (std::size_t i = 0; i < a.history().size(); ++i) {
    EXPECT_EQ(a.history()[i].sampled, b.history()[i].sampled) << "step " << i;
    ASSERT_EQ(a.history()[i].results.size(), b.history()[i].results.size()) << "step " << i;
    for (std::size_t r = 0; r < a.history()[i].results.size(); ++r) {
      EXPECT_EQ(a.history()[i].results[r].verdict, b.history()[i].results[r].verdict)
          << "step " << i << ": " << a.history()[i].results[r].note;
    }
  }
}

TEST_F(RestingSession, ComputesAndShowsWhatAnotherOneDoes) {
  TraceOptions options;
  TraceRecorder plain(options);
  options.rest = true;
  TraceRecorder resting(options);
  const auto awake = session_of(false, plain);
  const std::int64_t before = resting_bytes();
  const auto session = session_of(true, resting);
  for (Session* s : {awake.get(), session.get()}) run_steps(*s, 9);
  EXPECT_GT(resting_bytes(), before + (1 << 20)) << "nothing rests";
  expect_same(*awake, *session);
  const auto a = plain.traces(), b = resting.traces();
  ASSERT_EQ(a.size(), b.size());
  int in_file = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    expect_same(*a[i], *b[i]);
    EXPECT_EQ(a[i]->bytes, b[i]->bytes);
    for (const auto& op : b[i]->ops) {
      for (const TapCopy& tap : op->taps) {
        in_file += tap.output && tap.value_bytes.empty() && tap.value.data != nullptr ? 1 : 0;
      }
    }
  }
  EXPECT_GT(in_file, 20);
}

TEST_F(RestingSession, NeedsNoReference) {
  for (const References references : {References::kNone, References::kSim}) {
    TraceRecorder recorder;
    const auto session = session_of(true, recorder, references);
    run_steps(*session, 5);
    session->rest_old_rows();
    EXPECT_EQ(session->history().size(), 5u);
  }
}

TEST_F(RestingSession, GoesBackOverRowsThatRest) {
  TraceRecorder plain, watched;
  const auto awake = session_of(false, plain), session = session_of(true, watched);
  run_steps(*awake, 10);
  run_steps(*session, 8);
  ASSERT_TRUE(session->seek(Cursor{3}));
  run_steps(*session, 4);
  session->rest_old_rows();
  run_steps(*session, 3);
  expect_same(*awake, *session);
  for (const auto& trace : watched.traces()) {
    if (const auto other = plain.trace(trace->step)) expect_same(*other, *trace);
  }
}

// Many requests come and go: a step looks at the rows of those that are there, and once at those of
// the ones that ended before it.
TEST_F(RestingSession, LooksAtTheRequestsThatAreThere) {
  Scenario scenario = small_scenario(20, 2);
  const ScenarioRequest one = scenario.requests.back();
  for (int i = 0; i < 40; ++i) {
    ScenarioRequest& request = scenario.requests.emplace_back(one);
    request.name = "later " + std::to_string(i);
    request.arrival_step = 2 * i;
  }
  SessionOptions options;
  options.references = References::kSim;
  options.threads = 2;
  options.rest_old_rows = true;
  auto session = Session::create(scenario, all_lanes(), options);
  ASSERT_TRUE(session) << session.error().text();
  std::size_t most = 0;
  for (int step = 0; !(*session)->finished(); ++step) {
    ASSERT_LT(step, 1000);
    ASSERT_TRUE((*session)->step());
    most = std::max(most, (*session)->verifier().with_rows_to_rest().size());
  }
  EXPECT_EQ((*session)->serving().requests().size(), 43u);
  EXPECT_GE(most, 3u);
  EXPECT_LE(most, 10u);
}

}  // namespace resting_session_test
}  // namespace attnscope
