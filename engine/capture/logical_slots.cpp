#include "engine/capture/logical_slots.h"

#include <algorithm>

#include "engine/family/family.h"
#include "kernels/params/op_table.h"

namespace attnscope {
namespace {

// Index among the running layers, -1 = none.
int layer_index(const SessionInfo& info, int layer) {
  const auto& layers = info.config.layers;
  const auto it = std::ranges::find(layers, layer);
  return it == layers.end() ? -1 : static_cast<int>(it - layers.begin());
}

SlotSpace space_of(const CacheSpec* spec) {
  return spec != nullptr ? SlotSpace{spec->group, spec->rows_per_block} : SlotSpace{};
}

// Of entries that stand for so many tokens, in whichever layer.
SlotSpace entry_space(const SessionInfo& info, std::int64_t tokens_per_row) {
  for (const CacheSpec& spec : info.layout.specs) {
    if (spec.tokens_per_row == tokens_per_row) return space_of(&spec);
  }
  return {};
}

// One row per token of a group's blocks, as slot_mapping counts them.
SlotSpace token_space(const SessionInfo& info, std::int64_t group) {
  if (group < 0 || group >= static_cast<std::int64_t>(info.layout.groups.size())) return {};
  return {static_cast<int>(group),
          info.layout.groups[static_cast<std::size_t>(group)].block_tokens};
}

}  // namespace

TapMeaning tap_meaning(as_op_id op, std::string_view tap) {
  if (as_op_has(op, AS_BY_ENGINE) != 0) return TapMeaning::kPlacement;
  if (tap == "table" || tap == "tables" || tap == "token_to_req" || tap == "query_start_loc" ||
      tap == "seq_lens" || tap == "source_lens" || tap == "groups" || tap == "token_to_seq" ||
      tap == "local_query_start_loc" || tap == "local_seq_lens" || tap == "local_tables") {
    return TapMeaning::kPlacement;
  }
  const bool slots = tap.find("slots") != std::string_view::npos;
  const bool lists = as_op_role(op) == AS_ROLE_ATTENTION ||
                     (as_op_role(op) == AS_ROLE_INDEX_LIST && !lists_selected(op));
  if (slots || (lists && tap.find("indices") != std::string_view::npos)) return TapMeaning::kSlots;
  return TapMeaning::kValues;
}

SlotSpace slot_space(const SessionInfo& info, const Place& place, std::string_view tap,
                     std::int64_t outer) {
  const CacheLayout& layout = info.layout;
  const Family& family = family_of(info.config);
  if (const Node* node = example_graph(family).before.find(place.op)) {
    const auto own = family.step_tensors(info.config, layout);
    const Binding* bound = node->find(tap);
    const StepTensor* entries = bound != nullptr ? find_tensor(own, bound->name) : nullptr;
    if (entries == nullptr) return token_space(info, outer);
    if (entries->lists_by != StepTensor::ListsBy::kWindowGroup) {
      return entry_space(info, entries->tokens_per_row);
    }
    if (outer < 0 || outer >= static_cast<std::int64_t>(layout.swa_groups.size())) return {};
    return token_space(info, layout.swa_groups[static_cast<std::size_t>(outer)]);
  }
  // Ops before the layers that the family's example has not: models with them have one group.
  const as_op_info* op = as_op_find(place.op);
  if (op != nullptr && op->phase == AS_PHASE_BEFORE) return token_space(info, 0);
  const int layer = layer_index(info, place.layer);
  if (layer < 0) return {};
  // Selected entries lie where the table shows that the op reads beside them.
  if (lists_selected(place.op)) return space_of(layout.find(layer, table_cache(place.op)));
  return space_of(layout.find(layer, listed_cache(place.op, tap)));
}

std::int64_t logical_row(const StepTrace& trace, std::int32_t request, const SlotSpace& space,
                         std::int64_t slot) {
  if (slot < 0) return -1;
  const auto r = static_cast<std::size_t>(request), g = static_cast<std::size_t>(space.group);
  if (space.group < 0 || space.rows_per_block <= 0 || request < 0 || r >= trace.requests.size() ||
      g >= trace.requests[r].tables.size()) {
    return -2 - slot;
  }
  const auto& table = trace.requests[r].tables[g];
  const std::int64_t block = slot / space.rows_per_block;
  const auto it = std::find(table.begin(), table.end(), block);
  if (it == table.end() || block == 0) return -2 - slot;
  return (it - table.begin()) * space.rows_per_block + slot % space.rows_per_block;
}

}  // namespace attnscope
