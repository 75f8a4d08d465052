#include "app/reports/capture_record.h"

#include <fmt/format.h>

#include <chrono>
#include <filesystem>
#include <limits>

#include "app/reports/doctor.h"
#include "engine/capture/capture_queue.h"
#include "engine/capture/trace_fields.h"
#include "engine/io/elapsed.h"
#include "engine/io/json_text.h"
#include "engine/io/plural.h"
#include "engine/session/lanes_ran.h"
#include "engine/session/session_config.h"
#include "engine/session/trace_recorder.h"

namespace attnscope {
namespace {

// Requests by name or id.
Result<std::vector<std::int32_t>> request_ids(const std::vector<std::string>& wanted,
                                              const Scenario& scenario) {
  std::vector<std::int32_t> ids;
  for (const std::string& text : wanted) {
    std::string names;
    std::int32_t found = -1;
    for (std::size_t i = 0; i < scenario.requests.size(); ++i) {
      const std::string& name = scenario.requests[i].name;
      names += (i == 0 ? "" : ", ") + name;
      if (text == name || text == std::to_string(i)) found = static_cast<std::int32_t>(i);
    }
    if (found < 0) {
      return usage_error(fmt::format("--request {}: there is no such request", text),
                         "requests: " + names);
    }
    ids.push_back(found);
  }
  return ids;
}

// What the recorder keeps of a step, for whoever misses a row later.
std::string rows_text(const RecordOptions& options) {
  std::string text;
  if (!options.requests.empty()) {
    text = fmt::format("of request{} {}", agree(options.requests.size(), "", "s"),
                       fmt::join(options.requests, ", "));
  }
  if (rows_at_most(options) > 0) {
    text += fmt::format("{}at most {} of a step", text.empty() ? "" : ", ", rows_at_most(options));
  }
  return text;
}

// Steps that were chosen and never ran.
std::string steps_beyond(const CaptureOptions& options, std::int64_t steps) {
  std::vector<std::string> beyond;
  for (const CaptureFilter::Range& r : options.filter.steps) {
    if (r.first >= steps) beyond.push_back(fmt::format("values of step {}", r.first));
  }
  for (const std::int64_t step : options.cache_steps) {
    if (step >= steps) beyond.push_back(fmt::format("blocks after step {}", step));
  }
  if (beyond.empty()) return "";
  return fmt::format("not in it: {}{}; the run ended after step {}", beyond.front(),
                     beyond.size() > 1 ? fmt::format(" and {} more", beyond.size() - 1) : "",
                     steps - 1);
}

// The first thing in which a scenario is not that of a capture; empty = none.
std::string difference(const Scenario& scenario, const CaptureIndex& index) {
  const auto model = [](const ModelConfig& m) {
    auto json = to_json_fields(m);
    json.erase("name");  // the place that it was read from
    return json;
  };
  const ModelConfig own = session_config(scenario);
  if (model(own) != model(index.model)) {
    return fmt::format("another model: {} instead of {}", own.name, index.model.name);
  }
  if (scenario.requests.size() != index.request_names.size()) {
    return fmt::format("{} requests instead of {}", scenario.requests.size(),
                       index.request_names.size());
  }
  for (std::size_t i = 0; i < scenario.requests.size(); ++i) {
    const ScenarioRequest& request = scenario.requests[i];
    const auto tokens = static_cast<std::int64_t>(request.tokens.size());
    if (request.name == index.request_names[i] && tokens == index.prompt_tokens[i]) continue;
    return fmt::format("a request {} of {} tokens instead of {} of {}", request.name, tokens,
                       index.request_names[i], index.prompt_tokens[i]);
  }
  return "";
}

}  // namespace

std::int64_t rows_at_most(const RecordOptions& options) {
  return options.rows.value_or(options.capture.level == CaptureLevel::kFull ? 0 : 64);
}

CaptureOrigin capture_origin(const Scenario& scenario) {
  CaptureOrigin origin;
  origin.program = "attnscope " ATTNSCOPE_VERSION;
  origin.scenario = scenario.name;
  std::error_code code;
  const auto absolute = [&](const std::string& path) {
    return path.empty() ? path : std::filesystem::absolute(path, code).lexically_normal().string();
  };
  origin.scenario_file = absolute(scenario.path);
  origin.scenario_text = scenario.text;
  origin.checkpoint = absolute(scenario.checkpoint);
  origin.hidden_states = absolute(scenario.hidden_states);
  for (const DoctorLine& line : examine()) {
    if (line.what == "nvcc" || line.what == "display") continue;
    origin.machine.push_back({line.what, line.found});
  }
  return origin;
}

// Of the newest step.
std::shared_ptr<const StepSummary> served(const Session& session) {
  auto summary = std::make_shared<StepSummary>(summary_of(session, session.history().back()));
  summary->usage = session.serving().usage();
  return summary;
}

Result<RecordResult> record_scenario(const Scenario& scenario, const LaneRegistry& lanes,
                                     const RecordOptions& options, const std::string& path,
                                     const std::function<void(const RunProgress&)>& progress) {
  auto requests = request_ids(options.requests, scenario);
  if (!requests) return requests.error();
  SessionOptions session_options = options.run.session;
  session_options.rewind_every = 0;
  session_options.op_times = options.as_served;
  auto created = Session::create(scenario, lanes, session_options);
  if (!created) return created.error();
  Session& session = **created;
  TraceOptions trace;
  trace.budget_bytes = 0;  // the newest two stay, and one is needed
  const std::int64_t rows = rows_at_most(options);
  trace.max_rows = rows > 0 ? rows : std::numeric_limits<std::int32_t>::max();
  trace.all_rows = rows == 0;
  trace.requests = *requests;
  trace.attention = options.capture.level == CaptureLevel::kFull;
  trace.keeps = [&](const Place& place, std::int32_t dtype) {
    return options.capture.keeps(place, dtype);
  };
  TraceRecorder recorder(trace);
  if (!options.as_served) session.set_observer(&recorder);
  const auto info = session_info(session);
  CaptureOptions capture = options.capture;
  capture.rows = rows_text(options);
  auto writer = CaptureWriter::create(path, capture, *info, capture_origin(scenario));
  if (!writer) return writer.error();
  RecordResult result;
  result.folder = (*writer)->folder();
  CaptureQueue queue(std::move(*writer));

  result.lanes = info->lanes;
  std::vector<TapResult> all;
  std::int64_t decode_steps = 0;
  const auto begin = std::chrono::steady_clock::now();
  const std::int64_t wanted = options.run.decode_steps.value_or(scenario.decode_steps);
  while (!session.finished()) {
    const auto steps = static_cast<std::int64_t>(session.history().size());
    const bool decoding = session.decoding();
    if (options.run.steps ? steps >= *options.run.steps : decoding && decode_steps >= wanted) break;
    if (progress) {
      const double share =
          options.run.steps ? static_cast<double>(steps) / static_cast<double>(*options.run.steps)
                            : static_cast<double>(decode_steps) / static_cast<double>(wanted + 1);
      progress({steps, share, "recording", -1});
    }
    const auto start = std::chrono::steady_clock::now();
    const auto left = [&] { return options.cancelled && options.cancelled(); };
    const auto stop = [&](const Session& s) {
      return left() || static_cast<std::int64_t>(s.history().size()) > steps;
    };
    Result<void> ran;
    if (!options.as_served) {
      if (const auto found = session.run_until(stop); !found) ran = found.error();
    } else if (!left()) {
      ran = session.step();
    }
    result.run_seconds += seconds_since(start);
    if (!ran) return ran.error();  // the steps before it stay, as an incomplete capture
    if (static_cast<std::int64_t>(session.history().size()) == steps) {
      result.cancelled = true;
      break;
    }
    decode_steps += decoding ? 1 : 0;
    const auto summary = options.as_served ? served(session) : recorder.summary(steps);
    if (summary == nullptr) {
      return Error{AS_NO_ENVIRONMENT, fmt::format("step {}: not enough memory to record it", steps),
                   "record fewer rows: --rows N"};
    }
    if (auto ok = queue.add(summary, recorder.trace(steps), &session); !ok) return ok.error();
    result.engine_seconds += session.history().back().seconds;
    const auto& results = session.history().back().results;
    all.insert(all.end(), results.begin(), results.end());
  }
  auto totals = result.cancelled ? Result<CaptureTotals>(queue.drain()) : queue.finish();
  if (!totals) return totals.error();
  result.write_seconds = queue.seconds();
  result.wall_seconds = seconds_since(begin);
  result.totals = *totals;
  if (!result.cancelled) result.note = steps_beyond(options.capture, totals->steps);
  result.summary = summarise(all, info->drift_limit);
  result.summary.stood_in =
      !session.device_error() && another_stood_in(info->lane_of, session.lanes());
  result.idle_lanes = idle_lanes(options.run.session.lanes, info->lane_of,
                                 session.lanes().merge_lane(), session.history());
  result.cut_short =
      result.cancelled || ((options.run.steps || options.run.decode_steps) && !session.finished());
  LanesRan ran(info->lane_of);
  ran.add(all);
  result.lanes = ran.description();
  session.set_observer(nullptr);
  return result;
}

Result<CaptureTotals> write_capture(const Snapshot& snapshot, const Scenario& scenario,
                                    const std::string& path) {
  CaptureOptions options;
  options.level = CaptureLevel::kFull;
  options.rows = "those that the session kept";
  auto writer = CaptureWriter::create(path, options, *snapshot.info, capture_origin(scenario));
  if (!writer) return writer.error();
  // Of steps whose tensors are gone: they stand with the next one that is written.
  std::vector<CacheEvent> before;
  for (const auto& summary : snapshot.steps) {
    const StepTrace* trace = snapshot.trace(summary->step);
    const bool written = summary->complete && trace != nullptr && trace->complete;
    const auto& events = summary->cache_events;
    if (!written) {
      for (CacheEvent event : events ? *events : std::vector<CacheEvent>()) {
        event.step = summary->step;
        before.push_back(event);
      }
      continue;
    }
    StepSummary out = *summary;
    if (events != nullptr && !before.empty()) {
      before.insert(before.end(), events->begin(), events->end());
      out.cache_events = std::make_shared<const std::vector<CacheEvent>>(std::move(before));
    }
    before.clear();
    if (auto ok = (*writer)->add(out, trace, nullptr); !ok) return ok.error();
  }
  return (*writer)->finish();
}

Result<Scenario> scenario_of(const Capture& capture) {
  const CaptureOrigin& origin = capture.index().origin;
  const std::string& text = origin.scenario_text;
  auto scenario =
      text.empty() ? load_scenario(origin.scenario) : parse_scenario(text, origin.scenario_file);
  if (!scenario) {
    return Error{AS_BAD_INPUT,
                 fmt::format("the scenario of this capture, {}, cannot be run here: {}",
                             origin.scenario, scenario.error().message),
                 scenario.error().hint};
  }
  const std::string other = difference(*scenario, capture.index());
  if (other.empty()) return scenario;
  return bad_input(
      fmt::format("the scenario of this capture, {}, cannot be run here: what is known by this "
                  "name has {}",
                  origin.scenario, other),
      "open the scenario's own file, with the model that it was recorded with");
}

}  // namespace attnscope
