#include "engine/session/place.h"

#include <fmt/format.h>

#include <algorithm>

#include "engine/family/family.h"
#include "engine/family/models.h"
#include "kernels/params/row_format.h"

namespace attnscope {
namespace {

std::string describe(const Place& place) {
  const as_op_info* op = as_op_find(place.op);
  const std::string name =
      op != nullptr ? op->name : fmt::format("op {}", static_cast<int>(place.op));
  return place.layer < 0 ? fmt::format("{} of step {}", name, place.step)
                         : fmt::format("{} of layer {} of step {}", name, place.layer, place.step);
}

std::string names(std::span<const as_op_id> ops) {
  std::string text;
  for (const as_op_id op : ops)
    text += (text.empty() ? "" : ", ") + std::string(as_op_find(op)->name);
  return text;
}

// Index of an op among `ops`, -1 when it is not there.
int index_of(std::span<const as_op_id> ops, as_op_id op) {
  const auto it = std::ranges::find(ops, op);
  return it != ops.end() ? static_cast<int>(it - ops.begin()) : -1;
}

Result<Cursor> cursor_of(const ModelConfig& config, const ModelGraph& graph, const Place& place) {
  Cursor cursor;
  cursor.step = place.step;
  if (place.layer < 0) {
    cursor.op = index_of(graph.before.ops(), place.op);
    cursor.after_layers = cursor.op < 0;
    if (cursor.after_layers) cursor.op = index_of(graph.after.ops(), place.op);
    if (cursor.op >= 0) return cursor;
    return bad_input(fmt::format("there is no {}", describe(place)),
                     fmt::format("outside the layers run: {}, {}", names(graph.before.ops()),
                                 names(graph.after.ops())));
  }
  const auto layer = std::ranges::find(config.layers, place.layer);
  if (layer == config.layers.end()) {
    return bad_input(
        fmt::format("there is no {}: layer {} does not run", describe(place), place.layer),
        fmt::format("layers that run: {}", fmt::join(config.layers, ", ")));
  }
  cursor.layer = static_cast<int>(layer - config.layers.begin());
  cursor.op = index_of(graph.layer(cursor.layer).ops(), place.op);
  cursor.after_layers = cursor.layer == graph.draft_layer;
  if (cursor.op >= 0) return cursor;
  return bad_input(fmt::format("there is no {}: a {} layer has no such op", describe(place),
                               layer_type_name(config, cursor.layer)),
                   fmt::format("its ops: {}", names(graph.layer(cursor.layer).ops())));
}

// Of an op that not all steps have.
Error did_not_run(const Place& place) {
  if (moves_blocks(place.op)) {
    return bad_input(fmt::format("there is no {}: no block moves there", describe(place)),
                     "swap_out and swap_in run in steps that move blocks");
  }
  return bad_input(
      fmt::format("there is no {}: no request reaches its last known token there", describe(place)),
      "final_norm, lm_head and sample run in steps that sample");
}

// Why a seek did not get there: there is no such place, or an op failed on the way.
Error not_reached(const Session& session, const Place& place, const Error& error) {
  if (!session.finished() && session.cursor().step <= place.step) return error;
  if (session.finished() && session.cursor().step <= place.step) {
    return bad_input(
        fmt::format("there is no step {}", place.step),
        fmt::format("every request is finished after {} steps", session.cursor().step));
  }
  return did_not_run(place);
}

}  // namespace

Place last_place(const Session& session) {
  const StepRecord* record = &session.current();
  if (record->timings.empty()) {
    if (session.history().empty()) return {-1, -1, AS_OP_SCHEDULE};
    record = &session.history().back();
  }
  const OpTiming& last = record->timings.back();
  return {record->step, last.layer, last.op};
}

Result<void> go_to(Session& session, const Place& place) {
  if (place.step < 0) return bad_input(fmt::format("there is no step {}", place.step));
  const auto cursor = cursor_of(session.parts().config, *session.parts().graph, place);
  if (!cursor) return cursor.error();
  if (session.ran_any() && last_place(session) == place) return {};
  if (auto ok = session.seek(*cursor); !ok) return not_reached(session, place, ok.error());
  return session.cancelled() ? Result<void>() : session.op();
}

Result<void> go_to_step_end(Session& session, std::int64_t step) {
  const Place place{step, -1, AS_OP_SCHEDULE};
  if (step < 0) return bad_input(fmt::format("there is no step {}", step));
  const Cursor& here = session.cursor();
  if (session.ran_any() && here == Cursor{step + 1, -1, 0, false}) return {};
  if (here.step != step) {
    if (auto ok = session.seek({step, -1, 0, false}); !ok) {
      return not_reached(session, place, ok.error());
    }
  }
  if (session.cancelled()) return {};
  if (session.finished()) return not_reached(session, place, {});
  return session.step();
}

Result<void> go_to_step_of(Session& session, const Place& place) {
  if (auto ok = go_to_step_end(session, place.step); !ok || session.cancelled()) return ok;
  if (has_run(session.history().back().timings, place)) return {};
  return did_not_run(place);
}

bool has_run(const std::vector<OpTiming>& ops, const Place& place) {
  return std::ranges::any_of(
      ops, [&](const OpTiming& t) { return t.layer == place.layer && t.op == place.op; });
}

Result<BlockBytes> read_block(const Session& session, std::int32_t block) {
  const std::int32_t first = session.serving().first_block(), end = session.serving().end_block();
  if (block != AS_NULL_BLOCK && (block < first || block >= end)) {
    return bad_input(fmt::format("there is no block {}", block),
                     first == 1 ? fmt::format("blocks are 0 to {}", end - 1)
                                : fmt::format("blocks are 0 and {} to {}", first, end - 1));
  }
  BlockBytes out;
  out.block = block;
  out.step = session.cursor().step;
  out.after = last_place(session).step;
  out.owner = session.serving().owners()[static_cast<std::size_t>(block)];
  const std::uint8_t* bytes = session.slab().block(block);
  out.bytes.assign(bytes, bytes + session.slab().own_bytes());
  return out;
}

}  // namespace attnscope
