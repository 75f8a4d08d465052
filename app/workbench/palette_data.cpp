#include "app/workbench/palette_data.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <optional>

#include "app/text/format.h"
#include "app/text/text.h"
#include "app/views/events_view.h"
#include "app/views/linkage.h"
#include "app/views/op_order.h"
#include "engine/family/models.h"
#include "engine/io/letters.h"

namespace attnscope {
namespace {

constexpr std::size_t kMostRequests = 8;  // offered for a token
constexpr std::size_t kMostSteps = 20;    // with an event
constexpr std::size_t kMostPlaces = 3;    // of a text, by request
constexpr std::size_t kShortestText = 3;

// "block 211 of manual": a word, a number, and what it is of.
struct Named {
  std::string what;
  std::int64_t number = 0;
  std::string of;  // lower case; may be empty
};

std::optional<Named> named_in(std::string_view typed) {
  Named named;
  const std::string text = lower(typed);
  const std::size_t blank = text.find(' ');
  if (blank == std::string::npos) return std::nullopt;
  named.what = text.substr(0, blank);
  const std::string_view rest = trimmed(std::string_view(text).substr(blank));
  const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), named.number);
  if (error != std::errc() || named.number < 0) return std::nullopt;
  std::string_view of = trimmed(rest.substr(static_cast<std::size_t>(end - rest.data())));
  if (of.empty()) return named;
  if (!of.starts_with("of ")) return std::nullopt;
  named.of = std::string(trimmed(of.substr(3)));
  return named;
}

PaletteItem data_item(const std::string& id, const std::string& value, std::string title,
                      std::string detail = {}) {
  return {PaletteItem::Kind::kPlace, id, id + "=" + value, std::move(title), "", std::move(detail)};
}

// One thing that is chosen by its number alone.
std::vector<PaletteItem> of_count(const Named& named, const char* command, std::int64_t count,
                                  std::string title, std::string detail = {}) {
  if (named.number >= count) {
    return {palette_note(
        fmt::format("There is no {} {}", named.what, named.number),
        count > 0 ? fmt::format("they go from 0 to {}", format_count(count - 1)) : "")};
  }
  return {data_item(command, std::to_string(named.number), std::move(title), std::move(detail))};
}

std::vector<PaletteItem> tokens(const Named& named, const Snapshot& snapshot, const Place& cursor,
                                std::int32_t selected) {
  const SessionInfo& info = *snapshot.info;
  const StepTrace* step = snapshot.trace(cursor.step);
  std::vector<std::int32_t> ids;
  for (std::size_t i = 0; i < info.request_names.size(); ++i) {
    const auto id = static_cast<std::int32_t>(i);
    if (named.of.empty() || named.of == lower(request_name(info, id)) ||
        named.of == std::to_string(id)) {
      ids.push_back(id);
    }
  }
  std::ranges::stable_partition(ids, [&](std::int32_t id) { return id == selected; });
  std::vector<PaletteItem> items;
  for (const std::int32_t id : ids) {
    if (items.size() >= 2 * kMostRequests) break;
    const std::string value = fmt::format("{}/{}", id, named.number);
    const std::string what =
        fmt::format("token {} of {}", format_count(named.number), request_name(info, id));
    const RequestView* view = step != nullptr ? find_request(*step, id) : nullptr;
    if (view != nullptr && named.number < view->request.num_tokens()) {
      items.push_back(data_item("select.token", value, "Select " + what, "in the step shown"));
    }
    const std::int64_t computed = step_that_computed(snapshot, id, named.number);
    if (computed >= 0 && computed != cursor.step) {
      items.push_back(data_item("cursor.computed", value, "Go to where " + what + " was computed",
                                fmt::format("step {}", computed)));
    }
  }
  if (items.empty()) {
    items.push_back(
        palette_note(fmt::format("No request has a token {} yet", format_count(named.number)),
                     "in the step shown, or in another that is known"));
  }
  return items;
}

std::vector<PaletteItem> entries(const Named& named, const SessionInfo& info,
                                 std::int32_t request) {
  std::vector<PaletteItem> items;
  std::vector<int> seen;
  for (int i = 0; i < info.config.num_layers(); ++i) {
    const int per_entry = tokens_per_entry(info, i);
    if (per_entry == 0 || std::ranges::find(seen, per_entry) != seen.end()) continue;
    const std::string type = layer_type_name(info.config, i);
    if (!named.of.empty() && named.of != lower(type) && named.of != std::to_string(per_entry))
      continue;
    seen.push_back(per_entry);
    items.push_back(data_item(
        "select.entry", fmt::format("{}/{}", named.number, per_entry),
        fmt::format("Select entry {} of {}", format_count(named.number), type),
        fmt::format("of {}, {} tokens an entry", request_name(info, request), per_entry)));
  }
  if (items.empty()) {
    items.push_back(palette_note("No layer of this model has such entries",
                                 named.of.empty() ? "it selects tokens, or nothing" : ""));
  }
  return items;
}

