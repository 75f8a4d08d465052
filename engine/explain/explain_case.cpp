#include "engine/explain/explain_case.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <span>

#include "engine/explain/error_relation.h"
#include "engine/explain/row_places.h"
#include "engine/io/plural.h"
#include "engine/model/numbers.h"
#include "engine/trace/axis_words.h"
#include "kernels/layout/mla_rows.h"
#include "kernels/layout/records.h"
#include "kernels/params/op_table.h"

namespace attnscope {
namespace {

const as_tap_info* tap_named(const CaseOp& op, const std::string& name) {
  const auto it =
      std::ranges::find_if(op.taps, [&](const as_tap_info& t) { return name == t.name; });
  return it != op.taps.end() ? &*it : nullptr;
}

template <class T>
std::vector<T> stored_numbers(const OpCase& kept, const char* name) {
  const auto it = kept.tensors.find(name);
  if (it == kept.tensors.end() || it->second.shape.size() != 1) return {};
  const as_tensor view = stored_view(it->second);
  std::vector<T> out;
  for (std::int64_t i = 0; i < view.shape[0]; ++i) {
    out.push_back(static_cast<T>(element(view, 0, i)));
  }
  return out;
}

// Rows of a block of the slots in a list; 0: it lists something else.
std::int64_t block_of_slots(const OpCase& kept, const std::string& tap) {
  if (tap != "slots" && tap != "indices") return 0;
  for (const char* name : {"rows_per_block", "block_size"}) {
    const auto it = kept.integers.find(name);
    if (it != kept.integers.end()) return it->second;
  }
  return 0;
}

PatternContext context_of(const OpCase& kept) {
  PatternContext out;
  out.positions = stored_numbers<std::int64_t>(kept, "positions");
  out.requests = stored_numbers<std::int32_t>(kept, "token_to_req");
  for (const auto& [name, rope] : kept.ropes) {
    out.rope_dims = std::max(out.rope_dims, rope.dims);
  }
  for (const auto& [name, cache] : kept.caches) {
    if (cache.record == AS_RECORD_NONE) continue;
    if (cache.rows_per_block > 1) out.page_rows.push_back(cache.rows_per_block);
    if (cache.record == AS_RECORD_LATENT) out.block_sizes.push_back(AS_QUANT_BLOCK);
    if (cache.record == AS_RECORD_LATENT_656) out.block_sizes.push_back(AS_LATENT_656_BLOCK);
    const bool latent = cache.record == AS_RECORD_LATENT || cache.record == AS_RECORD_LATENT_656;
    if (latent && out.rope_dims == 0) out.rope_dims = AS_ROPE_DIM;
  }
  return out;
}

// The mask of an output, from the case's own inputs.
TapMask stored_mask(const OpCase& kept, const as_tap_info& tap) {
  TapMask mask;
  if (tap.mask == AS_MASK_ALL) return mask;
  for (const as_tap_info& other : kept.op.taps) {
    if (other.offset != tap.mask_offset || other.kind == AS_TAP_CACHE) continue;
    const auto it = kept.tensors.find(other.name);
    if (it == kept.tensors.end()) continue;
    const void* data = it->second.bytes.data();
    if (tap.mask == AS_MASK_SLOTS) mask.slots = static_cast<const std::int64_t*>(data);
    if (tap.mask == AS_MASK_LENS) mask.lens = static_cast<const std::int32_t*>(data);
  }
  return mask;
}

// Rows of a cache as they were written, by token; rows of slot -1 are zeros.
StoredTensor rows_by_token(const StoredCache& cache, std::span<const std::int64_t> slots) {
  const std::int64_t bytes = cache.row_bytes();
  const bool values = as_row_is_values(cache.record) != 0;
  StoredTensor out;
  out.dtype = values ? AS_F32 : AS_U8;
  out.shape = {to_count(slots.size()), values ? bytes / 4 : bytes};
  out.bytes.assign(slots.size() * to_size(bytes), 0);
  for (std::size_t t = 0; t < slots.size(); ++t) {
    const auto at = std::ranges::lower_bound(cache.slots, slots[t]);
    if (at == cache.slots.end() || *at != slots[t]) continue;
    std::copy_n(cache.rows.begin() + (at - cache.slots.begin()) * bytes, bytes,
                out.bytes.begin() + to_count(t) * bytes);
  }
  return out;
}

// Whether what is wrong already is the row that this output quantises.
bool made_of_wrong_row(const OpCase& kept, const CaseRun& right, const CaseTap& tap) {
  const as_tap_info *info = tap_named(kept.op, tap.tap), *row = as_op_row(kept.op.id);
  if (info == nullptr || row == nullptr || info->follows_row == 0) return false;
  return std::ranges::any_of(right.taps, [&](const CaseTap& other) {
    return other.tap == row->name && other.verdict == Verdict::kWrong;
  });
}

ExplainedTap explain_rows(const OpCase& kept, const CaseTap& tap, const as_tap_info& info,
                          const StoredCache& cache) {
  ExplainedTap out{tap.tap, {}};
  const TapMask mask = stored_mask(kept, info);
  if (mask.slots == nullptr || cache.rows_per_block < 1 || tap.reference.shape.empty()) return out;
  const std::span slots(mask.slots, to_size(tap.reference.shape[0]));
  const StoredTensor value = rows_by_token(cache, slots);
  if (value.shape != tap.reference.shape) return out;
  const WrongElements wrong =
      wrong_elements(stored_view(value), stored_view(tap.reference), mask, tap.rule);
  if (wrong.count == 0) return out;
  if (value.dtype == AS_F32) {
    out.findings = error_pattern(wrong, {"T", "value"}, context_of(kept));
    return out;
  }
  const as_row_layout row =
      as_row_layout_of(cache.record, cache.width, std::max(cache.heads, 1), 1);
  if (auto moved = moved_rows(wrong, {"T", "bytes"})) out.findings.push_back(std::move(*moved));
  out.findings.push_back(row_places(wrong, row, slots, cache.rows_per_block, context_of(kept)));
  return out;
}

// What judged the output says of it where no element alone is wrong: of a selection, or of values
// whose direction is.
std::vector<ErrorFinding> of_the_whole(const CaseTap& tap) {
  const Comparison& c = tap.comparison;
  if (c.note.empty() || c.anomalies > 0 || (!tap.rule.top_k && c.figures.beyond > 0)) return {};
  const std::string more =
      c.rows_beyond > 1 ? fmt::format("; likewise wrong: {}",
                                      counted(c.rows_beyond - 1, "more token", "more tokens"))
                        : "";
  return {{"whole", c.note + more, 1}};
}

ExplainedTap explain_tap(const OpCase& kept, const CaseTap& tap) {
  ExplainedTap out{tap.tap, of_the_whole(tap)};
  if (!out.findings.empty()) return out;
  const as_tap_info* info = tap_named(kept.op, tap.tap);
  const auto rows = kept.caches.find(tap.tap);
  if (info != nullptr && rows != kept.caches.end()) {
    return explain_rows(kept, tap, *info, rows->second);
  }
  const auto stored = kept.tensors.find(tap.tap);
  if (info == nullptr || stored == kept.tensors.end() || tap.reference.shape.empty()) return out;
  if (tap.reference.shape != stored->second.shape) return out;
  const WrongElements wrong = wrong_elements(
      stored_view(stored->second), stored_view(tap.reference), stored_mask(kept, *info), tap.rule);
  PatternContext context = context_of(kept);
  context.slots_of = block_of_slots(kept, tap.tap);
  out.findings = error_pattern(wrong, split_axes(info->axes), context);
  return out;
}

}  // namespace

Result<Explanation> explain_case(const OpCase& kept, const CaseLane& sim,
                                 std::span<const Mistake> mistakes, const TablesBefore& before,
                                 const CaseRunOptions& options, double seconds) {
  Explanation out;
  out.op = kept.op.name;
  out.reads_rows = std::ranges::any_of(kept.op.taps, [&](const as_tap_info& tap) {
    return tap.kind == AS_TAP_CACHE && tap.direction == AS_TAP_IN && kept.caches.contains(tap.name);
  });
  CaseRunOptions with_references = options;
  with_references.keep_references = true;
  auto right = run_case(kept, sim, with_references);
  if (!right) return right.error();
  for (const CaseTap& tap : right->taps) {
    if (tap.verdict != Verdict::kWrong) continue;
    // Rows of a cache that were made of a wrong row are as wrong as it is.
    if (made_of_wrong_row(kept, *right, tap)) {
      out.taps.push_back({tap.tap, {}});
    } else {
      out.taps.push_back(explain_tap(kept, tap));
    }
  }
  auto hypotheses = try_mistakes(kept, *right, sim, mistakes, before, options, seconds);
  if (!hypotheses) return hypotheses.error();
  out.hypotheses = std::move(*hypotheses);
  return out;
}

std::string unsteady_text(const OpCase& kept, const CaseLane& lane, const CaseRunOptions& options) {
  CaseRunOptions once = options;
  once.repeat = 1;
  const auto first = rerun_case(kept, lane, once);
  if (!first) return {};
  const auto apart = [&](const OpCase& from) -> std::string {
    const auto run = run_case(from, lane, once);
    if (!run) return {};
    const auto tap = std::ranges::find(run->taps, Verdict::kWrong, &CaseTap::verdict);
    if (tap == run->taps.end()) return {};
    return fmt::format("{} of {} elements of {}", tap->comparison.figures.beyond,
                       tap->comparison.elements, tap->tap);
  };
  if (const std::string twice = apart(*first); !twice.empty()) {
    return fmt::format(
        "{} is not deterministic: called twice on the same inputs, {} are apart by more than the "
        "tolerance",
        lane.name, twice);
  }
  const std::string again = apart(kept);
  if (again.empty()) return {};
  return fmt::format(
      "{}, called again on the same inputs, gives another output, {}: it is not deterministic, or "
      "was another build",
      lane.name, again);
}

std::vector<std::string> Explanation::lines() const {
  std::vector<std::string> out;
  for (const ExplainedTap& tap : taps) {
    for (const ErrorFinding& f : tap.findings)
      out.push_back(fmt::format("{}: {}", tap.tap, f.sentence));
  }
  const std::vector<std::string> of_causes = causes();
  out.insert(out.end(), of_causes.begin(), of_causes.end());
  return out;
}

std::vector<std::string> Explanation::causes() const {
  std::vector<std::string> out;
  if (!wrong()) return out;
  if (!unsteady.empty()) out.push_back(unsteady);
  const auto& likely = hypotheses.likely;
  if (likely.empty()) {
    out.push_back(fmt::format("none of {} known mistakes of {} gives this output{}",
                              hypotheses.tried, op,
                              reads_rows ? ", on the rows that a right call reads" : ""));
    return out;
  }
  for (std::size_t i = 0; i < std::min(likely.size(), kShownHypotheses); ++i) {
    const Hypothesis& h = likely[i];
    const std::string how =
        h.whole ? std::string("gives the same output")
                : fmt::format("gives {:.0f} % of it", std::min(99.0, std::floor(100 * h.share)));
    out.push_back(fmt::format("{} {}: {}", h.lane, how, h.words));
  }
  const auto same = std::ranges::count_if(likely, &Hypothesis::whole);
  if (same > 1) {
    out.push_back(
        fmt::format("{} mistakes give the same output; this call does not tell them apart", same));
  }
  return out;
}

}  // namespace attnscope
