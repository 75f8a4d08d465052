// What the time panel shows of a step: its ops on an axis, a row a stream, and what it gained that
// streams run beside each other.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/family/op_graph.h"
#include "engine/session/step/step_trace.h"

namespace attnscope {

struct TimeSpan {
  Place place;
  std::string label;  // "q_b_proj"
  double start = 0;   // microseconds from the first op that is shown
  double microseconds = 0;
  int phase = -1;  // of OpTimeView::phases
  double end() const { return start + microseconds; }
};
// A stream that began an op only when another had done what the op needs.
struct TimeWait {
  std::size_t row = 0, from_row = 0;  // of OpTimeView::rows: who waited, and for whom
  double from = 0, until = 0;         // when the other was done, and when the op began
  double idle = 0;                    // microseconds in which the stream had nothing to do
  std::string label, from_label;      // the ops
};
// A part of a layer (ModelGraph::phases), as the main stream runs through it.
struct TimePhase {
  std::string name;  // "1 projections"
  double start = 0, end = 0;
};
struct TimeRow {
  int stream = 0;
  std::string name;             // of the graph's branch: "main", "indexer keys"
  std::vector<TimeSpan> spans;  // by start
  double busy = 0;              // microseconds in which one of them runs
};
struct OpTimeView {
  std::string why_empty;
  std::string sentence;
  std::vector<TimeRow> rows;             // by stream
  std::vector<std::string> phase_names;  // of the model
  std::vector<TimePhase> phases;         // of one layer
  std::vector<TimeWait> waits;           // of one layer
  double sum = 0;                        // microseconds of all ops
  double span = 0;  // microseconds from the first op's start to the last one's end
  double idle = 0;  // of the span, in which no op runs
};

// "main" and the captions of the branches.
std::string stream_name(const ModelGraph& graph, int stream);
// The op, or what ranks that share requests exchange for it.
std::string span_label(const OpTiming& timing);
// layer: its ops alone, a published number (-1: those around the layers); nothing: all. layers: the
// published numbers of the graph's.
OpTimeView op_time_view(const StepSummary& step, const ModelGraph& graph,
                        std::span<const int> layers, std::optional<int> layer);
// In words, for whoever points at an op.
std::string time_span_text(const OpTimeView& view, const TimeSpan& span);
std::string time_wait_text(const OpTimeView& view, const TimeWait& wait);

}  // namespace attnscope
