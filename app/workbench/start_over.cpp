#include "app/workbench/start_over.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace attnscope {

Result<void> start_over(Workbench& bench) {
  if (bench.no_scenario()) return *bench.no_scenario();
  const RunSetup setup = bench.setup();
  auto known = bench.check_setup(setup);
  if (known) {
    bench.open(setup, false);
    return {};
  }
  if (bench.capture() == nullptr) return known.error();
  return Error{
      AS_NO_ENVIRONMENT,
      fmt::format("this capture was recorded on {}, which cannot be had here: {}",
                  fmt::join(setup.lanes, ", "), known.error().message),
      fmt::format("lane.set=LANE starts over on another: {}", fmt::join(bench.lane_names(), ", "))};
}

}  // namespace attnscope
