#include "app/views/block_tables_view.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <unordered_set>

#include "app/text/format.h"
#include "app/views/linkage.h"
#include "app/views/op_order.h"
#include "app/views/row_tier.h"
#include "app/views/shared_rows.h"
#include "engine/io/plural.h"

namespace attnscope {
namespace {

constexpr std::int64_t kTextBefore = 36, kTextAfter = 12;  // tokens around the one looked at
constexpr std::size_t kTableTextLimit = 64;

// The last token row that a request has in the step; -1 = none.
std::int64_t last_row(const StepTrace& step, std::int32_t request) {
  for (auto row = step.metadata.num_tokens_in_step() - 1; row >= 0; --row) {
    if (step.request_of(row) == request) return row;
  }
  return -1;
}

// By entry of one table: the block that left a window in this step; 0 = none did.
std::vector<std::int32_t> dropped_in_step(const StepTrace& step, std::int32_t request, int group,
                                          std::size_t entries) {
  std::vector<std::int32_t> dropped(entries, 0);
  for (const CacheEvent& e : step.cache_events) {
    const auto entry = static_cast<std::size_t>(e.value);
    if (e.kind == CacheEventKind::kDrop && e.request == request && e.group == group &&
        entry < entries) {
      dropped[entry] = e.block;
    }
  }
  return dropped;
}

struct Marks {
  std::int64_t token = -1;   // the token whose window is brightened
  std::int64_t picked = -1;  // another position of the request
  std::unordered_set<std::int32_t> fresh;
};

std::int32_t row_in(const TableStripCell& cell, std::int32_t block_tokens, std::int64_t position) {
  return position >= 0 && position / block_tokens == cell.index
             ? static_cast<std::int32_t>(position % block_tokens)
             : -1;
}

// "all", "last 128", "chunks 64", "first 32"
std::string kept_note(const CacheGroup& group) {
  switch (group.kind) {
    case GroupKind::kSliding:
      return fmt::format("last {}", group.window);
    case GroupKind::kChunked:
      return fmt::format("chunks {}", group.window);
    case GroupKind::kFirst:
      return fmt::format("first {}", group.window);
    case GroupKind::kFull:
      break;
  }
  return "all";
}

TableStrip strip_of(const SessionInfo& info, const std::vector<std::int32_t>& table,
                    const std::vector<std::int32_t>& dropped, int g, const Marks& marks) {
  const CacheGroup& group = info.layout.groups[static_cast<std::size_t>(g)];
  TableStrip strip;
  strip.group = g;
  strip.name = group.name;
  strip.note = fmt::format("{} · {}", group.block_tokens, kept_note(group));
  strip.block_tokens = group.block_tokens;
  for (std::size_t i = 0; i < table.size(); ++i) {
    TableStripCell cell;
    cell.block = table[i];
    cell.index = static_cast<std::int32_t>(i);
    if (cell.block == 0) {
      ++strip.nulls;
      cell.was = dropped[i];
      // Those that left in this step stay apart from those that left long ago.
      if (!strip.cells.empty() && strip.cells.back().block == 0 &&
          (strip.cells.back().was != 0) == (cell.was != 0)) {
        ++strip.cells.back().count;
        strip.cells.back().was = cell.was;
        continue;
      }
      strip.cells.push_back(cell);
      continue;
    }
    ++strip.blocks;
    cell.fresh = marks.fresh.count(cell.block) != 0;
    if (marks.token >= 0) {
      const std::int64_t begin = cell.index * static_cast<std::int64_t>(group.block_tokens);
      cell.in_window =
          begin <= marks.token && begin + group.block_tokens > group.first_seen(marks.token);
      cell.row = row_in(cell, group.block_tokens, marks.token);
    }
    cell.picked = row_in(cell, group.block_tokens, marks.picked);
    strip.cells.push_back(cell);
  }
  return strip;
}

// "9 MLA blocks and 3 + 3 + 17 windowed ones"
std::string blocks_text(const SessionInfo& info, const TablesOfRequest& tables) {
  std::string full, windowed, first;
  bool chunks = true;  // of all that are not kept
  for (const TableStrip& strip : tables.strips) {
    const CacheGroup& group = info.layout.groups[static_cast<std::size_t>(strip.group)];
    if (group.kind == GroupKind::kFirst) {
      first = fmt::format(" and {} of first tokens", format_count(strip.blocks));
    } else if (group.window == 0) {
      full =
          plural(strip.blocks, (strip.name + " block").c_str(), (strip.name + " blocks").c_str());
    } else {
      chunks = chunks && group.kind == GroupKind::kChunked;
      windowed += (windowed.empty() ? "" : " + ") + format_count(strip.blocks);
    }
  }
  full += first;
  if (windowed.empty()) return full;
  const char* kind = chunks ? "chunked" : "windowed";
  return full.empty()
             ? fmt::format("{} {} {}", windowed, kind, windowed == "1" ? "block" : "blocks")
             : fmt::format("{} and {} {} {}", full, windowed, kind,
                           windowed == "1" ? "one" : "ones");
}

// Where the position lies in the window group of the layer, as the end of a sentence.
std::string window_slot_text(const BlockTablesInput& input, const RequestView& request,
                             std::int64_t position, bool now) {
  const SessionInfo& info = input.info;
  const int layer = layer_index(info, input.layer);
  const CacheSpec* spec = layer < 0 ? nullptr : token_rows(info.layout, layer);
  const int group = spec != nullptr                  ? spec->group
                    : info.layout.swa_groups.empty() ? -1
                                                     : info.layout.swa_groups.front();
  for (const TokenSlot& slot : slots_of_token(info, request, position)) {
    if (slot.group != group || slot.ratio != 1) continue;
    const std::string& name = info.layout.groups[static_cast<std::size_t>(group)].name;
    const std::string token = "token " + format_count(position);
    if (slot.block > 0) {
      return fmt::format("; {} {} block {} row {} ({})", token, now ? "goes to" : "lies in",
                         slot.block, slot.row, name);
    }
    if (slot.block == 0) {
      if (info.layout.groups[static_cast<std::size_t>(group)].kind == GroupKind::kChunked) {
        return fmt::format("; the chunk of {} has ended", token);
      }
      const bool entries = info.layout.mla_group >= 0 && !info.layout.swa_groups.empty();
      return fmt::format("; {} has left the window{}", token,
                         entries ? ": only entries still hold it" : "");
    }
    return fmt::format("; {} has no block yet", token);
  }
  return {};
}

std::string sentence_of(const BlockTablesInput& input, const RequestView& request,
                        const TablesOfRequest& tables, std::int64_t picked) {
  std::int64_t blocks = 0, nulls = 0;
  for (const TableStrip& strip : tables.strips) {
    blocks += strip.blocks;
    nulls += strip.nulls;
  }
  const std::string name = request.request.name;
  if (blocks == 0) {
    return is_over(request.request.state)
               ? fmt::format("Request {} is finished and has given all its blocks back.", name)
               : fmt::format("Request {} waits for its first blocks.", name);
  }
  std::string text = fmt::format("Request {}: {} in {}", name,
                                 plural(length_in_step(input.step, request), "token", "tokens"),
                                 blocks_text(input.info, tables));
  if (nulls > 0) {
    const auto& groups = input.info.layout.groups;
    const bool chunks = !input.info.layout.chunk_groups.empty();
    const bool windows = std::ranges::any_of(
        groups, [](const CacheGroup& g) { return g.kind == GroupKind::kSliding; });
    text += fmt::format("; {} {} and {} null", plural(nulls, "entry", "entries"),
                        !chunks   ? "left a window"
                        : windows ? "left a window or a chunk that ended"
                                  : "left with chunks that ended",
                        agree(nulls, "is", "are"));
  }
  if (picked >= 0) {
    text += window_slot_text(input, request, picked, false);
  } else if (tables.token >= 0) {
    text += window_slot_text(input, request, tables.token, true);
  }
  return text + "." + sharing_sentence(input.info, input.layer);
}

}  // namespace

BlockTablesView block_tables_view(const BlockTablesInput& input) {
  const StepTrace& step = input.step;
  BlockTablesView view;
  Marks marks;
  marks.fresh.insert(step.fresh.begin(), step.fresh.end());
  for (const RequestView& r : step.requests) {
    const Request& request = r.request;
    TablesOfRequest tables;
    tables.request = request.id;
    tables.name = request.name;
    const bool selected = request.id == input.request;
    const std::int64_t known = request.num_tokens();
    std::int64_t row = selected ? step.token_row(request.id, input.position) : -1;
    if (row < 0) row = last_row(step, request.id);
    if (row >= 0) tables.token = step.metadata.positions[static_cast<std::size_t>(row)];
    marks.token = tables.token;
    marks.picked =
        selected && input.position >= 0 && input.position != tables.token && input.position < known
            ? input.position
            : -1;
    const std::int64_t now = length_in_step(step, r) - request.computed;
    tables.none = is_over(request.state)                      ? "given back"
                  : request.state == RequestState::kPreempted ? "taken away"
                                                              : "no block yet";
    tables.state =
        fmt::format("{} · {} prompt + {} sampled · {} computed", request_state_name(request.state),
                    format_count(request.prompt_tokens),
                    format_count(known - request.prompt_tokens), format_count(request.computed));
    if (now > 0) tables.state += fmt::format(", {} now", format_count(now));
    const std::int64_t centre = marks.picked >= 0   ? marks.picked
                                : tables.token >= 0 ? tables.token
                                                    : known - 1;
    tables.text =
        text_of(request, {std::max<std::int64_t>(0, centre - kTextBefore), centre + kTextAfter},
                kTableTextLimit);
    for (std::size_t g = 0; g < std::min(r.tables.size(), input.info.layout.groups.size()); ++g) {
      const int group = static_cast<int>(g);
      tables.strips.push_back(strip_of(input.info, r.tables[g],
                                       dropped_in_step(step, request.id, group, r.tables[g].size()),
                                       group, marks));
      if (const std::string tier = row_tier(input.info, step, request.id, group); !tier.empty()) {
        tables.strips.back().note += " · " + tier;
      }
      tables.strips.back().local = local_sequences(input.info, step.metadata, request.id, group);
    }
    if (selected) view.sentence = sentence_of(input, r, tables, marks.picked);
    view.requests.push_back(std::move(tables));
  }
  if (input.info.layout.groups.empty()) {
    view.sentence =
        "The model has no caches: a request is computed in one step, without a block or a table.";
    for (TablesOfRequest& tables : view.requests) tables.none = "needs no block";
  }
  if (view.sentence.empty()) view.sentence = "This step has not come to its block tables yet.";
  return view;
}

std::string group_text(const SessionInfo& info, int group) {
  const CacheGroup& g = info.layout.groups[static_cast<std::size_t>(group)];
  std::string text = fmt::format("{}: {} tokens a block, {}\nkeeps ", g.name, g.block_tokens,
                                 format_bytes(static_cast<double>(g.bytes)));
  switch (g.kind) {
    case GroupKind::kChunked:
      text += fmt::format(
          "the chunk of {} tokens that a request is in; blocks of chunks that ended become null",
          g.window);
      break;
    case GroupKind::kSliding:
      text += fmt::format("the last {} tokens; blocks that leave become null", g.window);
      break;
    case GroupKind::kFirst:
      text += fmt::format("the first {} tokens of a request, in 16 bits", g.window);
      break;
    case GroupKind::kFull:
      text += "every token's entries";
      break;
  }
  std::map<CacheId, std::pair<std::string, std::string>> layers;  // content, numbers
  for (const int spec : g.specs) {
    const CacheSpec& s = info.layout.specs[static_cast<std::size_t>(spec)];
    auto& [content, list] = layers[s.id];
    content = s.content;
    list += fmt::format("{}{}", list.empty() ? "" : ", ",
                        info.config.layers[static_cast<std::size_t>(s.layer)]);
  }
  for (const auto& [id, of] : layers) {
    text += fmt::format("\n{} of layers {}", of.first, of.second);
  }
  return text;
}

std::int32_t next_block(const SessionInfo& info, const StepTrace& step, std::int32_t request,
                        std::int64_t position, std::int32_t block, int by) {
  const auto contents = contents_of_block(info, step, block);
  if (!contents) return block_in_next_group(info, step, request, position, -1);
  const RequestView* owner = find_request(step, contents->request);
  if (owner == nullptr || static_cast<std::size_t>(contents->group) >= owner->tables.size())
    return -1;
  const auto& table = owner->tables[static_cast<std::size_t>(contents->group)];
  const auto end = static_cast<std::int64_t>(table.size());
  for (std::int64_t i = contents->index + by; i >= 0 && i < end; i += by) {
    if (table[static_cast<std::size_t>(i)] > 0) return table[static_cast<std::size_t>(i)];
  }
  return block;
}

std::int32_t block_in_next_group(const SessionInfo& info, const StepTrace& step,
                                 std::int32_t request, std::int64_t position, int group) {
  const RequestView* owner = find_request(step, request);
  if (owner == nullptr) return -1;
  const auto slots = slots_of_token(info, *owner, position);
  const auto groups = static_cast<int>(info.layout.groups.size());
  for (int i = 1; i <= groups; ++i) {
    const int wanted = (std::max(group, -1) + i) % groups;
    for (const TokenSlot& slot : slots) {
      if (slot.group == wanted && slot.block > 0) return slot.block;
    }
  }
  return -1;
}

std::string null_text(const SessionInfo& info, int group, const TableStripCell& cell) {
  const CacheGroup& of = info.layout.groups[static_cast<std::size_t>(group)];
  const std::int64_t tokens = of.block_tokens;
  const char* left =
      of.kind == GroupKind::kChunked ? "its chunk ended: given back" : "left the window";
  const std::int64_t last = cell.index + cell.count - 1;
  std::string text = cell.count == 1 ? fmt::format("table entry {}: null", cell.index)
                                     : fmt::format("table entries {}-{}: null, {} of them",
                                                   cell.index, last, format_count(cell.count));
  text += fmt::format("\npositions {}-{}", cell.index * tokens, (last + 1) * tokens - 1);
  if (cell.was != 0) {
    text += fmt::format("\n{} in this step; {} block {}", left,
                        agree(cell.count, "was", "the last one was"), cell.was);
  } else {
    text += fmt::format("\n{} earlier", left);
  }
  return text + "\nthe null block 0 is named in their place; nothing reads it";
}

}  // namespace attnscope
