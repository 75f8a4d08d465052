#include "app/views/op_time_view.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "app/text/format.h"
#include "engine/family/launch_order.h"
#include "engine/model/numbers.h"

namespace attnscope {
namespace {

// Microseconds in which at least one of the spans runs; they are sorted by start.
double covered(const std::vector<const TimeSpan*>& spans) {
  double sum = 0, end = 0;
  for (const TimeSpan* s : spans) {
    const double from = std::max(s->start, end), to = s->start + s->microseconds;
    if (to > from) sum += to - from;
    end = std::max(end, to);
  }
  return sum;
}

std::string percent(double share) { return fmt::format("{:.0f} %", 100 * share); }

// The ops of a layer as they were launched: which stream of the layer waited for which.
void add_waits(OpTimeView& view, const ModelGraph& graph, int index) {
  struct Seen {
    std::size_t row;
    const TimeSpan* span;
  };
  std::map<as_op_id, Seen> spans;
  std::map<int, std::size_t> row_of;  // by stream
  for (std::size_t row = 0; row < view.rows.size(); ++row) {
    if (view.rows[row].stream == OpTiming::kExchange) continue;  // parts of ops
    row_of[view.rows[row].stream] = row;
    for (const TimeSpan& s : view.rows[row].spans) spans[s.place.op] = {row, &s};
  }
  std::map<int, const TimeSpan*> newest;  // by stream
  for (const Launch& launch : launch_order(graph, false)) {
    const auto ran = spans.find(launch.op);
    // Where the recording ran all ops on one stream, none waited.
    if (launch.layer != index || ran == spans.end() ||
        view.rows[ran->second.row].stream != launch.stream) {
      continue;
    }
    const TimeSpan& span = *ran->second.span;
    const TimeSpan* before = newest[launch.stream];
    for (const int other : launch.after) {
      const TimeSpan* cause = newest[other];
      if (cause == nullptr) continue;
      const double since = before != nullptr ? before->end() : 0;
      view.waits.push_back({ran->second.row, row_of[other], cause->end(), span.start,
                            std::max(0.0, std::min(cause->end(), span.start) - since), span.label,
                            cause->label});
    }
    newest[launch.stream] = &span;
  }
}

void add_phases(OpTimeView& view, const ModelGraph& graph) {
  for (const TimeSpan& s : view.rows.front().spans) {
    if (s.phase < 0) continue;
    const std::string name = fmt::format("{} {}", s.phase + 1, graph.phases[to_size(s.phase)]);
    if (view.phases.empty() || view.phases.back().name != name) {
      view.phases.push_back({name, s.start, s.end()});
    }
    view.phases.back().end = s.end();
  }
}

std::string sentence_of(const OpTimeView& view, const StepSummary& step, std::optional<int> layer,
                        const TimeSpan& longest, std::size_t ops) {
  std::string where = fmt::format("Step {}", step.step);
  if (layer) where += *layer < 0 ? ", around the layers" : fmt::format(", layer {}", *layer);
  const std::string most = fmt::format(
      "the longest is {}{}, {}", longest.label,
      longest.place.layer >= 0 && !layer ? fmt::format(" of layer {}", longest.place.layer) : "",
      format_us(longest.microseconds));
  const bool exchanges = view.rows.back().stream == OpTiming::kExchange;
  if (view.rows.size() == (exchanges ? 2u : 1u)) {
    const bool rows = view.rows.back().spans.front().place.op == AS_OP_EXCHANGE_ROWS;
    const std::string between =
        exchanges ? fmt::format(", {} of it ({}) {}", format_us(view.rows.back().busy),
                                percent(view.rows.back().busy / view.sum),
                                rows ? "for rows that came from host memory" : "between ranks")
                  : "";
    const std::string all =
        ops == 1 ? "one op" : fmt::format("{} ops one after another", format_count(to_count(ops)));
    return fmt::format("{}: {}, {}{}; {}.", where, all, format_us(view.sum), between, most);
  }
  const double gained = view.sum - view.span;
  const std::string gain = gained > 0
                               ? fmt::format("{} ({}) gained by streams beside each other",
                                             format_us(gained), percent(gained / view.sum))
                               : fmt::format("nothing gained by {} streams, {} spent between ops",
                                             view.rows.size(), format_us(view.idle));
  return fmt::format("{}: {} ops take {}, from first to last {}: {}; {}.", where, ops,
                     format_us(view.sum), format_us(view.span), gain, most);
}

}  // namespace

std::string stream_name(const ModelGraph& graph, int stream) {
  if (stream == 0) return "main";
  if (stream == OpTiming::kExchange) return "exchange";
  const auto at = to_size(stream);
  return at < graph.branches.size() ? graph.branches[at] : fmt::format("stream {}", stream);
}

std::string span_label(const OpTiming& timing) {
  const char* op = as_op_find(timing.op)->name;
  return timing.stream == OpTiming::kExchange ? fmt::format("exchange of {}", op) : op;
}

OpTimeView op_time_view(const StepSummary& step, const ModelGraph& graph,
                        std::span<const int> layers, std::optional<int> layer) {
  OpTimeView view;
  view.phase_names = graph.phases;
  std::map<int, TimeRow> rows;
  std::size_t ops = 0, unknown = 0;
  double first = 0;
  for (const OpTiming& t : step.timings) {
    if (layer && t.layer != *layer) continue;
    if (!t.placed()) {
      ++unknown;
      continue;
    }
    const bool exchange = t.stream == OpTiming::kExchange;
    if (!exchange) {
      first = ops == 0 ? t.start : std::min(first, t.start);
      ++ops;
    }
    rows[t.stream].spans.push_back(
        {{step.step, t.layer, t.op}, span_label(t), t.start, t.microseconds, graph.phase(t.op)});
  }
  if (ops == 0) {
    view.why_empty = unknown > 0 ? "This step ran as a whole on the GPU; its ops were not timed."
                     : step.timings.empty() ? "When the ops of this step ran was not kept."
                                            : "No op of this layer has run in this step yet.";
    return view;
  }
  std::vector<const TimeSpan*> all;
  for (auto& [stream, row] : rows) {
    row.stream = stream;
    row.name = stream_name(graph, stream);
    std::ranges::stable_sort(row.spans, {}, &TimeSpan::start);
    std::vector<const TimeSpan*> own;
    for (TimeSpan& s : row.spans) {
      s.start -= first;
      own.push_back(&s);
      if (stream != OpTiming::kExchange) view.sum += s.microseconds;
      view.span = std::max(view.span, s.start + s.microseconds);
    }
    row.busy = covered(own);
    view.rows.push_back(std::move(row));
  }
  for (const TimeRow& row : view.rows) {
    for (const TimeSpan& s : row.spans) {
      if (row.stream == OpTiming::kExchange) continue;
      all.push_back(&s);
    }
  }
  const TimeSpan& longest = **std::ranges::max_element(all, {}, &TimeSpan::microseconds);
  if (layer && *layer >= 0) {
    add_phases(view, graph);
    add_waits(view, graph, static_cast<int>(std::ranges::find(layers, *layer) - layers.begin()));
  }
  std::ranges::stable_sort(all, {}, [](const TimeSpan* s) { return s->start; });
  view.idle = view.span - covered(all);
  view.sentence = sentence_of(view, step, layer, longest, ops);
  if (unknown > 0)
    view.sentence += fmt::format(" {} not timed.", plural(unknown, "op was", "ops were"));
  return view;
}

std::string time_wait_text(const OpTimeView& view, const TimeWait& wait) {
  const std::string idle =
      wait.idle > 0 ? fmt::format("{} with nothing to do", format_us(wait.idle)) : "without a gap";
  return fmt::format("{} on {} needs {} on {}\n{}", wait.label, view.rows[wait.row].name,
                     wait.from_label, view.rows[wait.from_row].name, idle);
}

std::string time_span_text(const OpTimeView& view, const TimeSpan& span) {
  std::string text = span.label;
  if (span.place.layer >= 0) text += fmt::format(", layer {}", span.place.layer);
  if (span.phase >= 0 && to_size(span.phase) < view.phase_names.size()) {
    text += fmt::format("\nphase {} of {}: {}", span.phase + 1, view.phase_names.size(),
                        view.phase_names[to_size(span.phase)]);
  }
  return text + fmt::format("\n{}, from {} to {}; {} of all ops' time",
                            format_us(span.microseconds), format_us(span.start),
                            format_us(span.start + span.microseconds),
                            percent(view.sum > 0 ? span.microseconds / view.sum : 0));
}

}  // namespace attnscope
