// What sparse_attention attends over for tokens that prefill, where its params have `prefill`: the
// rows that requests of a chunk list, gathered and dequantised once, and the tokens' lists of them.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/cpu/check.h"
#include "kernels/params/attention_params.h"
#include "kernels/params/lane.h"

namespace attnscope::cpu {

// Shape of `prefill`; with `values` also its numbers: those of a part stand side by side.
bool check_prefill(const as_tensor& prefill, std::int64_t tokens, bool values, Check& check);

struct PrefillWorkspace {
  // Neighbouring tokens of one request.
  struct Part {
    std::int64_t first = 0, tokens = 0;  // of the step
    std::int64_t place = 0;              // among the chunk's parts
  };
  std::vector<Part> parts;
  std::int64_t compressed = 0;        // rows of compressed entries in a part
  std::int64_t width = 0;             // with those of windows
  std::int64_t columns = 0;           // of a token's list
  std::vector<std::uint16_t> rows;    // bf16 [places * width, 512]
  std::vector<std::int32_t> indices;  // [tokens of all parts, columns]: compressed, then window
  std::vector<std::int32_t> compressed_lens, lens;  // by token: of its list, compressed and all
};

// By chunk. Params that have been checked.
std::vector<PrefillWorkspace> gather_prefill(const as_sparse_attention_params& p);

// Attention of a chunk's tokens over its workspace.
void attend_prefill(const as_sparse_attention_params& p, const PrefillWorkspace& workspace,
                    const as_call* call);

// The params of n tokens from `first` on, without `prefill`.
as_sparse_attention_params of_tokens(const as_sparse_attention_params& p, std::int64_t first,
                                     std::int64_t n);

}  // namespace attnscope::cpu
