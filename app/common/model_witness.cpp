#include "app/common/model_witness.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <span>

#include "engine/model/numbers.h"
#include "engine/session/session.h"
#include "engine/trace/wiring_tap.h"
#include "kernels/params/tensor_view.h"

namespace attnscope {
namespace {

std::vector<double> values_of(const as_tensor& t) {
  std::vector<double> values(to_size(as_tensor_numel(&t)));
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = t.dtype == AS_F32 ? static_cast<const float*>(t.data)[i]
                                  : static_cast<const double*>(t.data)[i];
  }
  return values;
}

// Largest difference, of the largest value of b; infinite where one is no number.
double apart(const double* a, const double* b, std::int64_t n) {
  double difference = 0, largest = 0;
  for (std::int64_t i = 0; i < n; ++i) {
    if (!std::isfinite(a[i]) || !std::isfinite(b[i])) return kInfinity;
    difference = std::max(difference, std::fabs(a[i] - b[i]));
    largest = std::max(largest, std::fabs(b[i]));
  }
  return difference == 0 ? 0 : difference / largest;
}

}  // namespace

std::string token_note(const double* model, const double* engine, std::int64_t n,
                       std::int32_t token) {
  const double* best = std::max_element(model, model + n);
  if (token < 0 || token >= n) return fmt::format("token {} does not exist", token);
  double off = 0;
  for (std::int64_t i = 0; i < n; ++i) off = std::max(off, std::fabs(model[i] - engine[i]));
  const double gap = *best - model[token];
  if (!(gap > 2 * off)) return {};
  return fmt::format(
      "token {} was appended; by ref.model it is {}, whose logit is higher by {:.3g}, where no "
      "logit "
      "of the engine is off by more than {:.3g}",
      token, best - model, gap, off);
}

void ModelWitness::went_back(const Session& session) {
  if (next_ != nullptr) next_->went_back(session);
}

void ModelWitness::lanes_changed(const Session& session) {
  if (next_ != nullptr) next_->lanes_changed(session);
}

void ModelWitness::lane_failed(const Session& session, const Error& error) {
  if (next_ != nullptr) next_->lane_failed(session, error);
}

void ModelWitness::op_done(const Session& session) {
  if (next_ != nullptr) next_->op_done(session);
  const OpParams* exact = session.verifier().free_params(true);
  if (over_ || exact == nullptr) return;
  const auto layers = to_size(session.parts().config.num_layers());
  const auto layer = to_size(session.cursor().layer);
  switch (exact->op()) {
    case AS_OP_INDEXER_TOPK: {
      const as_tensor& t = exact->get<as_indexer_topk_params>().indices;
      const auto* entries = at<std::int32_t>(t);
      seen_.selected.resize(layers);
      seen_.selected[layer] = {t.shape[1], {entries, entries + as_tensor_numel(&t)}};
      break;
    }
    case AS_OP_RESIDUAL: {
      seen_.hidden.resize(layers);
      seen_.hidden[layer] = values_of(exact->get<as_residual_params>().out);
      if (layer + 1 < layers) break;
      seen_.step = session.metadata();
      seen_.known.clear();
      for (const std::int32_t id : seen_.step.live) {
        seen_.known.push_back(session.serving().requests()[to_size(id)].tokens.size());
      }
      break;
    }
    case AS_OP_LM_HEAD:
      seen_.logits = values_of(exact->get<as_linear_params>().y);
      seen_.engine_logits = values_of(session.last_params().get<as_linear_params>().y);
      break;
    default:
      break;
  }
}

void ModelWitness::step_done(const Session& session) {
  if (next_ != nullptr) next_->step_done(session);
  if (over_) return;
  const std::vector<TapResult>& results = session.history().back().results;
  over_ =
      std::ranges::any_of(results, [](const TapResult& r) { return r.verdict == Verdict::kWrong; });
  if (over_) return;
  const auto begun = std::chrono::steady_clock::now();
  if (auto ok = follow(session); !ok) error_ = ok.error();
  seconds_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - begun).count();
  over_ = error_ || parted_;
}

Result<void> ModelWitness::follow(const Session& session) {
  for (std::size_t r = 0; r < seen_.step.live.size(); ++r) {
    if (seen_.step.scheduled[r] == 0) continue;
    auto out = compute(session, r);
    if (!out) return out.error();
    compare_layers(session, r, *out);
    compare_logits(session, r, *out);
    if (parted_) break;
  }
  return {};
}

// The tokens of this step, behind all before them.
Result<reference::ModelOutput> ModelWitness::compute(const Session& session, std::size_t live) {
  const std::int32_t id = seen_.step.live[live];
  const auto first = to_size(seen_.step.query_start[live]);
  const auto end = to_size(seen_.step.query_start[live + 1]);
  const std::int64_t position = seen_.step.positions[first];
  model_->cut(id, position);
  const std::int64_t missing = position - model_->length(id);
  if (missing > 0) {  // found in the cache by a newcomer
    const auto& tokens = session.serving().requests()[to_size(id)].tokens;
    auto before =
        model_->step(id, std::span(tokens).subspan(to_size(model_->length(id)), to_size(missing)));
    if (!before) return before.error();
  }
  return model_->step(id, std::span(seen_.step.tokens).subspan(first, end - first));
}

