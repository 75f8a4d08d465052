#include "app/views/pool_view.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "app/text/format.h"
#include "app/views/linkage.h"
#include "app/views/row_tier.h"
#include "engine/io/plural.h"

namespace attnscope {
namespace {

constexpr std::size_t kReadersNamed = 6;
constexpr std::size_t kPoolTextLimit = 72;

bool contains(const std::vector<std::int32_t>& blocks, std::int32_t block) {
  return std::find(blocks.begin(), blocks.end(), block) != blocks.end();
}

std::string describe_free(const SessionInfo& info, const StepTrace& step, std::int32_t block) {
  std::string text = fmt::format("block {}: {}", block, block_state(info, step, block));
  const auto at = std::find(step.free_list.begin(), step.free_list.end(), block);
  if (at != step.free_list.end()) {
    text += fmt::format("\nplace {} of {} in the free list; place 1 is taken next",
                        format_count(at - step.free_list.begin() + 1),
                        format_count(static_cast<std::int64_t>(step.free_list.size())));
  }
  if (contains(step.freed, block)) text += "\ngiven back in this step";
  return text;
}

std::string readers_text(const StepTrace& step, const std::vector<std::int32_t>& readers) {
  if (readers.empty()) return "\nno token of this step reads it";
  std::string text =
      fmt::format("\nread by {} of this step:", counted(readers.size(), "token", "tokens"));
  for (std::size_t i = 0; i < std::min(readers.size(), kReadersNamed); ++i) {
    text += fmt::format("{} {}", i > 0 ? "," : "",
                        step.metadata.positions[static_cast<std::size_t>(readers[i])]);
  }
  return readers.size() > kReadersNamed ? text + ", …" : text;
}

// Blocks of host memory, by id; one that requests share counts for the one that has it.
std::vector<bool> host_blocks(const SessionInfo& info, const StepTrace& step) {
  if (!info.config.host_rows) return {};
  std::map<std::pair<std::int32_t, int>, bool> known;  // by request and group
  std::vector<bool> on_host(step.owners.size(), false);
  for (std::size_t id = 1; id < step.owners.size(); ++id) {
    const BlockOwner& owner = step.owners[id];
    if (owner.request < 0) continue;
    const auto [at, fresh] = known.try_emplace({owner.request, owner.group}, false);
    if (fresh) at->second = row_tier(info, step, owner.request, owner.group) == "host";
    on_host[id] = at->second;
  }
  return on_host;
}

}  // namespace

PoolView pool_view(const SessionInfo& info, const StepTrace& step) {
  PoolView view;
  std::map<std::int32_t, PoolOwner> owners;
  FreeRun run;
  for (std::size_t id = 1; id < step.owners.size(); ++id) {
    const BlockOwner& owner = step.owners[id];
    if (owner.request < 0) {
      ++view.free;
      if (run.length == 0) run.first = static_cast<std::int32_t>(id);
      if (++run.length > view.longest.length) view.longest = run;
      continue;
    }
    run = {};
    ++view.used;
    PoolOwner& holder = owners[owner.request];
    ++holder.blocks;
    holder.by_group.resize(info.layout.groups.size());
    const auto group = static_cast<std::size_t>(owner.group);
    if (group < holder.by_group.size()) ++holder.by_group[group];
  }
  view.blocks = view.used + view.free;
  for (auto& [request, owner] : owners) {
    owner.request = request;
    owner.name = name_if_known(info, request);
    view.owners.push_back(std::move(owner));
  }
  if (view.blocks == 0) {
    view.sentence = "This step has not come to its block tables yet.";
    return view;
  }
  view.sentence =
      fmt::format("{} of {} in use by {}; {} free; this step took {} and freed {}",
                  format_count(view.used), plural(view.blocks, "block is", "blocks are"),
                  plural(std::ssize(view.owners), "request", "requests"), format_count(view.free),
                  step.fresh.size(), step.freed.size());
  if (view.longest.length > 0) {
    view.sentence +=
        fmt::format("; the longest free run is {} from block {}",
                    plural(view.longest.length, "block", "blocks"), view.longest.first);
  }
  view.on_host = host_blocks(info, step);
  if (const auto host = std::ranges::count(view.on_host, true); host > 0) {
    view.sentence += fmt::format("; rows of {} lie in host memory", format_count(host));
  }
  view.sentence += ".";
  return view;
}

std::string describe_block(const SessionInfo& info, const StepTrace& step, std::int32_t block) {
  if (block == 0) {
    return "block 0: the null block\nNobody owns it and nothing is ever written to it; tables name "
           "it where an entry has left the window.";
  }
  const auto contents = contents_of_block(info, step, block);
  if (!contents) return describe_free(info, step, block);
  const CacheGroup& group = info.layout.groups[static_cast<std::size_t>(contents->group)];
  std::string text = fmt::format(
      "block {}: {}\n{}, entry {} of the table, {} in {}", block, block_state(info, step, block),
      group.name, contents->index, format_bytes(static_cast<double>(group.bytes)),
      group.specs.size() == 1 ? "one layer's page" : fmt::format("{} pages", group.specs.size()));
  const TokenRange tokens = contents->tokens;
  if (tokens.begin == tokens.end) {
    text += fmt::format("\nnothing in it yet; positions from {} will be", tokens.begin);
  } else {
    text += fmt::format("\npositions {}-{}", tokens.begin, tokens.end - 1);
    const std::int64_t rest = group.block_tokens - (tokens.end - tokens.begin);
    if (rest > 0) text += fmt::format(", room for {} more", rest);
    if (const RequestView* request = find_request(step, contents->request)) {
      text += fmt::format("\n\"{}\"", text_of(request->request, tokens, kPoolTextLimit));
    }
  }
  if (const std::string tier = row_tier(info, step, contents->request, contents->group);
      !tier.empty()) {
    text += tier == "host" ? "\nits rows lie in host memory" : "\nits rows lie on the device";
  }
  if (contents->fresh) text += "\ntaken in this step";
  return text + readers_text(step, readers_of_block(info, step, block));
}

Selection block_selection(const SessionInfo& info, const StepTrace& step, Selection selection,
                          std::int32_t block) {
  selection.block = block;
  selection.row = -1;
  const auto contents = contents_of_block(info, step, block);
  if (!contents) return selection;
  selection.group = contents->group;
  selection.request = contents->request;
  if (contents->tokens.begin < contents->tokens.end) selection.position = contents->tokens.begin;
  return selection;
}

}  // namespace attnscope
