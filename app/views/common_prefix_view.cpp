#include "app/views/common_prefix_view.h"

#include <fmt/format.h>

#include <algorithm>

#include "app/text/format.h"
#include "app/views/linkage.h"

namespace attnscope {
namespace {

std::string requests_text(std::int64_t count) { return plural(count, "request", "requests"); }

// Why the run of a group without a window ends behind `n` blocks; holders: who has a table there.
void explain_end(const SessionInfo& info, const StepTrace& step, std::size_t group,
                 const std::vector<const RequestView*>& holders, CommonPrefix& out) {
  const auto n = static_cast<std::size_t>(out.blocks);
  const auto count = static_cast<std::int64_t>(holders.size());
  const auto longer = std::ranges::find_if(
      holders, [&](const RequestView* r) { return r->tables[group].size() > n; });
  if (longer == holders.end()) {
    out.why = count == 0 ? "nobody holds a block" : "every table ends here";
    return;
  }
  out.next = (*longer)->tables[group][n];
  const std::vector<std::int32_t> by = holders_of(step, out.next);
  const auto held = static_cast<std::int64_t>(by.size());
  if (held == count) {
    out.why = "without prefix caching nothing is shared";
    return;
  }
  out.why =
      fmt::format("entry {}, block {}, is held by {}", n, out.next,
                  held == 1 ? name_if_known(info, by.front()) + " alone"
                            : fmt::format("{} of {}", format_count(held), requests_text(count)));
}

}  // namespace

CommonPrefixView common_prefix_view(const SessionInfo& info, const StepTrace& step) {
  CommonPrefixView view;
  if (step.common_prefix.empty()) {
    view.sentence = "The recording does not say which blocks all requests share.";
    return view;
  }
  const CommonPrefix* longest = nullptr;
  std::int64_t most_holders = 0;
  view.groups.reserve(info.layout.groups.size());
  for (std::size_t g = 0; g < info.layout.groups.size(); ++g) {
    const CacheGroup& group = info.layout.groups[g];
    CommonPrefix& row = view.groups.emplace_back();
    row.name = group.name;
    row.blocks = step.common_prefix[g];
    row.tokens = row.blocks * group.block_tokens;
    if (group.kind != GroupKind::kFull) {
      row.why = group.forgets() ? "its window moves with each request"
                                : "it has rows of first tokens alone";
      continue;
    }
    std::vector<const RequestView*> holders;
    for (const RequestView& r : step.requests) {
      if (g < r.tables.size() && !r.tables[g].empty()) holders.push_back(&r);
    }
    if (row.blocks > 0 && !holders.empty() &&
        static_cast<std::int64_t>(holders.front()->tables[g].size()) >= row.blocks) {
      row.last = holders.front()->tables[g][static_cast<std::size_t>(row.blocks - 1)];
    }
    explain_end(info, step, g, holders, row);
    most_holders = std::max(most_holders, static_cast<std::int64_t>(holders.size()));
    if (longest == nullptr || row.tokens > longest->tokens) longest = &row;
  }
  if (longest == nullptr || most_holders == 0) {
    view.sentence = "No request has a block in a group without a window: nothing is common.";
  } else if (most_holders == 1) {
    view.sentence = fmt::format(
        "One request alone has blocks: its {} in {} count as common, and nobody shares them.",
        plural(longest->blocks, "block", "blocks"), longest->name);
  } else if (longest->blocks == 0) {
    view.sentence =
        fmt::format("{} hold blocks and share none from their beginning: no common prefix.",
                    requests_text(most_holders));
  } else {
    view.sentence = fmt::format(
        "All {} begin with the same {} of {}, {} tokens: attention could read them once for all.",
        requests_text(most_holders), plural(longest->blocks, "block", "blocks"), longest->name,
        format_count(longest->tokens));
  }
  return view;
}

}  // namespace attnscope
