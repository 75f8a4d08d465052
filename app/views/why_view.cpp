#include "app/views/why_view.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <utility>

#include "app/text/format.h"
#include "app/views/bytes_view.h"
#include "app/views/linkage.h"
#include "app/views/tensor_view.h"
#include "app/views/top_k_view.h"
#include "engine/family/family.h"
#include "engine/family/models.h"
#include "engine/model/numbers.h"
#include "kernels/params/tensor_view.h"

namespace attnscope {
namespace {

// Where a row was written last, and what it holds.
struct Written {
  std::int64_t step = -1;
  RecordBytes bytes;
};

class WhyBuilder {
 public:
  explicit WhyBuilder(const WhyInput& input)
      : in_(input), op_(input.step.find_role(input.layer, AS_ROLE_ATTENTION)) {}

  WhyView build() {
    view_.layer = in_.layer;
    const std::int64_t kept = in_.row < 0 ? -1 : in_.step.kept_index(in_.row);
    const auto layer = std::ranges::find(in_.info.config.layers, in_.layer);
    if (layer != in_.info.config.layers.end()) {
      running_ = static_cast<int>(layer - in_.info.config.layers.begin());
      view_.windowed = has_window(in_.info.layout, running_);
      view_.has_entries = entries_of(in_.info.layout, running_) != nullptr;
      view_.selects = layer_selects(in_.info.config, running_);
    }
    if (running_ >= 0 && in_.info.layout.groups.empty()) {
      view_.why_empty =
          "The model has no caches: the rows that this output is made of are those of its own "
          "step, "
          "and no table or block stands between. Window has their weights.";
      return view_;
    }
    if (op_ == nullptr || op_->attention == nullptr || running_ < 0) {
      view_.why_empty =
          in_.layer < 0
              ? "Outside the layers nothing attends. Pick an op of a layer."
              : fmt::format("The attention of layer {} has not run in this step.", in_.layer);
      return view_;
    }
    if (kept < 0) {
      view_.why_empty = "The rows of this token are not kept. Pick a later one of its request.";
      return view_;
    }
    const AttentionCopy& attention = *op_->attention;
    view_.has_sinks = attention.has_sinks();
    if (in_.head < 0 || in_.head >= attention.heads || in_.dim < 0 ||
        in_.dim >= in_.info.config.head_dim) {
      view_.why_empty =
          fmt::format("There is no head {} with a dim {}: heads 0 to {}, dims 0 to {}.", in_.head,
                      in_.dim, attention.heads - 1, in_.info.config.head_dim - 1);
      return view_;
    }
    view_.request = in_.step.request_of(in_.row);
    view_.position = in_.step.metadata.positions[to_size(in_.row)];
    view_.verdict = op_->worst;
    read_output(kept);
    for (std::int64_t c = 0; c < attention.window + attention.extra; ++c) column(kept, c);
    std::ranges::stable_sort(view_.rows,
                             [](const WhyRow& a, const WhyRow& b) { return a.weight > b.weight; });
    WhyRow sink;
    sink.kind = WhyRow::Kind::kSink;
    sink.logit = static_cast<double>(attention.sinks[to_size(in_.head)]);
    sink.weight =
        static_cast<double>(attention.sink_mass[to_size(kept * attention.heads + in_.head)]);
    view_.sink = sink.weight;
    not_selected();
    view_.sentence = sentence();
    if (view_.has_sinks) view_.rows.push_back(std::move(sink));
    return std::move(view_);
  }

 private:
  void read_output(std::int64_t kept) {
    const TapCopy* o = op_->tap("o");
    if (o == nullptr || !present(o->value)) return;
    TapIndex at;
    at.rank = 3;
    at[0] = kept;
    at[1] = in_.head;
    at[2] = in_.dim;
    view_.output = element_at(o->value, at);
    if (present(o->reference)) view_.reference = element_at(o->reference, at);
  }

