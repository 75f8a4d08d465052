#include "reference/torch/paged_sdpa.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/from_blob.h>
#include <c10/core/InferenceMode.h>
#if __has_include(<ATen/ops/scaled_dot_product_attention.h>)
#include <ATen/ops/scaled_dot_product_attention.h>
#else  // libtorch 1
#include <ATen/ops/_scaled_dot_product_attention.h>
#endif

#include "kernels/params/row_format.h"
#include "kernels/params/tensor_view.h"
#include "reference/torch/guard.h"

namespace attnscope::reference {

namespace {

// [blocks, rows, heads, size] of a cache.
at::Tensor pages_of(const as_cache& cache) {
  const std::int64_t heads = as_cache_heads(&cache);
  return at::from_blob(cache.data.data,
                       {cache.data.shape[0], cache.rows_per_block, heads, cache.width / heads},
                       at::kBFloat16);
}

// [1, heads, rows, size] of a request's first rows.
at::Tensor gathered(const at::Tensor& pages, const at::Tensor& blocks, std::int64_t rows,
                    at::ScalarType type) {
  at::Tensor all = pages.index_select(0, blocks);
  all = all.reshape({-1, all.size(2), all.size(3)}).slice(0, 0, rows);
  return all.permute({1, 0, 2}).to(type).contiguous().unsqueeze(0);
}

template <class... Mask>
at::Tensor attend(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                  const Mask&... mask) {
#if __has_include(<ATen/ops/scaled_dot_product_attention.h>)
  return at::scaled_dot_product_attention(q, k, v, mask...);
#else
  return std::get<0>(at::_scaled_dot_product_attention(q, k, v, mask...));
#endif
}

}  // namespace

bool torch_paged_sdpa(const as_paged_attention_params* p, bool fp32, TorchFailure* failure) {
  return guarded(failure, [&] {
    const c10::InferenceMode inference;
    const at::ScalarType type = fp32 ? at::kFloat : at::kBFloat16;
    const std::int64_t tokens = p->q.shape[0], heads = p->q.shape[1], size = p->q.shape[2];
    const std::int64_t kv_heads = as_cache_heads(&p->k_cache), group = heads / kv_heads;
    const at::Tensor q = at::from_blob(p->q.data, {tokens, heads, size}, at::kBFloat16);
    at::Tensor o = at::from_blob(p->o.data, {tokens, heads, p->o.shape[2]}, at::kBFloat16);
    const at::Tensor k_pages = pages_of(p->k_cache), v_pages = pages_of(p->v_cache);
    for (std::int64_t first = 0, n = 0; first < tokens; first += n) {
      const std::int64_t r = *at<std::int32_t>(p->token_to_req, first);
      for (n = 1; first + n < tokens && *at<std::int32_t>(p->token_to_req, first + n) == r;) ++n;
      const std::int64_t rows = *at<std::int32_t>(p->seq_lens, r);
      const std::int64_t columns =
          (rows + p->k_cache.rows_per_block - 1) / p->k_cache.rows_per_block;
      const at::Tensor blocks =
          at::from_blob(at<std::int32_t>(p->table, r), {columns}, at::kInt).to(at::kLong);
      const at::Tensor k = gathered(k_pages, blocks, rows, type);
      const at::Tensor v = gathered(v_pages, blocks, rows, type);
      // The heads of a KV head side by side as queries: no copy of its rows for each of them.
      const at::Tensor queries = q.slice(0, first, first + n)
                                     .reshape({n, kv_heads, group, size})
                                     .permute({1, 2, 0, 3})
                                     .to(type)
                                     .reshape({1, kv_heads, group * n, size});
      at::Tensor out;
      if (n > 1) {
        const at::Tensor last = at::arange(rows - n, rows).unsqueeze(1);
        out = attend(queries, k, v, at::arange(rows).unsqueeze(0).le(last).repeat({group, 1}));
      } else {
        out = attend(queries, k, v);
      }
      o.slice(0, first, first + n)
          .copy_(
              out.reshape({kv_heads, group, n, -1}).permute({2, 0, 1, 3}).reshape({n, heads, -1}));
    }
  });
}

}  // namespace attnscope::reference
