#include "app/views/slot_traffic.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <vector>

#include "app/text/format.h"
#include "app/views/linkage.h"
#include "app/views/op_order.h"
#include "engine/io/plural.h"

namespace attnscope {
namespace {

// Tokens whose lists of an attention op name the slot.
std::int64_t tokens_that_list(const AttentionCopy& attention, bool window, std::int64_t slot) {
  const std::int64_t columns = attention.window + attention.extra;
  const std::int64_t first = window ? 0 : attention.window;
  const std::int64_t last = window ? attention.window : columns;
  const auto tokens = static_cast<std::int64_t>(attention.window_len.size());
  std::int64_t found = 0;
  for (std::int64_t t = 0; t < tokens; ++t) {
    const auto* list = attention.slots.data() + t * columns;
    if (std::find(list + first, list + last, slot) != list + last) ++found;
  }
  return found;
}

std::string layers_text(const std::vector<int>& layers) {
  std::string text = agree(layers.size(), "layer ", "layers ");
  for (std::size_t i = 0; i < layers.size(); ++i) {
    text += fmt::format("{}{}", i == 0 ? "" : ", ", layers[i]);
  }
  return text;
}

}  // namespace

SlotTraffic slot_traffic(const SessionInfo& info, const StepTrace& step, const SlotName& slot) {
  SlotTraffic out;
  std::map<std::string, std::vector<int>> writers;
  std::map<std::int64_t, std::vector<int>> readers;  // layers by their number of tokens
  bool listed = false;
  for (const auto& op : step.ops) {
    for (const RowsCopy& rows : op->rows) {
      const std::int64_t at = std::int64_t{slot.block} * rows.rows_per_block + slot.row;
      if (rows.group != slot.group || slot.row >= rows.rows_per_block) continue;
      if (!std::ranges::count(rows.slots, at)) continue;
      std::vector<int>& layers = writers[as_op_find(op->place.op)->name];
      if (layers.empty() || layers.back() != op->place.layer) layers.push_back(op->place.layer);
      ++out.writes;
    }
    const int layer = layer_index(info, op->place.layer);
    if (op->attention == nullptr || layer < 0) continue;
    std::int64_t tokens = 0;
    for (const int index : info.layout.groups[static_cast<std::size_t>(slot.group)].specs) {
      const CacheSpec& spec = info.layout.specs[static_cast<std::size_t>(index)];
      if (spec.layer != info.layout.owner(layer) || spec.id.role == AS_CACHE_INDEX) continue;
      if (slot.row >= spec.rows_per_block) continue;
      const AttentionCopy& attention = *op->attention;
      const bool window = attention.window > 0 && spec.tokens_per_row == 1;
      if ((window ? attention.window : attention.extra) == 0) continue;
      listed = true;
      tokens = std::max(
          tokens, tokens_that_list(attention, window,
                                   std::int64_t{slot.block} * spec.rows_per_block + slot.row));
    }
    out.reads += tokens;
    if (tokens > 0) readers[tokens].push_back(op->place.layer);
  }
  for (const auto& [op, layers] : writers) {
    out.words += fmt::format("{}written by {}{}", out.words.empty() ? "" : "; ", op,
                             layers.front() < 0 ? "" : ", " + layers_text(layers));
  }
  if (!listed) {
    out.reads = static_cast<std::int64_t>(readers_of_block(info, step, slot.block).size());
    if (out.reads > 0) {
      out.words += fmt::format("{}its block is read by {}", out.words.empty() ? "" : "; ",
                               plural(out.reads, "token", "tokens"));
    }
  }
  for (const auto& [tokens, layers] : readers) {
    out.words += fmt::format("{}read by {} in {}", out.words.empty() ? "" : "; ",
                             plural(tokens, "token", "tokens"), layers_text(layers));
  }
  return out;
}

}  // namespace attnscope
