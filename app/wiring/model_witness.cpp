#include "app/wiring/model_witness.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <ctime>
#include <span>

#include "engine/model/numbers.h"
#include "engine/session/session.h"
#include "engine/session/verify/stale_drafts.h"
#include "engine/trace/row_sums.h"
#include "engine/trace/wiring_tap.h"
#include "kernels/cpu/codec.h"
#include "kernels/cpu/parallel.h"
#include "kernels/params/tensor_view.h"
#include "reference/torch_module.h"

namespace attnscope {
namespace {

constexpr std::int64_t kRowsOfPart = 32;  // whose distance a thread takes at least

void doubles_of(const as_tensor& t, const as_threads* threads, std::vector<double>& values) {
  constexpr std::int64_t kPart = std::int64_t{1} << 16;  // elements
  values.resize(to_size(as_tensor_numel(&t)));
  cpu::parallel_for(threads, to_count(values.size()), kPart,
                    [&](std::int64_t begin, std::int64_t end) {
                      const std::int64_t size = as_dtype_size(t.dtype);
                      load_doubles(t.dtype, static_cast<const char*>(t.data) + begin * size,
                                   end - begin, values.data() + begin);
                    });
}

// Of all threads.
double processor_seconds() { return static_cast<double>(std::clock()) / CLOCKS_PER_SEC; }

bool all_finite(const double* values, std::int64_t n) {
  return std::all_of(values, values + n, [](double v) { return std::isfinite(v); });
}

// Largest difference, of the largest value of b; infinite where one alone is no number.
double apart(const double* a, const double* b, std::int64_t n) {
  double difference = 0, largest = 0;
  for (std::int64_t i = 0; i < n; ++i) {
    if (std::isfinite(a[i]) != std::isfinite(b[i])) return kInfinity;
    if (!std::isfinite(b[i])) continue;
    difference = std::max(difference, std::fabs(a[i] - b[i]));
    largest = std::max(largest, std::fabs(b[i]));
  }
  return difference == 0 ? 0 : difference / largest;
}

// Length of the difference over the length of b; infinite where a is no number. Nothing can be said
// beside a b that is none.
double distance(const double* a, const double* b, std::int64_t n) {
  if (!all_finite(b, n)) return 0;
  double difference = 0, length = 0;
  for (std::int64_t i = 0; i < n; ++i) {
    difference += (a[i] - b[i]) * (a[i] - b[i]);
    length += b[i] * b[i];
  }
  const double off = difference == 0 ? 0 : std::sqrt(difference / length);
  return std::isfinite(off) ? off : kInfinity;
}

double limit(double sim, bool sim_runs) {
  return sim_runs ? std::max(Drift::kTimesSim * sim, Drift::kFloor) : Drift::kAlone;
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
      "logit of the engine is off by more than {:.3g}",
      token, best - model, gap, off);
}

double selection_gap(const reference::ModelChoice& model, std::int64_t token,
                     const std::int32_t* list, std::int64_t width) {
  const double* scores = model.scores.data() + token * model.entries;
  const char* own = model.selected.data() + token * model.entries;
  std::vector<char> chosen(to_size(model.entries));
  std::int64_t more = std::count(own, own + model.entries, 1);
  for (std::int64_t k = 0; k < width; ++k) {
    const std::int32_t entry = list[k];
    if (entry < 0) continue;
    if (entry >= model.entries || chosen[to_size(entry)] != 0) return kInfinity;
    if (!std::isfinite(scores[entry]) && own[entry] == 0) return kInfinity;
    chosen[to_size(entry)] = 1;
    --more;
  }
  if (more != 0) return kInfinity;
  if (std::equal(chosen.begin(), chosen.end(), own)) return 0;
  double worst = kInfinity, left_out = -kInfinity, largest = 0;
  for (std::int64_t c = 0; c < model.entries; ++c) {
    if (!std::isfinite(scores[c])) continue;
    largest = std::max(largest, std::fabs(scores[c]));
    if (chosen[to_size(c)] > own[c]) worst = std::min(worst, scores[c]);
    if (chosen[to_size(c)] < own[c]) left_out = std::max(left_out, scores[c]);
  }
  return std::isfinite(worst) && largest > 0 ? std::max(0.0, left_out - worst) / largest : 0;
}

void ModelWitness::Party::begin_step() {
  std::vector<std::vector<double>> memory = std::move(spare);
  for (std::vector<double>& values : hidden) {
    if (values.capacity() > 0) memory.push_back(std::move(values));
  }
  *this = {};
  spare = std::move(memory);
}

void ModelWitness::keep(const OpParams& params, int running, std::size_t layers, Party& party,
                        const as_threads* threads) {
  const std::size_t layer = to_size(std::max(0, running));
  if (as_op_role(params.op()) == AS_ROLE_SELECT) {
    const auto selected =
        std::ranges::find_if(std::span(params.info().taps, params.info().num_taps),
                             [](const as_tap_info& tap) { return tap.direction == AS_TAP_OUT; });
    const as_tensor& t = params.tensor(selected->offset);
    const auto* entries = at<std::int32_t>(t);
    party.selected.resize(layers);
    party.selected[layer] = {
        params.op(), selected->name, t.shape[1], {entries, entries + as_tensor_numel(&t)}};
  } else if (params.op() == AS_OP_RESIDUAL) {
    party.hidden.resize(layers);
    const as_tensor& out = params.get<as_residual_params>().out;
    std::vector<double>& values = party.hidden[layer];
    if (!party.spare.empty()) {
      // A prompt's is not kept for the few tokens of later steps.
      const bool fits = party.spare.back().capacity() <= 4 * to_size(as_tensor_numel(&out));
      if (fits) values = std::move(party.spare.back());
      party.spare.pop_back();
    }
    doubles_of(out, threads, values);
  } else if (params.op() == AS_OP_LM_HEAD) {
    doubles_of(params.get<as_linear_params>().y, threads,
               running < 0 ? party.logits : party.drafted);
  }
}

void ModelWitness::reference_done(int layer, const OpParams& params, bool exact) {
  if (!follows_ || layers_ == 0) return;
  keep(params, layer, layers_, exact ? exact_ : sim_, nullptr);
}

void ModelWitness::op_done(const Session& session) {
  const std::int64_t step = session.current().step;
  if (over_since_ && step > *over_since_) return;
  const double begun = processor_seconds();
  const OpParams& params = session.last_params();
  const int layer = session.cursor().layer;
  if (params.op() == AS_OP_SCHEDULE) {
    // No reference runs before the first op of a step is done.
    layers_ = to_size(session.parts().config.num_layers());
    step_ = {};
    for (Party* party : {&exact_, &sim_, &engine_}) party->begin_step();
    if (thread_ != nullptr) thread_->wait();
    computed_ = {};
    const SessionParts& parts = session.parts();
    for (const StaleDraft& s : stale_drafts(parts.config, parts.layout, session.serving())) {
      stale_.insert(s.request);
    }
  }
  audit_->op_done(session);
  if (!follows_) return;
  run_ahead(session);
  keep(params, layer, layers_, engine_, session.parts().threads);
  if (params.op() == AS_OP_RESIDUAL && to_size(layer) + 1 == layers_) {
    step_ = session.metadata();
    known_.clear();
    for (const std::int32_t id : step_.live) {
      known_.push_back(session.serving().requests()[to_size(id)].tokens.size());
    }
  }
  figures_.seconds += processor_seconds() - begun;
}

ModelWitness::ModelWitness(std::unique_ptr<reference::ModelReference> model,
                           std::unique_ptr<OpAudit> audit, const Scenario& scenario)
    : model_(std::move(model)), audit_(std::move(audit)), follows_(scenario.hidden_states.empty()) {
  if (follows_ && reference::beside_host()) thread_ = std::make_unique<Beside>();
  if (follows_) return;
  figures_.left_out = "layers are fed recorded hidden states";
  figures_.hint = "without them, --hidden-states, the whole model is followed";
}

void ModelWitness::rank_op_done(const Session& session, const OpParams& params, int rank) {
  if (over_since_ && session.current().step > *over_since_) return;
  const TensorParallel peer{session.parts().config.parallel.size, rank};
  audit_->rank_op_done(params, session.cursor().layer, peer);
}

Result<std::vector<TapResult>> ModelWitness::step_done(const Session& session, bool changed) {
  const StepRecord& record = session.history().back();
  if (over_since_ && record.step > *over_since_) return std::vector<TapResult>{};
  bool wrong = false, misplaced = false;
  for (const TapResult& r : record.results) {
    if (r.verdict != Verdict::kWrong) continue;
    // Rows that nobody finds where they are looked for: by what an op was given, perhaps.
    const bool rows = r.tap.ends_with(".read") || r.tap.ends_with(".kept");
    (rows ? misplaced : wrong) = true;
  }
  over_since_.reset();
  if (wrong || changed || (misplaced && audit_->found().empty())) {
    over_since_ = record.step;
    return std::vector<TapResult>{};
  }
  const double begun = processor_seconds();
  parted_.reset();
  auto ok = follows_ && !misplaced ? follow(session) : Result<void>();
  figures_.seconds += processor_seconds() - begun;
  if (!ok) return ok.error();
  std::vector<TapResult> results;
  std::optional<TapResult> parted = std::move(parted_);
  for (const WrongWire& w : audit_->found()) {
    part(session, w.op, w.what, w.layer, w.note);
    results.push_back(*std::exchange(parted_, std::nullopt));
  }
  if (results.empty() && parted) results.push_back(*parted);
  if (!results.empty()) over_since_ = record.step;
  return results;
}

Result<void> ModelWitness::prepare(const Session& session, std::int64_t step,
                                   const StepMetadata& metadata) {
  computed_ = {step, metadata, {}, {}, {}};
  const StepMetadata& m = computed_.metadata;
  std::vector<Rows>& all = computed_.rows;
  for (std::size_t r = 0; r < m.live.size(); ++r) {
    const std::int64_t first = m.query_start_loc[r], count = m.query_start_loc[r + 1] - first;
    if (m.num_scheduled_tokens[r] == 0 || count == 0) continue;
    const std::int64_t before = all.empty() ? 0 : all.back().model_first + all.back().count;
    all.push_back({r, first, count, before, all.size()});
  }
  if (all.empty()) return {};
  if (auto ok = catch_up(session, m, all); !ok) return ok;
  const auto next = std::ranges::find(m.own, StepTensor::Kind::kNext, &StepTensor::kind);
  for (const Rows& rows : all) {
    const auto of = [&](std::span<const std::int32_t> list) {
      return list.subspan(to_size(rows.first), to_size(rows.count));
    };
    computed_.tokens.push_back({m.live[rows.live], of(m.tokens)});
    if (next != m.own.end() && next->used) computed_.tokens.back().next = of(next->numbers);
  }
  return {};
}

void ModelWitness::run_ahead(const Session& session) {
  // What drafts are made of is known at the end alone.
  if (thread_ == nullptr || session.parts().graph->draft_layer >= 0) return;
  const std::int64_t step = session.current().step;
  if (session.cursor().layer < 0 || computed_.step == step) return;
  if (auto ok = prepare(session, step, session.metadata()); !ok) {
    computed_.out = ok.error();
  } else if (!computed_.rows.empty()) {
    thread_->start([this] { computed_.out = model_->step(computed_.tokens); });
  }
}

Result<void> ModelWitness::follow(const Session& session) {
  if (thread_ != nullptr) thread_->wait();
  const std::int64_t step = session.history().back().step;
  if (computed_.step != step || !computed_.out) {
    if (step_.live.empty()) return {};
    if (auto ok = prepare(session, step, step_); !ok) return ok;
    if (computed_.rows.empty()) return {};
    computed_.out = model_->step(computed_.tokens);
  }
  const Computed computed = std::exchange(computed_, {});
  const Result<reference::ModelOutput>& out = *computed.out;
  if (!out) return out.error();
  sim_drift_.resize(out->layers.size() + 2);
  for (const Rows& rows : computed.rows) {
    if (parted_) break;
    compare_layers(session, *out, rows);
    compare_logits(session, *out, rows);
  }
  return {};
}

// Each request at the position where its rows begin: back, or over what a newcomer found computed.
Result<void> ModelWitness::catch_up(const Session& session, const StepMetadata& step,
                                    const std::vector<Rows>& rows) {
  std::vector<reference::ModelRows> missing;
  for (const Rows& r : rows) {
    const std::int32_t id = step.live[r.live];
    const std::int64_t position = step.positions[to_size(r.first)];
    model_->cut(id, position);
    if (const auto tie = tied_.find(id); tie != tied_.end() && tie->second >= position) {
      tied_.erase(tie);
    }
    const std::int64_t have = model_->length(id);
    if (have == position) continue;
    const auto& tokens = session.serving().requests()[to_size(id)].tokens;
    const std::span all(tokens);
    missing.push_back({id, all.subspan(to_size(have), to_size(position - have)),
                       all.subspan(to_size(have) + 1, to_size(position - have))});
  }
  if (missing.empty()) return {};
  auto out = model_->step(missing);
  return out ? Result<void>() : out.error();
}

void ModelWitness::compare_layers(const Session& session, const reference::ModelOutput& out,
                                  const Rows& rows) {
  const bool stale = stale_.contains(step_.live[rows.live]);
  for (std::size_t layer = 0; layer < out.layers.size() && !parted_; ++layer) {
    if (stale && session.parts().config.is_draft(static_cast<int>(layer))) continue;
    if (!exact_.hidden.empty()) compare_exact(session, out, rows, layer);
    if (!parted_) compare_engine(session, out, rows, layer);
  }
}

void ModelWitness::compare_exact(const Session& session, const reference::ModelOutput& out,
                                 const Rows& rows, std::size_t layer) {
  const reference::ModelLayer& model = out.layers[layer];
  if (tied(rows)) return;
  if (!model.choices.empty() && !same_selection(session, model.choices[rows.part], rows, layer)) {
    return;
  }
  const std::int64_t hidden = session.parts().config.hidden;
  for (std::int64_t t = 0; t < rows.count; ++t, ++figures_.rows) {
    const double off = apart(exact_.hidden[layer].data() + (rows.first + t) * hidden,
                             model.hidden.data() + (rows.model_first + t) * hidden, hidden);
    figures_.worst = std::max(figures_.worst, off);
    if (off <= kModelBound) continue;
    part(session, AS_OP_RESIDUAL, "out", static_cast<int>(layer),
         fmt::format("{}: what the layer gave to ref.exact is off by {:.3g} of its largest value "
                     "from ref.model, although its ops are right on what they were given: one was "
                     "given another weight, number, table or input",
                     place(rows, t), off));
    return;
  }
}

void ModelWitness::compare_engine(const Session& session, const reference::ModelOutput& out,
                                  const Rows& rows, std::size_t layer) {
  const reference::ModelLayer& model = out.layers[layer];
  const std::int64_t hidden = session.parts().config.hidden;
  const bool sim_runs = !sim_.hidden.empty();
  SimDrift& sim = sim_drift_[layer];
  const auto rows_off = [&](const Party& party) {
    std::vector<double> off(to_size(rows.count));
    const auto look = [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t t = begin; t < end; ++t) {
        off[to_size(t)] = distance(party.hidden[layer].data() + (rows.first + t) * hidden,
                                   model.hidden.data() + (rows.model_first + t) * hidden, hidden);
      }
    };
    cpu::parallel_for(session.parts().threads, rows.count, kRowsOfPart, look);
    return off;
  };
  const bool chooses = !model.choices.empty() && model.choices[rows.part].entries > 0;
  const auto gap = [&](const Party& party, std::int64_t t) {
    const Selection& s = party.selected[layer];
    return selection_gap(model.choices[rows.part], t, s.entries.data() + (rows.first + t) * s.width,
                         s.width);
  };
  if (sim_runs) {
    for (const double off : rows_off(sim_)) sim.hidden = std::max(sim.hidden, off);
    figures_.sim_drift = std::max(figures_.sim_drift, sim.hidden);
  }
  for (std::int64_t t = 0; t < rows.count && sim_runs && chooses; ++t) {
    sim.gap = std::max(sim.gap, gap(sim_, t));
  }
  // Attention of ranks that share requests is not ref.sim's to the bit: a near tie of codes may end
  // otherwise, also where ref.sim has chosen for few tokens so far, as behind a kept session.
  const bool of_parts = session.parts().context.splits();
  const double gap_limit = std::max(limit(sim.gap, sim_runs), of_parts ? Drift::kGapOfParts : 0.0);
  const std::vector<double> engine_off = rows_off(engine_);
  for (std::int64_t t = 0; t < rows.count; ++t) {
    if (chooses) {
      const double off = gap(engine_, t);
      if (off > gap_limit) {
        const Selection& own = engine_.selected[layer];
        part(
            session, own.op, own.tap, static_cast<int>(layer),
            std::isfinite(off)
                ? fmt::format("{}: an entry was chosen whose score by ref.model is lower by {:.3g} "
                              "of the largest one than that of an entry left out",
                              place(rows, t), off)
                : fmt::format("{}: so many entries, or such, cannot be chosen here",
                              place(rows, t)));
        return;
      }
    }
    const double off = engine_off[to_size(t)];
    figures_.drift = std::max(figures_.drift, off);
    if (off <= limit(sim.hidden, sim_runs)) continue;
    part(session, AS_OP_RESIDUAL, "out", static_cast<int>(layer),
         fmt::format("{}: what the layer gave is off from ref.model by {:.3g} of its length, where "
                     "formats explain {:.3g}: although its ops are right on what they were given",
                     place(rows, t), off, limit(sim.hidden, sim_runs)));
    return;
  }
}

