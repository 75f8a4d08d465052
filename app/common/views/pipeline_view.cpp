#include "app/common/views/pipeline_view.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>

#include "app/common/format.h"
#include "app/common/op_order.h"
#include "app/common/views/timeline_view.h"

namespace attnscope {
namespace {

constexpr std::array<PipelineRead, 33> kReads = {{
    {AS_OP_BLOCK_TABLES, "scheduled", AS_OP_SCHEDULE, "scheduled"},
    {AS_OP_SLOT_MAPPING, "tables", AS_OP_BLOCK_TABLES, "tables", false},
    {AS_OP_SWA_INDEX, "tables", AS_OP_BLOCK_TABLES, "tables", false},
    {AS_OP_C128_INDEX, "table", AS_OP_BLOCK_TABLES, "tables", false},
    {AS_OP_Q_KV_A_PROJ, "x", AS_OP_ATTN_NORM, "y"},
    {AS_OP_Q_KV_NORM, "qkv", AS_OP_Q_KV_A_PROJ, "y"},
    {AS_OP_Q_B_PROJ, "x", AS_OP_Q_KV_NORM, "qr"},
    {AS_OP_Q_ROPE_KV_INSERT, "q_raw", AS_OP_Q_B_PROJ, "y"},
    {AS_OP_Q_ROPE_KV_INSERT, "kv", AS_OP_Q_KV_NORM, "kv"},
    {AS_OP_COMPRESSOR_PROJ, "x", AS_OP_ATTN_NORM, "y"},
    {AS_OP_COMPRESSOR_STATE, "proj", AS_OP_COMPRESSOR_PROJ, "y"},
    {AS_OP_COMPRESS_INSERT, "state", AS_OP_COMPRESSOR_STATE, "state", false},
    {AS_OP_INDEXER_COMPRESSOR_PROJ, "x", AS_OP_ATTN_NORM, "y"},
    {AS_OP_INDEXER_COMPRESSOR_STATE, "proj", AS_OP_INDEXER_COMPRESSOR_PROJ, "y"},
    {AS_OP_INDEXER_COMPRESS_INSERT, "state", AS_OP_INDEXER_COMPRESSOR_STATE, "state", false},
    {AS_OP_INDEXER_Q_PROJ, "x", AS_OP_Q_KV_NORM, "qr"},
    {AS_OP_INDEXER_WEIGHTS_PROJ, "x", AS_OP_ATTN_NORM, "y"},
    {AS_OP_INDEXER_Q, "q_raw", AS_OP_INDEXER_Q_PROJ, "y"},
    {AS_OP_INDEXER_Q, "weights_raw", AS_OP_INDEXER_WEIGHTS_PROJ, "y"},
    {AS_OP_INDEXER_LOGITS, "q", AS_OP_INDEXER_Q, "q"},
    {AS_OP_INDEXER_LOGITS, "weights", AS_OP_INDEXER_Q, "weights"},
    {AS_OP_INDEXER_LOGITS, "cache", AS_OP_INDEXER_COMPRESS_INSERT, "cache", false},
    {AS_OP_INDEXER_TOPK, "logits", AS_OP_INDEXER_LOGITS, "logits", false},  // columns < lens
    {AS_OP_TOPK_TO_SLOTS, "indices", AS_OP_INDEXER_TOPK, "indices"},
    {AS_OP_SPARSE_ATTENTION, "q", AS_OP_Q_ROPE_KV_INSERT, "q"},
    {AS_OP_SPARSE_ATTENTION, "extra_cache", AS_OP_COMPRESS_INSERT, "cache", false},
    {AS_OP_SPARSE_ATTENTION, "extra_indices", AS_OP_TOPK_TO_SLOTS, "slots"},
    {AS_OP_INVERSE_ROPE, "o", AS_OP_SPARSE_ATTENTION, "o"},
    {AS_OP_WO_A, "x", AS_OP_INVERSE_ROPE, "out"},
    {AS_OP_WO_B, "x", AS_OP_WO_A, "y"},
    {AS_OP_RESIDUAL, "y", AS_OP_WO_B, "y"},
    {AS_OP_LM_HEAD, "x", AS_OP_FINAL_NORM, "y"},
    {AS_OP_SAMPLE, "logits", AS_OP_LM_HEAD, "y"},
}};

// Rows of the chart. Those that hold no op of a layer are left out.
enum Branch { kMain, kCompressor, kKeys, kQueries, kBranches };
constexpr std::array kCaptions = {"", "compressor", "indexer keys", "indexer queries"};

Branch branch_of(as_op_id op) {
  switch (op) {
    case AS_OP_COMPRESSOR_PROJ:
    case AS_OP_COMPRESSOR_STATE:
    case AS_OP_COMPRESS_INSERT:
    case AS_OP_SWA_INDEX:
      return kCompressor;
    case AS_OP_INDEXER_COMPRESSOR_PROJ:
    case AS_OP_INDEXER_COMPRESSOR_STATE:
    case AS_OP_INDEXER_COMPRESS_INSERT:
    case AS_OP_C128_INDEX:
      return kKeys;
    case AS_OP_INDEXER_Q_PROJ:
    case AS_OP_INDEXER_WEIGHTS_PROJ:
    case AS_OP_INDEXER_Q:
    case AS_OP_INDEXER_LOGITS:
    case AS_OP_INDEXER_TOPK:
    case AS_OP_TOPK_TO_SLOTS:
      return kQueries;
    default:
      return kMain;
  }
}

bool in_layer(as_op_id op) {
  const as_op_info* info = as_op_find(op);
  return info != nullptr && info->phase == AS_PHASE_LAYER;
}

std::string card_name(as_op_id op) {
  const as_op_info* info = as_op_find(op);
  return info != nullptr ? info->name : "?";
}

// The lane that computes most ops: cards of others get a badge.
std::string usual_lane(const SessionInfo& info) {
  std::map<std::string, int> count;
  std::string usual;
  for (const std::string& lane : info.lane_of) {
    if (lane.empty()) continue;  // an op that came after the recording
    if (++count[lane] > count[usual]) usual = lane;
  }
  return usual;
}

void add_result(PipelineCard& card, const TapResult& result) {
  ++card.taps;
  if (result.verdict == Verdict::kNotCompared) return;
  ++card.compared;
  if (result.verdict == Verdict::kWrong && card.note.empty()) {
    card.note = fmt::format("{}: {}", result.tap,
                            result.note.empty() ? "beyond its tolerance" : result.note);
  }
  card.worst = worse(result.verdict, card.worst);
  if (card.budget_tap.empty() || result.budget_used > card.budget_used) {
    card.budget_used = result.budget_used;
    card.budget_tap = result.tap;
  }
}

}  // namespace

std::span<const PipelineRead> pipeline_reads() { return kReads; }

bool sums_ranks(as_op_id from, as_op_id to) { return from == AS_OP_WO_B && to == AS_OP_RESIDUAL; }

bool PipelineChart::taken(int row, int column) const {
  return std::any_of(nodes.begin(), nodes.end(), [&](const PipelineNode& node) {
    return node.row == row && node.column == column;
  });
}

PipelineChart pipeline_chart(std::span<const as_op_id> ops) {
  PipelineChart chart;
  std::map<as_op_id, int> index;
  std::array<int, kBranches> row_of{};
  std::array<bool, kBranches> used{};
  used[kMain] = true;
  for (as_op_id op : ops) used[branch_of(op)] = true;
  const bool layer = !ops.empty() && in_layer(ops.front());
  for (int branch = 0; branch < kBranches; ++branch) {
    if (!used[static_cast<std::size_t>(branch)]) continue;
    row_of[static_cast<std::size_t>(branch)] = chart.rows++;
    chart.captions.emplace_back(layer ? kCaptions[static_cast<std::size_t>(branch)] : "");
  }
  for (as_op_id op : ops) {
    PipelineNode node{op, 0, row_of[branch_of(op)]};
    const int to = static_cast<int>(chart.nodes.size());
    for (const PipelineRead& read : kReads) {
      const auto writer = index.find(read.writer);
      if (read.reader != op || writer == index.end()) continue;
      const int from = writer->second;
      node.column = std::max(node.column, chart.nodes[static_cast<std::size_t>(from)].column + 1);
      const auto same = [&](const PipelineEdge& e) { return e.from == from && e.to == to; };
      if (std::none_of(chart.edges.begin(), chart.edges.end(), same)) {
        chart.edges.push_back({from, to, PipelineEdge::Route::kLate});
      }
    }
    while (chart.taken(node.row, node.column)) ++node.column;
    index[op] = to;
    chart.nodes.push_back(node);
    chart.columns = std::max(chart.columns, node.column + 1);
    if (node.row > 0) chart.free_from = std::max(chart.free_from, node.column + 1);
  }
  for (PipelineEdge& edge : chart.edges) {
    const PipelineNode& from = chart.nodes[static_cast<std::size_t>(edge.from)];
    const PipelineNode& to = chart.nodes[static_cast<std::size_t>(edge.to)];
    const auto clear = [&](int row) {
      for (int column = from.column + 1; column < to.column; ++column) {
        if (chart.taken(row, column)) return false;
      }
      return true;
    };
    edge.route = clear(from.row) ? PipelineEdge::Route::kLate
                 : clear(to.row) ? PipelineEdge::Route::kEarly
                                 : PipelineEdge::Route::kBelow;
    // Its level part lies in the row of a branch as far as the reader.
    if (edge.route == PipelineEdge::Route::kLate && from.row > 0) {
      chart.free_from = std::max(chart.free_from, to.column);
    }
  }
  return chart;
}

std::string pipeline_label(as_op_id op) {
  const std::string name = card_name(op);
  constexpr std::string_view kPrefix = "indexer_";
  return name.rfind(kPrefix, 0) == 0 ? name.substr(kPrefix.size()) : name;
}

PipelinePart pipeline_part(const SessionInfo& info, const Place& cursor) {
  if (cursor.layer >= 0) return {PipelinePart::Kind::kLayer, cursor.layer};
  const bool after =
      std::find(info.ops_after.begin(), info.ops_after.end(), cursor.op) != info.ops_after.end();
  return {after ? PipelinePart::Kind::kAfter : PipelinePart::Kind::kBefore, -1};
}

std::span<const as_op_id> pipeline_ops(const SessionInfo& info, const PipelinePart& part) {
  switch (part.kind) {
    case PipelinePart::Kind::kBefore:
      return info.ops_before;
    case PipelinePart::Kind::kAfter:
      return info.ops_after;
    default:
      break;
  }
  const int at = layer_index(info, part.layer);
  if (at < 0) return {};
  return info.ops[static_cast<std::size_t>(at)];
}

PipelineState pipeline_state(const Snapshot& snapshot, const PipelinePart& part,
                             std::int64_t step) {
  const SessionInfo& info = *snapshot.info;
  PipelineState state;
  state.step = step;
  state.part = part;
  const int at = layer_index(info, part.layer);
  state.title = part.kind == PipelinePart::Kind::kBefore  ? "Before the layers"
                : part.kind == PipelinePart::Kind::kAfter ? "After the layers"
                                                          : fmt::format("Layer {}", part.layer);
  if (part.kind == PipelinePart::Kind::kLayer && at >= 0) {
    state.title += fmt::format(" ({})", layer_type_name(info.config.type(at)));
  }
  const TensorParallel& parallel = info.config.parallel;
  state.ranks = parallel.size;
  if (state.ranks > 1) {
    state.title += fmt::format(", rank {} of {}", parallel.rank, parallel.size);
  }
  const StepTrace* trace = snapshot.trace(step);
  const StepSummary* summary = snapshot.summary(step);
  state.kept = trace != nullptr;
  const std::string usual = usual_lane(info);
  for (as_op_id op : pipeline_ops(info, part)) {
    PipelineCard& card = state.cards.emplace_back();
    card.op = op;
    const auto id = static_cast<std::size_t>(op);
    card.lane = id < info.lane_of.size() ? info.lane_of[id] : "";
    if (const OpTrace* ran = trace != nullptr ? trace->find(part.layer, op) : nullptr) {
      card.ran = true;
      card.trace = ran;
      card.microseconds = ran->microseconds;
      card.lane = ran->lane;
      for (const TapResult& result : ran->results) add_result(card, result);
    } else if (trace == nullptr && summary != nullptr) {
      for (const TapResult& result : summary->results) {
        if (result.layer != part.layer || result.op != op) continue;
        add_result(card, result);
        card.lane = result.lane;
      }
      card.ran = summary->complete || card.taps > 0;
    }
    if (state.ranks > 1 && op == AS_OP_WO_B) {
      card.part = fmt::format("y is the part of rank {}: residual reads the sum over all {} ranks",
                              parallel.rank, parallel.size);
    }
    if (state.ranks > 1 && op == AS_OP_RESIDUAL) {
      card.part = fmt::format("y is the sum of wo_b over all {} ranks", parallel.size);
    }
    card.other_lane = !card.lane.empty() && card.lane != usual && card.lane != "host";
    state.ran += card.ran ? 1 : 0;
  }
  return state;
}

Verdict pipeline_verdict(const PipelineState& state) {
  Verdict worst = Verdict::kNotCompared;
  for (const PipelineCard& card : state.cards) {
    worst = worse(card.worst, worst);
  }
  return worst;
}

std::string pipeline_sentence(const PipelineState& state) {
  const auto total = static_cast<int>(state.cards.size());
  if (total == 0) return state.title + " has no ops.";
  if (state.ran == 0) {
    return fmt::format("{}: none of its {} has run in step {} yet.", state.title,
                       plural(total, "op", "ops"), format_count(state.step));
  }
  int wrong = 0;
  std::int64_t compared = 0, ties = 0;
  double microseconds = 0;
  const PipelineCard* first_wrong = nullptr;
  const PipelineCard* slowest = nullptr;
  const PipelineCard* worst = nullptr;
  const PipelineCard* next = nullptr;
  for (const PipelineCard& card : state.cards) {
    if (!card.ran) {
      if (next == nullptr) next = &card;
      continue;
    }
    compared += card.compared;
    ties += card.worst == Verdict::kNearTie ? 1 : 0;
    if (card.worst == Verdict::kWrong) {
      ++wrong;
      if (first_wrong == nullptr) first_wrong = &card;
    }
    microseconds += std::max(0.0, card.microseconds);
    if (card.microseconds >= 0 &&
        (slowest == nullptr || card.microseconds > slowest->microseconds)) {
      slowest = &card;
    }
    if (worst == nullptr || card.budget_used > worst->budget_used) worst = &card;
  }
  if (first_wrong != nullptr) {
    std::string text = fmt::format("{}: {} is wrong although its inputs are right", state.title,
                                   card_name(first_wrong->op));
    text += ". " + first_wrong->note;
    if (std::isfinite(first_wrong->budget_used)) {
      text += fmt::format(", {} of the budget used", format_number(first_wrong->budget_used));
    }
    if (wrong > 1) text += "; " + plural(wrong - 1, "more op is wrong", "more ops are wrong");
    return text + ".";
  }
  std::string text = state.title + ": ";
  text += next != nullptr ? fmt::format("{} of {} ops have run in step {}, next is {}", state.ran,
                                        total, format_count(state.step), card_name(next->op))
                          : plural(total, "op", "ops");
  if (slowest != nullptr) {
    text += fmt::format("{} {}, slowest {} with {}", next != nullptr ? "; so far" : " in",
                        format_us(microseconds), card_name(slowest->op),
                        format_us(slowest->microseconds));
  }
  if (compared == 0) return text + "; nothing was compared.";
  text += fmt::format("; none of {} wrong", plural(compared, "tap", "taps"));
  if (ties > 0) text += ", " + plural(ties, "near-tie", "near-ties");
  if (worst != nullptr && worst->budget_used > 0) {
    text += fmt::format(", largest budget used {} by {}", format_number(worst->budget_used),
                        card_name(worst->op));
  }
  return text + ".";
}

std::string budget_text(double used) {
  if (!(used > 0)) return "0";
  if (!std::isfinite(used)) return "";
  if (used < 0.01) return "< 0.01";
  return used < 10 ? fmt::format("{:.2f}", used) : format_number(used);
}

std::string tensor_text(const as_tensor& tensor) {
  std::string text = std::string(as_dtype_name(tensor.dtype)) + " [";
  for (std::int32_t axis = 0; axis < tensor.rank; ++axis) {
    text += fmt::format("{}{}", axis > 0 ? "," : "", tensor.shape[axis]);
  }
  return text + "]";
}

std::string pipeline_card_text(const PipelineCard& card) {
  const as_op_info* info = as_op_find(card.op);
  if (info == nullptr) return {};
  std::string text = fmt::format("{}\n{}", info->name, info->summary);
  if (!card.part.empty()) text += "\n" + card.part;
  if (!card.lane.empty()) text += "\nlane " + card.lane;
  if (!card.ran) return text + "\nhas not run in this step yet";
  if (card.microseconds >= 0)
    text += (card.lane.empty() ? "\n" : ", ") + format_us(card.microseconds);
  if (card.compared > 0) {
    text += fmt::format("\n{}: {}", plural(card.compared, "tap compared", "taps compared"),
                        verdict_word(card.worst));
    if (card.budget_used > 0 && std::isfinite(card.budget_used)) {
      text +=
          fmt::format(", budget used {} by {}", format_number(card.budget_used), card.budget_tap);
    }
  } else {
    text += "\nnothing was compared";
  }
  if (card.trace == nullptr) return text + "\nits tensors are not kept";
  for (const bool output : {false, true}) {
    std::string line;
    for (const TapCopy& tap : card.trace->taps) {
      if (tap.output != output) continue;
      line += fmt::format("{}{} {}", line.empty() ? "" : ", ", tap.name, tensor_text(tap.value));
    }
    if (output) {
      for (const RowsCopy& rows : card.trace->rows) {
        line += fmt::format("{}{} ({} into cache group {})", line.empty() ? "" : ", ", rows.name,
                            plural(static_cast<std::int64_t>(rows.slots.size()), "row", "rows"),
                            rows.group);
      }
    }
    if (!line.empty()) text += fmt::format("\n{} {}", output ? "writes" : "reads", line);
  }
  for (const TapResult& result : card.trace->results) {
    if (!result.note.empty()) text += fmt::format("\n{}: {}", result.tap, result.note);
  }
  return text;
}

std::vector<PipelineStop> pipeline_stops(const Snapshot& snapshot, const Place& cursor) {
  const SessionInfo& info = *snapshot.info;
  const StepSummary* summary = snapshot.summary(cursor.step);
  std::vector<PipelineStop> stops;
  const auto add = [&](PipelinePart part, std::string name, std::string type, as_op_id op) {
    PipelineStop& stop = stops.emplace_back();
    stop.part = part;
    stop.name = std::move(name);
    stop.type = std::move(type);
    stop.target = {cursor.step, part.layer, op};
    if (summary == nullptr) return;
    if (part.kind == PipelinePart::Kind::kLayer) {
      const LayerCell* cell = find_cell(*summary, part.layer);
      if (cell == nullptr) return;
      stop.worst = cell->worst;
      stop.ran = cell->microseconds != 0;
      return;
    }
    const auto ops = pipeline_ops(info, part);
    for (const TapResult& result : summary->results) {
      if (std::find(ops.begin(), ops.end(), result.op) == ops.end()) continue;
      stop.ran = true;
      stop.worst = worse(result.verdict, stop.worst);
    }
    stop.ran = stop.ran || summary->complete;
  };
  if (!info.ops_before.empty()) {
    add({PipelinePart::Kind::kBefore, -1}, "before", "", info.ops_before.front());
  }
  for (int i = 0; i < info.config.num_layers(); ++i) {
    const int layer = info.config.layers[static_cast<std::size_t>(i)];
    add({PipelinePart::Kind::kLayer, layer}, std::to_string(layer),
        layer_type_name(info.config.type(i)),
        op_seen_in(info, static_cast<std::size_t>(i), cursor));
  }
  if (!info.ops_after.empty()) {
    add({PipelinePart::Kind::kAfter, -1}, "after", "", info.ops_after.back());
  }
  return stops;
}

}  // namespace attnscope
