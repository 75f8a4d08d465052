#include "engine/explain/hypotheses.h"

#include <algorithm>
#include <chrono>
#include <functional>

namespace attnscope {
namespace {

// Elements of a run that are not what the case holds. A bound of the whole tap can be broken by no
// element alone.
std::int64_t unlike(const CaseRun& run) {
  std::int64_t count = 0;
  for (const CaseTap& tap : run.taps) {
    if (tap.verdict != Verdict::kWrong) continue;
    count += std::max<std::int64_t>(tap.comparison.figures.beyond, 1);
  }
  return count;
}

}  // namespace

Result<Hypotheses> try_mistakes(const OpCase& observed, const CaseRun& right,
                                std::span<const Mistake> mistakes, const CaseRunOptions& options,
                                double seconds) {
  const auto start = std::chrono::steady_clock::now();
  Hypotheses out;
  out.wrong = unlike(right);
  if (out.wrong == 0) return out;
  CaseRunOptions once = options;
  once.repeat = 1;
  once.sim = nullptr;  // codes that follow from a mistake's own row need not be those observed
  once.keep_references = false;
  for (const Mistake& mistake : mistakes) {
    const std::chrono::duration<double> spent = std::chrono::steady_clock::now() - start;
    if (spent.count() > seconds) {
      ++out.left;
      continue;
    }
    const auto run = run_case(observed, mistake.lane, once);
    if (!run) {
      if (run.error().code == AS_INTERNAL) return run.error();
      continue;
    }
    ++out.tried;
    const std::int64_t other = unlike(*run);
    const double share = 1 - static_cast<double>(other) / static_cast<double>(out.wrong);
    if (share < kLeastShare) continue;
    out.likely.push_back({mistake.lane.name, mistake.words, share, other == 0});
  }
  std::ranges::stable_sort(out.likely, std::greater<>(), &Hypothesis::share);
  return out;
}

}  // namespace attnscope
