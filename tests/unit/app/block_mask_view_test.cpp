// The block mask that Window draws.
#include "app/views/block_mask_view.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "engine/session/snapshot.h"
#include "tests/unit/app/trace_session.h"

namespace attnscope {
namespace block_mask_view_test {

BlockMaskView view_of(const ModelConfig& model, int layer, std::int64_t position, int head = 0) {
  Scenario scenario = small_scenario(130, model.dense.encoder ? 1 : 4);
  scenario.model = model;
  scenario.limits.token_budget = 200;
  TraceRecorder recorder;
  const auto session = small_session(References::kNone, scenario);
  session->set_observer(&recorder);
  run_steps(*session, 1);
  const auto info = session_info(*session);
  const auto snapshot = take_snapshot(*session, recorder, info, 1);
  const StepTrace& step = *snapshot->traces.back();
  return block_mask_view(*info, step, layer, step.token_row(0, position), head);
}

std::string drawn(const BlockMaskView& view) {
  std::string text;
  for (std::size_t i = 0; i < view.tiles.size(); ++i) {
    if (i > 0 && i % static_cast<std::size_t>(view.across) == 0) text += '/';
    text += ".+#"[view.tiles[i]];
  }
  return text;
}

// 130 tokens: five blocks of 32 queries, three tiles of 64 keys.
TEST(BlockMaskViews, DrawWhatALayerSees) {
  const BlockMaskView causal = view_of(*preset("tiny-llama"), 1, 70);
  EXPECT_EQ(causal.why_empty, "");
  EXPECT_EQ(drawn(causal), "+../+../#+./#+./##+");
  EXPECT_EQ(causal.own_block, 2);
  EXPECT_NE(causal.sentence.find("130 queries over 130 keys"), std::string::npos)
      << causal.sentence;
  EXPECT_NE(causal.sentence.find("6 empty, 5 partial, 4 full"), std::string::npos)
      << causal.sentence;
  EXPECT_EQ(drawn(view_of(*preset("tiny-gemma"), 0, 70)), "+../+../++./.+./.++");
  EXPECT_EQ(drawn(view_of(*preset("tiny-bert"), 0, 70)), "###/###/###/###/###");
}

TEST(BlockMaskViews, DrawAUsersMaskByHead) {
  ModelConfig model = *preset("tiny-llama");
  model.dense.mask = "head == 3 ? 1 : kv_idx < 64";
  EXPECT_EQ(drawn(view_of(model, 1, 70, 3)), "###/###/###/###/###");
  EXPECT_EQ(drawn(view_of(model, 1, 70, 2)), "#../#../#../#../#..");
}

// A window hides what lies ahead, and what lies far behind.
TEST(BlockMaskViews, DrawAUsersMaskWithinAWindow) {
  ModelConfig model = *preset("tiny-gemma");
  model.dense.mask = "kv_idx >= 64";
  EXPECT_EQ(drawn(view_of(model, 0, 70)), ".../.../.+./.+./.++");
}

// Chunks of 32 tokens hide all others, and what lies ahead.
TEST(BlockMaskViews, DrawAUsersMaskWithinChunks) {
  ModelConfig model = *preset("tiny-llama4");
  EXPECT_EQ(drawn(view_of(model, 0, 70)), "+../+../.+./.+./..+");
  model.dense.mask = "kv_idx >= 32 && kv_idx < 70";
  EXPECT_EQ(drawn(view_of(model, 0, 70)), ".../+../.+./.../...");
  EXPECT_EQ(drawn(view_of(model, 3, 70)), "++./++./++./++./++.") << "a layer that sees all";
}

// Of either side from place 0 on: the source, and the decoder's two tokens.
TEST(BlockMaskViews, DrawAUsersMaskAcross) {
  ModelConfig model = *preset("tiny-t5");
  model.dense.mask = "kv_idx < 64 || kv_idx <= q_idx";
  EXPECT_EQ(drawn(view_of(model, 0, 70)), "#./#./#+/#+");
  EXPECT_EQ(drawn(view_of(model, 3, 129)), "#.");
  EXPECT_EQ(drawn(view_of(model, 2, 129)), "+") << "its own attention is causal";
}

// The source of 128 tokens, and what the decoder begins with.
TEST(BlockMaskViews, DrawTheSourceAcross) {
  EXPECT_EQ(drawn(view_of(*preset("tiny-t5"), 0, 70)), "##/##/##/##");
  EXPECT_EQ(drawn(view_of(*preset("tiny-t5"), 3, 129)), "##");
  EXPECT_EQ(drawn(view_of(*preset("tiny-t5"), 2, 129)), "+");
}

TEST(BlockMaskViews, OthersSayWhy) {
  EXPECT_NE(view_of(narrow_model(), 0, 70).why_empty.find("not by a mask"), std::string::npos);
}

}  // namespace block_mask_view_test
}  // namespace attnscope
