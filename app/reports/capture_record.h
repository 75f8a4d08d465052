// Records a capture from a headless run of a scenario.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "app/reports/run.h"
#include "engine/capture/capture.h"
#include "engine/capture/capture_writer.h"

namespace attnscope {

struct RecordOptions {
  RunOptions run;
  CaptureOptions capture;
  std::optional<std::int64_t> rows;   // token rows of a step at most, 0 = all; see rows_at_most
  std::vector<std::string> requests;  // names or ids; empty = all
  // Nobody looks at a step before it is over: a GPU runs those of decoding as a whole, branches
  // beside each other. Kept is which ops ran when. Without references, at level summary.
  bool as_served = false;
  // Asked between two ops, may be empty: true ends the recording, which stays as an incomplete
  // capture with the whole steps before.
  std::function<bool()> cancelled;
};

// 0 = all: those of level full unless something else is asked for. Else 64.
std::int64_t rows_at_most(const RecordOptions& options);

struct RecordResult {
  CaptureTotals totals;
  bool cancelled = false;
  std::string folder = {};  // where an incomplete capture lies: the name may be an older one's
  std::string lanes;
  std::vector<std::string> idle_lanes = {};  // that were asked for and carried out no op
  bool cut_short = false;  // by an interrupt, --steps or --decode-steps: their ops may have come
  Summary summary;
  double engine_seconds = 0;  // inside ops
  double run_seconds = 0;     // inside the session, with references and the copies of tensors
  double write_seconds = 0;   // statistics and files, beside the session
  double wall_seconds = 0;    // from the first step to the end of the last file
  std::string note = {};      // what was asked for and is not in it; empty = everything is
};

Result<RecordResult> record_scenario(const Scenario& scenario, const LaneRegistry& lanes,
                                     const RecordOptions& options, const std::string& path,
                                     const std::function<void(const RunProgress&)>& progress);

// The steps whose traces a picture of a session holds, all their taps.
Result<CaptureTotals> write_capture(const Snapshot& snapshot, const Scenario& scenario,
                                    const std::string& path);

// What a capture made by this program on this machine says of itself.
CaptureOrigin capture_origin(const Scenario& scenario);

// The scenario that a capture was recorded from, to run it again. AS_BAD_INPUT when a file that it
// needs is not here, or what is known here by its name is something else.
Result<Scenario> scenario_of(const Capture& capture);

}  // namespace attnscope
