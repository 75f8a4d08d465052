#include "kernels/cpu/paged_forms.h"

#include <algorithm>

#include "kernels/params/tensor_view.h"

namespace attnscope::cpu {
namespace {

// By request: the lowest position of its tokens, and no more than the rows it has; -1 = no tokens.
std::vector<std::int64_t> computed_before(const as_paged_attention_params& p) {
  std::vector<std::int64_t> rows(static_cast<std::size_t>(p.table.shape[0]), -1);
  for (std::int64_t t = 0; t < p.q.shape[0]; ++t) {
    const std::int32_t request = *at<std::int32_t>(p.token_to_req, t);
    if (request < 0) continue;
    std::int64_t& lowest = rows[static_cast<std::size_t>(request)];
    const std::int64_t held = std::max(0, *at<std::int32_t>(p.seq_lens, request));
    const std::int64_t position = std::min(*at<std::int64_t>(p.positions, t), held);
    lowest = lowest < 0 ? position : std::min(lowest, position);
  }
  return rows;
}

}  // namespace

ContextCuts context_cuts(const as_paged_attention_params& p) {
  ContextCuts cuts;
  const auto requests = static_cast<std::size_t>(p.table.shape[0]);
  cuts.rows.assign(requests, 0);
  if (p.form == AS_PAGED_ONE_PASS) return cuts;
  const std::vector<std::int64_t> computed = computed_before(p);
  if (p.form == AS_PAGED_MERGED) {
    for (std::size_t r = 0; r < requests; ++r)
      cuts.rows[r] = std::max<std::int64_t>(0, computed[r]);
    return cuts;
  }
  if (p.k_cache.addressing != AS_PAGED) return cuts;
  const auto first = std::ranges::find_if(computed, [](std::int64_t n) { return n >= 0; });
  if (first == computed.end()) return cuts;
  const std::int64_t one = first - computed.begin();
  std::int64_t common = *first / p.k_cache.rows_per_block, others = 0;
  for (std::size_t r = static_cast<std::size_t>(one) + 1; r < requests; ++r) {
    if (computed[r] < 0) continue;
    ++others;
    common = std::min(common, computed[r] / p.k_cache.rows_per_block);
    std::int64_t same = 0;
    while (same < common && *at<std::int32_t>(p.table, static_cast<std::int64_t>(r), same) ==
                                *at<std::int32_t>(p.table, one, same)) {
      ++same;
    }
    common = same;
  }
  if (others == 0 || common == 0) return cuts;
  cuts.shared = one;
  std::ranges::fill(cuts.rows, common * p.k_cache.rows_per_block);
  return cuts;
}

}  // namespace attnscope::cpu
