// The sequences of varlen_attention, and which keys a query of one sees.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/params/paged_params.h"
#include "kernels/params/tensor_view.h"

namespace attnscope::cpu {

struct VarlenSequence {
  std::int64_t query = 0, queries = 0;  // the first row of q, and how many
  std::int64_t key = 0, keys = 0;       // likewise of k and v
};

inline VarlenSequence sequence_of(const as_varlen_attention_params& p, std::int64_t n) {
  const as_tensor& keys = p.cu_seqlens_k.data != nullptr ? p.cu_seqlens_k : p.cu_seqlens;
  VarlenSequence s;
  s.query = *at<std::int32_t>(p.cu_seqlens, n);
  s.queries = *at<std::int32_t>(p.cu_seqlens, n + 1) - s.query;
  s.key = *at<std::int32_t>(keys, n);
  s.keys = *at<std::int32_t>(keys, n + 1) - s.key;
  if (p.token_to_req.data != nullptr) {
    std::int64_t used = 0;
    while (used < s.queries && *at<std::int32_t>(p.token_to_req, s.query + used) >= 0) ++used;
    s.queries = s.keys = used;
  }
  return s;
}

// The last query stands beside the last key.
inline std::int64_t place_among_keys(const VarlenSequence& s, std::int64_t query) {
  return s.keys - s.queries + query;
}

struct SeenKeys {
  std::int64_t first = 0, end = 0;  // none where first >= end
};

inline SeenKeys seen_keys(const as_varlen_attention_params& p, const VarlenSequence& s,
                          std::int64_t query) {
  const std::int64_t place = place_among_keys(s, query);
  SeenKeys seen{0, s.keys};
  if (p.causal != 0) seen.end = std::min(seen.end, place + 1);
  if (p.window_right >= 0) seen.end = std::min(seen.end, place + p.window_right + 1);
  if (p.window_left >= 0) seen.first = std::max<std::int64_t>(0, place - p.window_left);
  return seen;
}

}  // namespace attnscope::cpu
