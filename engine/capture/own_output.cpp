#include "engine/capture/own_output.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace attnscope {
namespace {

std::string tap_evidence(const TapResult& result) {
  // A note that has the numbers has the place as well.
  if (result.note.find(" instead of ") != std::string::npos) {
    return result.tap + ", " + result.note;
  }
  std::string text = result.tap;
  if (result.worst) {
    text += fmt::format(", {:.6g} instead of {:.6g}", result.worst->value, result.worst->reference);
  }
  if (std::isfinite(result.budget_used) && result.budget_used > 0) {
    text += fmt::format(", {:.3g} times the tolerance", result.budget_used);
  }
  if (!result.note.empty()) text += ", " + result.note;
  return text;
}

}  // namespace

OwnOutput recorded_output(const OpTrace& op) {
  // A reader is judged by the rows that were written. Where it found others, or was given what is
  // not its own step's, it has not had its chance: somebody else is to blame.
  for (const TapResult& result : op.results) {
    if (result.verdict != Verdict::kWrong) continue;
    if (result.tap.ends_with(".read") || result.tap.ends_with(kBetweenTap)) {
      return {OwnOutput::kUnknown, "rows of its cache are not those that were written"};
    }
    for (const char* given :
         {kMetadataTap, kTableTap, kChangedTap, kWeightTap, kLoadTap, kRecordedTap}) {
      if (result.tap.ends_with(given)) {
        return {OwnOutput::kUnknown, fmt::format("it was given a wrong {}", given + 1)};
      }
    }
  }
  const auto wrong = std::ranges::find(op.results, Verdict::kWrong, &TapResult::verdict);
  if (wrong != op.results.end()) return {OwnOutput::kWrong, tap_evidence(*wrong)};
  const bool open =
      op.results.empty() ||
      std::ranges::find(op.results, Verdict::kNotCompared, &TapResult::verdict) != op.results.end();
  if (open) return {OwnOutput::kUnknown, "recorded without a reference"};
  return {OwnOutput::kRight, ""};
}

OwnOutput own_output(const Capture& capture, const OpTrace& op, const OwnJudge& judge) {
  OwnOutput out = recorded_output(op);
  return out.verdict == OwnOutput::kUnknown && judge ? judge(capture, op.place) : out;
}

}  // namespace attnscope
