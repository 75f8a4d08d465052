// Wrong state rows and compressed entries.
#include <algorithm>
#include <cstring>
#include <limits>
#include <vector>

#include "kernels/cpu/codec.h"
#include "kernels/layout/records.h"
#include "kernels/mutants/bugs.h"
#include "kernels/params/compressor_params.h"
#include "kernels/params/tensor_view.h"

namespace attnscope::mutants {
namespace {

using State = as_compressor_state_params;
using Compress = as_compress_insert_params;

constexpr float kNoScore = -std::numeric_limits<float>::infinity();

// ---- state rows ---------------------------------------------------------------------------------

std::int32_t ape_row_shifted(const void* params, const as_call* call, as_error* error) {
  const auto spoil = [&](State p) {
    std::vector<std::int64_t> positions;
    for (std::int64_t t = 0; t < p.positions.shape[0]; ++t) {
      positions.push_back(*at<std::int64_t>(p.positions, t) + 1);
    }
    p.positions = make_tensor(positions.data(), {p.positions.shape[0]});
    return run_cpu(AS_OP_COMPRESSOR_STATE, &p, call, error);
  };
  return spoil_after<State>(AS_OP_COMPRESSOR_STATE, params, call, error, spoil);
}

std::int32_t ape_missing(const void* params, const as_call* call, as_error* error) {
  const auto spoil = [&](State p) {
    const std::vector<float> zeros(static_cast<std::size_t>(p.ape.shape[0] * p.ape.shape[1]), 0.0f);
    p.ape = make_tensor(zeros.data(), {p.ape.shape[0], p.ape.shape[1]});
    return run_cpu(AS_OP_INDEXER_COMPRESSOR_STATE, &p, call, error);
  };
  return spoil_after<State>(AS_OP_INDEXER_COMPRESSOR_STATE, params, call, error, spoil);
}

// The first token of every run of positions: where a chunk of a request begins.
std::int32_t state_row_lost(const void* params, const as_call* call, as_error* error) {
  if (!readable<State>(params)) return run_cpu(AS_OP_COMPRESSOR_STATE, params, call, error);
  State p = *static_cast<const State*>(params);
  std::vector<std::int64_t> slots;
  for (std::int64_t t = 0; p.slots.rank == 1 && p.positions.rank == 1 && t < p.slots.shape[0];
       ++t) {
    const bool first =
        t == 0 || *at<std::int64_t>(p.positions, t) != *at<std::int64_t>(p.positions, t - 1) + 1;
    slots.push_back(first ? -1 : *at<std::int64_t>(p.slots, t));
  }
  if (!slots.empty()) p.slots = make_tensor(slots.data(), {p.slots.shape[0]});
  return run_cpu(AS_OP_COMPRESSOR_STATE, &p, call, error);
}

// Rows are written with a stride too small, so that the end of the row before is lost.
std::int32_t state_row_spills(const void* params, const as_call* call, as_error* error) {
  const auto spoil = [&](const State& p) {
    constexpr std::int64_t kSpilled = 16;
    for (std::int64_t t = 0; t < p.slots.shape[0]; ++t) {
      const std::int64_t slot = *at<std::int64_t>(p.slots, t);
      if (slot < 0 || p.state.addressing != AS_PAGED || slot % p.state.rows_per_block == 0)
        continue;
      auto* row = reinterpret_cast<float*>(as_cache_row(&p.state, slot).payload);
      std::copy_n(row, kSpilled, row - kSpilled);
    }
    return AS_OK;
  };
  return spoil_after<State>(AS_OP_INDEXER_COMPRESSOR_STATE, params, call, error, spoil);
}

// ---- entries ------------------------------------------------------------------------------------

std::int64_t state_slot(const Compress& p, std::int64_t request, std::int64_t position) {
  if (p.state.addressing == AS_LOGICAL) return *at<std::int32_t>(p.table, request) + position;
  const std::int64_t rows = p.state.rows_per_block;
  return *at<std::int32_t>(p.table, request, position / rows) * rows + position % rows;
}

// A copy of the rows that each entry pools, ratio 4 only: token t owns block 2t, its older four
// rows, and block 2t + 1, its own. Older rows that do not exist are zeros with the score -inf.
class Windows {
 public:
  static constexpr std::int64_t kRatio = 4;

