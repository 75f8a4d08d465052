#include "tests/fuzz/small_capture.h"

#include "engine/capture/capture_writer.h"
#include "engine/family/models.h"
#include "engine/session/snapshot.h"
#include "engine/session/trace_recorder.h"
#include "kernels/cpu/cpu_lane.h"
#include "tests/fuzz/judge.h"

namespace attnscope::fuzz {

Scenario small_scenario() {
  Scenario s;
  s.name = "small";
  s.model = *preset("tiny", {0, 1});
  s.pool_blocks = 24;
  s.limits = {8, 2};
  ScenarioRequest request;
  request.name = "one";
  for (int i = 0; i < 9; ++i) request.tokens.push_back(97 + i);
  request.max_new_tokens = 2;
  s.requests.push_back(request);
  return s;
}

std::unique_ptr<Session> small_session() {
  LaneRegistry lanes;
  lanes.add(*cpu::lane());
  SessionOptions options;
  options.references = References::kNone;
  options.threads = 1;
  options.rewind_every = 1;
  return must(Session::create(small_scenario(), lanes, options));
}

void record_small_capture(const std::string& folder) {
  const auto session = small_session();
  TraceRecorder recorder;
  session->set_observer(&recorder);
  CaptureOptions options;
  options.level = CaptureLevel::kFull;
  options.cache_steps = {1};
  auto writer = must(CaptureWriter::create(folder, options, *session_info(*session), {}));
  while (!session->finished()) {
    if (auto ok = session->step(); !ok) throw std::runtime_error(ok.error().text());
    const auto traces = recorder.traces();
    const auto summaries = recorder.summaries();
    if (auto ok = writer->add(*summaries.back(), traces.back().get(), session.get()); !ok) {
      throw std::runtime_error(ok.error().text());
    }
  }
  must(writer->finish());
  session->set_observer(nullptr);
}

}  // namespace attnscope::fuzz