std::vector<PaletteItem> layers(const Named& named, const SessionInfo& info, const Place& cursor) {
  const int index =
      layer_index(info, static_cast<int>(std::min<std::int64_t>(named.number, 1 << 20)));
  if (index < 0) {
    return {palette_note(fmt::format("There is no layer {}", named.number),
                         "layers have their published numbers")};
  }
  const auto& ops = info.ops[static_cast<std::size_t>(index)];
  const bool has = std::ranges::find(ops, cursor.op) != ops.end();
  const Place place{std::max<std::int64_t>(cursor.step, 0), static_cast<int>(named.number),
                    has ? cursor.op : ops.front()};
  return {data_item("cursor.goto", place_text(place), "Go to " + format_place(place),
                    layer_type_name(info.config, index))};
}

// "evict", "eviction", "evictions" name the kind "evict"; two letters name nothing.
std::vector<EventKind> kinds_named(const std::string& word) {
  std::vector<EventKind> kinds;
  if (word.size() < kShortestText) return kinds;
  for (int i = 0; i < kEventKinds; ++i) {
    std::string name = event_kind_name(static_cast<EventKind>(i));
    std::ranges::replace(name, '_', ' ');
    if (word.starts_with(name)) kinds.push_back(static_cast<EventKind>(i));
  }
  return kinds;
}

std::vector<PaletteItem> events(const std::string& word, const Snapshot& snapshot) {
  const auto kinds = kinds_named(word);
  std::vector<PaletteItem> items;
  if (kinds.empty()) return items;
  for (auto it = snapshot.steps.rbegin(); it != snapshot.steps.rend(); ++it) {
    for (const Event& event : (*it)->events) {
      if (items.size() >= kMostSteps) return items;
      if (std::ranges::find(kinds, event.kind) == kinds.end()) continue;
      if (!event_has_place(*snapshot.info, event)) continue;
      items.push_back(data_item("cursor.goto", place_text(event.place),
                                fmt::format("Go to step {}: {}", event.place.step, event.text),
                                event_kind_name(event.kind)));
    }
  }
  return items;
}

// A byte of ASCII in lower case; other tokens as they are.
std::int32_t in_lower_case(std::int32_t token) {
  return token >= 0 && token < 128 ? lower(static_cast<char>(token)) : token;
}

// What stands around a token.
std::string excerpt(const Request& request, std::int64_t at, std::size_t length) {
  constexpr std::int64_t kAround = 24;
  const std::int64_t end = at + static_cast<std::int64_t>(length) + kAround;
  return text_of(request, {std::max<std::int64_t>(0, at - kAround), end}, 3 * kAround + length);
}

}  // namespace

std::vector<PaletteItem> named_data(const std::string& typed, const Snapshot& snapshot,
                                    const Place& cursor, std::int32_t request) {
  const SessionInfo& info = *snapshot.info;
  const auto named = named_in(typed);
  if (!named) return events(lower(typed), snapshot);
  if (named->what == "token") return tokens(*named, snapshot, cursor, request);
  if (named->what == "entry") return entries(*named, info, request);
  if (!named->of.empty()) return {};
  if (named->what == "layer") return layers(*named, info, cursor);
  if (named->what == "block") {
    const StepTrace* step = snapshot.trace(cursor.step);
    const bool there = step != nullptr && named->number < info.num_blocks;
    return of_count(
        *named, "select.block", info.num_blocks, fmt::format("Select block {}", named->number),
        there ? block_state(info, *step, static_cast<std::int32_t>(named->number)) : "");
  }
  if (named->what == "head") {
    return of_count(*named, "select.head", info.config.heads,
                    fmt::format("Select head {}", named->number));
  }
  if (named->what == "request") {
    const auto count = static_cast<std::int64_t>(info.request_names.size());
    const std::string name =
        named->number < count ? request_name(info, static_cast<std::int32_t>(named->number)) : "";
    return of_count(*named, "select.request", count,
                    fmt::format("Select request {} \"{}\"", named->number, name));
  }
  if (named->what == "step") {
    Place place = cursor.step < 0 ? first_view(info, named->number) : cursor;
    place.step = named->number;
    return {data_item("cursor.goto", place_text(place), "Go to " + format_place(place))};
  }
  return {};
}

std::vector<PaletteItem> prompt_data(const std::string& typed, const Snapshot& snapshot) {
  std::vector<PaletteItem> items;
  if (typed.size() < kShortestText) return items;
  std::vector<std::int32_t> wanted;
  for (const char c : typed) wanted.push_back(in_lower_case(static_cast<unsigned char>(c)));
  for (const RequestView& view : snapshot.requests) {
    const auto& all = view.request.tokens;
    auto from = all.begin();
    for (std::size_t found = 0; found < kMostPlaces; ++found) {
      const auto at =
          std::search(from, all.end(), wanted.begin(), wanted.end(),
                      [](std::int32_t a, std::int32_t b) { return in_lower_case(a) == b; });
      if (at == all.end()) break;
      const std::int64_t position = at - all.begin();
      items.push_back(data_item("cursor.computed", fmt::format("{}/{}", view.request.id, position),
                                fmt::format("Token {} of {}", format_count(position),
                                            request_name(*snapshot.info, view.request.id)),
                                excerpt(view.request, position, wanted.size())));
      from = at + 1;
    }
  }
  return items;
}

}  // namespace attnscope
