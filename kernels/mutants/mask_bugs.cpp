// Masks and score functions of a user, wrongly asked.
#include <utility>
#include <vector>

#include "kernels/mutants/bugs.h"
#include "kernels/params/paged_params.h"
#include "kernels/params/tensor_view.h"

namespace attnscope::mutants {
namespace {

using Asked = as_paged_attention_params;
using Code = std::vector<double>;  // [N,2]
constexpr as_op_id kAsked = AS_OP_PAGED_ATTENTION;
constexpr double kQueryPlace = AS_MASK_Q_IDX, kKeyPlace = AS_MASK_KV_IDX;
constexpr double kAskedHead = AS_MASK_HEAD, kAskedScore = AS_MASK_SCORE;
constexpr double kPlainNumber = AS_MASK_NUMBER, kSum = AS_MASK_ADD;

// The op with params that change(p) has changed, where it has such code.
template <class Change>
std::int32_t asked_other(const void* params, const as_call* call, as_error* error,
                         as_tensor Asked::*code, const Change& change) {
  return spoil_after<Asked>(kAsked, params, call, error, [&](Asked p) -> std::int32_t {
    if (!present(p.*code)) return AS_OK;
    change(p);
    return run_cpu(kAsked, &p, call, error);
  });
}

Code code_of(const as_tensor& tensor) {
  Code code;
  for (std::int64_t i = 0; i < tensor.shape[0]; ++i) {
    code.push_back(*at<double>(tensor, i, 0));
    code.push_back(*at<double>(tensor, i, 1));
  }
  return code;
}

as_tensor code_tensor(const Code& code) {
  return make_tensor(code.data(), {static_cast<std::int64_t>(code.size() / 2), 2});
}

// A token sees all rows up to its own, whatever the mask says.
std::int32_t mask_ignored(const void* params, const as_call* call, as_error* error) {
  return asked_other(params, call, error, &Asked::mask_code, [](Asked& p) {
    p.mask_code = no_tensor();
    p.causal = 1;
  });
}

// Places of query and key exchanged.
std::int32_t mask_transposed(const void* params, const as_call* call, as_error* error) {
  Code code;
  return asked_other(params, call, error, &Asked::mask_code, [&](Asked& p) {
    code = code_of(p.mask_code);
    for (std::size_t i = 0; i < code.size(); i += 2) {
      if (code[i] == kQueryPlace) {
        code[i] = kKeyPlace;
      } else if (code[i] == kKeyPlace) {
        code[i] = kQueryPlace;
      }
    }
    p.mask_code = code_tensor(code);
  });
}

// Heads are counted from 1.
std::int32_t mask_of_next_head(const void* params, const as_call* call, as_error* error) {
  Code code;
  return asked_other(params, call, error, &Asked::mask_code, [&](Asked& p) {
    const Code own = code_of(p.mask_code);
    for (std::size_t i = 0; i < own.size(); i += 2) {
      code.insert(code.end(), {own[i], own[i + 1]});
      if (own[i] == kAskedHead) {
        code.insert(code.end(), {kPlainNumber, 1, kSum, 0});
      }
    }
    p.mask_code = code_tensor(code);
  });
}

std::int32_t score_ignored(const void* params, const as_call* call, as_error* error) {
  return asked_other(params, call, error, &Asked::score_code,
                     [](Asked& p) { p.score_code = no_tensor(); });
}

// What the function gives goes through it once more.
std::int32_t score_twice(const void* params, const as_call* call, as_error* error) {
  Code code;
  return asked_other(params, call, error, &Asked::score_code, [&](Asked& p) {
    const Code own = code_of(p.score_code);
    for (std::size_t i = 0; i < own.size(); i += 2) {
      if (own[i] == kAskedScore) {
        code.insert(code.end(), own.begin(), own.end());
      } else {
        code.insert(code.end(), {own[i], own[i + 1]});
      }
    }
    p.score_code = code_tensor(code);
  });
}

// Chunks are counted from their own first row, as if each were a request.
std::int32_t mask_from_chunk(const void* params, const as_call* call, as_error* error) {
  return spoil_after<Asked>(kAsked, params, call, error, [&](Asked p) -> std::int32_t {
    if (!present(p.places)) return AS_OK;
    p.places = no_tensor();
    return run_cpu(kAsked, &p, call, error);
  });
}

// Across, a token of the decoder sees of what the mask shows the source up to its own place.
std::int32_t mask_causal_across(const void* params, const as_call* call, as_error* error) {
  Code code;
  return asked_other(params, call, error, &Asked::mask_code, [&](Asked& p) {
    if (!present(p.query_starts) || present(p.row_starts)) return;
    code = code_of(p.mask_code);
    code.insert(code.end(), {kKeyPlace, 0, kQueryPlace, 0, AS_MASK_LE, 0, AS_MASK_AND, 0});
    p.mask_code = code_tensor(code);
  });
}

// The source stands before the decoder's first token, and its rows are counted on.
std::int32_t mask_from_source(const void* params, const as_call* call, as_error* error) {
  return spoil_after<Asked>(kAsked, params, call, error, [&](Asked p) -> std::int32_t {
    if (!present(p.query_starts)) return AS_OK;
    p.query_starts = no_tensor();
    return run_cpu(kAsked, &p, call, error);
  });
}

}  // namespace

std::vector<Bug> mask_bugs() {
  return {
      {"mutant:mask_ignored", "Tokens see all before them, whatever the user's mask says.", kAsked,
       mask_ignored},
      {"mutant:mask_transposed", "The user's mask is asked with query and key exchanged.", kAsked,
       mask_transposed},
      {"mutant:mask_of_next_head", "The user's mask is asked for the head behind.", kAsked,
       mask_of_next_head},
      {"mutant:score_ignored", "The user's score function is left out.", kAsked, score_ignored},
      {"mutant:mask_from_chunk", "The user's mask counts queries and keys from their chunk on.",
       kAsked, mask_from_chunk},
      {"mutant:mask_causal_across",
       "Across, the user's mask shows the source up to the token alone.", kAsked,
       mask_causal_across},
      {"mutant:mask_from_source", "The user's mask counts a decoder's tokens from the source on.",
       kAsked, mask_from_source},
      {"mutant:score_twice", "The user's score function is applied twice.", kAsked, score_twice},
  };
}

}  // namespace attnscope::mutants
