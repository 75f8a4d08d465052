// What bugs of q_rope_kv_insert and of other rotations share.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "kernels/layout/records.h"
#include "kernels/mutants/bugs.h"
#include "kernels/params/attention_params.h"
#include "kernels/params/tensor_view.h"

namespace attnscope::mutants {

using Insert = as_q_rope_kv_insert_params;

// Wants the rows before quantisation; keeps them where the caller does not ask for them.
class WithRows {
 public:
  explicit WithRows(const void* params) {
    if (!readable<Insert>(params)) return;
    p_ = *static_cast<const Insert*>(params);
    if (present(p_.kv_row) || p_.rows_given != 0 || p_.slots.rank != 1) return;
    memory_.resize(static_cast<std::size_t>(p_.slots.shape[0]) * AS_HEAD_DIM);
    p_.kv_row = make_tensor(memory_.data(), {p_.slots.shape[0], AS_HEAD_DIM});
  }
  const void* params(const void* given) const { return readable<Insert>(given) ? &p_ : given; }

 private:
  Insert p_{};
  std::vector<bf16_t> memory_;
};

// One behind the last position; at least 1.
inline std::int64_t positions_end(const as_tensor& positions) {
  std::int64_t end = 1;
  for (std::int64_t t = 0; t < positions.shape[0]; ++t) {
    end = std::max(end, *at<std::int64_t>(positions, t) + 1);
  }
  return end;
}

}  // namespace attnscope::mutants
