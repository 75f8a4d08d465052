// Wrong ops of dense attention.
#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/cpu/codec.h"
#include "kernels/mutants/bugs.h"
#include "kernels/params/paged_params.h"
#include "kernels/params/row_format.h"
#include "kernels/params/tensor_view.h"

namespace attnscope::mutants {
namespace {

using Insert = as_rope_kv_insert_params;
using Attention = as_paged_attention_params;
constexpr as_op_id kInsert = AS_OP_ROPE_KV_INSERT;
constexpr as_op_id kAttention = AS_OP_PAGED_ATTENTION;

std::size_t to_size(std::int64_t n) { return static_cast<std::size_t>(n); }

// The op with params that change(p) has changed.
template <class Params, class Change>
std::int32_t with_other(as_op_id op, const void* params, const as_call* call, as_error* error,
                        const Change& change) {
  return spoil_after<Params>(op, params, call, error, [&](Params p) -> std::int32_t {
    change(p);
    return run_cpu(op, &p, call, error);
  });
}

std::int32_t rope_style_swapped(const void* params, const as_call* call, as_error* error) {
  return with_other<Insert>(kInsert, params, call, error, [](Insert& p) {
    p.style = p.style == AS_ROPE_NEOX ? AS_ROPE_GPTJ : AS_ROPE_NEOX;
  });
}

std::int32_t norm_weight_offset(const void* params, const as_call* call, as_error* error) {
  return with_other<Insert>(kInsert, params, call, error,
                            [](Insert& p) { p.weight_plus_one = 1 - p.weight_plus_one; });
}

// Positions count from the first token of the step.
std::int32_t rope_position_of_chunk(const void* params, const as_call* call, as_error* error) {
  std::vector<std::int64_t> positions;
  return with_other<Insert>(kInsert, params, call, error, [&](Insert& p) {
    if (!present(p.positions)) return;
    const std::int64_t tokens = p.positions.shape[0];
    for (std::int64_t t = 0; t < tokens; ++t) {
      positions.push_back(t % std::max<std::int64_t>(1, p.rope.table.shape[0]));
    }
    p.positions = make_tensor(positions.data(), {tokens});
  });
}

// Rows of V lie in the page as rows of the other placement would.
std::int32_t value_heads_transposed(const void* params, const as_call* call, as_error* error) {
  return spoil_after<Insert>(kInsert, params, call, error, [&](Insert p) {
    as_cache other = p.v_cache;
    other.record ^= AS_RECORD_HND;
    std::vector<unsigned char> row(to_size(as_cache_row_bytes(&p.v_cache)));
    for (std::int64_t t = 0; t < p.slots.shape[0]; ++t) {
      const std::int64_t slot = *at<std::int64_t>(p.slots, t);
      if (slot < 0) continue;
      as_row_get(&p.v_cache, slot, row.data());
      as_row_put(&other, slot, row.data());
    }
    return AS_OK;
  });
}

std::int32_t window_inclusive(const void* params, const as_call* call, as_error* error) {
  return with_other<Attention>(kAttention, params, call, error, [](Attention& p) {
    // The row before the window may be gone.
    bool there = p.window > 0;
    for (std::int64_t t = 0; there && t < p.q.shape[0]; ++t) {
      const std::int32_t r = *at<std::int32_t>(p.token_to_req, t);
      const std::int64_t row = *at<std::int64_t>(p.positions, t) - p.window;
      if (r < 0 || row < 0 || p.k_cache.addressing != AS_PAGED) continue;
      const std::int32_t id = *at<std::int32_t>(p.table, r, row / p.k_cache.rows_per_block);
      there = id >= 0 && id < p.k_cache.data.shape[0];
    }
    if (there) ++p.window;
  });
}

std::int32_t scale_missing(const void* params, const as_call* call, as_error* error) {
  return with_other<Attention>(kAttention, params, call, error, [](Attention& p) { p.scale = 1; });
}

// scale * cap * tanh(q . k / cap)
std::int32_t cap_before_scale(const void* params, const as_call* call, as_error* error) {
  return with_other<Attention>(kAttention, params, call, error,
                               [](Attention& p) { p.soft_cap *= std::fabs(p.scale); });
}

std::int32_t values_of_key_pages(const void* params, const as_call* call, as_error* error) {
  return with_other<Attention>(kAttention, params, call, error, [](Attention& p) {
    if (p.k_cache.width == p.v_cache.width) p.v_cache = p.k_cache;
  });
}

std::int32_t table_of_next_request(const void* params, const as_call* call, as_error* error) {
  std::vector<std::int32_t> ids;
  return with_other<Attention>(kAttention, params, call, error, [&](Attention& p) {
    const std::int64_t requests = p.table.shape[0], columns = p.table.shape[1];
    for (std::int64_t r = 0; r < requests; ++r) {
      for (std::int64_t c = 0; c < columns; ++c) {
        const std::int32_t other = *at<std::int32_t>(p.table, (r + 1) % requests, c);
        const bool there = p.k_cache.addressing == AS_PAGED && other >= 0 &&
                           other < p.k_cache.data.shape[0] && other < p.v_cache.data.shape[0];
        ids.push_back(there ? other : *at<std::int32_t>(p.table, r, c));
      }
    }
    p.table = make_tensor(ids.data(), {requests, columns});
  });
}

// Outputs and LSE of a call of their own.
struct Result {
  std::vector<bf16_t> o;
  std::vector<float> lse;
  void take_place_in(Attention& p) {
    const std::int64_t tokens = p.o.shape[0], heads = p.o.shape[1], size = p.o.shape[2];
    o.resize(to_size(tokens * heads * size));
    lse.resize(to_size(tokens * heads));
    p.o = make_tensor(o.data(), {tokens, heads, size});
    p.lse = make_tensor(lse.data(), {tokens, heads});
  }
};

// Head h reads the KV head of head h + 1: queries move up by one, results down.
std::int32_t kv_group_off_by_one(const void* params, const as_call* call, as_error* error) {
  return spoil_after<Attention>(kAttention, params, call, error, [&](const Attention& p) {
    const std::int64_t tokens = p.q.shape[0], heads = p.q.shape[1], size = p.q.shape[2];
    std::vector<bf16_t> queries(to_size(tokens * heads * size));
    std::vector<float> sinks(to_size(heads));
    Attention moved = p;
    moved.q = make_tensor(queries.data(), {tokens, heads, size});
    for (std::int64_t h = 0; h < heads; ++h) {
      if (present(p.sinks)) sinks[to_size((h + 1) % heads)] = *at<float>(p.sinks, h);
      for (std::int64_t t = 0; t < tokens; ++t) {
        std::copy_n(at<bf16_t>(p.q, t, h), size, at<bf16_t>(moved.q, t, (h + 1) % heads));
      }
    }
    if (present(p.sinks)) moved.sinks = make_tensor(sinks.data(), {heads});
    Result result;
    result.take_place_in(moved);
    const std::int32_t status = run_cpu(kAttention, &moved, call, error);
    if (status != AS_OK) return status;
    for (std::int64_t t = 0; t < tokens; ++t) {
      for (std::int64_t h = 0; h < heads; ++h) {
        std::copy_n(at<bf16_t>(moved.o, t, (h + 1) % heads), p.o.shape[2], at<bf16_t>(p.o, t, h));
        *at<float>(p.lse, t, h) = *at<float>(moved.lse, t, (h + 1) % heads);
      }
    }
    return std::int32_t{AS_OK};
  });
}

// The first half of the context and the rest, merged by powers of 2 of natural logarithms.
std::int32_t splits_merged_base_2(const void* params, const as_call* call, as_error* error) {
  return spoil_after<Attention>(kAttention, params, call, error, [&](const Attention& p) {
    std::vector<std::int32_t> halves;
    for (std::int64_t r = 0; r < p.seq_lens.shape[0]; ++r) {
      halves.push_back(*at<std::int32_t>(p.seq_lens, r) / 2);
    }
    Attention whole = p, half = p;
    whole.sinks = half.sinks = no_tensor();
    half.seq_lens = make_tensor(halves.data(), {p.seq_lens.shape[0]});
    Result all, first;
    all.take_place_in(whole);
    first.take_place_in(half);
    for (const Attention* part : {&whole, &half}) {
      const std::int32_t status = run_cpu(kAttention, part, call, error);
      if (status != AS_OK) return status;
    }
    for (std::int64_t t = 0; t < p.o.shape[0]; ++t) {
      for (std::int64_t h = 0; h < p.o.shape[1]; ++h) {
        const auto l = static_cast<double>(*at<float>(whole.lse, t, h));
        const auto a = static_cast<double>(*at<float>(half.lse, t, h));
        const double share = std::exp(a - l);  // of the first half
        if (!(share > 1e-3 && share < 0.999)) continue;
        const double b = l + std::log1p(-share);
        const double weight_a = std::exp2(a), weight_b = std::exp2(b);
        const double lse = std::log2(weight_a + weight_b);
        const double sink =
            present(p.sinks) ? 1 / (1 + std::exp(static_cast<double>(*at<float>(p.sinks, h)) - lse))
                             : 1.0;
        for (std::int64_t d = 0; d < p.o.shape[2]; ++d) {
          const auto mixed =
              static_cast<double>(cpu::bf16_to_float(at<bf16_t>(whole.o, t, h, d)->bits));
          const auto of_a =
              static_cast<double>(cpu::bf16_to_float(at<bf16_t>(half.o, t, h, d)->bits));
          const double of_b = (mixed - share * of_a) / (1 - share);
          const double merged = (weight_a * of_a + weight_b * of_b) / (weight_a + weight_b);
          at<bf16_t>(p.o, t, h, d)->bits = cpu::float_to_bf16(static_cast<float>(merged * sink));
        }
        *at<float>(p.lse, t, h) = static_cast<float>(lse);
      }
    }
    return std::int32_t{AS_OK};
  });
}

}  // namespace

std::vector<Bug> paged_bugs() {
  return {
      {"mutant:rope_style_swapped", "Keys and queries are turned in pairs of the other style.",
       kInsert, rope_style_swapped},
      {"mutant:norm_weight_offset", "The norm multiplies by w where 1 + w is right, or 1 + w by w.",
       kInsert, norm_weight_offset},
      {"mutant:rope_position_of_chunk", "Positions count from the first token of the step.",
       kInsert, rope_position_of_chunk},
      {"mutant:value_heads_transposed", "Pages of V are written with heads and rows exchanged.",
       kInsert, value_heads_transposed},
      {"mutant:kv_group_off_by_one", "Each query head reads the KV head of the head behind it.",
       kAttention, kv_group_off_by_one},
      {"mutant:window_inclusive", "The window counts rows before the token's own: one too many.",
       kAttention, window_inclusive},
      {"mutant:scale_missing", "Scores are not scaled.", kAttention, scale_missing},
      {"mutant:cap_before_scale", "The soft cap is applied to scores before their scale.",
       kAttention, cap_before_scale},
      {"mutant:splits_merged_base_2",
       "Results of splits are merged by powers of 2 of natural logarithms.", kAttention,
       splits_merged_base_2},
      {"mutant:values_of_key_pages", "Values are read from the pages of the keys.", kAttention,
       values_of_key_pages},
      {"mutant:table_of_next_request", "Rows are found through the next request's block table.",
       kAttention, table_of_next_request},
  };
}

}  // namespace attnscope::mutants
