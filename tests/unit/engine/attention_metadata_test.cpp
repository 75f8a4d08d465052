// Metadata of a step in the three forms that backends read: who stands where, which blocks and
// slots they have, padding of graphs, buffers that stay where they are, and what does not fit.
#include "engine/backend/attention_metadata.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace attnscope {
namespace attention_metadata_test {

using Ints = std::vector<std::int32_t>;
using Longs = std::vector<std::int64_t>;

struct Request {
  std::int64_t computed = 0, query = 0;
  Ints blocks;
};

// One group of caches in blocks of so many tokens. sampled: all tokens are, as in a decode step.
StepMetadata step_of(const std::vector<Request>& requests, std::int64_t block,
                     bool sampled = false) {
  StepMetadata step;
  step.groups = {static_cast<std::int32_t>(block), 0};
  for (const Request& r : requests) {
    step.columns = std::max(step.columns, static_cast<std::int64_t>(r.blocks.size()));
  }
  step.query_start_loc.push_back(0);
  for (std::size_t i = 0; i < requests.size(); ++i) {
    const Request& r = requests[i];
    step.live.push_back(static_cast<std::int32_t>(10 + i));
    step.num_computed.push_back(static_cast<std::int32_t>(r.computed));
    step.num_scheduled_tokens.push_back(static_cast<std::int32_t>(r.query));
    step.seq_lens.push_back(static_cast<std::int32_t>(r.computed + r.query));
    Ints row = r.blocks;
    row.resize(static_cast<std::size_t>(step.columns), 0);
    step.tables.insert(step.tables.end(), row.begin(), row.end());
    for (std::int64_t p = r.computed; p < r.computed + r.query; ++p) {
      if (sampled) step.sample_rows.push_back(step.num_tokens_in_step());
      step.positions.push_back(p);
      step.token_to_req.push_back(static_cast<std::int32_t>(i));
      const bool cached = p / block < static_cast<std::int64_t>(row.size());
      step.slots.push_back(
          cached ? std::int64_t{row[static_cast<std::size_t>(p / block)]} * block + p % block : -1);
    }
    step.query_start_loc.push_back(static_cast<std::int32_t>(step.positions.size()));
  }
  return step;
}

// Two prompts and two decodes in turn, blocks of 16 tokens.
StepMetadata mixed_batch() {
  return step_of({{0, 10, {0, 1}}, {24, 1, {2, 3, 5}}, {0, 8, {4}}, {29, 1, {6, 7, 8}}}, 16);
}

constexpr MetadataLimits kLimits{.requests = 8, .tokens = 64, .columns = 4, .pages = 32};

MetadataBuilder builder_of(MetadataForm form, const MetadataLimits& limits = kLimits) {
  auto builder = MetadataBuilder::make(form, limits);
  EXPECT_TRUE(builder) << (builder ? "" : builder.error().text());
  return std::move(*builder);
}

template <class T>
std::vector<T> list(std::span<const T> values) {
  return {values.begin(), values.end()};
}

TEST(AttentionMetadata, CommonPartHasDecodesFirst) {
  MetadataBuilder builder = builder_of(MetadataForm::kBlockTables);
  const StepMetadata step = mixed_batch();
  const auto built = builder.build(step, 0, {});
  ASSERT_TRUE(built) << built.error().text();
  const CommonMetadata& c = built->common;
  EXPECT_EQ(c.requests, 4);
  EXPECT_EQ(c.tokens, 20);
  EXPECT_EQ(c.decodes, 2);
  EXPECT_EQ(c.decode_tokens, 2);
  EXPECT_EQ(c.prefills(), 2);
  EXPECT_EQ(c.prefill_tokens(), 18);
  EXPECT_EQ(c.max_query_len, 10);
  EXPECT_EQ(c.max_seq_len, 30);
  EXPECT_TRUE(c.causal);
  EXPECT_EQ(list(c.rows), (Ints{3, 1, 2, 0}));
  EXPECT_EQ(list(c.query_start_loc), (Ints{0, 1, 2, 10, 20}));
  EXPECT_EQ(list(c.seq_lens), (Ints{30, 25, 8, 10}));
  EXPECT_EQ(list(c.slots),
            (Longs{125, 56, 64, 65, 66, 67, 68, 69, 70, 71, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9}));
  EXPECT_EQ(list(c.token_rows),
            (Longs{19, 10, 11, 12, 13, 14, 15, 16, 17, 18, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9}));
  EXPECT_EQ(list(c.positions),
            (Longs{29, 24, 0, 1, 2, 3, 4, 5, 6, 7, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9}));
  EXPECT_EQ(list(c.token_to_req),
            (Ints{0, 1, 2, 2, 2, 2, 2, 2, 2, 2, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3}));
}

// Blocks that a request has for tokens to come are not yet among those that are read.
TEST(AttentionMetadata, BlockTablesEndWhereRowsEnd) {
  MetadataBuilder builder = builder_of(MetadataForm::kBlockTables);
  const StepMetadata step = mixed_batch();
  const auto built = builder.build(step, 0, {});
  ASSERT_TRUE(built);
  const auto& form = std::get<BlockTables>(built->form);
  EXPECT_EQ(form.columns, 4);
  EXPECT_EQ(list(form.tables), (Ints{6, 7, -1, -1,   //
                                     2, 3, -1, -1,   //
                                     4, -1, -1, -1,  //
                                     0, -1, -1, -1}));
}

TEST(AttentionMetadata, PagedIndicesAreTheSameBlocksInARow) {
  MetadataBuilder builder = builder_of(MetadataForm::kPagedIndices);
  const StepMetadata step = mixed_batch();
  const auto built = builder.build(step, 0, {});
  ASSERT_TRUE(built);
  const auto& form = std::get<PagedIndices>(built->form);
  EXPECT_EQ(list(form.indptr), (Ints{0, 2, 4, 5, 6}));
  EXPECT_EQ(list(form.indices), (Ints{6, 7, 2, 3, 4, 0}));
  EXPECT_EQ(list(form.last_page_len), (Ints{14, 9, 8, 10}));
  // A page that is full to its end has all of its tokens, not none.
  const StepMetadata full = step_of({{31, 1, {3, 4}}, {16, 1, {5, 6}}}, 16);
  const auto ends = builder.build(full, 0, {});
  ASSERT_TRUE(ends);
  EXPECT_EQ(list(std::get<PagedIndices>(ends->form).last_page_len), (Ints{16, 1}));
}

TEST(AttentionMetadata, PrefillOnlyHasLengthsAlone) {
  auto builder = MetadataBuilder::make(MetadataForm::kPrefillOnly, {.requests = 4, .tokens = 32},
                                       AttentionType::kEncoderOnly);
  ASSERT_TRUE(builder);
  const StepMetadata step = step_of({{0, 5, {}}, {0, 1, {}}, {0, 9, {}}}, 16);
  const auto built = builder->build(step, -1, {});
  ASSERT_TRUE(built) << built.error().text();
  EXPECT_FALSE(built->common.causal) << "every token sees the whole text";
  EXPECT_TRUE(built->common.slots.empty()) << "there is no cache";
  // The text of one token stands first, as a decode would.
  EXPECT_EQ(list(std::get<PrefillOnly>(built->form).cu_seqlens), (Ints{0, 1, 6, 15}));
  EXPECT_EQ(list(built->common.rows), (Ints{1, 0, 2}));
  const StepMetadata later = step_of({{3, 5, {}}}, 16);
  const auto refused = builder->build(later, -1, {});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, AS_BAD_INPUT);
  EXPECT_NE(refused.error().message.find("request 10 has 3 tokens from before"), std::string::npos);
}

