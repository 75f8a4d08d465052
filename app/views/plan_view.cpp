#include "app/views/plan_view.h"

#include <fmt/format.h>

#include <algorithm>

#include "app/text/format.h"
#include "engine/family/family.h"
#include "engine/model/numbers.h"
#include "kernels/params/attention_params.h"

namespace attnscope {
namespace {

const StepTensor* plan_tensor(const StepMetadata& m, StepTensor::Kind kind) {
  const auto it = std::ranges::find(m.own, kind, &StepTensor::kind);
  return it == m.own.end() || it->empty() ? nullptr : &*it;
}

std::string counted(std::int64_t n, const char* one, const char* more) {
  return fmt::format("{} {}", format_count(n), n == 1 ? one : more);
}

// Blocks that have no multiprocessor of their own come, in their order, to the first that is free.
void place_blocks(PlanView& view, std::int64_t workers, bool by_part) {
  view.load.assign(to_size(workers), 0);
  for (PlanBar& bar : view.bars) {
    bar.worker = by_part ? bar.part : std::ranges::min_element(view.load) - view.load.begin();
    std::int64_t& load = view.load[to_size(bar.worker)];
    bar.start = load;
    load += bar.tiles();
    view.busiest = std::max(view.busiest, load);
  }
  std::int64_t all = 0;
  for (const std::int64_t load : view.load) {
    view.working += load > 0 ? 1 : 0;
    all += load;
  }
  view.mean = view.working > 0 ? static_cast<double>(all) / static_cast<double>(view.working) : 0;
}

std::string sentence_of(const PlanView& view) {
  std::string text = fmt::format(
      "{} in {} on {} of {}", counted(view.rows, "row", "rows"),
      counted(view.splits, "split", "splits"), format_count(view.working * view.shared_by),
      counted(view.multiprocessors, "multiprocessor", "multiprocessors"));
  text += fmt::format(": the busiest works {}, mean {:.1f}", counted(view.busiest, "tile", "tiles"),
                      view.mean);
  return text + (view.combined == 0
                     ? "; nothing is combined"
                     : fmt::format("; {} combined", counted(view.combined, "row is", "rows are")));
}

std::string row_sentence_of(const PlanView& view, std::int64_t row) {
  if (view.selected.empty()) return fmt::format("Row {} has no split", row);
  const PlanBar& last = view.bars[to_size(view.selected.back())];
  if (view.selected.size() == 1) {
    return fmt::format("Row {}: {} in one split, written without combining", row,
                       counted(last.end, "tile", "tiles"));
  }
  return fmt::format("Row {}: {} in {} splits, combined in this order", row,
                     counted(last.end, "tile", "tiles"), view.selected.size());
}

PlanView empty_plan(PlanView view, std::string why) {
  view.bars.clear();
  view.why_empty = std::move(why);
  return view;
}

}  // namespace

PlanView plan_view(const ModelConfig& config, const CacheLayout& layout, const StepMetadata& step,
                   int layer, std::int64_t row) {
  PlanView view;
  const std::int32_t rule = config.switches.attention_plan;
  if (rule == AS_PLAN_NONE) {
    view.off = true;
    return empty_plan(std::move(view),
                      "This run has no plan of its attention: each lane cuts lists as it likes. A "
                      "profile with attention_plan=flashmla, or =own, makes one in every step.");
  }
  const StepTensor* rows = plan_tensor(step, StepTensor::Kind::kPlanRows);
  const StepTensor* splits = plan_tensor(step, StepTensor::Kind::kPlanSplits);
  const StepTensor* counts = plan_tensor(step, StepTensor::Kind::kPlanCounts);
  const std::int64_t tokens = step.num_tokens_in_step();
  if (rows == nullptr || splits == nullptr || counts == nullptr) {
    return empty_plan(std::move(view), "This step's plan is not made yet, or was not recorded.");
  }
  const int of_layer = std::max(layer, 0);
  const std::int64_t type = splits->list_of_layer(layout, of_layer);
  if (type >= splits->lists) return empty_plan(std::move(view), "This layer has no plan.");
  view.rule = rule == AS_PLAN_OWN ? "own" : "flashmla";
  view.type = family_of(config).layer_type(config, of_layer);
  view.multiprocessors = config.switches.multiprocessors;
  view.shared_by = (config.heads + AS_PLAN_HEADS - 1) / AS_PLAN_HEADS;
  const std::int64_t workers = std::max<std::int64_t>(1, view.multiprocessors / view.shared_by);
  const auto number = [](const StepTensor& of, std::int64_t i) {
    return std::int64_t{of.numbers[to_size(i)]};
  };
  view.splits = number(*counts, type * 2);
  view.combined = number(*counts, type * 2 + 1);
  const std::int64_t room = splits->rows(tokens);
  const bool by_part = rule == AS_PLAN_FLASHMLA;
  bool sound = view.splits >= 0 && view.splits <= room;
  for (std::int64_t n = 0; sound && n < view.splits; ++n) {
    const auto column = [&](as_plan_column c) {
      return number(*splits, (type * room + n) * AS_PLAN_COLUMNS + c);
    };
    PlanBar bar;
    bar.split = n;
    bar.row = column(AS_PLAN_ROW);
    bar.begin = column(AS_PLAN_BEGIN);
    bar.end = column(AS_PLAN_END);
    bar.part = column(AS_PLAN_PART);
    sound = bar.row >= 0 && bar.row < tokens && bar.begin >= 0 && bar.end >= bar.begin &&
            bar.part >= 0 && (!by_part || bar.part < workers);
    view.bars.push_back(bar);
  }
  if (!sound) {
    return empty_plan(std::move(view),
                      "The plan of this step names rows, tiles or parts that there cannot be: see "
                      "attention_plan in the pipeline.");
  }
  place_blocks(view, workers, by_part);
  for (std::int64_t t = 0; t < tokens; ++t) {
    view.rows += number(*rows, (type * tokens + t) * 2 + 1) > 0 ? 1 : 0;
  }
  view.sentence = sentence_of(view);
  if (row < 0 || row >= tokens) return view;
  for (const PlanBar& bar : view.bars) {
    if (bar.row == row) view.selected.push_back(bar.split);
  }
  view.row_sentence = row_sentence_of(view, row);
  return view;
}

}  // namespace attnscope
