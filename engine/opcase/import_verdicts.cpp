#include "engine/opcase/import_verdicts.h"

#include <algorithm>

#include "engine/opcase/op_case.h"
#include "engine/session/step_events.h"
#include "kernels/params/tensor_view.h"

namespace attnscope {
namespace {

TapResult result_of(const CaseTap& tap, const OpTrace& trace) {
  TapResult r;
  r.step = trace.place.step;
  r.layer = trace.place.layer;
  r.op = trace.place.op;
  r.tap = tap.tap;
  r.lane = trace.lane;
  r.shape = tap.shape;
  r.dtype = tap.dtype;
  r.elements = tap.comparison.elements;
  r.introduced = tap.comparison.figures;
  r.tolerance = tap.tolerance;
  r.budget_used = tap.comparison.budget_used;
  r.verdict = tap.verdict;
  r.note = tap.note;
  if (!tap.comparison.worst.index.empty() && r.budget_used > 0) r.worst = tap.comparison.worst;
  return r;
}

void give_reference(const CaseTap& tap, OpTrace& trace) {
  const auto copy = std::ranges::find(trace.taps, tap.tap, &TapCopy::name);
  if (copy != trace.taps.end()) {
    copy->reference_bytes = tap.reference.bytes;
    copy->reference = stored_view(tap.reference);
    copy->reference.data = copy->reference_bytes.data();
  }
  const auto rows = std::ranges::find(trace.rows, tap.tap, &RowsCopy::name);
  if (rows == trace.rows.end() || tap.reference.dtype != AS_U8) return;
  for (const std::int32_t t : rows->tokens) {
    const auto row = tap.reference.bytes.begin() + t * rows->row_bytes;
    rows->reference.insert(rows->reference.end(), row, row + rows->row_bytes);
  }
}

}  // namespace

void take_verdicts(const CaseRun& run, OpTrace& trace) {
  for (const CaseTap& tap : run.taps) {
    give_reference(tap, trace);
    const TapResult& r = trace.results.emplace_back(result_of(tap, trace));
    trace.worst = worse(trace.worst, r.verdict);
    trace.budget_used = std::max(trace.budget_used, r.budget_used);
  }
}

void count_verdicts(const OpTrace& trace, StepSummary& summary) {
  const auto cell = std::ranges::find(summary.layers, trace.place.layer, &LayerCell::layer);
  for (const TapResult& r : trace.results) {
    if (cell != summary.layers.end()) {
      cell->worst = worse(cell->worst, r.verdict);
      cell->budget_used = std::max(cell->budget_used, r.budget_used);
      ++cell->counts[static_cast<std::size_t>(r.verdict)];
    }
    add_verdict(r, summary.events);
    summary.results.push_back(r);
  }
}

}  // namespace attnscope
