// swap_out and swap_in on every lane against ref.sim: blocks of any number of bytes, in pages that
// are larger, with holes in the list; blocks that nobody names stay what they were; bad params are
// refused.
#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <numeric>
#include <string>
#include <vector>

#include "kernels/params/offload_params.h"
#include "tests/property/checks.h"

namespace attnscope {
namespace swap_blocks_property_test {

constexpr std::int64_t kBytes[] = {1, 7, 16, 1171, 4096, 16384, 16400, 40000};

struct Call {
  std::vector<std::uint8_t> pages, staged;
  std::vector<std::int64_t> ids;
  OpParams params;
};

// moves of the ids of `blocks` blocks, each at most once; a fifth of them none.
void make_call(Call& call, as_op_id op, std::int64_t bytes, std::int64_t moves,
               properties::Random& random) {
  const auto below = [&](std::int64_t n) {
    return static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(n));
  };
  const std::int64_t blocks = moves + 1 + below(4), stride = bytes + below(3) * 16 + below(2);
  call.pages.resize(static_cast<std::size_t>(blocks * stride));
  call.staged.resize(static_cast<std::size_t>(moves * bytes));
  for (std::uint8_t& byte : call.pages) byte = static_cast<std::uint8_t>(random());
  for (std::uint8_t& byte : call.staged) byte = static_cast<std::uint8_t>(random());
  call.ids.resize(static_cast<std::size_t>(blocks));
  std::iota(call.ids.begin(), call.ids.end(), 0);
  std::shuffle(call.ids.begin(), call.ids.end(), random);
  call.ids.resize(static_cast<std::size_t>(moves));
  for (std::int64_t& id : call.ids) id = below(5) == 0 ? -1 : id;
  as_cache cache{};
  cache.data = make_tensor(call.pages.data(), {blocks, bytes});
  cache.data.stride[0] = stride;
  cache.record = AS_BLOCK_RECORD;
  cache.addressing = AS_PAGED;
  cache.rows_per_block = 1;
  cache.width = static_cast<std::int32_t>(bytes);
  const as_tensor ids = make_tensor(call.ids.data(), {moves});
  const as_tensor staged = make_tensor(call.staged.data(), {moves, bytes});
  if (op == AS_OP_SWAP_OUT) {
    auto& p = call.params.init<as_swap_out_params>(op);
    p.blocks = cache, p.from = ids, p.staged = staged;
  } else {
    auto& p = call.params.init<as_swap_in_params>(op);
    p.blocks = cache, p.to = ids, p.staged = staged;
  }
}

as_cache& blocks_of(OpParams& params) {
  return params.op() == AS_OP_SWAP_OUT ? params.get<as_swap_out_params>().blocks
                                       : params.get<as_swap_in_params>().blocks;
}

as_tensor& staged_of(OpParams& params) {
  return params.op() == AS_OP_SWAP_OUT ? params.get<as_swap_out_params>().staged
                                       : params.get<as_swap_in_params>().staged;
}

}  // namespace swap_blocks_property_test

namespace properties {

Report check_swap_blocks(const Lane& lane, int which) {
  using namespace swap_blocks_property_test;
  Report report(case_seed(fmt::format("swap_blocks {}", which)));
  Random random(report.seed());
  const as_op_id op = which % 2 == 0 ? AS_OP_SWAP_OUT : AS_OP_SWAP_IN;
  Call call;
  make_call(call, op, kBytes[which / 2 % static_cast<int>(std::size(kBytes))],
            static_cast<std::int64_t>(random() % 9), random);
  std::vector<std::uint8_t> pages = call.pages, staged = call.staged;
  if (!run(lane, call.params, &report)) return report;

  OpParams logical = call.params;
  as_cache& blocks = blocks_of(logical);
  blocks.addressing = AS_LOGICAL;
  blocks.rows_per_block = 0;
  blocks.data.data = pages.data();
  staged_of(logical).data = staged.data();
  if (!run(*reference::sim_lane(), logical, &report)) return report;
  if (call.pages != pages) report.fail("blocks", "other blocks than ref.sim's");
  if (call.staged != staged) report.fail("staged", "other bytes than ref.sim's");
  return report;
}

}  // namespace properties

namespace swap_blocks_property_test {

TEST(SwapBlocks, MovesWhatTheReferenceMovesAndNothingElse) {
  for (int which = 0; which < 160; ++which) {
    const properties::Report report = properties::check_swap_blocks(*cpu::lane(), which);
    EXPECT_TRUE(report.ok()) << report;
  }
}

TEST(SwapBlocks, WhatWentOutComesBack) {
  properties::Random random(3);
  Call out;
  make_call(out, AS_OP_SWAP_OUT, 1171, 7, random);
  std::iota(out.ids.rbegin(), out.ids.rend(), 0);
  as_error error{};
  ASSERT_EQ(cpu::lane()->ops[AS_OP_SWAP_OUT](out.params.data(), nullptr, &error), AS_OK);
  const std::vector<std::uint8_t> before = out.pages;
  const auto& p = out.params.get<as_swap_out_params>();
  for (const std::int64_t id : out.ids) {
    std::fill_n(at<std::uint8_t>(p.blocks.data, id), 1171, std::uint8_t{0xff});
  }
  EXPECT_NE(out.pages, before);
  OpParams params;
  auto& back = params.init<as_swap_in_params>(AS_OP_SWAP_IN);
  back.staged = p.staged, back.to = p.from, back.blocks = p.blocks;
  ASSERT_EQ(cpu::lane()->ops[AS_OP_SWAP_IN](params.data(), nullptr, &error), AS_OK);
  EXPECT_EQ(out.pages, before);
}

TEST(SwapBlocks, RefusesWhatIsNoBlock) {
  const struct {
    const char* said;
    std::function<void(Call&)> spoil;
  } cases[] = {
      {"[0] is slot ", [](Call& c) { c.ids[0] = blocks_of(c.params).data.shape[0]; }},
      {"[0] is slot -2", [](Call& c) { c.ids[0] = -2; }},
      {"blocks holds record 5 of 16 values",
       [](Call& c) { blocks_of(c.params).record = AS_RECORD_BF16; }},
      {"blocks has 2 rows per block", [](Call& c) { blocks_of(c.params).rows_per_block = 2; }},
      {"blocks has pages of 15 bytes", [](Call& c) { blocks_of(c.params).data.shape[1] = 15; }},
      {"staged has shape [3,15]; it must be [3,16]",
       [](Call& c) { staged_of(c.params).shape[1] = 15; }},
      {"staged is i32", [](Call& c) { staged_of(c.params).dtype = AS_I32; }},
      {"blocks lies on device 1", [](Call& c) { blocks_of(c.params).data.device = 1; }},
  };
  properties::Random random(7);
  for (const as_op_id op : {AS_OP_SWAP_OUT, AS_OP_SWAP_IN}) {
    for (const auto& one : cases) {
      Call call;
      make_call(call, op, 16, 3, random);
      one.spoil(call);
      const std::vector<std::uint8_t> pages = call.pages, staged = call.staged;
      as_error error{};
      EXPECT_NE(cpu::lane()->ops[op](call.params.data(), nullptr, &error), AS_OK) << one.said;
      EXPECT_NE(std::string(error.message).find(one.said), std::string::npos) << error.message;
      EXPECT_EQ(call.pages, pages);
      EXPECT_EQ(call.staged, staged);
    }
  }
}

}  // namespace swap_blocks_property_test
}  // namespace attnscope
