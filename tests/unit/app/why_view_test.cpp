// What the panel "why" says, held against the value history that the engine works out by itself.
#include "app/views/why_view.h"

#include <algorithm>
#include <cmath>

#include "engine/family/deepseek_v4/caches.h"
#include "engine/session/place.h"
#include "engine/session/what_if/value_history.h"
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
