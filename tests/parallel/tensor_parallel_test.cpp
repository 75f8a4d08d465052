// One rank of several: its taps are the slice of the whole model's, its output the sum over ranks,
// its caches those of every rank.
#include "engine/family/tensor_parallel.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "engine/family/models.h"
#include "kernels/cpu/codec.h"
#include "kernels/cpu/cpu_lane.h"
#include "kernels/params/dense_params.h"
#include "kernels/params/tensor_view.h"
#include "tests/parallel/slices.h"
#include "tests/unit/app/host_device.h"
#include "tests/unit/app/trace_session.h"

namespace attnscope {
namespace tensor_parallel_test {

Scenario sliced(int size, int rank, Scenario scenario = small_scenario()) {
  scenario.parallel = {size, rank};
  return scenario;
}

std::unique_ptr<Session> make(const Scenario& scenario, References references = References::kNone,
                              const std::vector<std::string>& lanes = {"cpu"}) {
  SessionOptions options;
  options.references = references;
  options.lanes = lanes;
  options.threads = 2;
  options.rewind_every = 3;
  auto session = Session::create(scenario, all_lanes(), options);
  EXPECT_TRUE(session) << session.error().text();
  return std::move(*session);
}

// The output of the op that ran last, by its name.
const as_tensor& output(const Session& session, const std::string& name) {
  const OpParams& params = session.last_params();
  const as_op_info& info = params.info();
  for (std::uint32_t i = 0; i < info.num_taps; ++i) {
    if (info.taps[i].name == name) return params.tensor(info.taps[i].offset);
  }
  ADD_FAILURE() << info.name << " has no tap " << name;
  return params.tensor(info.taps[0].offset);
}

float value(const as_tensor& t, std::int64_t i) {
  return cpu::bf16_to_float(static_cast<const bf16_t*>(t.data)[i].bits);
}

bool same_tokens(const Session& a, const Session& b) {
  return std::ranges::equal(a.serving().requests(), b.serving().requests(), {}, &Request::tokens,
                            &Request::tokens);
}

TEST(TensorParallel, NamesTheNumberThatCannotBeDivided) {
  const ModelConfig tiny = *preset("tiny"), pro = *preset("v4-pro");
  EXPECT_TRUE(check_parallel(tiny, {1, 0}));
  EXPECT_TRUE(check_parallel(tiny, {2, 1}));
  EXPECT_TRUE(check_parallel(pro, {16, 15}));
  const auto text = [](const ModelConfig& model, TensorParallel p) {
    const auto good = check_parallel(model, p);
    return good ? std::string("accepted") : good.error().text();
  };
  EXPECT_EQ(text(tiny, {3, 0}), "3 ranks do not divide the 8 heads of tiny; allowed: 1, 2");
  EXPECT_EQ(text(tiny, {4, 0}), "4 ranks do not divide the 2 output groups of tiny; allowed: 1, 2");
  EXPECT_EQ(text(pro, {32, 0}),
            "32 ranks do not divide the 16 output groups of v4-pro; allowed: 1, 2, 4, 8, 16");
  EXPECT_EQ(text(tiny, {2, 2}), "there is no rank 2 among 2; allowed: 0 to 1");
  EXPECT_EQ(text(tiny, {2, -1}), "there is no rank -1 among 2; allowed: 0 to 1");
  SessionOptions options;
  options.references = References::kNone;
  const auto session = Session::create(sliced(4, 0), all_lanes(), options);
  ASSERT_FALSE(session);
  EXPECT_EQ(session.error().code, AS_BAD_INPUT);
}

// A layer of each type alone, so that its input is the same on both sides.
TEST(TensorParallel, TapsOfARankAreTheSliceOfTheWhole) {
  for (const int layer : {0, 1, 2}) {
    Scenario scenario = small_scenario(300, 12);
    scenario.model.layers = {layer};
    for (const int rank : {0, 1}) {
      auto whole = make(scenario), part = make(sliced(2, rank, scenario));
      int compared = 0;
      while (!whole->finished()) {
        ASSERT_TRUE(whole->op());
        ASSERT_TRUE(part->op());
        const as_op_id op = whole->last_params().op();
        // From a near tie on the two may go on with other tokens.
        if (op == AS_OP_SAMPLE && !same_tokens(*whole, *part)) break;
        if (!whole->ran_any() || as_op_find(op)->phase != AS_PHASE_LAYER) continue;
        std::vector<std::string> taps;
        if (op == AS_OP_Q_B_PROJ || op == AS_OP_WO_A) taps = {"y"};
        if (op == AS_OP_Q_ROPE_KV_INSERT) taps = {"q"};
        if (op == AS_OP_SPARSE_ATTENTION) taps = {"o", "lse"};
        if (op == AS_OP_INVERSE_ROPE) taps = {"out"};
        for (const std::string& tap : taps) {
          ASSERT_EQ(bytes_of(output(*part, tap)), slice_of(output(*whole, tap), 2, rank))
              << as_op_find(op)->name << " " << tap << ", layer " << layer << ", rank " << rank
              << ", step " << whole->cursor().step;
          ++compared;
        }
        // What has no heads is the same on every rank.
        if (op == AS_OP_INDEXER_TOPK) {
          ASSERT_EQ(bytes_of(output(*part, "indices")), bytes_of(output(*whole, "indices")));
        }
        if (op != AS_OP_RESIDUAL) continue;
        // The sum over ranks is the whole's output but for the rounding of its parts.
        const as_tensor &sum = part->last_params().get<as_residual_params>().y,
                        &y = whole->last_params().get<as_residual_params>().y;
        double squares = 0, difference = 0;
        for (std::int64_t i = 0; i < as_tensor_numel(&y); ++i) {
          squares += std::pow(value(y, i), 2);
          difference += std::pow(value(sum, i) - value(y, i), 2);
        }
        ASSERT_GT(squares, 0);
        ASSERT_LT(std::sqrt(difference / squares), 0.005) << "step " << whole->cursor().step;
      }
      EXPECT_GE(compared, 30);
      EXPECT_EQ(part->parts().config.heads, whole->parts().config.heads / 2);
    }
  }
}

TEST(TensorParallel, RanksHoldTheSameCachesAndAddUpTheSamePartsInTheSameOrder) {
  std::unique_ptr<Session> ranks[2] = {make(sliced(2, 0)), make(sliced(2, 1))};
  std::vector<std::uint8_t> parts[2];
  int sums = 0;
  while (!ranks[0]->finished()) {
    for (int r = 0; r < 2; ++r) {
      ASSERT_TRUE(ranks[r]->op());
      if (ranks[r]->ran_any() && ranks[r]->last_params().op() == AS_OP_WO_B) {
        parts[r] = bytes_of(output(*ranks[r], "y"));
      }
    }
    if (ranks[0]->ran_any() && ranks[0]->last_params().op() == AS_OP_RESIDUAL) {
      for (int r = 0; r < 2; ++r) {
        const as_tensor& sum = ranks[r]->last_params().get<as_residual_params>().y;
        for (std::int64_t i = 0; i < as_tensor_numel(&sum); ++i) {
          bf16_t a, b;
          std::memcpy(&a, parts[0].data() + 2 * i, 2);
          std::memcpy(&b, parts[1].data() + 2 * i, 2);
          const float expected =
              cpu::round_bf16(cpu::bf16_to_float(a.bits) + cpu::bf16_to_float(b.bits));
          ASSERT_EQ(value(sum, i), expected) << "rank " << r << ", element " << i;
        }
      }
      ++sums;
    }
    if (ranks[0]->cursor().op == 0) {
      ASSERT_EQ(ranks[0]->digest(), ranks[1]->digest());
    }
  }
  EXPECT_TRUE(ranks[1]->finished());
  EXPECT_GT(sums, 20);
  EXPECT_NE(parts[0], parts[1]);
}

TEST(TensorParallel, SamplesTheTokensOfTheWholeModel) {
  auto whole = make(small_scenario());
  auto part = make(sliced(2, 1));
  finish(*whole);
  finish(*part);
  for (std::size_t i = 0; i < whole->serving().requests().size(); ++i) {
    EXPECT_EQ(whole->serving().requests()[i].tokens, part->serving().requests()[i].tokens);
  }
}

TEST(TensorParallel, EveryTapIsRightBesideBothReferences) {
  if (all_lanes().find("ref.sim") == nullptr) GTEST_SKIP() << "skipped: no references";
  for (const int rank : {0, 1}) {
    auto session = make(sliced(2, rank), References::kBoth);
    std::vector<TapResult> all;
    while (!session->finished()) {
      ASSERT_TRUE(session->step());
      const auto& results = session->history().back().results;
      all.insert(all.end(), results.begin(), results.end());
    }
    const Summary summary = summarise(all, session->parts().tolerances.drift_limit());
    EXPECT_EQ(summary.verdict(), "ok");
    EXPECT_EQ(summary.count(Verdict::kWrong), 0);
    EXPECT_GT(summary.taps, 500);
    EXPECT_FALSE(summary.diverged);
    ASSERT_FALSE(summary.drift.empty());
  }
}

TEST(TensorParallel, SinksOfAnotherSliceAreNamed) {
  if (all_lanes().find("ref.sim") == nullptr) GTEST_SKIP() << "skipped: no references";
  for (const int rank : {0, 1}) {
    auto session = make(sliced(2, rank), References::kSim,
                        {"cpu", "sparse_attention=mutant:sink_of_other_heads"});
    ASSERT_TRUE(session->step());
    const auto& results = session->history().back().results;
    const auto wrong = std::ranges::find(results, Verdict::kWrong, &TapResult::verdict);
    ASSERT_NE(wrong, results.end());
    EXPECT_EQ(wrong->op, AS_OP_SPARSE_ATTENTION);
    EXPECT_EQ(wrong->tap, "o");
    EXPECT_EQ(wrong->layer, 0);
  }
}

// wo_a of the peer alone, which runs after that of the rank that is seen: signs of a row.
std::int32_t wrong_in_peer(const void* params, const as_call* call, as_error* error) {
  static int calls = 0;
  const std::int32_t status = cpu::lane()->ops[AS_OP_WO_A](params, call, error);
  const as_tensor& y = static_cast<const as_grouped_linear_params*>(params)->y;
  if (++calls % 2 == 0) {
    const std::int64_t row = as_tensor_numel(&y) / y.shape[0];
    for (std::int64_t i = 0; i < row; ++i) static_cast<std::uint16_t*>(y.data)[i] ^= 0x8000;
  }
  return status;
}

TEST(TensorParallel, AWrongOpOfAnotherRankIsNamed) {
  if (all_lanes().find("ref.sim") == nullptr) GTEST_SKIP() << "skipped: no references";
  LaneRegistry registry = all_lanes();
  Lane lane = *registry.find("cpu");
  lane.name = "wrong_in_peer";
  lane.ops[AS_OP_WO_A] = wrong_in_peer;
  registry.add(lane);
  SessionOptions options;
  options.references = References::kSim;
  options.lanes = {"wrong_in_peer"};
  for (const int rank : {0, 1}) {
    auto session = Session::create(sliced(2, rank), registry, options);
    ASSERT_TRUE(session) << session.error().text();
    ASSERT_TRUE((*session)->step());
    const auto& results = (*session)->history().back().results;
    const std::vector<Blame> blamed = blame(results);
    ASSERT_EQ(blamed.size(), 1u);
    EXPECT_EQ(blamed.front().op, AS_OP_WO_A);
    EXPECT_EQ(blamed.front().first.layer, 0);
    EXPECT_EQ(blamed.front().first.tap, rank == 0 ? "y.rank1" : "y.rank0");
    EXPECT_TRUE(blamed.front().first.note.starts_with(rank == 0 ? "rank 1: " : "rank 0: "));
    for (const TapResult& r : results) EXPECT_TRUE(r.tap != "y" || r.verdict != Verdict::kWrong);
  }
}

TEST(TensorParallel, GoesBackAndComesAgainToTheSameBytes) {
  auto session = make(sliced(2, 1));
  std::vector<std::uint64_t> digests;
  while (!session->finished()) {
    digests.push_back(session->digest());
    ASSERT_TRUE(session->step());
  }
  for (const std::int64_t to : {6, 1, 4}) {
    ASSERT_TRUE(session->seek({to, -1, 0, false}));
    EXPECT_EQ(session->digest(), digests[static_cast<std::size_t>(to)]) << to;
  }
  ASSERT_TRUE(session->seek({5, 1, 4, false}));
  ASSERT_TRUE(session->op_back());
  ASSERT_TRUE(session->step());
  EXPECT_EQ(session->digest(), digests[6]);
}

TEST(TensorParallel, DraftsAreVerifiedOnEveryRank) {
  Scenario scenario = sliced(2, 1, small_scenario(150, 12));
  auto plain = make(scenario);
  scenario.serving.drafts = {3, {3, 0, 2}};
  auto drafted = make(scenario);
  finish(*plain);
  finish(*drafted);
  EXPECT_GT(drafted->serving().totals().accepted, 0);
  for (std::size_t i = 0; i < plain->serving().requests().size(); ++i) {
    EXPECT_EQ(plain->serving().requests()[i].tokens, drafted->serving().requests()[i].tokens);
  }
}

TEST(TensorParallel, OnADeviceTheBytesAreThoseOfTheCpuLane) {
  for (const std::vector<std::string>& lanes :
       {std::vector<std::string>{"cuda"}, {"cuda", "sparse_attention=cpu", "wo_b=cpu"}}) {
    auto cpu = make(sliced(2, 1));
    auto device = std::make_shared<HostDevice>();
    SessionOptions options;
    options.references = References::kNone;
    options.lanes = lanes;
    options.threads = 2;
    options.device = device;
    auto gpu = Session::create(sliced(2, 1), host_device::lanes(), options);
    ASSERT_TRUE(gpu) << gpu.error().text();
    while (!cpu->finished()) {
      ASSERT_TRUE(cpu->step());
      const auto ok = (*gpu)->step();
      ASSERT_TRUE(ok) << ok.error().text();
      ASSERT_EQ((*gpu)->digest(), cpu->digest()) << cpu->cursor().step;
      ASSERT_EQ((*gpu)->history().back().sampled, cpu->history().back().sampled);
    }
    EXPECT_FALSE((*gpu)->device_error());
    // Every op of the rank has its own time, whatever its peers computed between.
    int timed = 0;
    for (const OpTiming& t : (*gpu)->history().back().timings) {
      if (as_op_find(t.op)->phase == AS_PHASE_BEFORE || t.op == AS_OP_SPARSE_ATTENTION) continue;
      if (lanes.size() > 1 && t.op == AS_OP_WO_B) continue;
      EXPECT_EQ(t.microseconds, 7.0) << t.op;
      ++timed;
    }
    EXPECT_GT(timed, 40);
  }
}

TEST(TensorParallel, ADeviceThatFailsUnderAPeerIsLeft) {
  auto cpu = make(sliced(2, 0));
  finish(*cpu);
  for (const std::int64_t calls : {15, 90, 333}) {
    auto device = std::make_shared<HostDevice>();
    SessionOptions options;
    options.references = References::kNone;
    options.lanes = {"cuda"};
    options.threads = 2;
    options.rewind_every = 3;
    options.device = device;
    auto gpu = Session::create(sliced(2, 0), host_device::lanes(), options);
    ASSERT_TRUE(gpu) << gpu.error().text();
    device->fail_after = calls;
    finish(**gpu);
    ASSERT_TRUE((*gpu)->device_error()) << calls;
    EXPECT_NE((*gpu)->device_error()->message.find("fell off the bus"), std::string::npos);
    for (std::size_t i = 0; i < cpu->serving().requests().size(); ++i) {
      EXPECT_EQ((*gpu)->serving().requests()[i].tokens, cpu->serving().requests()[i].tokens);
    }
  }
}

}  // namespace tensor_parallel_test
}  // namespace attnscope
