#include "app/views/pair_steps.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "app/text/format.h"
#include "app/views/linkage.h"

namespace attnscope {
namespace {

// The first step whose tokens or block tables are others, where counts do not tell; null: none.
const StateDiff* first_otherwise(const RunPair& c) {
  const StateDiff* first = nullptr;
  for (const StateDiff& state : c.diff.states) {
    const bool tells =
        state.what == "schedule" || state.what == "block tables" || state.what == "tokens";
    if (tells && (first == nullptr || state.step < first->step)) first = &state;
  }
  return first;
}

std::string difference(const StepSummary* a, const StepSummary* b) {
  if (a == nullptr) return "in the second alone";
  if (b == nullptr) return "in the first alone";
  std::string text;
  const auto say = [&](std::int64_t x, std::int64_t y, const char* one, const char* many) {
    if (x == y) return;
    text += fmt::format("{}{}{}", text.empty() ? "" : ", ", y > x ? "+" : "-",
                        plural(std::abs(y - x), one, many));
  };
  say(a->tokens, b->tokens, "token", "tokens");
  say(a->usage.held, b->usage.held, "block held", "blocks held");
  say(a->hit_tokens, b->hit_tokens, "token found computed", "tokens found computed");
  say(a->preemptions, b->preemptions, "preemption", "preemptions");
  return text.empty() ? text : text + " in the second";
}

}  // namespace

PairSteps pair_steps(const RunPair& c) {
  PairSteps out;
  std::map<std::int64_t, PairStep> all;
  for (const auto& step : c.a->summaries()) all[step->step].a = step;
  for (const auto& step : c.b->summaries()) all[step->step].b = step;
  const StateDiff* otherwise = first_otherwise(c);
  std::int64_t differing = 0, alone = 0;
  double any = 0;
  for (auto& [number, step] : all) {
    step.step = number;
    step.what = difference(step.a.get(), step.b.get());
    const bool counted = !step.what.empty();
    if (!counted && otherwise != nullptr && number == otherwise->step) step.what = otherwise->text;
    if (counted) ++(step.a && step.b ? differing : alone);
    for (const auto& side : {step.a, step.b}) {
      if (!side) continue;
      any = std::max(any, side->seconds);
      if (side->decode_only) out.longest = std::max(out.longest, side->seconds);
    }
    out.steps.push_back(std::move(step));
  }
  if (out.longest <= 0) out.longest = any;
  const auto count = [](const auto& summaries) {
    return plural(static_cast<std::int64_t>(summaries.size()), "step", "steps");
  };
  out.sentence = fmt::format("{} in the first, {} in the second: ", count(c.a->summaries()),
                             count(c.b->summaries()));
  if (differing + alone == 0 && otherwise != nullptr) {
    out.sentence += fmt::format("as many tokens and blocks in each, but others from step {} on.",
                                otherwise->step);
  } else if (differing + alone == 0) {
    out.sentence += "the same tokens and blocks in each.";
  } else {
    if (differing > 0) {
      out.sentence += plural(differing, "step", "steps") + " scheduled otherwise";
    }
    if (alone > 0) {
      out.sentence += fmt::format("{}{} in one of them alone", differing > 0 ? ", " : "",
                                  plural(alone, "step", "steps"));
    }
    out.sentence += ".";
  }
  return out;
}

std::int64_t step_in_first(const RunPair& c, std::int64_t step_of_second) {
  std::int32_t request = -1;
  std::int64_t position = -1;
  for (const auto& [token, place] : c.diff.where) {
    if (place.step != step_of_second || token.second < position) continue;
    const auto twin = std::ranges::find(c.diff.requests, token.first);
    if (twin == c.diff.requests.end()) continue;
    request = static_cast<std::int32_t>(twin - c.diff.requests.begin());
    position = token.second;
  }
  if (request < 0) return -1;
  // A request's tokens grow from step to step: the first step whose tables know the token.
  const auto& steps = c.a->summaries();
  const auto knows = [&](const std::shared_ptr<const StepSummary>& summary) {
    const auto trace = c.a->trace(summary->step);
    const RequestView* view = trace && *trace ? find_request(**trace, request) : nullptr;
    return view != nullptr && length_in_step(**trace, *view) > position;
  };
  const auto at = std::partition_point(steps.begin(), steps.end(),
                                       [&](const auto& summary) { return !knows(summary); });
  return at == steps.end() ? -1 : (*at)->step;
}

}  // namespace attnscope
