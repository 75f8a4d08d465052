// Wrong workspaces of tokens that prefill: how rows of several requests, and those of two caches,
// become one list.
#include <algorithm>
#include <vector>

#include "kernels/cpu/prefill_workspace.h"
#include "kernels/mutants/bugs.h"
#include "kernels/params/attention_params.h"
#include "kernels/params/tensor_view.h"

namespace attnscope::mutants {
namespace {

using Prefill = as_sparse_attention_params;
using cpu::PrefillWorkspace;

// The op with workspaces as they are after change(workspace).
template <class Change>
std::int32_t with_workspaces(const void* params, const as_call* call, as_error* error,
                             const Change& change) {
  const auto spoil = [&](const Prefill& p) {
    if (!present(p.prefill)) return AS_OK;
    for (PrefillWorkspace& workspace : cpu::gather_prefill(p)) {
      change(workspace);
      cpu::attend_prefill(p, workspace, call);
    }
    return AS_OK;
  };
  return spoil_after<Prefill>(AS_OP_SPARSE_ATTENTION, params, call, error, spoil);
}

// visit(part, compressed length, length, list) of each token's list.
template <class Visit>
void each_list(PrefillWorkspace& w, const Visit& visit) {
  std::size_t row = 0;
  for (const PrefillWorkspace::Part& part : w.parts) {
    for (std::int64_t t = 0; t < part.tokens; ++t, ++row) {
      visit(part, w.compressed_lens[row], w.lens[row],
            w.indices.data() + row * static_cast<std::size_t>(w.columns));
    }
  }
}

std::int32_t gathered_part_offset_lost(const void* params, const as_call* call, as_error* error) {
  return with_workspaces(params, call, error, [](PrefillWorkspace& w) {
    each_list(w, [&](const PrefillWorkspace::Part& part, std::int32_t, std::int32_t len,
                     std::int32_t* list) {
      for (std::int32_t k = 0; k < len; ++k) {
        list[k] -= static_cast<std::int32_t>(part.place * w.width);
      }
    });
  });
}

std::int32_t gathered_window_not_shifted(const void* params, const as_call* call, as_error* error) {
  return with_workspaces(params, call, error, [](PrefillWorkspace& w) {
    each_list(w, [&](const PrefillWorkspace::Part&, std::int32_t compressed, std::int32_t len,
                     std::int32_t* list) {
      for (std::int32_t k = compressed; k < len; ++k) {
        list[k] -= static_cast<std::int32_t>(w.compressed);
      }
    });
  });
}

// The longer of both lengths where their sum belongs.
std::int32_t gathered_length_not_added(const void* params, const as_call* call, as_error* error) {
  return with_workspaces(params, call, error, [](PrefillWorkspace& w) {
    for (std::size_t row = 0; row < w.lens.size(); ++row) {
      const std::int32_t compressed = w.compressed_lens[row];
      w.lens[row] = std::max(compressed, w.lens[row] - compressed);
    }
  });
}

}  // namespace

std::vector<Bug> prefill_bugs() {
  return {
      {"mutant:gathered_part_offset_lost",
       "Lists over gathered rows begin at the first request's part of the workspace.",
       AS_OP_SPARSE_ATTENTION, gathered_part_offset_lost},
      {"mutant:gathered_window_not_shifted",
       "Window rows of a workspace are read as if no compressed entries lay before them.",
       AS_OP_SPARSE_ATTENTION, gathered_window_not_shifted},
      {"mutant:gathered_length_not_added",
       "A list over gathered rows is as long as the longer of its two parts.",
       AS_OP_SPARSE_ATTENTION, gathered_length_not_added},
  };
}

}  // namespace attnscope::mutants
