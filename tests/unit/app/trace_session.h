// Sessions to trace: made from the small scenario, watched by a recorder that outlives them.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "app/wiring/wiring.h"
#include "engine/session/session.h"
#include "engine/session/trace_recorder.h"
#include "tests/unit/app/small_scenario.h"

namespace attnscope {

inline std::unique_ptr<Session> small_session(References references = References::kNone,
                                              const Scenario& scenario = small_scenario(),
                                              const std::string& lane = "cpu",
                                              std::int64_t rewind_every = 3) {
  SessionOptions options;
  options.references = references;
  options.lanes = {lane};
  options.threads = 2;
  options.rewind_every = rewind_every;
  auto session = Session::create(scenario, all_lanes(), options);
  EXPECT_TRUE(session) << session.error().text();
  return std::move(*session);
}

inline void run_steps(Session& session, int steps) {
  for (int i = 0; i < steps; ++i) {
    const auto ok = session.step();
    ASSERT_TRUE(ok) << ok.error().text();
  }
}

// Runs to the end; what the session's digest is after each step.
inline std::vector<std::uint64_t> digests(Session& session) {
  std::vector<std::uint64_t> all;
  while (!session.finished()) {
    const auto ok = session.step();
    if (!ok) ADD_FAILURE() << ok.error().text();
    if (!ok) break;
    all.push_back(session.digest());
  }
  return all;
}

inline void finish(Session& session) {
  while (!session.finished()) {
    const auto ok = session.step();
    ASSERT_TRUE(ok) << ok.error().text();
  }
}

}  // namespace attnscope
