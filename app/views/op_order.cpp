#include "app/views/op_order.h"

#include <fmt/format.h>

#include <algorithm>

namespace attnscope {

std::vector<Place> places_of_step(const SessionInfo& info, std::int64_t step) {
  std::size_t count = info.ops_before.size() + info.ops_after.size();
  for (const auto& ops : info.ops) count += ops.size();
  std::vector<Place> places;
  places.reserve(count);
  for (const as_op_id op : info.ops_before) places.push_back({step, -1, op});
  for (std::size_t i = 0; i < info.ops.size(); ++i) {
    for (const as_op_id op : info.ops[i]) places.push_back({step, info.config.layers[i], op});
  }
  for (const as_op_id op : info.ops_after) places.push_back({step, -1, op});
  return places;
}

std::optional<Place> place_after(const SessionInfo& info, const Place& place) {
  const std::vector<Place> places = places_of_step(info, place.step);
  const auto here = std::find(places.begin(), places.end(), place);
  if (here == places.end()) return std::nullopt;
  if (here + 1 != places.end()) return *(here + 1);
  Place next = places.front();
  next.step = place.step + 1;
  return next;
}

std::optional<Place> place_before(const SessionInfo& info, const Place& place) {
  const std::vector<Place> places = places_of_step(info, place.step);
  const auto here = std::find(places.begin(), places.end(), place);
  if (here == places.end()) return std::nullopt;
  if (here != places.begin()) return *(here - 1);
  if (place.step == 0) return std::nullopt;
  Place last = places.back();
  last.step = place.step - 1;
  return last;
}

bool has_place(const SessionInfo& info, const Place& place) {
  const auto in = [&](const std::vector<as_op_id>& ops) {
    return std::find(ops.begin(), ops.end(), place.op) != ops.end();
  };
  if (place.step < 0) return false;
  if (place.layer < 0) return in(info.ops_before) || in(info.ops_after);
  const int index = layer_index(info, place.layer);
  return index >= 0 && in(info.ops[static_cast<std::size_t>(index)]);
}

int layer_index(const SessionInfo& info, int layer) {
  const auto& layers = info.config.layers;
  const auto found = std::find(layers.begin(), layers.end(), layer);
  return found == layers.end() ? -1 : static_cast<int>(found - layers.begin());
}

std::optional<as_op_id> op_of_role(const SessionInfo& info, std::size_t i, as_role role) {
  if (i >= info.ops.size()) return std::nullopt;
  const auto& ops = info.ops[i];
  const auto at =
      std::find_if(ops.begin(), ops.end(), [&](as_op_id op) { return as_op_role(op) == role; });
  return at != ops.end() ? std::optional(*at) : std::nullopt;
}

std::optional<as_op_id> op_of_role(const SessionInfo& info, as_role role) {
  for (std::size_t i = 0; i < info.ops.size(); ++i) {
    if (const auto op = op_of_role(info, i, role)) return op;
  }
  return std::nullopt;
}

as_op_id op_seen_in(const SessionInfo& info, std::size_t i, const Place& place) {
  if (has_place(info, {place.step, info.config.layers[i], place.op})) return place.op;
  return op_of_role(info, i, AS_ROLE_ATTENTION).value_or(place.op);
}

namespace {

// The op, or what stands for it, in the i-th running layer.
Place in_layer(const SessionInfo& info, const Place& place, std::size_t i) {
  return {place.step, info.config.layers[i], op_seen_in(info, i, place)};
}

bool is_after(const SessionInfo& info, as_op_id op) {
  return std::find(info.ops_after.begin(), info.ops_after.end(), op) != info.ops_after.end();
}

}  // namespace

std::optional<Place> place_in_next_layer(const SessionInfo& info, const Place& place) {
  if (info.ops.empty()) return std::nullopt;
  if (place.layer < 0) {
    if (!is_after(info, place.op)) return in_layer(info, place, 0);
    return Place{place.step + 1, -1, info.ops_before.front()};
  }
  const auto next = static_cast<std::size_t>(layer_index(info, place.layer)) + 1;
  if (next < info.ops.size()) return in_layer(info, place, next);
  return Place{place.step, -1, info.ops_after.back()};
}

std::optional<Place> place_in_previous_layer(const SessionInfo& info, const Place& place) {
  if (info.ops.empty()) return std::nullopt;
  if (place.layer < 0) {
    if (is_after(info, place.op)) return in_layer(info, place, info.ops.size() - 1);
    if (place.step == 0) return std::nullopt;
    return Place{place.step - 1, -1, info.ops_after.back()};
  }
  const int index = layer_index(info, place.layer);
  if (index > 0) return in_layer(info, place, static_cast<std::size_t>(index - 1));
  return Place{place.step, -1, info.ops_before.front()};
}

Place first_view(const SessionInfo& info, std::int64_t step) {
  std::size_t at = info.config.layers.size() - 1;
  int seen = 0;
  for (std::size_t i = 0; i < info.config.layers.size() && seen < 2; ++i) {
    if (!op_of_role(info, i, AS_ROLE_SELECT)) continue;
    at = i;
    ++seen;
  }
  const auto attention = op_of_role(info, at, AS_ROLE_ATTENTION);
  return {step, info.config.layers[at], attention.value_or(AS_OP_SCHEDULE)};
}

std::string place_text(const Place& place) {
  const std::string layer = place.layer < 0 ? "-" : std::to_string(place.layer);
  return fmt::format("{}/{}/{}", place.step, layer, as_op_find(place.op)->name);
}

}  // namespace attnscope
