#include "engine/capture/unrecorded.h"

#include <fmt/format.h>

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

// By their checksums.
DiffInputs apart(const std::optional<TapStats>& x, const std::optional<TapStats>& y) {
  if (!x || !y) return DiffInputs::kUnknown;
  return x->checksum == y->checksum ? DiffInputs::kEqual : DiffInputs::kDiffers;
}

// The figures that differ.
std::string figures_text(const TapStats& x, const TapStats& y) {
  std::string text;
  const auto add = [&](const char* name, double p, double q) {
    if (p != q) text += fmt::format(", {} {:.6g} and {:.6g}", name, p, q);
  };
  add("elements", static_cast<double>(x.elements), static_cast<double>(y.elements));
  add("NaNs", static_cast<double>(x.nans), static_cast<double>(y.nans));
  add("infinities", static_cast<double>(x.infinities), static_cast<double>(y.infinities));
  add("smallest", x.min, y.min);
  add("largest", x.max, y.max);
  add("mean", x.mean, y.mean);
  add("l2", x.l2, y.l2);
  return "other checksums" + (text.empty() ? ", the same figures" : text);
}

void compare_stats(const std::string& name, const std::optional<TapStats>& x,
                   const std::optional<TapStats>& y, bool same, OpDiff& diff) {
  const bool nothing = x && y && x->elements == 0 && y->elements == 0;
  if (!x || !y || (!same && !nothing)) {
    diff.open = true;
    diff.why = !x || !y ? fmt::format("{} was recorded without a checksum", name)
                        : fmt::format(
                              "the values of {} were not kept, and its checksums are of other "
                              "rows of the step in the second",
                              name);
    return;
  }
  TapDiff tap;
  tap.tap = name;
  tap.output = tap.by_checksum = true;
  tap.equal = tap.within = x->checksum == y->checksum;
  if (!tap.equal) tap.evidence = figures_text(*x, *y);
  diff.taps.push_back(std::move(tap));
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
  DiffInputs worst = DiffInputs::kEqual;
  for (const TapEntry& tap : p->taps) {
    const bool seen = x.tap(tap.name) != nullptr && y.tap(tap.name) != nullptr;
    if (tap.output || tap.weight || seen) continue;
    if (tap_meaning(x.place.op, tap.name) == TapMeaning::kPlacement) continue;
    const auto twin = std::ranges::find(q->taps, tap.name, &TapEntry::name);
    const bool known = same && twin != q->taps.end();
    DiffInputs one = known ? apart(tap.stats, twin->stats) : DiffInputs::kUnknown;
    const bool slots = tap_meaning(x.place.op, tap.name) == TapMeaning::kSlots;
    if (slots && one == DiffInputs::kDiffers) one = DiffInputs::kUnknown;  // maybe other blocks
    worst = std::max(worst, one);
  }
  return worst;
}

void Unrecorded::outputs(const RowMatch& match, const OpTrace& x, const OpTrace& y, OpDiff& diff) {
  const OpEntry *p = a_.find(x.place), *q = b_.find(y.place);
  if (p == nullptr || q == nullptr) return;
  const bool same = same_tokens(match);
  const auto seen = [&](const std::string& name) {
    return std::ranges::find(diff.taps, name, &TapDiff::tap) != diff.taps.end();
  };
  for (const TapEntry& tap : p->taps) {
    if (!tap.output || seen(tap.name)) continue;
    if (tap_meaning(x.place.op, tap.name) == TapMeaning::kPlacement) continue;
    const auto twin = std::ranges::find(q->taps, tap.name, &TapEntry::name);
    if (twin == q->taps.end()) continue;  // a lane or an engine that withholds it
    if (x.tap(tap.name) != nullptr && y.tap(tap.name) != nullptr) {
      diff.open = true;
      diff.why = fmt::format("{} has another kind or shape in the second", tap.name);
      continue;
    }
    const bool slots = tap_meaning(x.place.op, tap.name) == TapMeaning::kSlots;
    if (slots && apart(tap.stats, twin->stats) == DiffInputs::kDiffers) {
      diff.open = true;
      diff.why = fmt::format("the values of {} were not kept, and its slots are others", tap.name);
      continue;
    }
    compare_stats(tap.name, tap.stats, twin->stats, same, diff);
  }
  for (const RowsEntry& rows : p->rows) {
    if (seen(rows.name)) continue;
    const auto twin = std::ranges::find(q->rows, rows.name, &RowsEntry::name);
    if (twin != q->rows.end()) compare_stats(rows.name, rows.stats, twin->stats, same, diff);
  }
}

bool Unrecorded::no_outputs(const OpTrace& x, const OpTrace& y) {
  const auto has = [](const OpEntry* op) {
    return op == nullptr || !op->rows.empty() || std::ranges::any_of(op->taps, &TapEntry::output);
  };
  return !has(a_.find(x.place)) && !has(b_.find(y.place));
}

DiffInputs Unrecorded::rows(const RowMatch& match, const OpTrace& x, const OpTrace& y,
                            const std::string& tap) {
  const OpEntry *p = a_.find(x.place), *q = b_.find(y.place);
  if (p == nullptr || q == nullptr || !same_tokens(match)) return DiffInputs::kUnknown;
  const auto first = std::ranges::find(p->rows, tap, &RowsEntry::name);
  const auto second = std::ranges::find(q->rows, tap, &RowsEntry::name);
  const bool known = first != p->rows.end() && second != q->rows.end();
  return known ? apart(first->stats, second->stats) : DiffInputs::kUnknown;
}

}  // namespace attnscope