bool ModelWitness::tied(const Rows& rows) const { return tied_.contains(step_.live[rows.live]); }

bool ModelWitness::same_selection(const Session& session, const reference::ModelChoice& model,
                                  const Rows& rows, std::size_t layer) {
  if (model.entries == 0) return true;
  const Selection& exact = exact_.selected[layer];
  for (std::int64_t t = 0; t < rows.count; ++t) {
    const double gap =
        selection_gap(model, t, exact.entries.data() + (rows.first + t) * exact.width, exact.width);
    if (gap == 0) continue;
    if (gap <= kModelBound) {
      tied_.emplace(step_.live[rows.live], step_.positions[to_size(rows.first + t)]);
    } else {
      part(session, exact.op, exact.tap, static_cast<int>(layer),
           fmt::format("{}: ref.exact has other entries than ref.model chooses, whose last one "
                       "leads by {:.3g}",
                       place(rows, t), model.margin[to_size(t)]));
    }
    return false;
  }
  return true;
}

void ModelWitness::compare_logits(const Session& session, const reference::ModelOutput& out,
                                  const Rows& rows) {
  const std::size_t layers = out.layers.size();
  compare_head(session, out.logits, &Party::logits, -1, sim_drift_[layers], rows);
  if (!out.drafted.empty() && !stale_.contains(step_.live[rows.live])) {
    compare_head(session, out.drafted, &Party::drafted, static_cast<int>(layers) - 1,
                 sim_drift_[layers + 1], rows);
  }
  if (!parted_) compare_tokens(session, out, rows);
}

