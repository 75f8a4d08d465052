#include "engine/backend/attention_metadata.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "engine/model/numbers.h"

namespace attnscope {
namespace {

constexpr std::int64_t kMostMetadata = std::int64_t{1} << 31;

template <class T>
std::span<const T> first_of(const std::vector<T>& buffer, std::int64_t n) {
  return std::span<const T>(buffer).first(to_size(n));
}

Result<void> too_many(const char* what, std::int64_t n, std::int64_t most) {
  if (n <= most) return {};
  return bad_input(fmt::format("the step has {} {}, its metadata has room for {}", n, what, most),
                   "make the builder's limits larger, or the step smaller");
}

std::int64_t block_tokens_of(const StepMetadata& step, int group) {
  return step.groups[2 * to_size(group)];
}

// Blocks that hold the rows of a request after this step.
std::int64_t blocks_of(const StepMetadata& step, int group, const CommonMetadata& common,
                       std::int64_t i) {
  return ceil_div(common.seq_lens[to_size(i)], block_tokens_of(step, group));
}

const std::int32_t* table_of(const StepMetadata& step, int group, std::int32_t row) {
  return step.tables.data() + (group * step.num_live() + row) * step.columns;
}

}  // namespace

std::int64_t padded_requests(const BatchPlan& plan) {
  const auto requests = static_cast<std::int64_t>(plan.rows.size());
  if (plan.graph == 0 || requests == 0) return requests;
  // Graphs of a uniform batch have as many requests as tokens give.
  return std::max(requests, ceil_div(plan.graph, plan.rows[0].query));
}

Result<MetadataBuilder> MetadataBuilder::make(MetadataForm form, const MetadataLimits& given,
                                              AttentionType type) {
  if (form == MetadataForm::kStateIndices) {
    return bad_input("metadata of layers with a state is not made here",
                     "choose a backend of attention");
  }
  MetadataLimits limits = given;
  if (form == MetadataForm::kPrefillOnly) limits.columns = std::max<std::int64_t>(given.columns, 1);
  if (limits.pages == 0) limits.pages = limits.requests * limits.columns;
  const std::pair<const char*, std::int64_t> all[] = {{"requests", limits.requests},
                                                      {"tokens", limits.tokens},
                                                      {"columns", limits.columns},
                                                      {"pages", limits.pages}};
  for (const auto& [name, n] : all) {
    if (n >= 1 && n < kMostMetadata) continue;
    return bad_input(fmt::format("metadata for {} {} cannot be", n, name),
                     fmt::format("allowed: 1 to {}", kMostMetadata - 1));
  }
  return MetadataBuilder(form, limits, type);
}

MetadataBuilder::MetadataBuilder(MetadataForm form, const MetadataLimits& limits,
                                 AttentionType type)
    : form_(form),
      limits_(limits),
      type_(type),
      rows_(to_size(limits.requests)),
      query_start_loc_(to_size(limits.requests + 1)),
      seq_lens_(to_size(limits.requests)),
      token_to_req_(to_size(limits.tokens)),
      token_rows_(to_size(limits.tokens)),
      positions_(to_size(limits.tokens)) {
  if (form == MetadataForm::kPrefillOnly) return;
  slots_.resize(to_size(limits.tokens));
  if (form == MetadataForm::kBlockTables) {
    blocks_.resize(to_size(limits.requests * limits.columns));
    return;
  }
  blocks_.resize(to_size(limits.pages));
  indptr_.resize(to_size(limits.requests + 1));
  last_page_len_.resize(to_size(limits.requests));
}

std::int64_t MetadataBuilder::bytes() const {
  const auto of = [](const auto&... buffers) {
    return to_count(((buffers.size() * sizeof(buffers[0])) + ...));
  };
  return of(rows_, query_start_loc_, seq_lens_, token_to_req_, blocks_, indptr_, last_page_len_,
            token_rows_, positions_, slots_);
}

MetadataLimits limits_of(const StepMetadata& step, const BatchRules& rules) {
  const BatchPlan plan = batch_plan(step, rules);
  MetadataLimits limits;
  limits.requests = std::max<std::int64_t>(1, padded_requests(plan));
  limits.tokens = std::max<std::int64_t>({1, plan.graph, plan.tokens});
  limits.columns = std::max<std::int64_t>(1, step.columns);
  return limits;
}

Result<void> MetadataBuilder::check(const StepMetadata& step, int group,
                                    const BatchPlan& plan) const {
  if (auto ok = too_many("requests with padding", padded_requests(plan), limits_.requests); !ok) {
    return ok;
  }
  if (auto ok = too_many("tokens with padding", std::max(plan.graph, plan.tokens), limits_.tokens);
      !ok) {
    return ok;
  }
  if (form_ != MetadataForm::kPrefillOnly) {
    const std::int64_t groups = to_count(step.groups.size()) / 2;
    if (group >= 0 && group < groups) return {};
    return bad_input(fmt::format("there is no group {} of caches", group),
                     fmt::format("groups are 0 to {}", groups - 1));
  }
  for (const BatchRow& row : plan.rows) {
    if (row.computed == 0) continue;
    return bad_input(
        fmt::format("request {} has {} tokens from before, which prefill without a cache has not",
                    row.request, row.computed),
        "compute the whole prompt in one step, or choose a form with a cache");
  }
  return {};
}

void MetadataBuilder::fill_requests(const StepMetadata& step, const BatchPlan& plan,
                                    CommonMetadata& common) {
  const std::int64_t all = padded_requests(plan);
  for (std::int64_t i = 0; i < all; ++i) {
    const bool real = i < common.requests;
    const BatchRow row = real ? plan.rows[to_size(i)] : BatchRow();
    rows_[to_size(i)] = row.row;
    seq_lens_[to_size(i)] = real ? static_cast<std::int32_t>(step.seq_lens[to_size(row.row)]) : 0;
    query_start_loc_[to_size(i)] =
        static_cast<std::int32_t>(real ? plan.query_start_loc[to_size(i)] : plan.tokens);
    common.max_query_len = std::max(common.max_query_len, row.query);
    common.max_seq_len = std::max<std::int64_t>(common.max_seq_len, seq_lens_[to_size(i)]);
  }
  query_start_loc_[to_size(all)] = static_cast<std::int32_t>(plan.tokens);
  common.rows = first_of(rows_, all);
  common.seq_lens = first_of(seq_lens_, all);
  common.query_start_loc = first_of(query_start_loc_, all + 1);
}

// Tokens in the order of the requests: where the plan moved a request, its tokens move along.
void MetadataBuilder::fill_tokens(const StepMetadata& step, int group, CommonMetadata& common) {
  const std::int64_t tokens = common.tokens;
  for (std::int64_t i = 0; i < common.requests; ++i) {
    const auto row = to_size(common.rows[to_size(i)]);
    const std::int64_t from = step.query_start_loc[row];
    for (std::int64_t t = common.query_start_loc[to_size(i)];
         t < common.query_start_loc[to_size(i + 1)]; ++t) {
      const std::int64_t token = from + t - common.query_start_loc[to_size(i)];
      token_rows_[to_size(t)] = token;
      token_to_req_[to_size(t)] = static_cast<std::int32_t>(i);
      positions_[to_size(t)] = step.positions[to_size(token)];
      if (!slots_.empty()) {
        slots_[to_size(t)] = step.slots[to_size(group * step.num_tokens_in_step() + token)];
      }
    }
  }
  const std::int64_t all = common.padded_tokens();
  for (std::int64_t t = tokens; t < all; ++t) {
    token_rows_[to_size(t)] = token_to_req_[to_size(t)] = -1;
    positions_[to_size(t)] = 0;
    if (!slots_.empty()) slots_[to_size(t)] = -1;
  }
  common.token_rows = first_of(token_rows_, all);
  common.token_to_req = first_of(token_to_req_, all);
  if (!slots_.empty()) common.slots = first_of(slots_, all);
}

Result<BlockTables> MetadataBuilder::block_tables(const StepMetadata& step, int group,
                                                  const CommonMetadata& common) {
  const std::int64_t columns = limits_.columns;
  for (std::int64_t i = 0; i < common.padded_requests(); ++i) {
    const std::int64_t held = blocks_of(step, group, common, i);
    if (auto ok = too_many("blocks of a request", held, columns); !ok) return ok.error();
    auto* const row = blocks_.data() + i * columns;
    if (held > 0) std::copy_n(table_of(step, group, common.rows[to_size(i)]), held, row);
    std::fill(row + held, row + columns, -1);
  }
  return BlockTables{first_of(blocks_, common.padded_requests() * columns), columns};
}

Result<PagedIndices> MetadataBuilder::paged_indices(const StepMetadata& step, int group,
                                                    const CommonMetadata& common) {
  const std::int64_t block = block_tokens_of(step, group), all = common.padded_requests();
  std::int64_t pages = 0;
  for (std::int64_t i = 0; i < all; ++i) {
    indptr_[to_size(i)] = static_cast<std::int32_t>(pages);
    const std::int64_t held = blocks_of(step, group, common, i);
    if (auto ok = too_many("blocks of all requests", pages + held, limits_.pages); !ok) {
      return ok.error();
    }
    if (held > 0) {
      std::copy_n(table_of(step, group, common.rows[to_size(i)]), held, blocks_.data() + pages);
    }
    pages += held;
    const std::int64_t length = common.seq_lens[to_size(i)];
    last_page_len_[to_size(i)] =
        static_cast<std::int32_t>(length > 0 ? (length - 1) % block + 1 : 0);
  }
  indptr_[to_size(all)] = static_cast<std::int32_t>(pages);
  return PagedIndices{first_of(indptr_, all + 1), first_of(blocks_, pages),
                      first_of(last_page_len_, all)};
}

Result<AttentionMetadata> MetadataBuilder::build(const StepMetadata& step, int group,
                                                 const BatchRules& rules) {
  const BatchPlan plan = batch_plan(step, rules);
  if (auto ok = check(step, group, plan); !ok) return ok.error();
  AttentionMetadata metadata;
  CommonMetadata& common = metadata.common;
  common.causal = type_ == AttentionType::kDecoder;
  common.requests = to_count(plan.rows.size());
  common.tokens = plan.tokens;
  common.decodes = plan.decodes;
  common.decode_tokens = plan.decode_tokens;
  common.positions = first_of(positions_, std::max(plan.graph, plan.tokens));
  fill_requests(step, plan, common);
  fill_tokens(step, group, common);
  if (form_ == MetadataForm::kPrefillOnly) {
    metadata.form = PrefillOnly{common.query_start_loc};
    return metadata;
  }
  if (form_ == MetadataForm::kBlockTables) {
    auto tables = block_tables(step, group, common);
    if (!tables) return tables.error();
    metadata.form = *tables;
    return metadata;
  }
  auto pages = paged_indices(step, group, common);
  if (!pages) return pages.error();
  metadata.form = *pages;
  return metadata;
}

}  // namespace attnscope
