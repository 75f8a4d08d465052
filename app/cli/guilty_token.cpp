#include "app/cli/guilty_token.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <nlohmann/json.hpp>

#include "app/cli/look_at.h"
#include "app/wiring/wiring.h"
#include "engine/capture/again.h"
#include "engine/capture/capture.h"
#include "engine/model/numbers.h"
#include "engine/session/trace_recorder.h"

namespace attnscope {
namespace {

using nlohmann::json;

// ended: it had no number to sample from behind its last position.
Error never_computed(const TokenChoice& token, const TokenBlame& blame, bool ended = false) {
  const std::string what =
      fmt::format("request {} never computes position {}", token.request, token.position);
  if (blame.last_position() < 0) return bad_input(what, "it computes nothing here");
  const char* prefix = token.position < blame.first_position()
                           ? "; rows of the prefix before them another request computed"
                       : ended ? "; logits of the last one are no numbers, which ended it"
                               : "";
  return bad_input(what, fmt::format("it computes positions {} to {}{}", blame.first_position(),
                                     blame.last_position(), prefix));
}

Result<GuiltyToken> of_capture(const LookAt& at, const TokenChoice& token) {
  if (at.model.any() || !at.profile.empty() || at.lanes != LookAt().lanes) {
    return usage_error(
        fmt::format("{} is a capture: its model and who ran its ops are recorded", at.scenario),
        "leave out --lane, --profile and what chooses a model, or name a scenario");
  }
  auto capture = Capture::open(at.scenario);
  if (!capture) return capture.error();
  const Capture& c = **capture;
  if (c.info()->references == References::kNone) {
    return bad_input(
        fmt::format("{} was recorded without references: nothing was compared", at.scenario),
        "record it with --references sim");
  }
  auto request = request_by_name(token.request, c.info()->request_names);
  if (!request) return request.error();
  GuiltyToken out{TokenBlame(*request, token.position), *request, scenario_words(c.index()), {}};
  bool traces = false;
  for (const auto& summary : c.summaries()) {
    auto trace = c.trace(summary->step);
    if (!trace) return trace.error();
    if (*trace == nullptr) continue;
    traces = true;
    if (out.blame.add(**trace, *summary)) break;
  }
  if (!traces) {
    return bad_input(fmt::format("{} keeps summaries of steps alone: who computed which token is "
                                 "not in it",
                                 at.scenario),
                     "record it with --level full");
  }
  if (!out.blame.found()) return never_computed(token, out.blame);
  if (c.index().level != CaptureLevel::kFull) {
    out.not_kept = "the capture has no values: record it with --level full";
  } else if (!out.blame.kept()) {
    out.not_kept = "the capture does not keep the token's row: record it with --rows all";
  }
  return out;
}

Result<GuiltyToken> of_scenario(const LookAt& at, const TokenChoice& token) {
  auto scenario = scenario_of(at);
  if (!scenario) return scenario.error();
  std::vector<std::string> names;
  for (const ScenarioRequest& request : scenario->requests) names.push_back(request.name);
  auto request = request_by_name(token.request, names);
  if (!request) return request.error();
  TraceOptions kept;
  kept.budget_bytes = 0;
  kept.all_rows = true;
  kept.requests = {*request};
  kept.attention = false;
  TraceRecorder recorder(kept);
  const LaneRegistry registry = all_lanes();
  auto session = Session::create(*scenario, registry, session_options(at));
  if (!session) return session.error();
  (*session)->set_observer(&recorder);
  GuiltyToken out{TokenBlame(*request, token.position), *request, {}, {}};
  while (!(*session)->finished()) {
    const std::size_t step = (*session)->history().size();
    if (auto ok = (*session)->step(); !ok) return ok.error();
    if ((*session)->history().size() == step) continue;
    const auto trace = recorder.trace(static_cast<std::int64_t>(step));
    const auto summary = recorder.summary(static_cast<std::int64_t>(step));
    if (trace != nullptr && summary != nullptr && out.blame.add(*trace, *summary)) return out;
  }
  const Request& ended = (*session)->serving().requests()[to_size(*request)];
  return never_computed(token, out.blame, ended.ended_tokenless());
}

json guilt_json(const std::optional<TokenGuilt>& guilt) {
  if (!guilt) return nullptr;
  return {{"step", guilt->place.step},
          {"layer", guilt->place.layer},
          {"op", as_op_find(guilt->place.op)->name},
          {"tap", guilt->tap},
          {"lane", guilt->lane},
          {"cache", guilt->cache},
          {"token", guilt->token},
          {"position", guilt->position},
          {"elements", guilt->elements},
          {"beyond", guilt->beyond},
          {"sentence", guilt->sentence}};
}

}  // namespace

Result<std::int32_t> request_by_name(const std::string& text,
                                     const std::vector<std::string>& names) {
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (text == names[i] || text == std::to_string(i)) return static_cast<std::int32_t>(i);
  }
  return usage_error(fmt::format("--request {}: there is no such request", text),
                     fmt::format("requests: {}", fmt::join(names, ", ")));
}

