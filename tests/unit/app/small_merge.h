// A call of merge_states, of one token, one head and four columns, with what should come out.
//
//   SmallMerge merge(0, 0, {3, 4, 5, 6}, 0.6931472f);
//   const as_merge_states_params p = merge.params();  // as long as merge lives
#pragma once

#include <utility>
#include <vector>

#include "kernels/params/helper_params.h"
#include "kernels/params/tensor_view.h"

namespace attnscope {

class SmallMerge {
 public:
  SmallMerge(float lse_a, float lse_b, std::vector<float> out, float lse)
      : out_(std::move(out)), lse_a_{lse_a}, lse_b_{lse_b}, lse_{lse} {}

  as_merge_states_params params() {
    as_merge_states_params p{};
    p.head = {sizeof(p), AS_PARAMS_VERSION};
    p.a = make_tensor(a_.data(), {1, 1, 4});
    p.b = make_tensor(b_.data(), {1, 1, 4});
    p.out = make_tensor(out_.data(), {1, 1, 4});
    p.lse_a = make_tensor(lse_a_.data(), {1, 1});
    p.lse_b = make_tensor(lse_b_.data(), {1, 1});
    p.lse = make_tensor(lse_.data(), {1, 1});
    return p;
  }

 private:
  std::vector<float> a_ = {1, 2, 3, 4}, b_ = {5, 6, 7, 8}, out_, lse_a_, lse_b_, lse_;
};

}  // namespace attnscope
