// The order in which the ops of a step run, as places: what "next op" and "previous layer" mean.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "engine/session/snapshot.h"
#include "kernels/params/op_table.h"

namespace attnscope {

// All places of one step, in causal order.
std::vector<Place> places_of_step(const SessionInfo& info, std::int64_t step);

// The place before or after one, crossing steps; nullopt before the first op of step 0.
std::optional<Place> place_after(const SessionInfo& info, const Place& place);
std::optional<Place> place_before(const SessionInfo& info, const Place& place);

// The same op one layer on (or back); where that layer lacks the op, its attention; past the
// layers, the last (first) op outside them.
std::optional<Place> place_in_next_layer(const SessionInfo& info, const Place& place);
std::optional<Place> place_in_previous_layer(const SessionInfo& info, const Place& place);

// Whether the model has this op in this layer (-1: outside the layers).
bool has_place(const SessionInfo& info, const Place& place);

// The first op of the i-th running layer that is for this; nullopt = the layer has none.
std::optional<as_op_id> op_of_role(const SessionInfo& info, std::size_t i, as_role role);

// The same of the first layer that has one.
std::optional<as_op_id> op_of_role(const SessionInfo& info, as_role role);

// Index among the running layers of a published layer number; -1 when it does not run.
int layer_index(const SessionInfo& info, int layer);

// What stands for an op in the i-th running layer that lacks it: its attention.
as_op_id op_seen_in(const SessionInfo& info, std::size_t i, const Place& place);

// Where a newcomer sees most: the attention of the second layer that selects entries, or of the
// first, or of the last layer.
Place first_view(const SessionInfo& info, std::int64_t step);

// "7/2/indexer_topk", layer "-" outside the layers: what cursor.goto reads.
std::string place_text(const Place& place);

}  // namespace attnscope
