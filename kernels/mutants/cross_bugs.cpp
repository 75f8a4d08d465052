// Wrong encoder-decoders: sources and decoders taken for each other, cross attention over other
// keys, wrong biases by distance.
#include <algorithm>
#include <vector>

#include "kernels/mutants/bugs.h"
#include "kernels/params/dense_params.h"
#include "kernels/params/paged_params.h"
#include "kernels/params/tensor_view.h"

namespace attnscope::mutants {
namespace {

using Batch = as_cross_batch_params;
using Reading = as_paged_attention_params;
using Source = as_varlen_attention_params;

constexpr as_op_id kBatch = AS_OP_CROSS_BATCH, kReading = AS_OP_PAGED_ATTENTION;
constexpr as_op_id kSourceOp = AS_OP_VARLEN_ATTENTION;

// The op with params that change(p) has changed; false = nothing is to change.
template <class Params, class Change>
std::int32_t cross_other(as_op_id op, const void* params, const as_call* call, as_error* error,
                         const Change& change) {
  return spoil_after<Params>(op, params, call, error, [&](Params p) -> std::int32_t {
    return change(p) ? run_cpu(op, &p, call, error) : std::int32_t{AS_OK};
  });
}

bool is_cross(const Reading& p) { return p.causal == 0 && p.k_cache.addressing == AS_PAGED; }

std::vector<std::int32_t> lengths_and(const as_tensor& lens, std::int32_t more) {
  std::vector<std::int32_t> out;
  for (std::int64_t r = 0; r < lens.shape[0]; ++r) {
    out.push_back(std::max(0, *at<std::int32_t>(lens, r) + more));
  }
  return out;
}

std::int32_t cross_source_late(const void* params, const as_call* call, as_error* error) {
  return spoil_after<Batch>(kBatch, params, call, error, [](const Batch& p) {
    for (std::int64_t t = 0; t < p.positions.shape[0]; ++t) {
      const std::int32_t r = *at<std::int32_t>(p.token_to_req, t);
      if (r < 0 || *at<std::int64_t>(p.positions, t) != *at<std::int32_t>(p.source_lens, r))
        continue;
      *at<std::int32_t>(p.source_to_req, t) = r;
      *at<std::int32_t>(p.target_to_req, t) = -1;
    }
    return std::int32_t{AS_OK};
  });
}

// Tokens of the decoder write keys of cross attention, too.
std::int32_t cross_keys_by_decode(const void* params, const as_call* call, as_error* error) {
  return spoil_after<Batch>(kBatch, params, call, error, [](const Batch& p) {
    for (std::int64_t t = 0; t < p.positions.shape[0]; ++t) {
      std::int64_t& slot = *at<std::int64_t>(p.source_slots, t);
      if (slot < 0) slot = *at<std::int64_t>(p.target_slots, t);
    }
    return std::int32_t{AS_OK};
  });
}

// Tokens of the decoder are looked up among all, those of the source as well.
std::int32_t cross_all_are_target(const void* params, const as_call* call, as_error* error) {
  return spoil_after<Batch>(kBatch, params, call, error, [](const Batch& p) {
    for (std::int64_t t = 0; t < p.positions.shape[0]; ++t) {
      *at<std::int32_t>(p.target_to_req, t) = *at<std::int32_t>(p.token_to_req, t);
    }
    return std::int32_t{AS_OK};
  });
}

// Of each request the table of the next one that has as many blocks of its own.
std::int32_t cross_keys_of_neighbour(const void* params, const as_call* call, as_error* error) {
  std::vector<std::int32_t> table, lens;
  return cross_other<Reading>(kReading, params, call, error, [&](Reading& p) {
    if (!is_cross(p)) return false;
    const std::int64_t rows = p.table.shape[0], columns = p.table.shape[1];
    std::vector<bool> reads(static_cast<std::size_t>(rows), false);
    for (std::int64_t t = 0; t < p.q.shape[0]; ++t) {
      const std::int32_t r = *at<std::int32_t>(p.token_to_req, t);
      if (r >= 0) reads[static_cast<std::size_t>(r)] = true;
    }
    for (std::int64_t r = 0; r < rows; ++r) {
      std::int64_t from = r;
      for (std::int64_t i = 1; i < rows && from == r; ++i) {
        const std::int64_t other = (r + i) % rows;
        if (reads[static_cast<std::size_t>(other)]) from = other;
      }
      for (std::int64_t c = 0; c < columns; ++c) {
        table.push_back(*at<std::int32_t>(p.table, from, c));
      }
      lens.push_back(
          std::min(*at<std::int32_t>(p.seq_lens, r), *at<std::int32_t>(p.seq_lens, from)));
    }
    p.table = make_tensor(table.data(), {rows, columns});
    p.seq_lens = make_tensor(lens.data(), {rows});
    return true;
  });
}

// As if decoder and source stood side by side: token i of the one sees the other up to i.
std::int32_t cross_causal(const void* params, const as_call* call, as_error* error) {
  std::vector<std::int64_t> positions;
  return cross_other<Reading>(kReading, params, call, error, [&](Reading& p) {
    if (!is_cross(p)) return false;
    for (std::int64_t t = 0; t < p.q.shape[0]; ++t) {
      const std::int32_t r = *at<std::int32_t>(p.token_to_req, t);
      const std::int64_t behind = r < 0 ? 0 : *at<std::int32_t>(p.seq_lens, r);
      positions.push_back(std::max<std::int64_t>(0, *at<std::int64_t>(p.positions, t) - behind));
    }
    p.positions = make_tensor(positions.data(), {p.q.shape[0]});
    p.causal = 1;
    return true;
  });
}

std::int32_t cross_source_short(const void* params, const as_call* call, as_error* error) {
  std::vector<std::int32_t> lens;
  return cross_other<Reading>(kReading, params, call, error, [&](Reading& p) {
    if (!is_cross(p)) return false;
    lens = lengths_and(p.seq_lens, -1);
    p.seq_lens = make_tensor(lens.data(), {p.seq_lens.shape[0]});
    return true;
  });
}

// The decoder does not see its first token.
std::int32_t decoder_begins_late(const void* params, const as_call* call, as_error* error) {
  std::vector<std::int32_t> first;
  return cross_other<Reading>(kReading, params, call, error, [&](Reading& p) {
    if (!present(p.first_rows)) return false;
    first = lengths_and(p.first_rows, 1);
    p.first_rows = make_tensor(first.data(), {p.first_rows.shape[0]});
    return true;
  });
}

// bias with the number of row from(row, head), column to(head).
template <class From>
as_tensor moved_bias(const as_tensor& bias, std::vector<float>& memory, const From& from) {
  const std::int64_t buckets = bias.shape[0], heads = bias.shape[1];
  for (std::int64_t n = 0; n < buckets; ++n) {
    for (std::int64_t h = 0; h < heads; ++h) {
      const auto [row, head] = from(n, h);
      memory.push_back(*at<float>(bias, row % buckets, head % heads));
    }
  }
  return make_tensor(memory.data(), {buckets, heads});
}

std::int32_t bias_of_next_head(const void* params, const as_call* call, as_error* error) {
  std::vector<float> bias;
  return cross_other<Reading>(kReading, params, call, error, [&](Reading& p) {
    if (!present(p.position_bias)) return false;
    p.position_bias = moved_bias(p.position_bias, bias, [](std::int64_t n, std::int64_t h) {
      return std::pair{n, h + 1};
    });
    return true;
  });
}

// Buckets of a side where there is one alone are those of two sides.
std::int32_t bias_both_sides(const void* params, const as_call* call, as_error* error) {
  std::vector<float> bias;
  return cross_other<Reading>(kReading, params, call, error, [&](Reading& p) {
    if (!present(p.position_bias) || p.position_bias.shape[0] < 4) return false;
    p.position_bias = moved_bias(p.position_bias, bias, [](std::int64_t n, std::int64_t h) {
      return std::pair{n / 2, h};
    });
    return true;
  });
}

// Keys before a query have the bias of those behind it.
std::int32_t bias_mirrored(const void* params, const as_call* call, as_error* error) {
  std::vector<float> bias;
  return cross_other<Source>(kSourceOp, params, call, error, [&](Source& p) {
    if (!present(p.position_bias)) return false;
    const std::int64_t half = p.position_bias.shape[0] / 2;
    p.position_bias = moved_bias(p.position_bias, bias, [half](std::int64_t n, std::int64_t h) {
      return std::pair{n + half, h};
    });
    return true;
  });
}

std::int32_t bias_missing(const void* params, const as_call* call, as_error* error) {
  return cross_other<Source>(kSourceOp, params, call, error, [](Source& p) {
    const bool there = present(p.position_bias);
    p.position_bias = no_tensor();
    return there;
  });
}

// The encoder sees what the decoder begins with, too.
std::int32_t source_with_target(const void* params, const as_call* call, as_error* error) {
  return cross_other<Source>(kSourceOp, params, call, error, [](Source& p) {
    const bool there = present(p.token_to_req);
    p.token_to_req = no_tensor();
    return there;
  });
}

// Keys of the source are made of what the encoder's last layer gave.
std::int32_t memory_not_normed(const void* params, const as_call* call, as_error* error) {
  using Norm = as_rms_norm_params;
  return spoil_after<Norm>(AS_OP_MEMORY_NORM, params, call, error, [](const Norm& p) {
    for (std::int64_t t = 0; t < p.y.shape[0]; ++t) {
      for (std::int64_t d = 0; d < p.y.shape[1]; ++d) {
        *at<bf16_t>(p.y, t, d) = *at<bf16_t>(p.x, t, d);
      }
    }
    return std::int32_t{AS_OK};
  });
}

}  // namespace

std::vector<Bug> cross_bugs() {
  return {
      {"mutant:cross_source_late", "The decoder's first token attends in the encoder.", kBatch,
       cross_source_late},
      {"mutant:cross_keys_by_decode",
       "Tokens of the decoder write rows among those that cross attention reads.", kBatch,
       cross_keys_by_decode},
      {"mutant:cross_all_are_target", "Tokens of the source attend in the decoder, too.", kBatch,
       cross_all_are_target},
      {"mutant:cross_keys_of_neighbour", "Cross attention reads the source of another request.",
       kReading, cross_keys_of_neighbour},
      {"mutant:cross_causal", "Token i of the decoder sees the source up to its token i alone.",
       kReading, cross_causal},
      {"mutant:cross_source_short", "Cross attention leaves out the last token of the source.",
       kReading, cross_source_short},
      {"mutant:decoder_begins_late", "The decoder does not see its first token.", kReading,
       decoder_begins_late},
      {"mutant:bias_of_next_head", "A head has the bias by distance of the head behind it.",
       kReading, bias_of_next_head},
      {"mutant:bias_both_sides", "A decoder spreads distances over half of the buckets it has.",
       kReading, bias_both_sides},
      {"mutant:bias_mirrored", "Keys before a query have the bias of keys behind it.", kSourceOp,
       bias_mirrored},
      {"mutant:bias_missing", "The encoder adds no bias by distance.", kSourceOp, bias_missing},
      {"mutant:source_with_target", "The encoder sees what the decoder begins with, too.",
       kSourceOp, source_with_target},
      {"mutant:memory_not_normed", "Keys of the source are made of rows that no norm has seen.",
       AS_OP_MEMORY_NORM, memory_not_normed},
  };
}

}  // namespace attnscope::mutants
