// How one token's attention weight is shared out in a layer: window, compressed entries and sink,
// per head; and the sink's part per head and layer.
//
//   SinkView view = sink_view({info, *step, layer, row, tolerance});
//   sentence(sink_sentence(view, head), view.verdict);
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "engine/session/snapshot.h"
#include "engine/trace/tolerances.h"

namespace attnscope {

// Layer whose attention is shown for a cursor.
struct SinkLayer {
  int layer = -1;    // published number; -1: no layer's attention ran in this step
  std::string note;  // why it is not the cursor's own; empty when it is
};
SinkLayer sink_layer(const SessionInfo& info, const StepTrace& step, const Place& cursor);

struct SinkHead {
  double sink_logit = 0;
  double lse = 0;                                                   // the op's, without the sink
  double lse_again = std::numeric_limits<double>::quiet_NaN();      // from the logits
  double lse_reference = std::numeric_limits<double>::quiet_NaN();  // ref.sim's; NaN: not compared
  double window = 0, compressed = 0, sink = 0;                      // shares
  // What the sink leaves of the output without it, in the two forms that kernels use: the decay
  // factor 1 / (1 + e^(sink - lse)), and e^(lse - merged) with the sink merged into the LSE,
  // merged = ln(e^lse + e^sink).
  double decay = 0, merged = 0, by_merged = 0;
  double sum() const { return window + compressed + sink; }
};

struct SinkView {
  std::string why_empty;  // not empty: nothing to show, for this reason
  int layer = -1;
  std::string type;          // of the layer: "C4A"
  bool windowed = false;     // rows leave a window; else all are attended
  bool compressed = false;   // it has entries beside its rows
  bool has_entries = false;  // some layer of the model has
  bool has_sinks = false;    // some head of it has one
  std::int32_t request = -1;
  std::int64_t position = -1;
  std::int64_t window_slots = 0, entries = 0;  // read by this token
  std::vector<SinkHead> heads;
  double worst_sum = 0;         // largest |sum - 1|
  double forms_apart = 0;       // worst difference of the two forms, and of each from 1 - sink
  double lse_error = 0;         // worst |recomputed - op's| of this token
  bool lse_error_small = true;  // within the LSE tolerance
  bool output_wrong = false;    // the op's o differs from the reference beyond tolerance
  Verdict verdict = Verdict::kNotCompared;  // of the op

  bool nothing_read() const { return window_slots == 0 && entries == 0; }
  static constexpr double kSumTolerance = 1e-6;
};

struct SinkInput {
  const SessionInfo& info;
  const StepTrace& step;
  int layer = -1;         // published number
  std::int64_t row = -1;  // token row of the step
  Tolerance tolerance{};  // of sparse_attention's lse
};
SinkView sink_view(const SinkInput& input);

// lse without the sink, natural; both may be infinite. A token without rows has lse +inf: nothing
// of its output is left in either form.
double sink_decay(double lse, double sink);
double lse_with_sink(double lse, double sink);
double sink_decay_merged(double lse, double merged);
// The panel's first line.
std::string sink_sentence(const SinkView& view, int head);

// Sink mass of a token in every layer whose attention ran in this step.
struct SinkMap {
  std::vector<int> layers;  // published numbers
  std::int64_t heads = 0;
  std::vector<float> mass;  // [layers, heads]
  bool has_sinks = false;   // some head of some of them
};
SinkMap sink_map(const SessionInfo& info, const StepTrace& step, std::int64_t row);

}  // namespace attnscope
