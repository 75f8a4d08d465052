// Whole blocks from one store into another: bytes.
#include <algorithm>
#include <vector>

#include "reference/ops.h"
#include "reference/tensors.h"

namespace attnscope::reference {

void copy_blocks(const as_copy_blocks_params& p, const Precision&) {
  const Bytes from(p.from, "from", {kAny, kAny});
  const Bytes to(p.to, "to", {kAny, p.from.shape[1]});
  const Integers pairs(p.pairs, "pairs", {kAny, 2});
  std::vector<std::uint8_t> held(static_cast<std::size_t>(p.from.shape[1]));
  for (std::int64_t n = 0; n < pairs.size(0); ++n) {
    if (pairs.get(n, 0) < 0 || pairs.get(n, 1) < 0) continue;
    check_index(pairs.get(n, 0), p.from.shape[0], "block of from", n);
    check_index(pairs.get(n, 1), p.to.shape[0], "block of to", n);
    std::uint8_t* source = from.row(pairs.get(n, 0));
    std::uint8_t* target = to.row(pairs.get(n, 1));
    std::copy_n(target, held.size(), held.begin());
    std::copy_n(source, held.size(), target);
    if (p.exchange != 0) std::copy(held.begin(), held.end(), source);
  }
}

}  // namespace attnscope::reference
