// Block tables, pool map and window: what they say against what the step's tables and lists hold.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "app/views/block_tables_view.h"
#include "app/views/pool_view.h"
#include "app/views/window_view.h"
#include "engine/family/models.h"
#include "tests/unit/app/stepped_session.h"

namespace attnscope {
namespace cache_views_test {

using CacheViews = SteppedSession;

// ---- linkage

TEST(Linkage, EntriesAndTokensAreEachOthersInverse) {
  const CacheLayout layout = build_cache_layout(*preset("tiny"));
  for (const int ratio : {4, 128}) {
    for (std::int64_t position = 0; position < 700; ++position) {
      std::vector<std::int64_t> pooling;
      for (std::int64_t entry = 0; entry < 200; ++entry) {
        if (tokens_of_entry(layout, ratio, entry).contains(position)) pooling.push_back(entry);
      }
      EXPECT_EQ(entries_of_token(layout, ratio, position), pooling) << ratio << ", " << position;
    }
  }
  EXPECT_TRUE(entries_of_token(layout, 4, -1).empty());
  EXPECT_EQ(tokens_of_entry(layout, 4, 0), (TokenRange{0, 4}))
      << "nothing lies before the first entry";
}

TEST_F(CacheViews, SlotsOfATokenAreThoseThatTheStepWroteItTo) {
  const StepMetadata& m = step_->metadata;
  const std::int64_t tokens = m.num_tokens_in_step();
  int compared = 0;
  for (std::int64_t t = 0; t < tokens; ++t) {
    const RequestView* owner = find_request(*step_, step_->request_of(t));
    ASSERT_NE(owner, nullptr);
    const std::int64_t position = m.positions[static_cast<std::size_t>(t)];
    for (const TokenSlot& slot : slots_of_token(*info_, *owner, position)) {
      if (slot.ratio != 1) continue;
      EXPECT_EQ(slot.slot, m.slots[static_cast<std::size_t>(slot.group * tokens + t)]);
      EXPECT_EQ(position_of_slot(*info_, *step_, owner->request.id, slot.group, slot.slot),
                position);
      ++compared;
    }
  }
  EXPECT_GT(compared, 3);
}

TEST_F(CacheViews, ABlockHoldsTheTokensThatPointIntoIt) {
  for (std::int64_t position = 0; position <= position_; ++position) {
    for (const TokenSlot& slot : slots_of_token(*info_, *request_, position)) {
      if (slot.block <= 0) continue;
      const auto contents = contents_of_block(*info_, *step_, slot.block);
      ASSERT_TRUE(contents);
      EXPECT_EQ(contents->request, 0);
      EXPECT_EQ(contents->group, slot.group);
      EXPECT_TRUE(contents->tokens.contains(position)) << slot.block << ", " << position;
    }
  }
  EXPECT_FALSE(contents_of_block(*info_, *step_, 0)) << "nobody owns the null block";
  EXPECT_FALSE(contents_of_block(*info_, *step_, step_->free_list.front()));
  EXPECT_FALSE(contents_of_block(*info_, *step_, -3));
  EXPECT_FALSE(contents_of_block(*info_, *step_, 1 << 30));
}

TEST_F(CacheViews, ReadersOfWindowBlocksAreTheTokensWhoseListsNameThem) {
  const StepMetadata& m = step_->metadata;
  const std::int64_t tokens = m.num_tokens_in_step(), window = info_->config.window;
  for (std::size_t s = 0; s < info_->layout.swa_groups.size(); ++s) {
    const int g = info_->layout.swa_groups[s];
    for (std::int32_t block = 1; block < static_cast<std::int32_t>(step_->owners.size()); ++block) {
      if (step_->owners[static_cast<std::size_t>(block)].group != g) continue;
      std::vector<std::int32_t> want;
      for (const std::int32_t t : step_->kept) {
        bool reads = false;
        for (std::int64_t i = 0; i < m.tensor("swa_lens")->numbers[static_cast<std::size_t>(t)];
             ++i) {
          const auto at = (static_cast<std::int64_t>(s) * tokens + t) * window + i;
          reads |= m.tensor("swa_indices")->numbers[static_cast<std::size_t>(at)] /
                       group(g).block_tokens ==
                   block;
        }
        if (reads) want.push_back(t);
      }
      EXPECT_EQ(readers_of_block(*info_, *step_, block), want) << block;
    }
  }
}

// ---- block tables

// Why a request has no blocks: it has none yet, or none any more.
TEST_F(CacheViews, ARequestWithoutBlocksSaysWhy) {
  StepTrace step = *step_;
  const auto none = [&](RequestState state) {
    step.requests[0].request.state = state;
    return block_tables_view({*info_, step, 1, 0, -1}).requests[0].none;
  };
  EXPECT_EQ(none(RequestState::kWaiting), "no block yet");
  EXPECT_EQ(none(RequestState::kFinished), "given back");
  EXPECT_EQ(none(RequestState::kAborted), "given back");
  EXPECT_EQ(none(RequestState::kPreempted), "taken away");
}

TEST_F(CacheViews, StripsHoldEveryTableEntryOnce) {
  const BlockTablesView view = block_tables_view({*info_, *step_, 1, 0, -1});
  ASSERT_EQ(view.requests.size(), step_->requests.size());
  for (const TablesOfRequest& tables : view.requests) {
    const RequestView* request = find_request(*step_, tables.request);
    ASSERT_NE(request, nullptr);
    ASSERT_EQ(tables.strips.size(), request->tables.size());
    for (const TableStrip& strip : tables.strips) {
      std::vector<std::int32_t> flat;
      for (const TableStripCell& cell : strip.cells) {
        EXPECT_EQ(static_cast<std::size_t>(cell.index), flat.size());
        EXPECT_TRUE(cell.count == 1 || cell.block == 0) << "only null entries are collapsed";
        flat.insert(flat.end(), static_cast<std::size_t>(cell.count), cell.block);
      }
      EXPECT_EQ(flat, request->tables[static_cast<std::size_t>(strip.group)]) << strip.name;
      EXPECT_EQ(strip.nulls, std::count(flat.begin(), flat.end(), 0));
      EXPECT_EQ(strip.nulls + strip.blocks, static_cast<std::int64_t>(flat.size()));
    }
  }
}

TEST_F(CacheViews, StripsMarkTheTokensSlotAndItsWindow) {
  const BlockTablesView view = block_tables_view({*info_, *step_, 1, 0, -1});
  const auto& tables = view.requests.front();
  ASSERT_EQ(tables.request, 0);
  EXPECT_EQ(tables.token, position_);
  for (const TableStrip& strip : tables.strips) {
    int marked = 0;
    for (const TableStripCell& cell : strip.cells) {
      if (cell.row < 0) continue;
      ++marked;
      EXPECT_EQ(cell.index * group(strip.group).block_tokens + cell.row, position_) << strip.name;
      EXPECT_TRUE(cell.in_window);
    }
    EXPECT_EQ(marked, 1) << strip.name;
    for (const TableStripCell& cell : strip.cells) {
      const std::int64_t last = (cell.index + 1) * group(strip.group).block_tokens - 1;
      if (cell.block > 0 && group(strip.group).window > 0) {
        EXPECT_EQ(cell.in_window, last > position_ - group(strip.group).window) << strip.name;
      }
    }
  }
  EXPECT_NE(view.sentence.find("left a window"), std::string::npos) << view.sentence;
  const BlockTablesView picked = block_tables_view({*info_, *step_, 1, 0, 2});
  EXPECT_NE(picked.sentence.find("token 2 has left the window"), std::string::npos)
      << picked.sentence;
}

TEST_F(CacheViews, WalkingAlongATableMeetsItsBlocksInOrder) {
  for (std::size_t g = 0; g < request_->tables.size(); ++g) {
    std::vector<std::int32_t> real;
    for (const std::int32_t block : request_->tables[g]) {
      if (block != 0) real.push_back(block);
    }
    ASSERT_FALSE(real.empty());
    for (std::size_t i = 0; i + 1 < real.size(); ++i) {
      EXPECT_EQ(next_block(*info_, *step_, 0, position_, real[i], 1), real[i + 1]);
      EXPECT_EQ(next_block(*info_, *step_, 0, position_, real[i + 1], -1), real[i]);
    }
    const std::int32_t other =
        block_in_next_group(*info_, *step_, 0, position_, static_cast<int>(g));
    const auto contents = contents_of_block(*info_, *step_, other);
    ASSERT_TRUE(contents);
    EXPECT_NE(contents->group, static_cast<int>(g));
    EXPECT_TRUE(contents->tokens.contains(position_));
  }
}

// ---- pool

TEST_F(CacheViews, ThePoolAddsUp) {
  const PoolView view = pool_view(*info_, *step_);
  std::int64_t used = 0, free = 0;
  std::vector<std::int64_t> by_owner(3);
  for (std::size_t b = 1; b < step_->owners.size(); ++b) {
    const BlockOwner& owner = step_->owners[b];
    owner.request < 0 ? ++free : ++used;
    if (owner.request >= 0) ++by_owner.at(static_cast<std::size_t>(owner.request));
  }
  EXPECT_EQ(view.used, used);
  EXPECT_EQ(view.free, free);
  EXPECT_EQ(view.blocks, used + free);
  EXPECT_EQ(static_cast<std::size_t>(free), step_->free_list.size());
  for (const PoolOwner& owner : view.owners) {
    EXPECT_EQ(owner.blocks, by_owner.at(static_cast<std::size_t>(owner.request)));
    std::int64_t sum = 0;
    for (const std::int64_t blocks : owner.by_group) sum += blocks;
    EXPECT_EQ(sum, owner.blocks);
  }
  ASSERT_GT(view.longest.length, 0);
  for (std::int64_t i = 0; i < view.longest.length; ++i) {
    EXPECT_LT(step_->owners[static_cast<std::size_t>(view.longest.first + i)].request, 0);
  }
  StepTrace none;
  EXPECT_NE(pool_view(*info_, none).sentence.find("not come to its block tables"),
            std::string::npos);
}

TEST_F(CacheViews, ABlockIsDescribedAndSelectsItsOwner) {
  std::set<std::int32_t> seen;
  for (std::int32_t block = 0; block < static_cast<std::int32_t>(step_->owners.size()); ++block) {
    const std::string text = describe_block(*info_, *step_, block);
    EXPECT_NE(text.find("block " + std::to_string(block)), std::string::npos);
    const BlockOwner& owner = step_->owners[static_cast<std::size_t>(block)];
    const Selection selection = block_selection(*info_, *step_, {}, block);
    EXPECT_EQ(selection.block, block);
    if (owner.request < 0) continue;
    seen.insert(owner.request);
    EXPECT_NE(text.find(info_->request_names[static_cast<std::size_t>(owner.request)]),
              std::string::npos);
    EXPECT_EQ(selection.request, owner.request);
    EXPECT_EQ(selection.group, owner.group);
  }
  EXPECT_GT(seen.size(), 0u);
  EXPECT_NE(describe_block(*info_, *step_, 0).find("null block"), std::string::npos);
}

// A wrong lane may write any length: nothing beyond the lists is read.
TEST_F(CacheViews, LengthsBeyondTheListsAreCut) {
  for (const std::int32_t length : {-5, 1 << 30}) {
    StepTrace step = *step_;
    for (StepTensor& tensor : step.metadata.own) {
      if (tensor.kind == StepTensor::Kind::kLengths) std::ranges::fill(tensor.numbers, length);
    }
    const WindowView view = window_view(*info_, step, 1, row_, 2);
    EXPECT_LE(static_cast<std::int64_t>(view.slots.size()), info_->config.window);
    for (std::int32_t block = 0; block < static_cast<std::int32_t>(step.owners.size()); ++block) {
      EXPECT_LE(readers_of_block(*info_, step, block).size(), step.kept.size());
    }
  }
}

// ---- window

TEST_F(CacheViews, TheWindowIsTheListThatAttentionRead) {
  const OpTrace* op = step_->find(1, AS_OP_SPARSE_ATTENTION);
  ASSERT_NE(op, nullptr);
  ASSERT_NE(op->attention, nullptr);
  const AttentionCopy& a = *op->attention;
  const WindowView view = window_view(*info_, *step_, 1, row_, 2);
  ASSERT_TRUE(view.valid) << view.sentence;
  const std::int64_t kept = step_->kept_index(row_);
  ASSERT_EQ(static_cast<std::int64_t>(view.slots.size()),
            a.window_len[static_cast<std::size_t>(kept)]);
  double sum = 0;
  for (std::size_t i = 0; i < view.slots.size(); ++i) {
    const WindowSlot& slot = view.slots[i];
    const auto at = static_cast<std::size_t>(kept * (a.window + a.extra)) + i;
    EXPECT_EQ(slot.slot, a.slots[at]);
    EXPECT_EQ(slot.position, position_ - static_cast<std::int64_t>(view.slots.size() - 1 - i));
    EXPECT_EQ(position_of_slot(*info_, *step_, 0, view.group, slot.slot), slot.position);
    ASSERT_TRUE(slot.has_weight);
    sum += slot.weight;
  }
  double want = 0;
  for (std::int64_t c = 0; c < a.window; ++c) {
    want += static_cast<double>(
        a.weights[static_cast<std::size_t>((kept * a.heads + 2) * (a.window + a.extra) + c)]);
  }
  EXPECT_NEAR(sum, want, 1e-9);
  EXPECT_EQ(view.left, "Position " + std::to_string(position_ - info_->config.window) +
                           " left the window with this token.")
      << "one position leaves with every decoded token";
  EXPECT_GT(view.nulls_before, 0);
}

TEST_F(CacheViews, NoWindowOutsideTheLayersOrBeyondTheStep) {
  EXPECT_FALSE(window_view(*info_, *step_, -1, row_, 0).valid);
  EXPECT_FALSE(window_view(*info_, *step_, 1, -1, 0).valid);
  EXPECT_FALSE(window_view(*info_, *step_, 1, 1 << 20, 0).valid);
  EXPECT_FALSE(window_view(*info_, *step_, 77, row_, 0).valid);
  StepTrace none;
  EXPECT_NE(window_view(*info_, none, 1, 0, 0).sentence.find("not come to its window lists"),
            std::string::npos);
}

}  // namespace cache_views_test
}  // namespace attnscope
