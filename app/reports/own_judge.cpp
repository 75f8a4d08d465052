#include "app/reports/own_judge.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "app/reports/case_of_capture.h"
#include "app/text/format.h"
#include "app/wiring/case_lane.h"
#include "app/wiring/wiring.h"
#include "kernels/cpu/thread_pool.h"

namespace attnscope {
namespace {

struct Judge {
  explicit Judge(const Tolerances& given) : tolerances(given) {}
  Tolerances tolerances;
  LaneRegistry registry = all_lanes();
  cpu::ThreadPool pool{0};

  OwnOutput ask(const Capture& capture, const Place& place) const {
    // Who asks knows the place.
    const auto unknown = [&](const Error& error) {
      const std::string where = fmt::format("{}: {}: ", capture.path(), format_place(place));
      const bool known = error.message.starts_with(where);
      return OwnOutput{OwnOutput::kUnknown, "recorded without a reference, and " +
                                                error.message.substr(known ? where.size() : 0)};
    };
    auto kept = case_of_capture(capture, place);
    if (!kept) return unknown(kept.error());
    auto lane = find_case_lane(registry, "ref.sim", kept->op);
    if (!lane) return unknown(lane.error());
    auto run = run_case(*kept, *lane, case_options(registry, kept->op, tolerances, pool.handle()));
    if (!run) return unknown(run.error());
    const auto wrong = std::ranges::find(run->taps, Verdict::kWrong, &CaseTap::verdict);
    if (wrong == run->taps.end()) return {OwnOutput::kRight, ""};
    const Comparison& c = wrong->comparison;
    return {OwnOutput::kWrong,
            fmt::format("{}, {:.6g} instead of {:.6g}, {} of {} elements beyond", wrong->tap,
                        c.worst.value, c.worst.reference, c.figures.beyond, c.elements)};
  }
};

}  // namespace

OwnJudge reference_judge(const Tolerances& tolerances) {
  return [judge = std::make_shared<const Judge>(tolerances)](
             const Capture& capture, const Place& place) { return judge->ask(capture, place); };
}

}  // namespace attnscope
