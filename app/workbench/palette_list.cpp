#include "app/workbench/palette_list.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "app/text/format.h"
#include "app/text/text.h"
#include "app/views/error_view.h"
#include "app/views/op_order.h"
#include "app/workbench/palette_data.h"
#include "engine/io/plural.h"

namespace attnscope {
namespace {

constexpr std::size_t kMostFailures = 100;

PaletteItem item_of(const Command& command) {
  // A command of a menu runs without its value; the others ask for it.
  return {PaletteItem::Kind::kCommand,
          command.id,
          command.id,
          command.title,
          command.group,
          command.help,
          !command.argument.empty() && !command.in_menu};
}

PaletteItem place_item(const Place& place, std::string detail) {
  return {PaletteItem::Kind::kPlace,      "cursor.goto", "cursor.goto=" + place_text(place),
          "Go to " + format_place(place), "Session",     std::move(detail)};
}

std::vector<PaletteItem> failures(const Snapshot* snapshot) {
  std::vector<PaletteItem> items;
  const std::size_t steps = snapshot != nullptr ? snapshot->steps.size() : 0;
  for (std::size_t i = 0; i < steps && items.size() < kMostFailures; ++i) {
    const auto& step = snapshot->steps[i];
    const TapResult* first = first_wrong(step->results);
    if (first == nullptr) continue;
    const std::int64_t count =
        std::ranges::count(step->results, Verdict::kWrong, &TapResult::verdict);
    items.push_back(place_item({step->step, first->layer, first->op},
                               fmt::format("{} wrong {}, first {}", format_count(count),
                                           agree(count, "tap", "taps"), first->tap)));
  }
  if (items.empty())
    items.push_back(palette_note("No step has a wrong tap", "@ lists steps that have one"));
  return items;
}

// A step number, or STEP/LAYER/OP, that exists in the model.
void add_place(const std::string& text, const Snapshot* snapshot, const Place& cursor,
               std::vector<PaletteItem>& items) {
  if (snapshot == nullptr) return;
  const SessionInfo& info = *snapshot->info;
  std::int64_t step = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), step);
  if (error == std::errc() && end == text.data() + text.size() && step >= 0) {
    Place place = cursor.step < 0 ? first_view(info, step) : cursor;
    place.step = step;
    items.push_back(place_item(place, "the same op in that step"));
    return;
  }
  const auto place = parse_place(text);
  if (place && has_place(info, *place)) items.push_back(place_item(*place, ""));
}

}  // namespace

PaletteItem palette_note(std::string title, std::string detail) {
  return {PaletteItem::Kind::kNote, "", "", std::move(title), "", std::move(detail)};
}

std::vector<PaletteItem> palette_items(const CommandRegistry& commands, const std::string& text,
                                       const std::vector<std::string>& recent,
                                       const Snapshot* snapshot, const Place& cursor,
                                       std::int32_t request) {
  const std::string typed(trimmed(text));
  if (typed.starts_with('@')) return failures(snapshot);
  if (const auto equals = typed.find('='); equals != std::string::npos) {
    const Command* command = commands.find(trimmed(std::string_view(typed).substr(0, equals)));
    if (command != nullptr && !command->argument.empty()) {
      PaletteItem item = item_of(*command);
      item.kind = PaletteItem::Kind::kValue;
      item.asks = false;
      const std::string value(trimmed(std::string_view(typed).substr(equals + 1)));
      item.run = value.empty() ? command->id : command->id + "=" + value;
      return {item};
    }
  }
  std::vector<PaletteItem> items;
  add_place(typed, snapshot, cursor, items);
  if (snapshot != nullptr && items.empty()) items = named_data(typed, *snapshot, cursor, request);
  if (typed.empty()) {
    for (const std::string& id : recent) {
      if (const Command* command = commands.find(id)) items.push_back(item_of(*command));
    }
  }
  for (const Command* command : commands.search(typed)) {
    const bool listed = typed.empty() && std::ranges::find(recent, command->id) != recent.end();
    if (!listed) items.push_back(item_of(*command));
  }
  if (snapshot != nullptr)
    std::ranges::move(prompt_data(typed, *snapshot), std::back_inserter(items));
  if (items.empty()) {
    items.push_back(
        palette_note("Nothing matches",
                     "type a part of a title or id, a place such as 7/2/sparse_attention, "
                     "token 1500, block 211, a text of a prompt, or @"));
  }
  return items;
}

}  // namespace attnscope