  explicit Windows(const Compress& given) : p(given) {
    tokens_ = p.slots.shape[0];
    width_ = p.state.width;
    std::int64_t columns = 2;
    for (std::int64_t t = 0; t < tokens_; ++t) {
      if (emits(t)) columns = std::max(columns, *at<std::int64_t>(p.positions, t) / kRatio + 1);
    }
    rows_.assign(static_cast<std::size_t>(tokens_ * 2 * kRatio * width_), 0.0f);
    table_.assign(static_cast<std::size_t>(tokens_ * columns), 0);
    token_to_req_.assign(static_cast<std::size_t>(tokens_), -1);
    for (std::int64_t t = 0; t < tokens_; ++t) {
      if (!emits(t)) continue;
      const std::int64_t first = *at<std::int64_t>(p.positions, t) + 1 - kRatio;
      const std::int64_t request = *at<std::int32_t>(p.token_to_req, t);
      token_to_req_[static_cast<std::size_t>(t)] = static_cast<std::int32_t>(t);
      std::int32_t* own = table_.data() + t * columns + first / kRatio;
      own[0] = static_cast<std::int32_t>(2 * t + 1);
      if (first > 0) own[-1] = static_cast<std::int32_t>(2 * t);
      for (std::int64_t i = 0; i < 2 * kRatio; ++i) {
        const std::int64_t position = first - kRatio + i;
        float* to = row(t, i);
        if (position < 0) {
          std::fill(to + width_ / 2, to + width_, kNoScore);
        } else {
          const as_row_address from = as_cache_row(&p.state, state_slot(p, request, position));
          std::memcpy(to, from.payload, static_cast<std::size_t>(width_) * sizeof(float));
        }
      }
    }
    const std::int64_t page = as_page_bytes_raw(AS_RECORD_STATE, width_, kRatio);
    p.state.addressing = AS_PAGED;
    p.state.rows_per_block = static_cast<std::int32_t>(kRatio);
    p.state.data = make_tensor(reinterpret_cast<std::uint8_t*>(rows_.data()), {2 * tokens_, page});
    p.table = make_tensor(table_.data(), {tokens_, columns});
    p.token_to_req = make_tensor(token_to_req_.data(), {tokens_});
  }

  bool emits(std::int64_t t) const { return *at<std::int64_t>(p.slots, t) >= 0; }
  // i < 4: the older rows.
  float* row(std::int64_t t, std::int64_t i) {
    return rows_.data() + (t * 2 * kRatio + i) * width_;
  }
  std::int64_t tokens() const { return tokens_; }
  std::int64_t width() const { return width_; }

  Compress p;

