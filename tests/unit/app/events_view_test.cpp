// Events by kind, the newest of them as rows, what a click selects; the log as text.
#include "app/views/events_view.h"

#include <gtest/gtest.h>

namespace attnscope {
namespace events_view_test {

Event event(EventKind kind, std::int64_t step, std::int32_t request = -1, std::int32_t block = -1) {
  Event e;
  e.kind = kind;
  e.place = {step, -1, AS_OP_BLOCK_TABLES};
  e.request = request;
  e.group = block >= 0 ? 2 : -1;
  e.block = block;
  e.text = "something happened";
  return e;
}

Snapshot two_steps() {
  Snapshot snapshot;
  snapshot.info = std::make_shared<SessionInfo>();
  auto first = std::make_shared<StepSummary>();
  first->step = 0;
  first->events = {event(EventKind::kAdmit, 0, 1), event(EventKind::kAllocate, 0, 1, 5),
                   event(EventKind::kAllocate, 0, 1, 6)};
  auto second = std::make_shared<StepSummary>();
  second->step = 1;
  second->events = {event(EventKind::kSample, 1, 1), event(EventKind::kFree, 1, 1, 5)};
  snapshot.steps = {first, second};
  return snapshot;
}

constexpr std::uint32_t bit(EventKind kind) { return 1u << static_cast<unsigned>(kind); }

TEST(EventsView, HoldsTheNewestOfTheChosenKindsOldestFirst) {
  const Snapshot snapshot = two_steps();
  EventsView view = events_view(snapshot, kAllEventKinds, 100);
  ASSERT_EQ(view.rows.size(), 5u);
  EXPECT_EQ(view.rows.front()->kind, EventKind::kAdmit);
  EXPECT_EQ(view.rows.back()->kind, EventKind::kFree);
  EXPECT_FALSE(view.cut());
  view = events_view(snapshot, bit(EventKind::kAllocate) | bit(EventKind::kSample), 2);
  ASSERT_EQ(view.rows.size(), 2u);
  EXPECT_EQ(view.rows[0]->block, 6);
  EXPECT_EQ(view.rows[1]->kind, EventKind::kSample);
  EXPECT_TRUE(view.cut());
  EXPECT_EQ(view.all, 3);
  // Counts are of all events, whatever is shown.
  EXPECT_EQ(view.counts[static_cast<std::size_t>(EventKind::kAdmit)], 1);
  EXPECT_TRUE(events_view(snapshot, 0, 100).rows.empty());
}

TEST(EventsSentence, CountsWhatMatters) {
  Snapshot snapshot = two_steps();
  EventsView view = events_view(snapshot, kAllEventKinds, 100);
  EXPECT_EQ(events_sentence(view),
            "5 events in 2 steps: 1 request admitted, 2 blocks taken, 1 block given back, 1 token "
            "sampled, no wrong tap.");
  EXPECT_EQ(events_verdict(view), Verdict::kNotCompared);
  auto third = std::make_shared<StepSummary>();
  third->step = 2;
  third->events = {event(EventKind::kNearTie, 2), event(EventKind::kWrong, 2)};
  snapshot.steps.push_back(third);
  view = events_view(snapshot, kAllEventKinds, 3);
  const std::string text = events_sentence(view);
  EXPECT_NE(text.find(", 1 wrong tap, 1 near-tie. Shown: the newest 3 of 7."), std::string::npos)
      << text;
  EXPECT_EQ(events_verdict(view), Verdict::kWrong);
}

TEST(EventSelection, TakesRequestAndBlockAndNothingElse) {
  Selection before;
  before.request = 0;
  before.position = 17;
  before.head = 3;
  Selection after = event_selection(before, event(EventKind::kAllocate, 0, 1, 5));
  EXPECT_EQ(after.request, 1);
  EXPECT_EQ(after.position, -1);
  EXPECT_EQ(after.block, 5);
  EXPECT_EQ(after.group, 2);
  EXPECT_EQ(after.head, 3);
  after = event_selection(before, event(EventKind::kSample, 0, 0));
  EXPECT_EQ(after, before);  // the same request: its token stays selected
  EXPECT_EQ(event_selection(before, event(EventKind::kBack, 0)), before);
}

TEST(EventKinds, AreFoundByName) {
  for (int kind = 0; kind < kEventKinds; ++kind) {
    EXPECT_EQ(event_kind_by_name(event_kind_name(static_cast<EventKind>(kind))), kind);
  }
  EXPECT_EQ(event_kind_by_name("explode"), -1);
  EXPECT_NE(event_kind_names().find("allocate"), std::string::npos);
}

TEST(EventPlace, IsOneOfTheModelsOps) {
  SessionInfo info;
  info.ops_before = {AS_OP_SCHEDULE, AS_OP_BLOCK_TABLES};
  EXPECT_TRUE(event_has_place(info, event(EventKind::kFree, 2)));
  EXPECT_FALSE(event_has_place(info, event(EventKind::kFree, -1)));
}

TEST(Log, IsCountedAndCopiedAsText) {
  std::deque<Message> messages;
  EXPECT_EQ(log_sentence(messages), "No message so far: nothing failed and nothing was refused.");
  messages.push_back({Message::Kind::kInfo, "opened", 0.5});
  messages.push_back({Message::Kind::kError, "no such block", 1.25});
  EXPECT_EQ(log_sentence(messages), "2 messages, 1 error; the newest is the last.");
  EXPECT_EQ(log_text(messages), "0.500 s\tinfo\topened\n1.250 s\terror\tno such block\n");
}

}  // namespace events_view_test
}  // namespace attnscope
