#include "reference/torch/sparse_sdpa.h"

#include <ATen/TensorIndexing.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/bmm.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/where.h>
#include <c10/core/InferenceMode.h>

#include "kernels/layout/records.h"
#include "kernels/params/tensor_view.h"
#include "reference/torch/guard.h"

namespace attnscope::reference {

namespace {

// The value of every code of e4m3fn.
at::Tensor values_of_codes() {
  const at::Tensor code = at::arange(128, at::kFloat);
  const at::Tensor mantissa = code.remainder(8), exponent = code.div(8).floor();
  const at::Tensor small = mantissa * 0x1p-9, normal = (1 + mantissa / 8) * (exponent - 7).exp2();
  const at::Tensor half = at::where(exponent.eq(0), small, normal);
  return at::cat({half, -half});
}

// [tokens, entries, 512] of the listed rows.
at::Tensor gathered(const as_cache& cache, const as_tensor& list, const at::Tensor& values,
                    at::ScalarType type) {
  const std::int64_t blocks = cache.data.shape[0], page = cache.data.shape[1];
  const std::int64_t rows = cache.rows_per_block;
  auto* bytes = static_cast<std::uint8_t*>(cache.data.data);
  const at::Tensor payload = at::from_blob(bytes, {blocks, rows, 576}, {page, 576, 1}, at::kByte);
  const at::Tensor scales =
      at::from_blob(bytes + rows * 576, {blocks, rows, AS_QUANT_BLOCKS}, {page, 8, 1}, at::kByte);
  const at::Tensor slots =
      at::from_blob(list.data, {list.shape[0], list.shape[1]}, at::kInt).to(at::kLong);
  const at::Tensor block = slots.div(rows, "floor"), row = slots.remainder(rows);
  const at::Tensor codes = payload.index({block, row});
  const at::Tensor factors = (scales.index({block, row}).to(at::kFloat) - 127).exp2();
  const at::Tensor nope = values.index({codes.slice(2, 0, AS_NOPE_DIM).to(at::kLong)})
                              .reshape({slots.size(0), slots.size(1), AS_QUANT_BLOCKS, -1})
                              .mul(factors.unsqueeze(3))
                              .flatten(2);
  const at::Tensor rope = codes.slice(2, AS_NOPE_DIM).contiguous().view(at::kBFloat16);
  return at::cat({nope.to(type), rope.to(type)}, 2);
}

}  // namespace

bool torch_sparse_sdpa(const as_sparse_attention_params* p, bool fp32, TorchFailure* failure) {
  return guarded(failure, [&] {
    const c10::InferenceMode inference;
    const at::ScalarType type = fp32 ? at::kFloat : at::kBFloat16;
    const std::int64_t tokens = p->q.shape[0], heads = p->q.shape[1];
    static const at::Tensor values = values_of_codes();
    at::Tensor rows = gathered(p->cache, p->indices, values, type);
    if (p->extra_cache.record != AS_RECORD_NONE) {
      rows = at::cat({rows, gathered(p->extra_cache, p->extra_indices, values, type)}, 1);
    }
    const at::Tensor q =
        at::from_blob(p->q.data, {tokens, heads, AS_HEAD_DIM}, at::kBFloat16).to(type);
    const at::Tensor scores = at::bmm(q, rows.transpose(1, 2)).to(at::kFloat) * p->scale;
    const at::Tensor sinks =
        at::from_blob(p->sinks.data, {1, heads, 1}, at::kFloat).expand({tokens, heads, 1});
    const at::Tensor weights =
        at::softmax(at::cat({scores, sinks}, 2), 2).slice(2, 0, rows.size(1)).to(type);
    at::from_blob(p->o.data, {tokens, heads, AS_HEAD_DIM}, at::kBFloat16)
        .copy_(at::bmm(weights, rows));
  });
}

}  // namespace attnscope::reference
