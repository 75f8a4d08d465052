#include "engine/metadata/batch_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "engine/model/numbers.h"

namespace attnscope {
namespace {

// As many workspaces as one request of the greatest length may need.
constexpr std::int64_t kChunksOfLongest = 4;

PrefillChunks chunks_of(const BatchPlan& plan, const BatchRules& rules, std::int64_t ratio) {
  PrefillChunks out;
  out.ratio = ratio;
  const auto entries = [&](std::int64_t length) { return ratio > 0 ? length / ratio : 0; };
  const std::int64_t most = ratio > 0 ? (rules.max_model_len + ratio - 1) / ratio : 0;
  out.limit = kChunksOfLongest * (most + rules.window + rules.token_budget);
  for (auto i = static_cast<std::size_t>(plan.decodes); i < plan.rows.size(); ++i) {
    const BatchRow& row = plan.rows[i];
    const std::int64_t compressed = entries(row.length());
    const std::int64_t gathered = row.query + std::min(row.computed, rules.window - 1);
    const auto place = static_cast<std::int64_t>(i);
    if (!out.chunks.empty()) {
      PrefillChunk with = out.chunks.back();
      with.end = place + 1;
      with.compressed = std::max(with.compressed, compressed);
      with.gathered = std::max(with.gathered, gathered);
      if (with.area() <= out.limit) {
        out.chunks.back() = with;
        continue;
      }
    }
    out.chunks.push_back({place, place + 1, compressed, gathered});
  }
  return out;
}

}  // namespace

BatchRules batch_rules(const ModelConfig& config, const CacheLayout& layout,
                       std::int64_t draft_tokens, std::int64_t token_budget) {
  BatchRules rules;
  rules.decode_threshold = 1 + draft_tokens;
  rules.window = config.window;
  rules.max_model_len = config.max_position;
  rules.token_budget = token_budget;
  std::map<int, std::int64_t> by_layer;
  for (const CacheSpec& spec : layout.specs) {
    std::int64_t& ratio = by_layer[spec.layer];
    if (spec.tokens_per_row > 1) ratio = std::max<std::int64_t>(ratio, spec.tokens_per_row);
  }
  for (const auto& [layer, ratio] : by_layer) rules.ratios.push_back(ratio);
  std::ranges::sort(rules.ratios);
  const auto same = std::ranges::unique(rules.ratios);
  rules.ratios.erase(same.begin(), same.end());
  return rules;
}

std::int64_t graph_tokens(std::int64_t tokens) {
  for (const std::int64_t size : {1, 2, 4}) {
    if (tokens <= size) return size;
  }
  return (tokens + 7) / 8 * 8;
}

std::vector<std::size_t> decodes_first(const std::vector<bool>& decode) {
  const auto decodes = to_size(std::count(decode.begin(), decode.end(), true));
  std::vector<std::size_t> order(decode.size());
  std::vector<std::size_t> from;  // decodes behind the border, then prefills before it
  for (const bool wanted : {true, false}) {
    for (std::size_t i = 0; i < decode.size(); ++i) {
      if (decode[i] == wanted && (i < decodes) != wanted) from.push_back(i);
    }
  }
  std::size_t next = 0;
  for (std::size_t i = 0; i < decode.size(); ++i) {
    order[i] = decode[i] == (i < decodes) ? i : from[next++];
  }
  return order;
}

void plan_parts(StepMetadata& step, const BatchRules& rules) {
  const auto parts = std::ranges::find(step.own, StepTensor::Kind::kParts, &StepTensor::kind);
  if (parts == step.own.end() || parts->empty()) return;
  const BatchPlan plan = batch_plan(step, rules);
  const auto compressed = std::ranges::find_if(
      plan.chunks, [](const PrefillChunks& chunks) { return chunks.ratio > 0; });
  if (plan.chunks.empty()) return;
  const auto& chunks = (compressed != plan.chunks.end() ? *compressed : plan.chunks.front()).chunks;
  for (std::size_t c = 0; c < chunks.size(); ++c) {
    for (std::int64_t i = chunks[c].begin; i < chunks[c].end; ++i) {
      const auto row = to_size(plan.rows[to_size(i)].row);
      for (auto t = to_size(step.query_start_loc[row]); t < to_size(step.query_start_loc[row + 1]);
           ++t) {
        parts->numbers[2 * t] = static_cast<std::int32_t>(c);
        parts->numbers[2 * t + 1] = static_cast<std::int32_t>(i - chunks[c].begin);
      }
    }
  }
}

std::string graph_refusal(const StepMetadata& step) {
  const bool drafts = std::ranges::any_of(step.own, [](const StepTensor& tensor) {
    return tensor.kind == StepTensor::Kind::kNext && tensor.used;
  });
  if (drafts) return "its draft layer reads the tokens that it samples";
  const std::int64_t tokens = step.num_tokens_in_step();
  if (tokens == 0) return "the step computes no token";
  if (tokens > kLargestGraph) {
    return fmt::format("{} tokens are more than the largest graph has, {}", tokens, kLargestGraph);
  }
  // Every token of a decode is sampled from, in the order of the rows.
  const auto sampled = std::ssize(step.sample_rows);
  for (std::int64_t i = 0; i < sampled; ++i) {
    if (step.sample_rows[to_size(i)] != i) break;
    if (i + 1 == tokens && sampled == tokens) return {};
  }
  return fmt::format("a prompt is computed: {} of {} tokens are not sampled from", tokens - sampled,
                     tokens);
}

BatchPlan batch_plan(const StepMetadata& step, const BatchRules& rules) {
  BatchPlan plan;
  std::vector<BatchRow> rows;
  std::vector<bool> decode;
  for (std::int64_t r = 0; r < step.num_live(); ++r) {
    const std::int64_t query = step.num_scheduled_tokens[to_size(r)];
    if (query == 0) continue;
    BatchRow row{static_cast<std::int32_t>(r), step.live[to_size(r)], query,
                 step.num_computed[to_size(r)], query <= rules.decode_threshold};
    decode.push_back(row.decode);
    rows.push_back(row);
  }
  const std::vector<std::size_t> order = decodes_first(decode);
  plan.query_start_loc.push_back(0);
  for (std::size_t i = 0; i < order.size(); ++i) {
    const BatchRow& row = rows[order[i]];
    plan.moved += order[i] == i ? 0 : 1;
    if (row.decode) {
      ++plan.decodes;
      plan.decode_tokens += row.query;
    }
    plan.tokens += row.query;
    plan.query_start_loc.push_back(plan.tokens);
    plan.rows.push_back(row);
  }
  plan.uniform = std::all_of(plan.rows.begin(), plan.rows.begin() + plan.decodes,
                             [&](const BatchRow& r) { return r.query == plan.rows[0].query; });
  if (plan.prefills() > 0) {
    for (const std::int64_t ratio : rules.ratios) {
      plan.chunks.push_back(chunks_of(plan, rules, ratio));
    }
  }
  plan.why_none = graph_refusal(step);
  if (plan.why_none.empty()) plan.graph = graph_tokens(plan.tokens);
  return plan;
}

}  // namespace attnscope