TEST(AttentionMetadata, GraphsArePaddedWithRequestsThatHaveNothing) {
  MetadataBuilder builder = builder_of(MetadataForm::kPagedIndices);
  const StepMetadata three = step_of({{7, 1, {1}}, {8, 1, {2}}, {9, 1, {3}}}, 16, true);
  auto built = builder.build(three, 0, {});
  ASSERT_TRUE(built);
  EXPECT_EQ(built->common.padded_tokens(), 4);
  EXPECT_EQ(list(built->common.rows), (Ints{0, 1, 2, -1}));
  EXPECT_EQ(list(built->common.query_start_loc), (Ints{0, 1, 2, 3, 3}));
  EXPECT_EQ(list(built->common.seq_lens), (Ints{8, 9, 10, 0}));
  EXPECT_EQ(list(built->common.slots), (Longs{23, 40, 57, -1}));
  EXPECT_EQ(list(built->common.token_to_req), (Ints{0, 1, 2, -1}));
  EXPECT_EQ(list(std::get<PagedIndices>(built->form).indptr), (Ints{0, 1, 2, 3, 3}));
  EXPECT_EQ(list(std::get<PagedIndices>(built->form).last_page_len), (Ints{8, 9, 10, 0}));
  // With a draft each, a graph of 8 tokens is one of four requests.
  const StepMetadata drafts = step_of({{7, 2, {1}}, {8, 2, {2}}, {9, 2, {3}}}, 16, true);
  built = builder.build(drafts, 0, {.decode_threshold = 2});
  ASSERT_TRUE(built);
  EXPECT_EQ(built->common.padded_tokens(), 8);
  EXPECT_EQ(list(built->common.query_start_loc), (Ints{0, 2, 4, 6, 6}));
}

