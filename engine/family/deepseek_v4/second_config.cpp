#include "engine/family/deepseek_v4/second_config.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

namespace attnscope {
namespace {

// A number and where it may stand: in published files, in those of DeepSeek's own code, in those
// that transformers writes. The first that is there counts.
struct ConfigPlace {
  double read;
  const char* places[3];
};

const nlohmann::json* found_at(const nlohmann::json& file, const char* const (&places)[3],
                               const char*& name) {
  for (const char* place : places) {
    if (place == nullptr) continue;
    const nlohmann::json::json_pointer pointer(place);
    if (!file.contains(pointer) || !file.at(pointer).is_number()) continue;
    name = place + 1;
    return &file.at(pointer);
  }
  return nullptr;
}

}  // namespace

Result<void> check_read_config(const std::string& path, const nlohmann::json& file,
                               const ModelConfig& read) {
  const ModelConfig& c = read;
  const ConfigPlace all[] = {
      {double(c.hidden), {"/hidden_size", "/dim"}},
      {double(c.heads), {"/num_attention_heads", "/n_heads"}},
      {double(c.head_dim), {"/head_dim"}},
      {double(c.q_lora), {"/q_lora_rank"}},
      {double(c.o_lora), {"/o_lora_rank"}},
      {double(c.o_groups), {"/o_groups"}},
      {double(c.window), {"/sliding_window", "/window_size"}},
      {double(c.index_heads), {"/index_n_heads"}},
      {double(c.index_dim), {"/index_head_dim"}},
      {double(c.index_topk), {"/index_topk"}},
      {c.rms_eps, {"/rms_norm_eps", "/norm_eps"}},
      {double(c.max_position), {"/max_position_embeddings", "/max_seq_len"}},
      {c.rope_theta, {"/rope_parameters/main/rope_theta", "/rope_theta"}},
      {c.compress_rope_theta, {"/rope_parameters/compress/rope_theta", "/compress_rope_theta"}},
      {c.yarn_factor, {"/rope_parameters/compress/factor", "/rope_scaling/factor", "/rope_factor"}},
      {c.yarn_original_max,
       {"/rope_parameters/compress/original_max_position_embeddings",
        "/rope_scaling/original_max_position_embeddings", "/original_seq_len"}},
      {c.yarn_beta_fast,
       {"/rope_parameters/compress/beta_fast", "/rope_scaling/beta_fast", "/beta_fast"}},
      {c.yarn_beta_slow,
       {"/rope_parameters/compress/beta_slow", "/rope_scaling/beta_slow", "/beta_slow"}},
  };
  const auto differs = [&](const std::string& name, double has, double is) {
    return internal_error(
        fmt::format("{}: {} is {} there and was read as {}", path, name, has, is));
  };
  for (const ConfigPlace& one : all) {
    const char* name = nullptr;
    const nlohmann::json* number = found_at(file, one.places, name);
    if (number != nullptr && number->get<double>() != one.read) {
      return differs(name, number->get<double>(), one.read);
    }
  }
  const auto ratios = file.find("compress_ratios");
  if (ratios == file.end() || !ratios->is_array()) return {};
  for (std::size_t i = 0; i < read.compress_ratios.size() && i < ratios->size(); ++i) {
    const double has = (*ratios)[i].get<double>(), is = read.compress_ratios[i];
    if (has != is && !(has == 1 && is == 0)) {
      return differs(fmt::format("compress_ratios[{}]", i), has, is);
    }
  }
  return {};
}

}  // namespace attnscope
