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

std::int32_t sink_twice(const void* params, const as_call* call, as_error* error) {
  return with_sinks(params, call, error, [](std::int64_t h, const Params& p) {
    return *at<float>(p.sinks, h) + std::numbers::ln2_v<float>;
  });
}

// Logits go through exp2 and are multiplied by log2(e) before it; the sink is not.
std::int32_t sink_of_base_2(const void* params, const as_call* call, as_error* error) {
  return with_sinks(params, call, error, [](std::int64_t h, const Params& p) {
    return *at<float>(p.sinks, h) * std::numbers::ln2_v<float>;
  });
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

// Logits and sinks, made for exp, are taken by exp2.
std::int32_t weights_of_base_2(const void* params, const as_call* call, as_error* error) {
  const auto spoil = [&](Params p) {
    p.scale *= std::numbers::ln2;
    return sink_of_base_2(&p, call, error);
  };
  return spoil_after<Params>(kOp, params, call, error, spoil);
}

std::int32_t scores_without_rope(const void* params, const as_call* call, as_error* error) {
  const auto spoil = [&](Params p) {
    const std::int64_t tokens = p.q.shape[0], heads = p.q.shape[1];
    std::vector<bf16_t> q;
    for (std::int64_t t = 0; t < tokens; ++t) {
      for (std::int64_t h = 0; h < heads; ++h) {
        const bf16_t* from = at<bf16_t>(p.q, t, h);
        q.insert(q.end(), from, from + AS_NOPE_DIM);
        q.resize(q.size() + AS_ROPE_DIM, bf16_t{0});
      }
    }
    p.q = make_tensor(q.data(), {tokens, heads, AS_HEAD_DIM});
    return run_cpu(kOp, &p, call, error);
  };
  return spoil_after<Params>(kOp, params, call, error, spoil);
}

}  // namespace

std::vector<Bug> attention_bugs() {
  return {
      {"mutant:sink_scaled", "The sink is multiplied by the softmax scale.", kOp, sink_scaled},
      {"mutant:sink_missing", "The sink takes no share of the weight.", kOp, sink_missing},
      {"mutant:sink_twice", "The sink counts twice.", kOp, sink_twice},
      {"mutant:sink_of_base_2",
       "Logits are multiplied by log2(e) for an exponential of base 2, the sink is not.", kOp,
       sink_of_base_2},
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
      {"mutant:weights_of_base_2",
       "Exponentials of logits and sink are of base 2, and nothing was multiplied by log2(e).", kOp,
       weights_of_base_2},
      {"mutant:scores_without_rope", "Scores are of the dims without RoPE alone.", kOp,
       scores_without_rope},
  };
}

}  // namespace attnscope::mutants
