// Absorbed MLA on several ranks: heads are dealt out, and all ranks select the same tokens.
#include <fmt/format.h>

#include <cmath>
#include <cstring>

#include "engine/family/models.h"
#include "engine/family/tensor_parallel.h"
#include "engine/model/numbers.h"
#include "kernels/cpu/codec.h"
#include "kernels/params/indexer_params.h"
#include "kernels/params/mla_params.h"
#include "tests/blame/dense_session.h"
#include "tests/blame/trial.h"
#include "tests/parallel/slices.h"

namespace attnscope {
namespace mla_ranks_test {

constexpr std::int64_t kLongest = 131;  // more than the 64 that are selected

std::unique_ptr<Session> rank_session(const char* model, int size, int rank,
                                      const std::vector<int>& layers = {},
                                      References references = References::kNone,
                                      bool witness = false) {
  Scenario scenario = dense_scenario(*preset(model, layers), 7, kLongest);
  scenario.parallel = {size, rank};
  SessionOptions options;
  options.references = references;
  options.witness = witness;
  options.threads = 2;
  auto session = Session::create(scenario, all_lanes(), options);
  EXPECT_TRUE(session) << session.error().text();
  return session ? std::move(*session) : nullptr;
}

// Sums over ranks have one order, so that sessions of both ranks are the same in all that heads do
// not divide: rows of the caches, index keys, scores, and what is selected.
TEST(MlaRanks, AllSelectTheSameTokens) {
  auto a = rank_session("tiny-v3.2", 2, 0), b = rank_session("tiny-v3.2", 2, 1);
  ASSERT_TRUE(a && b);
  int selections = 0, fewer = 0;
  while (!a->finished()) {
    ASSERT_TRUE(a->op());
    ASSERT_TRUE(b->op());
    if (!a->ran_any()) continue;
    const as_op_id op = a->last_params().op();
    ASSERT_EQ(op, b->last_params().op());
    if (op == AS_OP_INDEXER_LOGITS) {
      EXPECT_EQ(bytes_of(a->last_params().get<as_indexer_logits_params>().weights),
                bytes_of(b->last_params().get<as_indexer_logits_params>().weights));
    }
    if (op != AS_OP_INDEXER_TOPK) continue;
    const auto& p = a->last_params().get<as_indexer_topk_params>();
    EXPECT_EQ(bytes_of(p.indices), bytes_of(b->last_params().get<as_indexer_topk_params>().indices))
        << "step " << a->cursor().step << ", layer " << a->cursor().layer;
    ++selections;
    for (std::int64_t t = 0; t < p.lens.shape[0]; ++t) {
      fewer += *at<std::int32_t>(p.lens, t) > p.indices.shape[1] ? 1 : 0;
    }
  }
  EXPECT_GE(selections, 6);
  EXPECT_GE(fewer, 60) << "tokens that see more than they select";
}

// A layer alone, so that its input is the same on both sides.
TEST(MlaRanks, ARankHasTheHeadsOfTheWhole) {
  for (const char* model : {"tiny-v3", "tiny-v3.2"}) {
    for (const int rank : {0, 3}) {
      SCOPED_TRACE(fmt::format("{}, rank {} of 4", model, rank));
      auto part = rank_session(model, 4, rank, {1}), whole = rank_session(model, 1, 0, {1});
      ASSERT_TRUE(part && whole);
      EXPECT_EQ(part->parts().config.heads, 2);
      int compared = 0;
      while (!whole->finished()) {
        ASSERT_TRUE(whole->op());
        ASSERT_TRUE(part->op());
        if (!whole->ran_any()) continue;
        const OpParams &all = whole->last_params(), &own = part->last_params();
        if (all.op() == AS_OP_MLA_Q_ABSORB) {
          EXPECT_EQ(bytes_of(own.get<as_mla_q_absorb_params>().q),
                    slice_of(all.get<as_mla_q_absorb_params>().q, 4, rank));
          ++compared;
        } else if (all.op() == AS_OP_MLA_KV_INSERT) {
          EXPECT_EQ(bytes_of(own.get<as_mla_kv_insert_params>().kv_row),
                    bytes_of(all.get<as_mla_kv_insert_params>().kv_row));
          ++compared;
        } else if (all.op() == AS_OP_MLA_V_UP) {
          EXPECT_EQ(own.get<as_mla_v_up_params>().y.shape[1], 2);
          ++compared;
        }
      }
      EXPECT_GE(compared, 9);
    }
  }
}

TEST(MlaRanks, SessionsOfRanksAreRight) {
  if (all_lanes().find("ref.sim") == nullptr) GTEST_SKIP() << "skipped: no references";
  for (const char* model : {"tiny-v3", "tiny-v3.2"}) {
    SCOPED_TRACE(model);
    auto session = rank_session(model, 2, 1, {}, References::kBoth, true);
    ASSERT_TRUE(session);
    for (int i = 0; i < 3; ++i) {
      ASSERT_TRUE(session->step());
      const auto blamed = blame(session->history().back().results);
      EXPECT_TRUE(blamed.empty()) << sentences(blamed);
    }
  }
}

}  // namespace mla_ranks_test
}  // namespace attnscope