  void column(std::int64_t kept, std::int64_t c) {
    const AttentionCopy& a = *op_->attention;
    const std::int64_t columns = a.window + a.extra;
    WhyRow row;
    row.slot = a.slots[to_size(kept * columns + c)];
    if (row.slot < 0) return;
    const bool entry = c >= a.window;
    row.kind = entry ? WhyRow::Kind::kEntry : WhyRow::Kind::kWindow;
    const CacheLayout& layout = in_.info.layout;
    const CacheSpec* spec = entry ? entries_of(layout, running_) : value_rows(layout, running_);
    row.at = entry ? entry_of_column(kept, c - a.window) : position_of(row.slot, *spec);
    if (const CacheSpec* wide = entry ? nullptr : wide_rows(layout, running_, AS_CACHE_V, row.at)) {
      row.slot = slot_of(row.at, *wide);
      spec = wide;
    }
    row.block = static_cast<std::int32_t>(row.slot / spec->rows_per_block);
    row.row = static_cast<std::int32_t>(row.slot % spec->rows_per_block);
    const std::size_t cell = to_size((kept * a.heads + in_.head) * columns + c);
    row.logit = static_cast<double>(a.logits[cell]);
    row.weight = static_cast<double>(a.weights[cell]);
    if (const auto written = read_row(row, *spec)) {
      // Heads share those of their KV head.
      const int kv_head = in_.head / std::max(1, in_.info.config.heads / spec->num_kv_heads);
      const std::int64_t element =
          spec->num_kv_heads > 1 ? kv_head * spec->head_dim + in_.dim : in_.dim;
      std::vector<float> beside;
      if (!is_first(*spec)) beside = scales_beside_cache(in_.step, in_.layer, "v_cache");
      RecordBytes bytes = written->bytes;
      bytes.beside = beside;
      const DecodedElement value = decode_element(bytes, element);
      row.bytes = element_words(value);
      row.value = value.value;
      row.partial = row.weight * row.value;
      row.written = written->step;
      (entry ? view_.entries : view_.window) += row.partial;
    } else {
      ++view_.unknown;
    }
    view_.rows.push_back(std::move(row));
  }

  std::optional<Written> read_row(const WhyRow& row, const CacheSpec& spec) const {
    const bool entry = row.kind == WhyRow::Kind::kEntry;
    const AttentionCopy& attention = *op_->attention;
    const RowsRead& read = entry || is_first(spec) ? attention.extra_rows : attention.window_rows;
    if (const std::int64_t i = read.find(row.slot); i >= 0) {
      const auto bytes =
          std::span(read.bytes).subspan(to_size(i * read.row_bytes), to_size(read.row_bytes));
      return Written{read.steps[to_size(i)], {spec.record, spec.width, bytes, spec.num_kv_heads}};
    }
    if (is_first(spec)) return std::nullopt;  // those that are kept are the codes beside them
    const WrittenRows::Row* found =
        in_.written != nullptr ? in_.written->find(entry, row.slot, row.at) : nullptr;
    if (found == nullptr) return std::nullopt;
    return Written{found->step, {found->record, found->width, found->bytes, spec.num_kv_heads}};
  }

  // By the request's table; -1 where it does not name the block, as of rows in a pool.
  std::int64_t position_of(std::int64_t slot, const CacheSpec& spec) const {
    const RequestView* request = find_request(in_.step, view_.request);
    if (request == nullptr || to_size(spec.group) >= request->tables.size()) return -1;
    const std::vector<std::int32_t>& table = request->tables[to_size(spec.group)];
    const auto block = std::ranges::find(table, slot / spec.rows_per_block);
    if (block == table.end()) return -1;
    return (block - table.begin()) * spec.rows_per_block + slot % spec.rows_per_block;
  }

  static bool is_first(const CacheSpec& spec) { return spec.retention.kind == GroupKind::kFirst; }

  // By the request's table of the group; -1 where it names no block.
  std::int64_t slot_of(std::int64_t position, const CacheSpec& spec) const {
    const RequestView* request = find_request(in_.step, view_.request);
    if (request == nullptr || to_size(spec.group) >= request->tables.size()) return -1;
    const std::vector<std::int32_t>& table = request->tables[to_size(spec.group)];
    const std::size_t column = to_size(position / spec.rows_per_block);
    if (column >= table.size()) return -1;
    return std::int64_t{table[column]} * spec.rows_per_block + position % spec.rows_per_block;
  }

