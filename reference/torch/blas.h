// Products and rows on libtorch, see module.h.
#pragma once

#include "reference/torch/module.h"

namespace attnscope::reference {

bool torch_matmul(const double* a, const double* b, double* c, std::int64_t m, std::int64_t n,
                  std::int64_t k, bool b_transposed, bool fp32, TorchFailure* failure);
bool torch_for_rows(std::int64_t begin, std::int64_t end, std::int64_t grain,
                    void (*body)(void*, std::int64_t, std::int64_t), void* data,
                    TorchFailure* failure);

}  // namespace attnscope::reference
