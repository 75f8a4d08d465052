// What the panel "why" says, held against the value history that the engine works out by itself.
#include "app/views/why_view.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "app/views/boundary_view.h"
#include "app/views/score_terms.h"
#include "engine/family/deepseek_v4/caches.h"
#include "engine/session/place.h"
#include "engine/session/what_if/value_history.h"
#include "engine/trace/compare.h"
#include "kernels/params/row_access.h"
#include "tests/unit/app/stepped_session.h"

namespace attnscope {
namespace why_view_test {

class Why : public SteppedSession {
 protected:
  References references() const override { return References::kSim; }

  WhyView view(int layer, std::int64_t row, int head, std::int64_t dim) const {
    return why_view({*info_, *step_, layer, row, head, dim});
  }
  // By the session itself.
  std::int64_t written(int layer, const WhyRow& row, std::int32_t request) const {
    const bool entry = row.kind == WhyRow::Kind::kEntry;
    const SessionParts& parts = session_->parts();
    const CacheSpec& spec = *parts.layout.find(layer, entry ? kMainCache : kSwaCache);
    const std::int64_t base = session_->verifier().space().base(request, row_ratio(spec));
    return session_->verifier().shadow().written(spec, base + row.at);
  }
};

TEST_F(Why, RowsAreThoseOfTheEnginesOwnHistory) {
  change_session();
  for (const int layer : {1, 2}) {
    SCOPED_TRACE(layer);
    ASSERT_TRUE(go_to(*session_, {step_->step, layer, AS_OP_SPARSE_ATTENTION}));
    for (const std::int64_t dim : {3, 447, 448}) {
      const WhyView v = view(layer, row_, 1, dim);
      ASSERT_EQ(v.why_empty, "");
      const auto history = value_history(*session_, row_, 1, dim, {});
      ASSERT_TRUE(history) << history.error().text();
      EXPECT_EQ(v.request, history->request);
      EXPECT_EQ(v.position, history->position);
      EXPECT_EQ(v.output, history->output);
      EXPECT_EQ(v.reference, history->reference);
      std::int64_t known = 0;
      for (const WhyRow& row : v.rows) {
        const char* kind = row.kind == WhyRow::Kind::kSink     ? "sink"
                           : row.kind == WhyRow::Kind::kWindow ? "window"
                                                               : "entry";
        const auto same = std::ranges::find_if(history->contributions, [&](const auto& c) {
          return c.kind == kind && c.slot == row.slot;
        });
        ASSERT_NE(same, history->contributions.end()) << kind << " " << row.slot;
        EXPECT_EQ(row.at, same->row);
        EXPECT_EQ(row.weight, same->weight);
        EXPECT_EQ(row.logit, same->logit);
        if (std::isnan(row.value) || row.kind == WhyRow::Kind::kSink) continue;
        ++known;
        EXPECT_EQ(row.value, same->value) << row.bytes;
        EXPECT_NEAR(row.partial, same->partial, 1e-12);
        EXPECT_EQ(row.written, written(layer, row, v.request));
        EXPECT_GE(row.written, 0);
        EXPECT_LE(row.written, step_->step);
      }
      EXPECT_GT(known, 0);
      EXPECT_EQ(v.unknown, 0) << "the rows were written in five chunks and two steps before";
      EXPECT_EQ(known + 1, std::ssize(v.rows));
      EXPECT_TRUE(std::ranges::is_sorted(v.rows.begin(), v.rows.end() - 1, std::greater<>(),
                                         &WhyRow::weight));
    }
  }
}

TEST_F(Why, TheSentenceSaysWhatPutInHowMuch) {
  const WhyView v = view(1, row_, 0, 3);
  EXPECT_TRUE(v.sentence.starts_with("o of head 0, dim 3, token ")) << v.sentence;
  EXPECT_NE(v.sentence.find(": 128 window rows with "), std::string::npos) << v.sentence;
  EXPECT_NE(v.sentence.find("the sink took "), std::string::npos) << v.sentence;
  const std::string unknown = "rows are not known";
  EXPECT_EQ(v.sentence.find(unknown) != std::string::npos, v.unknown > 0) << v.sentence;
  EXPECT_TRUE(v.left_out.empty());
}

// Below the lowest selected score, in the order of their rank.
TEST(WhyLeftOut, EntriesThatWereNotSelected) {
  Scenario scenario = small_scenario(300, 8);
  scenario.model.index_topk = 64;
  const auto session = small_session(References::kNone, scenario);
  TraceRecorder recorder;
  session->set_observer(&recorder);
  run_steps(*session, 7);
  const auto info = session_info(*session);
  const auto snapshot = take_snapshot(*session, recorder, info, 1);
  const StepTrace& step = *snapshot->traces.back();
  const std::int64_t row = step.token_row(0, step.metadata.seq_lens[0] - 1);
  const WhyView v = why_view({*info, step, 1, row, 0, 3});
  ASSERT_EQ(v.why_empty, "");
  ASSERT_EQ(std::ssize(v.left_out), (v.position + 1) / 4 - 64);
  EXPECT_EQ(v.left_out[0].rank, 64);
  for (std::size_t i = 0; i < v.left_out.size(); ++i) {
    EXPECT_EQ(v.left_out[i].rank, v.left_out[0].rank + static_cast<std::int64_t>(i));
    EXPECT_GE(v.left_out[i].margin, 0);
  }
}

// Entries that the step before had selected and this one has not: those that came in their place.
TEST(WhyLeftOut, WhoPushedAnEntryOut) {
  Scenario scenario = small_scenario(300, 12);
  scenario.model.index_topk = 64;
  const auto session = small_session(References::kNone, scenario);
  TraceRecorder recorder;
  session->set_observer(&recorder);
  run_steps(*session, 14);
  const auto info = session_info(*session);
  const auto snapshot = take_snapshot(*session, recorder, info, 1);
  const auto selected = [](const StepTrace& step) {
    std::set<std::int32_t> out;
    const std::int64_t row = step.token_row(0, step.metadata.seq_lens[0] - 1);
    const TapCopy* indices = step.find_role(1, AS_ROLE_SELECT)->tap("indices");
    for (std::int64_t k = 0; k < indices->value.shape[1]; ++k) {
      const std::int32_t entry = *at<std::int32_t>(indices->value, step.kept_index(row), k);
      if (entry >= 0) out.insert(entry);
    }
    return out;
  };
  std::int64_t pushed = 0;
  for (std::size_t i = 6; i + 1 < snapshot->traces.size(); ++i) {
    const StepTrace &before = *snapshot->traces[i], &step = *snapshot->traces[i + 1];
    const std::set<std::int32_t> then = selected(before), now = selected(step);
    const std::int64_t row = step.token_row(0, step.metadata.seq_lens[0] - 1);
    WhyInput input{*info, step, 1, row, 0, 3};
    input.before = &before;
    const WhyView v = why_view(input);
    for (const WhyRow& entry : v.left_out) {
      const auto at = static_cast<std::int32_t>(entry.at);
      EXPECT_EQ(entry.was_in, then.contains(at)) << at;
      EXPECT_TRUE(now.contains(entry.last_in)) << "the last place is somebody's who was selected";
      if (!entry.was_in) {
        EXPECT_TRUE(entry.pushed_by.empty());
        continue;
      }
      ++pushed;
      EXPECT_FALSE(entry.pushed_by.empty());
      for (const std::int32_t by : entry.pushed_by) {
        EXPECT_TRUE(now.contains(by) && !then.contains(by)) << by;
      }
    }
  }
  EXPECT_GT(pushed, 0);
}

// The score of an entry, term by term, is the op's; of a query beyond the key's product with it the
// head adds nothing.
TEST_F(Why, TermsOfAnIndexScoreSumUpToIt) {
  const int layer = 1;
  const CacheSpec& keys = *session_->parts().layout.find(layer, kIndexCache);
  const Shadow& shadow = session_->verifier().shadow();
  const as_cache cache = shadow.cache(keys);
  const std::int64_t base = session_->verifier().space().base(0, row_ratio(keys));
  const TapCopy* logits = step_->find_role(layer, AS_ROLE_SCORE)->tap("logits");
  ASSERT_NE(logits, nullptr);
  std::vector<std::uint8_t> key(static_cast<std::size_t>(keys.row_bytes()));
  std::int64_t cut = 0;
  for (const std::int64_t entry : {std::int64_t{0}, std::int64_t{17}, (position_ + 1) / 4 - 1}) {
    as_row_get(&cache, base + entry, key.data());
    const ScoreTerms t = score_terms(*step_, layer, row_, entry, keys.record, key);
    ASSERT_EQ(t.why_empty, "");
    ASSERT_EQ(std::ssize(t.heads), info_->config.index_heads);
    double sum = 0, magnitude = 0;
    for (const ScoreTerm& h : t.heads) {
      EXPECT_EQ(h.relu, std::max(h.dot, 0.0));
      EXPECT_NEAR(h.term, h.weight * h.relu * t.key_scale, 1e-12 * std::fabs(h.term));
      EXPECT_NEAR(h.raw * h.q_scale * t.factor, h.weight, 1e-6 * std::fabs(h.weight));
      sum += h.term;
      magnitude += std::fabs(h.term);
    }
    cut += t.cut;
    EXPECT_EQ(sum, t.sum);
    EXPECT_EQ(t.score, element(logits->value, step_->kept_index(row_), entry));
    EXPECT_NEAR(t.sum, t.score, 1e-5 * magnitude);
    EXPECT_NE(t.sentence.find(" index heads add something"), std::string::npos) << t.sentence;
  }
  EXPECT_GT(cut, 0);
  const ScoreTerms beyond = score_terms(*step_, layer, row_, (position_ + 1) / 4, keys.record, key);
  EXPECT_NE(beyond.why_empty, "");
  EXPECT_NE(score_terms(*step_, 2, row_, 0, keys.record, key).why_empty, "") << "selects nothing";
}

TEST_F(Why, BoundariesNameTheTokenThatCompletesAnEntry) {
  for (const auto& [layer, ratio] : {std::pair(1, 4), std::pair(2, 128)}) {
    const BoundaryView v = boundary_view(*info_, *step_, layer, 0, position_, -1);
    ASSERT_EQ(v.why_empty, "");
    EXPECT_EQ(v.ratio, ratio);
    EXPECT_EQ(v.entry, position_ / ratio);
    ASSERT_EQ(v.cells.size(), 24u);
    const TokenRange pooled = tokens_of_entry(info_->layout, ratio, v.entry);
    std::int64_t token = v.cells.front().first;
    for (const BoundaryCell& cell : v.cells) {
      EXPECT_EQ(cell.first, token);
      token = cell.end;
      EXPECT_EQ(cell.own || cell.older, pooled.contains(cell.first));
      EXPECT_EQ(cell.own, cell.first / ratio == v.entry);
      EXPECT_EQ(cell.computed, cell.end <= position_ + 1);
      // The entry c is made by token (c + 1) r - 1 and no other.
      EXPECT_EQ(cell.completes, cell.end % ratio == 0 ? cell.end / ratio - 1 : -1);
    }
  }
  // In this very step: as its slots say.
  for (const auto& trace : snapshot_->traces) {
    const std::int64_t first = trace->metadata.num_computed[0];
    const BoundaryView v = boundary_view(*info_, *trace, 1, 0, first, -1);
    for (const BoundaryCell& cell : v.cells) {
      const std::int64_t row = trace->token_row(0, cell.first);
      EXPECT_EQ(cell.in_step, row >= 0);
      EXPECT_EQ(cell.slot >= 0, row >= 0 && (cell.first + 1) % 4 == 0) << cell.first;
    }
  }
  EXPECT_NE(boundary_view(*info_, *step_, 0, 0, position_, -1).why_empty, "") << "a window alone";
  EXPECT_NE(boundary_view(*info_, *step_, 1, 0, -1, -1).why_empty, "");
}

TEST_F(Why, WhatIsNotThereIsSaid) {
  EXPECT_NE(view(-1, row_, 0, 0).why_empty.find("Pick an op of a layer"), std::string::npos);
  EXPECT_NE(view(1, -1, 0, 0).why_empty.find("not kept"), std::string::npos);
  EXPECT_NE(view(1, row_, 99, 0).why_empty.find("no head 99"), std::string::npos);
}

TEST_F(Why, WritesOfASlot) {
  const RowsCopy* rows = step_->find(1, AS_OP_Q_ROPE_KV_INSERT)->cache_rows("cache");
  ASSERT_NE(rows, nullptr);
  ASSERT_FALSE(rows->slots.empty());
  const auto writes = writes_of_slot(*snapshot_, 1, rows->group, rows->slots.back());
  ASSERT_FALSE(writes.empty());
  EXPECT_EQ(writes.back().step, step_->step);
  EXPECT_EQ(writes.back().op, AS_OP_Q_ROPE_KV_INSERT);
  const std::int32_t token = rows->tokens.back();
  EXPECT_EQ(writes.back().request, step_->request_of(token));
  EXPECT_EQ(writes.back().position, step_->metadata.positions[static_cast<std::size_t>(token)]);
  EXPECT_TRUE(writes_of_slot(*snapshot_, 1, rows->group, 1 << 30).empty());
}

// Steps whose tensors have gone, and tokens of a chunk whose rows were never kept.
TEST(WhyOfLongAgo, ValuesAndWritesAreThere) {
  const auto session = small_session(References::kNone, small_scenario(260, 8));
  TraceRecorder all({.all_rows = true});
  TraceRecorder few({.budget_bytes = 1, .max_rows = 1});
  struct Both : SessionObserver {
    void op_done(const Session& s) override {
      a.op_done(s);
      b.op_done(s);
    }
    void step_done(const Session& s) override {
      a.step_done(s);
      b.step_done(s);
    }
    void went_back(const Session&) override {}
    Both(TraceRecorder& x, TraceRecorder& y) : a(x), b(y) {}
    TraceRecorder &a, &b;
  } both(all, few);
  session->set_observer(&both);
  run_steps(*session, 7);
  const auto info = session_info(*session);
  const auto whole = take_snapshot(*session, all, info, 1);
  const auto last = take_snapshot(*session, few, info, 1);
  ASSERT_LT(last->traces.size(), whole->traces.size());
  const StepTrace& step = *last->traces.back();
  const std::int64_t row = step.token_row(0, step.metadata.seq_lens[0] - 1);
  const WhyView v = why_view({*info, step, 1, row, 0, 3});
  ASSERT_EQ(v.why_empty, "");
  EXPECT_EQ(v.unknown, 0);
  std::int64_t before = 0;
  for (const WhyRow& read : v.rows) {
    if (read.kind == WhyRow::Kind::kSink) continue;
    EXPECT_FALSE(std::isnan(read.value));
    before += read.written < last->traces.front()->step ? 1 : 0;
  }
  EXPECT_GT(before, 100);
  int compared = 0;
  for (const auto& trace : whole->traces) {
    for (const auto& op : trace->ops) {
      if (op->place.layer != 1) continue;
      for (const RowsCopy& rows : op->rows) {
        for (const std::int64_t slot : rows.slots) {
          // By the lists of all steps, and by the rows of all traces.
          Snapshot recorded = *whole;
          std::vector<std::shared_ptr<const StepSummary>> bare;
          if (++compared % 40 != 1) continue;
          for (const auto& summary : whole->steps) {
            auto without = std::make_shared<StepSummary>(*summary);
            without->writes = nullptr;
            bare.push_back(std::move(without));
          }
          recorded.steps = bare;
          const auto expected = writes_of_slot(recorded, 1, rows.group, slot);
          EXPECT_EQ(writes_of_slot(*last, 1, rows.group, slot), expected);
          EXPECT_FALSE(expected.empty());
        }
      }
    }
  }
  EXPECT_GT(compared, 100);
}

}  // namespace why_view_test
}  // namespace attnscope
