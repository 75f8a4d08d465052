#include "app/views/attention_metadata_view.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>

#include "app/text/format.h"
#include "app/views/batch_view.h"
#include "app/views/op_order.h"
#include "engine/backend/attention_metadata.h"
#include "engine/model/numbers.h"

namespace attnscope {
namespace {

constexpr std::size_t kShownNumbers = 24;

// "0, 1, 64-71, -1 .. (40)": runs that grow by one are folded.
template <class T>
std::string number_list(std::span<const T> values) {
  std::string text;
  std::size_t shown = 0;
  for (std::size_t i = 0; i < values.size();) {
    if (shown++ == kShownNumbers) return text + fmt::format(" .. ({})", values.size());
    std::size_t end = i;
    while (end + 1 < values.size() && values[end + 1] == values[end] + 1) ++end;
    if (end < i + 2 || values[i] < 0) end = i;
    text += fmt::format("{}{}", i == 0 ? "" : ", ", values[i]);
    if (end > i) text += fmt::format("-{}", values[end]);
    i = end + 1;
  }
  return text.empty() ? "none" : text;
}

// The blocks of a request a piece, without what stands behind them.
std::string table_list(const BlockTables& form) {
  std::string text;
  const std::size_t columns = to_size(form.columns);
  for (std::size_t at = 0; at < form.tables.size(); at += columns) {
    auto row = form.tables.subspan(at, columns);
    const auto end = std::ranges::find(row, -1);
    row = row.first(static_cast<std::size_t>(end - row.begin()));
    text += fmt::format("{}[{}]", text.empty() ? "" : " ", number_list(row));
  }
  return text.empty() ? "none" : text;
}

void add_form(const AttentionMetadata& metadata, std::vector<MetadataLine>& lines) {
  if (const auto* tables = std::get_if<BlockTables>(&metadata.form)) {
    lines.push_back({"block_table", table_list(*tables)});
  } else if (const auto* pages = std::get_if<PagedIndices>(&metadata.form)) {
    lines.push_back({"paged_kv_indptr", number_list(pages->indptr)});
    lines.push_back({"paged_kv_indices", number_list(pages->indices)});
    lines.push_back({"paged_kv_last_page_len", number_list(pages->last_page_len)});
  } else {
    lines.push_back({"cu_seqlens", number_list(std::get<PrefillOnly>(metadata.form).cu_seqlens)});
  }
}

}  // namespace

AttentionMetadataView attention_metadata_view(const SessionInfo& info, const StepTrace& step,
                                              int layer, MetadataForm form) {
  AttentionMetadataView view;
  const CacheSpec* rows = token_rows(info.layout, std::max(0, layer_index(info, layer)));
  const StepMetadata& m = step.metadata;
  if (m.num_tokens_in_step() == 0 || m.slots.empty() || m.tables.empty()) {
    view.why_empty = "the step computes no token, or its tables are not kept";
    return view;
  }
  const BatchRules rules = batch_rules(info);
  const BatchPlan plan = batch_plan(m, rules);
  auto builder = MetadataBuilder::make(form, limits_of(m, rules));
  if (!builder || rows == nullptr) {
    view.why_empty = builder ? "the layer has no cache of tokens" : builder.error().message;
    return view;
  }
  const auto metadata = builder->build(m, rows->group, rules);
  if (!metadata) {
    view.why_empty = metadata.error().message;
    return view;
  }
  const CommonMetadata& c = metadata->common;
  view.sentence =
      fmt::format("Metadata of step {} as {}: {}, {}; {} of group {}.", format_count(step.step),
                  metadata_form_name(form), plural(c.requests, "request", "requests"),
                  batch_line(plan), format_bytes(static_cast<double>(builder->bytes())),
                  info.layout.groups[to_size(rows->group)].name);
  view.lines = {{"rows", number_list(c.rows)},
                {"query_start_loc", number_list(c.query_start_loc)},
                {"seq_lens", number_list(c.seq_lens)},
                {"slot_mapping", number_list(c.slots)}};
  add_form(*metadata, view.lines);
  return view;
}

}  // namespace attnscope
