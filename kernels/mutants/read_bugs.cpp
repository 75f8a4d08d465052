// Attention that reads other rows than its lists name, or reads them wrong.
#include <algorithm>
#include <cstring>
#include <vector>

#include "kernels/layout/records.h"
#include "kernels/mutants/bugs.h"
#include "kernels/mutants/gathered.h"
#include "kernels/params/attention_params.h"
#include "kernels/params/tensor_view.h"

namespace attnscope::mutants {
namespace {

using ReadParams = as_sparse_attention_params;
constexpr as_op_id kReader = AS_OP_SPARSE_ATTENTION;

// Rows of one list as fetch(cache, slot, payload, scales) reads them.
template <class Fetch>
Gathered gathered_list(const as_cache& cache, const as_tensor& indices, const as_tensor& lens,
                       const Fetch& fetch) {
  return Gathered(cache, indices, lens,
                  [&](std::int64_t slot, std::uint8_t* payload, std::uint8_t* scales) {
                    fetch(cache, slot, payload, scales);
                  });
}

// The op over window rows and entries that fetch(cache, slot, payload, scales) reads.
template <class Fetch>
std::int32_t with_fetched_rows(const void* params, const as_call* call, as_error* error,
                               const Fetch& fetch) {
  const auto spoil = [&](ReadParams p) {
    const Gathered rows = gathered_list(p.cache, p.indices, p.topk_length, fetch);
    p.cache = rows.cache();
    p.indices = rows.indices();
    if (!present(p.extra_topk_length)) return run_cpu(kReader, &p, call, error);
    const Gathered entries =
        gathered_list(p.extra_cache, p.extra_indices, p.extra_topk_length, fetch);
    p.extra_cache = entries.cache();
    p.extra_indices = entries.indices();
    return run_cpu(kReader, &p, call, error);
  };
  return spoil_after<ReadParams>(kReader, params, call, error, spoil);
}

void fetch_row(const as_cache& cache, std::int64_t slot, std::uint8_t* payload,
               std::uint8_t* scales) {
  const as_row_address from = as_cache_row(&cache, slot);
  const std::int64_t bytes = as_payload_bytes(cache.record, cache.width);
  std::memcpy(payload, from.payload, static_cast<std::size_t>(bytes));
  std::memcpy(scales, from.scales, static_cast<std::size_t>(as_scale_bytes(cache.record)));
}

std::int32_t latent_page_interleaved(const void* params, const as_call* call, as_error* error) {
  return with_fetched_rows(params, call, error, fetch_interleaved);
}

// The op with change(scales) of every row.
template <class Change>
std::int32_t with_scales(const void* params, const as_call* call, as_error* error,
                         const Change& change) {
  return with_fetched_rows(
      params, call, error,
      [&](const as_cache& cache, std::int64_t slot, std::uint8_t* payload, std::uint8_t* scales) {
        fetch_row(cache, slot, payload, scales);
        change(scales);
      });
}

std::int32_t codes_read_as_fnuz(const void* params, const as_call* call, as_error* error) {
  return with_scales(params, call, error, [](std::uint8_t* scales) {
    for (int i = 0; i < AS_QUANT_BLOCKS; ++i) {
      if (scales[i] > 0) --scales[i];
    }
  });
}

// The bias of a scale byte is taken for 126.
std::int32_t scale_bias_short(const void* params, const as_call* call, as_error* error) {
  return with_scales(params, call, error, [](std::uint8_t* scales) {
    for (int i = 0; i < AS_QUANT_BLOCKS; ++i) {
      if (scales[i] < 255) ++scales[i];
    }
  });
}

std::int32_t scale_of_two_blocks(const void* params, const as_call* call, as_error* error) {
  return with_scales(params, call, error, [](std::uint8_t* scales) {
    for (int i = AS_QUANT_BLOCKS - 1; i > 0; --i) scales[i] = scales[i / 2];
  });
}

std::int32_t scale_of_first_block(const void* params, const as_call* call, as_error* error) {
  return with_scales(params, call, error, [](std::uint8_t* scales) {
    std::fill_n(scales + 1, AS_QUANT_BLOCKS - 1, scales[0]);
  });
}

// The byte offset of a page is kept in too few bits, as 32 are in a large pool.
std::int32_t page_offset_wraps(const void* params, const as_call* call, as_error* error) {
  return with_fetched_rows(
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
  const auto spoil = [&](ReadParams p) {
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
    return run_cpu(kReader, &p, call, error);
  };
  return spoil_after<ReadParams>(kReader, params, call, error, spoil);
}

// The op with other lengths: cut(len) of the window's list and of the entries'.
template <class CutWindow, class CutEntries>
std::int32_t with_lengths(const void* params, const as_call* call, as_error* error,
                          const CutWindow& cut_window, const CutEntries& cut_entries) {
  const auto spoil = [&](ReadParams p) {
    std::vector<std::int32_t> window, entries;
    for (std::int64_t t = 0; t < p.topk_length.shape[0]; ++t) {
      window.push_back(cut_window(*at<std::int32_t>(p.topk_length, t)));
    }
    p.topk_length = make_tensor(window.data(), {p.topk_length.shape[0]});
    if (!present(p.extra_topk_length)) return run_cpu(kReader, &p, call, error);
    for (std::int64_t t = 0; t < p.extra_topk_length.shape[0]; ++t) {
      entries.push_back(cut_entries(*at<std::int32_t>(p.extra_topk_length, t)));
    }
    p.extra_topk_length = make_tensor(entries.data(), {p.extra_topk_length.shape[0]});
    return run_cpu(kReader, &p, call, error);
  };
  return spoil_after<ReadParams>(kReader, params, call, error, spoil);
}

constexpr std::int32_t kTile = 64;  // places of a list that a kernel reads at once

std::int32_t uncut(std::int32_t len) { return len; }
std::int32_t without_last_tile(std::int32_t len) { return std::max(len - 1, 0) / kTile * kTile; }
std::int32_t whole_tiles(std::int32_t len) { return len / kTile * kTile; }

std::int32_t last_entries_lost(const void* params, const as_call* call, as_error* error) {
  return with_lengths(params, call, error, uncut, without_last_tile);
}

std::int32_t last_window_tile_lost(const void* params, const as_call* call, as_error* error) {
  return with_lengths(params, call, error, without_last_tile, uncut);
}

std::int32_t part_of_tile_lost(const void* params, const as_call* call, as_error* error) {
  return with_lengths(params, call, error, whole_tiles, whole_tiles);
}

}  // namespace

std::vector<Bug> read_bugs() {
  return {
      {"mutant:latent_page_interleaved",
       "A planar page of latent rows is read as if every row were followed by its scales.", kReader,
       latent_page_interleaved},
      {"mutant:codes_read_as_fnuz", "FP8 codes are decoded with another bias: half of each value.",
       kReader, codes_read_as_fnuz},
      {"mutant:page_offset_wraps", "The byte offset of a page wraps where it needs more bits.",
       kReader, page_offset_wraps},
      {"mutant:stale_row_read",
       "A recycled page is read as it was: its rows are those of an older page.", kReader,
       stale_row_read},
      {"mutant:scale_bias_short",
       "The bias of the scale bytes of rows is one too small: twice each value.", kReader,
       scale_bias_short},
      {"mutant:scale_of_two_blocks", "A scale of rows is taken for 128 dims, and not for 64.",
       kReader, scale_of_two_blocks},
      {"mutant:scale_of_first_block", "All blocks of a row have the first one's scale.", kReader,
       scale_of_first_block},
      {"mutant:last_entries_lost", "The last tile of 64 selected rows is not attended.", kReader,
       last_entries_lost},
      {"mutant:last_window_tile_lost", "The last tile of 64 rows of a window is not attended.",
       kReader, last_window_tile_lost},
      {"mutant:part_of_tile_lost", "Rows behind the last whole tile of 64 of a list are lost.",
       kReader, part_of_tile_lost},
  };
}

}  // namespace attnscope::mutants