  std::int64_t entry_of_column(std::int64_t kept, std::int64_t column) const {
    const OpTrace* topk = in_.step.find_role(in_.layer, AS_ROLE_SELECT);
    const TapCopy* indices = topk != nullptr ? topk->tap("indices") : nullptr;
    // A list that nobody selected holds all entries in order.
    return indices == nullptr ? column : *at<std::int32_t>(indices->value, kept, column);
  }

  void not_selected() {
    if (!view_.selects) return;
    const TopKView top =
        top_k_view({in_.info, in_.step, in_.before, in_.layer, in_.row, in_.head, Tolerance{}});
    // Entries of this selection that were not in the one before, best first.
    std::vector<std::int32_t> entered;
    for (const std::int32_t entry : top.order) {
      const std::uint8_t flags = top.flags[to_size(entry)];
      if (top.has_before && (flags & (kInOurs | kInBefore)) == kInOurs) entered.push_back(entry);
    }
    for (const std::int32_t entry : top.order) {
      if (!top.chosen || (top.flags[to_size(entry)] & kInOurs) != 0) continue;
      WhyRow row;
      row.kind = WhyRow::Kind::kNotSelected;
      row.at = entry;
      row.rank = top.rank[to_size(entry)];
      row.score = static_cast<double>(top.scores[to_size(entry)]);
      row.margin = top.threshold - row.score;
      row.last_in = top.at_threshold;
      row.was_in = top.has_before && (top.flags[to_size(entry)] & kInBefore) != 0;
      if (row.was_in) row.pushed_by = entered;
      view_.left_out.push_back(row);
    }
  }

  std::string sentence() const {
    std::string text = fmt::format("o of head {}, dim {}, token {} is {}", in_.head, in_.dim,
                                   format_count(view_.position), format_number(view_.output));
    if (!std::isnan(view_.reference)) {
      text += fmt::format(" (ref.sim {})", format_number(view_.reference));
    }
    const auto part = [&](WhyRow::Kind kind, const char* name, double sum) {
      std::int64_t rows = 0;
      double weight = 0;
      for (const WhyRow& row : view_.rows) {
        if (row.kind != kind || row.logit == -kInfinity) continue;  // masked
        ++rows;
        weight += row.weight;
      }
      if (rows == 0) return;
      text += fmt::format("{} {} with {} of the weight", rows, name, format_share(weight));
      if (view_.unknown == 0) text += fmt::format(" put in {}", format_number(sum));
      text += ", ";
    };
    text += ": ";
    part(WhyRow::Kind::kWindow, view_.windowed ? "window rows" : "rows", view_.window);
    part(WhyRow::Kind::kEntry, "entries", view_.entries);
    if (view_.has_sinks) {
      text += fmt::format("the sink took {}", format_share(view_.sink));
    } else {
      text.resize(text.size() - 2);  // the comma, or the colon where nothing was read
    }
    if (!view_.left_out.empty()) {
      text += fmt::format(", {} not selected",
                          plural(std::ssize(view_.left_out), "entry was", "entries were"));
    }
    text += ".";
    if (view_.unknown > 0) {
      text += fmt::format(
          " The values of {} of {} rows are not known, which a level below full or fewer steps or "
          "tokens leave out; the others put in {}.",
          format_count(view_.unknown), format_count(std::ssize(view_.rows)),
          format_number(view_.window + view_.entries));
    }
    return text;
  }