void ModelWitness::compare_head(const Session& session, const std::vector<double>& all,
                                std::vector<double> Party::*logits, int layer, SimDrift& drift,
                                const Rows& rows) {
  if (parted_) return;
  const std::vector<double>&exact = exact_.*logits, &in_sim = sim_.*logits;
  const int vocabulary = session.parts().config.vocabulary;
  for (std::size_t s = 0; s < step_.sample_rows.size() && !parted_; ++s) {
    if (to_size(step_.sample_request[s]) != rows.live) continue;
    const std::int64_t t = step_.sample_rows[s] - rows.first;
    const double* model = all.data() + (rows.model_first + t) * vocabulary;
    const auto at_row = static_cast<std::ptrdiff_t>(s) * vocabulary;
    if (!exact.empty() && !tied(rows)) {
      const double off = apart(exact.data() + at_row, model, vocabulary);
      ++figures_.rows;
      figures_.worst = std::max(figures_.worst, off);
      if (off > kModelBound) {
        part(session, AS_OP_LM_HEAD, "y", layer,
             fmt::format("{}: logits of ref.exact are off by {:.3g} of the largest from "
                         "ref.model's, although every layer is right",
                         place(rows, t), off));
        return;
      }
    }
    const bool sim_runs = !in_sim.empty();
    double& sim = drift.hidden;
    if (sim_runs) sim = std::max(sim, distance(in_sim.data() + at_row, model, vocabulary));
    const double off = distance((engine_.*logits).data() + at_row, model, vocabulary);
    if (off > limit(sim, sim_runs)) {
      part(session, AS_OP_LM_HEAD, "y", layer,
           fmt::format("{}: logits are off from ref.model's by {:.3g} of their length, where "
                       "formats explain {:.3g}, although every layer is right",
                       place(rows, t), off, limit(sim, sim_runs)));
      return;
    }
  }
}

