#include "app/common/views/pool_view.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "app/common/format.h"
#include "app/common/views/linkage.h"

namespace attnscope {
namespace {

const RequestView* find_request(const StepTrace& step, std::int32_t id) {
  for (const RequestView& view : step.requests) {
    if (view.request.id == id) return &view;
  }
  return nullptr;
}

}  // namespace

PoolView pool_view(const SessionInfo& info, const StepTrace& step) {
  PoolView view;
  std::map<std::int32_t, std::int64_t> counts;
  for (std::size_t id = 1; id < step.owners.size(); ++id) {
    const std::int32_t request = step.owners[id].request;
    if (request < 0) {
      ++view.free;
    } else {
      ++view.used;
      ++counts[request];
    }
  }
  view.blocks = view.used + view.free;
  for (const auto& [request, blocks] : counts) {
    const auto i = static_cast<std::size_t>(request);
    view.owners.push_back(
        {request, i < info.request_names.size() ? info.request_names[i] : "?", blocks});
  }
  if (view.blocks == 0) {
    view.sentence = "This step has not come to its block tables yet.";
    return view;
  }
  view.sentence = fmt::format(
      "{} of {} blocks are in use by {} {}; {} are free. This step took {} and gave back {}.",
      format_count(view.used), format_count(view.blocks), view.owners.size(),
      view.owners.size() == 1 ? "request" : "requests", format_count(view.free), step.fresh.size(),
      step.freed.size());
  return view;
}

std::string describe_block(const SessionInfo& info, const StepTrace& step, std::int32_t block) {
  if (block == 0) {
    return "block 0: the null block. Nobody owns it, nothing is ever written to it; tables name it "
           "where an entry has left the window.";
  }
  const auto contents = contents_of_block(info, step, block);
  if (!contents) {
    const auto at = std::find(step.free_list.begin(), step.free_list.end(), block);
    std::string text = fmt::format("block {}: free", block);
    if (at != step.free_list.end()) {
      text += fmt::format(", number {} in the free list", at - step.free_list.begin() + 1);
    }
    if (std::find(step.freed.begin(), step.freed.end(), block) != step.freed.end()) {
      text += "\ngiven back in this step";
    }
    return text;
  }
  const CacheGroup& group = info.layout.groups[static_cast<std::size_t>(contents->group)];
  const auto id = static_cast<std::size_t>(contents->request);
  std::string text = fmt::format(
      "block {}: request {} \"{}\", group {}, table entry {}\ntokens {}-{} of {} a block, {}",
      block, contents->request, id < info.request_names.size() ? info.request_names[id] : "?",
      group.name, contents->index, contents->tokens.begin, contents->tokens.end - 1,
      group.block_tokens, format_bytes(static_cast<double>(group.bytes)));
  if (contents->fresh) text += "\ntaken in this step";
  if (const RequestView* request = find_request(step, contents->request)) {
    text += fmt::format("\n\"{}\"", text_of(request->request, contents->tokens, 60));
  }
  const auto readers = readers_of_block(info, step, block);
  if (readers.empty()) {
    text += "\nno kept token of this step reads it";
  } else {
    text += fmt::format("\nread by {} {} of this step:", readers.size(),
                        readers.size() == 1 ? "token" : "tokens");
    for (std::size_t i = 0; i < readers.size() && i < 6; ++i) {
      text += fmt::format(" {}:{}", step.request_of(readers[i]),
                          step.metadata.positions[static_cast<std::size_t>(readers[i])]);
    }
    if (readers.size() > 6) text += " …";
  }
  return text;
}

}  // namespace attnscope