 private:
  std::int64_t tokens_ = 0, width_ = 0;
  std::vector<float> rows_;
  std::vector<std::int32_t> table_, token_to_req_;
};

// The right op again over changed windows: change(row, i) for every row of an entry's window.
template <as_op_id kOp, class Change>
std::int32_t with_windows(const void* params, const as_call* call, as_error* error,
                          const Change& change) {
  const auto spoil = [&](const Compress& p) -> std::int32_t {
    if (p.ratio != Windows::kRatio || p.rows_given != 0) return AS_OK;
    Windows windows(p);
    for (std::int64_t t = 0; t < windows.tokens(); ++t) {
      if (!windows.emits(t)) continue;
      for (std::int64_t i = 0; i < 2 * Windows::kRatio; ++i) {
        change(windows.row(t, i), i, windows.width());
      }
    }
    return run_cpu(kOp, &windows.p, call, error);
  };
  return spoil_after<Compress>(kOp, params, call, error, spoil);
}

std::int32_t overlap_half_lost(const void* params, const as_call* call, as_error* error) {
  return with_windows<AS_OP_COMPRESS_INSERT>(params, call, error,
                                             [](float* row, std::int64_t i, std::int64_t width) {
                                               if (i < Windows::kRatio)
                                                 std::fill(row + width / 2, row + width, kNoScore);
                                             });
}

std::int32_t overlap_halves_swapped(const void* params, const as_call* call, as_error* error) {
  return with_windows<AS_OP_INDEXER_COMPRESS_INSERT>(
      params, call, error, [](float* row, std::int64_t, std::int64_t width) {
        std::swap_ranges(row, row + width / 4, row + width / 4);
        row += width / 2;
        std::swap_ranges(row, row + width / 4, row + width / 4);
      });
}

std::int32_t pooled_by_mean(const void* params, const as_call* call, as_error* error) {
  return with_windows<AS_OP_COMPRESS_INSERT>(params, call, error,
                                             [](float* row, std::int64_t, std::int64_t width) {
                                               for (std::int64_t k = width / 2; k < width; ++k)
                                                 row[k] = row[k] == kNoScore ? kNoScore : 0;
                                             });
}

// The rows before position 0 take part as zeros with the score 0, as in a state nobody cleared.
std::int32_t first_window_of_zeros(const void* params, const as_call* call, as_error* error) {
  const auto spoil = [&](const Compress& given) -> std::int32_t {
    if (given.ratio != Windows::kRatio || given.rows_given != 0) return AS_OK;
    // Everything one window later, so that the rows before position 0 have a place.
    Compress p = given;
    const std::int64_t tokens = p.slots.shape[0];
    std::vector<std::int64_t> slots(static_cast<std::size_t>(tokens), -1);
    for (std::int64_t t = 0; t < tokens; ++t) {
      if (*at<std::int64_t>(p.positions, t) + 1 == Windows::kRatio) {
        slots[static_cast<std::size_t>(t)] = *at<std::int64_t>(p.slots, t);
      }
    }
    p.slots = make_tensor(slots.data(), {tokens});
    Windows windows(p);
    std::vector<std::int64_t> positions(static_cast<std::size_t>(tokens), 2 * Windows::kRatio - 1);
    std::vector<std::int32_t> table;
    for (std::int64_t t = 0; t < tokens; ++t) {
      table.push_back(static_cast<std::int32_t>(2 * t));
      table.push_back(static_cast<std::int32_t>(2 * t + 1));
      if (!windows.emits(t)) continue;
      for (std::int64_t i = 0; i < Windows::kRatio; ++i) {
        std::fill_n(windows.row(t, i), windows.width(), 0.0f);
      }
    }
    windows.p.table = make_tensor(table.data(), {tokens, 2});
    windows.p.positions = make_tensor(positions.data(), {tokens});
    // Rotated at position 0 all the same.
    std::vector<float> rope;
    for (int i = 0; i <= Windows::kRatio; ++i) {
      rope.insert(rope.end(), at<float>(p.rope.table), at<float>(p.rope.table) + AS_ROPE_DIM);
    }
    windows.p.rope.table = make_tensor(rope.data(), {Windows::kRatio + 1, AS_ROPE_DIM});
    return run_cpu(AS_OP_COMPRESS_INSERT, &windows.p, call, error);
  };
  return spoil_after<Compress>(AS_OP_COMPRESS_INSERT, params, call, error, spoil);
}

// Moving the table by ratio - 1 rows turns position p + 1 - ratio into p.
template <as_op_id kOp>
std::int32_t entry_rope_position(const void* params, const as_call* call, as_error* error) {
  const auto spoil = [&](Compress p) -> std::int32_t {
    if (p.rows_given != 0) return AS_OK;
    p.rope.table.data = at<float>(p.rope.table, p.ratio - 1);
    p.rope.table.shape[0] -= p.ratio - 1;
    return run_cpu(kOp, &p, call, error);
  };
  return spoil_after<Compress>(kOp, params, call, error, spoil);
}

std::int32_t entry_norm_unweighted(const void* params, const as_call* call, as_error* error) {
  const auto spoil = [&](Compress p) -> std::int32_t {
    if (p.rows_given != 0) return AS_OK;
    const std::vector<bf16_t> ones(static_cast<std::size_t>(p.weight.shape[0]),
                                   {cpu::float_to_bf16(1)});
    p.weight = make_tensor(ones.data(), {p.weight.shape[0]});
    return run_cpu(AS_OP_COMPRESS_INSERT, &p, call, error);
  };
  return spoil_after<Compress>(AS_OP_COMPRESS_INSERT, params, call, error, spoil);
}

std::int32_t hadamard_of_keys_alone(const void* params, const as_call* call, as_error* error) {
  const auto spoil = [&](Compress p) {
    p.hadamard = p.hadamard != 0 ? 0 : 1;
    return run_cpu(AS_OP_INDEXER_COMPRESS_INSERT, &p, call, error);
  };
  return spoil_after<Compress>(AS_OP_INDEXER_COMPRESS_INSERT, params, call, error, spoil);
}

}  // namespace

std::vector<Bug> compressor_bugs() {
  return {
      {"mutant:ape_row_shifted", "A token takes the position bias of the next one.",
       AS_OP_COMPRESSOR_STATE, ape_row_shifted},
      {"mutant:ape_missing", "The position bias is not added to the gates of the indexer.",
       AS_OP_INDEXER_COMPRESSOR_STATE, ape_missing},
      {"mutant:state_row_lost", "The state row of the first token of a chunk is not saved.",
       AS_OP_COMPRESSOR_STATE, state_row_lost},
      {"mutant:state_row_spills", "A state row overwrites the end of the row before it.",
       AS_OP_INDEXER_COMPRESSOR_STATE, state_row_spills},
      {"mutant:overlap_half_lost",
       "A C4A entry pools its own four rows only and loses those of the window before.",
       AS_OP_COMPRESS_INSERT, overlap_half_lost},
      {"mutant:overlap_halves_swapped", "An index key pools the wrong half of every state row.",
       AS_OP_INDEXER_COMPRESS_INSERT, overlap_halves_swapped},
      {"mutant:pooled_by_mean", "A C4A entry is the mean of its rows; the gates are ignored.",
       AS_OP_COMPRESS_INSERT, pooled_by_mean},
      {"mutant:first_window_of_zeros",
       "The rows before position 0 take part in the first C4A entry.", AS_OP_COMPRESS_INSERT,
       first_window_of_zeros},
      {"mutant:entry_rope_position",
       "A compressed entry is rotated at its last token instead of its first.",
       AS_OP_COMPRESS_INSERT, entry_rope_position<AS_OP_COMPRESS_INSERT>},
      {"mutant:key_rope_position",
       "An index key is rotated at its last token instead of its first.",
       AS_OP_INDEXER_COMPRESS_INSERT, entry_rope_position<AS_OP_INDEXER_COMPRESS_INSERT>},
      {"mutant:entry_norm_unweighted", "The norm of an entry leaves its weight out.",
       AS_OP_COMPRESS_INSERT, entry_norm_unweighted},
      {"mutant:hadamard_of_keys_alone",
       "Index keys are Hadamard transformed where queries are not, or the other way round.",
       AS_OP_INDEXER_COMPRESS_INSERT, hadamard_of_keys_alone},
  };
}

}  // namespace attnscope::mutants
