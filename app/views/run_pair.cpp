#include "app/views/run_pair.h"

#include <fmt/format.h>

#include <algorithm>

#include "app/text/format.h"
#include "engine/capture/op_blame.h"

namespace attnscope {
namespace {

bool beyond(DiffVerdict verdict) {
  return verdict == DiffVerdict::kOrigin || verdict == DiffVerdict::kInherited ||
         verdict == DiffVerdict::kDiffers;
}

int badness(DiffVerdict verdict) {
  switch (verdict) {
    case DiffVerdict::kOrigin:
      return 5;
    case DiffVerdict::kDiffers:
      return 4;
    case DiffVerdict::kInherited:
      return 3;
    case DiffVerdict::kUnknown:
      return 1;
    default:
      return 2;
  }
}

}  // namespace

void note_the_worst(RunPair& pair) {
  for (std::size_t i = 0; i < pair.diff.ops.size(); ++i) {
    const OpDiff& op = pair.diff.ops[i];
    auto [of_op, first_of_op] = pair.worst.try_emplace({op.a.step, op.a.layer, op.a.op}, i);
    if (!first_of_op && badness(op.verdict) > badness(pair.diff.ops[of_op->second].verdict)) {
      of_op->second = i;
    }
    if (!beyond(op.verdict)) continue;
    auto [cell, first] = pair.parted.try_emplace({op.a.step, op.a.layer}, op.verdict);
    if (!first && badness(op.verdict) > badness(cell->second)) cell->second = op.verdict;
  }
}

std::optional<DiffVerdict> RunPair::verdict(const Place& place) const {
  if (!diff.compared.contains(place.step)) return std::nullopt;
  const OpDiff* op = find(place);
  return op != nullptr ? op->verdict : DiffVerdict::kEqual;
}

const OpDiff* RunPair::find(const Place& place) const {
  const auto at = worst.find({place.step, place.layer, place.op});
  return at == worst.end() ? nullptr : &diff.ops[at->second];
}

const OpDiff* RunPair::next(const Place& from) const {
  // In causal order: behind the op itself, or behind its step when it is none of these.
  const auto here = std::ranges::find_if(diff.ops.rbegin(), diff.ops.rend(),
                                         [&](const OpDiff& op) { return op.a == from; });
  auto at = here.base();
  if (here == diff.ops.rend()) {
    at = std::ranges::find_if(diff.ops, [&](const OpDiff& op) { return op.a.step > from.step; });
  }
  at = std::find_if(at, diff.ops.end(), [](const OpDiff& op) { return beyond(op.verdict); });
  return at == diff.ops.end() ? nullptr : &*at;
}

std::string RunPair::sentence() const {
  std::string text = blameless_text(diff), open = open_text(diff);
  if (!open.empty()) open = " " + open;
  if (diff.first) {
    if (!text.empty()) text += " ";
    return text + diff.first->text + "." + open;
  }
  return fmt::format(
             "No op's output differs beyond its tolerance: {} of {} in both, {} the same bits and "
             "{} "
             "within tolerance.",
             plural(diff.tokens, "token", "tokens"), plural(diff.steps, "step is", "steps are"),
             plural(diff.count(DiffVerdict::kEqual), "op has", "ops have"),
             plural(diff.count(DiffVerdict::kWithin), "is", "are")) +
         open;
}

Result<ComparedToken> locate(const RunPair& c, std::int64_t step, std::int32_t request,
                             std::int64_t position) {
  ComparedToken out;
  const bool known = std::ranges::any_of(
      c.a->summaries(), [&](const auto& summary) { return summary->step == step; });
  if (!known) return out;
  auto a = c.a->trace(step);
  if (!a) return a.error();
  out.a = std::move(*a);
  if (!out.a || out.a->kept.empty()) return out;
  const auto place = [&](std::int32_t row) {
    out.row_a = row;
    out.request_a = out.a->request_of(row);
    out.position = out.a->metadata.positions[static_cast<std::size_t>(row)];
  };
  place(out.a->kept.back());
  for (const std::int32_t row : out.a->kept) {
    if (out.a->request_of(row) == request) place(row);
  }
  for (const std::int32_t row : out.a->kept) {
    if (out.a->request_of(row) == request &&
        out.a->metadata.positions[static_cast<std::size_t>(row)] == position) {
      place(row);
    }
  }
  const auto r = static_cast<std::size_t>(out.request_a);
  if (r >= c.diff.requests.size() || c.diff.requests[r] < 0) return out;
  out.request_b = c.diff.requests[r];
  const auto at = c.diff.where.find({out.request_b, out.position});
  if (at == c.diff.where.end()) return out;
  auto b = c.b->trace(at->second.step);
  if (!b) return b.error();
  out.b = std::move(*b);
  if (out.b) out.row_b = at->second.row;
  return out;
}

}  // namespace attnscope
