// The rows of a request dealt out over ranks: who has which, what a token sees of each rank's, and
// where they lie.
#include "engine/cache/context_split.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <random>
#include <set>

#include "engine/family/context_check.h"
#include "engine/family/models.h"
#include "engine/model/numbers.h"
#include "engine/session/step/rank_transport.h"
#include "kernels/params/row_format.h"
#include "kernels/params/tensor_view.h"
#include "tests/blame/dense_session.h"

namespace attnscope {
namespace context_split_test {

std::vector<ContextSplit> splits() {
  std::vector<ContextSplit> all;
  for (int ranks = 1; ranks <= kMostContextRanks; ++ranks) {
    for (const int interleave : {1, 2, 3, 8, 16}) all.push_back({ranks, interleave});
  }
  return all;
}

std::string words(const ContextSplit& split) {
  return fmt::format("{} ranks by {}", split.ranks, split.interleave);
}

// A deck of cards: runs of tokens, one rank after the other.
std::vector<int> dealt(const ContextSplit& split, std::int64_t tokens) {
  std::vector<int> owners;
  for (int rank = 0; to_count(owners.size()) < tokens; rank = (rank + 1) % split.ranks) {
    owners.insert(owners.end(), to_size(split.interleave), rank);
  }
  owners.resize(to_size(tokens));
  return owners;
}

TEST(ContextSplit, EveryTokenHasOneOwnerAndOneRow) {
  for (const ContextSplit& split : splits()) {
    SCOPED_TRACE(words(split));
    const std::vector<int> owners = dealt(split, 300);
    std::vector<std::int64_t> next(to_size(split.ranks), 0);
    for (std::int64_t p = 0; p < 300; ++p) {
      const int owner = owners[to_size(p)];
      ASSERT_EQ(split.owner(p), owner) << p;
      ASSERT_EQ(split.row(p), next[to_size(owner)]++) << p;
      ASSERT_EQ(split.position(owner, split.row(p)), p);
    }
  }
}

TEST(ContextSplit, LengthsSumToTheRequestAndDifferByARunAtMost) {
  for (const ContextSplit& split : splits()) {
    SCOPED_TRACE(words(split));
    const std::vector<int> owners = dealt(split, 300);
    for (std::int64_t tokens = 0; tokens <= 300; ++tokens) {
      std::int64_t sum = 0, least = 1000, most = 0;
      for (int rank = 0; rank < split.ranks; ++rank) {
        const std::int64_t length = split.length(rank, tokens);
        ASSERT_EQ(length, std::count(owners.begin(), owners.begin() + tokens, rank)) << tokens;
        sum += length;
        least = std::min(least, length);
        most = std::max(most, length);
      }
      ASSERT_EQ(sum, tokens);
      ASSERT_LE(most - least, split.interleave) << tokens;
    }
  }
}

// Of decode steps and of every token of a prefill chunk: the rows that a rank shows are those of
// positions up to the query's own, of a window from its first one on, and all of them.
TEST(ContextSplit, ATokenSeesOnEachRankWhatItSeesOfTheWhole) {
  for (const ContextSplit& split : splits()) {
    SCOPED_TRACE(words(split));
    for (const std::int64_t window :
         {std::int64_t{0}, std::int64_t{1}, std::int64_t{7}, std::int64_t{64}}) {
      for (std::int64_t query = 0; query < 130; ++query) {
        const std::int64_t first = window > 0 ? std::max<std::int64_t>(0, query - window + 1) : 0;
        std::set<std::int64_t> seen;
        for (int rank = 0; rank < split.ranks; ++rank) {
          const std::int64_t end = split.length(rank, query + 1);
          for (std::int64_t row = split.length(rank, first); row < end; ++row) {
            EXPECT_TRUE(seen.insert(split.position(rank, row)).second);
          }
        }
        ASSERT_EQ(to_count(seen.size()), query - first + 1);
        ASSERT_EQ(*seen.begin(), first);
        ASSERT_EQ(*seen.rbegin(), query);
      }
    }
  }
}

TEST(ContextSplit, EachTokenOfAStepHasOneSlotOnOneRank) {
  std::mt19937_64 random(27);
  for (const ContextSplit& split : {ContextSplit{2, 1}, {4, 2}, {8, 2}, {2, 8}, {1, 1}, {4, 4}}) {
    SCOPED_TRACE(words(split));
    const int block = 16;
    const std::int64_t rows = block / split.ranks, columns = 20;
    std::vector<std::int32_t> blocks(3 * columns);
    for (std::size_t i = 0; i < blocks.size(); ++i) blocks[i] = static_cast<std::int32_t>(i) + 1;
    std::ranges::shuffle(blocks, random);
    const as_tensor table = make_tensor(blocks.data(), {3, columns});
    std::vector<std::int64_t> positions;
    std::vector<std::int32_t> requests;
    for (std::int32_t r = 0; r < 3; ++r) {
      const auto first = static_cast<std::int64_t>(random() % 200);
      for (std::int64_t p = first; p < first + 40; ++p) {
        positions.push_back(p);
        requests.push_back(r);
      }
    }
    positions.push_back(5);
    requests.push_back(-1);  // padding
    const RankSlots slots = rank_slots(split, positions, requests, table, block);
    ASSERT_EQ(slots.size(), to_size(split.ranks));
    std::vector<std::set<std::int64_t>> taken(slots.size());
    for (std::size_t t = 0; t < positions.size(); ++t) {
      int owners = 0;
      for (std::size_t rank = 0; rank < slots.size(); ++rank) {
        const std::int64_t slot = slots[rank][t];
        if (slot < 0) continue;
        ++owners;
        EXPECT_EQ(static_cast<int>(rank), split.owner(positions[t]));
        EXPECT_TRUE(taken[rank].insert(slot).second) << slot;
        EXPECT_EQ(slot / rows, *at<std::int32_t>(table, requests[t], positions[t] / block));
        // The rank's own table, of pages of so many rows, leads to the same row.
        EXPECT_EQ(slot / rows,
                  *at<std::int32_t>(table, requests[t], split.row(positions[t]) / rows));
        EXPECT_EQ(slot % rows, split.row(positions[t]) % rows);
      }
      EXPECT_EQ(owners, requests[t] < 0 ? 0 : 1) << positions[t];
    }
  }
}

TEST(ContextSplit, RanksHaveTheMemoryOfTheWholeAmongThem) {
  int compared = 0;
  for (const std::string& name : dense_names()) {
    const CacheLayout whole = build_cache_layout(*preset(name));
    for (const int ranks : {2, 4, 8}) {
      SCOPED_TRACE(fmt::format("{}, {} ranks", name, ranks));
      const ContextSplit split{ranks, 1};
      if (!check_split(whole, split)) continue;  // of small blocks
      ++compared;
      const CacheLayout own = rank_layout(whole, split);
      ASSERT_EQ(own.specs.size(), whole.specs.size());
      for (std::size_t i = 0; i < own.specs.size(); ++i) {
        EXPECT_EQ(own.specs[i].rows_per_block * ranks, whole.specs[i].rows_per_block);
        EXPECT_EQ(own.specs[i].page_bytes * ranks, whole.specs[i].page_bytes);
      }
      EXPECT_EQ(own.block_stride * ranks, whole.block_stride);
    }
  }
  EXPECT_GE(compared, 18);
  // Index keys, which select, are whole on every rank.
  const CacheLayout whole = build_cache_layout(*preset("tiny-v3.2"));
  const CacheLayout own = rank_layout(whole, {4, 1});
  int kept = 0;
  for (std::size_t i = 0; i < own.specs.size(); ++i) {
    const bool index = own.specs[i].id.role == AS_CACHE_INDEX;
    kept += index ? 1 : 0;
    EXPECT_EQ(own.specs[i].page_bytes * (index ? 1 : 4), whole.specs[i].page_bytes);
  }
  EXPECT_EQ(kept, 2);
}

// DeepSeek-V4: blocks are as many times as long, so that a rank's pages are those of one rank
// alone; index keys and states are whole on every rank.
TEST(ContextSplit, RanksHaveLongerBlocksWhereEntriesAreFew) {
  const ModelConfig model = *preset("tiny");
  const CacheLayout alone = build_cache_layout(model);
  for (const int ranks : {2, 3, 4, 8}) {
    SCOPED_TRACE(ranks);
    const CacheLayout whole = build_cache_layout(shared_config(model, {ranks, 1}));
    const CacheLayout own = rank_layout(whole, {ranks, 1});
    ASSERT_EQ(own.specs.size(), alone.specs.size());
    for (std::size_t i = 0; i < own.specs.size(); ++i) {
      const CacheSpec &rank = own.specs[i], &one = alone.specs[i];
      const bool state = one.id.role == AS_CACHE_STATE, index = one.id.role == AS_CACHE_INDEX;
      EXPECT_EQ(rank.block_size(), one.block_size() * (state ? 1 : ranks)) << one.name;
      EXPECT_EQ(rank.rows_per_block, one.rows_per_block * (index ? ranks : 1)) << one.name;
    }
  }
}

TEST(ContextSplit, EachEntryOfAStepHasOneSlotOnOneRank) {
  const ContextSplit split{4, 2};
  std::vector<std::int32_t> blocks = {7, 3};
  const as_tensor table = make_tensor(blocks.data(), {1, 2});
  std::vector<std::int64_t> positions(128);
  std::iota(positions.begin(), positions.end(), 0);
  const std::vector<std::int32_t> requests(positions.size(), 0);
  // Blocks of 64 tokens, 16 entries of 4 tokens, 4 of them on each rank.
  const RankSlots slots = rank_slots(split, positions, requests, table, 64, 4);
  for (std::size_t t = 0; t < positions.size(); ++t) {
    const std::int64_t entry = positions[t] / 4;
    for (int rank = 0; rank < split.ranks; ++rank) {
      const bool own = positions[t] % 4 == 3 && entry / 2 % 4 == rank;
      const std::int64_t row = entry / 8 * 2 + entry % 2;
      EXPECT_EQ(slots[to_size(rank)][t], own ? blocks[to_size(entry / 16)] * 4 + row % 4 : -1) << t;
    }
  }
}

std::string refused(const ModelConfig& model, const ContextSplit& split) {
  const auto ok = check_context(model, split);
  return ok ? "" : ok.error().text();
}

TEST(ContextSplit, WhatRanksDoNotShareIsNamed) {
  const ModelConfig llama = *preset("tiny-llama");
  EXPECT_EQ(refused(llama, {1, 1}), "");
  EXPECT_EQ(refused(llama, {8, 2}), "");
  EXPECT_NE(refused(llama, {9, 1}).find("9 ranks"), std::string::npos);
  EXPECT_NE(refused(llama, {3, 1}).find("no whole rounds of 3"), std::string::npos);
  EXPECT_NE(refused(llama, {8, 4}).find("no whole rounds of 32"), std::string::npos);
  EXPECT_NE(refused(*preset("tiny-alibi"), {2, 1}).find("ALiBi"), std::string::npos);
  EXPECT_NE(refused(masked_model(), {2, 1}).find("a mask"), std::string::npos);
  EXPECT_EQ(refused(*preset("tiny-v3.2"), {8, 8}), "");
  EXPECT_EQ(refused(*preset("tiny"), {8, 2}), "");
  // Two entries of 128 tokens a page: runs are no longer.
  EXPECT_NE(refused(*preset("tiny"), {2, 4}).find("no whole rounds of 8"), std::string::npos);
  EXPECT_NE(refused(*preset("tiny"), {2, 4}).find("entries"), std::string::npos);
  EXPECT_EQ(refused(*preset("tiny", {0, 1}), {4, 16}), "");
  for (const char* name : {"tiny-v3.2", "tiny"}) {
    ModelConfig hosted = *preset(name);
    hosted.host_rows = true;
    EXPECT_NE(refused(hosted, {2, 1}).find("host memory"), std::string::npos) << name;
  }
}

std::span<const std::byte> bytes_of(const std::vector<std::uint8_t>& v) {
  return std::as_bytes(std::span(v));
}

TEST(RankTransport, HandsOnEachMessageOnceAndCountsThoseBetweenRanks) {
  SimulatedTransport transport;
  const std::vector<std::uint8_t> one = {1, 2, 3}, other = {4, 5, 6, 7};
  ASSERT_TRUE(transport.send(RankMessage::kParts, 0, 1, bytes_of(one)));
  ASSERT_TRUE(transport.send(RankMessage::kParts, 1, 0, bytes_of(other)));
  ASSERT_TRUE(transport.send(RankMessage::kParts, 1, 1, bytes_of(other)));
  ASSERT_TRUE(transport.send(RankMessage::kQueries, 0, 1, bytes_of(other)));
  EXPECT_EQ(transport.counts()[0], (ExchangeCount{1, 4}));
  EXPECT_EQ(transport.counts()[1], (ExchangeCount{2, 7}));
  std::vector<std::uint8_t> came(3);
  const auto into = std::as_writable_bytes(std::span(came));
  ASSERT_TRUE(transport.receive(RankMessage::kParts, 0, 1, into));
  EXPECT_EQ(came, one);
  EXPECT_FALSE(transport.receive(RankMessage::kParts, 0, 1, into)) << "it was taken";
  EXPECT_FALSE(transport.receive(RankMessage::kParts, 1, 0, into)) << "of another size";
  transport.forget_counts();
  EXPECT_EQ(transport.counts()[1], ExchangeCount{});
}

// 8 heads of 64, 3 tokens, 4 ranks: each of 2 heads.
TEST(RankTransport, TheMessagesOfALayerAreKnownBefore) {
  const ExchangeCounts counts = planned_exchange(4, 8, 64, 64, 3);
  EXPECT_EQ(counts[0], (ExchangeCount{4 * 3, 4 * 3 * (3 * 2 * 64 * 2)}));
  EXPECT_EQ(counts[1], (ExchangeCount{4 * 3, 4 * 3 * (3 * 2 * (64 * 2 + 4))}));
  EXPECT_EQ(planned_exchange(1, 8, 64, 64, 3), ExchangeCounts{});
  // One head: three ranks have none, and nothing to say of queries; all have a part of it.
  EXPECT_EQ(planned_exchange(4, 1, 64, 64, 1)[1].messages, 3);
}

}  // namespace context_split_test
}  // namespace attnscope
