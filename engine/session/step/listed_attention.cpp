#include "engine/session/step/listed_attention.h"

#include <algorithm>

#include "engine/model/numbers.h"
#include "kernels/params/mla_params.h"
#include "kernels/params/row_access.h"
#include "kernels/params/tensor_view.h"

namespace attnscope {

bool ListedAttention::of(std::int32_t op) {
  return op == AS_OP_SPARSE_ATTENTION || op == AS_OP_MLA_ATTENTION ||
         op == AS_OP_SPARSE_MLA_ATTENTION;
}

ListedAttention::ListedAttention(const OpParams& params, const std::vector<std::int32_t>& rows) {
  if (params.op() == AS_OP_SPARSE_ATTENTION) {
    params_ = &params.get<as_sparse_attention_params>();
    return;
  }
  params_ = &own_;
  const auto take = [&](const auto& p) {
    own_.q = p.q;
    own_.cache = p.cache;
    own_.o = p.o;
    own_.lse = p.lse;
    own_.scale = p.scale;
  };
  if (params.op() == AS_OP_SPARSE_MLA_ATTENTION) {
    const auto& p = params.get<as_sparse_mla_attention_params>();
    take(p);
    own_.indices = p.indices;
    own_.topk_length = p.topk_length;
    return;
  }
  const auto& p = params.get<as_mla_attention_params>();
  take(p);
  const std::int64_t tokens = p.q.shape[0];
  const bool paged = p.cache.addressing == AS_PAGED;
  lens_.assign(to_size(tokens), 0);
  std::int64_t width = 0;
  for (const std::int32_t t : rows) {
    const std::int32_t r = *at<std::int32_t>(p.token_to_req, t);
    if (r < 0) continue;
    const std::int64_t seen = std::min<std::int64_t>(*at<std::int64_t>(p.positions, t) + 1,
                                                     *at<std::int32_t>(p.seq_lens, r));
    const std::int64_t held =
        paged ? p.table.shape[1] * p.cache.rows_per_block : p.cache.data.shape[0];
    lens_[to_size(t)] = static_cast<std::int32_t>(std::clamp<std::int64_t>(seen, 0, held));
    width = std::max<std::int64_t>(width, lens_[to_size(t)]);
  }
  slots_.assign(to_size(tokens * width), -1);
  for (const std::int32_t t : rows) {
    const std::int32_t r = *at<std::int32_t>(p.token_to_req, t);
    for (std::int64_t n = 0; n < lens_[to_size(t)]; ++n) {
      const std::int64_t in_page = paged ? p.cache.rows_per_block : n + 1;
      const std::int64_t id = *at<std::int32_t>(p.table, r, n / in_page);
      slots_[to_size(t * width + n)] =
          static_cast<std::int32_t>(paged ? id * in_page + n % in_page : id + n);
    }
  }
  own_.indices = make_tensor(slots_.data(), {tokens, width});
  own_.topk_length = make_tensor(lens_.data(), {tokens});
}

}  // namespace attnscope