// Whoever chose them, from whichever row: each must be the best one behind the tokens before it.
void ModelWitness::compare_tokens(const Session& session, const reference::ModelOutput& out,
                                  const Rows& rows) {
  const auto& tokens = session.serving().requests()[to_size(step_.live[rows.live])].tokens;
  const std::int64_t position = step_.positions[to_size(rows.first)];
  const int vocabulary = session.parts().config.vocabulary;
  for (std::size_t i = known_[rows.live]; i < tokens.size() && !parted_; ++i) {
    const std::int64_t t = to_count(i) - 1 - position;
    const auto& sampled = step_.sample_rows;
    const auto at = std::ranges::find(sampled, rows.first + t);
    std::string note;
    if (t < 0 || t >= rows.count || at == sampled.end()) {
      note = fmt::format("token {} was appended, which nothing was sampled for", tokens[i]);
    } else {
      const double* logits = out.logits.data() + (rows.model_first + t) * vocabulary;
      if (!all_finite(logits, vocabulary)) continue;
      const double* engine = engine_.logits.data() + (at - sampled.begin()) * vocabulary;
      note = token_note(logits, engine, vocabulary, tokens[i]);
    }
    if (note.empty()) continue;
    part(session, AS_OP_SAMPLE, "tokens", -1,
         fmt::format("request {}, position {}: {}", step_.live[rows.live], i - 1, note));
  }
}

std::string ModelWitness::place(const Rows& rows, std::int64_t token) const {
  return fmt::format("request {}, position {}", step_.live[rows.live],
                     step_.positions[to_size(rows.first + token)]);
}

void ModelWitness::part(const Session& session, as_op_id op, const std::string& tap, int layer,
                        std::string note) {
  TapResult result;
  result.step = session.history().back().step;
  result.layer = layer < 0 ? -1 : session.parts().config.layers[to_size(layer)];
  result.op = op;
  result.tap = tap + kWiringTap;
  result.elements = 1;
  result.tolerance = "exact";
  result.introduced = ErrorFigures{0, 0, 0, 1, 1};
  result.verdict = Verdict::kWrong;
  result.budget_used = kInfinity;
  result.note = std::move(note);
  parted_ = std::move(result);
}

}  // namespace attnscope
