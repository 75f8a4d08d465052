#include "app/views/attention_form.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "app/text/format.h"
#include "app/views/linkage.h"
#include "engine/model/numbers.h"

namespace attnscope {
namespace {

// Rows of a request that are there before the step; -1 = it has no token in it.
std::int64_t computed_before(const StepMetadata& m, std::size_t row) {
  const std::int64_t tokens = m.query_start_loc[row + 1] - m.query_start_loc[row];
  return tokens > 0 ? m.seq_lens[row] - tokens : -1;
}

const std::vector<std::int32_t>* table_of(const StepTrace& step, std::size_t row, int group) {
  const RequestView* request = find_request(step, step.metadata.live[row]);
  const bool there = request != nullptr && to_size(group) < request->tables.size();
  return there ? &request->tables[to_size(group)] : nullptr;
}

}  // namespace

AttentionCut attention_cut(const SessionInfo& info, const StepTrace& step, int group,
                           std::int64_t row, bool whole) {
  AttentionCut cut;
  const std::int32_t form = info.config.switches.attention_form;
  const StepMetadata& m = step.metadata;
  if (row < 0 || to_size(row) + 1 >= m.query_start_loc.size() || to_size(row) >= m.live.size()) {
    return cut;
  }
  if (form == AS_PAGED_MERGED)
    cut.rows = std::max<std::int64_t>(0, computed_before(m, to_size(row)));
  if (form != AS_PAGED_CASCADE || !whole) return cut;
  const std::vector<std::int32_t>* first = nullptr;
  const std::int64_t size = info.layout.groups[to_size(group)].block_tokens;
  std::int64_t common = 0, sharing = 0;
  for (std::size_t r = 0; r < m.live.size() && r + 1 < m.query_start_loc.size(); ++r) {
    const std::int64_t computed = computed_before(m, r);
    const std::vector<std::int32_t>* table = table_of(step, r, group);
    if (computed < 0 || table == nullptr) continue;
    const auto blocks = std::min(static_cast<std::int64_t>(table->size()), computed / size);
    ++sharing;
    if (first == nullptr) {
      first = table;
      common = blocks;
      continue;
    }
    std::int64_t same = 0;
    while (same < std::min(common, blocks) && (*table)[to_size(same)] == (*first)[to_size(same)]) {
      ++same;
    }
    common = same;
  }
  if (sharing < 2 || common == 0) return cut;
  return {common * size, sharing};
}

std::string cut_sentence(const AttentionCut& cut, std::int64_t first) {
  if (cut.rows <= first) return {};
  const bool one = cut.rows == first + 1;
  const std::string rows =
      one ? fmt::format("Row {}", format_count(first))
          : fmt::format("Rows {}-{}", format_count(first), format_count(cut.rows - 1));
  if (cut.requests > 1) {
    return fmt::format(
        " {}, which {} requests have in common, {} attended once for all and merged by LSE.", rows,
        cut.requests, one ? "is" : "are");
  }
  return fmt::format(" {}, of earlier steps, {} attended on {} own and merged by LSE.", rows,
                     one ? "is" : "are", one ? "its" : "their");
}

}  // namespace attnscope
