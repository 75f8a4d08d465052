// Wrong attention of packed sequences.
#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/mutants/bugs.h"
#include "kernels/params/paged_params.h"
#include "kernels/params/tensor_view.h"

namespace attnscope::mutants {
namespace {

using Packed = as_varlen_attention_params;
constexpr as_op_id kPacked = AS_OP_VARLEN_ATTENTION;

// The op with params that change(p) has changed.
template <class Change>
std::int32_t packed_other(const void* params, const as_call* call, as_error* error,
                          const Change& change) {
  return spoil_after<Packed>(kPacked, params, call, error, [&](Packed p) -> std::int32_t {
    change(p);
    return run_cpu(kPacked, &p, call, error);
  });
}

// Inner borders of sequences, moved by one row: each takes the first row of the next.
std::vector<std::int32_t> borders_late(const as_tensor& starts) {
  std::vector<std::int32_t> moved;
  const std::int64_t count = starts.shape[0];
  for (std::int64_t n = 0; n < count; ++n) {
    const std::int32_t last = *at<std::int32_t>(starts, count - 1);
    const std::int32_t own = *at<std::int32_t>(starts, n);
    moved.push_back(n == 0 || n + 1 == count ? own : std::min(own + 1, last));
  }
  return moved;
}

std::int32_t varlen_border_late(const void* params, const as_call* call, as_error* error) {
  std::vector<std::int32_t> queries, keys;
  return packed_other(params, call, error, [&](Packed& p) {
    queries = borders_late(p.cu_seqlens);
    p.cu_seqlens = make_tensor(queries.data(), {p.cu_seqlens.shape[0]});
    if (!present(p.cu_seqlens_k)) return;
    keys = borders_late(p.cu_seqlens_k);
    p.cu_seqlens_k = make_tensor(keys.data(), {p.cu_seqlens_k.shape[0]});
  });
}

// All of a batch is one sequence.
std::int32_t varlen_one_sequence(const void* params, const as_call* call, as_error* error) {
  std::vector<std::int32_t> queries, keys;
  const auto ends = [](const as_tensor& starts) {
    return std::vector<std::int32_t>{0, *at<std::int32_t>(starts, starts.shape[0] - 1)};
  };
  return packed_other(params, call, error, [&](Packed& p) {
    queries = ends(p.cu_seqlens);
    if (present(p.cu_seqlens_k)) keys = ends(p.cu_seqlens_k);
    p.cu_seqlens = make_tensor(queries.data(), {2});
    if (present(p.cu_seqlens_k)) p.cu_seqlens_k = make_tensor(keys.data(), {2});
  });
}

std::int32_t varlen_causal_turned(const void* params, const as_call* call, as_error* error) {
  return packed_other(params, call, error, [](Packed& p) { p.causal = 1 - p.causal; });
}

std::int32_t varlen_window_mirrored(const void* params, const as_call* call, as_error* error) {
  return packed_other(params, call, error,
                      [](Packed& p) { std::swap(p.window_left, p.window_right); });
}

// A window of W keys before the query's own is taken for one of W keys with it.
std::int32_t varlen_window_short(const void* params, const as_call* call, as_error* error) {
  return packed_other(params, call, error, [](Packed& p) {
    if (p.window_left > 0) --p.window_left;
  });
}

std::int32_t varlen_scale_missing(const void* params, const as_call* call, as_error* error) {
  return packed_other(params, call, error, [](Packed& p) { p.scale = 1; });
}

std::int32_t varlen_cap_before_scale(const void* params, const as_call* call, as_error* error) {
  return packed_other(params, call, error, [](Packed& p) { p.soft_cap *= std::fabs(p.scale); });
}

std::int32_t varlen_slope_of_next_head(const void* params, const as_call* call, as_error* error) {
  std::vector<float> slopes;
  return packed_other(params, call, error, [&](Packed& p) {
    if (!present(p.alibi_slopes)) return;
    const std::int64_t heads = p.alibi_slopes.shape[0];
    for (std::int64_t h = 0; h < heads; ++h) {
      slopes.push_back(*at<float>(p.alibi_slopes, (h + 1) % heads));
    }
    p.alibi_slopes = make_tensor(slopes.data(), {heads});
  });
}

std::int32_t varlen_lse_base_2(const void* params, const as_call* call, as_error* error) {
  return spoil_after<Packed>(kPacked, params, call, error, [](const Packed& p) -> std::int32_t {
    for (std::int64_t t = 0; t < p.lse.shape[0]; ++t) {
      for (std::int64_t h = 0; h < p.lse.shape[1]; ++h) {
        *at<float>(p.lse, t, h) *= 1.442695041f;
      }
    }
    return AS_OK;
  });
}

// Each query head reads the KV head behind the right one.
std::int32_t varlen_kv_head_of_neighbour(const void* params, const as_call* call, as_error* error) {
  std::vector<bf16_t> keys, values;
  const auto moved = [](const as_tensor& t, std::vector<bf16_t>& to) {
    const std::int64_t rows = t.shape[0], heads = t.shape[1], size = t.shape[2];
    for (std::int64_t n = 0; n < rows; ++n) {
      for (std::int64_t g = 0; g < heads; ++g) {
        const bf16_t* from = at<bf16_t>(t, n, (g + 1) % heads);
        to.insert(to.end(), from, from + size);
      }
    }
    return make_tensor(to.data(), {rows, heads, size});
  };
  return packed_other(params, call, error, [&](Packed& p) {
    p.k = moved(p.k, keys);
    p.v = moved(p.v, values);
  });
}

}  // namespace

std::vector<Bug> varlen_bugs() {
  return {
      {"mutant:varlen_border_late", "A sequence takes the first row of the one behind it.", kPacked,
       varlen_border_late},
      {"mutant:varlen_one_sequence", "All sequences of a batch see each other.", kPacked,
       varlen_one_sequence},
      {"mutant:varlen_causal_turned", "Queries see no later keys where they should, or do.",
       kPacked, varlen_causal_turned},
      {"mutant:varlen_window_mirrored", "The window's two sides are exchanged.", kPacked,
       varlen_window_mirrored},
      {"mutant:varlen_window_short", "The window counts the query's own key: one too few.", kPacked,
       varlen_window_short},
      {"mutant:varlen_scale_missing", "Scores of packed sequences are not scaled.", kPacked,
       varlen_scale_missing},
      {"mutant:varlen_cap_before_scale",
       "The soft cap of packed sequences is applied to scores before their scale.", kPacked,
       varlen_cap_before_scale},
      {"mutant:varlen_slope_of_next_head",
       "In packed sequences a head has ALiBi's slope of the head behind it.", kPacked,
       varlen_slope_of_next_head},
      {"mutant:varlen_lse_base_2", "LSE of packed sequences is a logarithm of base 2.", kPacked,
       varlen_lse_base_2},
      {"mutant:varlen_kv_head_of_neighbour",
       "In packed sequences each query head reads the KV head behind its own.", kPacked,
       varlen_kv_head_of_neighbour},
  };
}

}  // namespace attnscope::mutants
