#include "app/views/sink_view.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "app/text/format.h"
#include "engine/family/models.h"
#include "engine/model/numbers.h"
#include "engine/trace/compare.h"
#include "kernels/params/tensor_view.h"

namespace attnscope {
namespace {

const AttentionCopy* attention_of(const StepTrace& step, int layer) {
  const OpTrace* op = step.find_role(layer, AS_ROLE_ATTENTION);
  return op ? op->attention.get() : nullptr;
}

// ln sum e^logit over the columns that were read; +inf when none was.
double log_sum_exp(const float* logits, const std::int64_t* slots, std::int64_t columns) {
  double largest = -kInfinity;
  bool any = false;
  for (std::int64_t c = 0; c < columns; ++c) {
    if (slots[c] < 0) continue;
    any = true;
    if (std::isnan(logits[c])) return std::numeric_limits<double>::quiet_NaN();
    largest = std::max(largest, static_cast<double>(logits[c]));
  }
  if (!any) return kInfinity;
  if (std::isinf(largest)) return largest;
  double sum = 0;
  for (std::int64_t c = 0; c < columns; ++c) {
    if (slots[c] >= 0) sum += std::exp(logits[c] - largest);
  }
  return largest + std::log(sum);
}

// A share of the weight, to read aloud.
std::string share(double part) {
  return std::isfinite(part) ? fmt::format("{:.3g}", part) : format_number(part);
}

// Equal infinities differ by nothing.
double difference(double a, double b) { return a == b ? 0 : std::fabs(a - b); }

}  // namespace

double sink_decay(double lse, double sink) {
  if (lse == kInfinity) return 0;
  if (std::isinf(sink)) return sink < 0 ? 1 : 0;
  return 1 / (1 + std::exp(sink - lse));
}

double lse_with_sink(double lse, double sink) {
  const double top = std::max(lse, sink), low = std::min(lse, sink);
  if (std::isinf(top) || low == -kInfinity) return top;
  return top + std::log1p(std::exp(low - top));
}

double sink_decay_merged(double lse, double merged) {
  if (merged == kInfinity) return 0;
  return lse == merged ? 1 : std::exp(lse - merged);
}

SinkLayer sink_layer(const SessionInfo& info, const StepTrace& step, const Place& cursor) {
  if (attention_of(step, cursor.layer)) return {cursor.layer, {}};
  const ModelConfig& config = info.config;
  const as_op_info* op = as_op_find(cursor.op);
  int at = -1;
  for (int i = 0; i < config.num_layers(); ++i) {
    if (config.layers[to_size(i)] == cursor.layer) at = i;
  }
  const int from = at >= 0 ? at : op && op->phase == AS_PHASE_AFTER ? config.num_layers() : -1;
  int nearest = -1;
  for (int i = 0; i < config.num_layers(); ++i) {
    if (!attention_of(step, config.layers[to_size(i)])) continue;
    if (nearest < 0 || std::abs(i - from) < std::abs(nearest - from)) nearest = i;
  }
  SinkLayer out;
  if (nearest < 0) return out;
  out.layer = config.layers[to_size(nearest)];
  const std::string why = at < 0 ? fmt::format("{} is outside the layers", op ? op->name : "?")
                                 : fmt::format(
                                       "The attention of layer {} has not run yet in step "
                                       "{}",
                                       cursor.layer, step.step);
  out.note = fmt::format("{}. Shown: layer {}.", why, out.layer);
  return out;
}

SinkView sink_view(const SinkInput& input) {
  SinkView view;
  view.layer = input.layer;
  const AttentionCopy* attention = attention_of(input.step, input.layer);
  if (!attention) {
    view.why_empty = fmt::format("No attention has run in step {} yet.", input.step.step);
    return view;
  }
  const std::int64_t kept = input.step.kept_index(input.row);
  if (kept < 0) {
    view.why_empty = fmt::format(
        "Step {} kept no values of this token: traces of large steps hold the last tokens of every "
        "request. Select a later token.",
        input.step.step);
    return view;
  }
  const ModelConfig& config = input.info.config;
  for (int i = 0; i < config.num_layers(); ++i) {
    if (config.layers[to_size(i)] != input.layer) continue;
    view.type = layer_type_name(config, i);
    view.windowed = has_window(input.info.layout, i);
    view.compressed = entries_of(input.info.layout, i) != nullptr;
  }
  for (int i = 0; i < config.num_layers(); ++i) {
    view.has_entries = view.has_entries || entries_of(input.info.layout, i) != nullptr;
  }
  view.has_sinks = attention->has_sinks();
  view.request = input.step.request_of(input.row);
  view.position = input.step.metadata.positions[to_size(input.row)];

  const OpTrace& op = *input.step.find_role(input.layer, AS_ROLE_ATTENTION);
  const TapCopy* lse = op.tap("lse");
  const TapResult* output = op.result("o");
  view.output_wrong = output && output->verdict == Verdict::kWrong;
  view.verdict = op.worst;
  const std::int64_t columns = attention->window + attention->extra;
  const std::int64_t* slots = attention->slots.data() + kept * columns;
  for (std::int64_t c = 0; c < columns; ++c) {
    if (slots[c] >= 0) ++(c < attention->window ? view.window_slots : view.entries);
  }
  for (std::int64_t h = 0; h < attention->heads; ++h) {
    const std::int64_t at_head = kept * attention->heads + h;
    const float* weights = attention->weights.data() + at_head * columns;
    SinkHead head;
    head.sink_logit = attention->sinks[to_size(h)];
    for (std::int64_t c = 0; c < columns; ++c) {
      (c < attention->window ? head.window : head.compressed) += weights[c];
    }
    head.sink = attention->sink_mass[to_size(at_head)];
    head.lse_again = log_sum_exp(attention->logits.data() + at_head * columns, slots, columns);
    head.lse = lse ? element(lse->value, kept, h) : head.lse_again;
    if (lse && present(lse->reference)) head.lse_reference = element(lse->reference, kept, h);
    head.decay = sink_decay(head.lse_again, head.sink_logit);
    head.merged = lse_with_sink(head.lse_again, head.sink_logit);
    head.by_merged = sink_decay_merged(head.lse_again, head.merged);
    if (!view.nothing_read()) {
      const double left = 1 - head.sink;
      for (const double apart : {head.decay - head.by_merged, head.decay - left}) {
        view.forms_apart =
            std::max(view.forms_apart, std::isnan(apart) ? kInfinity : std::fabs(apart));
      }
    }
    const double gap = difference(head.lse_again, head.lse);
    // A NaN on one side is as far off as can be.
    view.lse_error = std::max(view.lse_error, std::isnan(gap) ? kInfinity : gap);
    const double bound =
        std::max(input.tolerance.abs, input.tolerance.rel * std::fabs(head.lse_again));
    if (!(gap <= bound)) view.lse_error_small = false;
    const double off = std::fabs(head.sum() - 1);
    view.worst_sum = std::max(view.worst_sum, std::isnan(off) ? kInfinity : off);
    view.heads.push_back(head);
  }
  return view;
}

std::string sink_sentence(const SinkView& view, int head) {
  if (!view.why_empty.empty()) return view.why_empty;
  if (head < 0 || to_size(head) >= view.heads.size()) {
    return fmt::format("Head {} does not exist: this model has heads 0-{}.", head,
                       view.heads.size() - 1);
  }
  const SinkHead& h = view.heads[to_size(head)];
  if (view.nothing_read()) {
    return fmt::format("Token {} has no readable slot in layer {}: its output is 0 and its LSE {}.",
                       format_count(view.position), view.layer, format_number(h.lse));
  }
  std::string entries;
  if (!view.compressed) {
    if (view.has_entries) entries = fmt::format("; an {} layer has no entries", view.type);
  } else if (view.entries == 0) {
    entries = "; no entry is visible yet";
  } else {
    entries = fmt::format(", {} {}", plural(view.entries, "entry", "entries"), share(h.compressed));
  }
  std::string text =
      view.has_sinks
          ? fmt::format("Sink takes {} of head {}'s weight; the rest: {} {}{}.", share(h.sink),
                        head, view.windowed ? "window" : "rows", share(h.window), entries)
          : fmt::format("No head of layer {} has a sink: its rows have all of the weight.",
                        view.layer);
  if (!view.lse_error_small) {
    text += fmt::format(" The kernel's LSE is off by up to {} from the one of its own logits.",
                        format_error(view.lse_error));
  }
  if (view.output_wrong) {
    text += " The op's output is wrong: these shares are what its inputs call for.";
  }
  if (!(view.worst_sum <= SinkView::kSumTolerance)) {
    text += fmt::format(" The parts do not add up to 1: off by {}.", format_error(view.worst_sum));
  }
  return text;
}

SinkMap sink_map(const SessionInfo& info, const StepTrace& step, std::int64_t row) {
  SinkMap map;
  const std::int64_t kept = step.kept_index(row);
  if (kept < 0) return map;
  for (int layer : info.config.layers) {
    const AttentionCopy* attention = attention_of(step, layer);
    if (!attention) continue;
    map.layers.push_back(layer);
    map.heads = attention->heads;
    map.has_sinks = map.has_sinks || attention->has_sinks();
    const auto first = attention->sink_mass.begin() + kept * attention->heads;
    map.mass.insert(map.mass.end(), first, first + attention->heads);
  }
  return map;
}

}  // namespace attnscope
