#include "app/views/top_k_view.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "app/text/format.h"
#include "app/views/linkage.h"
#include "app/views/op_order.h"
#include "engine/family/models.h"
#include "engine/io/plural.h"
#include "engine/model/numbers.h"
#include "engine/trace/compare.h"
#include "kernels/params/tensor_view.h"

namespace attnscope {
namespace {

// NaN ranks below every number.
double ranked(double score) { return std::isnan(score) ? -kInfinity : score; }

std::string entries_are(std::int64_t n) { return plural(n, "entry is", "entries are"); }

void read_scores(const TopKInput& input, const OpTrace* topk, std::int64_t kept, TopKView& view) {
  const OpTrace* logits_op = input.step.find_role(input.layer, AS_ROLE_SCORE);
  const TapCopy* logits = topk ? topk->tap("logits") : nullptr;
  if (!logits && logits_op) logits = logits_op->tap("logits");
  const TapCopy* lens = topk ? topk->tap("lens") : nullptr;
  if (!lens && logits_op) lens = logits_op->tap("lens");
  if (!logits || !lens) {
    view.why_empty = fmt::format("Layer {} has not scored its entries in step {} yet.", input.layer,
                                 input.step.step);
    return;
  }
  view.visible =
      std::clamp<std::int64_t>(*at<std::int32_t>(lens->value, kept), 0, logits->value.shape[1]);
  view.scores.resize(to_size(view.visible));
  for (std::int64_t e = 0; e < view.visible; ++e) {
    view.scores[to_size(e)] = static_cast<float>(element(logits->value, kept, e));
  }
  view.flags.assign(to_size(view.visible), 0);
}

// Best first, NaN last.
bool ranks_before(float x, float y) { return std::isnan(y) ? !std::isnan(x) : x > y; }

void order_scores(const TopKInput& input, std::int64_t kept, TopKView& view) {
  const OpTrace* logits_op = input.step.find_role(input.layer, AS_ROLE_SCORE);
  const TapCopy* compared = logits_op ? logits_op->tap("logits") : nullptr;
  if (compared && present(compared->reference)) {
    const std::int64_t columns = compared->reference.shape[1];
    view.reference_scores.resize(to_size(view.visible), TopKView::kNone);
    for (std::int64_t e = 0; e < std::min(view.visible, columns); ++e) {
      view.reference_scores[to_size(e)] = element(compared->reference, kept, e);
    }
  }
  view.order.resize(to_size(view.visible));
  std::iota(view.order.begin(), view.order.end(), 0);
  std::stable_sort(view.order.begin(), view.order.end(), [&](std::int32_t a, std::int32_t b) {
    return ranks_before(view.scores[to_size(a)], view.scores[to_size(b)]);
  });
  view.rank.resize(to_size(view.visible));
  for (std::size_t i = 0; i < view.order.size(); ++i) {
    view.rank[to_size(view.order[i])] = static_cast<std::int32_t>(i);
  }
}

void mark(const as_tensor& indices, std::int64_t row, std::uint8_t flag, TopKView& view) {
  for (std::int64_t k = 0; k < indices.shape[1]; ++k) {
    const std::int32_t entry = *at<std::int32_t>(indices, row, k);
    if (entry >= 0 && entry < view.visible) view.flags[to_size(entry)] |= flag;
  }
}

void find_threshold(TopKView& view) {
  for (std::int64_t e = 0; e < view.visible; ++e) {
    const double score = ranked(view.scores[to_size(e)]);
    if (view.flags[to_size(e)] & kInOurs) {
      ++view.selected;
      if (view.at_threshold < 0 || score <= view.threshold) {
        view.threshold = score;
        view.at_threshold = static_cast<std::int32_t>(e);
      }
    } else if (view.runner_up < 0 || score > view.best_unselected) {
      view.best_unselected = score;
      view.runner_up = static_cast<std::int32_t>(e);
    }
  }
  if (view.at_threshold >= 0 && view.runner_up >= 0) {
    view.margin =
        view.threshold == view.best_unselected ? 0 : view.threshold - view.best_unselected;
  }
}

// What compare_top_k says about this token alone; then the margin of each swapped entry.
void compare_sets(const TopKInput& input, const OpTrace& topk, std::int64_t kept, TopKView& view) {
  const TapCopy& indices = *topk.tap("indices");
  const bool compared = present(indices.reference);
  if (compared) mark(indices.reference, kept, kInReference, view);

  const as_tensor ours = one_row(indices.value, kept);
  const as_tensor scores = make_tensor(view.scores.data(), {1, view.visible});
  const auto len = static_cast<std::int32_t>(view.visible);
  const Comparison comparison = compare_top_k(
      ours, compared ? one_row(indices.reference, kept) : ours, scores, &len, input.tolerance);
  view.swap_margin = comparison.figures.max_abs;
  double largest = 0;
  for (float s : view.scores) {
    if (std::isfinite(s)) largest = std::max(largest, std::fabs(static_cast<double>(s)));
  }
  view.score_tolerance = input.tolerance.score_rel * largest;
  view.verdict = !comparison.within    ? Verdict::kWrong
                 : !compared           ? Verdict::kNotCompared
                 : comparison.near_tie ? Verdict::kNearTie
                                       : Verdict::kEqual;
  if (!comparison.within && std::isinf(comparison.budget_used)) {
    const auto colon = comparison.note.find(": ");
    view.complaint =
        colon == std::string::npos ? comparison.note : comparison.note.substr(colon + 2);
  }
  if (!compared) return;

  double best_lost = -kInfinity, worst_taken = kInfinity;
  for (std::int64_t e = 0; e < view.visible; ++e) {
    const std::uint8_t sides = view.flags[to_size(e)] & (kInOurs | kInReference);
    const double score = ranked(view.scores[to_size(e)]);
    const auto entry = static_cast<std::int32_t>(e);
    if (sides == kInOurs) {
      view.only_ours.push_back({entry, view.scores[to_size(e)]});
      worst_taken = std::min(worst_taken, score);
    } else if (sides == kInReference) {
      view.only_reference.push_back({entry, view.scores[to_size(e)]});
      best_lost = std::max(best_lost, score);
    }
  }
  // With nothing on the other side there is nothing it was swapped with.
  const auto judge = [&](std::vector<TopKSwap>& swaps, bool ours_alone) {
    for (TopKSwap& swap : swaps) {
      const double score = ranked(swap.score);
      const double other = ours_alone ? best_lost : worst_taken;
      const double gap = ours_alone ? other - score : score - other;
      swap.margin = score == other || gap < 0 ? 0 : gap;
      if (ours_alone ? view.only_reference.empty() : view.only_ours.empty()) {
        swap.margin = TopKView::kNone;
      }
      swap.near_tie = swap.margin <= view.score_tolerance;
    }
  };
  judge(view.only_ours, true);
  judge(view.only_reference, false);
}

void compare_with_before(const TopKInput& input, TopKView& view) {
  if (!input.before) return;
  const OpTrace* topk = input.before->find_role(input.layer, AS_ROLE_SELECT);
  const TapCopy* indices = topk ? topk->tap("indices") : nullptr;
  const std::int64_t kept = input.before->kept_index(last_row_of(*input.before, view.request));
  if (!indices || kept < 0) return;
  view.has_before = true;
  for (std::int64_t k = 0; k < indices->value.shape[1]; ++k) {
    const std::int32_t entry = *at<std::int32_t>(indices->value, kept, k);
    if (entry < 0) continue;
    if (entry < view.visible) view.flags[to_size(entry)] |= kInBefore;
    if (entry >= view.visible || !(view.flags[to_size(entry)] & kInOurs))
      view.left.push_back(entry);
  }
  for (std::uint8_t flags : view.flags) {
    if (!(flags & kInOurs)) continue;
    flags& kInBefore ? ++view.kept : ++view.entered;
  }
}

// The attention weight that the chosen head gave to each selected entry.
void read_weights(const TopKInput& input, const as_tensor& indices, std::int64_t kept,
                  TopKView& view) {
  const OpTrace* op = input.step.find_role(input.layer, AS_ROLE_ATTENTION);
  const AttentionCopy* attention = op ? op->attention.get() : nullptr;
  if (!attention || input.head < 0 || input.head >= attention->heads) return;
  view.weights.assign(to_size(view.visible), std::numeric_limits<float>::quiet_NaN());
  const std::int64_t columns = attention->window + attention->extra;
  const float* weights =
      attention->weights.data() + (kept * attention->heads + input.head) * columns;
  const std::int64_t* slots = attention->slots.data() + kept * columns;
  // Selected rows stand behind the window, or are all that is listed.
  const std::int64_t first = attention->extra > 0 ? attention->window : 0;
  for (std::int64_t k = 0; k < std::min(indices.shape[1], columns - first); ++k) {
    const std::int32_t entry = *at<std::int32_t>(indices, kept, k);
    const std::int64_t column = first + k;
    if (entry < 0 || entry >= view.visible || slots[column] < 0) continue;
    view.weights[to_size(entry)] = weights[column];
  }
}

}  // namespace

TopKLayer top_k_layer(const SessionInfo& info, const Place& cursor, std::int64_t position) {
  const ModelConfig& config = info.config;
  int at = -1;  // of the cursor among the running layers
  for (int i = 0; i < config.num_layers(); ++i) {
    if (config.layers[to_size(i)] == cursor.layer) at = i;
  }
  if (at >= 0 && layer_selects(config, at)) {
    return {cursor.layer, tokens_per_entry(info, at), {}};
  }
  const as_op_info* op = as_op_find(cursor.op);
  const int from = at >= 0 ? at : op && op->phase == AS_PHASE_AFTER ? config.num_layers() : -1;
  int nearest = -1;  // the earlier of two: it has run already
  for (int i = 0; i < config.num_layers(); ++i) {
    if (!layer_selects(config, i)) continue;
    if (nearest < 0 || std::abs(i - from) < std::abs(nearest - from)) nearest = i;
  }
  TopKLayer out;
  if (nearest < 0) return out;
  out.layer = config.layers[to_size(nearest)];
  out.ratio = tokens_per_entry(info, nearest);
  std::string why;
  if (at < 0) {
    why = fmt::format("{} is outside the layers.", op ? op->name : "The cursor");
  } else {
    // Rows that are kept for good; without any the layer has its window alone.
    const auto& specs = info.layout.specs;
    const auto kept = std::ranges::find_if(specs, [&](const CacheSpec& s) {
      return s.layer == at && s.retention.kind == GroupKind::kFull;
    });
    why = fmt::format("Layer {} is {}: it reads ", cursor.layer, layer_type_name(config, at));
    if (kept == specs.end()) {
      why += "its window alone and selects no entries.";
    } else {
      const std::int64_t entries = (position + 1) / kept->tokens_per_row;
      why += fmt::format("all of its entries{} and selects none.",
                         position < 0 ? "" : fmt::format(" ({})", format_count(entries)));
    }
  }
  out.note = fmt::format("{} Shown: layer {}, the nearest {} layer.", why, out.layer,
                         layer_type_name(config, nearest));
  return out;
}

std::int64_t last_row_of(const StepTrace& step, std::int32_t request) {
  for (auto row = step.kept.rbegin(); row != step.kept.rend(); ++row) {
    if (step.request_of(*row) == request) return *row;
  }
  return -1;
}

TopKView top_k_view(const TopKInput& input) {
  TopKView view;
  view.layer = input.layer;
  view.k = input.info.config.index_topk;
  if (input.layer < 0) {
    view.why_empty = "No layer of this model selects entries.";
    return view;
  }
  const std::int64_t kept = input.step.kept_index(input.row);
  if (kept < 0) {
    view.why_empty = fmt::format(
        "Step {} kept no values of this token: traces of large steps hold the last tokens of every "
        "request. Select a later token.",
        input.step.step);
    return view;
  }
  view.request = input.step.request_of(input.row);
  view.position = input.step.metadata.positions[to_size(input.row)];
  view.ratio = tokens_per_entry(input.info, layer_index(input.info, input.layer));
  const OpTrace* topk = input.step.find_role(input.layer, AS_ROLE_SELECT);
  read_scores(input, topk, kept, view);
  if (!view.why_empty.empty()) return view;
  order_scores(input, kept, view);
  const TapCopy* indices = topk ? topk->tap("indices") : nullptr;
  if (!indices) return view;
  view.chosen = true;
  view.k = indices->value.shape[1];
  mark(indices->value, kept, kInOurs, view);
  find_threshold(view);
  compare_sets(input, *topk, kept, view);
  compare_with_before(input, view);
  read_weights(input, indices->value, kept, view);
  return view;
}

std::optional<TopKEntry> top_k_entry(const TopKInput& input, std::int64_t entry) {
  const std::int64_t kept = input.layer < 0 ? -1 : input.step.kept_index(input.row);
  if (kept < 0 || entry < 0) return std::nullopt;
  TopKView view;
  const OpTrace* topk = input.step.find_role(input.layer, AS_ROLE_SELECT);
  read_scores(input, topk, kept, view);
  if (!view.why_empty.empty() || entry >= view.visible) return std::nullopt;
  TopKEntry out;
  const float score = view.scores[to_size(entry)];
  out.score = score;
  out.visible = view.visible;
  out.k = input.info.config.index_topk;
  for (std::int64_t e = 0; e < view.visible; ++e) {
    const float other = view.scores[to_size(e)];
    out.rank += ranks_before(other, score) || (e < entry && !ranks_before(score, other)) ? 1 : 0;
  }
  const TapCopy* indices = topk ? topk->tap("indices") : nullptr;
  if (!indices) return out;
  out.chosen = true;
  out.k = indices->value.shape[1];
  mark(indices->value, kept, kInOurs, view);
  out.selected = (view.flags[to_size(entry)] & kInOurs) != 0;
  find_threshold(view);
  out.threshold = view.threshold;
  read_weights(input, indices->value, kept, view);
  if (!view.weights.empty()) out.weight = view.weights[to_size(entry)];
  return out;
}

std::string top_k_sentence(const TopKView& view) {
  if (!view.why_empty.empty()) return view.why_empty;
  if (!view.chosen) {
    return fmt::format("{} scored for token {}; the selection has not run yet.",
                       entries_are(view.visible), format_count(view.position));
  }
  const std::int64_t wanted = std::min(view.k, view.visible);
  if (!view.complaint.empty()) {
    std::string lost;
    if (!view.only_reference.empty()) {
      const TopKSwap& worst = *std::max_element(
          view.only_reference.begin(), view.only_reference.end(),
          [](const TopKSwap& a, const TopKSwap& b) { return ranked(a.score) < ranked(b.score); });
      lost = fmt::format("; the best entry left out, {}, scores {}", format_count(worst.entry),
                         format_number(worst.score));
    }
    // A list that is merely too short has said so already.
    const std::string form =
        view.complaint.ends_with("wanted") ? "" : fmt::format(" ({})", view.complaint);
    return fmt::format("{} selected where {} wanted{}{}: wrong.", entries_are(view.selected),
                       plural(wanted, "is", "are"), form, lost);
  }
  if (view.swapped() > 0) {
    const std::string differ =
        fmt::format("{} of {} selected entries {} from the reference; the margins (<= {}) are",
                    format_count(view.swapped()), format_count(wanted),
                    agree(view.swapped(), "differs", "differ"), format_error(view.swap_margin));
    if (view.verdict == Verdict::kNearTie) {
      return differ + " below the score tolerance: near-ties.";
    }
    return differ + fmt::format(" above the score tolerance of {}: wrong.",
                                format_error(view.score_tolerance));
  }
  if (view.visible == 0) {
    return fmt::format("Token {} sees no entry yet: the first one is made of tokens 0-{}.",
                       format_count(view.position), view.ratio - 1);
  }
  if (!view.choosing()) {
    return fmt::format(
        "{} visible {} selected: the indexer has nothing to choose; it starts to choose at token "
        "{}.",
        view.visible == 1 ? "The only" : fmt::format("All {}", format_count(view.visible)),
        agree(view.visible, "entry is", "entries are"),
        format_count(view.ratio * (view.k + 1) - 1));
  }
  std::string text = fmt::format(
      "{} of {} entries are selected; the threshold is {}, the margin to the best unselected {}",
      format_count(view.selected), format_count(view.visible), format_number(view.threshold),
      format_number(view.margin));
  if (view.has_before) {
    text += fmt::format("; {} also selected one step ago", plural(view.kept, "was", "were"));
  }
  return text + ".";
}

std::vector<ScoreColumn> reduce_scores(const TopKView& view, bool by_rank, double begin, double end,
                                       int columns) {
  constexpr float kHuge = std::numeric_limits<float>::infinity();
  std::vector<ScoreColumn> out(to_size(columns), ScoreColumn{{kHuge, kHuge}, {-kHuge, -kHuge}});
  const double per_place = columns / (end - begin);
  const auto first = static_cast<std::int64_t>(std::ceil(std::max(0.0, begin)));
  const auto places = std::min<std::int64_t>(view.visible, std::llround(std::ceil(end)));
  for (std::int64_t place = first; place < places; ++place) {
    const std::int64_t entry = by_rank ? view.order[to_size(place)] : place;
    const auto c = static_cast<std::int64_t>((static_cast<double>(place) - begin) * per_place);
    if (c < 0 || c >= columns) continue;
    ScoreColumn& column = out[to_size(c)];
    const float score = view.scores[to_size(entry)];
    const std::uint8_t flags = view.flags[to_size(entry)];
    column.flags |= flags;
    if (std::isnan(score)) {
      column.nan = true;
    } else {
      const int set = flags & kInOurs ? 1 : 0;
      column.low[set] = std::min(column.low[set], score);
      column.high[set] = std::max(column.high[set], score);
    }
  }
  std::vector<double> margins(to_size(columns), -1);
  for (const auto* swaps : {&view.only_ours, &view.only_reference}) {
    for (const TopKSwap& swap : *swaps) {
      const std::int64_t place = by_rank ? view.rank[to_size(swap.entry)] : swap.entry;
      const auto c = std::floor((static_cast<double>(place) - begin) * per_place);
      if (c < 0 || c >= columns) continue;
      const auto i = static_cast<std::size_t>(c);
      const double margin = std::isnan(swap.margin) ? kInfinity : swap.margin;
      if (margin > margins[i]) {
        margins[i] = margin;
        out[i].swap = swap.entry;
      }
    }
  }
  return out;
}

TopKStep summarise_top_k(const TopKView& view, std::int64_t step) {
  TopKStep out;
  out.step = step;
  out.position = view.position;
  out.visible = view.visible;
  out.selected = view.selected;
  out.threshold = view.threshold;
  out.margin = view.margin;
  out.score_tolerance = view.score_tolerance;
  out.has_before = view.has_before;
  out.kept = view.kept;
  out.entered = view.entered;
  out.left = static_cast<std::int64_t>(view.left.size());
  out.verdict = view.verdict;
  return out;
}

std::string top_k_steps_sentence(const std::vector<TopKStep>& steps) {
  if (steps.empty()) return "No kept step has a selection of this request in this layer.";
  const std::string range = steps.size() == 1
                                ? fmt::format("Step {}", steps.front().step)
                                : fmt::format("Steps {}-{}", steps.front().step, steps.back().step);
  const TopKStep* narrowest = nullptr;
  const TopKStep* moved = nullptr;
  for (const TopKStep& s : steps) {
    if (!std::isnan(s.margin) && (!narrowest || s.margin < narrowest->margin)) narrowest = &s;
    if (s.has_before && (!moved || s.entered > moved->entered)) moved = &s;
  }
  if (!narrowest) {
    return fmt::format("{}: every visible entry was selected, so there is no margin yet.", range);
  }
  std::string text = fmt::format("{}: the narrowest margin is {} (step {})", range,
                                 format_number(narrowest->margin), narrowest->step);
  if (moved) {
    text += fmt::format("; the set changes by at most {} a step",
                        plural(moved->entered, "entry", "entries"));
  }
  return text + ".";
}

}  // namespace attnscope
