// Blocks that do not come where they belong between a cache and host memory.
#include <algorithm>
#include <cstring>
#include <vector>

#include "kernels/mutants/bugs.h"
#include "kernels/params/offload_params.h"
#include "kernels/params/tensor_view.h"

namespace attnscope::mutants {
namespace {

using Out = as_swap_out_params;
using In = as_swap_in_params;
using Ids = std::vector<std::int64_t>;

constexpr as_op_id kOut = AS_OP_SWAP_OUT, kIn = AS_OP_SWAP_IN;

// The call with other ids of blocks than it is given.
template <class Params, class Change>
std::int32_t with_blocks(as_op_id op, as_tensor Params::*ids, const void* params,
                         const as_call* call, as_error* error, const Change& change) {
  if (!readable<Params>(params)) return run_cpu(op, params, call, error);
  Params p = *static_cast<const Params*>(params);
  Ids numbers;
  for (std::int64_t m = 0; m < (p.*ids).shape[0]; ++m) {
    numbers.push_back(*at<std::int64_t>(p.*ids, m));
  }
  change(numbers);
  p.*ids = make_tensor(numbers.data(), {(p.*ids).shape[0]});
  return run_cpu(op, &p, call, error);
}

// Of each move the block of the one behind it; the last one's that of the first.
std::int32_t block_behind_sent(const void* params, const as_call* call, as_error* error) {
  return with_blocks<Out>(kOut, &Out::from, params, call, error, [](Ids& ids) {
    if (ids.size() > 1) std::rotate(ids.begin(), ids.begin() + 1, ids.end());
  });
}

std::int32_t last_block_stays(const void* params, const as_call* call, as_error* error) {
  return with_blocks<Out>(kOut, &Out::from, params, call, error, [](Ids& ids) {
    if (!ids.empty()) ids.back() = -1;
  });
}

std::int32_t half_block_sent(const void* params, const as_call* call, as_error* error) {
  return spoil_after<Out>(kOut, params, call, error, [](const Out& p) {
    const std::int64_t half = p.staged.shape[1] / 2;
    for (std::int64_t m = 0; m < p.staged.shape[0]; ++m) {
      std::memset(at<std::uint8_t>(p.staged, m, half), 0,
                  static_cast<std::size_t>(p.staged.shape[1] - half));
    }
    return std::int32_t{AS_OK};
  });
}

std::int32_t blocks_come_reversed(const void* params, const as_call* call, as_error* error) {
  return with_blocks<In>(kIn, &In::to, params, call, error,
                         [](Ids& ids) { std::reverse(ids.begin(), ids.end()); });
}

std::int32_t last_block_not_back(const void* params, const as_call* call, as_error* error) {
  return with_blocks<In>(kIn, &In::to, params, call, error, [](Ids& ids) {
    if (!ids.empty()) ids.back() = -1;
  });
}

// The second half of each block stays what it was.
std::int32_t half_block_back(const void* params, const as_call* call, as_error* error) {
  if (!readable<In>(params)) return run_cpu(kIn, params, call, error);
  const auto& p = *static_cast<const In*>(params);
  const auto has_block = [&p](std::int64_t m) {
    const std::int64_t block = *at<std::int64_t>(p.to, m);
    return block >= 0 && block < p.blocks.data.shape[0];
  };
  const std::int64_t bytes = p.blocks.width, half = bytes / 2;
  std::vector<std::vector<std::uint8_t>> before(static_cast<std::size_t>(p.to.shape[0]));
  for (std::int64_t m = 0; m < p.to.shape[0]; ++m) {
    if (!has_block(m)) continue;
    const auto* page = at<std::uint8_t>(p.blocks.data, *at<std::int64_t>(p.to, m));
    before[static_cast<std::size_t>(m)].assign(page + half, page + bytes);
  }
  return spoil_after<In>(kIn, params, call, error, [&](const In& q) {
    for (std::int64_t m = 0; m < q.to.shape[0]; ++m) {
      if (!has_block(m)) continue;
      std::ranges::copy(before[static_cast<std::size_t>(m)],
                        at<std::uint8_t>(q.blocks.data, *at<std::int64_t>(q.to, m), half));
    }
    return std::int32_t{AS_OK};
  });
}

}  // namespace

std::vector<RareBug> swap_bugs() {
  constexpr const char* kScenario = "swap";
  return {
      {{"mutant:block_behind_sent", "Host memory gets the block of the next move in the list.",
        kOut, block_behind_sent},
       kScenario},
      {{"mutant:last_block_stays", "The last block of a step's list does not go to host memory.",
        kOut, last_block_stays},
       kScenario},
      {{"mutant:half_block_sent", "Host memory gets the first half of each block.", kOut,
        half_block_sent},
       kScenario},
      {{"mutant:blocks_come_reversed", "Blocks come back in the order of the list from its end.",
        kIn, blocks_come_reversed},
       kScenario},
      {{"mutant:last_block_not_back", "The last block of a step's list does not come back.", kIn,
        last_block_not_back},
       kScenario},
      {{"mutant:half_block_back", "The first half of each block comes back.", kIn, half_block_back},
       kScenario},
  };
}

}  // namespace attnscope::mutants
