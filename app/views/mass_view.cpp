#include "app/views/mass_view.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <numeric>

#include "app/text/format.h"
#include "engine/model/numbers.h"

namespace attnscope {
namespace {

// How few of the weights, the largest first, add up to half of all.
std::int64_t rows_of_half(std::vector<float> weights) {
  std::ranges::sort(weights, std::greater<>());
  const double half = std::accumulate(weights.begin(), weights.end(), 0.0) / 2;
  double sum = 0;
  std::int64_t rows = 0;
  for (const float w : weights) {
    if (sum >= half) break;
    sum += static_cast<double>(w);
    ++rows;
  }
  return rows;
}

std::string rows_in_words(std::int64_t rows) { return plural(rows, "row", "rows"); }

}  // namespace

MassView mass_view(const SessionInfo& info, const StepTrace& step, int layer, std::int64_t row,
                   int head) {
  MassView view;
  view.layer = layer;
  const OpTrace* op = step.find_role(layer, AS_ROLE_ATTENTION);
  const AttentionCopy* attention = op != nullptr ? op->attention.get() : nullptr;
  const std::int64_t kept = step.kept_index(row);
  if (attention == nullptr || kept < 0) {
    view.why_empty =
        attention == nullptr
            ? fmt::format("No attention has run in step {} yet.", step.step)
            : fmt::format("Step {} kept no values of this token. Select a later one.", step.step);
    return view;
  }
  view.position = step.metadata.positions[to_size(row)];
  view.heads = attention->heads;
  view.rows = window_view(info, step, layer, row, head);
  auto& slots = view.rows.slots;
  if (std::ssize(slots) > attention->window) slots.resize(to_size(attention->window));
  const std::int64_t columns = attention->window + attention->extra;
  for (std::int64_t h = 0; h < view.heads; ++h) {
    const auto first = attention->weights.begin() + (kept * attention->heads + h) * columns;
    view.weight.insert(view.weight.end(), first, first + std::ssize(slots));
  }
  if (head < 0 || head >= view.heads || slots.empty()) {
    view.sentence = fmt::format("No layer selects: token {} attends {} {} in layer {}.",
                                format_count(view.position), rows_in_words(std::ssize(slots)),
                                view.rows.whole ? "in all" : "of its window", layer);
    return view;
  }
  const auto first = view.weight.begin() + head * std::ssize(slots);
  const std::int64_t half = rows_of_half({first, first + std::ssize(slots)});
  const auto seen = std::count_if(first, first + std::ssize(slots), [](float w) { return w > 0; });
  const std::string all = info.config.dense.mask.empty() ? view.rows.whole ? "all" : "the window's"
                                                         : fmt::format("{} of", format_count(seen));
  view.sentence =
      fmt::format("No layer selects: head {} of layer {} attends {} {}; {} half of the weight.",
                  head, layer, all, rows_in_words(std::ssize(slots)), plural(half, "has", "have"));
  return view;
}

}  // namespace attnscope