void ModelWitness::compare_layers(const Session& session, std::size_t live,
                                  const reference::ModelOutput& out) {
  const std::int64_t first = seen_.step.query_start[live];
  const std::int64_t n = seen_.step.query_start[live + 1] - first;
  const std::int64_t hidden = session.parts().config.hidden;
  for (std::size_t layer = 0; layer < out.layers.size() && !parted_; ++layer) {
    if (!same_selection(session, live, layer, out.layers[layer])) return;
    for (std::int64_t t = 0; t < n; ++t, ++rows_) {
      const double off = apart(seen_.hidden[layer].data() + (first + t) * hidden,
                               out.layers[layer].hidden.data() + t * hidden, hidden);
      worst_ = std::max(worst_, off);
      if (off <= kModelBound) continue;
      part(session, AS_OP_RESIDUAL, "out", static_cast<int>(layer),
           fmt::format("{}: what the layer gave is off by {:.3g} of its largest value from "
                       "ref.model, although its ops are right on what they were given: one was "
                       "given another weight, number, table or input",
                       place(live, first + t), off));
      return;
    }
  }
}

bool ModelWitness::same_selection(const Session& session, std::size_t live, std::size_t layer,
                                  const reference::ModelLayer& model) {
  if (tied_.contains(seen_.step.live[live])) return false;
  if (model.selected.empty()) return true;
  const std::int64_t first = seen_.step.query_start[live];
  const Selection& exact = seen_.selected[layer];
  const std::int64_t n = seen_.step.query_start[live + 1] - first;
  const std::int64_t entries = to_count(model.selected.size()) / n;
  for (std::int64_t t = 0; t < n; ++t) {
    const std::int32_t* list = exact.entries.data() + (first + t) * exact.width;
    const auto row = model.selected.begin() + t * entries;
    const std::int64_t chosen =
        std::count_if(list, list + exact.width, [](int c) { return c >= 0; });
    bool same = chosen == std::count(row, row + entries, true);
    for (std::int64_t k = 0; k < chosen && same; ++k) same = list[k] < entries && row[list[k]];
    if (same) continue;
    const double* scores = model.scores.data() + t * entries;
    double largest = 0;
    for (std::int64_t c = 0; c < entries; ++c) {
      if (std::isfinite(scores[c])) largest = std::max(largest, std::fabs(scores[c]));
    }
    if (model.margin[to_size(t)] <= kModelBound * largest) {
      tied_.insert(seen_.step.live[live]);
    } else {
      part(session, AS_OP_INDEXER_TOPK, "indices", static_cast<int>(layer),
           fmt::format("{}: other entries than ref.model chooses, whose last one leads by {:.3g}",
                       place(live, first + t), model.margin[to_size(t)]));
    }
    return false;
  }
  return true;
}

void ModelWitness::compare_logits(const Session& session, std::size_t live,
                                  const reference::ModelOutput& out) {
  const std::int32_t id = seen_.step.live[live];
  if (parted_ || tied_.contains(id)) return;
  const std::int64_t first = seen_.step.query_start[live];
  const auto& tokens = session.serving().requests()[to_size(id)].tokens;
  for (std::size_t s = 0; s < seen_.step.sample_rows.size() && !parted_; ++s) {
    if (to_size(seen_.step.sample_request[s]) != live) continue;
    const std::int64_t row = seen_.step.sample_rows[s];
    const double* model = out.logits.data() + (row - first) * kVocabulary;
    const auto at_row = static_cast<std::ptrdiff_t>(s) * kVocabulary;
    const double off = apart(seen_.logits.data() + at_row, model, kVocabulary);
    ++rows_;
    worst_ = std::max(worst_, off);
    if (off > kModelBound) {
      part(session, AS_OP_LM_HEAD, "y", -1,
           fmt::format("{}: logits of ref.exact are off by {:.3g} of the largest from ref.model's, "
                       "although every layer is right",
                       place(live, row), off));
      return;
    }
    const std::size_t follower = to_size(seen_.step.positions[to_size(row)]) + 1;
    if (follower < seen_.known[live] || follower >= tokens.size()) continue;
    const std::string note =
        token_note(model, seen_.engine_logits.data() + at_row, kVocabulary, tokens[follower]);
    if (!note.empty()) {
      part(session, AS_OP_SAMPLE, "tokens", -1, fmt::format("{}: {}", place(live, row), note));
    }
  }
}

std::string ModelWitness::place(std::size_t live, std::int64_t token) const {
  return fmt::format("request {}, position {}", seen_.step.live[live],
                     seen_.step.positions[to_size(token)]);
}

void ModelWitness::part(const Session& session, as_op_id op, const char* tap, int layer,
                        std::string note) {
  TapResult result;
  result.step = session.history().back().step;
  result.layer = layer < 0 ? -1 : session.parts().config.layers[to_size(layer)];
  result.op = op;
  result.tap = std::string(tap) + kWiringTap;
  result.elements = 1;
  result.tolerance = "exact";
  result.introduced = ErrorFigures{0, 0, 0, 1, 1};
  result.verdict = Verdict::kWrong;
  result.budget_used = kInfinity;
  result.note = std::move(note);
  parted_ = std::move(result);
}

}  // namespace attnscope
