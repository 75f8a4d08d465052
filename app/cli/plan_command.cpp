#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "app/cli/look_at.h"
#include "app/cli/look_commands.h"
#include "app/text/say.h"
#include "app/views/plan_view.h"
#include "engine/model/numbers.h"
#include "engine/session/place.h"

namespace attnscope {
namespace {

using nlohmann::json;

json plan_json(const PlanView& view, const PlanCommand& command) {
  json splits = json::array();
  for (const PlanBar& bar : view.bars) {
    splits.push_back({{"row", bar.row},
                      {"begin", bar.begin},
                      {"end", bar.end},
                      {"part", bar.part},
                      {"worker", bar.worker},
                      {"start", bar.start}});
  }
  return {{"format", "attnscope-plan"},
          {"version", 1},
          {"place", command.at.place},
          {"type", view.type},
          {"rule", view.rule},
          {"multiprocessors", view.multiprocessors},
          {"rows", view.rows},
          {"combined", view.combined},
          {"busiest", view.busiest},
          {"mean", view.mean},
          {"splits", splits}};
}

void print_plan(const PlanView& view, std::int64_t lines) {
  say("{}\n{} layers, rule {}\n\n", view.sentence, view.type, view.rule);
  if (!view.row_sentence.empty()) say("{}:\n", view.row_sentence);
  say("{:>6}{:>7}{:>12}{:>7}{:>7}{:>17}{:>11}\n", "split", "row", "first tile", "tiles", "part",
      "multiprocessor", "starts at");
  std::int64_t shown = 0, left = 0;
  for (const PlanBar& bar : view.bars) {
    const bool wanted =
        view.selected.empty() || std::ranges::find(view.selected, bar.split) != view.selected.end();
    if (!wanted) continue;
    if (++shown > lines) {
      ++left;
      continue;
    }
    say("{:>6}{:>7}{:>12}{:>7}{:>7}{:>17}{:>11}\n", bar.split, bar.row, bar.begin, bar.tiles(),
        bar.part, bar.worker, bar.start);
  }
  if (left > 0) say("  and {} more (--rows)\n", left);
}

}  // namespace

Result<as_status> plan_command(const PlanCommand& command) {
  const auto place = parse_place(command.at.place);
  if (!place) return place.error();
  auto session = session_at(command.at, *place, {});
  if (!session) return session.error();
  const SessionParts& parts = (*session)->parts();
  const auto& layers = parts.config.layers;
  const auto found = std::ranges::find(layers, place->layer);
  const int layer = found == layers.end() ? -1 : static_cast<int>(found - layers.begin());
  const StepMetadata& step = (*session)->metadata();
  if (command.token >= step.num_tokens_in_step()) {
    return bad_input(fmt::format("token {} is not there", command.token),
                     fmt::format("tokens of this step: 0 to {}", step.num_tokens_in_step() - 1));
  }
  const PlanView view = plan_view(parts.config, parts.layout, step, layer, command.token);
  if (!view.why_empty.empty()) {
    return bad_input(view.why_empty.substr(0, view.why_empty.size() - 1),
                     view.off ? "add --profile vllm,attention_plan=flashmla"
                              : "choose a place behind attention_plan, in a layer: "
                                "7/2/sparse_attention");
  }
  if (command.at.json) {
    say_json(plan_json(view, command));
  } else {
    print_plan(view, command.rows);
  }
  return AS_OK;
}

}  // namespace attnscope
