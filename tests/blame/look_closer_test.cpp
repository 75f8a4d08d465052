// Value history, what-if, a row alone, the invariants of a step, and what a run has exercised.
#include <algorithm>
#include <cmath>

#include "engine/family/models.h"
#include "engine/session/coverage.h"
#include "engine/session/place.h"
#include "engine/session/what_if/dump_invariants.h"
#include "engine/session/what_if/pooled_tokens.h"
#include "engine/session/what_if/row_alone.h"
#include "engine/session/what_if/value_history.h"
#include "engine/session/what_if/what_if.h"
#include "reference/register.h"
#include "tests/blame/dense_session.h"
#include "tests/blame/trial.h"

namespace attnscope {
namespace look_closer_test {

// Runs until `op` of the C4A layer of the step under test, keeping the indexer's scores.
void run_to(Session& session, as_op_id op, KeptScores* scores = nullptr) {
  const Place place{kStepUnderTest, 1, op};
  while (!session.ran_any() || !(last_place(session) == place)) {
    ASSERT_TRUE(session.op());
    if (scores != nullptr) keep_scores(session, scores);
    ASSERT_FALSE(session.finished());
  }
}

std::unique_ptr<Session> with_lane(const std::string& lane) {
  auto session = tiny_session();
  EXPECT_TRUE(session->step());
  EXPECT_TRUE(session->change_lanes(all_lanes(), {"cpu", lane}, kStepUnderTest));
  return session;
}

TEST(ValueHistory, ContributionsSumToTheOutputAndMassesToOne) {
  auto session = tiny_session();
  KeptScores scores;
  run_to(*session, AS_OP_SPARSE_ATTENTION, &scores);
  for (const std::int64_t token : {0, 21, 22, 39}) {
    for (const std::int64_t dim : {0, 63, 447, 448, 511}) {
      const auto history = value_history(*session, token, 1, dim, scores);
      ASSERT_TRUE(history) << history.error().text();
      EXPECT_NEAR(history->sum, history->output, 0.02 + 0.01 * std::fabs(history->output));
      EXPECT_NEAR(history->output, history->reference, 1e-3 + 0.02 * std::fabs(history->output));
      double mass = 0;
      std::int64_t window = 0, entries = 0, left_out = 0;
      for (const Contribution& c : history->contributions) {
        mass += c.weight;
        window += c.kind == "window" && c.status == "contributed" ? 1 : 0;
        entries += c.kind == "entry" && c.status == "contributed" ? 1 : 0;
        left_out += c.status == "not selected" ? 1 : 0;
        if (c.status == "not selected") {
          EXPECT_GE(c.rank, entries);
          EXPECT_GE(c.margin, 0);
        }
      }
      EXPECT_NEAR(mass, 1, 1e-5);
      EXPECT_EQ(window, std::min<std::int64_t>(history->position + 1, 128));
      EXPECT_EQ(entries, std::min<std::int64_t>((history->position + 1) / 4, 64));
      EXPECT_EQ(entries + left_out, (history->position + 1) / 4);
    }
  }
}

TEST(ValueHistory, WhatIsNotThereIsSaid) {
  auto session = tiny_session();
  run_to(*session, AS_OP_SPARSE_ATTENTION);
  for (const auto& [token, head, dim] :
       {std::array{40, 0, 0}, {0, 4, 0}, {0, 0, 512}, {-1, 0, 0}}) {
    const auto history = value_history(*session, token, head, dim, {});
    ASSERT_FALSE(history);
    EXPECT_NE(history.error().text().find("0 to "), std::string::npos);
  }
  ASSERT_TRUE(session->op());
  EXPECT_FALSE(value_history(*session, 0, 0, 0, {}));
}

TEST(ValueHistory, PooledTokensOfAnEntry) {
  auto session = tiny_session();
  run_to(*session, AS_OP_SPARSE_ATTENTION);
  for (const bool index : {false, true}) {
    const auto tokens = pooled_tokens(*session, 1, 0, 7, 3, index);
    ASSERT_TRUE(tokens) << tokens.error().text();
    ASSERT_EQ(tokens->size(), 8u);
    EXPECT_EQ(tokens->front().position, 24);
    EXPECT_EQ(tokens->back().position, 31);
    double weights = 0, means = 0, largest = -1e30, sum = 0;
    const Weight& ape =
        session->parts().weights->layers[1][index ? "indexer.ape" : "compressor.ape"];
    const std::int64_t dim = index ? 128 : 512;
    for (const PooledToken& t : *tokens) largest = std::max(largest, t.score);
    for (const PooledToken& t : *tokens) sum += std::exp(t.score - largest);
    for (const PooledToken& t : *tokens) {
      // The bias of its place in its window, of the first half for the window before.
      EXPECT_EQ(t.ape, ape.f32.data()[t.position % 4 * 2 * dim + (t.older_half ? 0 : dim) + 3]);
      EXPECT_NE(t.ape, 0);
      EXPECT_NEAR(t.weight, std::exp(t.score - largest) / sum, 1e-12);
      weights += t.weight;
      means += t.mean_weight;
      EXPECT_EQ(t.older_half, t.position < 28);
    }
    EXPECT_NEAR(weights, 1, 1e-9);
    EXPECT_NEAR(means, 1, 1e-9);
  }
  // The first entry has no window before it; a C128A entry pools 128 tokens of its own.
  EXPECT_EQ(pooled_tokens(*session, 1, 1, 0, 0, false)->size(), 4u);
  const auto early = pooled_tokens(*session, 1, 0, 5000, 0, false);
  ASSERT_FALSE(early);
  EXPECT_NE(early.error().text().find("no entry 5000"), std::string::npos);
  EXPECT_FALSE(pooled_tokens(*session, 0, 0, 0, 0, false));
}

TEST(WhatIf, NamesTheChangeThatRemovesTheError) {
  const struct {
    const char* lane;
    as_op_id op;
    const char* cure;
  } cases[] = {{"mutant:sink_scaled", AS_OP_SPARSE_ATTENTION, "no sink"},
               {"mutant:parts_averaged", AS_OP_SPARSE_ATTENTION, "window alone"},
               {"mutant:rope_half_split", AS_OP_Q_ROPE_KV_INSERT, "no rotation"},
               {"mutant:inverse_rope_forward", AS_OP_INVERSE_ROPE, "no rotation"},
               {"mutant:entry_norm_unweighted", AS_OP_COMPRESS_INSERT, "unit norm weights"},
               {"mutant:ape_row_shifted", AS_OP_COMPRESSOR_STATE, "no position bias"},
               {"mutant:topk_by_magnitude", AS_OP_INDEXER_TOPK, "positive scores"}};
  for (const auto& c : cases) {
    SCOPED_TRACE(c.lane);
    auto session = with_lane(fmt::format("{}={}", op_name(c.op), c.lane));
    run_to(*session, c.op);
    const std::uint64_t digest = session->digest();
    const auto results = what_if(*session, all_lanes(), {.lanes = {"cpu", "no such lane"}});
    ASSERT_TRUE(results) << results.error().text();
    EXPECT_FALSE(results->front().right());
    const std::string sentence = what_if_sentence(*results);
    EXPECT_NE(sentence.find(c.cure), std::string::npos) << sentence;
    EXPECT_NE(sentence.find("lane cpu"), std::string::npos) << sentence;
    EXPECT_EQ(session->digest(), digest);
  }
}

TEST(WhatIf, ASoundOpHasNothingToRemove) {
  auto session = tiny_session();
  while (session->cursor().step < 2) {
    ASSERT_TRUE(session->op());
    if (!session->ran_any() || session->last_params().info().phase == AS_PHASE_BEFORE) continue;
    const auto results =
        what_if(*session, all_lanes(), {.lanes = {}, .fp32 = reference::fp32_lane()});
    ASSERT_TRUE(results) << results.error().text();
    for (const WhatIf& r : *results) {
      EXPECT_TRUE(r.right()) << session->last_params().info().name << ", " << r.change << ": "
                             << r.error << " " << (r.introduced ? r.introduced->worst_tap : "");
    }
  }
}

const WhatIf& named(const std::vector<WhatIf>& results, std::string_view change) {
  return *std::find_if(results.begin(), results.end(),
                       [&](const WhatIf& r) { return r.change == change; });
}

// The op is right on its inputs; what it was told to read is not.
TEST(WhatIf, ReferenceIndicesBringBackTheHistory) {
  auto session = with_lane("indexer_topk=mutant:topk_one_short");
  run_to(*session, AS_OP_SPARSE_ATTENTION);
  const auto results = what_if(*session, all_lanes(), {});
  ASSERT_TRUE(results) << results.error().text();
  EXPECT_TRUE(results->front().right());
  const double before = *results->front().from_history;
  const WhatIf& changed = named(*results, "reference indices");
  EXPECT_TRUE(changed.right());
  EXPECT_LT(*changed.from_history, before / 10);
  const std::string sentence = what_if_sentence(*results);
  EXPECT_NE(sentence.find("what differs is which rows it reads"), std::string::npos) << sentence;
}

TEST(WhatIf, UnquantisedRowsTakeTheFormatsErrorAway) {
  for (const as_op_id op : {AS_OP_SPARSE_ATTENTION, AS_OP_INDEXER_LOGITS}) {
    SCOPED_TRACE(op_name(op));
    auto session = tiny_session();
    UnquantisedRows rows(1), late(1);
    while (!session->ran_any() || !(last_place(*session) == Place{kStepUnderTest, 1, op})) {
      ASSERT_TRUE(session->op());
      if (!session->ran_any()) continue;
      rows.op_done(*session);
      if (session->cursor().step == kStepUnderTest) late.op_done(*session);
    }
    const auto results = what_if(*session, all_lanes(), {.lanes = {}, .unquantised = &rows});
    ASSERT_TRUE(results) << results.error().text();
    EXPECT_GT(results->front().from_exact->budget_used, 1);
    const WhatIf& changed = named(*results, "unquantised cache");
    EXPECT_LT(changed.from_exact->budget_used, 1);
    EXPECT_FALSE(changed.introduced);
    const std::string sentence = what_if_sentence(*results);
    EXPECT_NE(sentence.find("that is the cache's format"), std::string::npos) << sentence;
    // Rows that were written before it looked are not guessed.
    const auto unknown = what_if(*session, all_lanes(), {.lanes = {}, .unquantised = &late});
    ASSERT_TRUE(unknown);
    EXPECT_FALSE(unknown->front().from_exact);
    EXPECT_EQ(unknown->size() + 1, results->size());
  }
}

TEST(RowAlone, IsTheSameBitsAndSeesWhatDependsOnTheBatch) {
  auto session = tiny_session();
  run_to(*session, AS_OP_SPARSE_ATTENTION);
  for (const std::int64_t token : {0, 13, 39}) {
    const RowAlone alone = run_row_alone(*session, token);
    EXPECT_TRUE(alone.possible);
    EXPECT_GT(alone.elements, 0);
    EXPECT_EQ(alone.differing, 0) << alone.worst;
  }
  EXPECT_FALSE(run_row_alone(*session, 40).possible);
  for (const as_op_id op : {AS_OP_Q_ROPE_KV_INSERT, AS_OP_COMPRESSOR_STATE, AS_OP_COMPRESS_INSERT,
                            AS_OP_INDEXER_COMPRESS_INSERT}) {
    SCOPED_TRACE(op_name(op));
    session = tiny_session();
    run_to(*session, op);
    for (const std::int64_t token : {5, 9, 25}) {
      const RowAlone alone = run_row_alone(*session, token);
      EXPECT_TRUE(alone.possible);
      EXPECT_EQ(alone.differing, 0) << alone.worst;
    }
    EXPECT_GT(run_row_alone(*session, 25).elements, 0);
  }
  // A list as long as the request's longest depends on who else is there.
  session = with_lane("topk_to_slots=mutant:topk_length_from_count");
  run_to(*session, AS_OP_TOPK_TO_SLOTS);
  EXPECT_GT(run_row_alone(*session, 22).differing, 0);
}

struct Looked {
  std::vector<Invariant> invariants;
  std::vector<CoveredPath> coverage;
  const Invariant& of(const std::string& name) const {
    return *std::find_if(invariants.begin(), invariants.end(),
                         [&](const Invariant& i) { return i.name == name; });
  }
};

Looked look(const std::string& lane, int steps) {
  auto session = tiny_session();
  DumpInvariants invariants(session->parts().config);
  Coverage coverage(session->parts().config);
  bool changed = lane.empty();
  while (session->cursor().step < steps) {
    if (session->cursor().step == kStepUnderTest && !changed) {
      EXPECT_TRUE(session->change_lanes(all_lanes(), {"cpu", lane}, kStepUnderTest));
      changed = true;
    }
    if (!session->op()) break;
    if (!session->ran_any()) continue;
    invariants.op_done(*session);
    coverage.op_done(*session);
  }
  return {invariants.all(), coverage.all()};
}

TEST(Invariants, AllAreCheckedAndHoldInASoundRun) {
  const Looked sound = look("", 3);
  for (const Invariant& i : sound.invariants) {
    EXPECT_GT(i.checked, 0) << i.name;
    EXPECT_EQ(i.broken, 0) << i.name << " " << i.first;
  }
}

TEST(Invariants, EachIsBrokenByABugOfItsKind) {
  const struct {
    const char* lane;
    const char* name;
  } cases[] = {{"swa_index=mutant:window_off_by_one", "window_rows"},
               {"swa_index=mutant:window_rebased_twice", "own_blocks"},
               {"indexer_topk=mutant:topk_entry_twice", "selected_entries"},
               {"c128_index=mutant:c128_entry_early", "c128_entries"},
               {"slot_mapping=mutant:c4_slot_of_entry_before", "entries_written"},
               {"q_rope_kv_insert=mutant:scale_rounded_down", "quantised_bytes"},
               {"block_tables=mutant:newest_block_null", "state_rows"},
               {"sparse_attention=mutant:lse_with_sink", "attention_mass"}};
  for (const auto& c : cases) {
    const Looked looked = look(c.lane, 2);
    const Invariant& invariant = looked.of(c.name);
    // A rounded-down scale leaves the largest code above 224: the bytes are sound, the row is not.
    const bool holds = std::string(c.name) == "quantised_bytes";
    EXPECT_EQ(invariant.broken > 0, !holds) << c.lane << " " << c.name;
    EXPECT_EQ(invariant.first.starts_with("step 1"), !holds) << invariant.first;
  }
}

Looked look_at_dense(const std::string& model, const std::string& lane) {
  auto session = session_of(dense_scenario(*preset(model)));
  DumpInvariants invariants(session->parts().config);
  bool changed = lane.empty();
  while (session->cursor().step < 3 && !session->finished()) {
    if (session->cursor().step == kStepUnderTest && !changed) {
      EXPECT_TRUE(session->change_lanes(all_lanes(), {"cpu", lane}, kStepUnderTest));
      changed = true;
    }
    if (!session->op()) break;
    if (session->ran_any()) invariants.op_done(*session);
  }
  return {invariants.all(), {}};
}

TEST(DenseInvariants, AllAreCheckedAndHoldInASoundRun) {
  for (const std::string& model : dense_names()) {
    const Looked sound = look_at_dense(model, "");
    EXPECT_EQ(sound.invariants.size(), 5u);
    for (const Invariant& i : sound.invariants) {
      EXPECT_GT(i.checked, 0) << model << ' ' << i.name;
      EXPECT_EQ(i.broken, 0) << model << ' ' << i.name << ' ' << i.first;
    }
  }
}

TEST(DenseInvariants, EachIsBrokenByABugOfItsKind) {
  const struct {
    const char* lane;
    const char* name;
  } cases[] = {{"slot_mapping=mutant:slot_rebased_twice", "own_slots"},
               {"slot_mapping=mutant:slot_rebased_twice", "rows_written"},
               {"paged_attention=mutant:scale_missing", "attention_mass"}};
  for (const auto& c : cases) {
    const Looked looked = look_at_dense("tiny-llama", c.lane);
    EXPECT_GT(looked.of(c.name).broken, 0) << c.lane;
  }
}

TEST(DenseCoverage, SaysTheBlocksOfTheModel) {
  const std::pair<const char*, const char*> cases[] = {{"tiny", "the same 256 tokens"},
                                                       {"tiny-llama", "the same 16 tokens"},
                                                       {"tiny-gemma", "the same 8 tokens"},
                                                       {"tiny-mha", "the same token"}};
  for (const auto& [model, words] : cases) {
    const std::vector<CoveredPath> all = Coverage(*preset(model)).all();
    const auto hit = std::ranges::find(all, std::string("prefix_hit"), &CoveredPath::name);
    ASSERT_NE(hit, all.end());
    EXPECT_NE(hit->advice.find(words), std::string::npos) << hit->advice;
  }
}

TEST(ExerciseCoverage, SaysWhatWasMetAndWhatWasNot) {
  const Looked looked = look("", 3);
  const auto count = [&](const std::string& name) {
    for (const CoveredPath& e : looked.coverage) {
      if (e.name == name) return e.count;
    }
    return std::int64_t{-1};
  };
  for (const char* name : {"selective_indexer", "window_moved", "c128_boundary", "first_c4_window",
                           "split_c4_window", "several_requests", "row_of_two_tiles"}) {
    EXPECT_GT(count(name), 0) << name;
  }
  for (const char* name : {"short_prompt", "recomputed", "prefill_beside_decode"}) {
    EXPECT_EQ(count(name), 0) << name;
  }
  for (const CoveredPath& e : looked.coverage) {
    EXPECT_FALSE(e.sentence.empty());
    EXPECT_FALSE(e.advice.empty());
    EXPECT_EQ(e.first_step < 0, e.count == 0) << e.name;
  }
  // A model without such layers is not asked for them.
  const Coverage windows_only(*preset("tiny", {0}));
  for (const CoveredPath& e : windows_only.all()) {
    EXPECT_NE(e.name, "c128_boundary");
    EXPECT_NE(e.name, "selective_indexer");
  }
}

// What must hold of a step and which paths there are a family says, if it does.
TEST(ExerciseCoverage, AFamilyOfItsOwnHasNoneOfDeepSeekV4s) {
  ModelConfig other = *preset("tiny");
  EXPECT_EQ(DumpInvariants(other).all().size(), 11u);
  const std::size_t all = Coverage(other).all().size();
  other.family = "another";
  EXPECT_TRUE(DumpInvariants(other).all().empty());
  const std::vector<CoveredPath> common = Coverage(other).all();
  EXPECT_EQ(common.size() + 11, all);
  for (const CoveredPath& path : common) EXPECT_FALSE(path.sentence.empty()) << path.name;
}

}  // namespace look_closer_test
}  // namespace attnscope
