// Bugs that kernels bring along from other engines, each behind traffic of its own.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "kernels/layout/records.h"
#include "kernels/mutants/bugs.h"
#include "kernels/mutants/gathered.h"
#include "kernels/params/attention_params.h"
#include "kernels/params/compressor_params.h"
#include "kernels/params/indexer_params.h"
#include "kernels/params/step_params.h"
#include "kernels/params/tensor_view.h"

namespace attnscope::mutants {
namespace {

using Attention = as_sparse_attention_params;

std::vector<std::int32_t> copy_of(const as_tensor& list) {
  std::vector<std::int32_t> out;
  for (std::int64_t t = 0; t < list.shape[0]; ++t) {
    const auto* row = at<std::int32_t>(list, t);
    out.insert(out.end(), row, row + (list.rank == 2 ? list.shape[1] : 1));
  }
  return out;
}

// ---- sparse_attention ---------------------------------------------------------------------------

// Where every score is so low that its exponential is nothing beside a maximum of 0.
std::int32_t softmax_from_zero(const void* params, const as_call* call, as_error* error) {
  const auto spoil = [&](const Attention& p) {
    for (std::int64_t t = 0; t < p.lse.shape[0]; ++t) {
      for (std::int64_t h = 0; h < p.lse.shape[1]; ++h) {
        float& lse = *at<float>(p.lse, t, h);
        if (!(std::exp(lse) == 0.0f)) continue;
        lse = -std::numeric_limits<float>::infinity();
        const bool no_sink = std::exp(*at<float>(p.sinks, h)) == 0.0f;
        const std::uint16_t bits = no_sink ? 0x7fc0 : 0;  // 0 / 0, or 0
        for (std::int64_t d = 0; d < p.o.shape[2]; ++d) at<bf16_t>(p.o, t, h, d)->bits = bits;
      }
    }
    return AS_OK;
  };
  return spoil_after<Attention>(AS_OP_SPARSE_ATTENTION, params, call, error, spoil);
}

std::int32_t extra_lens_ignored(const void* params, const as_call* call, as_error* error) {
  const auto spoil = [&](Attention p) -> std::int32_t {
    if (!present(p.extra_topk_length)) return AS_OK;
    const std::vector<std::int32_t> lens(static_cast<std::size_t>(p.extra_topk_length.shape[0]),
                                         static_cast<std::int32_t>(p.extra_indices.shape[1]));
    p.extra_topk_length = make_tensor(lens.data(), {p.extra_topk_length.shape[0]});
    return run_cpu(AS_OP_SPARSE_ATTENTION, &p, call, error);
  };
  return spoil_after<Attention>(AS_OP_SPARSE_ATTENTION, params, call, error, spoil);
}

std::int32_t hole_as_slot_zero(const void* params, const as_call* call, as_error* error) {
  const auto spoil = [&](Attention p) {
    std::vector<std::int32_t> list = copy_of(p.indices);
    std::replace(list.begin(), list.end(), -1, 0);
    p.indices = make_tensor(list.data(), {p.indices.shape[0], p.indices.shape[1]});
    return run_cpu(AS_OP_SPARSE_ATTENTION, &p, call, error);
  };
  return spoil_after<Attention>(AS_OP_SPARSE_ATTENTION, params, call, error, spoil);
}

// The op over rows of both caches that fetch(cache, slot, payload, scales) reads.
template <class Fetch>
std::int32_t with_all_rows(const void* params, const as_call* call, as_error* error,
                           const Fetch& fetch) {
  const auto spoil = [&](Attention p) {
    const auto of = [&](const as_cache& cache) {
      return [&fetch, &cache](std::int64_t slot, std::uint8_t* payload, std::uint8_t* scales) {
        fetch(cache, slot, payload, scales);
      };
    };
    const as_cache window = p.cache, entries = p.extra_cache;
    const Gathered rows(window, p.indices, p.topk_length, of(window));
    p.cache = rows.cache();
    p.indices = rows.indices();
    if (!present(p.extra_indices)) return run_cpu(AS_OP_SPARSE_ATTENTION, &p, call, error);
    const Gathered extra(entries, p.extra_indices, p.extra_topk_length, of(entries));
    p.extra_cache = extra.cache();
    p.extra_indices = extra.indices();
    return run_cpu(AS_OP_SPARSE_ATTENTION, &p, call, error);
  };
  return spoil_after<Attention>(AS_OP_SPARSE_ATTENTION, params, call, error, spoil);
}

void fetch_at(const as_cache& cache, std::int64_t slot, std::uint8_t* payload,
              std::uint8_t* scales) {
  const as_row_address from = as_cache_row(&cache, slot);
  std::memcpy(payload, from.payload,
              static_cast<std::size_t>(as_payload_bytes(cache.record, cache.width)));
  std::memcpy(scales, from.scales, static_cast<std::size_t>(as_scale_bytes(cache.record)));
}

std::int32_t page_offset_in_32_bits(const void* params, const as_call* call, as_error* error) {
  return with_all_rows(
      params, call, error,
      [](const as_cache& cache, std::int64_t slot, std::uint8_t* payload, std::uint8_t* scales) {
        if (cache.addressing != AS_PAGED) return fetch_at(cache, slot, payload, scales);
        const std::int64_t page = slot / cache.rows_per_block * cache.data.stride[0];
        as_cache wrapped = cache;
        wrapped.data.data =
            static_cast<std::uint8_t*>(cache.data.data) + static_cast<std::uint32_t>(page);
        fetch_at(wrapped, slot % cache.rows_per_block, payload, scales);
      });
}

// 0x7f and 0xff stand for no number; read as all others they are 480.
std::int32_t nan_code_as_number(const void* params, const as_call* call, as_error* error) {
  return with_all_rows(
      params, call, error,
      [](const as_cache& cache, std::int64_t slot, std::uint8_t* payload, std::uint8_t* scales) {
        fetch_at(cache, slot, payload, scales);
        for (int i = 0; i < AS_NOPE_DIM; ++i) {
          if ((payload[i] & 0x7f) == 0x7f) --payload[i];  // 448 is as near as a code comes
        }
      });
}

// Pages of C128A layers have few rows: it takes many blocks to come this far.
std::int32_t c128_slots_wrap(const void* params, const as_call* call, as_error* error) {
  constexpr std::int32_t kSlots = 3000, kMostRows = 8;
  const auto spoil = [&](Attention p) -> std::int32_t {
    if (!present(p.extra_indices) || p.extra_cache.rows_per_block > kMostRows) return AS_OK;
    std::vector<std::int32_t> list = copy_of(p.extra_indices);
    for (std::int32_t& slot : list) {
      if (slot >= kSlots) slot %= kSlots;
    }
    p.extra_indices =
        make_tensor(list.data(), {p.extra_indices.shape[0], p.extra_indices.shape[1]});
    return run_cpu(AS_OP_SPARSE_ATTENTION, &p, call, error);
  };
  return spoil_after<Attention>(AS_OP_SPARSE_ATTENTION, params, call, error, spoil);
}

std::int32_t sink_clamped(const void* params, const as_call* call, as_error* error) {
  constexpr float kMost = 50;
  const auto spoil = [&](Attention p) {
    std::vector<float> sinks;
    for (std::int64_t h = 0; h < p.sinks.shape[0]; ++h) {
      sinks.push_back(std::clamp(*at<float>(p.sinks, h), -kMost, kMost));
    }
    p.sinks = make_tensor(sinks.data(), {p.sinks.shape[0]});
    return run_cpu(AS_OP_SPARSE_ATTENTION, &p, call, error);
  };
  return spoil_after<Attention>(AS_OP_SPARSE_ATTENTION, params, call, error, spoil);
}

// ---- indexer ------------------------------------------------------------------------------------

std::int32_t many_keys_wrap(const void* params, const as_call* call, as_error* error) {
  constexpr std::int64_t kKeys = 1024;
  const auto spoil = [&](const as_indexer_logits_params& p) {
    for (std::int64_t t = 0; t < p.lens.shape[0]; ++t) {
      float* row = at<float>(p.logits, t);
      for (std::int64_t c = kKeys; c < *at<std::int32_t>(p.lens, t); ++c) row[c] = row[c - kKeys];
    }
    return AS_OK;
  };
  return spoil_after<as_indexer_logits_params>(AS_OP_INDEXER_LOGITS, params, call, error, spoil);
}

// What no entry goes to is left as it was.
std::int32_t topk_not_padded(const void* params, const as_call* call, as_error* error) {
  using Params = as_indexer_topk_params;
  if (!readable<Params>(params)) return run_cpu(AS_OP_INDEXER_TOPK, params, call, error);
  const Params& p = *static_cast<const Params*>(params);
  const bool list = p.indices.rank == 2 && p.indices.dtype == AS_I32 && p.indices.data != nullptr;
  const std::vector<std::int32_t> before = list ? copy_of(p.indices) : std::vector<std::int32_t>();
  const std::int32_t status = run_cpu(AS_OP_INDEXER_TOPK, params, call, error);
  for (std::int64_t i = 0; list && status == AS_OK && i < as_tensor_numel(&p.indices); ++i) {
    std::int32_t& entry = static_cast<std::int32_t*>(p.indices.data)[i];
    if (entry < 0) entry = before[static_cast<std::size_t>(i)];
  }
  return status;
}

std::int32_t topk_beyond_lens(const void* params, const as_call* call, as_error* error) {
  using Params = as_indexer_topk_params;
  const auto spoil = [&](Params p) -> std::int32_t {
    // All columns are looked at where there are more than are selected.
    const std::int64_t width = p.logits.shape[1];
    std::vector<std::int32_t> lens;
    for (std::int64_t t = 0; t < p.lens.shape[0]; ++t) {
      const std::int32_t len = *at<std::int32_t>(p.lens, t);
      lens.push_back(len > p.indices.shape[1] ? static_cast<std::int32_t>(width) : len);
    }
    p.lens = make_tensor(lens.data(), {p.lens.shape[0]});
    return run_cpu(AS_OP_INDEXER_TOPK, &p, call, error);
  };
  return spoil_after<Params>(AS_OP_INDEXER_TOPK, params, call, error, spoil);
}

// ---- compress_insert, sample --------------------------------------------------------------------

// The first token of a chunk completes an entry, whose other rows the chunk before has left.
std::int32_t chunk_at_3_pools_older(const void* params, const as_call* call, as_error* error) {
  using Params = as_compress_insert_params;
  const auto spoil = [&](Params p) -> std::int32_t {
    if (p.ratio != 4 || p.rows_given != 0) return AS_OK;
    const std::int64_t tokens = p.slots.shape[0];
    const auto request = [&](std::int64_t t) { return *at<std::int32_t>(p.token_to_req, t); };
    std::vector<std::int64_t> slots(static_cast<std::size_t>(tokens), -1), positions;
    bool any = false;
    for (std::int64_t t = 0; t < tokens; ++t) {
      const std::int64_t position = *at<std::int64_t>(p.positions, t);
      const bool first = t == 0 || request(t - 1) != request(t);
      const bool more = t + 1 < tokens && request(t + 1) == request(t);
      const bool older = first && more && position % 4 == 3 && position > 4;
      if (older) slots[static_cast<std::size_t>(t)] = *at<std::int64_t>(p.slots, t);
      positions.push_back(older ? position - 4 : position);
      any = any || older;
    }
    if (!any) return AS_OK;
    p.slots = make_tensor(slots.data(), {tokens});
    p.positions = make_tensor(positions.data(), {tokens});
    return run_cpu(AS_OP_COMPRESS_INSERT, &p, call, error);
  };
  return spoil_after<Params>(AS_OP_COMPRESS_INSERT, params, call, error, spoil);
}

std::int32_t argmax_takes_last(const void* params, const as_call* call, as_error* error) {
  using Params = as_sample_params;
  const auto spoil = [&](const Params& p) {
    for (std::int64_t n = 0; n < p.tokens.shape[0]; ++n) {
      const float* logits = at<float>(p.logits, n);
      std::int32_t& token = *at<std::int32_t>(p.tokens, n);
      const float best = token < 0 ? 0 : logits[token];
      for (std::int64_t v = 0; token >= 0 && v < p.logits.shape[1]; ++v) {
        if (logits[v] == best) token = static_cast<std::int32_t>(v);
      }
    }
    return AS_OK;
  };
  return spoil_after<Params>(AS_OP_SAMPLE, params, call, error, spoil);
}

}  // namespace

std::vector<RareBug> rare_bugs() {
  constexpr as_op_id kAttention = AS_OP_SPARSE_ATTENTION;
  return {
      {{"mutant:softmax_from_zero", "The running maximum of the softmax starts at 0.", kAttention,
        softmax_from_zero},
       "large_scores"},
      {{"mutant:sink_clamped", "Sinks beyond 50 are taken for 50.", kAttention, sink_clamped},
       "large_scores"},
      {{"mutant:argmax_takes_last", "Of equal logits the last one is chosen.", AS_OP_SAMPLE,
        argmax_takes_last},
       "large_scores"},
      {{"mutant:extra_lens_ignored", "Lists of compressed entries are read to their full width.",
        kAttention, extra_lens_ignored},
       "default"},
      {{"mutant:hole_as_slot_zero", "A hole in a window's list is read as slot 0.", kAttention,
        hole_as_slot_zero},
       "default"},
      {{"mutant:nan_code_as_number", "A NaN code is decoded as a number.", kAttention,
        nan_code_as_number},
       "default"},
      {{"mutant:topk_not_padded", "Places of a selection that no entry goes to are not written.",
        AS_OP_INDEXER_TOPK, topk_not_padded},
       "default"},
      {{"mutant:topk_beyond_lens", "Scores behind the end of a row are selected too.",
        AS_OP_INDEXER_TOPK, topk_beyond_lens},
       "default"},
      {{"mutant:page_offset_in_32_bits", "The byte offset of a page is kept in 32 bits.",
        kAttention, page_offset_in_32_bits},
       "high_blocks"},
      {{"mutant:c128_slots_wrap",
        "Slots of C128A entries from 3,000 on are read as the first ones.", kAttention,
        c128_slots_wrap},
       "high_blocks"},
      {{"mutant:many_keys_wrap", "Scores of entries from 1,024 on are those of the first ones.",
        AS_OP_INDEXER_LOGITS, many_keys_wrap},
       "many_keys"},
      {{"mutant:chunk_at_3_pools_older",
        "A chunk that begins with the last token of a C4A window pools the window before.",
        AS_OP_COMPRESS_INSERT, chunk_at_3_pools_older},
       "odd_chunks"},
  };
}

}  // namespace attnscope::mutants
