#include "app/wiring/dense/dense_reference.h"

#include <cmath>
#include <map>
#include <string>
#include <utility>

#include "app/wiring/model_tensors.h"
#include "engine/model/mask_expression.h"
#include "kernels/cpu/mask_code.h"
#include "kernels/params/paged_params.h"

namespace attnscope {

namespace {

// Which layer's rows a layer reads, told by the published layers: of the last `shared_layers` each
// reads those of the layer of its type that comes last among the others.
std::vector<int> shared_rows(const ModelConfig& c) {
  const DenseAttention& d = c.dense;
  using Type = std::pair<int, int>;
  const auto type = [&](int layer) {
    const auto at = static_cast<std::size_t>(layer);
    return Type{d.windows[at], d.chunks.empty() ? 0 : d.chunks[at]};
  };
  std::map<Type, int> last;  // running layer
  std::vector<int> rows;
  for (std::size_t i = 0; i < c.layers.size(); ++i) {
    const int layer = c.layers[i];
    const bool reads = layer >= static_cast<int>(d.windows.size()) - d.shared_layers;
    rows.push_back(reads ? last.at(type(layer)) : -1);
    if (!reads) last[type(layer)] = static_cast<int>(i);
  }
  return rows;
}

// Static scales: one of a tensor, or one of each KV head.
std::int64_t scales_beside(std::int32_t record, std::int64_t kv_heads) {
  switch (record & ~AS_RECORD_HND) {
    case AS_RECORD_FP8_TENSOR:
    case AS_RECORD_E5M2_TENSOR:
      return 1;
    case AS_RECORD_FP8_HEAD:
    case AS_RECORD_E5M2_HEAD:
      return kv_heads;
    default:
      return 0;
  }
}

}  // namespace

reference::DenseNumbers dense_numbers(const ModelConfig& c) {
  const DenseAttention& d = c.dense;
  reference::DenseNumbers n;
  n.hidden = c.hidden;
  n.heads = c.heads;
  n.kv_heads = c.kv_heads;
  n.head_dim = c.head_dim;
  n.rope_dim = c.rope_dim;
  n.pairs = d.rope_style == AS_ROPE_GPTJ;
  n.norm_eps = c.rms_eps;
  n.scale = d.scale > 0 ? d.scale : 1 / std::sqrt(static_cast<double>(c.head_dim));
  n.soft_cap = d.soft_cap;
  n.form = c.switches.attention_form;
  n.alibi_bias_max = d.alibi_bias_max;
  n.layers = c.layers;
  for (const int layer : c.layers) {
    const int window = d.windows[static_cast<std::size_t>(layer)];
    const bool local = window > 0 && d.local_rope_theta > 0;
    const auto of_layer = [&](const std::vector<int>& list) {
      return list.empty() ? 0 : list[static_cast<std::size_t>(layer)];
    };
    n.windows.push_back(window);
    n.chunks.push_back(of_layer(d.chunks));
    const double theta = local ? d.local_rope_theta : c.rope_theta;
    n.rope_thetas.push_back(of_layer(d.unrotated) != 0 ? 0 : theta);
    const bool sees_all = window == 0 && n.chunks.back() == 0;
    n.first_tokens.push_back(sees_all ? d.first_tokens_16bit : 0);
  }
  n.rows_of = shared_rows(c);
  n.qk_norm = d.qk_norm;
  n.weight_plus_one = d.weight_plus_one;
  n.sinks = d.sinks;
  n.cache_scales = scales_beside(d.cache_record, c.kv_heads);
  n.encoder = d.encoder;
  if (!d.mask.empty()) {
    n.shows = [code = *parse_mask(d.mask)](std::int64_t q, std::int64_t k, std::int64_t head) {
      return cpu::mask_shows(code.tensor(), {q, k, head, 0});
    };
  }
  if (!d.score.empty()) {
    n.score = [code = *parse_score(d.score)](double score, std::int64_t q, std::int64_t k,
                                             std::int64_t head) {
      return cpu::run_mask_code(code.tensor(), {q, k, head, 0}, score);
    };
  }
  n.bias_buckets = d.bias_buckets;
  n.bias_distance = d.bias_distance;
  for (const int side : d.sides) n.encoder_layers += side == kSourceSide ? 1 : 0;
  for (const int layer : c.layers) {
    if (d.sides.empty()) break;
    const std::int64_t behind = layer - n.encoder_layers;
    n.sides.push_back(behind < 0        ? reference::DenseNumbers::kSource
                      : behind % 2 == 0 ? reference::DenseNumbers::kTarget
                                        : reference::DenseNumbers::kCross);
  }
  n.tied = d.tied;
  n.sink_shift = static_cast<float>(c.sink_shift);
  n.given_sinks = c.sinks;
  return n;
}

Result<std::unique_ptr<reference::ModelReference>> dense_reference(const Scenario& scenario,
                                                                   const as_threads* threads) {
  auto tensors = model_tensors(scenario, threads, [](const std::string&) { return false; });
  if (!tensors) return tensors.error();
  reference::DenseNumbers numbers = dense_numbers(scenario.model);
  for (const ScenarioRequest& request : scenario.requests) {
    if (numbers.sides.empty()) break;
    numbers.source_lens.push_back(std::ssize(request.tokens) - scenario.model.dense.decoder_prompt);
  }
  return reference::make_dense_model(numbers, tensors->source, tensors->owner);
}

}  // namespace attnscope
