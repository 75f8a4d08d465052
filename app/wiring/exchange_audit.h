// Where rows lie in host memory: whether what a layer writes elsewhere than to its pages comes back
// to them, token by token.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kernels/params/offload_params.h"

namespace attnscope {

class ExchangeAudit {
 public:
  // The slots, i64 [T], that an op writes the layer's rows to, and those of the pages.
  void wrote(const as_tensor& slots, const as_tensor& pages);
  // What is wrong with what exchange_rows is given to take back; empty = nothing.
  std::string exchanged(const as_exchange_rows_params& params) const;

 private:
  std::vector<std::int64_t> slots_, pages_;
};

}  // namespace attnscope
