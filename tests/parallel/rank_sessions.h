// Sessions whose requests are shared by ranks: how tests make them, run them and hold them against
// others.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "app/wiring/wiring.h"
#include "engine/model/numbers.h"
#include "engine/session/persist/session_file.h"
#include "engine/session/session.h"
#include "engine/session/step/context_parallel.h"
#include "engine/trace/tap_result.h"
#include "kernels/cpu/codec.h"

namespace attnscope::rank_sessions {

inline std::unique_ptr<Session> make(const Scenario& scenario,
                                     References references = References::kSim,
                                     const std::vector<std::string>& lanes = {"cpu"}) {
  SessionOptions options;
  options.references = references;
  options.lanes = lanes;
  options.threads = 2;
  options.rewind_every = 2;
  auto session = Session::create(scenario, all_lanes(), options);
  EXPECT_TRUE(session) << session.error().text();
  return session ? std::move(*session) : nullptr;
}

inline bool have_references() { return all_lanes().find("ref.sim") != nullptr; }

// Runs to the end, nothing wrong; returns the elements of attention that were compared.
inline std::int64_t run_right(Session& session) {
  std::int64_t attended = 0;
  while (!session.finished()) {
    const auto ok = session.step();
    EXPECT_TRUE(ok) << ok.error().text();
    if (!ok) return 0;
    for (const TapResult& r : session.history().back().results) {
      EXPECT_NE(r.verdict, Verdict::kWrong) << r.tap << ": " << r.note;
      if (ContextParallel::attends(r.op)) attended += r.elements;
    }
  }
  return attended;
}

inline const as_tensor& output_of(const OpParams& params, std::string_view tap) {
  const as_tap_info* at = params.info().taps;
  while (tap != at->name) ++at;
  return params.tensor(at->offset);
}

// Both at their begin: attention of the first layer's first step, whose inputs are the same.
inline void expect_same_attention(Session& one, Session& ranks) {
  bool compared = false;
  while (one.cursor().layer <= 0 && !one.cursor().after_layers) {
    ASSERT_TRUE(one.op());
    ASSERT_TRUE(ranks.op());
    if (!one.ran_any() || !ContextParallel::attends(one.last_params().op())) continue;
    compared = true;
    const as_tensor& a = output_of(one.last_params(), "lse");
    const as_tensor& b = output_of(ranks.last_params(), "lse");
    double worst = 0, largest = 0, beside = 0;
    for (std::int64_t i = 0; i < as_tensor_numel(&a); ++i) {
      worst = std::max(worst, std::abs(double{at<float>(a)[i]} - double{at<float>(b)[i]}));
    }
    EXPECT_LT(worst, 2e-5) << "LSEs are fp32";
    const as_tensor& x = output_of(one.last_params(), "o");
    const as_tensor& y = output_of(ranks.last_params(), "o");
    for (std::int64_t i = 0; i < as_tensor_numel(&x); ++i) {
      const double v = cpu::bf16_to_float(at<bf16_t>(x)[i].bits);
      const double w = cpu::bf16_to_float(at<bf16_t>(y)[i].bits);
      largest = std::max(largest, std::abs(v));
      beside = std::max(beside, std::abs(v - w));
    }
    // Each part is rounded to bf16, and so is the sum.
    EXPECT_LT(beside, 0x1p-7 * largest);
    EXPECT_GT(largest, 0);
  }
  EXPECT_TRUE(compared);
}

// What was sent in a step is as planned, of each of its layers.
inline void expect_sent(const StepRecord& record, const ExchangeCounts& layer, int layers) {
  for (int i = 0; i < kRankMessages; ++i) {
    EXPECT_EQ(record.exchanged[to_size(i)].messages, layer[to_size(i)].messages * layers);
    EXPECT_EQ(record.exchanged[to_size(i)].bytes, layer[to_size(i)].bytes * layers);
  }
}

// Runs to the end, goes back and runs again: the bytes of a step are those of the first time.
inline void expect_same_after_going_back(Session& session) {
  std::vector<std::uint64_t> digests;
  while (!session.finished()) {
    ASSERT_TRUE(session.step());
    digests.push_back(session.digest());
  }
  ASSERT_GE(digests.size(), 3u);
  for (const std::int64_t to : {1, 0, 2}) {
    ASSERT_TRUE(session.seek({to, -1, 0, false}));
    while (!session.finished()) {
      ASSERT_TRUE(session.step());
      const auto at = session.history().size() - 1;
      EXPECT_EQ(session.digest(), digests[at]) << at;
      const auto blamed = blame(session.history().back().results);
      ASSERT_TRUE(blamed.empty()) << blamed.front().sentence();
    }
  }
}

// Kept in a file behind two steps, a session goes on there as here.
inline void expect_kept(const Scenario& scenario, const std::string& name) {
  const std::string file =
      (std::filesystem::path(::testing::TempDir()) / fmt::format("{}{}.session", name, ::getpid()))
          .string();
  auto session = make(scenario);
  ASSERT_TRUE(session->step());
  ASSERT_TRUE(session->step());
  ASSERT_TRUE(save_session(*session, file, "key"));
  auto again = make(scenario);
  const auto loaded = load_session(*again, file, "key");
  std::filesystem::remove(file);
  ASSERT_TRUE(loaded) << loaded.error().text();
  while (!again->finished()) {
    ASSERT_TRUE(session->step());
    ASSERT_TRUE(again->step());
    EXPECT_EQ(again->digest(), session->digest());
    const auto blamed = blame(again->history().back().results);
    ASSERT_TRUE(blamed.empty()) << blamed.front().sentence();
  }
}

// The only one that two steps with the bug in blame; the bug is a lane of `schedule`.
inline Blame blamed_of(const Scenario& scenario, const std::string& bug) {
  auto session = make(scenario, References::kSim, {"cpu", "schedule=" + bug});
  std::vector<TapResult> results;
  for (int i = 0; session != nullptr && i < 2; ++i) {
    EXPECT_TRUE(session->step());
    const auto& of_step = session->history().back().results;
    results.insert(results.end(), of_step.begin(), of_step.end());
  }
  const std::vector<Blame> blamed = blame(results);
  std::string all;
  for (const Blame& b : blamed) all += "\n    " + b.sentence();
  EXPECT_EQ(blamed.size(), 1u) << all;
  EXPECT_TRUE(blamed.empty() || !blamed[0].cache) << all;
  return blamed.empty() ? Blame{} : blamed[0];
}

}  // namespace attnscope::rank_sessions
