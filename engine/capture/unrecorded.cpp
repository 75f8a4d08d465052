#include "engine/capture/unrecorded.h"

#include <algorithm>

#include "engine/capture/logical_slots.h"

namespace attnscope {
namespace {

// Whether both recorded the same tokens in the same order: only then checksums say something.
bool same_tokens(const RowMatch& m) {
  return m.rows.size() == m.a->kept.size() && m.rows.size() == m.b->kept.size() &&
         std::ranges::all_of(m.rows, [&](const auto& row) {
           return m.a->kept_index(row.first) == m.b->kept_index(row.second);
         });
}

bool same_bytes(const std::optional<TapStats>& x, const std::optional<TapStats>& y) {
  return x && y && x->checksum == y->checksum;
}

}  // namespace

const OpEntry* Unrecorded::Side::find(const Place& place) {
  if (!entry || entry->step != place.step) {
    auto read = capture.entry(place.step);
    entry = read ? *read : nullptr;
  }
  if (!entry) return nullptr;
  const auto at = std::ranges::find_if(
      entry->ops, [&](const OpEntry& op) { return op.layer == place.layer && op.op == place.op; });
  return at == entry->ops.end() ? nullptr : &*at;
}

DiffInputs Unrecorded::inputs(const RowMatch& match, const OpTrace& x, const OpTrace& y) {
  const OpEntry *p = a_.find(x.place), *q = b_.find(y.place);
  if (p == nullptr || q == nullptr) return DiffInputs::kUnknown;
  const bool same = same_tokens(match);
  for (const TapEntry& tap : p->taps) {
    const bool seen = x.tap(tap.name) != nullptr && y.tap(tap.name) != nullptr;
    if (tap.output || tap.weight || seen) continue;
    if (tap_meaning(x.place.op, tap.name) == TapMeaning::kPlacement) continue;
    const auto twin = std::ranges::find(q->taps, tap.name, &TapEntry::name);
    if (!same || twin == q->taps.end() || !same_bytes(tap.stats, twin->stats)) {
      return DiffInputs::kUnknown;
    }
  }
  return DiffInputs::kEqual;
}

DiffInputs Unrecorded::rows(const RowMatch& match, const OpTrace& x, const OpTrace& y,
                            const std::string& tap) {
  const OpEntry *p = a_.find(x.place), *q = b_.find(y.place);
  if (p == nullptr || q == nullptr || !same_tokens(match)) return DiffInputs::kUnknown;
  const auto first = std::ranges::find(p->rows, tap, &RowsEntry::name);
  const auto second = std::ranges::find(q->rows, tap, &RowsEntry::name);
  const bool equal =
      first != p->rows.end() && second != q->rows.end() && same_bytes(first->stats, second->stats);
  return equal ? DiffInputs::kEqual : DiffInputs::kUnknown;
}

}  // namespace attnscope
