// Wrong ops of absorbed MLA and of the indexer that scores tokens.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "kernels/cpu/codec.h"
#include "kernels/layout/mla_rows.h"
#include "kernels/layout/records.h"
#include "kernels/mutants/bugs.h"
#include "kernels/params/dense_params.h"
#include "kernels/params/mla_params.h"
#include "kernels/params/tensor_view.h"

namespace attnscope::mutants {
namespace {

using Absorb = as_mla_q_absorb_params;
using Insert = as_mla_kv_insert_params;
using Query = as_index_query_params;
using Key = as_index_key_insert_params;
using Whole = as_mla_attention_params;
using Listed = as_sparse_mla_attention_params;
using Up = as_mla_v_up_params;

std::size_t count_of(std::int64_t n) { return static_cast<std::size_t>(n); }
float number(const bf16_t* x) { return cpu::bf16_to_float(x->bits); }

// The op with params that change(p) has changed.
template <as_op_id kOp, class Params, class Change>
std::int32_t changed(const void* params, const as_call* call, as_error* error,
                     const Change& change) {
  return spoil_after<Params>(kOp, params, call, error, [&](Params p) -> std::int32_t {
    change(p);
    return run_cpu(kOp, &p, call, error);
  });
}

// kv_b with heads h and h + 1 exchanged, or rows of a head moved down by `rows`.
as_tensor other_up(const as_tensor& kv_b, bool next_head, std::int64_t rows,
                   std::vector<bf16_t>& memory) {
  const std::int64_t heads = kv_b.shape[0], each = kv_b.shape[1], dims = kv_b.shape[2];
  memory.resize(count_of(heads * each * dims));
  for (std::int64_t h = 0; h < heads; ++h) {
    for (std::int64_t r = 0; r < each; ++r) {
      const bf16_t* from = at<bf16_t>(kv_b, next_head ? (h + 1) % heads : h, (r + rows) % each);
      std::copy_n(from, dims, memory.data() + (h * each + r) * dims);
    }
  }
  return make_tensor(memory.data(), {heads, each, dims});
}

std::int32_t absorbed_head_of_next(const void* params, const as_call* call, as_error* error) {
  std::vector<bf16_t> memory;
  return changed<AS_OP_MLA_Q_ABSORB, Absorb>(
      params, call, error, [&](Absorb& p) { p.kv_b = other_up(p.kv_b, true, 0, memory); });
}

// Turned pairs become turned halves, in place: x [64].
void turn_by_halves(const bf16_t* x, const float* row, bf16_t* to) {
  constexpr int kHalf = AS_ROPE_DIM / 2;
  for (int i = 0; i < kHalf; ++i) {
    const float a = number(x + i), b = number(x + kHalf + i);
    to[i].bits = cpu::float_to_bf16(a * row[i] - b * row[kHalf + i]);
    to[kHalf + i].bits = cpu::float_to_bf16(b * row[i] + a * row[kHalf + i]);
  }
}

std::int32_t query_turned_by_halves(const void* params, const as_call* call, as_error* error) {
  return spoil_after<Absorb>(AS_OP_MLA_Q_ABSORB, params, call, error, [](const Absorb& p) {
    const std::int64_t plain = p.q_raw.shape[2] - AS_MLA_ROPE;
    for (std::int64_t t = 0; t < p.q.shape[0]; ++t) {
      const float* row = at<float>(p.rope.table, *at<std::int64_t>(p.positions, t));
      for (std::int64_t h = 0; h < p.q.shape[1]; ++h) {
        turn_by_halves(at<bf16_t>(p.q_raw, t, h, plain), row, at<bf16_t>(p.q, t, h, AS_MLA_LATENT));
      }
    }
    return std::int32_t{AS_OK};
  });
}

// The key's rotary dims are taken from behind the low-rank query: the latent's first ones.
std::int32_t rotary_key_of_latent(const void* params, const as_call* call, as_error* error) {
  std::vector<bf16_t> memory;
  return changed<AS_OP_MLA_KV_INSERT, Insert>(params, call, error, [&](Insert& p) {
    if (!present(p.qkv)) return;
    const std::int64_t tokens = p.qkv.shape[0];
    memory.resize(count_of(tokens * AS_MLA_ROPE));
    for (std::int64_t t = 0; t < tokens; ++t) {
      std::copy_n(at<bf16_t>(p.qkv, t, std::max<std::int64_t>(0, p.qkv.shape[1] - AS_MLA_WIDTH)),
                  AS_MLA_ROPE, memory.data() + t * AS_MLA_ROPE);
    }
    p.qkv = make_tensor(memory.data(), {tokens, AS_MLA_ROPE});
  });
}

std::int32_t latent_scale_rounded(const void* params, const as_call* call, as_error* error) {
  return changed<AS_OP_MLA_KV_INSERT, Insert>(params, call, error, [](Insert& p) {
    p.scale_rule = p.scale_rule == AS_SCALE_FLOAT ? AS_SCALE_POWER_OF_TWO : AS_SCALE_FLOAT;
  });
}

// The scale of the first 128 dims stands at all four places.
std::int32_t latent_scales_of_first(const void* params, const as_call* call, as_error* error) {
  return spoil_after<Insert>(AS_OP_MLA_KV_INSERT, params, call, error, [](const Insert& p) {
    for (std::int64_t t = 0; t < p.slots.shape[0]; ++t) {
      const std::int64_t slot = *at<std::int64_t>(p.slots, t);
      if (slot < 0 || p.cache.record != AS_RECORD_LATENT_656) continue;
      unsigned char* scales = as_mla_row(&p.cache, slot) + AS_LATENT_656_SCALES;
      for (int b = 1; b < AS_LATENT_656_BLOCKS; ++b) std::memcpy(scales + 4 * b, scales, 4);
    }
    return std::int32_t{AS_OK};
  });
}

// Positions count from the first token of the step.
std::int32_t latent_position_of_chunk(const void* params, const as_call* call, as_error* error) {
  std::vector<std::int64_t> positions;
  return changed<AS_OP_MLA_KV_INSERT, Insert>(params, call, error, [&](Insert& p) {
    if (!present(p.positions)) return;
    const std::int64_t tokens = p.positions.shape[0], rows = p.rope.table.shape[0];
    for (std::int64_t t = 0; t < tokens; ++t) positions.push_back(t % rows);
    p.positions = make_tensor(positions.data(), {tokens});
  });
}

std::int32_t index_hadamard_of_keys_alone(const void* params, const as_call* call,
                                          as_error* error) {
  return changed<AS_OP_INDEX_QUERY, Query>(params, call, error,
                                           [](Query& p) { p.hadamard = 1 - p.hadamard; });
}

std::int32_t index_query_scale_lost(const void* params, const as_call* call, as_error* error) {
  return spoil_after<Query>(AS_OP_INDEX_QUERY, params, call, error, [](const Query& p) {
    const auto heads = static_cast<double>(p.weights.shape[1]);
    for (std::int64_t t = 0; t < p.weights.shape[0]; ++t) {
      for (std::int64_t j = 0; j < p.weights.shape[1]; ++j) {
        const double raw = static_cast<double>(*at<float>(p.weights_raw, t, j));
        *at<float>(p.weights, t, j) =
            static_cast<float>(raw / std::sqrt(heads * double{AS_INDEX_DIM}));
      }
    }
    return std::int32_t{AS_OK};
  });
}

// The last 64 dims are turned in the place of the first: the row's halves change places, and back.
std::int32_t index_query_turned_at_end(const void* params, const as_call* call, as_error* error) {
  std::vector<bf16_t> memory;
  return spoil_after<Query>(AS_OP_INDEX_QUERY, params, call, error, [&](Query p) -> std::int32_t {
    if (!present(p.q_raw) || !present(p.q_row)) return AS_OK;
    const std::int64_t tokens = p.q_raw.shape[0], heads = p.q_raw.shape[1];
    constexpr std::int64_t kHalf = AS_INDEX_DIM / 2;
    memory.resize(count_of(tokens * heads * AS_INDEX_DIM));
    for (std::int64_t i = 0; i < tokens * heads; ++i) {
      const bf16_t* from = at<bf16_t>(p.q_raw, i / heads, i % heads);
      std::copy_n(from + kHalf, kHalf, memory.data() + i * AS_INDEX_DIM);
      std::copy_n(from, kHalf, memory.data() + i * AS_INDEX_DIM + kHalf);
    }
    p.q_raw = make_tensor(memory.data(), {tokens, heads, AS_INDEX_DIM});
    return run_cpu(AS_OP_INDEX_QUERY, &p, call, error);
  });
}

std::int32_t index_bias_lost(const void* params, const as_call* call, as_error* error) {
  std::vector<bf16_t> zeros(AS_INDEX_DIM, bf16_t{0});
  return changed<AS_OP_INDEX_KEY_INSERT, Key>(params, call, error, [&](Key& p) {
    if (present(p.bias)) p.bias = make_tensor(zeros.data(), {AS_INDEX_DIM});
  });
}

// Scaled by its root mean square, its mean left in: keys with their mean added again, as weights of
// an RMS norm would keep it.
std::int32_t index_mean_kept(const void* params, const as_call* call, as_error* error) {
  std::vector<bf16_t> bias(AS_INDEX_DIM);
  return spoil_after<Key>(AS_OP_INDEX_KEY_INSERT, params, call, error, [&](Key p) -> std::int32_t {
    if (!present(p.k)) return AS_OK;
    // Token by token: the bias takes up what the mean gives.
    for (std::int64_t t = 0; t < p.k.shape[0]; ++t) {
      double mean = 0, square = 0;
      for (int d = 0; d < AS_INDEX_DIM; ++d) {
        const auto x = static_cast<double>(number(at<bf16_t>(p.k, t, d)));
        mean += x / double{AS_INDEX_DIM};
        square += x * x / double{AS_INDEX_DIM};
      }
      const double spread = std::sqrt(std::max(square - mean * mean, 0.0) + p.eps);
      for (int d = 0; d < AS_INDEX_DIM; ++d) {
        const double moved = mean / spread * static_cast<double>(number(at<bf16_t>(p.weight, d)));
        const double own = static_cast<double>(number(at<bf16_t>(p.bias, d)));
        bias[count_of(d)].bits = cpu::float_to_bf16(static_cast<float>(own + moved));
      }
      Key one = p;
      one.k = make_tensor(at<bf16_t>(p.k, t), {1, AS_INDEX_DIM});
      one.bias = make_tensor(bias.data(), {AS_INDEX_DIM});
      one.positions = make_tensor(at<std::int64_t>(p.positions, t), {1});
      one.slots = make_tensor(at<std::int64_t>(p.slots, t), {1});
      if (present(p.row)) one.row = make_tensor(at<bf16_t>(p.row, t), {1, AS_INDEX_DIM});
      const std::int32_t status = run_cpu(AS_OP_INDEX_KEY_INSERT, &one, call, error);
      if (status != AS_OK) return status;
    }
    return AS_OK;
  });
}

std::int32_t mla_scale_of_latent(const void* params, const as_call* call, as_error* error) {
  const double latent = 1 / std::sqrt(double{AS_MLA_WIDTH});
  return changed<AS_OP_SPARSE_MLA_ATTENTION, Listed>(params, call, error,
                                                     [&](Listed& p) { p.scale = latent; });
}

std::int32_t mla_last_selected_lost(const void* params, const as_call* call, as_error* error) {
  std::vector<std::int32_t> lens;
  return changed<AS_OP_SPARSE_MLA_ATTENTION, Listed>(params, call, error, [&](Listed& p) {
    const std::int64_t tokens = p.topk_length.shape[0];
    for (std::int64_t t = 0; t < tokens; ++t) {
      const std::int32_t own = *at<std::int32_t>(p.topk_length, t);
      lens.push_back(own > 1 ? own - 1 : own);
    }
    p.topk_length = make_tensor(lens.data(), {tokens});
  });
}

std::int32_t mla_own_row_unseen(const void* params, const as_call* call, as_error* error) {
  std::vector<std::int64_t> positions;
  return changed<AS_OP_MLA_ATTENTION, Whole>(params, call, error, [&](Whole& p) {
    const std::int64_t tokens = p.positions.shape[0];
    for (std::int64_t t = 0; t < tokens; ++t) {
      positions.push_back(std::max<std::int64_t>(0, *at<std::int64_t>(p.positions, t) - 1));
    }
    p.positions = make_tensor(positions.data(), {tokens});
  });
}

// The rotary dims of queries count nothing.
std::int32_t mla_rotary_scores_lost(const void* params, const as_call* call, as_error* error) {
  std::vector<bf16_t> memory;
  return changed<AS_OP_MLA_ATTENTION, Whole>(params, call, error, [&](Whole& p) {
    const std::int64_t tokens = p.q.shape[0], heads = p.q.shape[1];
    memory.assign(count_of(tokens * heads * AS_MLA_WIDTH), bf16_t{0});
    for (std::int64_t i = 0; i < tokens * heads; ++i) {
      std::copy_n(at<bf16_t>(p.q, i / heads, i % heads), AS_MLA_LATENT,
                  memory.data() + i * AS_MLA_WIDTH);
    }
    p.q = make_tensor(memory.data(), {tokens, heads, AS_MLA_WIDTH});
  });
}

std::int32_t values_of_key_rows(const void* params, const as_call* call, as_error* error) {
  std::vector<bf16_t> memory;
  return changed<AS_OP_MLA_V_UP, Up>(
      params, call, error, [&](Up& p) { p.kv_b = other_up(p.kv_b, false, p.y.shape[2], memory); });
}

// Results of the token behind.
std::int32_t index_keys_shifted(const void* params, const as_call* call, as_error* error) {
  using Params = as_linear_params;
  return spoil_after<Params>(AS_OP_INDEX_K_PROJ, params, call, error, [](const Params& p) {
    for (std::int64_t t = 0; t + 1 < p.y.shape[0]; ++t) {
      std::copy_n(at<bf16_t>(p.y, t + 1), p.y.shape[1], at<bf16_t>(p.y, t));
    }
    return std::int32_t{AS_OK};
  });
}

std::int32_t index_weights_in_bf16(const void* params, const as_call* call, as_error* error) {
  using Params = as_linear_params;
  return spoil_after<Params>(AS_OP_INDEX_WEIGHTS_PROJ, params, call, error, [](const Params& p) {
    for (std::int64_t t = 0; t < p.y.shape[0]; ++t) {
      for (std::int64_t j = 0; j < p.y.shape[1]; ++j) {
        float& y = *at<float>(p.y, t, j);
        y = cpu::round_bf16(y);
      }
    }
    return std::int32_t{AS_OK};
  });
}

}  // namespace

std::vector<Bug> mla_bugs() {
  return {
      {"mutant:absorbed_head_of_next", "Queries are absorbed through the next head's keys.",
       AS_OP_MLA_Q_ABSORB, absorbed_head_of_next},
      {"mutant:query_turned_by_halves", "Queries are turned by halves, keys by pairs.",
       AS_OP_MLA_Q_ABSORB, query_turned_by_halves},
      {"mutant:rotary_key_of_latent", "The rotary key is taken from the latent's columns.",
       AS_OP_MLA_KV_INSERT, rotary_key_of_latent},
      {"mutant:latent_scale_rounded", "Scales of latent rows follow the other rule.",
       AS_OP_MLA_KV_INSERT, latent_scale_rounded},
      {"mutant:latent_scales_of_first", "All blocks of a latent row have the first one's scale.",
       AS_OP_MLA_KV_INSERT, latent_scales_of_first},
      {"mutant:latent_position_of_chunk", "Positions count from the first token of the step.",
       AS_OP_MLA_KV_INSERT, latent_position_of_chunk},
      {"mutant:index_hadamard_of_keys_alone", "Index keys are transformed and queries are not.",
       AS_OP_INDEX_QUERY, index_hadamard_of_keys_alone},
      {"mutant:index_query_scale_lost", "Head weights leave out the query's scale.",
       AS_OP_INDEX_QUERY, index_query_scale_lost},
      {"mutant:index_query_turned_at_end",
       "The last dimensions of index queries are turned, not the first.", AS_OP_INDEX_QUERY,
       index_query_turned_at_end},
      {"mutant:index_bias_lost", "The norm of index keys adds no bias.", AS_OP_INDEX_KEY_INSERT,
       index_bias_lost},
      {"mutant:index_mean_kept", "The norm of index keys leaves their mean in.",
       AS_OP_INDEX_KEY_INSERT, index_mean_kept},
      {"mutant:mla_scale_of_latent", "Scores are scaled by the width of a latent row.",
       AS_OP_SPARSE_MLA_ATTENTION, mla_scale_of_latent},
      {"mutant:mla_last_selected_lost", "The last selected row is not attended.",
       AS_OP_SPARSE_MLA_ATTENTION, mla_last_selected_lost},
      {"mutant:mla_own_row_unseen", "A token does not see its own row.", AS_OP_MLA_ATTENTION,
       mla_own_row_unseen},
      {"mutant:mla_rotary_scores_lost", "Scores are of the latent dimensions alone.",
       AS_OP_MLA_ATTENTION, mla_rotary_scores_lost},
      {"mutant:values_of_key_rows", "Outputs go through the keys' rows of kv_b_proj.",
       AS_OP_MLA_V_UP, values_of_key_rows},
      {"mutant:index_keys_shifted", "Index keys are those of the token behind.", AS_OP_INDEX_K_PROJ,
       index_keys_shifted},
      {"mutant:index_weights_in_bf16", "Weights of index heads are rounded to bf16.",
       AS_OP_INDEX_WEIGHTS_PROJ, index_weights_in_bf16},
  };
}

}  // namespace attnscope::mutants
