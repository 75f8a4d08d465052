// Rules that the row formats and the index lists of DeepSeek-V4 impose on a model.
#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "engine/family/deepseek_v4/config_keys.h"
#include "engine/family/deepseek_v4/deepseek_v4.h"
#include "kernels/params/row_format.h"

namespace attnscope {
namespace {

// Keeps the first rule that fails.
class Rules {
 public:
  void range(const char* key, std::int64_t value, std::int64_t min, std::int64_t max) {
    if (value >= min && value <= max) return;
    const std::string allowed =
        min == max ? fmt::format("{}", min) : fmt::format("{} to {}", min, max);
    fail(key, fmt::format("{}", value), allowed);
  }
  void multiple(const char* key, std::int64_t value, std::int64_t step, std::int64_t max) {
    if (value >= step && value <= max && value % step == 0) return;
    fail(key, fmt::format("{}", value), fmt::format("multiples of {} up to {}", step, max));
  }
  void real(const char* key, double value, double min, double max) {
    if (value >= min && value <= max) return;  // NaN fails
    fail(key, fmt::format("{}", value), fmt::format("{} to {}", min, max));
  }
  void fail(const std::string& key, const std::string& value, const std::string& allowed) {
    if (result_) {
      result_ =
          bad_input(fmt::format("{}: {} is not supported", key, value), "allowed: " + allowed);
    }
  }
  const Result<void>& result() const { return result_; }

 private:
  Result<void> result_;
};

}  // namespace

bool has_deepseek_keys(const nlohmann::json& file) {
  const auto has = [&](const char* key) { return file.contains(key) && !file.at(key).is_null(); };
  return has("dim") && !has("hidden_size");
}

ConfigKeys deepseek_keys() {
  ConfigKeys k;
  k.hidden = "dim";
  k.num_layers = "n_layers";
  k.draft_layers = "n_mtp_layers";
  k.heads = "n_heads";
  k.rope_dim = "rope_head_dim";
  k.window = "window_size";
  k.yarn_factor = "rope_factor";
  k.yarn_original_max = "original_seq_len";
  k.yarn_beta_fast = "beta_fast";
  k.yarn_beta_slow = "beta_slow";
  k.max_position = "max_seq_len";
  k.rms_eps = "norm_eps";
  return k;
}

namespace {

Result<void> validate_with_keys(const ModelConfig& c, const ConfigKeys& keys) {
  // Widths are kept far below where a product of two leaves 64 bits or a row leaves 32.
  constexpr std::int64_t kWidest = 65536;
  Rules rules;
  const std::int64_t latent = as_row_width(AS_RECORD_LATENT);
  const std::int64_t key = as_row_width(AS_RECORD_INDEX_FP8);
  rules.range(keys.head_dim, c.head_dim, latent, latent);
  rules.range(keys.index_dim, c.index_dim, key, key);
  rules.multiple(keys.hidden, c.hidden, 64, kWidest);
  rules.multiple(keys.q_lora, c.q_lora, 64, kWidest);
  rules.multiple(keys.o_lora, c.o_lora, 64, kWidest);
  rules.range(keys.heads, c.heads, 1, 128);  // more than one attention tile of heads has no layout
  rules.range(keys.o_groups, c.o_groups, 1, 128);
  if (c.o_groups > 0 && c.heads % c.o_groups != 0) {
    rules.fail(keys.o_groups, fmt::format("{}", c.o_groups),
               fmt::format("divisors of {} ({})", keys.heads, c.heads));
  }
  // Index rows are read in tiles: the window list in 128 columns, the top-k list in 64.
  rules.multiple(keys.window, c.window, 128, 8192);
  rules.multiple(keys.index_topk, c.index_topk, 64, 8192);
  rules.range(keys.index_heads, c.index_heads, 1, 128);
  rules.real(keys.rms_eps, c.rms_eps, 1e-12, 1e-2);
  rules.real(keys.rope_theta, c.rope_theta, 2.0, 1e12);
  rules.real(keys.compress_rope_theta, c.compress_rope_theta, 2.0, 1e12);
  rules.real(keys.yarn_factor, c.yarn_factor, 1.0, 1e6);
  rules.real(keys.yarn_original_max, c.yarn_original_max, 1.0, 1e9);
  rules.real(keys.yarn_beta_slow, c.yarn_beta_slow, 1e-3, 1e6);
  rules.real(keys.yarn_beta_fast, c.yarn_beta_fast, c.yarn_beta_slow, 1e6);
  // fp32(position) is exact up to 2^24.
  rules.range(keys.max_position, c.max_position, 1, 1 << 24);

  const auto count = static_cast<std::int64_t>(c.compress_ratios.size());
  rules.range(keys.num_layers, count, 1, 4096);
  for (std::size_t i = 0; i < c.compress_ratios.size(); ++i) {
    const int r = c.compress_ratios[i];
    if (r != 0 && r != 4 && r != 128) {
      rules.fail(fmt::format("{}[{}]", keys.compress_ratios, i), fmt::format("{}", r),
                 "0 (window only), 4, 128");
    }
  }
  rules.range(keys.draft_layers, c.draft_layers, 0, 1);
  const auto drafts = static_cast<std::size_t>(c.draft_layers);
  if (c.layers.size() <= drafts) rules.fail("layers", "an empty list", "at least one layer");
  if (drafts > 0 && (c.layers.back() + 1 != count || c.compress_ratios.back() != 0)) {
    rules.fail("layers", fmt::format("{} at the end", c.layers.back()),
               fmt::format("the draft layer, {}, whose ratio is 0", count - 1));
  }
  for (std::size_t k = 0; k < c.layers.size(); ++k) {
    if (c.layers[k] < (k > 0 ? c.layers[k - 1] + 1 : 0) || c.layers[k] >= count) {
      rules.fail("layers", fmt::format("{} at place {}", c.layers[k], k),
                 fmt::format("ascending layers from 0 to {}, each once", count - 1));
    }
  }
  const std::int32_t format = c.switches.index_format;
  if (format != AS_RECORD_INDEX_FP8 && format != AS_RECORD_INDEX_MXFP4) {
    rules.fail("index_format", fmt::format("{}", format), "index rows in FP8 or MXFP4");
  }
  return rules.result();
}

}  // namespace

Result<void> deepseek_v4_validate(const ModelConfig& config, const nlohmann::json* file) {
  const bool own = file != nullptr && has_deepseek_keys(*file);
  return validate_with_keys(config, own ? deepseek_keys() : ConfigKeys{});
}

}  // namespace attnscope
