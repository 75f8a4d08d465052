// What panels say of layers that read the keys and values of another one.
#include <gtest/gtest.h>

#include "app/views/block_tables_view.h"
#include "app/views/shared_rows.h"
#include "app/views/slab_view.h"
#include "app/views/window_view.h"
#include "engine/session/snapshot.h"
#include "tests/unit/app/trace_session.h"

namespace attnscope {
namespace shared_rows_views_test {

TEST(SharedRowsViews, SayWhoseRowsALayerReads) {
  Scenario scenario = small_scenario(60, 2);
  scenario.model = *preset("tiny-kvshare");
  scenario.limits.token_budget = 100;
  TraceRecorder recorder;
  auto session = small_session(References::kNone, scenario);
  session->set_observer(&recorder);
  run_steps(*session, 1);
  const auto info = session_info(*session);
  const auto snapshot = take_snapshot(*session, recorder, info, 1);
  const StepTrace& step = *snapshot->traces.back();

  EXPECT_EQ(sharing_sentence(*info, 5),
            " Layer 5 shares with layer 3: it reads the rows that layer 3 wrote and writes none.");
  EXPECT_EQ(sharing_sentence(*info, 2), " Layers 4 and 6 read its rows too.");
  EXPECT_EQ(sharing_sentence(*info, 3), " Layer 5 reads its rows too.");
  EXPECT_EQ(sharing_sentence(*info, 0), "");
  EXPECT_EQ(sharing_sentence(*info, -1), "");

  const std::int64_t row = step.token_row(0, 40);
  const WindowView shared = window_view(*info, step, 4, row, 0);
  const WindowView owner = window_view(*info, step, 2, row, 0);
  EXPECT_NE(shared.sentence.find("Layer 4 shares with layer 2"), std::string::npos)
      << shared.sentence;
  ASSERT_EQ(shared.slots.size(), owner.slots.size());
  for (std::size_t i = 0; i < shared.slots.size(); ++i) {
    EXPECT_EQ(shared.slots[i].slot, owner.slots[i].slot) << "the same rows";
  }
  const BlockTablesView tables = block_tables_view({*info, step, 4, 0, 40});
  EXPECT_NE(tables.sentence.find("Layer 4 shares with layer 2"), std::string::npos)
      << tables.sentence;

  // Its rows have no page of their own.
  const SlabView slab = slab_view(*info);
  std::size_t pages = 0;
  for (const SlabGroup& group : slab.groups) {
    for (const SlabPage& page : group.pages) {
      ++pages;
      EXPECT_LT(page.layer, 4);
      if (page.layer != 2) continue;
      EXPECT_NE(slab_page_text(slab, group, page, -1).find("Layers 4 and 6 read its rows too."),
                std::string::npos);
    }
  }
  EXPECT_EQ(pages, 8u);
  // Nothing is recorded of caches that a layer has not.
  EXPECT_TRUE(step.find(4, AS_OP_ROPE_KV_INSERT)->rows.empty());
  EXPECT_FALSE(step.find(2, AS_OP_ROPE_KV_INSERT)->rows.empty());
}

}  // namespace shared_rows_views_test
}  // namespace attnscope
