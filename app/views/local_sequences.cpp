// The rows of local_batch that belong to a request.
#include <fmt/format.h>

#include <algorithm>

#include "app/views/block_tables_view.h"
#include "engine/io/plural.h"
#include "engine/model/numbers.h"

namespace attnscope {
namespace {

const StepTensor* of_kind(const StepMetadata& m, StepTensor::Kind kind) {
  const auto it = std::ranges::find(m.own, kind, &StepTensor::kind);
  return it == m.own.end() || it->empty() ? nullptr : &*it;
}

}  // namespace

std::string LocalSequence::text() const {
  return fmt::format("chunk {}, {} {} of {}-{}: {}", begin / std::max<std::int64_t>(chunk, 1),
                     first == last ? "position" : "positions",
                     first == last ? fmt::format("{}", first) : fmt::format("{}-{}", first, last),
                     begin, begin + chunk - 1, counted(rows, "row", "rows"));
}

std::vector<LocalSequence> local_sequences(const SessionInfo& info, const StepMetadata& m,
                                           std::int32_t request, int group) {
  std::vector<LocalSequence> sequences;
  const CacheGroup& kept = info.layout.groups[to_size(group)];
  const StepTensor* rows = of_kind(m, StepTensor::Kind::kRows);
  const StepTensor* places = of_kind(m, StepTensor::Kind::kPlaces);
  const StepTensor* tables = of_kind(m, StepTensor::Kind::kTables);
  if (kept.kind != GroupKind::kChunked || rows == nullptr || places == nullptr ||
      tables == nullptr) {
    return sequences;
  }
  const std::vector<std::int32_t>& lens = m.own[to_size(tables->lengths)].numbers;
  const std::int64_t tokens = m.num_tokens_in_step(), columns = tables->columns;
  const std::int64_t list = tables->list_of(info.layout, group);
  for (std::int64_t t = 0; t < tokens; ++t) {
    const std::int32_t row = m.token_to_req[to_size(t)];
    if (m.live[to_size(row)] != request) continue;
    const std::int64_t sequence = rows->numbers[to_size(t)];
    const std::int64_t position = m.positions[to_size(t)];
    if (!sequences.empty() && sequences.back().sequence == sequence) {
      sequences.back().last = position;
      continue;
    }
    if (sequence < 0 || sequence >= tokens) continue;
    LocalSequence one;
    one.sequence = sequence;
    one.chunk = kept.window;
    one.begin = position - places->slots[to_size(t)];
    one.first = one.last = position;
    one.rows = lens[to_size(sequence)];
    const auto first = tables->numbers.begin() + (list * tokens + sequence) * columns;
    one.blocks.assign(first, first + columns);
    while (!one.blocks.empty() && one.blocks.back() < 0) one.blocks.pop_back();
    sequences.push_back(std::move(one));
  }
  return sequences;
}

}  // namespace attnscope
