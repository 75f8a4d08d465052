// Ranks of dense models: KV heads are dealt out, so that each rank has caches of its own. Its taps
// are the slice of the whole model's, its rows those that the session of that rank has, and what
// goes wrong on a peer alone is named with its rank.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>

#include "engine/family/models.h"
#include "engine/family/tensor_parallel.h"
#include "engine/model/numbers.h"
#include "engine/session/persist/session_file.h"
#include "kernels/cpu/codec.h"
#include "kernels/cpu/cpu_lane.h"
#include "kernels/params/paged_params.h"
#include "tests/blame/dense_session.h"
#include "tests/blame/planted_around.h"
#include "tests/blame/trial.h"
#include "tests/parallel/slices.h"
#include "tests/unit/app/host_device.h"

namespace attnscope {
namespace dense_ranks_test {

struct Ranks {
  const char* model;
  int size;
};

// KV heads: tiny-llama and the Gemma and Llama 4 shapes have 2, tiny-mha 4, tiny-mqa 1. The last
// three have fewer than ranks.
// Ranks of tiny-alibi have slopes of heads before and behind the eighth.
constexpr Ranks kRanks[] = {{"tiny-llama", 2},  {"tiny-gemma", 2}, {"tiny-mha", 4},
                            {"tiny-llama4", 2}, {"tiny-mqa", 2},   {"tiny-llama", 4},
                            {"tiny-mqa", 8},    {"tiny-alibi", 4}, {"tiny-kvshare", 2}};

Scenario rank_of(const Ranks& ranks, int rank) {
  Scenario scenario = dense_scenario(*preset(ranks.model));
  scenario.parallel = {ranks.size, rank};
  return scenario;
}

std::unique_ptr<Session> make(const Scenario& scenario, References references = References::kNone,
                              bool witness = false) {
  SessionOptions options;
  options.references = references;
  options.witness = witness;
  options.threads = 2;
  options.rewind_every = 2;
  auto session = Session::create(scenario, all_lanes(), options);
  EXPECT_TRUE(session) << session.error().text();
  return session ? std::move(*session) : nullptr;
}

// One that ships, as a rank.
Scenario shipped(const std::string& name, const TensorParallel& parallel) {
  auto scenario = load_scenario(name);
  EXPECT_TRUE(scenario) << scenario.error().text();
  scenario->parallel = parallel;
  return std::move(*scenario);
}

const as_tensor& output_of(const Session& session, std::string_view tap) {
  const OpParams& params = session.last_params();
  const as_tap_info* at = params.info().taps;
  while (tap != at->name) ++at;
  return params.tensor(at->offset);
}

// Length of the difference over the length of b.
double apart(const std::vector<double>& a, const std::vector<double>& b) {
  EXPECT_EQ(a.size(), b.size());
  double squares = 0, difference = 0;
  for (std::size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    squares += b[i] * b[i];
    difference += (a[i] - b[i]) * (a[i] - b[i]);
  }
  EXPECT_GT(squares, 0);
  return std::sqrt(difference / squares);
}

std::vector<double> numbers(const std::vector<std::uint8_t>& bytes, std::int32_t dtype) {
  std::vector<double> values(bytes.size() / to_size(as_dtype_size(dtype)));
  for (std::size_t i = 0; i < values.size(); ++i) {
    float wide = 0;
    std::uint16_t bits = 0;
    if (dtype == AS_F32) {
      std::memcpy(&wide, bytes.data() + 4 * i, 4);
    } else {
      std::memcpy(&bits, bytes.data() + 2 * i, 2);
      wide = cpu::bf16_to_float(bits);
    }
    values[i] = static_cast<double>(wide);
  }
  return values;
}

// A layer alone, so that its input is the same on both sides. Projections and rows are the same
// bytes; attention takes as many heads at once as share a KV head, in sums of another order.
TEST(DenseRanks, TapsOfARankAreTheSliceOfTheWhole) {
  for (const Ranks& ranks : kRanks) {
    for (const int rank : {0, ranks.size - 1}) {
      SCOPED_TRACE(fmt::format("{}, rank {} of {}", ranks.model, rank, ranks.size));
      Scenario scenario = rank_of(ranks, rank);
      scenario.model.layers = {1};
      auto part = make(scenario);
      scenario.parallel = {};
      auto whole = make(scenario);
      const int kv_heads = scenario.model.kv_heads, kv_parts = std::min(kv_heads, ranks.size);
      const int kv_part = rank * kv_parts / ranks.size;
      EXPECT_EQ(part->parts().config.kv_heads, std::max(1, kv_heads / ranks.size));
      int compared = 0;
      while (!whole->finished()) {
        ASSERT_TRUE(whole->op());
        ASSERT_TRUE(part->op());
        const as_op_id op = whole->last_params().op();
        if (!whole->ran_any() || as_op_find(op)->phase != AS_PHASE_LAYER) continue;
        const auto same = [&](const char* tap, int parts, int which) {
          EXPECT_EQ(bytes_of(output_of(*part, tap)), slice_of(output_of(*whole, tap), parts, which))
              << as_op_find(op)->name << ' ' << tap << ", step " << whole->cursor().step;
          ++compared;
        };
        if (op == AS_OP_Q_PROJ) same("y", ranks.size, rank);
        if (op == AS_OP_K_PROJ || op == AS_OP_V_PROJ) same("y", kv_parts, kv_part);
        if (op == AS_OP_ROPE_KV_INSERT) {
          same("q_out", ranks.size, rank);
          same("k_row", kv_parts, kv_part);
        }
        if (op == AS_OP_PAGED_ATTENTION) {
          for (const auto& [tap, limit] : {std::pair("o", 1e-3), std::pair("lse", 1e-6)}) {
            const as_tensor &own = output_of(*part, tap), &all = output_of(*whole, tap);
            EXPECT_LT(apart(numbers(bytes_of(own), own.dtype),
                            numbers(slice_of(all, ranks.size, rank), all.dtype)),
                      limit)
                << tap << ", step " << whole->cursor().step;
            ++compared;
          }
        }
        if (op != AS_OP_RESIDUAL) continue;
        const as_tensor &sum = part->last_params().get<as_residual_params>().y,
                        &y = whole->last_params().get<as_residual_params>().y;
        EXPECT_LT(apart(numbers(bytes_of(sum), AS_BF16), numbers(bytes_of(y), AS_BF16)), 0.005);
      }
      EXPECT_GT(compared, 10);
    }
  }
}

TEST(DenseRanks, EveryTapIsRightByAllReferences) {
  if (all_lanes().find("ref.sim") == nullptr) GTEST_SKIP() << "skipped: no references";
  for (const Ranks& ranks : kRanks) {
    for (const int rank : {0, 1}) {
      SCOPED_TRACE(fmt::format("{}, rank {} of {}", ranks.model, rank, ranks.size));
      auto session = make(rank_of(ranks, rank), References::kBoth, true);
      std::vector<TapResult> all;
      while (!session->finished()) {
        const auto ok = session->step();
        ASSERT_TRUE(ok) << ok.error().text();
        const auto& results = session->history().back().results;
        all.insert(all.end(), results.begin(), results.end());
      }
      EXPECT_TRUE(blame(all).empty()) << blame(all).front().sentence();
      const Summary summary = summarise(all, session->parts().tolerances.drift_limit());
      EXPECT_EQ(summary.verdict(), "ok");
      EXPECT_GT(summary.taps, 100);
      EXPECT_EQ(session->witnessed().left_out, "");
      EXPECT_GT(session->witnessed().rows, 0);
      EXPECT_LT(session->witnessed().worst, 1e-9);
    }
  }
}

// Preemption, and prefixes that are found, on every rank. ref.model knows of no ranks; the other
// rank goes on with the same tokens.
TEST(DenseRanks, LongSessionsAreRightByAllReferences) {
  if (all_lanes().find("ref.sim") == nullptr) GTEST_SKIP() << "skipped: no references";
  auto session = make(shipped("tiny-llama", {2, 1}), References::kBoth, true);
  auto other = make(shipped("tiny-llama", {2, 0}));
  std::size_t preempted = 0;
  while (!session->finished()) {
    ASSERT_TRUE(session->step());
    ASSERT_TRUE(other->step());
    preempted += session->serving().plan().preempted.size();
    const auto blamed = blame(session->history().back().results);
    ASSERT_TRUE(blamed.empty()) << blamed.front().sentence();
  }
  EXPECT_GT(preempted, 0u);
  EXPECT_LT(session->witnessed().worst, 1e-9);
  EXPECT_LT(session->witnessed().drift, 0.05);
  for (std::size_t i = 0; i < other->serving().requests().size(); ++i) {
    EXPECT_EQ(session->serving().requests()[i].tokens, other->serving().requests()[i].tokens);
  }
}

// Pages of a layer's values, of the rank that is seen (-1) or of a peer.
std::vector<std::uint8_t> pages_of(const Session& session, int peer) {
  std::vector<std::uint8_t> all;
  const CacheLayout& layout = session.parts().layout;
  for (int layer = 0; layer < session.parts().config.num_layers(); ++layer) {
    const CacheSpec& spec = *layout.find(layer, {AS_CACHE_V, 0}, peer);
    const std::vector<BlockOwner> owners = session.serving().owners();
    for (const std::int32_t id : session.serving().blocks_with_content()) {
      if (owners[to_size(id)].group != spec.group) continue;
      const std::uint8_t* page = session.slab().block(id) + spec.offset;
      all.insert(all.end(), page, page + spec.page_bytes);
    }
  }
  return all;
}

TEST(DenseRanks, PeersHaveTheRowsOfTheirOwnSessions) {
  for (const char* name : {"tiny-mha", "tiny-mqa"}) {
    auto first = make(rank_of({name, 2}, 0)), second = make(rank_of({name, 2}, 1));
    while (!first->finished()) {
      ASSERT_TRUE(first->step());
      ASSERT_TRUE(second->step());
      EXPECT_EQ(pages_of(*first, 1), pages_of(*second, -1)) << name;
      EXPECT_EQ(pages_of(*second, 0), pages_of(*first, -1)) << name;
    }
    // One KV head that both have; of four each has two others.
    EXPECT_EQ(pages_of(*first, 1) == pages_of(*first, -1), std::string(name) == "tiny-mqa");
  }
}

TEST(DenseRanks, GoesBackAndComesAgainToTheSameBytes) {
  auto session = make(shipped("tiny-llama", {2, 0}));
  std::vector<std::uint64_t> digests;
  while (!session->finished()) {
    digests.push_back(session->digest());
    ASSERT_TRUE(session->step());
  }
  const auto peers = pages_of(*session, 1);
  for (const std::int64_t to : {20, 3, 11}) {
    ASSERT_TRUE(session->seek({to, -1, 0, false}));
    EXPECT_EQ(session->digest(), digests[to_size(to)]) << to;
  }
  // In the middle of a layer, whose peers have not run yet.
  ASSERT_TRUE(session->seek({9, 1, 5, false}));
  ASSERT_TRUE(session->op_back());
  ASSERT_TRUE(session->step());
  EXPECT_EQ(session->digest(), digests[10]);
  while (!session->finished()) ASSERT_TRUE(session->step());
  EXPECT_EQ(pages_of(*session, 1), peers);
}

TEST(DenseRanks, AKeptSessionHasThePagesOfPeers) {
  if (all_lanes().find("ref.sim") == nullptr) GTEST_SKIP() << "skipped: no references";
  const std::string file =
      (std::filesystem::path(::testing::TempDir()) / fmt::format("ranks{}.session", ::getpid()))
          .string();
  const Scenario scenario = rank_of({"tiny-gemma", 2}, 1);
  auto session = make(scenario, References::kBoth);
  ASSERT_TRUE(session->step());
  ASSERT_TRUE(session->step());
  ASSERT_TRUE(save_session(*session, file, "key"));
  auto again = make(scenario, References::kBoth);
  const auto loaded = load_session(*again, file, "key");
  std::filesystem::remove(file);
  ASSERT_TRUE(loaded) << loaded.error().text();
  EXPECT_EQ(again->digest(), session->digest());
  while (!again->finished()) {
    ASSERT_TRUE(session->step());
    ASSERT_TRUE(again->step());
    EXPECT_EQ(again->digest(), session->digest());
    const auto blamed = blame(again->history().back().results);
    EXPECT_TRUE(blamed.empty()) << blamed.front().sentence();
  }
  ASSERT_TRUE(again->step_back());
  EXPECT_TRUE(again->replay_faults().empty());
}

TEST(DenseRanks, OnADeviceTheBytesAreThoseOfTheCpuLane) {
  auto cpu = make(rank_of({"tiny-llama", 2}, 1));
  SessionOptions options;
  options.references = References::kNone;
  options.lanes = {"cuda", "o_proj=cpu"};
  options.threads = 2;
  options.device = std::make_shared<HostDevice>();
  auto gpu = Session::create(rank_of({"tiny-llama", 2}, 1), host_device::lanes(), options);
  ASSERT_TRUE(gpu) << gpu.error().text();
  while (!cpu->finished()) {
    ASSERT_TRUE(cpu->step());
    const auto ok = (*gpu)->step();
    ASSERT_TRUE(ok) << ok.error().text();
    ASSERT_EQ((*gpu)->digest(), cpu->digest()) << cpu->cursor().step;
  }
  EXPECT_FALSE((*gpu)->device_error());
}

// What a bug of a kernel does on every rank is said of the one that is seen.
TEST(DenseRanks, PlantedBugsOfOpsAreNamedAsOnOneRank) {
  if (all_lanes().find("ref.sim") == nullptr) GTEST_SKIP() << "skipped: no references";
  for (const Ranks& ranks : {kRanks[0], kRanks[4]}) {
    Trial trial(session_of(rank_of(ranks, 1)));
    int shown = 0;
    for (const Lane& lane : mutants::lanes()) {
      for (int op = 0; op < AS_OP_COUNT; ++op) {
        if (lane.ops[op] == nullptr || !is_of_dense(op)) continue;
        SCOPED_TRACE(fmt::format("{}, {}", ranks.model, lane.name));
        const auto id = static_cast<as_op_id>(op);
        const std::vector<Blame> blamed = trial.run({{lane.name, id, id}});
        if (blamed.empty()) continue;
        ++shown;
        ASSERT_EQ(blamed.size(), 1u) << sentences(blamed);
        EXPECT_EQ(blamed[0].op, id) << sentences(blamed);
      }
    }
    EXPECT_GE(shown, 10);
  }
}

// The op on every second call, which is the peer's: signs of its first row.
template <as_op_id kOp>
std::int32_t wrong_in_peer(const void* params, const as_call* call, as_error* error) {
  static int calls = 0;
  const std::int32_t status = cpu::lane()->ops[kOp](params, call, error);
  if (++calls % 2 != 0) return status;
  const as_op_info& info = *as_op_find(kOp);
  const as_tap_info* out = info.taps;
  while (out->direction != AS_TAP_OUT || out->kind != AS_TAP_TENSOR) ++out;
  const as_tensor y = OpParams::of(kOp, params).tensor(out->offset);
  const std::int64_t row = as_tensor_numel(&y) / y.shape[0];
  for (std::int64_t i = 0; i < row; ++i) static_cast<std::uint16_t*>(y.data)[i] ^= 0x8000;
  return status;
}

// Row 0 of what is written, in the cache alone.
std::int32_t row_spoiled_in_peer(const void* params, const as_call* call, as_error* error) {
  static int calls = 0;
  const std::int32_t status = cpu::lane()->ops[AS_OP_ROPE_KV_INSERT](params, call, error);
  if (++calls % 2 != 0) return status;
  const auto& p = *static_cast<const as_rope_kv_insert_params*>(params);
  const std::int64_t slot = *at<std::int64_t>(p.slots, 0);
  std::vector<std::uint8_t> row(to_size(as_cache_row_bytes(&p.v_cache)));
  as_row_get(&p.v_cache, slot, row.data());
  row[1] ^= 0x80;
  as_row_put(&p.v_cache, slot, row.data());
  return status;
}

TEST(DenseRanks, AWrongOpOfAnotherRankIsNamed) {
  if (all_lanes().find("ref.sim") == nullptr) GTEST_SKIP() << "skipped: no references";
  struct Wrong {
    as_op_id op;
    as_op_fn function;
    const char* tap;
  };
  const Wrong all[] = {{AS_OP_K_PROJ, wrong_in_peer<AS_OP_K_PROJ>, "y"},
                       {AS_OP_PAGED_ATTENTION, wrong_in_peer<AS_OP_PAGED_ATTENTION>, "o"},
                       {AS_OP_ROPE_KV_INSERT, row_spoiled_in_peer, "v_cache"}};
  for (const Wrong& wrong : all) {
    SCOPED_TRACE(as_op_find(wrong.op)->name);
    LaneRegistry registry = all_lanes();
    Lane lane = *registry.find("cpu");
    lane.name = "wrong_in_peer";
    lane.ops[wrong.op] = wrong.function;
    registry.add(lane);
    SessionOptions options;
    options.references = References::kBoth;
    options.lanes = {"wrong_in_peer"};
    for (const int rank : {0, 1}) {
      auto session = Session::create(rank_of({"tiny-mha", 2}, rank), registry, options);
      ASSERT_TRUE(session) << session.error().text();
      ASSERT_TRUE((*session)->step());
      const auto blamed = blame((*session)->history().back().results);
      ASSERT_EQ(blamed.size(), 1u) << sentences(blamed);
      EXPECT_EQ(blamed[0].op, wrong.op) << sentences(blamed);
      EXPECT_EQ(blamed[0].first.layer, 0);
      EXPECT_EQ(blamed[0].first.tap, fmt::format("{}.rank{}", wrong.tap, 1 - rank));
      EXPECT_TRUE(blamed[0].first.note.starts_with(fmt::format("rank {}: ", 1 - rank)))
          << blamed[0].first.note;
    }
  }
}

TEST(DenseRanks, RowsOfAPeerThatChangeBetweenOpsAreNamed) {
  if (all_lanes().find("ref.sim") == nullptr) GTEST_SKIP() << "skipped: no references";
  auto session = make(rank_of({"tiny-llama", 2}, 0), References::kBoth);
  ASSERT_TRUE(session->step());
  const CacheSpec& keys = *session->parts().layout.find(2, {AS_CACHE_K, 0}, 1);
  const std::int32_t block = session->serving().table(0, keys.group)[1];
  session->slab().block(block)[keys.offset + 3] ^= 0x40;
  ASSERT_TRUE(session->step());
  const auto blamed = blame(session->history().back().results);
  ASSERT_EQ(blamed.size(), 1u) << sentences(blamed);
  EXPECT_TRUE(blamed[0].cache);
  EXPECT_EQ(blamed[0].op, AS_OP_ROPE_KV_INSERT);
  EXPECT_EQ(blamed[0].first.layer, 2);
  EXPECT_EQ(blamed[0].first.tap, "k_cache.rank1.between");
  EXPECT_NE(blamed[0].first.note.find("row 0) of the rank 1 k cache"), std::string::npos)
      << blamed[0].first.note;
}

TEST(DenseRanks, AWrongSumIsNamed) {
  static int layers;
  static const BetweenOps kHalved = {.summed = [](const as_tensor& y) {
    if (++layers == 6) at<bf16_t>(y, 3, 7)->bits ^= 0x80;
  }};
  layers = 0;
  expect_blamed(run_with(rank_of({"tiny-llama", 2}, 1), kHalved), 1, 1, AS_OP_O_PROJ, "y.sum",
                {"the sum over ranks", "token 3, column 7: ", "the parts of 2 ranks add up to"});
}

TEST(DenseRanks, NumbersOfRanksThatCannotBeAreNamed) {
  const auto text = [](const char* model, TensorParallel p) {
    const auto good = check_parallel(*preset(model), p);
    return good ? std::string("accepted") : good.error().text();
  };
  EXPECT_EQ(text("tiny-mqa", {8, 7}), "accepted");
  EXPECT_EQ(text("tiny-llama", {3, 0}),
            "3 ranks do not divide the 8 heads of tiny-llama; allowed: 1, 2, 4, 8");
  ModelConfig config = *preset("tiny-llama");
  config.name = "wide";
  config.heads = 12;
  config.kv_heads = 4;
  EXPECT_EQ(check_parallel(config, {6, 0}).error().text(),
            "6 ranks do not divide the 4 KV heads of wide; allowed: 1, 2, 4, 12");
}

}  // namespace dense_ranks_test
}  // namespace attnscope
