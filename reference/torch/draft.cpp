// What a draft layer begins with.
#include "reference/ops.h"
#include "reference/torch/cache_rows.h"
#include "reference/torch/rotary.h"

namespace attnscope::reference {

// Rows of the embedding by index, those that count for nothing as zeros, whose norm is zeros.
void draft_norm(const as_draft_norm_params& p, const Precision& precision) {
  const FewOnHost few(as_tensor_numel(&p.hidden));
  const Numbers numbers(precision);
  const Tensor hidden = floats(p.hidden, "hidden", {kAny, kAny});
  const std::int64_t tokens = hidden.size(0), width = hidden.size(1);
  const Tensor table = floats(p.embedding, "embedding", {kAny, width});
  const Tensor next = integers(p.tokens, "tokens", {tokens}).to(at::kLong);
  const Tensor positions = integers(p.positions, "positions", {tokens}).to(at::kLong);
  check(p.h, "h", Kind::kFloat, {tokens, width});
  check(p.e, "e", Kind::kFloat, {tokens, width});
  const Tensor counts = next.ge(0).logical_and(positions.ne(0));
  const Tensor rows = next.clamp_min(0);
  check_indices(rows, table.size(0), "token");
  const Tensor embedded = table.index_select(0, rows.to(table.device()))
                              .masked_fill(counts.logical_not().unsqueeze(1).to(table.device()), 0);
  put_bf16(p.h, normalised(hidden, p.eps, numbers) * floats(p.h_weight, "h_weight", {width}),
           numbers);
  put_bf16(p.e, normalised(embedded, p.eps, numbers) * floats(p.e_weight, "e_weight", {width}),
           numbers);
}

}  // namespace attnscope::reference
