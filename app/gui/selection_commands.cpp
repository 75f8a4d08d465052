// Commands that select: token, request, head, block, entry.
#include <fmt/format.h>

#include <algorithm>

#include "app/gui/command_group.h"
#include "app/gui/shell_commands.h"
#include "app/views/linkage.h"
#include "app/views/op_order.h"
#include "app/views/tensor_view.h"
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

struct Token {
  std::int32_t request = -1;
  std::int64_t position = -1;
};

// REQUEST/POSITION; the position is not above `last`.
Result<Token> token_value(const Workbench& bench, std::string_view value, const std::string& id,
                          const std::function<Result<std::int64_t>(std::int32_t)>& last) {
  const auto slash = value.find('/');
  const auto requests = static_cast<std::int64_t>(bench.snapshot()->info->request_names.size());
  auto request = whole_value(value.substr(0, slash), (id + ", request").c_str(), 0, requests - 1);
  if (!request) return request.error();
  if (slash == std::string_view::npos) {
    return usage_error(id + ": no position", "write REQUEST/POSITION, such as 0/2051");
  }
  const auto of = static_cast<std::int32_t>(*request);
  const auto most = last(of);
  if (!most) return most.error();
  auto position = whole_value(value.substr(slash + 1), (id + ", position").c_str(), 0, *most);
  if (!position) return position.error();
  return Token{of, *position};
}

Result<void> select_token(Workbench& bench, std::string_view value) {
  const auto last = [&](std::int32_t request) -> Result<std::int64_t> {
    const std::int64_t tokens = tokens_shown(bench, request);
    if (tokens > 0) return tokens - 1;
    return usage_error(fmt::format("select.token: the step that is shown has no token of {}",
                                   request_name(*bench.snapshot()->info, request)),
                       "go to a step in which it runs, with its tables recorded");
  };
  const auto token = token_value(bench, value, "select.token", last);
  if (!token) return token.error();
  bench.select_token(token->request, token->position);
  return {};
}

// Goes to the same op of the step that computed a token, and selects it.
Result<void> go_to_computed(Workbench& bench, std::string_view value) {
  const auto any = [](std::int32_t) -> Result<std::int64_t> { return std::int64_t{1} << 40; };
  const auto token = token_value(bench, value, "cursor.computed", any);
  if (!token) return token.error();
  const Snapshot& snapshot = *bench.snapshot();
  const std::int64_t step = step_that_computed(snapshot, token->request, token->position);
  if (step < 0) {
    return usage_error(
        fmt::format("cursor.computed: no step that is known computed token {} of {}",
                    token->position, request_name(*snapshot.info, token->request)),
        "run on, or look it up in a step that has it: the rows of a hit were computed by another");
  }
  Place place = bench.cursor().step < 0 ? first_view(*snapshot.info, step) : bench.cursor();
  place.step = step;
  bench.go_to(place);
  bench.select_token(token->request, token->position);
  return {};
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
      "select.request", "Request ..", "Selects a request by its number.", "",
      [&](std::string_view value) -> Result<void> {
        const auto requests =
            static_cast<std::int64_t>(bench.snapshot()->info->request_names.size());
        auto request = whole_value(value, "select.request", 0, requests - 1);
        if (!request) return request.error();
        bench.select_token(static_cast<std::int32_t>(*request), -1);
        return {};
      },
      "REQUEST");
  group.add(
      "select.token", "Token ..", "Selects a token by request and position, such as 0/2051.", "",
      [&](std::string_view value) { return select_token(bench, value); }, "REQUEST/POSITION");
  group.add(
      "cursor.computed", "Where a token was computed ..",
      "Goes to the same op of the step that computed a token, and selects it.", "",
      [&](std::string_view value) { return go_to_computed(bench, value); }, "REQUEST/POSITION");
}

// An entry of the request that the panels look at: of so many tokens behind a slash, else of layers
// like the cursor's, of those that select where that has none.
Result<void> pick_entry(Workbench& bench, std::string_view value) {
  const std::int32_t request = bench.selected_request();
  if (request < 0) {
    return usage_error("select.entry: the step that is shown has no tokens", "go to another step");
  }
  const SessionInfo& info = *bench.snapshot()->info;
  const int layer = layer_index(info, bench.cursor().layer);
  int tokens = layer >= 0 ? tokens_per_entry(info, layer) : 0;
  if (const auto slash = value.find('/'); slash != std::string_view::npos) {
    auto ratio = whole_value(value.substr(slash + 1), "select.entry, tokens", 1, 1 << 20);
    if (!ratio) return ratio.error();
    tokens = 0;
    for (int i = 0; tokens == 0 && i < info.config.num_layers(); ++i) {
      if (tokens_per_entry(info, i) == *ratio) tokens = static_cast<int>(*ratio);
    }
    if (tokens == 0) {
      return usage_error(fmt::format("select.entry: no layer has entries of {} tokens", *ratio),
                         "write ENTRY/TOKENS with the tokens that an entry of a layer is made of");
    }
    value = value.substr(0, slash);
  }
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

Result<void> pick_element(Workbench& bench, std::string_view value) {
  const TapCopy* tap = bench.selected_tap();
  if (tap == nullptr) {
    return usage_error("select.element: the op that is shown has no tap with values",
                       "go to another op, or choose a tap with tensor.tap");
  }
  const auto axes = axes_of(*bench.step(), *bench.op(), *tap);
  Selection selection = bench.selection();
  selection.tap = tap->name;
  selection.element.clear();
  for (std::size_t i = 0; i < axes.size(); ++i) {
    const auto slash = value.find('/');
    const bool last = i + 1 == axes.size();
    if (last != (slash == std::string_view::npos)) {
      return usage_error(fmt::format("select.element: {} has {} axes", tap->name, axes.size()),
                         "write one index for each, with slashes between them: " +
                             shape_text(*bench.step(), *bench.op(), *tap));
    }
    const bool token = axes[i].link == AxisLink::kToken;
    const std::int64_t size = token ? bench.step()->metadata.num_tokens_in_step() : axes[i].size;
    auto number = whole_value(value.substr(0, slash), "select.element", 0, size - 1);
    if (!number) return number.error();
    if (token && index_of_token_row(*bench.step(), *bench.op(), *number) < 0) {
      return usage_error(fmt::format("select.element: row {} of the step was not kept", *number),
                         kept_rows(*bench.step()));
    }
    selection.element.push_back(*number);
    if (!last) value.remove_prefix(slash + 1);
  }
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
      "select.element", "Element ..",
      "Selects an element of the shown tap by its index along the axes, tokens as rows of the "
      "step.",
      "", [&](std::string_view value) { return pick_element(bench, value); }, "INDEX/INDEX/..");
  group.add(
      "select.entry", "Entry ..",
      "Selects a compressed entry of the request; ENTRY/TOKENS says of how many tokens.", "",
      [&](std::string_view value) { return pick_entry(bench, value); }, "ENTRY[/TOKENS]");
}

}  // namespace

void add_selection_commands(CommandRegistry& registry, Workbench& bench) {
  const CommandGroup group(
      registry, "Selection", [&bench] { return bench.snapshot() != nullptr; }, kNoSession);
  add_tokens(group, bench);
  add_heads_and_blocks(group, bench);
}

}  // namespace attnscope::gui
