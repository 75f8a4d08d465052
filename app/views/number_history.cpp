#include "app/views/number_history.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "app/text/format.h"
#include "app/views/linkage.h"
#include "app/views/op_order.h"
#include "app/views/sink_view.h"
#include "app/views/slot_traffic.h"
#include "app/views/top_k_view.h"
#include "engine/io/plural.h"
#include "engine/model/numbers.h"
#include "kernels/params/tensor_view.h"

namespace attnscope {
namespace {

constexpr double kNone = std::numeric_limits<double>::quiet_NaN();

constexpr std::array<NumberWords, kNumberKinds> kWords = {{
    {"element", "element", "engine", "ref.sim", "The element of the tap that is shown.", false,
     true},
    {"sink", "sink mass", "sink", nullptr, "The sink's share of the selected head's attention.",
     false, false},
    {"lse", "LSE", "engine", "ref.sim", "The log-sum-exp of the selected head's attention.", false,
     true},
    {"margin", "margin", "margin", "score tolerance",
     "How far the last selected entry is above the best that was not.", false, false},
    {"threshold", "threshold", "threshold", nullptr, "The lowest score that was selected.", false,
     false},
    {"slot", "reads and writes", "reads", "writes",
     "Tokens that read the selected row of the cache, and ops that wrote it.", false, false},
    {"owner", "owner", "request", nullptr, "Which request holds the selected block, -1 = none.",
     false, false},
    {"time", "time (\xc2\xb5s)", "\xc2\xb5s", nullptr, "What the op under the cursor took.", true,
     false},
    {"budget", "budget used", "of the bound", nullptr,
     "How much of its tolerance the op under the cursor used; above 1 it is wrong.", true, true},
    {"error", "largest difference", "introduced", nullptr,
     "The largest difference to ref.sim that the op under the cursor introduced.", true, true},
}};

std::string place_of(const Place& place) {
  const std::string op = as_op_find(place.op)->name;
  return place.layer < 0 ? op : fmt::format("{}, layer {}", op, place.layer);
}

// Place of the request's newest row along the tap's T axis; -1 when it has none.
std::int64_t newest_index(const StepTrace& step, const OpTrace& op, std::int32_t request) {
  for (std::int64_t t = step.metadata.num_tokens_in_step() - 1; t >= 0; --t) {
    if (step.request_of(t) != request) continue;
    const std::int64_t index = index_of_token_row(step, op, t);
    if (index >= 0) return index;
  }
  return -1;
}

std::optional<NumberValue> element_in(const StepTrace& step, const FollowedNumber& number) {
  const OpTrace* op = step.find(number.place.layer, number.place.op);
  const TapCopy* copy = op == nullptr ? nullptr : op->tap(number.tap);
  if (copy == nullptr || copy->value.rank != number.index.rank) return std::nullopt;
  TapIndex at = number.index;
  if (number.token_axis >= 0) at[number.token_axis] = newest_index(step, *op, number.request);
  bool inside = copy->value.data != nullptr;
  for (int axis = 0; axis < at.rank; ++axis) {
    inside = inside && at[axis] >= 0 && at[axis] < copy->value.shape[axis];
  }
  if (!inside || gaps_of(*op, *copy).why(*copy, at) != nullptr) return std::nullopt;
  return NumberValue{element_at(copy->value, at),
                     present(copy->reference) ? element_at(copy->reference, at) : kNone,
                     {}};
}

std::optional<NumberValue> attention_in(const SessionInfo& info, const StepTrace& step,
                                        const FollowedNumber& number) {
  const std::int64_t row = last_row_of(step, number.request);
  if (row < 0) return std::nullopt;
  const SinkView view = sink_view({info, step, number.place.layer, row, {}});
  const auto head = static_cast<std::size_t>(number.head);
  if (!view.why_empty.empty() || head >= view.heads.size()) return std::nullopt;
  const SinkHead& at = view.heads[head];
  if (number.kind == NumberKind::kSink) return NumberValue{at.sink, kNone, {}};
  return NumberValue{at.lse, at.lse_reference, {}};
}

std::optional<NumberValue> selection_in(const SessionInfo& info, const StepTrace& step,
                                        const FollowedNumber& number) {
  const std::int64_t row = last_row_of(step, number.request);
  if (row < 0) return std::nullopt;
  const TopKView view = top_k_view({info, step, nullptr, number.place.layer, row, 0, {}});
  const bool margin = number.kind == NumberKind::kMargin;
  const double value = margin ? view.margin : view.threshold;
  if (!view.why_empty.empty() || std::isnan(value)) return std::nullopt;
  return NumberValue{value, margin ? view.score_tolerance : kNone, {}};
}

std::optional<NumberValue> owner_in(const SessionInfo& info, const StepTrace& step,
                                    const FollowedNumber& number) {
  const auto block = static_cast<std::size_t>(number.block);
  if (number.block < 0 || block >= step.owners.size()) return std::nullopt;
  return NumberValue{static_cast<double>(step.owners[block].request), kNone,
                     block_state(info, step, number.block)};
}

std::optional<NumberValue> slot_in(const SessionInfo& info, const StepTrace& step,
                                   const FollowedNumber& number) {
  if (step.owners.empty()) return std::nullopt;
  const SlotTraffic traffic = slot_traffic(info, step, {number.group, number.block, number.row});
  return NumberValue{static_cast<double>(traffic.reads), static_cast<double>(traffic.writes),
                     traffic.words};
}

// Empty where there is none.
std::string name_of(const std::vector<std::string>& names, std::int32_t id) {
  return id >= 0 && id < to_count(names.size()) ? names[to_size(id)] : std::string();
}

Result<FollowedNumber> follow_element(FollowedNumber number, const NumberAt& at) {
  const OpTrace* op = at.step == nullptr ? nullptr : at.step->find(at.cursor.layer, at.cursor.op);
  if (op == nullptr || at.tap == nullptr) {
    return usage_error("no tap is shown", "go to an op whose tensors are kept");
  }
  const std::vector<TapAxis> axes = axes_of(*at.step, *op, *at.tap);
  number.tap = at.tap->name;
  number.request = at.row < 0 ? -1 : at.step->request_of(at.row);
  number.whose = name_of(at.info.request_names, number.request);
  number.index.rank = at.tap->value.rank;
  const bool named = at.selection.tap == number.tap && at.selection.element.size() == axes.size();
  number.words = fmt::format("{} of {}", number.tap, place_of(at.cursor));
  for (int axis = 0; axis < number.index.rank; ++axis) {
    const auto i = static_cast<std::size_t>(axis);
    std::int64_t& index = number.index[axis];
    index = named ? std::max<std::int64_t>(at.selection.element[i], 0) : 0;
    if (axes[i].link == AxisLink::kToken) {
      number.token_axis = axis;
      number.words += fmt::format(", {}", request_name(at.info, number.request));
      continue;
    }
    if (axes[i].link == AxisLink::kHead) index = at.selection.head;
    if (axes[i].link == AxisLink::kDim) index = at.selection.dim;
    index = std::clamp<std::int64_t>(index, 0, std::max<std::int64_t>(axes[i].size - 1, 0));
    number.words += fmt::format(", {} {}", axes[i].name, index);
  }
  if (number.token_axis < 0) {
    return usage_error("this tap has no token axis: there is nothing to follow",
                       "show another tap");
  }
  return number;
}

// Of the request whose token is selected, in a layer.
Result<FollowedNumber> follow_token(FollowedNumber number, const NumberAt& at) {
  if (at.step == nullptr || at.row < 0) {
    return usage_error("the tensors of this step are not kept", "go to a step that is");
  }
  number.request = at.step->request_of(at.row);
  number.whose = name_of(at.info.request_names, number.request);
  const bool selects = number.kind == NumberKind::kMargin || number.kind == NumberKind::kThreshold;
  if (selects) {
    const std::int64_t position = at.step->metadata.positions[static_cast<std::size_t>(at.row)];
    number.place.layer = top_k_layer(at.info, at.cursor, position).layer;
  } else {
    number.place.layer = sink_layer(at.info, *at.step, at.cursor).layer;
    number.head = at.selection.head;
  }
  const bool unkept =
      !selects && number.place.layer < 0 && std::ranges::any_of(at.step->ops, [](const auto& op) {
        return as_op_role(op->place.op) == AS_ROLE_ATTENTION;
      });
  if (unkept) {
    return usage_error(
        "what attention read in this step was not recorded",
        "go to a step where it was, or record the scenario with --level full --rows all");
  }
  if (number.place.layer < 0) {
    return usage_error(
        selects ? "no layer of this model selects entries" : "no attention has run in this step",
        selects ? "open another model" : "run the step on");
  }
  const auto op =
      op_of_role(at.info, static_cast<std::size_t>(layer_index(at.info, number.place.layer)),
                 selects ? AS_ROLE_SELECT : AS_ROLE_ATTENTION);
  if (op) number.place.op = *op;
  const std::string head = selects ? "" : fmt::format(" of head {}", number.head);
  number.words = fmt::format("{}{}, layer {}, of {}", number_words(number.kind).title, head,
                             number.place.layer, request_name(at.info, number.request));
  return number;
}

Result<FollowedNumber> follow_block(FollowedNumber number, const NumberAt& at) {
  const Selection& s = at.selection;
  number.block = s.block;
  if (s.block < 0 || (number.kind == NumberKind::kSlot && s.row < 0)) {
    return number.kind == NumberKind::kSlot
               ? usage_error("no row of a block is selected", "click one in Bytes or Window")
               : usage_error("no block is selected", "click one in Pool map or Block tables");
  }
  if (number.kind == NumberKind::kOwner) {
    number.words = fmt::format("owner of block {}", s.block);
    return number;
  }
  number.row = s.row;
  number.group = s.group;
  if (number.group < 0 && at.step != nullptr) {
    const auto contents = contents_of_block(at.info, *at.step, s.block);
    if (contents) number.group = contents->group;
  }
  if (number.group < 0) {
    return usage_error("nobody holds the selected block", "select one that is held");
  }
  number.whose = at.info.layout.groups[static_cast<std::size_t>(number.group)].name;
  number.words = fmt::format("reads and writes of row {} of block {} ({})", number.row,
                             number.block, number.whose);
  return number;
}

}  // namespace

const NumberWords& number_words(NumberKind kind) { return kWords[static_cast<std::size_t>(kind)]; }

bool FollowedNumber::same_as(const FollowedNumber& other) const {
  const bool asked_of = number_words(kind).of_op || request == other.request;
  if (kind != other.kind || place.layer != other.place.layer || place.op != other.place.op ||
      tap != other.tap || !asked_of || head != other.head || block != other.block ||
      row != other.row || group != other.group || token_axis != other.token_axis ||
      index.rank != other.index.rank) {
    return false;
  }
  for (int axis = 0; axis < index.rank; ++axis) {
    if (axis != token_axis && index[axis] != other.index[axis]) return false;
  }
  return true;
}

Result<FollowedNumber> followed_number(NumberKind kind, const NumberAt& at) {
  FollowedNumber number;
  number.kind = kind;
  number.place = {0, at.cursor.layer, at.cursor.op};
  switch (kind) {
    case NumberKind::kElement:
      return follow_element(std::move(number), at);
    case NumberKind::kSink:
    case NumberKind::kLse:
    case NumberKind::kMargin:
    case NumberKind::kThreshold:
      return follow_token(std::move(number), at);
    case NumberKind::kSlot:
    case NumberKind::kOwner:
      return follow_block(std::move(number), at);
    default:
      number.words = fmt::format("{} of {}", number_words(kind).title, place_of(at.cursor));
      return number;
  }
}

std::string not_here(const SessionInfo& info, const FollowedNumber& number) {
  const bool of_block = number.kind == NumberKind::kSlot || number.kind == NumberKind::kOwner;
  if (of_block) {
    if (number.block >= info.num_blocks) {
      return fmt::format("the pool has no block {}", number.block);
    }
    const bool same =
        number.group < to_count(info.layout.groups.size()) &&
        (number.group < 0 || info.layout.groups[to_size(number.group)].name == number.whose);
    return same ? "" : fmt::format("it has no group {} of blocks", number.whose);
  }
  const int layer = number.place.layer < 0 ? -1 : layer_index(info, number.place.layer);
  if (number.place.layer >= 0 && layer < 0) {
    return fmt::format("layer {} does not run", number.place.layer);
  }
  const auto runs = [&](const std::vector<as_op_id>& ops) {
    return std::ranges::find(ops, number.place.op) != ops.end();
  };
  if (layer >= 0 ? !runs(info.ops[to_size(layer)])
                 : !runs(info.ops_before) && !runs(info.ops_after)) {
    return fmt::format("{} does not run there", place_of(number.place));
  }
  if (number_words(number.kind).of_op) return "";
  if (number.request >= 0 && name_of(info.request_names, number.request) != number.whose) {
    return fmt::format("its request {} is not \"{}\"", number.request, number.whose);
  }
  return number.head < std::max(info.config.heads, 1)
             ? ""
             : fmt::format("it has {} heads", info.config.heads);
}

std::optional<NumberValue> number_in(const SessionInfo& info, const StepTrace& step,
                                     const FollowedNumber& number) {
  switch (number.kind) {
    case NumberKind::kElement:
      return element_in(step, number);
    case NumberKind::kSink:
    case NumberKind::kLse:
      return attention_in(info, step, number);
    case NumberKind::kMargin:
    case NumberKind::kThreshold:
      return selection_in(info, step, number);
    case NumberKind::kOwner:
      return owner_in(info, step, number);
    case NumberKind::kSlot:
      return slot_in(info, step, number);
    default:
      return std::nullopt;  // summaries have it
  }
}

std::optional<NumberValue> number_in(const StepSummary& step, const FollowedNumber& number) {
  std::optional<NumberValue> found;
  if (number.kind == NumberKind::kTime) {
    for (const OpTiming& timing : step.timings) {
      if (timing.op != number.place.op || timing.layer != number.place.layer) continue;
      if (timing.microseconds < 0) continue;
      if (!found) found = NumberValue{0, kNone, {}};
      found->value += timing.microseconds;
    }
    return found;
  }
  for (const TapResult& result : step.results) {
    if (result.op != number.place.op || result.layer != number.place.layer) continue;
    if (result.verdict == Verdict::kNotCompared) continue;
    const bool budget = number.kind == NumberKind::kBudget;
    if (!budget && !result.introduced) continue;
    const double value = budget ? result.budget_used : result.introduced->max_abs;
    if (!found || !(value <= found->value)) found = NumberValue{value, kNone, result.tap};
  }
  return found;
}

std::string history_sentence(const NumberHistory& history, const FollowedNumber& number,
                             std::int64_t step, const char* which) {
  if (history.empty()) return fmt::format("{} has no value in any {} step.", number.words, which);
  std::string text = number.words + ": ";
  if (const auto now = history.find(step); now != history.end()) {
    text += fmt::format("{} in step {}, ", format_number(now->second.value), step);
  }
  const auto less = [](const auto& a, const auto& b) { return a.second.value < b.second.value; };
  const auto [low, high] = std::minmax_element(history.begin(), history.end(), less);
  return text + fmt::format("from {} to {} over {} {} {}.", format_number(low->second.value),
                            format_number(high->second.value), history.size(), which,
                            agree(history.size(), "step", "steps"));
}

}  // namespace attnscope
