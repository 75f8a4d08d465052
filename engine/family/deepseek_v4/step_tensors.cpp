#include <algorithm>
#include <utility>

#include "engine/family/deepseek_v4/caches.h"
#include "engine/family/deepseek_v4/deepseek_v4.h"
#include "engine/model/numbers.h"
#include "kernels/layout/records.h"
#include "kernels/params/attention_params.h"

namespace attnscope {
namespace {

// Places of the tensors among the family's own.
enum Own { kC4Slots, kC128Slots, kC4Lens, kSwaIndices, kSwaLens, kC128Indices, kC128Lens };

// Tokens of an entry, by the type of layers as attention_plan counts them.
constexpr std::int64_t kEntryTokens[AS_PLAN_TYPES] = {0, 4, 128};

StepTensor of_plan(const char* name, StepTensor::Kind kind, const ModelConfig& config,
                   std::int64_t columns) {
  StepTensor tensor{.name = name,
                    .kind = kind,
                    .used = config.switches.attention_plan != AS_PLAN_NONE,
                    .lists_by = StepTensor::ListsBy::kLayerType,
                    .entry_tokens = kEntryTokens,
                    .lists = AS_PLAN_TYPES,
                    .columns = columns,
                    .cache = kMainCache};
  if (kind == StepTensor::Kind::kPlanSplits) tensor.more_rows = config.switches.multiprocessors;
  return tensor;
}

}  // namespace

std::vector<StepTensor> deepseek_v4_step_tensors(const ModelConfig& config,
                                                 const CacheLayout& layout) {
  using Kind = StepTensor::Kind;
  const bool c4 = has_type(config, LayerType::kC4A), c128 = has_type(config, LayerType::kC128A);
  std::vector<StepTensor> tensors;
  tensors.push_back({.name = "c4_slots", .kind = Kind::kSlots, .used = c4, .tokens_per_row = 4});
  tensors.push_back(
      {.name = "c128_slots", .kind = Kind::kSlots, .used = c128, .tokens_per_row = 128});
  // Visible entries of C4A layers.
  tensors.push_back({.name = "c4_lens", .used = c4, .tokens_per_row = 4, .selected_from = true});
  tensors.push_back({.name = "swa_indices",
                     .kind = Kind::kLists,
                     .always = true,
                     .lists_by = StepTensor::ListsBy::kWindowGroup,
                     .lists = to_count(layout.swa_groups.size()),
                     .columns = config.window,
                     .cache = kSwaCache,
                     .lengths = kSwaLens});
  tensors.push_back({.name = "swa_lens", .always = true});
  tensors.push_back({.name = "c128_indices",
                     .kind = Kind::kLists,
                     .used = c128,
                     .tokens_per_row = 128,
                     .columns = kGrows,
                     .cache = kMainCache,
                     .lengths = kC128Lens});
  tensors.push_back({.name = "c128_lens", .used = c128});
  tensors.push_back({.name = "prefill_parts",
                     .kind = Kind::kParts,
                     .used = config.switches.gathered_prefill,
                     .columns = 2});
  tensors.push_back(of_plan("plan_rows", Kind::kPlanRows, config, 2));
  tensors.push_back(of_plan("plan_splits", Kind::kPlanSplits, config, AS_PLAN_COLUMNS));
  tensors.push_back(of_plan("plan_counts", Kind::kPlanCounts, config, 2));
  tensors.push_back({.name = "next_tokens", .kind = Kind::kNext, .used = config.draft_layers > 0});
  return tensors;
}

void deepseek_v4_logical_lists(const StepMetadata& step, const ModelConfig& config,
                               LogicalMetadata& out) {
  const std::int64_t tokens = step.num_tokens_in_step(), window = config.window;
  out.own = deepseek_v4_step_tensors(config, CacheLayout());
  StepTensor &swa = out.own[kSwaIndices], &entries = out.own[kC128Indices];
  swa.lists_by = StepTensor::ListsBy::kAll;
  swa.lists = 1;
  // References attend over whole lists.
  for (StepTensor& tensor : out.own) tensor.used = tensor.used && !tensor.of_plan();
  for (StepTensor& tensor : out.own) tensor.assign(tokens, step.list_columns);
  for (const auto& [slots, ratio] : {std::pair{kC4Slots, 4}, std::pair{kC128Slots, 128}}) {
    if (out.own[slots].used) out.own[slots].slots = out.rows_of(ratio);
  }
  for (std::int64_t t = 0; t < tokens; ++t) {
    const auto at = to_size(t), request = to_size(step.token_to_req[at]);
    const std::int64_t position = step.positions[at], first = out.table(1)[request];
    const std::int64_t start = std::max<std::int64_t>(0, position - window + 1);
    for (std::int64_t k = start; k <= position; ++k) {
      swa.numbers[to_size(t * window + k - start)] = static_cast<std::int32_t>(first + k);
    }
    out.own[kSwaLens].numbers[at] = static_cast<std::int32_t>(position + 1 - start);
    if (out.own[kC4Lens].used) {
      out.own[kC4Lens].numbers[at] = static_cast<std::int32_t>((position + 1) / 4);
    }
    if (!entries.used) continue;
    const std::int64_t seen = (position + 1) / 128, width = step.list_columns;
    for (std::int64_t c = 0; c < std::min(seen, width); ++c) {
      entries.numbers[to_size(t * width + c)] =
          static_cast<std::int32_t>(out.table(128)[request] + c);
    }
    out.own[kC128Lens].numbers[at] = static_cast<std::int32_t>(seen);
  }
}

std::int64_t deepseek_v4_list_columns(std::int64_t longest, const ModelConfig& config) {
  return has_type(config, LayerType::kC128A) ? as_c128_index_width(longest, config.max_position)
                                             : 0;
}

}  // namespace attnscope