  const WhyInput& in_;
  const OpTrace* op_;
  int running_ = -1;
  WhyView view_;
};

// What the step's writers were told; trace: of the step, null = not kept.
void add_planned_writes(const SessionInfo& info, const ModelGraph& graph, const StepSummary& step,
                        const StepTrace* trace, int layer, int group, std::int64_t slot,
                        std::vector<SlotWrite>& to) {
  std::map<as_op_id, const std::vector<std::int64_t>*> lists;
  for (const CacheSpec& spec : info.layout.specs) {
    if (spec.group != group || info.config.layers[to_size(spec.layer)] != layer) continue;
    const as_op_id op = writer_of(spec.id, graph.layer(spec.layer).ops()).op;
    if (!step.complete && (trace == nullptr || trace->find(layer, op) == nullptr)) continue;
    lists[op] = spec.tokens_per_row == 1 ? &step.writes->slots[to_size(group)]
                                         : &step.writes->entries.at(spec.tokens_per_row);
  }
  for (const auto& [op, slots] : lists) {
    for (std::size_t t = 0; t < slots->size(); ++t) {
      if ((*slots)[t] != slot) continue;
      to.push_back({step.step, op, step.writes->requests[t], step.writes->positions[t]});
    }
  }
}

// What a step wrote to a layer's rows that attention weighs: of its tokens, or entries; nullptr =
// nothing that was kept.
const RowsCopy* rows_of_cache(const StepTrace& step, int layer, bool entries) {
  for (const auto& op : step.ops) {
    if (op->place.layer != layer) continue;
    for (const RowsCopy& rows : op->rows) {
      const CacheId cache = tap_cache(op->place.op, rows.name);
      const CacheId right{AS_CACHE_KV, entries ? 1 : 0};
      if (cache == right || (!entries && cache.role == AS_CACHE_V)) return &rows;
    }
  }
  return nullptr;
}

}  // namespace

void WrittenRows::add(const StepTrace& step) {
  for (const auto& [entries, ratio, rows] :
       {std::tuple{false, 1, &window_}, std::tuple{true, ratio_, &entries_}}) {
    const RowsCopy* copy = rows_of_cache(step, layer_, entries);
    if (copy == nullptr) continue;
    for (std::size_t i = 0; i < copy->tokens.size(); ++i) {
      const std::int32_t token = copy->tokens[i];
      if (step.request_of(token) != request_) continue;
      const std::int64_t position = step.metadata.positions[to_size(token)];
      const auto bytes = copy->bytes.begin() + static_cast<std::ptrdiff_t>(i) * copy->row_bytes;
      (*rows)[{copy->slots[i], position / ratio}] = {
          step.step, copy->record, copy->width, {bytes, bytes + copy->row_bytes}};
    }
  }
}

const WrittenRows::Row* WrittenRows::find(bool entry, std::int64_t slot, std::int64_t at) const {
  const Rows& rows = entry ? entries_ : window_;
  const auto found = rows.find({slot, at});
  return found != rows.end() ? &found->second : nullptr;
}

WhyView why_view(const WhyInput& input) { return WhyBuilder(input).build(); }

void add_recorded_writes(const StepTrace& trace, int layer, int group, std::int64_t slot,
                         std::vector<SlotWrite>& to) {
  for (const auto& op : trace.ops) {
    if (op->place.layer != layer) continue;
    for (const RowsCopy& rows : op->rows) {
      if (rows.group != group) continue;
      for (std::size_t i = 0; i < rows.slots.size(); ++i) {
        if (rows.slots[i] != slot) continue;
        const std::int32_t token = rows.tokens[i];
        to.push_back({trace.step, op->place.op, trace.request_of(token),
                      trace.metadata.positions[to_size(token)]});
      }
    }
  }
}

std::vector<SlotWrite> writes_of_slot(const Snapshot& snapshot, int layer, int group,
                                      std::int64_t slot) {
  std::vector<SlotWrite> writes;
  const auto graph = model_graph(snapshot.info->config);
  for (const auto& summary : snapshot.steps) {
    const StepTrace* trace = snapshot.trace(summary->step);
    if (summary->writes != nullptr) {
      add_planned_writes(*snapshot.info, *graph, *summary, trace, layer, group, slot, writes);
    } else if (trace != nullptr) {
      add_recorded_writes(*trace, layer, group, slot, writes);
    }
  }
  return writes;
}

}  // namespace attnscope
