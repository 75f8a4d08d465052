#include "app/reports/capture_report.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "app/reports/report.h"
#include "app/reports/report_parts.h"
#include "app/text/format.h"
#include "app/views/batch_view.h"
#include "app/views/launch_view.h"
#include "engine/io/json_text.h"
#include "engine/io/printable.h"

namespace attnscope {
namespace {

using nlohmann::json;

json verdicts(const StepSummary& summary) {
  json counts = json::object();
  for (int v = 0; v < kVerdicts; ++v) {
    std::int64_t n = 0;
    for (const LayerCell& cell : summary.layers) n += cell.counts[v];
    if (n > 0) counts[verdict_name(static_cast<Verdict>(v))] = n;
  }
  return counts;
}

json extent_json(const LaunchExtent& e) { return {e.x, e.y, e.z}; }

json launches_json(const OpLaunches& launches) {
  json kernels = json::array();
  for (const LaunchRow& row : launch_rows(launches)) {
    const KernelLaunch& k = row.kernel;
    json& out =
        kernels.emplace_back(json{{"name", k.name},
                                  {"times", row.times},
                                  {"grid", extent_json(k.grid)},
                                  {"block", extent_json(k.block)},
                                  {"cluster", extent_json(k.cluster)},
                                  {"registers", k.registers},
                                  {"static_shared", k.static_shared},
                                  {"dynamic_shared", k.dynamic_shared},
                                  {"local", k.local},
                                  {"blocks_at_once", row.at_once},
                                  {"waves", row.waves},
                                  {"text", launch_text(row)},
                                  {"occupancy_text", launch_occupancy_text(row, launches)}});
    if (row.occupancy) {
      out["occupancy"] = {{"blocks", row.occupancy->blocks},
                          {"share", row.occupancy->share},
                          {"by", row.occupancy->by}};
    }
  }
  return {{"gpu", fmt::format("sm_{}{}", launches.major, launches.minor)},
          {"multiprocessors", launches.multiprocessors},
          {"unknown", launches.unknown},
          {"kernels", std::move(kernels)}};
}

json op_json(const OpEntry& op) {
  json taps = json::array();
  for (const TapEntry& tap : op.taps) {
    json t = {{"name", tap.name},
              {"output", tap.output},
              {"dtype", tap.value.dtype},
              {"shape", tap.value.shape},
              {"kept", !tap.value.name.empty()},
              {"weight", tap.weight}};
    if (tap.stats) t["stats"] = to_json_fields(*tap.stats);
    taps.push_back(std::move(t));
  }
  json out = {{"op", as_op_find(op.op)->name},
              {"layer", op.layer},
              {"lane", op.lane},
              {"microseconds", op.microseconds},
              {"verdict", verdict_name(op.worst)},
              {"taps", std::move(taps)}};
  if (op.launches) out["launches"] = launches_json(*op.launches);
  return out;
}

std::string recorded_shape(const json& tap) {
  std::string text = tap.at("dtype").get<std::string>() + " [";
  for (const json& n : tap.at("shape")) {
    text += (text.back() == '[' ? "" : ",") + std::to_string(n.get<std::int64_t>());
  }
  return text + "]";
}

double number_of(const json& v) { return v.is_number() ? v.get<double>() : std::nan(""); }

json batch_json(const SessionInfo& info, const StepTrace& step) {
  const BatchView view = batch_view(info, step);
  json rows = json::array(), chunks = json::array();
  for (const BatchLine& line : view.rows) {
    rows.push_back({{"request", line.name},
                    {"row", line.row},
                    {"decode", line.decode},
                    {"tokens", line.query},
                    {"computed", line.computed},
                    {"length", line.length}});
  }
  for (const PrefillChunks& of : view.plan.chunks) {
    for (const PrefillChunk& chunk : of.chunks) {
      chunks.push_back({{"ratio", of.ratio},
                        {"requests", chunk.end - chunk.begin},
                        {"entries", chunk.compressed},
                        {"window_rows", chunk.gathered},
                        {"area", chunk.area()},
                        {"limit", of.limit}});
    }
  }
  return {{"sentence", view.sentence},
          {"order", view.order},
          {"graph", view.plan.graph},
          {"padding", view.plan.padding()},
          {"why_no_graph", view.plan.why_none},
          {"requests", std::move(rows)},
          {"drafts", view.drafts},
          {"prefill_chunks", std::move(chunks)}};
}

void append_step(std::string& out, const json& step) {
  if (step.contains("batch")) {
    const json& batch = step.at("batch");
    out += "\n" + batch.at("sentence").get<std::string>() + "\n" +
           batch.at("order").get<std::string>() + "\n";
    if (const auto drafts = batch.at("drafts").get<std::string>(); !drafts.empty()) {
      out += drafts + "\n";
    }
    for (const json& chunk : batch.at("prefill_chunks")) {
      out += fmt::format(
          "  prefill chunk at ratio {}: {} x ({} entries + {} window rows) = {} of {}\n",
          chunk.at("ratio").get<int>(), chunk.at("requests").get<int>(),
          chunk.at("entries").get<int>(), chunk.at("window_rows").get<int>(),
          chunk.at("area").get<std::int64_t>(), chunk.at("limit").get<std::int64_t>());
    }
  }
  out += fmt::format("\nstep {}\n  {:<5} {:<25} {:<14} {:<16} {:>10} {:>10} {:>10}  {}\n",
                     step.at("step").get<std::int64_t>(), "layer", "op", "tap", "shape", "min",
                     "max", "L2", "checksum");
  for (const json& op : step.at("ops")) {
    for (const json& tap : op.at("taps")) {
      if (!tap.contains("stats")) continue;
      const json& s = tap.at("stats");
      const auto layer = op.at("layer").get<int>();
      out +=
          fmt::format("  {:<5} {:<25} {:<14} {:<16} {:>10} {:>10} {:>10}  {}{}\n",
                      layer < 0 ? "-" : std::to_string(layer), op.at("op").get<std::string>(),
                      tap.at("name").get<std::string>(), recorded_shape(tap),
                      format_number(number_of(s.at("min"))), format_number(number_of(s.at("max"))),
                      format_number(number_of(s.at("l2"))), s.at("checksum").get<std::string>(),
                      tap.at("kept").get<bool>() ? "" : "  values not recorded");
    }
  }
}

void append_launches(std::string& out, const json& step) {
  bool any = false;
  for (const json& op : step.at("ops")) {
    if (!op.contains("launches")) continue;
    const json& launches = op.at("launches");
    if (!any) {
      out += fmt::format("\nkernels of step {}\n  {:<5} {:<25} {:>9}  {}\n",
                         step.at("step").get<std::int64_t>(), "layer", "op", "time", "launch");
    }
    any = true;
    const auto layer = op.at("layer").get<int>();
    std::string head =
        fmt::format("  {:<5} {:<25} {:>9}", layer < 0 ? "-" : std::to_string(layer),
                    op.at("op").get<std::string>(), format_us(number_of(op.at("microseconds"))));
    const std::string below(43, ' ');
    const auto unknown = launches.at("unknown").get<std::string>();
    if (!unknown.empty()) out += fmt::format("{}  not known: {}\n", head, unknown);
    for (const json& kernel : launches.at("kernels")) {
      out += head + "  " + kernel.at("text").get<std::string>() + "\n";
      out += below + "    " + kernel.at("occupancy_text").get<std::string>() + "\n";
      head = below;
    }
  }
}

}  // namespace

Result<json> describe_capture(const Capture& capture, std::optional<std::int64_t> step) {
  const CaptureIndex& index = capture.index();
  json machine = json::object();
  for (const CaptureProperty& p : index.origin.machine) machine[p.name] = p.value;
  json steps = json::array();
  std::vector<TapResult> results;
  for (const auto& summary : capture.summaries()) {
    results.insert(results.end(), summary->results.begin(), summary->results.end());
    json faults = json::array();
    for (const Event& event : summary->events) {
      if (event.kind != EventKind::kError) continue;
      faults.push_back({{"layer", event.place.layer},
                        {"op", as_op_find(event.place.op)->name},
                        {"text", event.text}});
    }
    steps.push_back({{"step", summary->step},
                     {"tokens", summary->tokens},
                     {"seconds", summary->seconds},
                     {"decode", summary->decode_only},
                     {"verdicts", verdicts(*summary)},
                     {"faults", std::move(faults)}});
  }
  json out = {{"format", "attnscope-show"},
              {"version", 1},
              {"path", capture.path()},
              {"capture_version", index.version},
              {"complete", index.complete},
              {"created", index.created},
              {"program", index.origin.program},
              {"scenario", index.origin.scenario},
              {"scenario_file", index.origin.scenario_file},
              {"checkpoint", index.origin.checkpoint},
              {"hidden_states", index.origin.hidden_states},
              {"machine", machine},
              {"level", capture_level_name(index.level)},
              {"filter", index.filter},
              {"rows", index.rows},
              {"weights", index.weights},
              {"cache_steps", index.cache_steps},
              {"bytes", capture.bytes()},
              {"lanes", capture.info()->lanes},
              {"model", describe_model(index.model)},
              {"requests", index.request_names},
              {"steps", steps},
              {"blamed", blamed_json(summarise(results, index.drift_limit))}};
  if (!step) return out;
  auto entry = capture.entry(*step);
  if (!entry) return entry.error();
  auto trace = capture.trace(*step);  // which also checks what the entry says
  if (!trace) return trace.error();
  json ops = json::array();
  if (*entry) {
    for (const OpEntry& op : (*entry)->ops) ops.push_back(op_json(op));
  }
  out["shown"] = {{"step", *step}, {"ops", ops}};
  if (*trace) out["shown"]["batch"] = batch_json(*capture.info(), **trace);
  return out;
}

std::string format_capture(const json& description) {
  const json d = printable_json(description);
  std::string out = fmt::format(
      "{}\n  {}, level {}{}{}, {} {} steps, {}\n  recorded {} by {}\n  scenario {}, model {}, "
      "lanes {}\n",
      d.at("path").get<std::string>(),
      d.at("complete").get<bool>() ? "complete" : "INCOMPLETE: the recording was interrupted",
      d.at("level").get<std::string>(),
      d.at("filter") == "all" ? "" : " (values of " + d.at("filter").get<std::string>() + ")",
      d.at("rows") == "" ? "" : ", rows: " + d.at("rows").get<std::string>(),
      d.at("complete").get<bool>() ? "all" : "the first", d.at("steps").size(),
      format_bytes(d.at("bytes").get<double>()), d.at("created").get<std::string>(),
      d.at("program").get<std::string>(), d.at("scenario").get<std::string>(),
      d.at("model").value("name", "?"), d.at("lanes").get<std::string>());
  for (const auto& [key, what] :
       {std::pair{"checkpoint", "weights"}, {"hidden_states", "inputs of the layers"}}) {
    const auto from = d.at(key).get<std::string>();
    if (!from.empty()) out += fmt::format("  {} from {}\n", what, from);
  }
  for (const auto& [name, value] : d.at("machine").items()) {
    if (name == "processor" || name == "GPU" || name == "SIMD") {
      out += fmt::format("  {}: {}\n", name, value.get<std::string>());
    }
  }
  out += fmt::format("\n  {:>6} {:>7} {:>8} {:>9}  {}\n", "step", "tokens", "phase", "time",
                     "verdicts");
  for (const json& step : d.at("steps")) {
    std::string verdicts;
    for (const auto& [name, n] : step.at("verdicts").items()) {
      verdicts += fmt::format("{}{} {}", verdicts.empty() ? "" : ", ", n.get<std::int64_t>(), name);
    }
    out += fmt::format("  {:>6} {:>7} {:>8} {:>9}  {}\n", step.at("step").get<std::int64_t>(),
                       step.at("tokens").get<std::int64_t>(),
                       step.at("decode").get<bool>() ? "decode" : "prefill",
                       format_us(step.at("seconds").get<double>() * 1e6), verdicts);
  }
  for (const json& step : d.at("steps")) {
    for (const json& fault : step.at("faults")) {
      const auto layer = fault.at("layer").get<int>();
      out += fmt::format("fault in step {}{}: {}\n", step.at("step").get<std::int64_t>(),
                         layer < 0 ? "" : fmt::format(", layer {}", layer),
                         fault.at("text").get<std::string>());
    }
  }
  out += format_blamed(d.at("blamed"));
  if (d.contains("shown")) {
    append_step(out, d.at("shown"));
    append_launches(out, d.at("shown"));
  }
  return out;
}

}  // namespace attnscope
