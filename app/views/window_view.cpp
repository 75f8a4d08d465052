#include "app/views/window_view.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "app/text/format.h"
#include "app/views/linkage.h"
#include "app/views/op_order.h"
#include "engine/family/deepseek_v4/caches.h"

namespace attnscope {
namespace {

// "41, 57 and 58"
std::string list_of(const std::vector<std::int32_t>& blocks) {
  std::string text;
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    if (i > 0) text += i + 1 == blocks.size() ? " and " : ", ";
    text += fmt::format("{}", blocks[i]);
  }
  return text;
}

double mean_over_heads(const AttentionCopy& a, const std::vector<float>& values, std::int64_t kept,
                       std::int64_t column, int head) {
  const std::int64_t columns = a.window + a.extra;
  const auto at = [&](std::int64_t h) {
    return static_cast<double>(
        values[static_cast<std::size_t>((kept * a.heads + h) * columns + column)]);
  };
  if (head >= 0 && head < a.heads) return at(head);
  double sum = 0;
  for (std::int64_t h = 0; h < a.heads; ++h) sum += at(h);
  return sum / static_cast<double>(std::max<std::int64_t>(a.heads, 1));
}

}  // namespace

WindowView window_view(const SessionInfo& info, const StepTrace& step, int layer,
                       std::int64_t token_row, int head) {
  WindowView view;
  const StepMetadata& m = step.metadata;
  const int index = layer_index(info, layer);
  const CacheSpec* spec = index < 0 ? nullptr : info.layout.find(index, kSwaCache);
  const auto tokens = static_cast<std::int64_t>(m.positions.size());
  if (spec == nullptr) {
    view.sentence = "Outside the layers there is no window: choose an op of a layer.";
    return view;
  }
  const StepTensor* lists = m.lists_of(kSwaCache);
  if (token_row < 0 || token_row >= tokens || lists == nullptr || lists->empty()) {
    view.sentence = "This step has not come to its window lists yet.";
    return view;
  }
  const auto& swa = info.layout.swa_groups;
  const auto list = std::find(swa.begin(), swa.end(), spec->group) - swa.begin();
  const auto row = static_cast<std::size_t>(token_row);
  view.valid = true;
  view.group = spec->group;
  view.window = info.config.window;
  const std::int64_t position = m.positions[row];
  // A lane wrote it, perhaps a wrong one.
  const StepTensor& lengths = m.own[static_cast<std::size_t>(lists->lengths)];
  const std::int64_t length = std::clamp<std::int64_t>(lengths.numbers[row], 0, view.window);
  const std::int32_t request = step.request_of(token_row);
  const RequestView* owner = find_request(step, request);
  const OpTrace* op = step.find_role(layer, AS_ROLE_ATTENTION);
  const AttentionCopy* weights = op != nullptr ? op->attention.get() : nullptr;
  const std::int64_t kept = step.kept_index(token_row);
  std::vector<std::int32_t> blocks;
  for (std::int64_t i = 0; i < length; ++i) {
    WindowSlot slot;
    slot.position = position - length + 1 + i;
    const auto at = static_cast<std::size_t>((list * tokens + token_row) * view.window + i);
    slot.slot = lists->numbers[at];
    slot.block = static_cast<std::int32_t>(slot.slot / spec->rows_per_block);
    slot.row = static_cast<std::int32_t>(slot.slot % spec->rows_per_block);
    if (owner != nullptr && slot.position >= 0 && slot.position < owner->request.num_tokens()) {
      slot.token = owner->request.tokens[static_cast<std::size_t>(slot.position)];
    }
    if (weights != nullptr && kept >= 0) {
      slot.has_weight = true;
      slot.logit = mean_over_heads(*weights, weights->logits, kept, i, head);
      slot.weight = mean_over_heads(*weights, weights->weights, kept, i, head);
      view.largest_weight = std::max(view.largest_weight, slot.weight);
    }
    if (slot.slot >= 0 && (blocks.empty() || blocks.back() != slot.block)) {
      blocks.push_back(slot.block);
    }
    view.slots.push_back(slot);
  }
  if (position >= view.window) view.left.push_back(position - view.window);
  if (owner != nullptr) {
    const auto& table = owner->tables[static_cast<std::size_t>(spec->group)];
    const std::int64_t first = (position - length + 1) / spec->block_size();
    for (std::int64_t i = 0; i < first && i < static_cast<std::int64_t>(table.size()); ++i) {
      view.nulls_before += table[static_cast<std::size_t>(i)] == 0 ? 1 : 0;
    }
  }
  const std::string group = info.layout.groups[static_cast<std::size_t>(spec->group)].name;
  view.sentence = fmt::format("Window of token {}: positions {}-{} in {} {} ({}).",
                              format_count(position), position - length + 1, position,
                              blocks.size() == 1 ? "block" : "blocks", list_of(blocks), group);
  if (view.nulls_before > 0) {
    view.sentence +=
        fmt::format(" {} table {} before them {} null and {} not read.",
                    format_count(view.nulls_before), view.nulls_before == 1 ? "entry" : "entries",
                    view.nulls_before == 1 ? "is" : "are", view.nulls_before == 1 ? "was" : "were");
  }
  if (length < view.window) {
    view.sentence +=
        fmt::format(" {} of its {} slots are not there yet.", view.window - length, view.window);
  }
  return view;
}

}  // namespace attnscope
