// The ops of one layer (or of a step's beginning or end) as a flow chart: which op reads what which
// other op wrote, and where the cards stand.
//
//   PipelineChart chart = pipeline_chart(graph, graph.layer(i));   // columns and rows, no pixels
//   PipelineState state = pipeline_state(snapshot, step, place);   // what each op did
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "app/views/budget.h"
#include "engine/family/family.h"
#include "engine/session/snapshot.h"

namespace attnscope {

struct PipelineNode {
  as_op_id op = AS_OP_SCHEDULE;
  std::string label;  // its name in its row: without "indexer" where the row says so
  int column = 0, row = 0;
};

// A connector between two cards. It leaves to the right of `from` and reaches the left of `to`:
// along the row of `from` (kEarly: in the row of `to`), or, where cards stand in the way of both,
// through the gap below the row of `to`.
struct PipelineEdge {
  enum class Route { kLate, kEarly, kBelow };
  int from = 0, to = 0;  // indexes of nodes
  Route route = Route::kLate;
  bool sums = false;  // over the ranks of a model under tensor parallelism
};

struct PipelineChart {
  int columns = 0, rows = 0;
  std::vector<PipelineNode> nodes;  // in causal order
  std::vector<PipelineEdge> edges;
  std::vector<std::string> captions;  // by row; empty for the main path
  // Column from which on only row 0 holds cards and connectors.
  int free_from = 0;
  bool taken(int row, int column) const;
};
PipelineChart pipeline_chart(const ModelGraph& graph, const LayerGraph& part);

// A part of a step: the layer, or the ops before or after all layers.
struct PipelinePart {
  enum class Kind { kBefore, kLayer, kAfter } kind = Kind::kLayer;
  int layer = -1;  // published
  friend bool operator==(const PipelinePart&, const PipelinePart&) = default;
};
PipelinePart pipeline_part(const SessionInfo& info, const Place& cursor);
std::span<const as_op_id> pipeline_ops(const SessionInfo& info, const PipelinePart& part);
const LayerGraph& pipeline_graph(const SessionInfo& info, const ModelGraph& graph,
                                 const PipelinePart& part);

struct PipelineCard {
  as_op_id op = AS_OP_SCHEDULE;
  std::string label;
  bool ran = false;
  bool absent = false;  // the step has no such op: those that move blocks are some steps' alone
  double microseconds = -1;  // < 0: not known any more
  std::int64_t taps = 0, compared = 0;
  Budget budget;           // the largest
  std::string budget_tap;  // where it was used
  std::string note;        // of the first wrong tap: its name and the evidence
  Verdict worst = Verdict::kNotCompared;
  std::string lane;                // who computed it
  bool other_lane = false;         // not the lane of most ops: a planted bug, a plugin
  std::string part;                // of a rank: what of the op's result is its own
  std::vector<std::string> lives;  // how long its results live, and what nobody reads behind it
  const OpLaunches* launches = nullptr;  // where known
  const OpTrace* trace = nullptr;
};

struct PipelineState {
  std::int64_t step = -1;
  PipelinePart part;
  std::string title;  // "Layer 2 (C4A)", "Before the layers"
  std::vector<PipelineCard> cards;
  int ran = 0;
  int ranks = 1;      // that the model is dealt out to
  bool kept = false;  // the step's trace is there
};
PipelineState pipeline_state(const Snapshot& snapshot, const PipelinePart& part, std::int64_t step);
std::string pipeline_sentence(const PipelineState& state);
Verdict pipeline_verdict(const PipelineState& state);

// What an op does and what it read and wrote, in lines.
std::string pipeline_card_text(const PipelineCard& card);
// "f32 [1,512]" of a tensor.
std::string tensor_text(const as_tensor& tensor);

// The chips above the cards: before, the layers, after.
struct PipelineStop {
  PipelinePart part;
  std::string name;  // "before", "2", "after"
  std::string type;  // "C4A", empty outside the layers
  Verdict worst = Verdict::kNotCompared;
  bool ran = false;
  Place target;  // where a click goes
};
std::vector<PipelineStop> pipeline_stops(const Snapshot& snapshot, const Place& cursor);

}  // namespace attnscope
