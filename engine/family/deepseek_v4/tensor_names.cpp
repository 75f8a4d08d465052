// Names of the tensors of a checkpoint. Published checkpoints and DeepSeek's own code say
// layers.2.attn.wq_a.weight, Hugging Face modules model.layers.2.self_attn.q_a_proj.weight, and
// files that were saved again mix both. Each spelling leads to the published name:
//   "model.layers.2.self_attn.compressor.indexer.scorer.weights_proj.weight"
//       -> "layers.2.attn.indexer.weights_proj.weight"
// So it is below mtp.0, the draft layer, which has four tensors and a norm more. Names of other
// parts of a model (experts, hyper-connections) stay as they are.

#include <array>
#include <optional>
#include <vector>

#include "engine/family/deepseek_v4/deepseek_v4.h"

namespace attnscope {
namespace {

struct Spelling {
  std::string_view other, published;
};

constexpr std::array kAttention = {
    Spelling{"q_a_proj", "wq_a"},   Spelling{"q_a_norm", "q_norm"},
    Spelling{"q_b_proj", "wq_b"},   Spelling{"kv_proj", "wkv"},
    Spelling{"kv_norm", "kv_norm"}, Spelling{"norm", "kv_norm"},
    Spelling{"o_a_proj", "wo_a"},   Spelling{"o_b_proj", "wo_b"},
    Spelling{"sinks", "attn_sink"}, Spelling{"wq_a", "wq_a"},
    Spelling{"q_norm", "q_norm"},   Spelling{"wq_b", "wq_b"},
    Spelling{"wkv", "wkv"},         Spelling{"attn_sink", "attn_sink"},
    Spelling{"wo_a", "wo_a"},       Spelling{"wo_b", "wo_b"},
};

constexpr std::array kCompressor = {
    Spelling{"kv_proj", "wkv"}, Spelling{"gate_proj", "wgate"},   Spelling{"kv_norm", "norm"},
    Spelling{"wkv", "wkv"},     Spelling{"wgate", "wgate"},       Spelling{"norm", "norm"},
    Spelling{"ape", "ape"},     Spelling{"position_bias", "ape"},
};

constexpr std::array kIndexer = {
    Spelling{"q_b_proj", "wq_b"},
    Spelling{"wq_b", "wq_b"},
    Spelling{"weights_proj", "weights_proj"},
};

constexpr std::array kDraft = {
    Spelling{"enorm", "enorm"},   Spelling{"hnorm", "hnorm"}, Spelling{"e_proj", "e_proj"},
    Spelling{"h_proj", "h_proj"}, Spelling{"norm", "norm"},
};

constexpr std::array kEndings = {
    Spelling{"weight", ".weight"},          Spelling{"scale", ".scale"},
    Spelling{"weight_scale_inv", ".scale"}, Spelling{"weight_scale", ".scale"},
    Spelling{"scale_inv", ".scale"},
};

template <std::size_t N>
std::optional<std::string_view> published(const std::array<Spelling, N>& table,
                                          std::string_view name) {
  for (const Spelling& s : table) {
    if (s.other == name) return s.published;
  }
  return std::nullopt;
}

std::vector<std::string_view> split_name(std::string_view name) {
  std::vector<std::string_view> parts;
  for (;;) {
    const std::size_t dot = name.find('.');
    parts.push_back(name.substr(0, dot));
    if (dot == std::string_view::npos) return parts;
    name.remove_prefix(dot + 1);
  }
}

// What follows "attn." or "self_attn."; nothing when it is no tensor of attention.
std::optional<std::string> attention_name(const std::vector<std::string_view>& parts,
                                          std::size_t at) {
  bool compressor = false, indexer = false;
  for (; at < parts.size(); ++at) {
    if (parts[at] == "compressor") {
      compressor = true;
    } else if (parts[at] == "indexer") {
      indexer = true;
    } else if (parts[at] != "scorer") {
      break;
    }
  }
  if (at >= parts.size() || at + 2 < parts.size()) return std::nullopt;
  std::string out;
  if (indexer) {
    if (const auto leaf = published(kIndexer, parts[at])) {
      out = "indexer." + std::string(*leaf);
    } else if (const auto inner = published(kCompressor, parts[at])) {
      out = "indexer.compressor." + std::string(*inner);
    }
  } else if (compressor) {
    if (const auto leaf = published(kCompressor, parts[at])) {
      out = "compressor." + std::string(*leaf);
    }
  } else if (const auto leaf = published(kAttention, parts[at])) {
    out = *leaf;
  }
  if (out.empty()) return std::nullopt;
  if (at + 1 == parts.size()) return out;
  const auto ending = published(kEndings, parts[at + 1]);
  if (!ending) return std::nullopt;
  return out + std::string(*ending);
}

}  // namespace

std::string deepseek_v4_published_name(std::string_view name) {
  std::string_view rest = name;
  if (rest.starts_with("model.")) rest.remove_prefix(6);
  if (rest == "embed_tokens.weight") return "embed.weight";
  if (rest == "lm_head.weight") return "head.weight";
  if (rest == "embed.weight" || rest == "head.weight" || rest == "norm.weight") {
    return std::string(rest);
  }
  const std::vector<std::string_view> parts = split_name(rest);
  const bool drafts = parts[0] == "mtp";
  if (parts.size() < 4 || (parts[0] != "layers" && !drafts)) return std::string(name);
  const std::string prefix = std::string(parts[0]) + "." + std::string(parts[1]) + ".";
  if (drafts && parts.size() == 4) {
    const auto leaf = published(kDraft, parts[2]), ending = published(kEndings, parts[3]);
    if (leaf && ending) return prefix + std::string(*leaf) + std::string(*ending);
  }
  if (parts.size() == 4 && parts[3] == "weight" &&
      (parts[2] == "attn_norm" || parts[2] == "input_layernorm")) {
    return prefix + "attn_norm.weight";
  }
  if (parts[2] != "attn" && parts[2] != "self_attn") return std::string(name);
  const auto inner = attention_name(parts, 3);
  return inner ? prefix + "attn." + *inner : std::string(name);
}

}  // namespace attnscope
