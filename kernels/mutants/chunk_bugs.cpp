// Wrong batches of chunks, and attention that takes a chunk for a window.
#include <algorithm>
#include <vector>

#include "kernels/mutants/bugs.h"
#include "kernels/params/paged_params.h"
#include "kernels/params/tensor_view.h"

namespace attnscope::mutants {
namespace {

using Local = as_local_batch_params;
using Paged = as_paged_attention_params;

constexpr as_op_id kLocal = AS_OP_LOCAL_BATCH;

std::int32_t& seq_of(const Local& p, std::int64_t t) {
  return *at<std::int32_t>(p.token_to_seq, t);
}

// The first token of a chunk that another token of its request stands before.
std::int32_t chunk_border_late(const void* params, const as_call* call, as_error* error) {
  return spoil_after<Local>(kLocal, params, call, error, [](const Local& p) {
    for (std::int64_t t = 1; t < p.token_to_seq.shape[0]; ++t) {
      const std::int32_t request = *at<std::int32_t>(p.token_to_req, t);
      std::int64_t& position = *at<std::int64_t>(p.local_positions, t);
      const bool inside = request >= 0 && *at<std::int32_t>(p.token_to_req, t - 1) == request;
      if (!inside || position != 0) continue;
      ++*at<std::int32_t>(p.local_query_start_loc, seq_of(p, t)--);
      position = p.chunk;
    }
    return std::int32_t{AS_OK};
  });
}

// Of a request: its first sequence for tokens of the last one, and the other way.
std::int32_t chunk_queries_exchanged(const void* params, const as_call* call, as_error* error) {
  return spoil_after<Local>(kLocal, params, call, error, [](const Local& p) {
    for (std::int64_t r = 0; r < p.tables.shape[1]; ++r) {
      const std::int64_t begin = *at<std::int32_t>(p.query_start_loc, r);
      const std::int64_t end = *at<std::int32_t>(p.query_start_loc, r + 1);
      if (begin == end) continue;
      const std::int32_t first = seq_of(p, begin), last = seq_of(p, end - 1);
      for (std::int64_t t = begin; t < end; ++t) {
        std::int32_t& sequence = seq_of(p, t);
        if (sequence == first || sequence == last) sequence = first + last - sequence;
      }
    }
    return std::int32_t{AS_OK};
  });
}

// Blocks of the chunk before, where there is one, else of the one behind.
std::int32_t chunk_table_of_neighbour(const void* params, const as_call* call, as_error* error) {
  return spoil_after<Local>(kLocal, params, call, error, [](const Local& p) {
    const std::int64_t blocks = p.local_tables.shape[2];
    for (std::int64_t t = 0; t < p.token_to_seq.shape[0]; ++t) {
      const std::int32_t request = *at<std::int32_t>(p.token_to_req, t);
      if (request < 0) continue;
      const std::int64_t end = *at<std::int32_t>(p.query_start_loc, request + 1);
      const std::int64_t position = *at<std::int32_t>(p.seq_lens, request) - (end - t);
      const std::int64_t chunk = position / p.chunk, other = chunk > 0 ? chunk - 1 : 1;
      for (std::int64_t s = 0; s < p.local_tables.shape[0]; ++s) {
        for (std::int64_t c = 0; c < blocks; ++c) {
          std::int32_t& id = *at<std::int32_t>(p.local_tables, s, seq_of(p, t), c);
          const std::int64_t column = other * blocks + c;
          if (id < 0 || column >= p.tables.shape[2]) continue;
          id = *at<std::int32_t>(p.tables, s, request, column);
        }
      }
    }
    return std::int32_t{AS_OK};
  });
}

// Chunks are counted from the first token of the step.
std::int32_t chunk_from_step(const void* params, const as_call* call, as_error* error) {
  return spoil_after<Local>(kLocal, params, call, error, [&](Local p) {
    std::vector<std::int32_t> lengths;
    for (std::int64_t r = 0; r < p.tables.shape[1]; ++r) {
      lengths.push_back(*at<std::int32_t>(p.query_start_loc, r + 1) -
                        *at<std::int32_t>(p.query_start_loc, r));
    }
    p.seq_lens = make_tensor(lengths.data(), {p.tables.shape[1]});
    return run_cpu(kLocal, &p, call, error);
  });
}

// Tokens of a sequence see the last rows of the one before it, too, as many as a chunk has in all:
// where the call has that one, whole, with tokens up to its end.
std::int32_t chunk_as_window(const void* params, const as_call* call, as_error* error) {
  constexpr as_op_id kAttention = AS_OP_PAGED_ATTENTION;
  return spoil_after<Paged>(kAttention, params, call, error, [&](Paged p) -> std::int32_t {
    if (p.k_cache.addressing != AS_PAGED || p.window > 0) return AS_OK;
    const std::int64_t rows = p.table.shape[0], columns = p.table.shape[1];
    const std::int64_t chunk = columns * p.k_cache.rows_per_block;
    std::vector<std::int32_t> table, lens;
    std::vector<std::int64_t> positions, before(static_cast<std::size_t>(rows), 0);
    for (std::int64_t t = 1; t < p.q.shape[0]; ++t) {
      const std::int32_t row = *at<std::int32_t>(p.token_to_req, t);
      const bool begins = row > 0 && *at<std::int64_t>(p.positions, t) == 0;
      if (begins && *at<std::int32_t>(p.token_to_req, t - 1) == row - 1 &&
          *at<std::int64_t>(p.positions, t - 1) == chunk - 1) {
        before[static_cast<std::size_t>(row)] = chunk;
      }
    }
    for (std::int64_t r = 0; r < rows; ++r) {
      const bool two = before[static_cast<std::size_t>(r)] > 0;
      for (std::int64_t c = 0; c < 2 * columns; ++c) {
        const std::int64_t from = two && c < columns ? r - 1 : r;
        const bool there = two || c < columns;
        table.push_back(there ? *at<std::int32_t>(p.table, from, c % columns) : -1);
      }
      const auto more = static_cast<std::int32_t>(before[static_cast<std::size_t>(r)]);
      lens.push_back(*at<std::int32_t>(p.seq_lens, r) + more);
    }
    for (std::int64_t t = 0; t < p.q.shape[0]; ++t) {
      const std::int32_t row = *at<std::int32_t>(p.token_to_req, t);
      const std::int64_t more = row < 0 ? 0 : before[static_cast<std::size_t>(row)];
      positions.push_back(*at<std::int64_t>(p.positions, t) + more);
    }
    if (std::ranges::count(before, chunk) == 0) return AS_OK;
    p.table = make_tensor(table.data(), {rows, 2 * columns});
    p.seq_lens = make_tensor(lens.data(), {rows});
    p.positions = make_tensor(positions.data(), {p.q.shape[0]});
    p.window = static_cast<std::int32_t>(chunk);
    return run_cpu(kAttention, &p, call, error);
  });
}

}  // namespace

std::vector<Bug> chunk_bugs() {
  return {
      {"mutant:chunk_border_late",
       "The first token of a chunk is still counted to the chunk before.", kLocal,
       chunk_border_late},
      {"mutant:chunk_queries_exchanged",
       "Tokens of a request's first and last chunk of the step are taken for each other's.", kLocal,
       chunk_queries_exchanged},
      {"mutant:chunk_table_of_neighbour",
       "The block table of a chunk is that of the chunk beside it.", kLocal,
       chunk_table_of_neighbour},
      {"mutant:chunk_from_step", "Chunks are counted from the first token of the step.", kLocal,
       chunk_from_step},
      {"mutant:chunk_as_window",
       "Tokens see as many rows as a chunk has, whichever chunk these are of.",
       AS_OP_PAGED_ATTENTION, chunk_as_window},
  };
}

}  // namespace attnscope::mutants
