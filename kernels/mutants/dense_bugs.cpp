// Wrong norms, projections, residual and sampling.
#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/cpu/codec.h"
#include "kernels/mutants/bugs.h"
#include "kernels/params/dense_params.h"
#include "kernels/params/step_params.h"
#include "kernels/params/tensor_view.h"

namespace attnscope::mutants {
namespace {

constexpr std::int64_t kBlock = 64;  // inputs of a projection that a kernel takes at once

float value(const as_tensor& t, std::int64_t i, std::int64_t j) {
  return cpu::bf16_to_float(at<bf16_t>(t, i, j)->bits);
}

// Element [o,i] of a projection's weight, bf16 or codes.
float weight_value(const as_linear_params& p, std::int64_t o, std::int64_t i) {
  if (p.weight.dtype != AS_U8) return value(p.weight, o, i);
  return cpu::e4m3_to_float(*at<std::uint8_t>(p.weight, o, i)) *
         *at<float>(p.weight_scale, o / AS_PROJECTION_BLOCK, i / AS_PROJECTION_BLOCK);
}

void store(const as_tensor& y, std::int64_t i, std::int64_t j, float v) {
  if (y.dtype == AS_BF16) {
    at<bf16_t>(y, i, j)->bits = cpu::float_to_bf16(v);
  } else {
    *at<float>(y, i, j) = v;
  }
}

template <class Change>
void change_all(const as_tensor& y, const Change& change) {
  for (std::int64_t i = 0; i < y.shape[0]; ++i) {
    for (std::int64_t j = 0; j < y.shape[1]; ++j) {
      store(y, i, j, change(y.dtype == AS_BF16 ? value(y, i, j) : *at<float>(y, i, j)));
    }
  }
}

std::int32_t norm_weight_plus_one(const void* params, const as_call* call, as_error* error) {
  using Params = as_rms_norm_params;
  const auto spoil = [&](Params p) {
    std::vector<bf16_t> weight;
    for (std::int64_t i = 0; i < p.weight.shape[0]; ++i) {
      weight.push_back({cpu::float_to_bf16(1 + value(p.weight, i, 0))});
    }
    p.weight = make_tensor(weight.data(), {p.weight.shape[0]});
    return run_cpu(AS_OP_ATTN_NORM, &p, call, error);
  };
  return spoil_after<Params>(AS_OP_ATTN_NORM, params, call, error, spoil);
}

std::int32_t norm_without_mean(const void* params, const as_call* call, as_error* error) {
  using Params = as_rms_norm_params;
  const auto spoil = [&](const Params& p) {
    const float root = std::sqrt(static_cast<float>(p.x.shape[1]));
    change_all(p.y, [&](float v) { return v / root; });
    return AS_OK;
  };
  return spoil_after<Params>(AS_OP_FINAL_NORM, params, call, error, spoil);
}

std::int32_t kv_norm_over_no_rope(const void* params, const as_call* call, as_error* error) {
  using Params = as_q_kv_norm_params;
  const auto spoil = [&](const Params& p) {
    const std::int64_t dim = p.kv.shape[1], part = dim - 64, first = p.qkv.shape[1] - dim;
    for (std::int64_t t = 0; t < p.kv.shape[0]; ++t) {
      double squares = 0;
      for (std::int64_t d = 0; d < part; ++d) {
        const double v = static_cast<double>(value(p.qkv, t, first + d));
        squares += v * v;
      }
      const double factor = 1 / std::sqrt(squares / static_cast<double>(part) + p.eps);
      for (std::int64_t d = 0; d < dim; ++d) {
        const double v = static_cast<double>(value(p.qkv, t, first + d)) * factor;
        store(p.kv, t, d, static_cast<float>(v) * value(p.kv_weight, d, 0));
      }
    }
    return AS_OK;
  };
  return spoil_after<Params>(AS_OP_Q_KV_NORM, params, call, error, spoil);
}

// The sum is kept in bf16 from one block of inputs to the next.
std::int32_t sum_in_bf16(const void* params, const as_call* call, as_error* error) {
  using Params = as_linear_params;
  const auto spoil = [&](const Params& p) {
    const std::int64_t in = p.x.shape[1];
    for (std::int64_t t = 0; t < p.y.shape[0]; ++t) {
      for (std::int64_t o = 0; o < p.y.shape[1]; ++o) {
        float sum = 0;
        for (std::int64_t first = 0; first < in; first += kBlock) {
          for (std::int64_t i = first; i < std::min(in, first + kBlock); ++i) {
            sum += value(p.x, t, i) * weight_value(p, o, i);
          }
          sum = cpu::round_bf16(sum);
        }
        store(p.y, t, o, sum);
      }
    }
    return AS_OK;
  };
  return spoil_after<Params>(AS_OP_Q_KV_A_PROJ, params, call, error, spoil);
}

template <as_op_id kOp>
std::int32_t last_block_lost(const void* params, const as_call* call, as_error* error) {
  using Params = as_linear_params;
  const auto spoil = [&](Params p) {
    const bool codes = p.weight.dtype == AS_U8;
    const std::int64_t lost = codes ? AS_PROJECTION_BLOCK : kBlock;
    p.x.shape[1] -= lost;
    p.weight.shape[1] -= lost;
    if (codes) --p.weight_scale.shape[1];
    return p.x.shape[1] > 0 ? run_cpu(kOp, &p, call, error) : AS_OK;
  };
  return spoil_after<Params>(kOp, params, call, error, spoil);
}

// Of projections to KV heads: a quarter of the outputs takes the place of the one before it.
template <as_op_id kOp>
std::int32_t rows_of_next_part(const void* params, const as_call* call, as_error* error) {
  using Params = as_linear_params;
  const auto spoil = [&](const Params& p) {
    const std::int64_t part = std::max<std::int64_t>(1, p.y.shape[1] / 4);
    for (std::int64_t t = 0; t < p.y.shape[0]; ++t) {
      bf16_t* row = at<bf16_t>(p.y, t);
      std::rotate(row, row + part, row + p.y.shape[1]);
    }
    return AS_OK;
  };
  return spoil_after<Params>(kOp, params, call, error, spoil);
}

std::int32_t values_and_gates_swapped(const void* params, const as_call* call, as_error* error) {
  using Params = as_linear_params;
  const auto spoil = [&](const Params& p) {
    const std::int64_t half = p.y.shape[1] / 2;
    for (std::int64_t t = 0; t < p.y.shape[0]; ++t) {
      float* row = at<float>(p.y, t);
      std::swap_ranges(row, row + half, row + half);
    }
    return AS_OK;
  };
  return spoil_after<Params>(AS_OP_COMPRESSOR_PROJ, params, call, error, spoil);
}

template <as_op_id kOp>
std::int32_t result_in_bf16(const void* params, const as_call* call, as_error* error) {
  using Params = as_linear_params;
  const auto spoil = [&](const Params& p) {
    change_all(p.y, [](float v) { return cpu::round_bf16(v); });
    return AS_OK;
  };
  return spoil_after<Params>(kOp, params, call, error, spoil);
}

std::int32_t index_weights_shifted(const void* params, const as_call* call, as_error* error) {
  using Params = as_linear_params;
  const auto spoil = [&](const Params& p) {
    for (std::int64_t t = 0; t < p.y.shape[0]; ++t) {
      bf16_t* row = at<bf16_t>(p.y, t);
      std::rotate(row, row + 1, row + p.y.shape[1]);
    }
    return AS_OK;
  };
  return spoil_after<Params>(AS_OP_INDEXER_WEIGHTS_PROJ, params, call, error, spoil);
}

// [T,groups,n], each group in the place of the one before it.
template <class T>
as_tensor next_groups(const as_tensor& t, std::vector<T>& values) {
  const std::int64_t groups = t.shape[1], n = t.shape[2];
  for (std::int64_t token = 0; token < t.shape[0]; ++token) {
    for (std::int64_t g = 0; g < groups; ++g) {
      const T* next = at<T>(t, token, (g + 1) % groups);
      values.insert(values.end(), next, next + n);
    }
  }
  return make_tensor(values.data(), {t.shape[0], groups, n});
}

std::int32_t group_of_other_heads(const void* params, const as_call* call, as_error* error) {
  using Params = as_grouped_linear_params;
  const auto spoil = [&](Params p) {
    std::vector<bf16_t> x;
    std::vector<std::uint8_t> codes;
    std::vector<float> scales;
    if (p.x.dtype == AS_U8) {
      p.x = next_groups(p.x, codes);
      p.x_scale = next_groups(p.x_scale, scales);
    } else {
      p.x = next_groups(p.x, x);
    }
    return run_cpu(AS_OP_WO_A, &p, call, error);
  };
  return spoil_after<Params>(AS_OP_WO_A, params, call, error, spoil);
}

std::int32_t fp8_scales_of_next_group(const void* params, const as_call* call, as_error* error) {
  using Params = as_grouped_linear_params;
  const auto spoil = [&](Params p) {
    if (p.x.dtype != AS_U8) return static_cast<std::int32_t>(AS_OK);
    std::vector<float> scales;
    p.x_scale = next_groups(p.x_scale, scales);
    return run_cpu(AS_OP_WO_A, &p, call, error);
  };
  return spoil_after<Params>(AS_OP_WO_A, params, call, error, spoil);
}

// Inputs through FP8 and back, 128 to a scale of 2^(the right exponent + `off`).
std::vector<bf16_t> through_fp8(const as_tensor& from, int off) {
  const std::int64_t in = from.shape[1];
  std::vector<bf16_t> x(static_cast<std::size_t>(from.shape[0] * in));
  for (std::int64_t t = 0; t < from.shape[0]; ++t) {
    for (std::int64_t first = 0; first < in; first += AS_PROJECTION_BLOCK) {
      const std::int64_t last = std::min<std::int64_t>(in, first + AS_PROJECTION_BLOCK);
      float largest = 0;
      for (std::int64_t i = first; i < last; ++i) {
        largest = std::max(largest, std::fabs(value(from, t, i)));
      }
      const int exponent = cpu::fp8_exponent(largest) + off;
      for (std::int64_t i = first; i < last; ++i) {
        const float code =
            cpu::e4m3_to_float(cpu::float_to_e4m3(value(from, t, i) * cpu::exp2i(-exponent)));
        x[static_cast<std::size_t>(t * in + i)] = {cpu::float_to_bf16(code * cpu::exp2i(exponent))};
      }
    }
  }
  return x;
}

std::int32_t activations_in_fp8(const void* params, const as_call* call, as_error* error) {
  using Params = as_linear_params;
  const auto spoil = [&](Params p) {
    const std::vector<bf16_t> x = through_fp8(p.x, 0);
    p.x.data = const_cast<bf16_t*>(x.data());
    p.x.stride[0] = p.x.shape[1];
    return run_cpu(AS_OP_WO_B, &p, call, error);
  };
  return spoil_after<Params>(AS_OP_WO_B, params, call, error, spoil);
}

// Values above the largest code of the scale below saturate; the op finds that scale by itself.
std::int32_t fp8_scale_truncated(const void* params, const as_call* call, as_error* error) {
  using Params = as_linear_params;
  const auto spoil = [&](Params p) {
    if (p.weight.dtype != AS_U8) return static_cast<std::int32_t>(AS_OK);
    const std::vector<bf16_t> x = through_fp8(p.x, -1);
    p.x.data = const_cast<bf16_t*>(x.data());
    p.x.stride[0] = p.x.shape[1];
    return run_cpu(AS_OP_Q_KV_A_PROJ, &p, call, error);
  };
  return spoil_after<Params>(AS_OP_Q_KV_A_PROJ, params, call, error, spoil);
}

std::int32_t fp8_scale_of_next_block(const void* params, const as_call* call, as_error* error) {
  using Params = as_linear_params;
  const auto spoil = [&](Params p) {
    if (p.weight.dtype != AS_U8) return static_cast<std::int32_t>(AS_OK);
    const std::int64_t rows = p.weight_scale.shape[0], columns = p.weight_scale.shape[1];
    std::vector<float> scales;
    for (std::int64_t row = 0; row < rows; ++row) {
      const float* next = at<float>(p.weight_scale, (row + 1) % rows);
      scales.insert(scales.end(), next, next + columns);
    }
    p.weight_scale = make_tensor(scales.data(), {rows, columns});
    return run_cpu(AS_OP_Q_B_PROJ, &p, call, error);
  };
  return spoil_after<Params>(AS_OP_Q_B_PROJ, params, call, error, spoil);
}

std::int32_t residual_missing(const void* params, const as_call* call, as_error* error) {
  using Params = as_residual_params;
  const auto spoil = [&](const Params& p) {
    for (std::int64_t t = 0; t < p.out.shape[0]; ++t) {
      std::copy_n(at<bf16_t>(p.y, t), p.out.shape[1], at<bf16_t>(p.out, t));
    }
    return AS_OK;
  };
  return spoil_after<Params>(AS_OP_RESIDUAL, params, call, error, spoil);
}

std::int32_t sample_second_best(const void* params, const as_call* call, as_error* error) {
  using Params = as_sample_params;
  const auto spoil = [&](const Params& p) {
    for (std::int64_t n = 0; n < p.tokens.shape[0]; ++n) {
      std::int32_t& chosen = *at<std::int32_t>(p.tokens, n);
      std::int32_t second = -1;
      for (std::int32_t v = 0; v < p.logits.shape[1]; ++v) {
        if (v == chosen) continue;
        if (second < 0 || *at<float>(p.logits, n, v) > *at<float>(p.logits, n, second)) second = v;
      }
      if (second >= 0) chosen = second;
    }
    return AS_OK;
  };
  return spoil_after<Params>(AS_OP_SAMPLE, params, call, error, spoil);
}

}  // namespace

std::vector<Bug> dense_bugs() {
  return {
      {"mutant:norm_weight_plus_one", "The norm multiplies by 1 + w instead of w.", AS_OP_ATTN_NORM,
       norm_weight_plus_one},
      {"mutant:sum_in_bf16", "The sum of a projection is kept in bf16 between blocks of inputs.",
       AS_OP_Q_KV_A_PROJ, sum_in_bf16},
      {"mutant:kv_norm_over_no_rope",
       "The norm of the latent row leaves out the dims that will be rotated.", AS_OP_Q_KV_NORM,
       kv_norm_over_no_rope},
      {"mutant:q_last_block_lost", "The last 64 inputs of the query projection are left out.",
       AS_OP_Q_B_PROJ, last_block_lost<AS_OP_Q_B_PROJ>},
      {"mutant:values_and_gates_swapped", "The compressor takes its gates for its values.",
       AS_OP_COMPRESSOR_PROJ, values_and_gates_swapped},
      {"mutant:index_gates_in_bf16",
       "Values and gates of the indexer's compressor are rounded to bf16.",
       AS_OP_INDEXER_COMPRESSOR_PROJ, result_in_bf16<AS_OP_INDEXER_COMPRESSOR_PROJ>},
      {"mutant:index_q_last_block_lost",
       "The last 64 inputs of the index query projection are left out.", AS_OP_INDEXER_Q_PROJ,
       last_block_lost<AS_OP_INDEXER_Q_PROJ>},
      {"mutant:index_weights_shifted", "Every index head has the weight of the next one.",
       AS_OP_INDEXER_WEIGHTS_PROJ, index_weights_shifted},
      {"mutant:group_of_other_heads", "Every output group projects the heads of the next one.",
       AS_OP_WO_A, group_of_other_heads},
      {"mutant:activations_in_fp8",
       "The inputs of the output projection go through FP8 where the contract keeps bf16.",
       AS_OP_WO_B, activations_in_fp8},
      {"mutant:q_proj_last_block_lost", "The last 64 inputs of the projection to queries are lost.",
       AS_OP_Q_PROJ, last_block_lost<AS_OP_Q_PROJ>},
      {"mutant:k_proj_rotated", "Keys lie a quarter of the KV heads away from their place.",
       AS_OP_K_PROJ, rows_of_next_part<AS_OP_K_PROJ>},
      {"mutant:v_proj_rotated", "Values lie a quarter of the KV heads away from their place.",
       AS_OP_V_PROJ, rows_of_next_part<AS_OP_V_PROJ>},
      {"mutant:o_proj_last_block_lost", "The last 64 inputs of the output projection are lost.",
       AS_OP_O_PROJ, last_block_lost<AS_OP_O_PROJ>},
      {"mutant:fp8_scale_truncated",
       "The scales of a projection's inputs in FP8 are rounded down, so that the largest saturate.",
       AS_OP_Q_KV_A_PROJ, fp8_scale_truncated},
      {"mutant:fp8_scale_of_next_block",
       "Blocks of a weight in FP8 have the scales of the blocks below them.", AS_OP_Q_B_PROJ,
       fp8_scale_of_next_block},
      {"mutant:fp8_scales_of_next_group",
       "Inputs of every output group in FP8 have the scales of the next group's heads.", AS_OP_WO_A,
       fp8_scales_of_next_group},
      {"mutant:residual_missing", "The attention output replaces the hidden state.", AS_OP_RESIDUAL,
       residual_missing},
      {"mutant:norm_without_mean", "The final norm divides by the root of the sum of squares.",
       AS_OP_FINAL_NORM, norm_without_mean},
      {"mutant:head_in_bf16", "The logits over the vocabulary are rounded to bf16.", AS_OP_LM_HEAD,
       result_in_bf16<AS_OP_LM_HEAD>},
      {"mutant:sample_second_best", "The second best token is sampled.", AS_OP_SAMPLE,
       sample_second_best},
  };
}

}  // namespace attnscope::mutants
