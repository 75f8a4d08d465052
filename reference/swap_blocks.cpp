// Whole blocks out of a cache and into it, each as its number says: bytes.
#include <algorithm>

#include "reference/ops.h"
#include "reference/tensors.h"

namespace attnscope::reference {

void swap_out(const as_swap_out_params& p, const Precision&) {
  const Integers from(p.from, "from", {kAny});
  const Bytes blocks(p.blocks.data, "blocks", {kAny, kAny});
  const Bytes staged(p.staged, "staged", {from.size(0), p.blocks.data.shape[1]});
  for (std::int64_t m = 0; m < from.size(0); ++m) {
    if (from.get(m) < 0) {
      std::fill_n(staged.row(m), p.staged.shape[1], std::uint8_t{0});
      continue;
    }
    check_index(from.get(m), p.blocks.data.shape[0], "block of from", m);
    std::copy_n(blocks.row(from.get(m)), p.staged.shape[1], staged.row(m));
  }
}

void swap_in(const as_swap_in_params& p, const Precision&) {
  const Integers to(p.to, "to", {kAny});
  const Bytes blocks(p.blocks.data, "blocks", {kAny, kAny});
  const Bytes staged(p.staged, "staged", {to.size(0), p.blocks.data.shape[1]});
  for (std::int64_t m = 0; m < to.size(0); ++m) {
    if (to.get(m) < 0) continue;
    check_index(to.get(m), p.blocks.data.shape[0], "block of to", m);
    std::copy_n(staged.row(m), p.staged.shape[1], blocks.row(to.get(m)));
  }
}

}  // namespace attnscope::reference
