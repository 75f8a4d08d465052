// Commands that select: token, request, head, block, entry.
#include <fmt/format.h>

#include <algorithm>

#include "app/gui/command_group.h"
#include "app/gui/shell_commands.h"
#include "app/views/linkage.h"
#include "app/views/op_order.h"
#include "app/views/top_k_view.h"

namespace attnscope::gui {
namespace {

// Tokens that a request has in the step that is shown; 0 where the step does not know it, or its
// tables were not kept.
std::int64_t tokens_shown(const Workbench& bench, std::int32_t request) {
  const StepTrace* step = bench.step();
  const RequestView* view = step != nullptr ? find_request(*step, request) : nullptr;
  return view != nullptr ? view->request.num_tokens() : 0;
}

// Moves the selected token within its request, or to another request.
void move_token(Workbench& bench, std::int64_t by) {
  const std::int32_t request = bench.selected_request();
  if (request < 0) return;
  const std::int64_t last = tokens_shown(bench, request) - 1;
  const std::int64_t from =
      bench.selection().position >= 0 ? bench.selection().position : bench.selected_position();
  bench.select_token(request,
                     std::clamp<std::int64_t>(from + by, 0, std::max<std::int64_t>(last, 0)));
}

void add_tokens(const CommandGroup& group, Workbench& bench) {
  group.add("select.next_token", "Next token", "Selects the token after the selected one.",
            "RightBracket", act([&] { move_token(bench, 1); }));
  group.add("select.previous_token", "Previous token", "Selects the token before the selected one.",
            "LeftBracket", act([&] { move_token(bench, -1); }));
  group.add("select.newest_token", "Newest token", "Selects the request's last token in the step.",
            "N", act([&] { bench.select_token(bench.selection().request, -1); }));
  group.add("select.next_request", "Next request", "Selects the next request.", "R", act([&] {
              const auto count =
                  static_cast<std::int32_t>(bench.snapshot()->info->request_names.size());
              if (count > 0) bench.select_token((bench.selection().request + 1) % count, -1);
            }));
  group.add(
      "select.token", "Token ..", "Selects a token by request and position, such as 0/2051.", "",
      [&](std::string_view value) -> Result<void> {
        const auto slash = value.find('/');
        const auto requests =
            static_cast<std::int64_t>(bench.snapshot()->info->request_names.size());
        auto request =
            whole_value(value.substr(0, slash), "select.token, request", 0, requests - 1);
        if (!request) return request.error();
        if (slash == std::string_view::npos) {
          return usage_error("select.token: no position", "write REQUEST/POSITION, such as 0/2051");
        }
        const auto id = static_cast<std::int32_t>(*request);
        const std::int64_t tokens = tokens_shown(bench, id);
        if (tokens == 0) {
          return usage_error(fmt::format("select.token: the step that is shown has no token of {}",
                                         request_name(*bench.snapshot()->info, id)),
                             "go to a step in which it runs, with its tables recorded");
        }
        auto position =
            whole_value(value.substr(slash + 1), "select.token, position", 0, tokens - 1);
        if (!position) return position.error();
        bench.select_token(id, *position);
        return {};
      },
      "REQUEST/POSITION");
}

// An entry of the request that the panels look at: of layers like the cursor's, of those that
// select where that has none.
Result<void> pick_entry(Workbench& bench, std::string_view value) {
  const std::int32_t request = bench.selected_request();
  if (request < 0) {
    return usage_error("select.entry: the step that is shown has no tokens", "go to another step");
  }
  const SessionInfo& info = *bench.snapshot()->info;
  const int layer = layer_index(info, bench.cursor().layer);
  int tokens = layer >= 0 ? tokens_per_entry(info, layer) : 0;
  if (tokens == 0) tokens = top_k_layer(info, bench.cursor(), -1).ratio;
  for (int i = 0; tokens == 0 && i < info.config.num_layers(); ++i) {
    tokens = tokens_per_entry(info, i);
  }
  if (tokens == 0) {
    return usage_error("select.entry: no layer of this model has entries", "open another model");
  }
  const RequestView* view = find_request(*bench.step(), request);
  const std::int64_t entries = view == nullptr ? 0 : length_in_step(*bench.step(), *view) / tokens;
  if (entries == 0) {
    return usage_error(fmt::format("select.entry: {} has no entry of {} tokens in this step",
                                   request_name(info, request), tokens),
                       "go to a later step");
  }
  auto number = whole_value(value, "select.entry", 0, entries - 1);
  if (!number) return number.error();
  Selection selection = bench.selection();
  selection.pick_entry(request, tokens, *number);
  bench.select(selection);
  return {};
}

void add_heads_and_blocks(const CommandGroup& group, Workbench& bench) {
  const auto turn_head = [&](int by) {
    Selection selection = bench.selection();
    const int heads = bench.snapshot()->info->config.heads;
    selection.head = (selection.head + by + heads) % heads;
    bench.select(selection);
  };
  group.add("select.next_head", "Next head", "Selects the next head.", "H",
            act([turn_head] { turn_head(1); }));
  group.add("select.previous_head", "Previous head", "Selects the previous head.", "Shift+H",
            act([turn_head] { turn_head(-1); }));
  group.add("select.none", "Clear selection",
            "Forgets block, entry and element; keeps the request.", "", act([&] {
              Selection cleared;
              cleared.request = bench.selection().request;
              bench.select(cleared);
            }));
  const auto pick = [&](const char* what, auto limit, auto set) {
    return [&bench, what, limit, set](std::string_view value) -> Result<void> {
      auto number = whole_value(value, what, 0, limit());
      if (!number) return number.error();
      Selection selection = bench.selection();
      set(selection, *number);
      bench.select(selection);
      return {};
    };
  };
  group.add("select.head", "Head ..", "Selects a head.", "",
            pick(
                "select.head",
                [&bench]() -> std::int64_t { return bench.snapshot()->info->config.heads - 1; },
                [](Selection& s, std::int64_t n) { s.head = static_cast<int>(n); }),
            "HEAD");
  group.add("select.block", "Block ..", "Selects a block by its id.", "",
            pick(
                "select.block",
                [&bench]() -> std::int64_t { return bench.snapshot()->info->num_blocks - 1; },
                [](Selection& s, std::int64_t n) {
                  s.block = static_cast<std::int32_t>(n);
                  s.row = -1;
                }),
            "BLOCK");
  group.add(
      "select.entry", "Entry ..", "Selects a compressed entry of the request.", "",
      [&](std::string_view value) { return pick_entry(bench, value); }, "ENTRY");
}

}  // namespace

void add_selection_commands(CommandRegistry& registry, Workbench& bench) {
  const CommandGroup group(
      registry, "Selection", [&bench] { return bench.snapshot() != nullptr; }, kNoSession);
  add_tokens(group, bench);
  add_heads_and_blocks(group, bench);
}

}  // namespace attnscope::gui
