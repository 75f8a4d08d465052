#include "app/views/coverage_view.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>

#include "app/text/format.h"
#include "engine/io/plural.h"

namespace attnscope {
namespace {

constexpr std::size_t kNamed = 3;  // of what is missing, in the sentence

std::string sentence_of(const CoverageView& view, std::int64_t step) {
  const auto all = static_cast<std::int64_t>(view.lines.size());
  std::string text = fmt::format("{} of {} paths exercised in {}", view.met, all,
                                 plural(view.steps, "step", "steps"));
  std::vector<std::string> missing;
  std::int64_t here = 0;
  for (const CoverageLine& line : view.lines) {
    if (line.path.count == 0) missing.push_back(line.path.name);
    here += line.here > 0 ? 1 : 0;
  }
  if (missing.empty()) {
    text += ".";
  } else {
    const std::size_t named = std::min(kNamed, missing.size());
    text += fmt::format(
        "; never met: {}{}.",
        fmt::join(missing.begin(), missing.begin() + static_cast<long>(named), ", "),
        missing.size() > named ? fmt::format(" and {} more", missing.size() - named) : "");
  }
  text += fmt::format(" Step {} met {}.", step, here);
  if (view.unwatched > 0) {
    text +=
        fmt::format(" {} other {} computed in an earlier session, unwatched.",
                    format_count(view.unwatched), agree(view.unwatched, "step was", "steps were"));
  }
  return text;
}

}  // namespace

CoverageView coverage_view(const SessionInfo& info, const Snapshot& snapshot, std::int64_t step) {
  CoverageView view;
  std::map<std::int64_t, StepCoverage> steps;
  for (const auto& summary : snapshot.steps) {
    if (summary->coverage) {
      steps.emplace(summary->step, *summary->coverage);
    } else {
      ++view.unwatched;
    }
  }
  view.steps = static_cast<std::int64_t>(steps.size());
  if (steps.empty()) {
    view.why_empty = view.unwatched > 0
                         ? "These steps were recorded elsewhere: nobody watched which paths they "
                           "took. Run one to see."
                         : "No step has run yet, so no path has been taken.";
    return view;
  }
  const auto here = steps.find(step);
  const std::vector<CoveredPath> in_step =
      exercised(info.config, here == steps.end() ? std::map<std::int64_t, StepCoverage>{}
                                                 : std::map<std::int64_t, StepCoverage>{*here});
  const std::vector<CoveredPath> all = exercised(info.config, steps);
  for (std::size_t i = 0; i < all.size(); ++i) {
    view.lines.push_back({all[i], in_step[i].count});
    view.met += all[i].count > 0 ? 1 : 0;
  }
  std::ranges::stable_partition(view.lines,
                                [](const CoverageLine& line) { return line.path.count == 0; });
  view.sentence = sentence_of(view, step);
  return view;
}

}  // namespace attnscope
