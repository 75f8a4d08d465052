#include "app/views/pipeline_view.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "app/text/format.h"
#include "app/views/launch_view.h"
#include "app/views/op_order.h"
#include "app/views/timeline_view.h"
#include "engine/family/lifetimes.h"
#include "engine/family/models.h"
#include "engine/model/numbers.h"

namespace attnscope {
namespace {

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
  if (card.budget_tap.empty() || result.budget_used > card.budget.used) {
    card.budget = budget_of(result);
    card.budget_tap = result.tap;
  }
}

// "y: 16.0 KiB, read last by wo_b" of each result, "ends here: q_raw of q_b_proj, 8.0 KiB" of what
// no op behind it reads.
std::vector<std::string> lives_of(const ModelGraph& graph, const LayerGraph& part,
                                  const std::vector<ValueLife>& lives, as_op_id op,
                                  const StepSizes& sizes) {
  const auto& ops = part.ops();
  const auto place = static_cast<int>(std::ranges::find(ops, op) - ops.begin());
  const auto label = [&](int at) { return part.nodes()[to_size(at)].label(); };
  std::vector<std::string> lines;
  for (const Binding& b : part.nodes()[to_size(place)].bindings()) {
    if (b.to != BoundTo::kValue) continue;
    const ValueLife& life = *std::ranges::find(lives, b.value, &ValueLife::value);
    const std::string bytes = format_bytes(static_cast<double>(bytes_of(life, sizes)));
    if (b.is_output()) {
      const std::string until = b.value == graph.hidden_out ? "the next layer begins with it"
                                : b.value == graph.sampled  ? "the tokens of the step"
                                : b.value == graph.sum.part ? "added up over the ranks at once"
                                : life.readers.empty()      ? "read by no op"
                                                            : "read last by " + label(life.last());
      lines.push_back(fmt::format("{}: {}, {}", b.tap->name, bytes, until));
    } else if (life.last() == place && !life.lives_on) {
      const std::string maker = life.maker >= 0 ? " of " + label(life.maker) : "";
      lines.push_back(fmt::format("ends here: {}{}, {}", b.tap->name, maker, bytes));
    }
  }
  return lines;
}

}  // namespace

bool PipelineChart::taken(int row, int column) const {
  return std::any_of(nodes.begin(), nodes.end(), [&](const PipelineNode& node) {
    return node.row == row && node.column == column;
  });
}

