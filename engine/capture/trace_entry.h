// How a step's trace stands in a capture: a JSON text that names tensors of a payload.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "engine/capture/trace_fields.h"
#include "engine/io/old_names.h"
#include "engine/trace/tap_stats.h"

namespace attnscope {

// A tensor of the payload; `name` empty = it was not kept, only its kind is known; dtype empty =
// there was none.
struct TensorRef {
  std::string name;
  std::string dtype;
  std::vector<std::int64_t> shape;
};

struct TapEntry {
  std::string name, axes, rule;
  bool output = false;
  bool weight = false;  // of the model: in weights.safetensors, if at all
  TensorRef value, reference;
  std::optional<TapStats> stats;  // of value
};

// Tensors PREFIX.tokens, .slots, .bytes, .reference.
struct RowsEntry {
  std::string name;
  std::int32_t record = 0, width = 0, heads = 1, group = -1, rows_per_block = 0;
  std::int64_t row_bytes = 0;
  std::string prefix;  // empty = not kept
  bool reference = false;
  std::optional<TapStats> stats;  // of bytes
};

// Tensors PREFIX.slots, .window_len, .extra_len, .logits, .weights, .sink_mass, .sinks.
struct AttentionEntry {
  std::int64_t heads = 0, window = 0, extra = 0;
  double lse_error = 0;
  std::string prefix;
};

struct OpEntry {
  int layer = -1;
  as_op_id op = AS_OP_SCHEDULE;
  std::string lane;
  double microseconds = 0;
  Verdict worst = Verdict::kNotCompared;
  double budget_used = 0;
  std::vector<TapEntry> taps;
  std::vector<RowsEntry> rows;
  std::optional<AttentionEntry> attention;
  std::optional<OpLaunches> launches;  // of a GPU's lane
};

struct TraceEntry {
  std::int64_t step = 0;
  bool complete = false;
  bool tables = false;  // whether arrays and requests were kept
  std::int64_t columns = 0, list_columns = 0;
  std::vector<Request> requests;  // without tokens: those are tensors
  std::vector<StepWhy> misses;
  std::optional<StepWhy> waiting;
  std::vector<std::int64_t> common_prefix;
  std::vector<OpEntry> ops;
};

template <class V>
void fields(V& v, TensorRef& t) {
  v("name", t.name);
  v("dtype", t.dtype);
  v("shape", t.shape);
}
template <class V>
void fields(V& v, TapEntry& t) {
  v("name", t.name);
  v("axes", t.axes);
  v("rule", t.rule);
  v("output", t.output);
  v("weight", t.weight);
  v("value", t.value);
  v("reference", t.reference);
  v("stats", t.stats);
}
template <class V>
void fields(V& v, RowsEntry& r) {
  v("name", r.name);
  v("record", r.record);
  v("width", r.width);
  v("group", r.group);
  v("rows_per_block", r.rows_per_block);
  v("row_bytes", r.row_bytes);
  v.later("heads", r.heads);
  v("prefix", r.prefix);
  v("reference", r.reference);
  v("stats", r.stats);
}
template <class V>
void fields(V& v, AttentionEntry& a) {
  v("heads", a.heads);
  v("window", a.window);
  v("extra", a.extra);
  v("lse_error", a.lse_error);
  v("prefix", a.prefix);
}
template <class V>
void fields(V& v, OpEntry& o) {
  v("layer", o.layer);
  v("op", o.op);
  v("lane", o.lane);
  v("microseconds", o.microseconds);
  v("worst", o.worst);
  v("budget_used", o.budget_used);
  v("taps", o.taps);
  v("rows", o.rows);
  v("attention", o.attention);
  v.later("launches", o.launches);
}
template <class V>
void fields(V& v, TraceEntry& t) {
  v("step", t.step);
  v("complete", t.complete);
  v("tables", t.tables);
  v("columns", t.columns);
  v(kListColumnsKey, t.list_columns);
  v("requests", t.requests);
  v.later("misses", t.misses);
  v.later("waiting", t.waiting);
  v.later("common_prefix", t.common_prefix);
  v("ops", t.ops);
}

}  // namespace attnscope
