// Wrong queries, latent rows and rotations.
#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/cpu/codec.h"
#include "kernels/cpu/rope_table.h"
#include "kernels/layout/records.h"
#include "kernels/mutants/bugs.h"
#include "kernels/mutants/latent_insert.h"
#include "kernels/params/attention_params.h"
#include "kernels/params/tensor_view.h"

namespace attnscope::mutants {
namespace {

using Row = std::vector<bf16_t>;

constexpr std::int64_t kOutputBlock = 128;  // dims of attention's output that share a scale in FP8

// floor(log2(amax / 448)) from the exponent that is rounded up.
int exponent_rounded_down(float amax) {
  const int up = cpu::fp8_exponent(amax);
  const bool exact = std::max(amax, cpu::kFp8AmaxFloor) == 448.0f * cpu::exp2i(up);
  return exact ? up : up - 1;
}

// The op, then change(p, token, where its row lies) of every row that was written.
template <class Change>
std::int32_t with_written_rows(const void* params, const as_call* call, as_error* error,
                               const Change& change) {
  const WithRows rows(params);
  const auto spoil = [&](const Insert& p) {
    for (std::int64_t t = 0; t < p.slots.shape[0]; ++t) {
      const std::int64_t slot = *at<std::int64_t>(p.slots, t);
      if (slot >= 0) change(p, t, as_cache_row(&p.cache, slot));
    }
    return AS_OK;
  };
  return spoil_after<Insert>(AS_OP_Q_ROPE_KV_INSERT, rows.params(params), call, error, spoil);
}

std::int32_t scale_rounded_down(const void* params, const as_call* call, as_error* error) {
  const auto change = [](const Insert& p, std::int64_t t, const as_row_address& to) {
    for (int block = 0; block < AS_QUANT_BLOCKS; ++block) {
      float x[AS_QUANT_BLOCK];
      for (int i = 0; i < AS_QUANT_BLOCK; ++i) {
        x[i] = cpu::bf16_to_float(at<bf16_t>(p.kv_row, t, block * AS_QUANT_BLOCK + i)->bits);
      }
      const int exponent = exponent_rounded_down(cpu::abs_max(x, AS_QUANT_BLOCK));
      to.scales[block] = cpu::exponent_to_ue8m0(exponent);
      cpu::encode_e4m3(x, AS_QUANT_BLOCK, exponent, to.payload + block * AS_QUANT_BLOCK);
    }
  };
  return with_written_rows(params, call, error, change);
}

// Codes are cut off towards zero, as a conversion by bits alone does it.
std::int32_t codes_cut_off(const void* params, const as_call* call, as_error* error) {
  const auto change = [](const Insert& p, std::int64_t t, const as_row_address& to) {
    for (int i = 0; i < AS_NOPE_DIM; ++i) {
      std::uint8_t& code = to.payload[i];
      const float x = cpu::bf16_to_float(at<bf16_t>(p.kv_row, t, i)->bits);
      const float scale = cpu::exp2i(int{to.scales[i / AS_QUANT_BLOCK]} - 127);
      // Codes of one sign are in the order of their magnitudes.
      if (std::fabs(cpu::e4m3_to_float(code) * scale) > std::fabs(x)) --code;
    }
  };
  return with_written_rows(params, call, error, change);
}

// The op with another rotary embedding.
template <class Choose>
std::int32_t with_rope(const void* params, const as_call* call, as_error* error,
                       const Choose& choose) {
  const auto spoil = [&](Insert p) {
    if (p.rows_given != 0) return static_cast<std::int32_t>(AS_OK);
    choose(p.rope);
    const std::int64_t rows = positions_end(p.positions);
    std::vector<float> table(static_cast<std::size_t>(rows) * AS_ROPE_DIM);
    cpu::build_rope_table(p.rope, rows, table.data(), nullptr);
    p.rope.table = make_tensor(table.data(), {rows, AS_ROPE_DIM});
    return run_cpu(AS_OP_Q_ROPE_KV_INSERT, &p, call, error);
  };
  return spoil_after<Insert>(AS_OP_Q_ROPE_KV_INSERT, params, call, error, spoil);
}

std::int32_t rope_base_of_window_layers(const void* params, const as_call* call, as_error* error) {
  return with_rope(params, call, error, [](as_rope& rope) {
    rope.base = 10000;
    rope.factor = 1;
  });
}

std::int32_t yarn_on_window_layers(const void* params, const as_call* call, as_error* error) {
  return with_rope(params, call, error, [](as_rope& rope) {
    rope.factor = 16;
    rope.original_max_pos = 65536;
    rope.beta_fast = 32;
    rope.beta_slow = 1;
  });
}

// The sines of the table with their sign turned.
std::int32_t rope_turned_back(const void* params, const as_call* call, as_error* error) {
  const auto spoil = [&](Insert p) {
    if (p.rows_given != 0) return static_cast<std::int32_t>(AS_OK);
    const std::int64_t rows = positions_end(p.positions);
    std::vector<float> table;
    table.reserve(static_cast<std::size_t>(rows) * AS_ROPE_DIM);
    for (std::int64_t row = 0; row < rows; ++row) {
      for (int i = 0; i < AS_ROPE_DIM; ++i) {
        const float v = *at<float>(p.rope.table, row, i);
        table.push_back(i < AS_ROPE_DIM / 2 ? v : -v);
      }
    }
    p.rope.table = make_tensor(table.data(), {rows, AS_ROPE_DIM});
    return run_cpu(AS_OP_Q_ROPE_KV_INSERT, &p, call, error);
  };
  return spoil_after<Insert>(AS_OP_Q_ROPE_KV_INSERT, params, call, error, spoil);
}

// Pairs (i, i + 32) laid out as pairs (2i, 2i + 1), and back.
void interleave(bf16_t* x, bool back) {
  constexpr int kPairs = AS_ROPE_DIM / 2;
  bf16_t turned[AS_ROPE_DIM];
  for (int i = 0; i < kPairs; ++i) {
    for (int half = 0; half < 2; ++half) {
      const int split = i + half * kPairs, paired = 2 * i + half;
      turned[back ? split : paired] = x[back ? paired : split];
    }
  }
  std::copy_n(turned, AS_ROPE_DIM, x);
}

std::int32_t rope_half_split(const void* params, const as_call* call, as_error* error) {
  const WithRows rows(params);
  const auto spoil = [&](Insert p) {
    if (p.rows_given != 0) return static_cast<std::int32_t>(AS_OK);
    const std::int64_t tokens = p.slots.shape[0], heads = p.q_raw.shape[1];
    Row raw, kv;
    for (std::int64_t t = 0; t < tokens; ++t) {
      for (std::int64_t h = 0; h < heads; ++h) {
        const bf16_t* from = at<bf16_t>(p.q_raw, t, h);
        raw.insert(raw.end(), from, from + AS_HEAD_DIM);
        interleave(&raw[raw.size() - AS_ROPE_DIM], false);
      }
      const bf16_t* from = at<bf16_t>(p.kv, t);
      kv.insert(kv.end(), from, from + AS_HEAD_DIM);
      interleave(&kv[kv.size() - AS_ROPE_DIM], false);
    }
    p.q_raw = make_tensor(raw.data(), {tokens, heads, AS_HEAD_DIM});
    p.kv = make_tensor(kv.data(), {tokens, AS_HEAD_DIM});
    const std::int32_t status = run_cpu(AS_OP_Q_ROPE_KV_INSERT, &p, call, error);
    if (status != AS_OK) return status;
    for (std::int64_t t = 0; t < tokens; ++t) {
      for (std::int64_t h = 0; h < heads; ++h) {
        interleave(at<bf16_t>(p.q, t, h, AS_NOPE_DIM), true);
      }
      interleave(at<bf16_t>(p.kv_row, t, AS_NOPE_DIM), true);
    }
    p.rows_given = 1;
    return run_cpu(AS_OP_Q_ROPE_KV_INSERT, &p, call, error);
  };
  return spoil_after<Insert>(AS_OP_Q_ROPE_KV_INSERT, rows.params(params), call, error, spoil);
}

std::int32_t q_norm_missing(const void* params, const as_call* call, as_error* error) {
  const auto spoil = [&](const Insert& p) {
    for (std::int64_t t = 0; p.rows_given == 0 && t < p.q.shape[0]; ++t) {
      for (std::int64_t h = 0; h < p.q.shape[1]; ++h) {
        double squares = 0;
        for (std::int64_t d = 0; d < AS_HEAD_DIM; ++d) {
          const auto v =
              static_cast<double>(cpu::bf16_to_float(at<bf16_t>(p.q_raw, t, h, d)->bits));
          squares += v * v;
        }
        const auto root =
            static_cast<float>(std::sqrt(squares / static_cast<double>(AS_HEAD_DIM) + p.eps));
        for (std::int64_t d = 0; d < AS_HEAD_DIM; ++d) {
          bf16_t& v = *at<bf16_t>(p.q, t, h, d);
          v.bits = cpu::float_to_bf16(cpu::bf16_to_float(v.bits) * root);
        }
      }
    }
    return AS_OK;
  };
  return spoil_after<Insert>(AS_OP_Q_ROPE_KV_INSERT, params, call, error, spoil);
}

std::int32_t key_not_rotated(const void* params, const as_call* call, as_error* error) {
  const WithRows rows(params);
  const auto spoil = [&](Insert p) {
    if (p.rows_given != 0) return static_cast<std::int32_t>(AS_OK);
    for (std::int64_t t = 0; t < p.slots.shape[0]; ++t) {
      std::copy_n(at<bf16_t>(p.kv, t), AS_HEAD_DIM, at<bf16_t>(p.kv_row, t));
    }
    p.rows_given = 1;
    return run_cpu(AS_OP_Q_ROPE_KV_INSERT, &p, call, error);
  };
  return spoil_after<Insert>(AS_OP_Q_ROPE_KV_INSERT, rows.params(params), call, error, spoil);
}

// The slot of the last token is taken for padding.
std::int32_t last_row_not_written(const void* params, const as_call* call, as_error* error) {
  if (!readable<Insert>(params)) return run_cpu(AS_OP_Q_ROPE_KV_INSERT, params, call, error);
  Insert p = *static_cast<const Insert*>(params);
  std::vector<std::int64_t> slots;
  for (std::int64_t t = 0; p.slots.rank == 1 && t < p.slots.shape[0]; ++t) {
    slots.push_back(*at<std::int64_t>(p.slots, t));
  }
  if (!slots.empty()) {
    slots.back() = -1;
    p.slots = make_tensor(slots.data(), {p.slots.shape[0]});
  }
  return run_cpu(AS_OP_Q_ROPE_KV_INSERT, &p, call, error);
}

// ---- inverse_rope -------------------------------------------------------------------------------

std::int32_t inverse_rope_forward(const void* params, const as_call* call, as_error* error) {
  using Params = as_inverse_rope_params;
  const auto spoil = [&](Params p) {
    const std::int64_t rows = positions_end(p.positions);
    std::vector<float> table;
    for (std::int64_t t = 0; t < rows; ++t) {
      const float* row = at<float>(p.rope.table, t);
      table.insert(table.end(), row, row + AS_ROPE_DIM / 2);
      for (int i = AS_ROPE_DIM / 2; i < AS_ROPE_DIM; ++i) table.push_back(-row[i]);
    }
    p.rope.table = make_tensor(table.data(), {rows, AS_ROPE_DIM});
    return run_cpu(AS_OP_INVERSE_ROPE, &p, call, error);
  };
  return spoil_after<Params>(AS_OP_INVERSE_ROPE, params, call, error, spoil);
}

std::int32_t inverse_rope_in_place(const void* params, const as_call* call, as_error* error) {
  using Params = as_inverse_rope_params;
  const auto spoil = [&](const Params& p) {
    for (std::int64_t t = 0; t < p.o.shape[0]; ++t) {
      for (std::int64_t h = 0; h < p.o.shape[1]; ++h) {
        const as_tensor& turned = present(p.out) ? p.out : p.row;
        std::copy_n(at<bf16_t>(turned, t, h), p.o.shape[2], at<bf16_t>(p.o, t, h));
      }
    }
    return AS_OK;
  };
  return spoil_after<Params>(AS_OP_INVERSE_ROPE, params, call, error, spoil);
}

std::int32_t fp8_output_scales_shifted(const void* params, const as_call* call, as_error* error) {
  using Params = as_inverse_rope_params;
  const auto spoil = [&](const Params& p) {
    for (std::int64_t t = 0; present(p.scales) && t < p.scales.shape[0]; ++t) {
      for (std::int64_t h = 0; h < p.scales.shape[1]; ++h) {
        float* scales = at<float>(p.scales, t, h);
        std::rotate(scales, scales + 1, scales + p.scales.shape[2]);
      }
    }
    return AS_OK;
  };
  return spoil_after<Params>(AS_OP_INVERSE_ROPE, params, call, error, spoil);
}

// What is turned back has been through FP8 before.
std::int32_t fp8_output_turned_last(const void* params, const as_call* call, as_error* error) {
  using Params = as_inverse_rope_params;
  const auto spoil = [&](Params p) {
    if (!present(p.codes) || p.rows_given != 0) return static_cast<std::int32_t>(AS_OK);
    Params early = p;  // codes and scales of the values as they come
    early.row = p.o;
    early.rows_given = 1;
    const std::int32_t status = run_cpu(AS_OP_INVERSE_ROPE, &early, call, error);
    if (status != AS_OK) return status;
    const std::int64_t heads = p.o.shape[1], dim = p.o.shape[2];
    std::vector<bf16_t> o;
    for (std::int64_t t = 0; t < p.o.shape[0]; ++t) {
      for (std::int64_t i = 0; i < heads * dim; ++i) {
        const float scale = *at<float>(p.scales, t, i / dim, i % dim / kOutputBlock);
        const float code = cpu::e4m3_to_float(*at<std::uint8_t>(p.codes, t, i / dim, i % dim));
        o.push_back({cpu::float_to_bf16(code * scale)});
      }
    }
    p.o = make_tensor(o.data(), {p.o.shape[0], heads, dim});
    return run_cpu(AS_OP_INVERSE_ROPE, &p, call, error);
  };
  return spoil_after<Params>(AS_OP_INVERSE_ROPE, params, call, error, spoil);
}

}  // namespace

std::vector<Bug> row_bugs() {
  return {
      {"mutant:scale_rounded_down",
       "The FP8 scale of a latent row is rounded down, so large values saturate.",
       AS_OP_Q_ROPE_KV_INSERT, scale_rounded_down},
      {"mutant:codes_cut_off", "FP8 codes of a latent row are cut off towards zero, not rounded.",
       AS_OP_Q_ROPE_KV_INSERT, codes_cut_off},
      {"mutant:rope_base_of_window_layers",
       "Compressed layers rotate with the base of the window-only layers, without YaRN.",
       AS_OP_Q_ROPE_KV_INSERT, rope_base_of_window_layers},
      {"mutant:yarn_on_window_layers", "YaRN is applied in window-only layers too.",
       AS_OP_Q_ROPE_KV_INSERT, yarn_on_window_layers},
      {"mutant:rope_turned_back", "RoPE turns the other way: its sine has the other sign.",
       AS_OP_Q_ROPE_KV_INSERT, rope_turned_back},
      {"mutant:rope_half_split", "RoPE pairs dims 32 apart instead of neighbours.",
       AS_OP_Q_ROPE_KV_INSERT, rope_half_split},
      {"mutant:q_norm_missing", "The norm of every query head is left out.", AS_OP_Q_ROPE_KV_INSERT,
       q_norm_missing},
      {"mutant:key_not_rotated", "Latent rows are stored without RoPE.", AS_OP_Q_ROPE_KV_INSERT,
       key_not_rotated},
      {"mutant:last_row_not_written", "The last token of a step does not reach the window cache.",
       AS_OP_Q_ROPE_KV_INSERT, last_row_not_written},
      {"mutant:inverse_rope_forward", "The output is rotated forward once more.",
       AS_OP_INVERSE_ROPE, inverse_rope_forward},
      {"mutant:inverse_rope_in_place",
       "The rotation back overwrites the attention output it reads.", AS_OP_INVERSE_ROPE,
       inverse_rope_in_place},
      {"mutant:fp8_output_scales_shifted",
       "Blocks of attention's output in FP8 have the scales of the blocks behind them.",
       AS_OP_INVERSE_ROPE, fp8_output_scales_shifted},
      {"mutant:fp8_output_turned_last",
       "Attention's output is quantised before it is rotated back, and once more behind.",
       AS_OP_INVERSE_ROPE, fp8_output_turned_last},
  };
}

}  // namespace attnscope::mutants
