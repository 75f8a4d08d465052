#include "app/reports/chrome_trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "app/views/op_time_view.h"
#include "engine/io/json_file.h"
#include "engine/io/printable.h"
#include "kernels/params/op_table.h"

namespace attnscope {
namespace {

using nlohmann::json;

constexpr int kSteps = 0, kFirstStream = 1;  // tracks

json name_of_track(const char* what, int track, const std::string& name) {
  return {{"name", what}, {"ph", "M"}, {"pid", 0}, {"tid", track}, {"args", {{"name", name}}}};
}

json span(const std::string& name, const char* kind, int track, double start, double microseconds,
          json args) {
  return {{"name", name}, {"cat", kind}, {"ph", "X"},           {"pid", 0},
          {"tid", track}, {"ts", start}, {"dur", microseconds}, {"args", std::move(args)}};
}

}  // namespace

Result<std::string> chrome_trace(const std::vector<TimedStep>& steps, const ModelGraph& graph,
                                 const std::string& title) {
  json events = json::array();
  std::set<int> streams;
  double begin = 0;
  for (const TimedStep& step : steps) {
    double end = 0;
    std::int64_t ops = 0;
    for (const OpTiming& t : *step.timings) {
      if (!t.placed()) continue;
      const std::string op = span_label(t);
      const bool exchange = t.stream == OpTiming::kExchange;
      json args = {{"step", step.step}};
      if (t.layer >= 0) args["layer"] = t.layer;
      if (const int phase = graph.phase(t.op); phase >= 0) {
        args["phase"] = graph.phases[static_cast<std::size_t>(phase)];
      }
      const std::string name = t.layer >= 0 ? fmt::format("{} [{}]", op, t.layer) : op;
      events.push_back(span(name, exchange ? "exchange" : "op", kFirstStream + t.stream,
                            begin + t.start, t.microseconds, std::move(args)));
      streams.insert(t.stream);
      end = std::max(end, t.start + t.microseconds);
      if (!exchange) ++ops;
    }
    if (ops == 0) continue;
    events.push_back(span(fmt::format("step {}", step.step), "step", kSteps, begin, end,
                          {{"tokens", step.tokens}, {"ops", ops}}));
    begin += end;
  }
  if (streams.empty()) {
    return bad_input("no op of these steps has a time",
                     "they ran as a whole on a GPU, or were recorded by an older program");
  }
  events.push_back(name_of_track("process_name", kSteps, title));
  events.push_back(name_of_track("thread_name", kSteps, "steps"));
  for (const int stream : streams) {
    events.push_back(
        name_of_track("thread_name", kFirstStream + stream, stream_name(graph, stream)));
  }
  const json whole = {{"displayTimeUnit", "ms"}, {"traceEvents", std::move(events)}};
  return json_text(whole) + "\n";
}

Result<void> write_timeline(const std::string& path, const std::vector<TimedStep>& steps,
                            const ModelGraph& graph, const std::string& title) {
  auto text = chrome_trace(steps, graph, title);
  if (!text) return text.error();
  return write_text_file(path, *text);
}

}  // namespace attnscope
