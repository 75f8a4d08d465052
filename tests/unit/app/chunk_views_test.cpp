// What Window and Block tables say of layers with chunks, and how far a stack of layers reaches.
#include <gtest/gtest.h>

#include <algorithm>

#include "app/views/block_tables_view.h"
#include "app/views/linkage.h"
#include "app/views/reach_view.h"
#include "app/views/window_view.h"
#include "engine/model/numbers.h"
#include "engine/session/snapshot.h"
#include "tests/unit/app/trace_session.h"

namespace attnscope {
namespace chunk_views_test {

// A request of 90 tokens in pieces of 40, in chunks of 32 and pages of 16; it decodes from 90 on.
class ChunkViews : public ::testing::Test {
 protected:
  void open(const char* model, int steps, const char* mask = "") {
    Scenario scenario = small_scenario(90, 12);
    scenario.model = *preset(model);
    scenario.model.dense.mask = mask;
    scenario.requests.resize(1);
    scenario.limits.token_budget = *mask == '\0' ? 40 : 120;  // a mask's prompts are not cut
    scenario.decode_steps = 12;
    session_ = small_session(References::kNone, scenario);
    session_->set_observer(&recorder_);
    run_steps(*session_, steps);
    info_ = session_info(*session_);
    snapshot_ = take_snapshot(*session_, recorder_, info_, 1);
    step_ = snapshot_->traces.back().get();
  }
  WindowView window(std::int64_t position, int layer = 0) const {
    return window_view(*info_, *step_, layer, step_->token_row(0, position), 0);
  }
  const TableStrip& strip(int group) {
    tables_ = block_tables_view({*info_, *step_, 0, 0, -1});
    return tables_.requests.at(0).strips.at(to_size(group));
  }

