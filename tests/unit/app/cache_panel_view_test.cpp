// Views of the cache panel: what a block went through, who waits, what is left in the free list.
#include <gtest/gtest.h>

#include <algorithm>

#include "app/views/cache_view.h"
#include "app/views/common_prefix_view.h"
#include "app/views/linkage.h"
#include "app/wiring/wiring.h"
#include "engine/family/models.h"
#include "tests/unit/app/trace_session.h"

namespace attnscope {
namespace cache_panel_view_test {

// Two prompts that begin alike; the second comes when the first is computed.
class CacheView : public ::testing::Test {
 protected:
  void SetUp() override {
    Scenario s;
    s.model = *preset("tiny", {1, 2});
    s.seed = 11;
    s.pool_blocks = 260;
    s.limits = {128, 2};
    for (int i = 0; i < 3; ++i) {
      ScenarioRequest& r = s.requests.emplace_back();
      r.name = i == 0 ? "donor" : i == 1 ? "reader" : "waits";
      for (std::int32_t t = 0; t < 300 - 10 * i; ++t) r.tokens.push_back((t * 29 + t / 7) % 251);
      r.max_new_tokens = 8;
      r.arrival_step = i == 0 ? 0 : 4;
    }
    SessionOptions options;
    options.references = References::kNone;
    options.threads = 2;
    auto session = Session::create(s, all_lanes(), options);
    ASSERT_TRUE(session) << session.error().text();
    session_ = std::move(*session);
    session_->set_observer(&recorder_);
    run_steps(*session_, 5);
    info_ = session_info(*session_);
    snapshot_ = take_snapshot(*session_, recorder_, info_, 1);
    step_ = snapshot_->traces.back().get();
  }

  BlockLife life_of(std::int32_t block) const {
    return block_life(*info_, *step_, block, kept_block_events(snapshot_->steps));
  }