// A graph that was recorded reads these addresses.
TEST(AttentionMetadata, BuffersStayWhereTheyAre) {
  for (const MetadataForm form : {MetadataForm::kBlockTables, MetadataForm::kPagedIndices}) {
    MetadataBuilder builder = builder_of(form);
    const StepMetadata first = mixed_batch(), second = step_of({{40, 1, {7, 8, 9}}}, 16, true);
    const auto one = builder.build(first, 0, {});
    ASSERT_TRUE(one);
    const auto* slots = one->common.slots.data();
    const auto* starts = one->common.query_start_loc.data();
    const std::int64_t bytes = builder.bytes();
    const auto two = builder.build(second, 0, {});
    ASSERT_TRUE(two);
    EXPECT_EQ(two->common.slots.data(), slots);
    EXPECT_EQ(two->common.query_start_loc.data(), starts);
    EXPECT_EQ(builder.bytes(), bytes);
    // Nothing of the step before is left in what is seen.
    EXPECT_EQ(list(two->common.slots), Longs{9 * 16 + 8});
    EXPECT_EQ(two->common.requests, 1);
  }
}

// 256 requests of 512 blocks: 512 KiB of indices beside what every form has.
TEST(AttentionMetadata, BytesAreThoseOfTheKnownExample) {
  const MetadataLimits limits{.requests = 256, .tokens = 8192, .columns = 512};
  const std::int64_t common = 4 * (256 + 257 + 256) + 8192 * (4 + 8 + 8);
  EXPECT_EQ(builder_of(MetadataForm::kPrefillOnly, limits).bytes(), common);
  EXPECT_EQ(builder_of(MetadataForm::kBlockTables, limits).bytes(),
            common + 8192 * 8 + (std::int64_t{512} << 10));
  EXPECT_EQ(builder_of(MetadataForm::kPagedIndices, limits).bytes(),
            common + 8192 * 8 + (std::int64_t{512} << 10) + 4 * (257 + 256));
}

