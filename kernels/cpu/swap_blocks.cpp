// swap_out, swap_in: whole blocks between a cache and what is staged for host memory, or from it.
#include <cstring>

#include "kernels/cpu/offload_check.h"
#include "kernels/cpu/ops.h"
#include "kernels/cpu/parallel.h"
#include "kernels/params/tensor_view.h"

namespace attnscope::cpu {
namespace {

constexpr std::int64_t kBlocksOfThread = 4;

bool check_blocks(const as_cache& c, const char* name, const as_tensor& ids,
                  const as_tensor& staged, bool values, Check& check) {
  if (c.record != AS_BLOCK_RECORD || c.width <= 0 || c.data.reserved > 1) {
    return check.fail(
        "blocks holds record %d of %d values and %d heads; a block is one row of record %d with "
        "one head, as wide as it has bytes",
        c.record, c.width, c.data.reserved, AS_BLOCK_RECORD);
  }
  if (c.addressing == AS_PAGED && c.rows_per_block != 1) {
    return check.fail("blocks has %d rows per block; a block is one row", c.rows_per_block);
  }
  if (!check.tensor("blocks", c.data, AS_U8, {kAny, kAny})) return false;
  if (c.data.shape[0] > 0 && c.data.shape[1] < c.width) {
    return check.fail("blocks has pages of %lld bytes; its blocks have %d",
                      static_cast<long long>(c.data.shape[1]), c.width);
  }
  return check.tensor(name, ids, AS_I64, {kAny}) &&
         check.tensor("staged", staged, AS_U8, {ids.shape[0], c.width}) &&
         (!values || check.slots(name, ids, c));
}

// Calls move(block, staged row) for each that has a block; -1 too.
template <class Move>
void each_move(const as_tensor& ids, const as_call* call, const Move& move) {
  parallel_for(call, ids.shape[0], kBlocksOfThread, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t m = begin; m < end; ++m) move(*at<std::int64_t>(ids, m), m);
  });
}

}  // namespace

bool check_params(const as_swap_out_params& p, bool values, Check& check) {
  return check_blocks(p.blocks, "from", p.from, p.staged, values, check);
}

bool check_params(const as_swap_in_params& p, bool values, Check& check) {
  return check_blocks(p.blocks, "to", p.to, p.staged, values, check);
}

void swap_out(const as_swap_out_params& p, const as_call* call, Check& check) {
  if (!check_params(p, true, check)) return;
  const auto bytes = static_cast<std::size_t>(p.blocks.width);
  each_move(p.from, call, [&](std::int64_t block, std::int64_t m) {
    auto* to = at<unsigned char>(p.staged, m);
    if (block < 0) {
      std::memset(to, 0, bytes);
    } else {
      std::memcpy(to, at<unsigned char>(p.blocks.data, block), bytes);
    }
  });
}

void swap_in(const as_swap_in_params& p, const as_call* call, Check& check) {
  if (!check_params(p, true, check)) return;
  const auto bytes = static_cast<std::size_t>(p.blocks.width);
  each_move(p.to, call, [&](std::int64_t block, std::int64_t m) {
    if (block < 0) return;
    std::memcpy(at<unsigned char>(p.blocks.data, block), at<unsigned char>(p.staged, m), bytes);
  });
}

}  // namespace attnscope::cpu