  TraceRecorder recorder_;
  std::unique_ptr<Session> session_;
  std::shared_ptr<const SessionInfo> info_;
  std::shared_ptr<const Snapshot> snapshot_;
  const StepTrace* step_ = nullptr;
};

TEST_F(CacheView, ChecksSayWhatBroke) {
  session_->set_invariants(Invariants::kCall);
  run_steps(*session_, 1);
  ChecksView view = checks_view(*take_snapshot(*session_, recorder_, info_, 2));
  EXPECT_NE(view.sentence.find("nothing was broken"), std::string::npos) << view.sentence;
  EXPECT_TRUE(view.broken.empty());
  // Somebody gives a running request's newest block away.
  auto& serving = const_cast<Serving&>(session_->serving());
  const std::vector<std::int32_t> last = {session_->serving().table(0, 0).back()};
  serving.scheduler().kv().pool().release(last);
  ASSERT_FALSE(session_->step());
  view = checks_view(*take_snapshot(*session_, recorder_, info_, 3));
  EXPECT_EQ(view.sentence.find("nothing was broken"), std::string::npos) << view.sentence;
  EXPECT_NE(view.sentence.find("is broken; the session has stopped there"), std::string::npos);
  EXPECT_TRUE(std::ranges::any_of(view.rows, [&](const CheckedInvariant& row) {
    return view.broken == row.name;
  })) << view.broken;
}

TEST_F(CacheView, LifeOfASharedBlockNamesItsHoldersAndTellsItsStory) {
  const std::int32_t block = step_->requests[1].tables[0][0];
  EXPECT_EQ(holders_of(*step_, block), (std::vector<std::int32_t>{0, 1}));
  const BlockLife life = life_of(block);
  EXPECT_NE(life.sentence.find("positions 0-255 of donor"), std::string::npos) << life.sentence;
  EXPECT_NE(life.sentence.find("held by donor and reader, a lookup finds it"), std::string::npos)
      << life.sentence;
  ASSERT_GE(life.events.size(), 3u);
  EXPECT_EQ(life.events[0].kind, CacheEventKind::kAllocate);
  EXPECT_EQ(life.events[1].kind, CacheEventKind::kCache);
  EXPECT_EQ(life.events[2].kind, CacheEventKind::kTouch);
  EXPECT_EQ(life.events[2].refs, 2);
  EXPECT_EQ(life.events[0].stage, AllocationStage::kNewBlocks);
  EXPECT_EQ(life.events[2].stage, AllocationStage::kPrefix);
  EXPECT_NE(life.sentence.find("in all 5 steps"), std::string::npos) << life.sentence;
  EXPECT_NE(life_of(0).sentence.find("null block"), std::string::npos);
  EXPECT_TRUE(life_of(-1).events.empty());
  const std::int32_t free = step_->free_list.back();
  EXPECT_NE(life_of(free).sentence.find("is free"), std::string::npos);
}

TEST_F(CacheView, ACommonPrefixNamesItsBlocksAndWhereItEnds) {
  CommonPrefixView view = common_prefix_view(*info_, *step_);
  ASSERT_EQ(view.groups.size(), info_->layout.groups.size());
  const CommonPrefix& full = view.groups[0];
  // donor and reader share the first 256 tokens; the third waits and holds nothing.
  EXPECT_EQ(full.blocks, 1);
  EXPECT_EQ(full.tokens, 256);
  EXPECT_EQ(full.last, step_->requests[1].tables[0][0]);
  EXPECT_EQ(full.next, step_->requests[0].tables[0][1]);
  EXPECT_NE(full.why.find("is held by donor alone"), std::string::npos) << full.why;
  for (std::size_t g = 1; g < view.groups.size(); ++g) {
    EXPECT_EQ(view.groups[g].blocks, 0) << view.groups[g].name;
    EXPECT_NE(view.groups[g].why.find("window"), std::string::npos);
  }
  EXPECT_NE(view.sentence.find("All 2 requests begin with the same 1 block of MLA, 256 tokens"),
            std::string::npos)
      << view.sentence;
  // Before the second came, and of a file that does not say.
  view = common_prefix_view(*info_, *snapshot_->traces.front());
  EXPECT_NE(view.sentence.find("One request alone"), std::string::npos) << view.sentence;
  StepTrace old = *step_;
  old.common_prefix.clear();
  EXPECT_TRUE(common_prefix_view(*info_, old).groups.empty());
}

TEST_F(CacheView, TheFreeListSaysWhatIsStillFoundInIt) {
  const auto& requests = session_->serving().requests();
  while (requests[0].state != RequestState::kFinished) run_steps(*session_, 1);
  run_steps(*session_, 1);
  snapshot_ = take_snapshot(*session_, recorder_, info_, 2);
  step_ = snapshot_->traces.back().get();
  const FreeListView view = free_list_view(*info_, *step_);
  ASSERT_EQ(view.entries.size(), step_->free_list.size());
  std::int64_t keyed = 0;
  for (std::size_t i = 0; i < view.entries.size(); ++i) {
    EXPECT_EQ(view.entries[i].block, step_->free_list[i]);
    const bool has_key = step_->owners[static_cast<std::size_t>(view.entries[i].block)].keyed;
    EXPECT_EQ(!view.entries[i].holds.empty(), has_key);
    keyed += has_key ? 1 : 0;
  }
  EXPECT_EQ(keyed, snapshot_->steps.back()->usage.free_keyed);
}

TEST_F(CacheView, PrefixesNameTheirContent) {
  const PrefixView view = prefix_view(*info_, *step_);
  ASSERT_EQ(view.entries.size(), step_->keys.size());
  for (const PrefixEntry& e : view.entries) {
    EXPECT_EQ(e.hash.size(), 16u);
    EXPECT_EQ(e.tokens % 4, 0);
    EXPECT_FALSE(e.text.empty());
    EXPECT_NE(e.holds.find(" of donor"), std::string::npos) << e.holds;
  }
}

TEST_F(CacheView, RequestsSayWhatTheyFoundAndWhyOneWaits) {
  const CacheRequestsView view = cache_requests_view(*info_, *step_);
  ASSERT_EQ(view.rows.size(), 3u);
  EXPECT_EQ(view.rows[1].hit, 256);
  EXPECT_GT(view.rows[1].shared, 0);
  EXPECT_NE(view.rows[1].why.find("256 of 290 tokens hit"), std::string::npos) << view.rows[1].why;
  EXPECT_STREQ(view.rows[2].state, "waiting");
  EXPECT_NE(view.waiting.find("waits waits."), std::string::npos) << view.waiting;
}

TEST_F(CacheView, UsageAddsUpInEveryStep) {
  const UsageView view = usage_view(*snapshot_);
  ASSERT_EQ(view.steps.size(), 5u);
  for (const PoolUsage& u : view.usage) {
    EXPECT_EQ(u.held + u.free_keyed + u.free_empty + u.null, info_->num_blocks);
  }
  EXPECT_EQ(view.hit_tokens[4], 256);
}

TEST_F(CacheView, DeadEntriesAreListedAndNobodyReadThem) {
  const DeadEntriesView view = dead_entries_view(*info_, *step_);
  EXPECT_GT(view.entries.size(), 3u);
  for (const DeadEntry& e : view.entries) {
    EXPECT_EQ(e.reads, 0) << e.block;
    EXPECT_GT(e.block, 0);
  }
  EXPECT_NE(view.sentence.find("none of them were read"), std::string::npos) << view.sentence;
}

}  // namespace cache_panel_view_test
}  // namespace attnscope
