#include "app/views/reach_view.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "app/text/format.h"
#include "app/views/op_order.h"
#include "app/views/sided_rows.h"
#include "engine/family/models.h"
#include "engine/model/numbers.h"

namespace attnscope {
namespace {

const GroupSpec& seen_by(const SessionInfo& info, int index) {
  return token_rows(info.layout, index)->retention;
}

// Through layers 0 .. index, from the last one down: what each sees of what the next one looks at.
std::int64_t first_reached(const SessionInfo& info, int index, std::int64_t position) {
  for (; index >= 0; --index) position = seen_by(info, index).first_seen(position);
  return position;
}

// "5 x (32 - 1) + 1", where all layers to this one have the same window; empty = they have not, or
// the request is shorter.
std::string window_formula(const SessionInfo& info, int index, std::int64_t reached,
                           std::int64_t position) {
  std::set<std::int32_t> windows;
  for (int i = 0; i <= index; ++i) {
    const GroupSpec& seen = seen_by(info, i);
    windows.insert(seen.kind == GroupKind::kSliding ? seen.window : 0);
  }
  if (windows.size() != 1 || *windows.begin() == 0 || reached > position) return {};
  return fmt::format(", {} x ({} - 1) + 1", index + 1, *windows.begin());
}

std::string reach_sentence(const SessionInfo& info, const ReachView& view) {
  const ReachRow& row = view.rows[to_size(view.selected)];
  const int first_layer = view.rows.front().layer;
  const std::string through = row.layer == first_layer
                                  ? fmt::format("Through layer {}", row.layer)
                                  : fmt::format("Through layers {}-{}", first_layer, row.layer);
  const std::int64_t reached = view.position - row.first + 1;
  std::string text = fmt::format("{} token {} reaches {}", through, format_count(view.position),
                                 plural(reached, "token", "tokens"));
  const GroupSpec& seen = seen_by(info, view.selected);
  if (seen.kind == GroupKind::kFull) return text + ": this layer sees all before it.";
  if (row.first == 0) return text + ": all there are.";
  text += window_formula(info, view.selected, reached, view.position);
  text += fmt::format(": positions {}-{}.", row.first, view.position);
  const bool chunks = std::all_of(view.rows.begin(), view.rows.begin() + view.selected + 1,
                                  [](const ReachRow& r) { return r.type == "chunked"; });
  return chunks ? text + " Chunks do not add up." : text;
}

}  // namespace

ReachView reach_view(const SessionInfo& info, int layer, std::int64_t position) {
  ReachView view;
  const int index = layer_index(info, layer);
  if (index < 0 || position < 0 || !info.layout.swa_groups.empty()) return view;
  if (info.layout.groups.empty()) return view;  // each layer reaches all of the request
  if (is_sided(info)) return view;              // all of the source, or of the decoder
  bool bounded = false;
  for (int i = 0; i < info.config.num_layers(); ++i) {
    bounded = bounded || seen_by(info, i).kind != GroupKind::kFull;
    view.rows.push_back({info.config.layers[to_size(i)], layer_type_name(info.config, i),
                         first_reached(info, i, position)});
  }
  if (!bounded) return {};
  view.position = position;
  view.selected = index;
  view.sentence = reach_sentence(info, view);
  return view;
}

}  // namespace attnscope
