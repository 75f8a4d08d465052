// Wrong attention.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numbers>
#include <vector>

#include "kernels/cpu/codec.h"
#include "kernels/layout/records.h"
#include "kernels/mutants/bugs.h"
#include "kernels/mutants/gathered.h"
#include "kernels/params/attention_params.h"
#include "kernels/params/tensor_view.h"

namespace attnscope::mutants {
namespace {

using Params = as_sparse_attention_params;
constexpr as_op_id kOp = AS_OP_SPARSE_ATTENTION;
constexpr float kInfinity = std::numeric_limits<float>::infinity();

// ln(e^a + e^b).
double log_add(double a, double b) {
  const double larger = std::max(a, b);
  return std::isinf(larger) ? larger : larger + std::log1p(std::exp(std::min(a, b) - larger));
}

// The op with other sinks: choose(head, sinks).
template <class Choose>
std::int32_t with_sinks(const void* params, const as_call* call, as_error* error,
                        const Choose& choose) {
  const auto spoil = [&](Params p) {
    const std::int64_t heads = p.sinks.shape[0];
    std::vector<float> sinks;
    sinks.reserve(static_cast<std::size_t>(heads));
    for (std::int64_t h = 0; h < heads; ++h) sinks.push_back(choose(h, p));
    p.sinks = make_tensor(sinks.data(), {heads});
    return run_cpu(kOp, &p, call, error);
  };
  return spoil_after<Params>(kOp, params, call, error, spoil);
}

std::int32_t sink_scaled(const void* params, const as_call* call, as_error* error) {
  return with_sinks(params, call, error, [](std::int64_t h, const Params& p) {
    return *at<float>(p.sinks, h) * static_cast<float>(p.scale);
  });
}

std::int32_t sink_missing(const void* params, const as_call* call, as_error* error) {
  return with_sinks(params, call, error, [](std::int64_t, const Params&) { return -kInfinity; });
}

std::int32_t sink_of_other_heads(const void* params, const as_call* call, as_error* error) {
  return with_sinks(params, call, error, [](std::int64_t h, const Params& p) {
    const std::int64_t heads = p.sinks.shape[0];
    return *at<float>(p.sinks, (h + heads / 2) % heads);
  });
}

// The fp32 sinks taken for bf16: two values out of each, the first from bits of no meaning.
std::int32_t sink_read_as_bf16(const void* params, const as_call* call, as_error* error) {
  return with_sinks(params, call, error, [](std::int64_t h, const Params& p) {
    std::uint32_t bits;
    std::memcpy(&bits, at<float>(p.sinks, h / 2), sizeof(bits));
    const float v = cpu::bf16_to_float(static_cast<std::uint16_t>(bits >> (h % 2 * 16)));
    return std::isfinite(v) ? v : 0.0f;
  });
}

std::int32_t lse_with_sink(const void* params, const as_call* call, as_error* error) {
  const auto spoil = [&](const Params& p) {
    for (std::int64_t t = 0; t < p.lse.shape[0]; ++t) {
      for (std::int64_t h = 0; h < p.lse.shape[1]; ++h) {
        float& lse = *at<float>(p.lse, t, h);
        const double sink = static_cast<double>(*at<float>(p.sinks, h));
        if (std::isinf(lse) || std::isinf(sink)) continue;
        lse = static_cast<float>(log_add(static_cast<double>(lse), sink));
      }
    }
    return AS_OK;
  };
  return spoil_after<Params>(kOp, params, call, error, spoil);
}

// As some public kernels return it.
std::int32_t lse_in_base_2(const void* params, const as_call* call, as_error* error) {
  const auto spoil = [&](const Params& p) {
    for (std::int64_t t = 0; t < p.lse.shape[0]; ++t) {
      for (std::int64_t h = 0; h < p.lse.shape[1]; ++h) {
        *at<float>(p.lse, t, h) *= std::numbers::log2e_v<float>;
      }
    }
    return AS_OK;
  };
  return spoil_after<Params>(kOp, params, call, error, spoil);
}

std::int32_t selection_ignored(const void* params, const as_call* call, as_error* error) {
  const auto spoil = [&](Params p) -> std::int32_t {
    if (!present(p.extra_topk_length)) return AS_OK;
    const std::vector<std::int32_t> none(static_cast<std::size_t>(p.extra_topk_length.shape[0]), 0);
    p.extra_topk_length = make_tensor(none.data(), {p.extra_topk_length.shape[0]});
    return run_cpu(kOp, &p, call, error);
  };
  return spoil_after<Params>(kOp, params, call, error, spoil);
}

// The newest row of the window is the token's own.
std::int32_t own_row_missed(const void* params, const as_call* call, as_error* error) {
  const auto spoil = [&](Params p) {
    std::vector<std::int32_t> lens;
    for (std::int64_t t = 0; t < p.topk_length.shape[0]; ++t) {
      lens.push_back(std::max(0, *at<std::int32_t>(p.topk_length, t) - 1));
    }
    p.topk_length = make_tensor(lens.data(), {p.topk_length.shape[0]});
    return run_cpu(kOp, &p, call, error);
  };
  return spoil_after<Params>(kOp, params, call, error, spoil);
}

// Every empty place of the window adds the logit 0 and the value 0.
std::int32_t null_row_as_zero(const void* params, const as_call* call, as_error* error) {
  const auto spoil = [&](const Params& p) {
    for (std::int64_t t = 0; t < p.lse.shape[0]; ++t) {
      const auto empty =
          static_cast<double>(p.indices.shape[1] - *at<std::int32_t>(p.topk_length, t));
      for (std::int64_t h = 0; empty > 0 && h < p.lse.shape[1]; ++h) {
        float& lse = *at<float>(p.lse, t, h);
        if (std::isinf(lse)) continue;
        const double before =
            log_add(static_cast<double>(lse), static_cast<double>(*at<float>(p.sinks, h)));
        const auto factor = static_cast<float>(std::exp(before - log_add(before, std::log(empty))));
        for (std::int64_t d = 0; d < p.o.shape[2]; ++d) {
          bf16_t& o = *at<bf16_t>(p.o, t, h, d);
          o.bits = cpu::float_to_bf16(cpu::bf16_to_float(o.bits) * factor);
        }
        lse = static_cast<float>(log_add(static_cast<double>(lse), std::log(empty)));
      }
    }
    return AS_OK;
  };
  return spoil_after<Params>(kOp, params, call, error, spoil);
}

// Window and selected rows are attended apart and their outputs averaged.
std::int32_t parts_averaged(const void* params, const as_call* call, as_error* error) {
  const auto spoil = [&](const Params& p) -> std::int32_t {
    if (!present(p.extra_topk_length)) return AS_OK;
    const std::int64_t tokens = p.q.shape[0], heads = p.q.shape[1], dim = p.q.shape[2];
    const std::vector<std::int32_t> none(static_cast<std::size_t>(tokens), 0);
    const std::vector<float> no_sink(static_cast<std::size_t>(heads), -kInfinity);
    std::vector<bf16_t> outputs[2];
    std::vector<float> lses[2];
    for (int part = 0; part < 2; ++part) {
      outputs[part].resize(static_cast<std::size_t>(tokens * heads * dim));
      lses[part].resize(static_cast<std::size_t>(tokens * heads));
      Params half = p;
      (part == 0 ? half.extra_topk_length : half.topk_length) = make_tensor(none.data(), {tokens});
      half.sinks = make_tensor(no_sink.data(), {heads});
      half.o = make_tensor(outputs[part].data(), {tokens, heads, dim});
      half.lse = make_tensor(lses[part].data(), {tokens, heads});
      const std::int32_t status = run_cpu(kOp, &half, call, error);
      if (status != AS_OK) return status;
    }
    for (std::int64_t t = 0; t < tokens; ++t) {
      for (std::int64_t h = 0; h < heads; ++h) {
        const std::int64_t row = t * heads + h;
        // An empty part has the LSE +inf.
        if (std::isinf(lses[0][static_cast<std::size_t>(row)]) ||
            std::isinf(lses[1][static_cast<std::size_t>(row)])) {
          continue;
        }
        const auto lse = static_cast<double>(*at<float>(p.lse, t, h));
        const auto sink = static_cast<double>(*at<float>(p.sinks, h));
        const auto share = static_cast<float>(0.5 / (1 + std::exp(sink - lse)));
        for (std::int64_t d = 0; d < dim; ++d) {
          const auto i = static_cast<std::size_t>(row * dim + d);
          const float sum =
              cpu::bf16_to_float(outputs[0][i].bits) + cpu::bf16_to_float(outputs[1][i].bits);
          at<bf16_t>(p.o, t, h, d)->bits = cpu::float_to_bf16(sum * share);
        }
      }
    }
    return AS_OK;
  };
  return spoil_after<Params>(kOp, params, call, error, spoil);
}

// The op with its scale times a factor.
std::int32_t with_scale(const void* params, const as_call* call, as_error* error, double factor) {
  const auto spoil = [&](Params p) {
    p.scale *= factor;
    return run_cpu(kOp, &p, call, error);
  };
  return spoil_after<Params>(kOp, params, call, error, spoil);
}

// (0.1 ln 16 + 1)^2, the factor that other models put into the scale together with YaRN.
std::int32_t scale_with_yarn(const void* params, const as_call* call, as_error* error) {
  const double m = 0.1 * std::log(16.0) + 1;
  return with_scale(params, call, error, m * m);
}

std::int32_t scale_of_no_rope(const void* params, const as_call* call, as_error* error) {
  return with_scale(params, call, error, std::sqrt(double{AS_HEAD_DIM} / double{AS_NOPE_DIM}));
}

// Made for exp2 and taken by exp.
std::int32_t scale_of_base_2(const void* params, const as_call* call, as_error* error) {
  return with_scale(params, call, error, std::numbers::log2e);
}

// The op over window rows that fetch(slot, payload, scales) reads.
template <class Fetch>
std::int32_t with_window_rows(const void* params, const as_call* call, as_error* error,
                              const Fetch& fetch) {
  const auto spoil = [&](Params p) {
    const as_cache cache = p.cache;
    const Gathered rows(cache, p.indices, p.topk_length,
                        [&](std::int64_t slot, std::uint8_t* payload, std::uint8_t* scales) {
                          fetch(cache, slot, payload, scales);
                        });
    p.cache = rows.cache();
    p.indices = rows.indices();
    return run_cpu(kOp, &p, call, error);
  };
  return spoil_after<Params>(kOp, params, call, error, spoil);
}

void fetch_row(const as_cache& cache, std::int64_t slot, std::uint8_t* payload,
               std::uint8_t* scales) {
  const as_row_address from = as_cache_row(&cache, slot);
  const std::int64_t bytes = as_payload_bytes(cache.record, cache.width);
  std::memcpy(payload, from.payload, static_cast<std::size_t>(bytes));
  std::memcpy(scales, from.scales, static_cast<std::size_t>(as_scale_bytes(cache.record)));
}

std::int32_t latent_page_interleaved(const void* params, const as_call* call, as_error* error) {
  return with_window_rows(params, call, error, fetch_interleaved);
}

std::int32_t codes_read_as_fnuz(const void* params, const as_call* call, as_error* error) {
  return with_window_rows(
      params, call, error,
      [](const as_cache& cache, std::int64_t slot, std::uint8_t* payload, std::uint8_t* scales) {
        fetch_row(cache, slot, payload, scales);
        for (int i = 0; i < AS_QUANT_BLOCKS; ++i) {
          if (scales[i] > 0) --scales[i];
        }
      });
}

// The byte offset of a page is kept in too few bits, as 32 are in a large pool.
std::int32_t page_offset_wraps(const void* params, const as_call* call, as_error* error) {
  return with_window_rows(
      params, call, error,
      [](const as_cache& cache, std::int64_t slot, std::uint8_t* payload, std::uint8_t* scales) {
        constexpr std::int64_t kOffsets = 1 << 20;
        if (cache.addressing != AS_PAGED) return fetch_row(cache, slot, payload, scales);
        const std::int64_t stride = cache.data.stride[0];
        const std::int64_t page = slot / cache.rows_per_block * stride;
        as_cache wrapped = cache;
        wrapped.data.data = static_cast<std::uint8_t*>(cache.data.data) + page % kOffsets;
        fetch_row(wrapped, slot % cache.rows_per_block, payload, scales);
      });
}

// The rows of a page that was recycled are those its last owner left: here the row one page back.
std::int32_t stale_row_read(const void* params, const as_call* call, as_error* error) {
  const auto spoil = [&](Params p) {
    // The newest full page of the window is taken for the one before it.
    const std::int64_t tokens = p.indices.shape[0], width = p.indices.shape[1];
    std::vector<std::int32_t> indices;
    for (std::int64_t t = 0; t < tokens; ++t) {
      const std::int32_t* list = at<std::int32_t>(p.indices, t);
      const std::int32_t len = *at<std::int32_t>(p.topk_length, t);
      indices.insert(indices.end(), list, list + width);
      if (p.cache.addressing != AS_PAGED || len == 0) continue;
      const std::int32_t rows = p.cache.rows_per_block;
      const std::int32_t newest = list[len - 1] / rows, oldest = list[0] / rows;
      for (std::int32_t k = 0; k < len; ++k) {
        std::int32_t& slot = indices[static_cast<std::size_t>(t * width + k)];
        if (slot / rows == newest) slot = oldest * rows + slot % rows;
      }
    }
    p.indices = make_tensor(indices.data(), {tokens, width});
    return run_cpu(kOp, &p, call, error);
  };
  return spoil_after<Params>(kOp, params, call, error, spoil);
}

}  // namespace

std::vector<Bug> attention_bugs() {
  return {
      {"mutant:sink_scaled", "The sink is multiplied by the softmax scale.", kOp, sink_scaled},
      {"mutant:sink_missing", "The sink takes no share of the weight.", kOp, sink_missing},
      {"mutant:sink_of_other_heads", "Every head has the sink of a head half the heads away.", kOp,
       sink_of_other_heads},
      {"mutant:sink_read_as_bf16", "The fp32 sinks are read as bf16.", kOp, sink_read_as_bf16},
      {"mutant:lse_with_sink", "The LSE includes the sink.", kOp, lse_with_sink},
      {"mutant:lse_in_base_2", "The LSE is a logarithm in base 2.", kOp, lse_in_base_2},
      {"mutant:selection_ignored", "Compressed entries are not attended.", kOp, selection_ignored},
      {"mutant:own_row_missed", "A token does not attend its own row.", kOp, own_row_missed},
      {"mutant:null_row_as_zero", "Empty places of a window count as rows of zeros.", kOp,
       null_row_as_zero},
      {"mutant:parts_averaged",
       "The outputs of window and selection are averaged instead of merged by their LSE.", kOp,
       parts_averaged},
      {"mutant:scale_with_yarn", "The softmax scale has YaRN's amplitude factor in it.", kOp,
       scale_with_yarn},
      {"mutant:scale_of_no_rope", "Scores are scaled by the width of the dims without RoPE.", kOp,
       scale_of_no_rope},
      {"mutant:scale_of_base_2",
       "The softmax scale has log2(e) in it, and the exponential is the natural one.", kOp,
       scale_of_base_2},
      {"mutant:latent_page_interleaved",
       "A planar page of latent rows is read as if every row were followed by its scales.", kOp,
       latent_page_interleaved},
      {"mutant:codes_read_as_fnuz", "FP8 codes are decoded with another bias: half of each value.",
       kOp, codes_read_as_fnuz},
      {"mutant:page_offset_wraps", "The byte offset of a page wraps where it needs more bits.", kOp,
       page_offset_wraps},
      {"mutant:stale_row_read",
       "A recycled page is read as it was: its rows are those of an older page.", kOp,
       stale_row_read},
  };
}

}  // namespace attnscope::mutants