  TraceRecorder recorder_;
  std::unique_ptr<Session> session_;
  std::shared_ptr<const SessionInfo> info_;
  std::shared_ptr<const Snapshot> snapshot_;
  const StepTrace* step_ = nullptr;
  BlockTablesView tables_;
};

// Places are those of the request: 66 and 69 of the chunk that begins with 64.
TEST_F(ChunkViews, SayWhatAMaskShowsOfAChunk) {
  open("tiny-llama4", 1, "kv_idx % 3 == 0");
  const WindowView view = window(70);
  ASSERT_EQ(view.slots.size(), 7u);
  EXPECT_NE(view.sentence.find("The mask shows 2 of these rows."), std::string::npos)
      << view.sentence;
  for (const WindowSlot& slot : view.slots) {
    EXPECT_EQ(slot.weight > 0, slot.position % 3 == 0) << slot.position;
  }
}

TEST_F(ChunkViews, WindowIsTheChunkUpToTheToken) {
  open("tiny-llama4", 2);  // positions 40-79
  const WindowView view = window(70);
  ASSERT_TRUE(view.valid) << view.sentence;
  EXPECT_EQ(view.begin, 64);
  EXPECT_EQ(view.window, 32);
  ASSERT_EQ(view.slots.size(), 7u);
  EXPECT_EQ(view.slots.front().position, 64);
  EXPECT_EQ(view.slots.back().position, 70);
  const CacheSpec& keys = *token_rows(info_->layout, 0);
  const AttentionCopy& read = *step_->find(0, AS_OP_PAGED_ATTENTION)->attention;
  const std::int64_t kept = step_->kept_index(step_->token_row(0, 70));
  for (std::size_t i = 0; i < view.slots.size(); ++i) {
    EXPECT_EQ(view.slots[i].slot, read.slots[to_size(kept * read.window) + i]);
    EXPECT_EQ(position_of_slot(*info_, *step_, 0, keys.group, view.slots[i].slot),
              view.slots[i].position);
    EXPECT_TRUE(view.slots[i].has_weight);
  }
  const std::string block = std::to_string(view.slots[0].block);
  EXPECT_EQ(view.nulls_before, 2);
  EXPECT_EQ(view.sentence,
            "Chunk 2, positions 64-95: token 70 sees 7 of its 32 rows, 64-70 in block " + block +
                " (chunked-a). The 2 blocks before it were given back when their chunks ended.");
  EXPECT_EQ(view.left, "");
  EXPECT_EQ(window(64).left, "The chunk of positions 32-63 ended before this token.");
  EXPECT_EQ(window(40).slots.size(), 9u) << "of the chunk that the step before began";
  EXPECT_EQ(window(70, 3).slots.size(), 71u) << "a layer that sees all";
  EXPECT_EQ(window(70, 3).begin, -1);
}

TEST_F(ChunkViews, DecodingBeginsAChunkAlone) {
  open("tiny-llama4", 10);
  const std::int64_t position = step_->metadata.positions.back();
  ASSERT_EQ(position, 95 + 1);
  const WindowView view = window(position);
  EXPECT_EQ(view.slots.size(), 1u);
  EXPECT_EQ(view.nulls_before, 6);
  EXPECT_NE(view.sentence.find("token 96 sees 1 of its 32 rows, 96-96"), std::string::npos)
      << view.sentence;
  int dropped = 0;
  const TableStrip& own = strip(1);
  for (const TableStripCell& cell : own.cells) {
    if (cell.was == 0) continue;
    dropped += cell.count;
    EXPECT_NE(null_text(*info_, 1, cell).find("its chunk ended: given back in this step"),
              std::string::npos)
        << null_text(*info_, 1, cell);
  }
  EXPECT_EQ(dropped, 2) << "the blocks of positions 64-95";
}

TEST_F(ChunkViews, BlockTablesHaveTheSequencesOfTheStep) {
  open("tiny-llama4", 2);
  const std::vector<LocalSequence> local = strip(2).local;
  ASSERT_EQ(local.size(), 2u);
  EXPECT_EQ(local[0].text(), "chunk 1, positions 40-63 of 32-63: 32 rows");
  EXPECT_EQ(local[1].text(), "chunk 2, positions 64-79 of 64-95: 16 rows");
  const auto& table = find_request(*step_, 0)->tables[2];
  EXPECT_EQ(local[0].blocks, (std::vector<std::int32_t>{table[2], table[3]}));
  EXPECT_EQ(local[1].blocks, (std::vector<std::int32_t>{table[4]}));
  EXPECT_TRUE(strip(0).local.empty()) << "of the layer that sees all";
  EXPECT_EQ(strip(2).note, "16 · chunks 32");
  EXPECT_NE(group_text(*info_, 2).find("keeps the chunk of 32 tokens"), std::string::npos);
  EXPECT_NE(tables_.sentence.find("left with chunks that ended"), std::string::npos)
      << tables_.sentence;
  int in_chunk = 0;
  for (const TableStripCell& cell : strip(2).cells) in_chunk += cell.in_window ? 1 : 0;
  EXPECT_EQ(in_chunk, 1) << "the block that token 79 sees";
}

// Rows that a file or a lane gives wrongly are no place in memory.
TEST_F(ChunkViews, WrongBatchesAreShownAsTheyAre) {
  open("tiny-llama4", 2);
  StepMetadata m = step_->metadata;
  const auto of = [&](StepTensor::Kind kind) {
    return std::ranges::find(m.own, kind, &StepTensor::kind);
  };
  std::ranges::fill(of(StepTensor::Kind::kRows)->numbers, 1 << 30);
  EXPECT_TRUE(local_sequences(*info_, m, 0, 1).empty());
  m = step_->metadata;
  std::ranges::fill(of(StepTensor::Kind::kLengths)->numbers, 1 << 30);
  EXPECT_EQ(local_sequences(*info_, m, 0, 1).at(0).rows, 1 << 30);
  StepTrace wrong = *step_;
  wrong.metadata = m;
  EXPECT_EQ(window_view(*info_, wrong, 0, wrong.token_row(0, 70), 0).slots.size(), 7u)
      << "no row behind the token's own";
}

TEST_F(ChunkViews, ReachGrowsWithEveryLayerThatHasAWindow) {
  open("tiny-gemma", 3);
  for (int i = 0; i < 5; ++i) {
    const ReachView view = reach_view(*info_, i, 200);
    ASSERT_EQ(view.rows.size(), 6u);
    EXPECT_EQ(view.rows[to_size(i)].first, 200 - (i + 1) * 31);
    EXPECT_EQ(view.selected, i);
  }
  EXPECT_EQ(reach_view(*info_, 2, 200).sentence,
            "Through layers 0-2 token 200 reaches 94 tokens, 3 x (32 - 1) + 1: positions 107-200.");
  EXPECT_EQ(reach_view(*info_, 2, 40).sentence,
            "Through layers 0-2 token 40 reaches 41 tokens: all there are.");
  EXPECT_EQ(reach_view(*info_, 5, 200).sentence,
            "Through layers 0-5 token 200 reaches 201 tokens: this layer sees all before it.");
}

TEST_F(ChunkViews, ReachEndsWithTheChunk) {
  open("tiny-llama4", 1);
  EXPECT_EQ(reach_view(*info_, 2, 70).sentence,
            "Through layers 0-2 token 70 reaches 7 tokens: positions 64-70. Chunks do not add up.");
  EXPECT_EQ(reach_view(*info_, 3, 70).rows[3].first, 0);
  EXPECT_TRUE(reach_view(*info_, -1, 70).rows.empty()) << "outside the layers";
}

TEST_F(ChunkViews, ReachIsOfModelsWithBoundedLayers) {
  open("tiny-llama", 1);
  EXPECT_TRUE(reach_view(*info_, 0, 30).rows.empty());
}

TEST_F(ChunkViews, WindowSaysWhatAlibiTakes) {
  open("tiny-alibi", 2);
  EXPECT_NE(
      window(70).sentence.find("ALiBi takes 0.5 off a score of head 0 for each token between."),
      std::string::npos)
      << window(70).sentence;
  const WindowView all = window_view(*info_, *step_, 0, step_->token_row(0, 70), -1);
  EXPECT_NE(all.sentence.find("ALiBi takes 0.003906 to 0.7071"), std::string::npos) << all.sentence;
  open("tiny-llama", 2);
  EXPECT_EQ(window(70).sentence.find("ALiBi"), std::string::npos);
}

}  // namespace chunk_views_test
}  // namespace attnscope
