// Wrong index queries, scores and selections.
#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/cpu/codec.h"
#include "kernels/layout/records.h"
#include "kernels/mutants/bugs.h"
#include "kernels/mutants/gathered.h"
#include "kernels/params/indexer_params.h"
#include "kernels/params/tensor_view.h"

namespace attnscope::mutants {
namespace {

using Query = as_indexer_q_params;
using Logits = as_indexer_logits_params;
using TopK = as_indexer_topk_params;
using Slots = as_topk_to_slots_params;

// Rows of `table`, each request's number doubled (modulo their count); padding stays.
std::vector<std::int32_t> rebased_twice(const as_tensor& token_to_req, const as_tensor& table) {
  std::vector<std::int32_t> out;
  const auto requests = static_cast<std::int32_t>(table.shape[0]);
  for (std::int64_t t = 0; t < token_to_req.shape[0]; ++t) {
    const std::int32_t request = *at<std::int32_t>(token_to_req, t);
    out.push_back(request < 0 ? request : 2 * request % requests);
  }
  return out;
}

// ---- indexer_q ----------------------------------------------------------------------------------

std::int32_t query_scale_not_in_weights(const void* params, const as_call* call, as_error* error) {
  const auto spoil = [&](const Query& p) {
    const auto heads = static_cast<float>(p.weights.shape[1]);
    for (std::int64_t t = 0; t < p.weights.shape[0]; ++t) {
      for (std::int64_t j = 0; j < p.weights.shape[1]; ++j) {
        const float raw = cpu::bf16_to_float(at<bf16_t>(p.weights_raw, t, j)->bits);
        *at<float>(p.weights, t, j) =
            raw / std::sqrt(static_cast<float>(AS_INDEX_DIM)) / std::sqrt(heads);
      }
    }
    return AS_OK;
  };
  return spoil_after<Query>(AS_OP_INDEXER_Q, params, call, error, spoil);
}

std::int32_t query_rope_on_first_dims(const void* params, const as_call* call, as_error* error) {
  const auto spoil = [&](Query p) -> std::int32_t {
    if (p.rows_given != 0) return AS_OK;
    const std::int64_t tokens = p.q_raw.shape[0], heads = p.q_raw.shape[1];
    constexpr std::int64_t kHalf = AS_INDEX_DIM / 2;
    std::vector<bf16_t> raw, rows(static_cast<std::size_t>(tokens * heads * AS_INDEX_DIM));
    for (std::int64_t t = 0; t < tokens; ++t) {
      for (std::int64_t j = 0; j < heads; ++j) {
        const bf16_t* row = at<bf16_t>(p.q_raw, t, j);
        raw.insert(raw.end(), row + kHalf, row + AS_INDEX_DIM);
        raw.insert(raw.end(), row, row + kHalf);
      }
    }
    p.q_raw = make_tensor(raw.data(), {tokens, heads, AS_INDEX_DIM});
    if (!present(p.q_row)) p.q_row = make_tensor(rows.data(), {tokens, heads, AS_INDEX_DIM});
    const std::int32_t status = run_cpu(AS_OP_INDEXER_Q, &p, call, error);
    if (status != AS_OK) return status;
    for (std::int64_t t = 0; t < tokens; ++t) {
      for (std::int64_t j = 0; j < heads; ++j) {
        bf16_t* row = at<bf16_t>(p.q_row, t, j);
        std::swap_ranges(row, row + kHalf, row + kHalf);
      }
    }
    p.rows_given = 1;
    return run_cpu(AS_OP_INDEXER_Q, &p, call, error);
  };
  return spoil_after<Query>(AS_OP_INDEXER_Q, params, call, error, spoil);
}

// ---- indexer_logits -----------------------------------------------------------------------------

// The scores once more from single products: score(t, c, dots, weights) of all heads.
template <class Score>
std::int32_t with_scores(const void* params, const as_call* call, as_error* error,
                         const Score& score) {
  const auto spoil = [&](const Logits& p) {
    const std::int32_t record = p.cache.record;
    const float unit = 1.0f;
    const auto* unit_scale = reinterpret_cast<const unsigned char*>(&unit);
    const std::int64_t heads = p.weights.shape[1];
    std::vector<float> queries(static_cast<std::size_t>(heads * AS_INDEX_DIM));
    std::vector<double> dots(static_cast<std::size_t>(heads));
    for (std::int64_t t = 0; t < p.lens.shape[0]; ++t) {
      for (std::int64_t j = 0; j < heads; ++j) {
        const unsigned char* scales =
            record == AS_RECORD_INDEX_MXFP4 ? at<unsigned char>(p.q_scale, t, j) : unit_scale;
        cpu::decode_row(record, AS_INDEX_DIM, at<unsigned char>(p.q, t, j), scales,
                        queries.data() + j * AS_INDEX_DIM);
      }
      const std::int32_t request = *at<std::int32_t>(p.token_to_req, t);
      const std::int64_t rows = p.cache.rows_per_block;
      for (std::int64_t c = 0; c < *at<std::int32_t>(p.lens, t); ++c) {
        const std::int64_t slot =
            p.cache.addressing == AS_PAGED
                ? *at<std::int32_t>(p.table, request, c / rows) * rows + c % rows
                : *at<std::int32_t>(p.table, request) + c;
        const as_row_address address = as_cache_row(&p.cache, slot);
        float key[AS_INDEX_DIM];
        cpu::decode_row(record, AS_INDEX_DIM, address.payload, address.scales, key);
        for (std::int64_t j = 0; j < heads; ++j) {
          double dot = 0;
          for (std::int64_t d = 0; d < AS_INDEX_DIM; ++d) {
            dot += static_cast<double>(queries[static_cast<std::size_t>(j * AS_INDEX_DIM + d)]) *
                   static_cast<double>(key[d]);
          }
          dots[static_cast<std::size_t>(j)] = dot;
        }
        *at<float>(p.logits, t, c) = static_cast<float>(score(dots, at<float>(p.weights, t)));
      }
    }
    return AS_OK;
  };
  return spoil_after<Logits>(AS_OP_INDEXER_LOGITS, params, call, error, spoil);
}

std::int32_t relu_missing(const void* params, const as_call* call, as_error* error) {
  return with_scores(params, call, error, [](const std::vector<double>& dots, const float* w) {
    double sum = 0;
    for (std::size_t j = 0; j < dots.size(); ++j) sum += dots[j] * static_cast<double>(w[j]);
    return sum;
  });
}

std::int32_t best_head_alone(const void* params, const as_call* call, as_error* error) {
  return with_scores(params, call, error, [](const std::vector<double>& dots, const float* w) {
    double best = -INFINITY;
    for (std::size_t j = 0; j < dots.size(); ++j) {
      best = std::max(best, std::max(0.0, dots[j]) * static_cast<double>(w[j]));
    }
    return best;
  });
}

std::int32_t keys_rebased_twice(const void* params, const as_call* call, as_error* error) {
  const auto spoil = [&](Logits p) {
    std::vector<std::int32_t> token_to_req = rebased_twice(p.token_to_req, p.table);
    p.token_to_req = make_tensor(token_to_req.data(), {p.token_to_req.shape[0]});
    return run_cpu(AS_OP_INDEXER_LOGITS, &p, call, error);
  };
  return spoil_after<Logits>(AS_OP_INDEXER_LOGITS, params, call, error, spoil);
}

std::int32_t key_page_interleaved(const void* params, const as_call* call, as_error* error) {
  const auto spoil = [&](Logits p) -> std::int32_t {
    if (p.cache.addressing != AS_PAGED) return AS_OK;
    const std::int64_t tokens = p.lens.shape[0], width = p.logits.shape[1];
    const std::int64_t rows = p.cache.rows_per_block;
    // A list of slots a token, so that each may be fetched and addressed anew.
    std::vector<std::int32_t> slots(static_cast<std::size_t>(tokens * width), -1);
    for (std::int64_t t = 0; t < tokens; ++t) {
      for (std::int64_t c = 0; c < *at<std::int32_t>(p.lens, t); ++c) {
        const std::int32_t block =
            *at<std::int32_t>(p.table, *at<std::int32_t>(p.token_to_req, t), c / rows);
        slots[static_cast<std::size_t>(t * width + c)] =
            static_cast<std::int32_t>(block * rows + c % rows);
      }
    }
    const Gathered keys(p.cache, make_tensor(slots.data(), {tokens, width}), p.lens,
                        [&](std::int64_t slot, std::uint8_t* payload, std::uint8_t* scales) {
                          fetch_interleaved(p.cache, slot, payload, scales);
                        });
    std::vector<std::int32_t> table, token_to_req;
    for (std::int64_t t = 0; t < tokens; ++t) {
      const std::int32_t first = width > 0 ? *at<std::int32_t>(keys.indices(), t) : 0;
      table.push_back(std::max(0, first));
      token_to_req.push_back(static_cast<std::int32_t>(t));
    }
    p.cache = keys.cache();
    p.table = make_tensor(table.data(), {tokens, 1});
    p.token_to_req = make_tensor(token_to_req.data(), {tokens});
    return run_cpu(AS_OP_INDEXER_LOGITS, &p, call, error);
  };
  return spoil_after<Logits>(AS_OP_INDEXER_LOGITS, params, call, error, spoil);
}

// ---- indexer_topk -------------------------------------------------------------------------------

std::int32_t topk_one_short(const void* params, const as_call* call, as_error* error) {
  const auto spoil = [&](const TopK& p) {
    for (std::int64_t t = 0; t < p.indices.shape[0]; ++t) {
      std::int32_t* row = at<std::int32_t>(p.indices, t);
      for (std::int64_t k = p.indices.shape[1] - 1; k >= 0; --k) {
        if (row[k] < 0) continue;
        row[k] = -1;
        break;
      }
    }
    return AS_OK;
  };
  return spoil_after<TopK>(AS_OP_INDEXER_TOPK, params, call, error, spoil);
}

std::int32_t topk_takes_first(const void* params, const as_call* call, as_error* error) {
  const auto spoil = [&](const TopK& p) {
    for (std::int64_t t = 0; t < p.indices.shape[0]; ++t) {
      const std::int64_t n =
          std::min<std::int64_t>(p.indices.shape[1], *at<std::int32_t>(p.lens, t));
      for (std::int64_t k = 0; k < n; ++k) {
        *at<std::int32_t>(p.indices, t, k) = static_cast<std::int32_t>(k);
      }
    }
    return AS_OK;
  };
  return spoil_after<TopK>(AS_OP_INDEXER_TOPK, params, call, error, spoil);
}

std::int32_t topk_by_magnitude(const void* params, const as_call* call, as_error* error) {
  const auto spoil = [&](TopK p) {
    const std::int64_t tokens = p.logits.shape[0], width = p.logits.shape[1];
    std::vector<float> scores;
    for (std::int64_t t = 0; t < tokens; ++t) {
      for (std::int64_t c = 0; c < width; ++c) {
        scores.push_back(std::fabs(*at<float>(p.logits, t, c)));
      }
    }
    p.logits = make_tensor(scores.data(), {tokens, width});
    return run_cpu(AS_OP_INDEXER_TOPK, &p, call, error);
  };
  return spoil_after<TopK>(AS_OP_INDEXER_TOPK, params, call, error, spoil);
}

std::int32_t topk_entry_twice(const void* params, const as_call* call, as_error* error) {
  const auto spoil = [&](const TopK& p) {
    for (std::int64_t t = 0; t < p.indices.shape[0]; ++t) {
      std::int32_t* row = at<std::int32_t>(p.indices, t);
      for (std::int64_t k = p.indices.shape[1] - 1; k > 0; --k) {
        if (row[k] < 0) continue;
        row[k] = row[0];
        break;
      }
    }
    return AS_OK;
  };
  return spoil_after<TopK>(AS_OP_INDEXER_TOPK, params, call, error, spoil);
}

// ---- topk_to_slots ------------------------------------------------------------------------------

// The op with change(token_to_req, table) in the place of the requests of its tokens.
template <class Change>
std::int32_t with_requests(const void* params, const as_call* call, as_error* error,
                           const Change& change) {
  const auto spoil = [&](Slots p) {
    std::vector<std::int32_t> token_to_req = change(p.token_to_req, p.table);
    p.token_to_req = make_tensor(token_to_req.data(), {p.token_to_req.shape[0]});
    return run_cpu(AS_OP_TOPK_TO_SLOTS, &p, call, error);
  };
  return spoil_after<Slots>(AS_OP_TOPK_TO_SLOTS, params, call, error, spoil);
}

std::int32_t topk_rebased_twice(const void* params, const as_call* call, as_error* error) {
  return with_requests(params, call, error, rebased_twice);
}

// Of two requests both mistakes take the first one's table: a call of them tells neither apart.
std::int32_t topk_table_of_request_before(const void* params, const as_call* call,
                                          as_error* error) {
  return with_requests(params, call, error, [](const as_tensor& requests, const as_tensor&) {
    std::vector<std::int32_t> out;
    for (std::int64_t t = 0; t < requests.shape[0]; ++t) {
      const std::int32_t request = *at<std::int32_t>(requests, t);
      out.push_back(request > 0 ? request - 1 : request);
    }
    return out;
  });
}

std::int32_t topk_length_from_count(const void* params, const as_call* call, as_error* error) {
  const auto spoil = [&](const Slots& p) {
    const std::int64_t tokens = p.lens.shape[0];
    for (std::int64_t t = tokens - 2; t >= 0; --t) {
      const bool together =
          *at<std::int32_t>(p.token_to_req, t) == *at<std::int32_t>(p.token_to_req, t + 1);
      if (together) *at<std::int32_t>(p.lens, t) = *at<std::int32_t>(p.lens, t + 1);
    }
    return AS_OK;
  };
  return spoil_after<Slots>(AS_OP_TOPK_TO_SLOTS, params, call, error, spoil);
}

std::int32_t topk_row_of_page_lost(const void* params, const as_call* call, as_error* error) {
  const auto spoil = [&](const Slots& p) {
    for (std::int64_t t = 0; t < p.slots.shape[0]; ++t) {
      for (std::int64_t k = 0; k < p.slots.shape[1]; ++k) {
        std::int32_t& slot = *at<std::int32_t>(p.slots, t, k);
        if (slot >= 0) slot -= slot % p.rows_per_block % 2;
      }
    }
    return AS_OK;
  };
  return spoil_after<Slots>(AS_OP_TOPK_TO_SLOTS, params, call, error, spoil);
}

}  // namespace

std::vector<Bug> indexer_bugs() {
  return {
      {"mutant:query_scale_not_in_weights",
       "The scale of an FP8 index query is not folded into its head's weight.", AS_OP_INDEXER_Q,
       query_scale_not_in_weights},
      {"mutant:query_rope_on_first_dims",
       "Index queries are rotated on their first 64 dims instead of their last.", AS_OP_INDEXER_Q,
       query_rope_on_first_dims},
      {"mutant:relu_missing", "Index heads with a negative product count in the score of an entry.",
       AS_OP_INDEXER_LOGITS, relu_missing},
      {"mutant:topk_per_head",
       "Entries are ranked by their best index head instead of the sum over all.",
       AS_OP_INDEXER_LOGITS, best_head_alone},
      {"mutant:keys_rebased_twice",
       "The base of a request is added twice, so its queries meet another request's keys.",
       AS_OP_INDEXER_LOGITS, keys_rebased_twice},
      {"mutant:key_page_interleaved",
       "A planar page of index keys is read as if every key were followed by its scale.",
       AS_OP_INDEXER_LOGITS, key_page_interleaved},
      {"mutant:topk_one_short", "The last selected entry of every token is left out.",
       AS_OP_INDEXER_TOPK, topk_one_short},
      {"mutant:topk_takes_first", "The oldest entries are selected, whatever their scores.",
       AS_OP_INDEXER_TOPK, topk_takes_first},
      {"mutant:topk_by_magnitude", "Entries are ranked by the magnitude of their scores.",
       AS_OP_INDEXER_TOPK, topk_by_magnitude},
      {"mutant:topk_entry_twice", "The last selected entry is the first one once more.",
       AS_OP_INDEXER_TOPK, topk_entry_twice},
      {"mutant:topk_rebased_twice",
       "The base of a request is added twice, so its selection lists another request's slots.",
       AS_OP_TOPK_TO_SLOTS, topk_rebased_twice},
      {"mutant:topk_table_of_request_before",
       "Selected entries are looked up in the block table of the request before.",
       AS_OP_TOPK_TO_SLOTS, topk_table_of_request_before},
      {"mutant:topk_length_from_count",
       "The length of a list is the request's count of entries instead of the token's own.",
       AS_OP_TOPK_TO_SLOTS, topk_length_from_count},
      {"mutant:topk_odd_rows_lost",
       "A selected entry in an odd row of its page is replaced by its neighbour.",
       AS_OP_TOPK_TO_SLOTS, topk_row_of_page_lost},
  };
}

}  // namespace attnscope::mutants
