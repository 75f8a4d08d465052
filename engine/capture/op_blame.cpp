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
    case DiffInputs::kDiffers:
      return "its inputs differ, by how much was not recorded";
    default:
      return "its inputs differ beyond tolerance";
  }
}

const TapDiff* worst_output(const OpDiff& diff) {
  const auto worst =
      std::ranges::find_if(diff.taps, [](const TapDiff& t) { return t.output && !t.within; });
  return worst == diff.taps.end() ? nullptr : &*worst;
}

std::string place_text(const OpDiff& d) {
  return fmt::format("{}{} in step {}", as_op_find(d.a.op)->name,
                     d.a.layer < 0 ? "" : fmt::format(" of layer {}", d.a.layer), d.a.step);
}

// Two right results of the same inputs are two tolerances apart at most, and one lane gives the
// same bits twice.
bool further_than_rounding(const OpDiff& diff) {
  const TapDiff* worst = worst_output(diff);
  return diff.lane_a == diff.lane_b || (worst != nullptr && worst->budget_used > 2);
}

}  // namespace

void blame_op(const OwnOutput& a, const OwnOutput& b, const std::string& setup, OpDiff& diff) {
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
    diff.setup = equal && !setup.empty() && further_than_rounding(diff);
    diff.verdict = diff.setup ? DiffVerdict::kOrigin
                   : equal    ? DiffVerdict::kWithin
                              : DiffVerdict::kInherited;
    diff.why = fmt::format("{}, and each output is what its own inputs give", inputs_text(diff));
    if (diff.setup) diff.why += ": " + setup;
    return;
  }
  const TapDiff* worst = worst_output(diff);
  const bool sized = worst != nullptr && !worst->by_checksum;
  const bool explained = diff.inputs != DiffInputs::kEqual && diff.inputs != DiffInputs::kUnknown;
  diff.verdict = !sized  ? (explained ? DiffVerdict::kInherited : DiffVerdict::kDiffers)
                 : equal ? DiffVerdict::kOrigin
                         : DiffVerdict::kInherited;
  diff.why = inputs_text(diff);
  if (!sized) diff.why += "; by how much its output differs was not recorded";
  if (equal && !setup.empty()) diff.why += "; " + setup;
  if (equal && sized) return;
  const bool first = a.verdict == OwnOutput::kUnknown;
  diff.why += fmt::format("; the {} could not be judged by itself: {}", first ? "first" : "second",
                          first ? a.text : b.text);
}

std::string blameless_text(const CaptureDiff& diff) {
  if (!diff.blameless()) return "";
  if (diff.setup.empty()) return kBlameless;
  return fmt::format(
      "No op is at fault: the two were set up otherwise, and every output that differs beyond its "
      "tolerance is what its own inputs give ({}).",
      diff.setup);
}

std::string open_text(const CaptureDiff& diff) {
  std::int64_t all = -diff.placements, open = 0, unjudged = 0;
  for (const std::int64_t n : diff.counts) all += n;
  const OpDiff* lacking = nullptr;
  for (const OpDiff& op : diff.ops) {
    const bool judged = op.judged || op.verdict < DiffVerdict::kInherited;
    if (op.open) {
      ++open;
      if (lacking == nullptr || as_op_role(lacking->a.op) == AS_ROLE_COPY) lacking = &op;
    } else if (!judged && op.verdict != DiffVerdict::kUnknown) {
      ++unjudged;
    }
  }
  std::string text;
  if (open > 0) {
    text = fmt::format("{} of {} ops could not be compared: {} of step {}: {}.", open, all,
                       as_op_find(lacking->a.op)->name, lacking->a.step, lacking->why);
    if (as_op_role(lacking->a.op) != AS_ROLE_COPY)
      text += " Record both with --level full --rows all.";
  }
  if (unjudged > 0) {
    text += fmt::format(
        "{}{} of {} ops that differ could not be judged by themselves: record both with "
        "--references sim, or with --level full --rows all --weights.",
        text.empty() ? "" : " ", unjudged,
        diff.count(DiffVerdict::kOrigin) + diff.count(DiffVerdict::kInherited) +
            diff.count(DiffVerdict::kDiffers));
  }
  return text;
}

std::string reader_text(const OpDiff& reader) {
  const TapDiff* worst = worst_output(reader);
  return fmt::format(
      "{}, on lane {} in both and given the same besides, found other rows: {} differs: {}",
      place_text(reader), reader.lane_a, worst->tap, worst->evidence);
}

std::string first_difference(const OpDiff& d) {
  const TapDiff* worst = worst_output(d);
  std::string text = place_text(d);
  if (d.b.step != d.a.step) text += fmt::format(" (step {} of the second)", d.b.step);
  const bool begins = d.verdict == DiffVerdict::kOrigin || d.verdict == DiffVerdict::kDiffers;
  const bool agree = begins && d.inputs == DiffInputs::kEqual;
  text += agree ? " is where they part: its inputs agree, its output "
          : d.verdict == DiffVerdict::kDiffers
              ? " differs, and not all that it was given is known: its output "
          : begins ? " is where they part: its output "
          : d.inputs == DiffInputs::kUnknown
              ? " is the first that differs, and not all that it was given is known: "
          : tied(d) ? " is the first that differs, for its entries are others by a near-tie: "
                    : " is the first that differs, with inputs that differ already: ";
  // Found wrong while it was recorded: what it put out is in neither capture.
  text += worst == nullptr ? "is wrong"
                           : fmt::format("{} {}: {}", worst->tap, agree ? "does not" : "differs",
                                         worst->evidence);
  text += "; " + d.why;
  if (d.lane_a != d.lane_b) text += fmt::format("; lanes {} and {}", d.lane_a, d.lane_b);
  return text;
}

}  // namespace attnscope
