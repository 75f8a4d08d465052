#include "engine/metadata/step_tensor.h"

#include <algorithm>
#include <array>

#include "engine/metadata/step_metadata.h"
#include "engine/model/numbers.h"
#include "kernels/params/tensor_view.h"

namespace attnscope {
namespace {

template <auto kList>
as_tensor list(StepMetadata& step, const CacheLayout&) {
  auto& values = step.*kList;
  return make_tensor(values.data(), {to_count(values.size())});
}

template <auto kTables>
as_tensor by_group(StepMetadata& step, const CacheLayout& layout) {
  return make_tensor((step.*kTables).data(),
                     {to_count(layout.groups.size()), step.num_live(), step.columns});
}

template <auto kCounts>
as_tensor counts(StepMetadata& step, const CacheLayout& layout) {
  return make_tensor((step.*kCounts).data(), {to_count(layout.groups.size()), step.num_live()});
}

as_tensor groups(StepMetadata& step, const CacheLayout& layout) {
  return make_tensor(step.groups.data(), {to_count(layout.groups.size()), 2});
}

as_tensor slots(StepMetadata& step, const CacheLayout& layout) {
  return make_tensor(step.slots.data(),
                     {to_count(layout.groups.size()), step.num_tokens_in_step()});
}

as_tensor full_table(StepMetadata& step, const CacheLayout& layout) {
  return step.group_table(layout.mla_group);
}

// Groups of a kind follow one another in the order of groups.
template <auto kGroups>
as_tensor tables_of(StepMetadata& step, const CacheLayout& layout) {
  const std::vector<int>& some = layout.*kGroups;
  const std::int64_t rows = step.num_live(), first = some.front();
  return make_tensor(step.tables.data() + first * rows * step.columns,
                     {to_count(some.size()), rows, step.columns});
}

struct Common {
  std::string_view name;
  as_tensor (*tensor)(StepMetadata& step, const CacheLayout& layout);
};

constexpr std::array kCommon = {
    Common{"positions", list<&StepMetadata::positions>},
    Common{"token_to_req", list<&StepMetadata::token_to_req>},
    Common{"seq_lens", list<&StepMetadata::seq_lens>},
    Common{"query_start_loc", list<&StepMetadata::query_start_loc>},
    Common{"source_lens", list<&StepMetadata::source_lens>},
    Common{"groups", groups},
    Common{"num_tokens", list<&StepMetadata::num_tokens>},
    Common{"num_before", list<&StepMetadata::num_before>},
    Common{"running", list<&StepMetadata::running>},
    Common{"joins", list<&StepMetadata::joins>},
    Common{"lost_to", list<&StepMetadata::lost_to>},
    Common{"matching", list<&StepMetadata::matching>},
    Common{"num_computed", list<&StepMetadata::num_computed>},
    Common{"num_scheduled_tokens", list<&StepMetadata::num_scheduled_tokens>},
    Common{"blocks", by_group<&StepMetadata::blocks>},
    Common{"tables_before", by_group<&StepMetadata::tables_before>},
    Common{"tables", by_group<&StepMetadata::tables>},
    Common{"counts_before", counts<&StepMetadata::counts_before>},
    Common{"counts", counts<&StepMetadata::counts>},
    Common{"slots", slots},
    Common{"tables/mla", full_table},
    Common{"tables/swa", tables_of<&CacheLayout::swa_groups>},
    Common{"tables/chunked", tables_of<&CacheLayout::chunk_groups>},
};
static_assert(kCommon[kPositionsTensor].name == "positions" &&
              kCommon[kTokenToReqTensor].name == "token_to_req" &&
              kCommon[kSeqLensTensor].name == "seq_lens" &&
              kCommon[kQueryStartTensor].name == "query_start_loc" &&
              kCommon[kSourceLensTensor].name == "source_lens");

}  // namespace

void StepTensor::assign(std::int64_t tokens, std::int64_t list_columns) {
  if (!used) return;
  const std::size_t n = to_size(size(tokens, list_columns));
  if (of_64_bits()) {
    slots.assign(n, nothing());
  } else {
    numbers.assign(n, nothing());
  }
}

as_tensor StepTensor::tensor(std::int64_t tokens, std::int64_t list_columns) const {
  if (!used) return no_tensor();
  if (of_64_bits()) return make_tensor(slots.data(), {rows(tokens)});
  if (!wide()) return make_tensor(numbers.data(), {rows(tokens)});
  if (lists_by == ListsBy::kAll) return list(0, tokens, list_columns);
  if (kind == Kind::kPlanCounts) return make_tensor(numbers.data(), {lists, width(list_columns)});
  return make_tensor(numbers.data(), {lists, rows(tokens), width(list_columns)});
}

as_tensor StepTensor::list(std::int64_t which, std::int64_t tokens,
                           std::int64_t list_columns) const {
  const std::int64_t columns_now = width(list_columns), rows_now = rows(tokens);
  return make_tensor(numbers.data() + which * rows_now * columns_now, {rows_now, columns_now});
}

std::ptrdiff_t StepTensor::list_of(const CacheLayout& layout, int group) const {
  if (lists_by == ListsBy::kAll) return 0;
  const auto& groups = lists_by == ListsBy::kWindowGroup ? layout.swa_groups : layout.chunk_groups;
  return std::ranges::find(groups, group) - groups.begin();
}

std::ptrdiff_t StepTensor::list_of_layer(const CacheLayout& layout, int layer) const {
  const CacheSpec* spec = layout.find(layer, cache);
  if (lists_by != ListsBy::kLayerType) return list_of(layout, spec->group);
  const std::int64_t tokens = spec == nullptr ? 0 : spec->tokens_per_row;
  return std::ranges::find(entry_tokens, tokens) - entry_tokens.begin();
}

const StepTensor* find_tensor(std::span<const StepTensor> tensors, std::string_view name) {
  const auto it = std::ranges::find(tensors, name, &StepTensor::name);
  return it == tensors.end() ? nullptr : &*it;
}

int step_tensor_number(std::string_view name, std::span<const StepTensor> own) {
  const auto common = std::ranges::find(kCommon, name, &Common::name);
  if (common != kCommon.end()) return static_cast<int>(common - kCommon.begin());
  const StepTensor* found = find_tensor(own, name);
  return found == nullptr ? -1 : static_cast<int>(std::ssize(kCommon) + (found - own.data()));
}

int own_number(int number) { return number - static_cast<int>(std::ssize(kCommon)); }

as_tensor step_tensor(int number, StepMetadata& step, const CacheLayout& layout) {
  if (number < 0) return no_tensor();
  const int own = own_number(number);
  if (own < 0) return kCommon[to_size(number)].tensor(step, layout);
  return step.own[to_size(own)].tensor(step.num_tokens_in_step(), step.list_columns);
}

}  // namespace attnscope
