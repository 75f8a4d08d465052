#include "engine/capture/op_blame.h"

#include <fmt/format.h>

#include <algorithm>

namespace attnscope {
namespace {

bool tied(const OpDiff& diff) {
  return std::ranges::any_of(diff.taps, [](const TapDiff& t) { return !t.output && t.near_tie; });
}

std::string inputs_text(const OpDiff& diff) {
  if (tied(diff)) return "its entries are others by a near-tie";
  switch (diff.inputs) {
    case DiffInputs::kEqual:
      return "its inputs have the same bits";
    case DiffInputs::kWithin:
      return "its inputs differ within tolerance";
    case DiffInputs::kUnknown:
      return "its inputs were not recorded in both";
    default:
      return "its inputs differ beyond tolerance";
  }
}

}  // namespace

void blame_op(const OwnOutput& a, const OwnOutput& b, OpDiff& diff) {
  diff.judged = a.verdict != OwnOutput::kUnknown && b.verdict != OwnOutput::kUnknown;
  const bool wrong_a = a.verdict == OwnOutput::kWrong, wrong_b = b.verdict == OwnOutput::kWrong;
  if (wrong_a || wrong_b) {
    diff.verdict = DiffVerdict::kOrigin;
    diff.why =
        wrong_a && wrong_b
            ? fmt::format("neither output is what its own inputs give: {}; {}", a.text, b.text)
            : fmt::format("the {}'s output is not what its own inputs give: {}",
                          wrong_a ? "first" : "second", wrong_a ? a.text : b.text);
    return;
  }
  const bool equal = diff.inputs == DiffInputs::kEqual;
  if (a.verdict == OwnOutput::kRight && b.verdict == OwnOutput::kRight) {
    // Two right results of the same inputs may lie on two sides of what the reference gives.
    diff.verdict = equal ? DiffVerdict::kWithin : DiffVerdict::kInherited;
    diff.why = fmt::format("{}, and each output is what its own inputs give", inputs_text(diff));
    return;
  }
  diff.verdict = equal ? DiffVerdict::kOrigin : DiffVerdict::kInherited;
  diff.why = inputs_text(diff);
  if (equal) return;
  const bool first = a.verdict == OwnOutput::kUnknown;
  diff.why += fmt::format("; the {} could not be judged by itself: {}", first ? "first" : "second",
                          first ? a.text : b.text);
}

std::string first_difference(const OpDiff& d) {
  const auto worst =
      std::ranges::find_if(d.taps, [](const TapDiff& t) { return t.output && !t.within; });
  std::string text =
      fmt::format("{} of layer {} in step {}", as_op_find(d.a.op)->name,
                  d.a.layer < 0 ? std::string("-") : std::to_string(d.a.layer), d.a.step);
  if (d.b.step != d.a.step) text += fmt::format(" (step {} of the second)", d.b.step);
  const bool begins = d.verdict == DiffVerdict::kOrigin;
  const bool agree = begins && d.inputs == DiffInputs::kEqual;
  text += agree     ? " is where they part: its inputs agree, its output "
          : begins  ? " is where they part: its output "
          : tied(d) ? " is the first that differs, for its entries are others by a near-tie: "
                    : " is the first that differs, with inputs that differ already: ";
  text += worst == d.taps.end() ? "differs"
                                : fmt::format("{} {}: {}", worst->tap,
                                              agree ? "does not" : "differs", worst->evidence);
  text += "; " + d.why;
  if (d.lane_a != d.lane_b) text += fmt::format("; lanes {} and {}", d.lane_a, d.lane_b);
  return text;
}

}  // namespace attnscope
