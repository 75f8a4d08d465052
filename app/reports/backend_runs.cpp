#include "app/reports/backend_runs.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "engine/backend/attention_layer.h"
#include "engine/backend/attention_metadata.h"
#include "engine/backend/attention_request.h"
#include "engine/backend/attention_selector.h"
#include "engine/backend/call_op.h"
#include "engine/family/dense/dense.h"
#include "engine/family/models.h"
#include "engine/model/numbers.h"
#include "engine/session/session.h"
#include "engine/session/step/op_change.h"
#include "kernels/cpu/codec.h"
#include "kernels/params/helper_params.h"
#include "kernels/params/paged_params.h"
#include "kernels/params/tensor_view.h"

namespace attnscope {
namespace {

constexpr const char* kCausalFunction = "kv_idx <= q_idx";

// Attention's outputs of a run by layer, request and position: another size of blocks may cut a
// prompt into other steps.
class Outputs {
 public:
  explicit Outputs(const std::vector<Request>& requests) {
    for (const Request& request : requests) {
      first_.push_back(rows_);
      rows_ += request.max_len();
    }
  }
  void put(int layer, std::int32_t request, std::int64_t position, const as_tensor& o,
           std::int64_t token) {
    const std::int64_t width = o.shape[1] * o.shape[2];
    auto& [values, known] = layers_[layer];
    values.resize(to_size(rows_ * width));
    known.resize(to_size(rows_));
    const std::int64_t row = first_[to_size(request)] + position;
    known[to_size(row)] = true;
    for (std::int64_t h = 0; h < o.shape[1]; ++h) {
      std::copy_n(at<bf16_t>(o, token, h), o.shape[2],
                  values.begin() + row * width + h * o.shape[2]);
    }
  }
  // Of rows that both have.
  void compare(const Outputs& first, BackendRun& run) const {
    for (const auto& [layer, own] : layers_) {
      const auto other = first.layers_.find(layer);
      if (other == first.layers_.end()) continue;
      const std::size_t width = own.values.size() / own.known.size();
      for (std::size_t i = 0; i < own.values.size(); ++i) {
        const std::size_t row = i / width;
        if (!own.known[row] || !other->second.known[row]) continue;
        ++run.compared;
        const bf16_t a = own.values[i], b = other->second.values[i];
        if (a.bits == b.bits) continue;
        ++run.differing;
        const double x = cpu::bf16_to_float(a.bits), y = cpu::bf16_to_float(b.bits);
        run.apart = std::max(run.apart, std::abs(x - y));
      }
    }
  }

 private:
  struct Layer {
    std::vector<bf16_t> values;
    std::vector<bool> known;
  };
  std::vector<std::int64_t> first_;  // row of a request
  std::int64_t rows_ = 0;
  std::map<int, Layer> layers_;
};

template <class T>
as_tensor list_of(std::span<const T> values, std::initializer_list<std::int64_t> shape) {
  // Lanes read it.
  return make_tensor(const_cast<T*>(values.data()), shape);
}

// Lets paged_attention read a step's metadata as a backend is handed it, and keeps what came out.
class BackendForm : public OpChange {
 public:
  BackendForm(const Session& session, MetadataForm form, as_op_fn pad_rows, BackendRun& run)
      : session_(session),
        form_(form),
        pad_rows_(pad_rows),
        run_(run),
        outputs_(session.serving().requests()) {}

  bool changes(as_op_id op, int) const override { return op == AS_OP_PAGED_ATTENTION; }
  Result<void> run(int layer, const OpParams& params, const OwnLane& lane) override;
  void change_reference(int, bool, OpParams&) override {}

  const Outputs& outputs() const { return outputs_; }

 private:
  Result<void> hand_over(int layer, as_paged_attention_params& p);
  // The tables of the form, [R,C]: those of indices made by pad_rows.
  Result<as_tensor> tables_of(const AttentionMetadata& metadata);

