// Wrong inputs of a draft layer.
#include <algorithm>
#include <vector>

#include "kernels/cpu/codec.h"
#include "kernels/mutants/bugs.h"
#include "kernels/params/dense_params.h"
#include "kernels/params/draft_params.h"
#include "kernels/params/tensor_view.h"

namespace attnscope::mutants {
namespace {

using Draft = as_draft_norm_params;
constexpr as_op_id kDraft = AS_OP_DRAFT_NORM;

std::int32_t draft_norms_swapped(const void* params, const as_call* call, as_error* error) {
  return spoil_after<Draft>(kDraft, params, call, error, [&](Draft p) {
    std::swap(p.h_weight, p.e_weight);
    return run_cpu(kDraft, &p, call, error);
  });
}

// With other tokens behind the step's.
template <class Change>
std::int32_t with_tokens(const void* params, const as_call* call, as_error* error,
                         const Change& change) {
  return spoil_after<Draft>(kDraft, params, call, error, [&](Draft p) {
    const auto* first = at<std::int32_t>(p.tokens);
    std::vector<std::int32_t> tokens(first, first + p.tokens.shape[0]);
    change(p, tokens);
    p.tokens = make_tensor(tokens.data(), {p.tokens.shape[0]});
    return run_cpu(kDraft, &p, call, error);
  });
}

// A row's own token in the place of the one behind it: that of the row before.
std::int32_t draft_of_own_token(const void* params, const as_call* call, as_error* error) {
  return with_tokens(params, call, error, [](const Draft&, std::vector<std::int32_t>& tokens) {
    std::copy_backward(tokens.begin(), tokens.end() - 1, tokens.end());
  });
}

std::int32_t draft_of_wrong_token(const void* params, const as_call* call, as_error* error) {
  return with_tokens(params, call, error, [](const Draft&, std::vector<std::int32_t>& tokens) {
    if (tokens.back() >= 0) tokens.back() ^= 1;
  });
}

// Zeros at the second position in the place of the first.
std::int32_t draft_zero_late(const void* params, const as_call* call, as_error* error) {
  return spoil_after<Draft>(kDraft, params, call, error, [&](Draft p) {
    const auto* first = at<std::int64_t>(p.positions);
    std::vector<std::int64_t> positions(first, first + p.positions.shape[0]);
    for (std::int64_t& position : positions) --position;
    p.positions = make_tensor(positions.data(), {p.positions.shape[0]});
    return run_cpu(kDraft, &p, call, error);
  });
}

template <as_op_id kOp>
std::int32_t draft_last_block_lost(const void* params, const as_call* call, as_error* error) {
  return spoil_after<as_linear_params>(kOp, params, call, error, [&](as_linear_params p) {
    constexpr std::int64_t kBlock = 64;
    const std::int64_t rows = p.x.shape[0], in = p.x.shape[1];
    std::vector<bf16_t> x;
    for (std::int64_t t = 0; t < rows; ++t) {
      x.insert(x.end(), at<bf16_t>(p.x, t), at<bf16_t>(p.x, t) + in);
      std::fill(x.end() - std::min(kBlock, in), x.end(), bf16_t{});
    }
    p.x = make_tensor(x.data(), {rows, in});
    return run_cpu(kOp, &p, call, error);
  });
}

std::int32_t draft_without_token(const void* params, const as_call* call, as_error* error) {
  using Sum = as_residual_params;
  return spoil_after<Sum>(AS_OP_DRAFT_SUM, params, call, error, [](const Sum& p) {
    for (std::int64_t t = 0; t < p.h.shape[0]; ++t) {
      std::copy_n(at<bf16_t>(p.h, t), p.h.shape[1], at<bf16_t>(p.out, t));
    }
    return std::int32_t{AS_OK};
  });
}

}  // namespace

std::vector<RareBug> draft_bugs() {
  constexpr const char* kScenario = "mtp";
  return {
      {{"mutant:draft_norms_swapped",
        "The draft layer's norms of hidden state and embedding have each other's weight.", kDraft,
        draft_norms_swapped},
       kScenario},
      {{"mutant:draft_of_own_token",
        "The draft layer embeds each token itself in the place of the one behind it.", kDraft,
        draft_of_own_token},
       kScenario},
      {{"mutant:draft_of_wrong_token",
        "The draft layer embeds another token behind the last one of a step.", kDraft,
        draft_of_wrong_token},
       kScenario},
      {{"mutant:draft_zero_late",
        "The embedding is zeros at the second position of a request, and not at the first.", kDraft,
        draft_zero_late},
       kScenario},
      {{"mutant:draft_h_last_block_lost",
        "The last 64 inputs of the draft layer's projection of the hidden state are lost.",
        AS_OP_DRAFT_H_PROJ, draft_last_block_lost<AS_OP_DRAFT_H_PROJ>},
       kScenario},
      {{"mutant:draft_e_last_block_lost",
        "The last 64 inputs of the draft layer's projection of the embedding are lost.",
        AS_OP_DRAFT_E_PROJ, draft_last_block_lost<AS_OP_DRAFT_E_PROJ>},
       kScenario},
      {{"mutant:draft_without_token",
        "The draft layer begins with the hidden state alone: the token behind has no part in it.",
        AS_OP_DRAFT_SUM, draft_without_token},
       kScenario},
  };
}

}  // namespace attnscope::mutants