PipelineChart pipeline_chart(const ModelGraph& graph, const LayerGraph& part) {
  PipelineChart chart;
  std::map<as_op_id, int> index;
  std::map<int, int> row_of;  // by branch; those that hold no op of the part are left out
  row_of[0] = 0;
  for (const Node& node : part.nodes()) row_of[node.branch()] = 0;
  const bool in_layer = !part.ops().empty() && graph.before.find(part.ops().front()) == nullptr &&
                        graph.after.find(part.ops().front()) == nullptr;
  for (auto& [branch, row] : row_of) {
    row = chart.rows++;
    chart.captions.push_back(in_layer ? graph.branches[to_size(branch)] : "");
  }
  const std::vector<OpRead> reads = reads_within(graph, part);
  for (const Node& op : part.nodes()) {
    PipelineNode node{op.op(), op.label(), 0, row_of[op.branch()]};
    const int to = static_cast<int>(chart.nodes.size());
    for (const OpRead& read : reads) {
      if (read.reader != op.op()) continue;
      const int from = index[read.writer];
      node.column = std::max(node.column, chart.nodes[to_size(from)].column + 1);
      const auto same = [&](const PipelineEdge& e) { return e.from == from && e.to == to; };
      if (std::none_of(chart.edges.begin(), chart.edges.end(), same)) {
        const bool sums = read.writer == graph.sum.made_by && op.op() == graph.sum.read_by;
        chart.edges.push_back({from, to, PipelineEdge::Route::kLate, sums});
      }
    }
    while (chart.taken(node.row, node.column)) ++node.column;
    index[op.op()] = to;
    chart.columns = std::max(chart.columns, node.column + 1);
    if (node.row > 0) chart.free_from = std::max(chart.free_from, node.column + 1);
    chart.nodes.push_back(std::move(node));
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

const LayerGraph& pipeline_graph(const SessionInfo& info, const ModelGraph& graph,
                                 const PipelinePart& part) {
  if (part.kind == PipelinePart::Kind::kBefore) return graph.before;
  if (part.kind == PipelinePart::Kind::kAfter) return graph.after;
  static const LayerGraph kNone;
  const int at = layer_index(info, part.layer);
  return at < 0 ? kNone : graph.layer(at);
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
    state.title += fmt::format(" ({})", layer_type_name(info.config, at));
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
  const auto graph = model_graph(info.config);
  const LayerGraph& nodes = pipeline_graph(info, *graph, part);
  const std::vector<ValueLife> lives = value_lives(*graph, nodes);
  for (as_op_id op : pipeline_ops(info, part)) {
    PipelineCard& card = state.cards.emplace_back();
    card.op = op;
    const Node* node = nodes.find(op);
    card.label = node != nullptr ? node->label() : card_name(op);
    const auto id = static_cast<std::size_t>(op);
    card.lane = id < info.lane_of.size() ? info.lane_of[id] : "";
    if (const OpTrace* ran = trace != nullptr ? trace->find(part.layer, op) : nullptr) {
      card.ran = true;
      card.trace = ran;
      card.microseconds = ran->microseconds;
      card.launches = &ran->launches;
      card.lane = ran->lane;
      for (const TapResult& result : ran->results) add_result(card, result);
      const StepMetadata& m = trace->metadata;
      const StepSizes sizes{m.num_tokens_in_step(), static_cast<std::int64_t>(m.sample_rows.size()),
                            m.logits_width()};
      if (node != nullptr) card.lives = lives_of(*graph, nodes, lives, op, sizes);
    } else if (trace == nullptr && summary != nullptr) {
      for (const TapResult& result : summary->results) {
        if (result.layer != part.layer || result.op != op) continue;
        add_result(card, result);
        card.lane = result.lane;
      }
      card.ran = (summary->complete && !moves_blocks(op)) || card.taps > 0;
      if (const OpCost* cost = snapshot.cost({step, part.layer, op})) {
        card.ran = true;
        card.microseconds = cost->microseconds;
        card.launches = &cost->launches;
      }
    }
    if (op == graph->sum.made_by) {
      card.part = fmt::format("y is the part of rank {}: {} reads the sum over all {} ranks",
                              parallel.rank, card_name(graph->sum.read_by), parallel.size);
    }
    if (op == graph->sum.read_by) {
      card.part = fmt::format("y is the sum of {} over all {} ranks", card_name(graph->sum.made_by),
                              parallel.size);
    }
    card.other_lane = !card.lane.empty() && card.lane != usual && card.lane != "host";
    state.ran += card.ran ? 1 : 0;
  }
  bool later = summary != nullptr && summary->complete;
  for (auto card = state.cards.rbegin(); card != state.cards.rend(); ++card) {
    card->absent = !card->ran && later && moves_blocks(card->op);
    later = later || card->ran;
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
  const auto total =
      static_cast<int>(std::ranges::count(state.cards, false, &PipelineCard::absent));
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
      if (next == nullptr && !card.absent) next = &card;
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
    if (worst == nullptr || card.budget.used > worst->budget.used) worst = &card;
  }
  if (first_wrong != nullptr) {
    std::string text = fmt::format("{}: {} is wrong although its inputs are right", state.title,
                                   card_name(first_wrong->op));
    text += ". " + first_wrong->note;
    if (std::isfinite(first_wrong->budget.used)) {
      text += ", " + budget_words(first_wrong->budget);
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
  if (worst != nullptr && worst->budget.used > 0) {
    text += fmt::format(", at most {}, by {}", budget_words(worst->budget), card_name(worst->op));
  }
  return text + ".";
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
  if (card.absent) return text + "\nno block moves in this step";
  if (!card.ran) return text + "\nhas not run in this step yet";
  if (card.microseconds >= 0)
    text += (card.lane.empty() ? "\n" : ", ") + format_us(card.microseconds);
  if (card.compared > 0) {
    text += fmt::format("\n{}: {}", plural(card.compared, "tap compared", "taps compared"),
                        verdict_word(card.worst));
    if (card.budget.used > 0 && std::isfinite(card.budget.used)) {
      text += fmt::format(", {} by {}", budget_words(card.budget), card.budget_tap);
    }
  } else {
    text += "\nnothing was compared";
  }
  if (card.launches != nullptr) {
    for (const std::string& line : launch_lines(*card.launches)) text += "\n" + line;
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
  for (const std::string& line : card.lives) text += "\n" + line;
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
    add({PipelinePart::Kind::kLayer, layer}, std::to_string(layer), layer_type_name(info.config, i),
        op_seen_in(info, static_cast<std::size_t>(i), cursor));
  }
  if (!info.ops_after.empty()) {
    add({PipelinePart::Kind::kAfter, -1}, "after", "", info.ops_after.back());
  }
  return stops;
}

}  // namespace attnscope
