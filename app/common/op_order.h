// The order in which the ops of a step run, as places: what "next op" and "previous layer" mean.
#pragma once

#include <optional>
#include <vector>

#include "engine/session/snapshot.h"

namespace attnscope {

// All places of one step, in causal order.
std::vector<Place> places_of_step(const SessionInfo& info, std::int64_t step);

// The place before or after one, crossing steps; nullopt before the first op of step 0.
std::optional<Place> place_after(const SessionInfo& info, const Place& place);
std::optional<Place> place_before(const SessionInfo& info, const Place& place);

// The same op one layer on (or back); where that layer lacks the op, its sparse_attention; past the
// layers, the last (first) op outside them.
std::optional<Place> place_in_next_layer(const SessionInfo& info, const Place& place);
std::optional<Place> place_in_previous_layer(const SessionInfo& info, const Place& place);

// Whether the model has this op in this layer (-1: outside the layers).
bool has_place(const SessionInfo& info, const Place& place);

// Index among the running layers of a published layer number; -1 when it does not run.
int layer_index(const SessionInfo& info, int layer);

// Where a newcomer sees most: sparse_attention of the second C4A layer, or of the first, or of the
// last layer.
Place first_view(const SessionInfo& info, std::int64_t step);

}  // namespace attnscope
