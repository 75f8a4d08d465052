#include "app/common/views/block_tables_view.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "app/common/format.h"
#include "app/common/views/linkage.h"

namespace attnscope {
namespace {

const char* state_name(RequestState state) {
  switch (state) {
    case RequestState::kWaiting:
      return "waiting";
    case RequestState::kRunning:
      return "running";
    default:
      return "finished";
  }
}

TableStrip strip_of(const SessionInfo& info, const StepTrace& step, const RequestView& view,
                    std::size_t g, std::int64_t position) {
  const CacheGroup& group = info.layout.groups[g];
  TableStrip strip;
  strip.group = static_cast<int>(g);
  strip.title = group.window > 0
                    ? fmt::format("{} · {} tokens a block, window {}", group.name,
                                  group.block_tokens, group.window)
                    : fmt::format("{} · {} tokens a block", group.name, group.block_tokens);
  strip.rows_per_block = group.block_tokens;
  const std::set<std::int32_t> fresh(step.fresh.begin(), step.fresh.end());
  const auto& table = view.tables[g];
  for (std::size_t i = 0; i < table.size(); ++i) {
    TableStripCell cell;
    cell.block = table[i];
    cell.index = static_cast<std::int32_t>(i);
    if (cell.block == 0) {
      if (!strip.cells.empty() && strip.cells.back().block == 0) {
        ++strip.cells.back().count;
        continue;
      }
    } else {
      cell.fresh = fresh.count(cell.block) != 0;
    }
    if (position >= 0 && cell.block != 0) {
      const std::int64_t begin = cell.index * static_cast<std::int64_t>(group.block_tokens);
      const std::int64_t end = begin + group.block_tokens;
      const std::int64_t window = group.window > 0 ? group.window : position + 1;
      cell.in_window = begin <= position && end > position - window + 1;
      if (position >= begin && position < end)
        cell.row = static_cast<std::int32_t>(position - begin);
    }
    strip.cells.push_back(cell);
  }
  return strip;
}

}  // namespace

BlockTablesView block_tables_view(const SessionInfo& info, const StepTrace& step,
                                  std::int32_t request, std::int64_t position) {
  BlockTablesView view;
  for (const RequestView& r : step.requests) {
    TablesOfRequest tables;
    tables.request = r.request.id;
    const std::int64_t sampled = r.request.num_tokens() - r.request.prompt_tokens;
    tables.title = fmt::format("{}  {}  ·  {}  ·  {} prompt + {} sampled tokens, {} computed",
                               r.request.id, r.request.name, state_name(r.request.state),
                               format_count(r.request.prompt_tokens), sampled,
                               format_count(r.request.computed));
    const bool selected = r.request.id == request;
    const std::int64_t centre = selected && position >= 0 ? position : r.request.num_tokens() - 1;
    tables.text = text_of(r.request, {std::max<std::int64_t>(0, centre - 24), centre + 24}, 60);
    for (std::size_t g = 0; g < r.tables.size() && g < info.layout.groups.size(); ++g) {
      tables.strips.push_back(strip_of(info, step, r, g, selected ? position : -1));
    }
    if (selected) {
      std::int64_t blocks = 0, nulls = 0;
      for (const TableStrip& strip : tables.strips) {
        for (const TableStripCell& cell : strip.cells) {
          (cell.block == 0 ? nulls : blocks) += cell.count;
        }
      }
      view.sentence = fmt::format(
          "Request {} holds {} blocks in {} tables; {} entries left a window and are null.",
          r.request.name, format_count(blocks), tables.strips.size(), format_count(nulls));
      for (const TokenSlot& slot : slots_of_token(info, r, position)) {
        if (slot.ratio != 1 || slot.block <= 0) continue;
        view.sentence += fmt::format(" Token {} lies in block {} row {} ({}).",
                                     format_count(position), slot.block, slot.row,
                                     info.layout.groups[static_cast<std::size_t>(slot.group)].name);
        break;
      }
    }
    view.requests.push_back(std::move(tables));
  }
  if (view.sentence.empty()) {
    view.sentence = view.requests.empty() ? "No request has blocks in this step."
                                          : "The selected request has no blocks in this step.";
  }
  return view;
}

}  // namespace attnscope
