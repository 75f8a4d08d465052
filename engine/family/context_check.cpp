#include "engine/family/context_check.h"

#include <fmt/format.h>

#include "engine/family/models.h"
#include "kernels/params/mla_params.h"

namespace attnscope {
namespace {

bool is_mla(const ModelConfig& model) { return model.family == "mla"; }

// What attention of the model is that ranks do not share; empty = nothing.
const char* against(const ModelConfig& model) {
  if (model.host_rows) return "rows in host memory";
  if (model.family != "dense") return "";
  const DenseAttention& dense = model.dense;
  if (dense.encoder) return "layers without caches";
  if (!dense.sides.empty()) return "an encoder beside its decoder";
  if (dense.first_tokens_16bit > 0)
    return "first tokens with rows of 16 bits in a group of their own";
  if (!dense.mask.empty()) return "a mask, which may ask for positions";
  if (!dense.score.empty()) return "a score function, which may ask for positions";
  if (dense.alibi_bias_max > 0) return "ALiBi, whose slopes ask for distances";
  return "";
}

}  // namespace

ModelConfig shared_config(ModelConfig model, const ContextSplit& split) {
  model.context_ranks = split.ranks;
  return model;
}

Result<void> check_context(const ModelConfig& model, const ContextSplit& split) {
  const bool known = split.ranks >= 1 && split.ranks <= kMostContextRanks;
  const CacheLayout layout = build_cache_layout(known ? shared_config(model, split) : model);
  if (!split.splits()) return check_split(layout, split);
  if (const std::string what = against(model); !what.empty()) {
    return bad_input(
        fmt::format("{} has {}: its cache is not dealt out to ranks", model.name, what),
        "run it on one rank, without context_parallel");
  }
  return check_split(layout, split);
}

AttendedDims attended_dims(const ModelConfig& model) {
  if (is_mla(model)) return {AS_MLA_WIDTH, AS_MLA_LATENT};
  return {model.head_dim, model.head_dim};
}

}  // namespace attnscope
