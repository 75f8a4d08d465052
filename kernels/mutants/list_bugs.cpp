// Wrong slots, windows and lists of a step.
#include <algorithm>
#include <vector>

#include "kernels/mutants/bugs.h"
#include "kernels/params/step_params.h"
#include "kernels/params/tensor_view.h"

namespace attnscope::mutants {
namespace {

std::size_t to_size(std::int64_t n) { return static_cast<std::size_t>(n); }

// Index of the last token of t's request in the step.
std::int64_t last_token(const as_tensor& token_to_req, std::int64_t t) {
  const std::int32_t request = *at<std::int32_t>(token_to_req, t);
  while (t + 1 < token_to_req.shape[0] && *at<std::int32_t>(token_to_req, t + 1) == request) ++t;
  return t;
}

// The request that a base added twice leads to.
std::vector<std::int32_t> rebased_twice(const as_tensor& token_to_req, std::int64_t requests) {
  std::vector<std::int32_t> rebased;
  for (std::int64_t t = 0; t < token_to_req.shape[0]; ++t) {
    const std::int32_t request = *at<std::int32_t>(token_to_req, t);
    rebased.push_back(request < 0 ? request : static_cast<std::int32_t>(2 * request % requests));
  }
  return rebased;
}

// ---- slot_mapping -------------------------------------------------------------------------------

std::int32_t slot_rebased_twice(const void* params, const as_call* call, as_error* error) {
  using Params = as_slot_mapping_params;
  const auto spoil = [&](Params p) {
    const auto rebased = rebased_twice(p.token_to_req, p.tables.shape[1]);
    p.token_to_req = make_tensor(rebased.data(), {p.token_to_req.shape[0]});
    return run_cpu(AS_OP_SLOT_MAPPING, &p, call, error);
  };
  return spoil_after<Params>(AS_OP_SLOT_MAPPING, params, call, error, spoil);
}

// Slots of one group through the table of the group before it, where both have as many rows.
std::int32_t slot_of_other_group(const void* params, const as_call* call, as_error* error) {
  using Params = as_slot_mapping_params;
  const auto spoil = [&](const Params& p) {
    for (std::int64_t g = 1; g < p.groups.shape[0]; ++g) {
      if (*at<std::int32_t>(p.groups, g, 0) != *at<std::int32_t>(p.groups, g - 1, 0)) continue;
      std::copy_n(at<std::int64_t>(p.slots, g - 1), p.slots.shape[1], at<std::int64_t>(p.slots, g));
      break;
    }
    return AS_OK;
  };
  return spoil_after<Params>(AS_OP_SLOT_MAPPING, params, call, error, spoil);
}

std::int32_t c4_slot_of_entry_before(const void* params, const as_call* call, as_error* error) {
  using Params = as_slot_mapping_params;
  const auto spoil = [&](const Params& p) {
    for (std::int64_t t = 0; present(p.c4_slots) && t < p.c4_slots.shape[0]; ++t) {
      std::int64_t& slot = *at<std::int64_t>(p.c4_slots, t);
      if (slot > 0) --slot;
    }
    return AS_OK;
  };
  return spoil_after<Params>(AS_OP_SLOT_MAPPING, params, call, error, spoil);
}

std::int32_t entry_visible_early(const void* params, const as_call* call, as_error* error) {
  using Params = as_slot_mapping_params;
  const auto spoil = [&](const Params& p) {
    for (std::int64_t t = 0; present(p.c4_lens) && t < p.c4_lens.shape[0]; ++t) {
      if (*at<std::int32_t>(p.token_to_req, t) < 0) continue;
      const std::int64_t position = *at<std::int64_t>(p.positions, t);
      // Not before the entry's own request has its first one: there is no block to read.
      if (position > 4)
        *at<std::int32_t>(p.c4_lens, t) = static_cast<std::int32_t>((position + 2) / 4);
    }
    return AS_OK;
  };
  return spoil_after<Params>(AS_OP_SLOT_MAPPING, params, call, error, spoil);
}

// ---- swa_index ----------------------------------------------------------------------------------

// A window of W - 1 written into rows of W.
std::int32_t window_off_by_one(const void* params, const as_call* call, as_error* error) {
  using Params = as_swa_index_params;
  const auto spoil = [&](Params p) -> std::int32_t {
    if (p.window < 2) return AS_OK;
    for (std::int64_t s = 0; s < p.indices.shape[0]; ++s) {
      for (std::int64_t t = 0; t < p.indices.shape[1]; ++t) {
        *at<std::int32_t>(p.indices, s, t, p.window - 1) = -1;
      }
    }
    p.window -= 1;
    p.indices.shape[2] -= 1;
    return run_cpu(AS_OP_SWA_INDEX, &p, call, error);
  };
  return spoil_after<Params>(AS_OP_SWA_INDEX, params, call, error, spoil);
}

std::int32_t window_rebased_twice(const void* params, const as_call* call, as_error* error) {
  using Params = as_swa_index_params;
  const auto spoil = [&](const Params& p) {
    // The lists of the other request's last token, as long as its own.
    const std::int64_t requests = p.tables.shape[1];
    for (std::int64_t t = 0; t < p.token_to_req.shape[0]; ++t) {
      const std::int32_t request = *at<std::int32_t>(p.token_to_req, t);
      if (request <= 0) continue;
      const std::int64_t other = 2 * request % requests;
      for (std::int64_t s = 0; s < p.indices.shape[0]; ++s) {
        std::int32_t* list = at<std::int32_t>(p.indices, s, t);
        for (std::int64_t k = 0; k < *at<std::int32_t>(p.lens, t); ++k) {
          const std::int64_t column = list[k] < 0 ? -1 : k / p.block_size;
          if (column < 0 || column >= p.tables.shape[2]) continue;
          const std::int32_t block = *at<std::int32_t>(p.tables, s, other, column);
          list[k] = static_cast<std::int32_t>(block * p.block_size + k % p.block_size);
        }
      }
    }
    return AS_OK;
  };
  return spoil_after<Params>(AS_OP_SWA_INDEX, params, call, error, spoil);
}

std::int32_t window_not_causal(const void* params, const as_call* call, as_error* error) {
  using Params = as_swa_index_params;
  const auto spoil = [&](const Params& p) {
    for (std::int64_t t = 0; t < p.token_to_req.shape[0]; ++t) {
      if (*at<std::int32_t>(p.token_to_req, t) < 0) continue;
      const std::int64_t last = last_token(p.token_to_req, t);
      *at<std::int32_t>(p.lens, t) = *at<std::int32_t>(p.lens, last);
      for (std::int64_t s = 0; s < p.indices.shape[0]; ++s) {
        std::copy_n(at<std::int32_t>(p.indices, s, last), p.indices.shape[2],
                    at<std::int32_t>(p.indices, s, t));
      }
    }
    return AS_OK;
  };
  return spoil_after<Params>(AS_OP_SWA_INDEX, params, call, error, spoil);
}

// Slot 0 lies in the null block.
std::int32_t window_null_as_slot(const void* params, const as_call* call, as_error* error) {
  using Params = as_swa_index_params;
  const auto spoil = [&](const Params& p) {
    const auto width = static_cast<std::int32_t>(p.indices.shape[2]);
    for (std::int64_t t = 0; t < p.lens.shape[0]; ++t) {
      if (*at<std::int32_t>(p.token_to_req, t) < 0) continue;
      *at<std::int32_t>(p.lens, t) = width;
      for (std::int64_t s = 0; s < p.indices.shape[0]; ++s) {
        std::int32_t* list = at<std::int32_t>(p.indices, s, t);
        std::replace(list, list + width, -1, 0);
      }
    }
    return AS_OK;
  };
  return spoil_after<Params>(AS_OP_SWA_INDEX, params, call, error, spoil);
}

// ---- c128_index ---------------------------------------------------------------------------------

std::int32_t c128_entry_early(const void* params, const as_call* call, as_error* error) {
  using Params = as_c128_index_params;
  const auto spoil = [&](Params p) {
    std::vector<std::int64_t> positions;
    for (std::int64_t t = 0; t < p.positions.shape[0]; ++t) {
      positions.push_back(*at<std::int64_t>(p.positions, t) + 1);
    }
    p.positions = make_tensor(positions.data(), {p.positions.shape[0]});
    return run_cpu(AS_OP_C128_INDEX, &p, call, error);
  };
  return spoil_after<Params>(AS_OP_C128_INDEX, params, call, error, spoil);
}

std::int32_t c128_not_causal(const void* params, const as_call* call, as_error* error) {
  using Params = as_c128_index_params;
  const auto spoil = [&](const Params& p) {
    for (std::int64_t t = 0; t < p.lens.shape[0]; ++t) {
      const std::int64_t last = last_token(p.token_to_req, t);
      *at<std::int32_t>(p.lens, t) = *at<std::int32_t>(p.lens, last);
      std::copy_n(at<std::int32_t>(p.indices, last), p.indices.shape[1],
                  at<std::int32_t>(p.indices, t));
    }
    return AS_OK;
  };
  return spoil_after<Params>(AS_OP_C128_INDEX, params, call, error, spoil);
}

// Pages of two entries addressed as if an entry had a page of its own.
std::int32_t c128_page_of_one_row(const void* params, const as_call* call, as_error* error) {
  using Params = as_c128_index_params;
  const auto spoil = [&](const Params& p) {
    for (std::int64_t t = 0; t < p.lens.shape[0]; ++t) {
      std::int32_t* list = at<std::int32_t>(p.indices, t);
      const std::vector<std::int32_t> right(list, list + p.indices.shape[1]);
      for (std::int64_t c = 0; c < *at<std::int32_t>(p.lens, t); ++c) {
        list[c] = right[to_size(c / p.rows_per_block * p.rows_per_block)];
      }
    }
    return AS_OK;
  };
  return spoil_after<Params>(AS_OP_C128_INDEX, params, call, error, spoil);
}

}  // namespace

std::vector<Bug> list_bugs() {
  return {
      {"mutant:slot_rebased_twice",
       "The base of a request is added twice, so its rows go to another request's slots.",
       AS_OP_SLOT_MAPPING, slot_rebased_twice},
      {"mutant:slot_of_other_group", "One group's rows go to the slots of the group before it.",
       AS_OP_SLOT_MAPPING, slot_of_other_group},
      {"mutant:c4_slot_of_entry_before", "A C4A entry is written over the entry before it.",
       AS_OP_SLOT_MAPPING, c4_slot_of_entry_before},
      {"mutant:entry_visible_early",
       "A token sees the C4A entry that only the next token completes.", AS_OP_SLOT_MAPPING,
       entry_visible_early},
      {"mutant:window_off_by_one",
       "The sliding window starts one token late, so the oldest token is lost.", AS_OP_SWA_INDEX,
       window_off_by_one},
      {"mutant:window_rebased_twice",
       "The base of a request is added twice, so its windows list another request's slots.",
       AS_OP_SWA_INDEX, window_rebased_twice},
      {"mutant:window_not_causal", "All tokens of a chunk get the window of its last token.",
       AS_OP_SWA_INDEX, window_not_causal},
      {"mutant:window_null_as_slot", "The empty places of a window are slot 0 and are counted.",
       AS_OP_SWA_INDEX, window_null_as_slot},
      {"mutant:c128_entry_early",
       "A token sees the C128A entry that only the next token completes.", AS_OP_C128_INDEX,
       c128_entry_early},
      {"mutant:c128_not_causal", "All tokens of a chunk see the C128A entries of its last token.",
       AS_OP_C128_INDEX, c128_not_causal},
      {"mutant:c128_page_of_one_row", "Only the first entry of every C128A page is ever listed.",
       AS_OP_C128_INDEX, c128_page_of_one_row},
  };
}

}  // namespace attnscope::mutants