const TokenGuilt* GuiltyToken::guilt() const {
  if (blame.own()) return &*blame.own();
  return blame.before() ? &*blame.before() : nullptr;
}

std::vector<std::string> GuiltyToken::lines() const {
  std::vector<std::string> out;
  if (blame.own() && blame.own()->token < 0) {
    out.push_back(
        "first wrong op of its step, and whether it is wrong for this token is not known: " +
        blame.own()->sentence);
  } else if (blame.own()) {
    out.push_back("first guilty op: " + blame.own()->sentence);
  } else if (not_kept.empty()) {
    out.emplace_back("every op of its step is right for this token, on what it was given");
  }
  if (!not_kept.empty()) out.push_back(not_kept);
  if (blame.before()) {
    out.push_back("earlier tokens of the request, whose rows it may read: " +
                  blame.before()->sentence);
  } else if (blame.unclear()) {
    out.push_back("wrong in an earlier step, and whether it is for this request is not known: " +
                  blame.unclear()->sentence);
  } else if (not_kept.empty()) {
    out.emplace_back("no op is wrong for an earlier token of the request");
  }
  return out;
}

Result<GuiltyToken> guilty_token(const LookAt& at, const TokenChoice& token) {
  return is_capture_folder(at.scenario) ? of_capture(at, token) : of_scenario(at, token);
}

json guilty_token_json(const GuiltyToken& found) {
  return {{"format", "attnscope-guilty-token"},
          {"version", 1},
          {"request", found.request},
          {"step", found.blame.step()},
          {"token", found.blame.token()},
          {"kept", found.not_kept.empty()},
          {"own", guilt_json(found.blame.own())},
          {"before", guilt_json(found.blame.before())},
          {"unclear", guilt_json(found.blame.unclear())},
          {"lines", found.lines()}};
}

Result<std::int32_t> request_in(const Session& session, const std::string& text) {
  std::vector<std::string> names;
  for (const Request& request : session.serving().requests()) names.push_back(request.name);
  return request_by_name(text, names);
}

Result<std::int64_t> row_in_step(const Session& session, const TokenChoice& token) {
  auto request = request_in(session, token.request);
  if (!request) return request.error();
  const StepMetadata& step = session.metadata();
  std::int64_t first = -1, last = -1;
  for (std::int64_t row = 0; row < step.num_tokens_in_step(); ++row) {
    if (step.live[to_size(step.token_to_req[to_size(row)])] != *request) continue;
    const std::int64_t position = step.positions[to_size(row)];
    if (position == token.position) return row;
    if (first < 0) first = position;
    last = position;
  }
  return bad_input(
      fmt::format("this step does not compute position {} of request {}", token.position,
                  token.request),
      first < 0 ? std::string("the request has no tokens in it")
                : fmt::format("its positions here are {} to {}; leave the place out to have the "
                              "step found",
                              first, last));
}

}  // namespace attnscope