  const Session& session_;
  MetadataForm form_;
  as_op_fn pad_rows_;
  BackendRun& run_;
  std::optional<MetadataBuilder> builder_;  // of the call, which reads its buffers
  std::vector<std::int32_t> padded_, token_to_req_;
  Outputs outputs_;
};

Result<void> BackendForm::run(int layer, const OpParams& params, const OwnLane& lane) {
  OpParams handed = params;
  // Chunks are sequences of their own, which no backend is told of in this form.
  if (dense_chunk(session_.parts().config, layer) == 0) {
    if (auto ok = hand_over(layer, handed.get<as_paged_attention_params>()); !ok) return ok;
    ++run_.by_form;
  }
  ++run_.calls;
  if (auto ok = lane(handed); !ok) return ok;
  const as_tensor& o = params.get<as_paged_attention_params>().o;
  const StepMetadata& step = session_.metadata();
  for (std::int64_t t = 0; t < o.shape[0]; ++t) {
    const auto row = to_size(step.token_to_req[to_size(t)]);
    outputs_.put(layer, step.live[row], step.positions[to_size(t)], o, t);
  }
  return {};
}

Result<as_tensor> BackendForm::tables_of(const AttentionMetadata& metadata) {
  const std::int64_t requests = metadata.common.padded_requests();
  if (const auto* form = std::get_if<BlockTables>(&metadata.form)) {
    return list_of(form->tables, {requests, form->columns});
  }
  const auto& pages = std::get<PagedIndices>(metadata.form);
  std::int64_t columns = 1;
  for (std::size_t i = 0; i + 1 < pages.indptr.size(); ++i) {
    columns = std::max<std::int64_t>(columns, pages.indptr[i + 1] - pages.indptr[i]);
  }
  padded_.assign(to_size(requests * columns), -1);
  OpParams params(AS_OP_PAD_ROWS);
  auto& p = params.get<as_pad_rows_params>();
  p.values = list_of(pages.indices, {to_count(pages.indices.size())});
  p.starts = list_of(pages.indptr, {requests + 1});
  p.rows = make_tensor(padded_.data(), {requests, columns});
  p.pad = -1;
  if (auto ok = call_op(pad_rows_, params.data(), host_call(session_.parts().threads)); !ok) {
    return ok.error();
  }
  return p.rows;
}

Result<void> BackendForm::hand_over(int layer, as_paged_attention_params& p) {
  const SessionParts& parts = session_.parts();
  const StepMetadata& step = session_.metadata();
  const CacheSpec* rows = token_rows(parts.layout, layer);
  if (rows == nullptr) return internal_error(fmt::format("layer {} has no rows", layer));
  const SchedulerOptions& serving = session_.serving().options();
  const BatchRules rules =
      batch_rules(parts.config, parts.layout, serving.drafts.tokens, serving.token_budget);
  auto builder = MetadataBuilder::make(form_, limits_of(step, rules));
  if (!builder) return builder.error();
  builder_ = std::move(*builder);
  const auto metadata = builder_->build(step, rows->group, rules);
  if (!metadata) return metadata.error();
  auto tables = tables_of(*metadata);
  if (!tables) return tables.error();
  const CommonMetadata& common = metadata->common;
  // Queries stay where they are; each says at which place of the backend's batch its request is.
  token_to_req_.assign(to_size(p.token_to_req.shape[0]), -1);
  for (std::int64_t t = 0; t < common.tokens; ++t) {
    token_to_req_[to_size(common.token_rows[to_size(t)])] = common.token_to_req[to_size(t)];
  }
  p.table = *tables;
  p.token_to_req = make_tensor(token_to_req_.data(), {p.token_to_req.shape[0]});
  p.seq_lens = list_of(common.seq_lens, {common.padded_requests()});
  return {};
}

// The scenario with the backend's pages and blocks.
Result<Scenario> scenario_of(const Scenario& scenario, const AttentionBackend& backend,
                             BackendRun& run) {
  Scenario own = scenario;
  own.serving.kv.caching = false;  // masks have none, and all are to compute the same tokens
  if (auto ok = set_cache_layout(own.model, run.layout); !ok) return ok.error();
  const std::int64_t before = own.model.dense.block_tokens;
  run.block_size = preferred_block_size(backend, static_cast<int>(before));
  own.model.dense.block_tokens = run.block_size;
  // As many tokens fit as did; block 0 is the null block.
  own.pool_blocks = (scenario.pool_blocks * before + run.block_size - 1) / run.block_size + 1;
  if (run.block_size == before) own.pool_blocks = scenario.pool_blocks;
  if (backend.name == "FLEX_ATTENTION" && own.model.dense.mask.empty()) {
    run.mask = own.model.dense.mask = kCausalFunction;
    for (const ScenarioRequest& r : own.requests) {  // a function's rows are not cut into chunks
      const std::int64_t longest = to_count(r.tokens.size()) + r.max_new_tokens;
      own.limits.token_budget = std::max(own.limits.token_budget, longest);
    }
    // Blocks that a window drops between chunks are there all at once.
    const auto groups = to_count(build_cache_layout(own.model).groups.size());
    own.pool_blocks += groups * (own.limits.token_budget / run.block_size + 1);
  }
  if (auto ok = validate(own.model); !ok) return ok.error();
  return own;
}

void take_results(const Session& session, BackendRun& run) {
  run.verdict = Verdict::kEqual;
  for (const StepRecord& step : session.history()) {
    for (const std::int32_t token : step.sampled) run.tokens += token >= 0 ? 1 : 0;
    for (const TapResult& r : step.results) {
      run.verdict = worse(run.verdict, r.verdict);
      if (r.op != AS_OP_PAGED_ATTENTION || r.tap != "o") continue;
      run.values += r.elements;
      run.of_tolerance = std::max(run.of_tolerance, r.budget_used);
      if (r.introduced) run.error = std::max(run.error, r.introduced->max_abs);
    }
  }
}

std::vector<std::int32_t> sampled_tokens(const Session& session) {
  std::vector<std::int32_t> tokens;
  for (const Request& request : session.serving().requests()) {
    tokens.insert(tokens.end(), request.tokens.begin() + request.prompt_tokens,
                  request.tokens.end());
    tokens.resize(tokens.size() + to_size(request.max_len() - request.num_tokens()), -1);
  }
  return tokens;
}

// What a backend gave.
struct Given {
  Outputs outputs;
  std::vector<std::int32_t> tokens;  // of all requests
};

void compare_with(const Given& first, const Given& own, BackendRun& run) {
  own.outputs.compare(first.outputs, run);
  for (std::size_t i = 0; i < std::min(first.tokens.size(), own.tokens.size()); ++i) {
    run.changed += first.tokens[i] != own.tokens[i] ? 1 : 0;
  }
}

struct Candidate {
  const AttentionBackend* backend = nullptr;
  BackendRun run;
};

// Backends that are tried for some layer on the platform, and why one does not take all layers.
Result<void> add_candidates(const AttentionRegistry& registry, const ModelConfig& config,
                            const std::string& platform, std::vector<Candidate>& all) {
  const std::size_t begin = all.size();
  for (const AttentionLayerGroup& group : attention_layers(config)) {
    AttentionRequest request = layer_request(attention_request(config), group);
    if (auto ok = set_platform(request, platform); !ok) return ok;
    auto selection = explain_backends(registry, request);
    if (!selection) return selection.error();
    for (const BackendVerdict& verdict : selection->verdicts) {
      if (!verdict.tried()) continue;
      auto found = std::find_if(all.begin() + static_cast<std::ptrdiff_t>(begin), all.end(),
                                [&](const Candidate& c) { return c.backend == verdict.backend; });
      if (found == all.end()) {
        found = all.insert(all.end(), {verdict.backend, {}});
        found->run.name = verdict.backend->name;
        found->run.version = verdict.variant;
        found->run.platform = platform;
        found->run.layout = page_layout(verdict);
        found->run.metadata = verdict.backend->metadata;
      }
      if (found->run.refused.empty() && !verdict.makes_layer()) {
        found->run.refused = describe(verdict.broken);
      }
      if (found->run.refused.empty() && !verdict.backend->cpu_lane) {
        found->run.refused = verdict.backend->why_not_here;
      }
    }
  }
  return {};
}

Result<std::optional<Given>> run_backend(const Scenario& scenario, const LaneRegistry& lanes,
                                         const BackendRunsOptions& options,
                                         const StudyProgress* progress, Candidate& candidate) {
  BackendRun& run = candidate.run;
  auto own = scenario_of(scenario, *candidate.backend, run);
  if (!own) {
    run.refused = own.error().text();
    return std::optional<Given>();
  }
  SessionOptions how;
  how.threads = options.threads;
  how.lanes = options.lanes;
  how.references = References::kSim;
  how.rewind_every = 0;
  auto session = Session::create(*own, lanes, how);
  if (!session) return session.error();
  const Lane* cpu = lanes.find("cpu");
  BackendForm form(**session, run.metadata, cpu->ops[AS_OP_PAD_ROWS], run);
  if (auto ok = (*session)->change_ops(&form, 0); !ok) return ok.error();
  while (!(*session)->finished()) {
    if (progress != nullptr && progress->stopped) return stopped_error();
    if (auto ok = (*session)->op(); !ok) return ok.error();
  }
  (*session)->forget_change();
  take_results(**session, run);
  return std::optional<Given>({form.outputs(), sampled_tokens(**session)});
}

}  // namespace

Result<void> fits_backend_runs(const ModelConfig& config) {
  if (config.family == "dense" && !config.dense.encoder && config.dense.sides.empty()) return {};
  return bad_input(
      fmt::format("{}: backends are compared on dense attention over paged rows", config.name),
      "choose a decoder such as tiny-mha; backends explain says which backend any "
      "model gets");
}

Result<BackendRuns> run_backends(const Scenario& scenario, const LaneRegistry& lanes,
                                 const BackendRunsOptions& options, StudyProgress* progress) {
  if (auto ok = fits_backend_runs(scenario.model); !ok) return ok.error();
  const AttentionRegistry registry;
  std::vector<Candidate> all;
  if (auto ok = add_candidates(registry, scenario.model, options.gpu, all); !ok) return ok.error();
  if (options.gpu != "cpu") {
    if (auto ok = add_candidates(registry, scenario.model, "cpu", all); !ok) return ok.error();
  }
  BackendRuns out{scenario.model.name, scenario.name, {}};
  StudySteps steps(progress, to_count(all.size()));
  std::optional<Given> first;
  for (Candidate& candidate : all) {
    BackendRun& run = candidate.run;
    if (run.refused.empty()) {
      auto own = run_backend(scenario, lanes, options, progress, candidate);
      if (!own) return own.error();
      if (*own) {
        if (!first) first = **own;
        compare_with(*first, **own, run);
      }
    }
    if (auto ok = steps.step(); !ok) return ok.error();
    out.runs.push_back(std::move(run));
  }
  return out;
}

}  // namespace attnscope
