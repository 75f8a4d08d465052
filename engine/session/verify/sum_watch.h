// The sum over ranks against what the ranks gave: whoever adds up (tensor_parallel_sum.h) is not
// asked which parts there were. Each rank's part is taken down when its wo_b has run, known by the
// weight that it read.
#pragma once

#include <optional>
#include <vector>

#include "engine/session/step/op_params.h"
#include "engine/trace/tap_result.h"

namespace attnscope {

struct SessionParts;

class SumWatch {
 public:
  explicit SumWatch(const SessionParts& parts) : parts_(parts) {}

  // The op that makes a part of the sum has run for some rank in a layer (running index); its
  // output is on the host.
  void part(int layer, const as_linear_params& params);
  // bf16 [T,hidden], the layer's output over all ranks. A result where it is not the sum of the
  // parts, one of each rank: in float64, but for a rounding to bf16 and fp32 sums on the way.
  std::optional<TapResult> summed(int layer, const as_tensor& total);

 private:
  struct Part {
    int times = 0;
    std::vector<double> values;  // [T, hidden]
  };
  const SessionParts& parts_;
  std::vector<Part> of_ranks_;
  bool foreign_ = false;  // an output of a weight that no rank has in this layer
};

}  // namespace attnscope