TEST(AttentionMetadata, SlotsHave64Bits) {
  MetadataBuilder builder = builder_of(MetadataForm::kBlockTables);
  const StepMetadata step = step_of({{3, 1, {200'000'000}}}, 16);
  const auto built = builder.build(step, 0, {});
  ASSERT_TRUE(built);
  EXPECT_EQ(built->common.slots[0], 3'200'000'003);
}

std::string refusal(MetadataForm form, const MetadataLimits& limits, const StepMetadata& step,
                    int group = 0) {
  auto builder = MetadataBuilder::make(form, limits);
  if (!builder) return builder.error().text();
  const auto built = builder->build(step, group, {});
  return built ? "built" : built.error().text();
}

TEST(AttentionMetadata, WhatDoesNotFitIsRefused) {
  const auto tables = MetadataForm::kBlockTables, pages = MetadataForm::kPagedIndices;
  const StepMetadata step = mixed_batch();
  EXPECT_EQ(refusal(tables, {.requests = 3, .tokens = 64, .columns = 4}, step),
            "the step has 4 requests with padding, its metadata has room for 3; make the builder's "
            "limits larger, or the step smaller");
  EXPECT_NE(refusal(tables, {.requests = 4, .tokens = 19, .columns = 4}, step)
                .find("20 tokens with padding"),
            std::string::npos);
  EXPECT_NE(refusal(tables, {.requests = 4, .tokens = 20, .columns = 1}, step)
                .find("2 blocks of a request"),
            std::string::npos);
  EXPECT_NE(refusal(pages, {.requests = 4, .tokens = 20, .columns = 2, .pages = 5}, step)
                .find("6 blocks of all requests"),
            std::string::npos);
  EXPECT_EQ(refusal(pages, {.requests = 4, .tokens = 20, .columns = 2, .pages = 6}, step), "built");
  EXPECT_NE(refusal(tables, kLimits, step, 1).find("no group 1 of caches; groups are 0 to 0"),
            std::string::npos);
  EXPECT_NE(refusal(MetadataForm::kStateIndices, kLimits, step).find("state"), std::string::npos);
  EXPECT_NE(refusal(tables, {.requests = 0, .tokens = 1, .columns = 1}, step).find("0 requests"),
            std::string::npos);
}

TEST(AttentionMetadata, OfAStepWithoutTokensIsEmpty) {
  MetadataBuilder builder = builder_of(MetadataForm::kPagedIndices);
  const StepMetadata step = step_of({{5, 0, {1}}}, 16);
  const auto built = builder.build(step, 0, {});
  ASSERT_TRUE(built) << built.error().text();
  EXPECT_EQ(built->common.padded_requests(), 0);
  EXPECT_EQ(list(built->common.query_start_loc), Ints{0});
  EXPECT_EQ(list(std::get<PagedIndices>(built->form).indptr), Ints{0});
}

// Both forms of one step say the same, and its slots are where they say.
TEST(AttentionMetadata, FormsAgreeOnRandomSteps) {
  std::mt19937 random(7);
  const auto number = [&](int low, int high) {
    return std::uniform_int_distribution<int>(low, high)(random);
  };
  const MetadataLimits limits{.requests = 32, .tokens = 512, .columns = 16};
  MetadataBuilder tables = builder_of(MetadataForm::kBlockTables, limits);
  MetadataBuilder pages = builder_of(MetadataForm::kPagedIndices, limits);
  for (int trial = 0; trial < 200; ++trial) {
    SCOPED_TRACE(trial);
    const std::int64_t block = std::int64_t{1} << number(0, 5);
    std::vector<Request> requests(static_cast<std::size_t>(number(0, 9)));
    std::int32_t next = 1;
    for (Request& r : requests) {
      r.query = number(0, 2) == 0 ? number(0, 7) : 1;
      r.computed = number(0, static_cast<int>(16 * block - r.query));
      r.blocks.resize(static_cast<std::size_t>((r.computed + r.query + block - 1) / block));
      for (std::int32_t& id : r.blocks) id = next++;
    }
    const StepMetadata step = step_of(requests, block, number(0, 1) == 1);
    const auto a = tables.build(step, 0, {.decode_threshold = 3});
    const auto b = pages.build(step, 0, {.decode_threshold = 3});
    ASSERT_TRUE(a && b);
    const auto& table = std::get<BlockTables>(a->form);
    const auto& paged = std::get<PagedIndices>(b->form);
    EXPECT_EQ(list(a->common.slots), list(b->common.slots));
    for (std::int64_t i = 0; i < a->common.padded_requests(); ++i) {
      const auto at = static_cast<std::size_t>(i);
      const auto row = table.tables.subspan(static_cast<std::size_t>(i * table.columns),
                                            static_cast<std::size_t>(table.columns));
      const auto held = std::ranges::count_if(row, [](std::int32_t id) { return id >= 0; });
      ASSERT_EQ(paged.indptr[at + 1] - paged.indptr[at], held);
      EXPECT_TRUE(
          std::equal(row.begin(), row.begin() + held, paged.indices.begin() + paged.indptr[at]));
      EXPECT_EQ(a->common.seq_lens[at],
                held == 0 ? 0 : (held - 1) * block + paged.last_page_len[at]);
    }
    Longs seen;
    for (std::int64_t t = 0; t < a->common.padded_tokens(); ++t) {
      const auto at = static_cast<std::size_t>(t);
      const std::int32_t of = a->common.token_to_req[at];
      if (of < 0) {
        EXPECT_EQ(a->common.slots[at], -1);
        continue;
      }
      seen.push_back(a->common.token_rows[at]);
      const std::int64_t p = a->common.positions[at];
      const std::int32_t id =
          table.tables[static_cast<std::size_t>(of * table.columns + p / block)];
      EXPECT_EQ(a->common.slots[at], id * block + p % block);
    }
    std::ranges::sort(seen);
    ASSERT_EQ(static_cast<std::int64_t>(seen.size()), step.num_tokens_in_step());
    for (std::size_t t = 0; t < seen.size(); ++t) {
      EXPECT_EQ(seen[t], static_cast<std::int64_t>(t));
    }
  }
}

}  // namespace attention_metadata_test
}  // namespace attnscope
