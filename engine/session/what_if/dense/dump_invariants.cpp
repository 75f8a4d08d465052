#include "engine/session/what_if/dense/dump_invariants.h"

#include <fmt/format.h>

#include <algorithm>

#include "engine/model/numbers.h"
#include "engine/session/session.h"
#include "engine/session/step/attention_copy.h"
#include "kernels/params/row_access.h"
#include "kernels/params/tensor_view.h"

namespace attnscope {
namespace {

enum DenseInvariant { kDensePositions, kDenseOwnSlots, kRowsWritten, kDenseMass, kDenseRowAlone };

// By DenseInvariant.
constexpr InvariantText kDenseTexts[] = {
    {"positions", "A token's position is seq_len - query_len + its place in its request."},
    {"own_slots",
     "A token's row goes to its place in the block that its request holds there; never to the null "
     "block."},
    {"rows_written", "Every row of K and V that a token sees was written, for its request."},
    {"attention_mass", "The LSE recomputed from the rows is the op's, and rows + sink mass is 1."},
    {"row_alone",
     "A row computed alone differs from the same row in its batch by at most two steps of bf16 or "
     "2^-10 of its largest element (2^-8 of paged_attention, 2^-7 where ranks share requests), its "
     "LSE by 2^-18."},
};

void own_slots(const Session& session, DumpInvariants& to) {
  const StepMetadata& m = session.metadata();
  const auto& p = session.last_params().get<as_slot_mapping_params>();
  const std::vector<CacheGroup>& groups = session.parts().layout.groups;
  for (std::size_t g = 0; g < groups.size(); ++g) {
    const as_tensor table = m.group_table(static_cast<int>(g));
    const std::int64_t block = groups[g].block_tokens;
    for (std::int64_t t = 0; t < m.num_tokens_in_step(); ++t) {
      const std::int64_t slot = *at<std::int64_t>(p.slots, to_count(g), t);
      const std::int64_t position = m.positions[to_size(t)];
      const std::int32_t held =
          *at<std::int32_t>(table, m.token_to_req[to_size(t)], position / block);
      const bool no_row = groups[g].with_rows(position + 1) <= position;
      const bool own = held != AS_NULL_BLOCK && slot == held * block + position % block;
      to.check(kDenseOwnSlots, no_row ? slot == -1 : own,
               fmt::format("token {} (position {}), group {}: slot {}, its block is {}", t,
                           position, g, slot, held));
    }
  }
}

void rows_written(const Session& session, DumpInvariants& to) {
  const OpParams& params = session.last_params();
  const StepMetadata& m = session.metadata();
  const Shadow& shadow = session.verifier().shadow();
  for (const as_cache_access& access : RowAccess::of(params.op())) {
    const CacheSpec* spec =
        session.parts().layout.of_tap(session.cursor().layer, params.op(), access.cache);
    if (spec == nullptr) continue;
    std::int64_t missing = 0, seen = 0, first = -1;
    RowAccess::for_each(params.data(), access, [&](const RowVisit& v) {
      ++seen;
      const std::int32_t request = m.live[to_size(m.token_to_req[to_size(v.token)])];
      if (shadow.has(*spec, v.slot) && shadow.row_of(*spec, v.slot, request) >= 0) return;
      if (missing++ == 0) first = v.token;
    });
    to.check(kRowsWritten, missing == 0,
             fmt::format("{}: {} of {} rows that are read were never written for the request that "
                         "reads them, the first of them for token {}",
                         spec->name, missing, seen, first));
  }
}

// The last token of each sequence that is no padding.
std::vector<std::int32_t> last_of_sources(const as_varlen_attention_params& p) {
  std::vector<std::int32_t> rows;
  const std::int64_t tokens = p.token_to_req.shape[0];
  for (std::int64_t t = 0; t < tokens; ++t) {
    const std::int32_t request = *at<std::int32_t>(p.token_to_req, t);
    const bool last = t + 1 == tokens || *at<std::int32_t>(p.token_to_req, t + 1) != request;
    if (request >= 0 && last) rows.push_back(static_cast<std::int32_t>(t));
  }
  return rows;
}

void check_dense(const Session& session, DumpInvariants& to) {
  switch (session.last_params().op()) {
    case AS_OP_SLOT_MAPPING:
      check_positions(session, to, kDensePositions);
      return own_slots(session, to);
    case AS_OP_PAGED_ATTENTION: {
      rows_written(session, to);
      const auto rows = last_rows(session.metadata());
      const auto& p = session.last_params().get<as_paged_attention_params>();
      check_masses(session, copy_attention(p, rows, nullptr), rows, to, kDenseMass);
      return check_last_row_alone(session, to, kDenseRowAlone);
    }
    case AS_OP_VARLEN_ATTENTION: {
      const auto& p = session.last_params().get<as_varlen_attention_params>();
      const auto rows =
          present(p.token_to_req) ? last_of_sources(p) : last_rows(session.metadata());
      return check_masses(session, copy_attention(p, rows, nullptr), rows, to, kDenseMass);
    }
    default:
      return;
  }
}

}  // namespace

const FamilyInvariants& dense_invariants() {
  static constexpr FamilyInvariants kInvariants = {"dense", kDenseTexts, check_dense};
  return kInvariants;
}

}  // namespace attnscope
