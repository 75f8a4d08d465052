// Ops around attention in the examiner: the CPU lane keeps every clause, and careless kernels are
// found under the one that they forget.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "engine/examine/clause.h"
#include "engine/examine/unreached.h"
#include "kernels/params/helper_params.h"
#include "kernels/params/offload_params.h"
#include "kernels/params/paged_params.h"
#include "kernels/params/tensor_view.h"
#include "tests/examine/verdicts.h"

namespace attnscope {
namespace examine_test {
namespace {

std::int32_t on_cpu(as_op_id id, const void* params, const as_call* call, as_error* error) {
  static const LaneRegistry lanes = all_lanes();
  return lanes.find("cpu")->ops[id](params, call, error);
}

// A dense copy of a tensor's elements, changed, in its place.
template <class T, class Change>
void misread(as_tensor& t, std::vector<T>& memory, const Change& change) {
  const std::int64_t columns = t.rank == 1 ? 1 : t.shape[1];
  for (std::int64_t i = 0; i < t.shape[0]; ++i) {
    for (std::int64_t k = 0; k < columns; ++k) {
      memory.push_back(change(t.rank == 1 ? *at<T>(t, i) : *at<T>(t, i, k), i, k));
    }
  }
  t.data = memory.data();
  t.stride[0] = columns;
}

// Calls the CPU lane on params that change(params, memory) has misread.
template <class Params, class T, as_op_id kOp, auto kChange>
std::int32_t misreads(const void* params, const as_call* call, as_error* error) {
  Params p = *static_cast<const Params*>(params);
  std::vector<T> memory;
  kChange(p, memory);
  return on_cpu(kOp, &p, call, error);
}

// Spoils what the CPU lane wrote.
template <class Params, as_op_id kOp, auto kSpoil>
std::int32_t spoils(const void* params, const as_call* call, as_error* error) {
  const std::int32_t status = on_cpu(kOp, params, call, error);
  if (status == AS_OK) kSpoil(*static_cast<const Params*>(params));
  return status;
}

using Longs = std::vector<std::int64_t>;
using Ints = std::vector<std::int32_t>;
using Bytes = std::vector<std::uint8_t>;
using Floats = std::vector<float>;

// ---- moving rows

using Gather = as_gather_rows_params;

void gathers_row_0_for_none(Gather& p, Longs& memory) {
  misread(p.slots, memory, [](std::int64_t slot, auto, auto) { return std::max(slot, 0L); });
}

void zeros_repeated_rows(const Gather& p) {
  for (std::int64_t n = 1; n < p.slots.shape[0]; ++n) {
    if (*at<std::int64_t>(p.slots, n) != *at<std::int64_t>(p.slots, n - 1)) continue;
    std::fill_n(at<char>(p.out, 0) + n * p.out.stride[0] * as_dtype_size(p.out.dtype), 8, 0);
  }
}

// As if byte offsets had 32 bits.
void zeros_far_rows(const Gather& p) {
  for (std::int64_t n = 0; n < p.slots.shape[0]; ++n) {
    const std::int64_t block = *at<std::int64_t>(p.slots, n) / p.cache.rows_per_block;
    if (block * p.cache.data.stride[0] < std::int64_t{1} << 31) continue;
    std::fill_n(at<char>(p.out, 0) + n * p.out.stride[0] * as_dtype_size(p.out.dtype), 8, 0);
  }
}

using Copy = as_copy_blocks_params;

void takes_negative_sources(Copy& p, Longs& memory) {
  misread(p.pairs, memory, [](std::int64_t id, auto, std::int64_t side) {
    return side == 0 ? std::max(id, 0L) : id;
  });
}

void copies_a_block_once(Copy& p, Longs& memory) {
  misread(p.pairs, memory, [&](std::int64_t id, std::int64_t n, std::int64_t side) {
    for (std::int64_t m = 0; side == 0 && m < n; ++m) {
      if (*at<std::int64_t>(p.pairs, m, 0) == id) return std::int64_t{-1};
    }
    return id;
  });
}

void packs_blocks(Copy& p, Longs&) { p.from.stride[0] = p.from.shape[1]; }

using Exchange = as_exchange_rows_params;

void writes_rows_to_nowhere(Exchange& p, Longs& memory) {
  misread(p.pages_to, memory, [](std::int64_t slot, auto, auto) { return std::max(slot, 0L); });
}

void forgets_rows_of_pages(const Exchange& p) {
  for (std::int64_t t = 0; t < p.slots.shape[0]; ++t) {
    std::int64_t pooled = 0;
    for (std::int64_t k = 0; k < p.slots.shape[1]; ++k)
      pooled += *at<std::int32_t>(p.places, t, k) >= 0;
    for (std::int64_t k = 0; pooled == 0 && k < p.slots.shape[1]; ++k) {
      *at<std::int32_t>(p.slots, t, k) = -1;
    }
  }
}

// ---- states and gathered rows

using Merge = as_merge_states_params;

// 0 times NaN.
void weighs_empty_states(const Merge& p) {
  for (std::int64_t t = 0; t < p.a.shape[0]; ++t) {
    if (std::isinf(*at<float>(p.lse_a, t, 0)) && *at<std::uint16_t>(p.a, t, 0) == 0xffff) {
      *at<std::uint16_t>(p.out, t, 0) = 0xffff;
    }
  }
}

void leaves_lse_of_none_low(const Merge& p) {
  if (p.lse.shape[0] == 0) return;
  float& lse = *at<float>(p.lse, 0, 0);
  if (lse == std::numeric_limits<float>::infinity()) lse = -lse;
}

using Workspace = as_workspace_attention_params;

// What is not listed weighs 0, it thinks.
void weighs_all_rows(const Workspace& p) {
  for (std::int64_t n = 0; n < p.rows.shape[0] && p.lse.shape[0] > 0; ++n) {
    if (*at<std::uint16_t>(p.rows, n, 0) == 0xffff) *at<float>(p.lse, 0, 0) = NAN;
  }
}

void sums_exponentials(const Workspace& p) {
  if (p.lse.shape[0] == 0) return;
  float& lse = *at<float>(p.lse, 0, 0);
  if (std::abs(lse) > 88.7f) lse = std::copysign(std::numeric_limits<float>::infinity(), lse);
}

// ---- codes

using Turn = as_inverse_rope_quantise_params;

void divides_by_nothing(const Turn& p) {
  for (std::int64_t t = 0; t < p.scales.shape[0]; ++t) {
    for (std::int64_t h = 0; h < p.scales.shape[1]; ++h) {
      for (std::int64_t b = 0; b < p.scales.shape[2]; ++b) {
        float& scale = at<float>(p.scales, t, h)[b];
        const std::uint8_t* codes = at<std::uint8_t>(p.codes, t, h) + 128 * b;
        if (std::all_of(codes, codes + 128, [](int c) { return (c & 0x7f) == 0; })) scale = 1;
      }
    }
  }
}

// One scale looks at all tokens.
void spreads_nan(const Turn& p) {
  for (std::int64_t t = 1; t < p.o.shape[0]; ++t) {
    if (*at<std::uint16_t>(p.o, t, 0) == 0xffff) *at<float>(p.scales, 0, 0) = NAN;
  }
}

using Fp8 = as_fp8_linear_params;

void flushes_scales(Fp8& p, Floats& memory) {
  misread(p.x_scale, memory, [](float scale, auto, auto) {
    return std::abs(scale) < std::numeric_limits<float>::min() ? 0.0f : scale;
  });
}

void takes_448_for_nan(Fp8& p, Bytes& memory) {
  misread(p.x, memory, [](std::uint8_t code, auto, auto) {
    return (code & 0x7f) == 0x7e ? static_cast<std::uint8_t>(code + 1) : code;
  });
}

void flushes_codes(Fp8& p, Bytes& memory) {
  misread(p.weight, memory, [](std::uint8_t code, auto, auto) {
    return (code & 0x78) == 0 ? static_cast<std::uint8_t>(code & 0x80) : code;
  });
}

void packs_weights(Fp8& p, Bytes&) { p.weight.stride[0] = p.weight.shape[1]; }

// ---- tables

using Sequences = as_sequence_table_params;

void forgets_idle_sequences(const Sequences& p) {
  for (std::int64_t r = 0; r < p.seq_lens.shape[0]; ++r) {
    if (*at<std::int32_t>(p.query_lens, r) == 0) *at<std::int32_t>(p.seq_lens, r) = 0;
  }
}

void adds_an_empty_block(const Sequences& p) {
  for (std::int64_t r = 0; r < p.seq_lens.shape[0]; ++r) {
    const std::int32_t len = *at<std::int32_t>(p.seq_lens, r), block = len / p.block_size;
    if (len == 0 || len % p.block_size != 0 || block >= p.blocks.shape[1]) continue;
    *at<std::int32_t>(p.blocks, r, block) = block;
  }
}

// As if lengths were rounded up in 32 bits.
void overflows_lengths(const Sequences& p) {
  for (std::int64_t r = 0; r < p.seq_lens.shape[0]; ++r) {
    const std::int64_t end = std::int64_t{*at<std::int32_t>(p.seq_lens, r)} + p.block_size - 1;
    if (end > INT32_MAX) *at<std::int32_t>(p.blocks, r, 0) = -1;
  }
}

void owns_all_tokens(const Sequences& p) {
  if (p.seq_lens.shape[0] > 0) return;
  for (std::int64_t t = 0; t < p.token_to_seq.shape[0]; ++t)
    *at<std::int32_t>(p.token_to_seq, t) = 0;
}

using Pages = as_page_indices_params;

void empties_full_pages(const Pages& p) {
  for (std::int64_t r = 0; r < p.seq_lens.shape[0]; ++r) {
    *at<std::int32_t>(p.last_page_len, r) = *at<std::int32_t>(p.seq_lens, r) % p.block_size;
  }
}

void rounds_ids(Pages& p, Ints& memory) {
  misread(p.table, memory, [](std::int32_t id, auto, auto) {
    return static_cast<std::int32_t>(std::min(static_cast<float>(id), 2147483520.0f));
  });
}

using Compact = as_compact_tables_params;

void keeps_null_blocks_of_0(Compact& p, Ints&) { p.null_block = 0; }

void ends_at_negative_ids(Compact& p, Ints& memory) {
  misread(p.lens, memory, [&](auto, auto, auto) { return static_cast<int>(p.table.shape[1]); });
}

using Cross = as_cross_batch_params;

void pads_with_request_0(Cross& p, Ints& memory) {
  misread(p.token_to_req, memory, [](std::int32_t r, auto, auto) { return std::max(r, 0); });
}

void takes_the_first_group(Cross& p, Ints&) { p.group = 0; }

struct Forgetful {
  const char* name;
  as_op_id op;
  as_op_fn function;
  const char* clause;
};

const Forgetful kForgetful[] = {
    {"weighs_empty_states", AS_OP_MERGE_STATES,
     spoils<Merge, AS_OP_MERGE_STATES, weighs_empty_states>, "nothing_listed"},
    {"leaves_lse_of_none_low", AS_OP_MERGE_STATES,
     spoils<Merge, AS_OP_MERGE_STATES, leaves_lse_of_none_low>, "nothing_listed"},
    {"weighs_all_rows", AS_OP_WORKSPACE_ATTENTION,
     spoils<Workspace, AS_OP_WORKSPACE_ATTENTION, weighs_all_rows>, "unlisted_nan"},
    {"sums_exponentials", AS_OP_WORKSPACE_ATTENTION,
     spoils<Workspace, AS_OP_WORKSPACE_ATTENTION, sums_exponentials>, "far_lse"},
    {"gathers_row_0_for_none", AS_OP_GATHER_ROWS,
     misreads<Gather, std::int64_t, AS_OP_GATHER_ROWS, gathers_row_0_for_none>, "holes"},
    {"zeros_repeated_rows", AS_OP_GATHER_ROWS,
     spoils<Gather, AS_OP_GATHER_ROWS, zeros_repeated_rows>, "duplicates"},
    {"zeros_far_rows", AS_OP_GATHER_ROWS, spoils<Gather, AS_OP_GATHER_ROWS, zeros_far_rows>,
     "high_blocks"},
    {"takes_negative_sources", AS_OP_COPY_BLOCKS,
     misreads<Copy, std::int64_t, AS_OP_COPY_BLOCKS, takes_negative_sources>, "holes"},
    {"copies_a_block_once", AS_OP_COPY_BLOCKS,
     misreads<Copy, std::int64_t, AS_OP_COPY_BLOCKS, copies_a_block_once>, "duplicates"},
    {"packs_blocks", AS_OP_COPY_BLOCKS,
     misreads<Copy, std::int64_t, AS_OP_COPY_BLOCKS, packs_blocks>, "strides"},
    {"writes_rows_to_nowhere", AS_OP_EXCHANGE_ROWS,
     misreads<Exchange, std::int64_t, AS_OP_EXCHANGE_ROWS, writes_rows_to_nowhere>,
     "nothing_written"},
    {"forgets_rows_of_pages", AS_OP_EXCHANGE_ROWS,
     spoils<Exchange, AS_OP_EXCHANGE_ROWS, forgets_rows_of_pages>, "nothing_listed"},
    {"divides_by_nothing", AS_OP_INVERSE_ROPE_QUANTISE,
     spoils<Turn, AS_OP_INVERSE_ROPE_QUANTISE, divides_by_nothing>, "small_scales"},
    {"spreads_nan", AS_OP_INVERSE_ROPE_QUANTISE,
     spoils<Turn, AS_OP_INVERSE_ROPE_QUANTISE, spreads_nan>, "nan_neighbours"},
    {"flushes_scales", AS_OP_FP8_LINEAR, misreads<Fp8, float, AS_OP_FP8_LINEAR, flushes_scales>,
     "small_scales"},
    {"takes_448_for_nan", AS_OP_FP8_LINEAR,
     misreads<Fp8, std::uint8_t, AS_OP_FP8_LINEAR, takes_448_for_nan>, "every_code"},
    {"flushes_codes", AS_OP_FP8_LINEAR,
     misreads<Fp8, std::uint8_t, AS_OP_FP8_LINEAR, flushes_codes>, "subnormals"},
    {"packs_weights", AS_OP_FP8_LINEAR,
     misreads<Fp8, std::uint8_t, AS_OP_FP8_LINEAR, packs_weights>, "strides"},
    {"forgets_idle_sequences", AS_OP_SEQUENCE_TABLE,
     spoils<Sequences, AS_OP_SEQUENCE_TABLE, forgets_idle_sequences>, "nothing_listed"},
    {"adds_an_empty_block", AS_OP_SEQUENCE_TABLE,
     spoils<Sequences, AS_OP_SEQUENCE_TABLE, adds_an_empty_block>, "page_ends"},
    {"overflows_lengths", AS_OP_SEQUENCE_TABLE,
     spoils<Sequences, AS_OP_SEQUENCE_TABLE, overflows_lengths>, "large_numbers"},
    {"owns_all_tokens", AS_OP_SEQUENCE_TABLE,
     spoils<Sequences, AS_OP_SEQUENCE_TABLE, owns_all_tokens>, "no_rows"},
    {"empties_full_pages", AS_OP_PAGE_INDICES,
     spoils<Pages, AS_OP_PAGE_INDICES, empties_full_pages>, "page_ends"},
    {"rounds_ids", AS_OP_PAGE_INDICES,
     misreads<Pages, std::int32_t, AS_OP_PAGE_INDICES, rounds_ids>, "large_numbers"},
    {"keeps_null_blocks_of_0", AS_OP_COMPACT_TABLES,
     misreads<Compact, std::int32_t, AS_OP_COMPACT_TABLES, keeps_null_blocks_of_0>, "holes"},
    {"ends_at_negative_ids", AS_OP_COMPACT_TABLES,
     misreads<Compact, std::int32_t, AS_OP_COMPACT_TABLES, ends_at_negative_ids>, "behind_lens"},
    {"pads_with_request_0", AS_OP_CROSS_BATCH,
     misreads<Cross, std::int32_t, AS_OP_CROSS_BATCH, pads_with_request_0>, "holes"},
    {"takes_the_first_group", AS_OP_CROSS_BATCH,
     misreads<Cross, std::int32_t, AS_OP_CROSS_BATCH, takes_the_first_group>, "behind_lens"}};

class ForgetfulTest : public testing::TestWithParam<Forgetful> {};

TEST_P(ForgetfulTest, IsFoundUnderItsClause) {
  const Forgetful& tested = GetParam();
  auto verdicts = verdicts_of(tested.op, tested.function);
  EXPECT_EQ(verdicts["ordinary"], ClauseVerdict::kKept);
  EXPECT_EQ(verdicts[tested.clause], ClauseVerdict::kBroken);
}

INSTANTIATE_TEST_SUITE_P(Helpers, ForgetfulTest, testing::ValuesIn(kForgetful),
                         [](const auto& tested) { return std::string(tested.param.name); });

// Clauses that reach an op: every other one has a reason of the op's own.
struct Reached {
  as_op_id op;
  std::vector<std::string> clauses;
};

class ReachedTest : public testing::TestWithParam<Reached> {};

TEST_P(ReachedTest, TheCpuLaneKeepsWhatReachesIt) {
  const Reached& tested = GetParam();
  for (const auto& [clause, verdict] : verdicts_of(tested.op, nullptr)) {
    const bool reached = std::ranges::find(tested.clauses, clause) != tested.clauses.end();
    EXPECT_EQ(verdict, reached ? ClauseVerdict::kKept : ClauseVerdict::kNotReached) << clause;
    if (reached || clause == "poison") continue;  // which takes a process of its own
    EXPECT_NE(why_unreached(clause, *find_case_op(tested.op)), "no call of the op does so")
        << clause;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Ops, ReachedTest,
    testing::Values(Reached{AS_OP_MERGE_STATES,
                            {"ordinary", "nothing_listed", "far_lse", "no_rows", "strides",
                             "nan_neighbours", "alone", "twice"}},
                    Reached{AS_OP_WORKSPACE_ATTENTION,
                            {"ordinary", "holes", "behind_lens", "unlisted_nan", "duplicates",
                             "nothing_listed", "large_logits", "far_lse", "sinks", "no_rows",
                             "strides", "nan_neighbours", "alone", "twice"}},
                    Reached{AS_OP_GATHER_ROWS,
                            {"ordinary", "page_ends", "holes", "unlisted_nan", "high_blocks",
                             "duplicates", "nothing_listed", "every_code", "subnormals",
                             "small_scales", "no_rows", "strides", "alone", "twice"}},
                    Reached{AS_OP_COPY_BLOCKS,
                            {"ordinary", "holes", "duplicates", "nothing_listed", "no_rows",
                             "strides", "twice"}},
                    Reached{AS_OP_INVERSE_ROPE_QUANTISE,
                            {"ordinary", "every_code", "subnormals", "small_scales", "no_rows",
                             "strides", "nan_neighbours", "alone", "twice"}},
                    Reached{AS_OP_FP8_LINEAR,
                            {"ordinary", "every_code", "subnormals", "small_scales", "no_rows",
                             "strides", "nan_neighbours", "alone", "twice"}},
                    Reached{AS_OP_SEQUENCE_TABLE,
                            {"ordinary", "page_ends", "nothing_listed", "large_numbers", "no_rows",
                             "strides", "twice"}},
                    Reached{AS_OP_PAGE_INDICES,
                            {"ordinary", "page_ends", "holes", "behind_lens", "duplicates",
                             "nothing_listed", "large_numbers", "no_rows", "strides", "twice"}},
                    Reached{AS_OP_COMPACT_TABLES,
                            {"ordinary", "holes", "behind_lens", "duplicates", "nothing_listed",
                             "large_numbers", "no_rows", "strides", "alone", "twice"}},
                    Reached{AS_OP_PAD_ROWS,
                            {"ordinary", "behind_lens", "nothing_listed", "large_numbers",
                             "no_rows", "strides", "twice"}}),
    [](const auto& tested) { return std::string(as_op_find(tested.param.op)->name); });

}  // namespace
}  // namespace examine_test
}  // namespace attnscope
