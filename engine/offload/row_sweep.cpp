#include "engine/offload/row_sweep.h"

#include <algorithm>

#include "engine/io/stopped.h"

namespace attnscope {
namespace {

Result<SweepPoint> sweep_point(const SelectionTrace& trace, double ratio, const SweepAsk& ask,
                               SweepProgress& progress) {
  SweepPoint out;
  out.ratio = ratio;
  out.context = trace.context;
  auto result = simulate_offload(trace, {.ratio = ratio,
                                         .policy = ask.policy,
                                         .warm = ask.warm,
                                         .stop = &progress.stopped,
                                         .constants = ask.constants});
  ++progress.done;
  if (result) {
    out.result = std::move(*result);
  } else if (result.error().code == AS_BAD_INPUT) {
    out.refused = result.error().message;
  } else {
    return result.error();
  }
  return out;
}

Result<RowSweep> over_ratios(const SelectionTrace& trace, const SweepAsk& ask,
                             SweepProgress& progress) {
  RowSweep sweep;
  sweep.source = trace.source;
  sweep.left = trace.left;
  sweep.layers = trace.layers;
  sweep.requests = trace.requests;
  sweep.rows = trace.rows;
  sweep.steps = std::ssize(trace.steps);
  for (const SelectionStep& step : trace.steps) {
    sweep.step.push_back(step.step);
    sweep.context.push_back(step.context);
  }
  for (const double ratio : ask.ratios) {
    auto one = sweep_point(trace, ratio, ask, progress);
    if (!one) return one.error();
    sweep.by_ratio.push_back(std::move(*one));
  }
  return sweep;
}

}  // namespace

Result<RowSweep> sweep_rows(const SelectionTrace& trace, const SweepAsk& ask,
                            SweepProgress& progress) {
  progress.all = progress.done + std::ssize(ask.ratios);
  return over_ratios(trace, ask, progress);
}

Result<RowSweep> sweep_generated(const GeneratorOptions& options, const SweepAsk& ask,
                                 SweepProgress& progress) {
  progress.all = 1 + std::ssize(ask.ratios) + 2 * std::ssize(ask.contexts);
  const auto trace = generated_trace(options, &progress.stopped);
  if (!trace) return trace.error();
  ++progress.done;
  auto sweep = over_ratios(*trace, ask, progress);
  if (!sweep) return sweep;
  for (const std::int64_t context : ask.contexts) {
    if (progress.stopped) return stopped_error();
    GeneratorOptions other = options;
    other.context = context;
    other.topk = std::min(options.topk, context);
    const auto longer = generated_trace(other, &progress.stopped);
    if (!longer) return longer.error();
    ++progress.done;
    auto one = sweep_point(*longer, ask.ratio, ask, progress);
    if (!one) return one.error();
    sweep->by_context.push_back(std::move(*one));
  }
  return sweep;
}

}  // namespace attnscope
