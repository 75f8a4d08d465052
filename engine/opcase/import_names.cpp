#include "engine/opcase/import_names.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <vector>

namespace attnscope {
namespace {

struct OtherNames {
  std::string_view ours;
  std::vector<std::string_view> theirs;
};

// Parts of names in public code: modules of transformers, vLLM, SGLang and DeepSeek.
const std::vector<OtherNames>& modules() {
  static const std::vector<OtherNames> all = {
      {"attn_norm", {"input_layernorm", "attention_norm"}},
      {"q_kv_a_proj", {"fused_wqa_wkv", "wqkv_a", "qkv_a_proj", "fused_qkv_a_proj"}},
      {"q_b_proj", {"self_attn.q_b_proj", "attn.wq_b", "wq_b"}},
      {"wo_a", {"o_a_proj"}},
      {"wo_b", {"o_b_proj"}},
      {"compressor_proj", {"compressor.wkv_gate", "fused_wkv_wgate"}},
      {"indexer_q_proj", {"indexer.q_b_proj", "indexer.wq_b"}},
      {"indexer_weights_proj", {"weights_proj"}},
      {"indexer_topk", {"indexer", "topk"}},
      {"sparse_attention", {"self_attn", "attn", "attention"}},
      {"workspace_attention", {"self_attn", "attn", "attention"}},
      {"final_norm", {"model.norm", "norm"}},
      {"inverse_rope", {"self_attn", "attn"}}};
  return all;
}

// What hooks and functions call arguments and results.
const std::vector<OtherNames>& arguments() {
  static const std::vector<OtherNames> all = {
      {"x", {"input", "hidden_states", "in"}},
      {"y", {"output", "out"}},
      {"o", {"attn_output", "attn_out", "output", "out"}},
      {"out", {"output", "o_a_proj.input"}},
      {"q", {"query", "query_states"}},
      {"rows", {"key_states", "keys", "kv", "workspace"}},
      {"sinks", {"attn_sink", "sink", "attn_sinks"}},
      {"positions", {"position_ids"}},
      {"indices",
       {"topk_indices", "key_indices", "page_indices", "swa_indices", "swa_page_indices"}},
      {"topk_length", {"lens", "key_lens", "topk_lengths", "swa_lens", "swa_topk_lengths"}},
      {"extra_indices", {"extra_indices_in_kvcache", "sparse_page_indices"}},
      {"extra_topk_length", {"sparse_topk_lengths", "topk_lens"}},
      {"lens", {"seq_lens", "lengths", "compressed_lens"}},
      {"logits", {"scores", "scorer.output"}},
      {"cache", {"kv_cache", "swa_kv_cache", "kv_buffer", "swa_k_cache"}},
      {"extra_cache", {"kv_cache", "compressed_kv_cache", "kv_buffer", "extra_k_cache"}}};
  return all;
}

// Whether the parts of `word` follow each other in `name`.
bool has_word(std::string_view name, std::string_view word) {
  for (std::size_t at = name.find(word); at != std::string_view::npos;
       at = name.find(word, at + 1)) {
    const auto inside = [&](std::size_t i) {
      return i < name.size() && (std::isalnum(static_cast<unsigned char>(name[i])) != 0);
    };
    if ((at == 0 || !inside(at - 1)) && !inside(at + word.size())) return true;
  }
  return false;
}

std::size_t longest(std::string_view name, std::string_view ours,
                    const std::vector<OtherNames>& among) {
  std::size_t out = has_word(name, ours) ? ours.size() : 0;
  const auto found = std::ranges::find(among, ours, &OtherNames::ours);
  if (found == among.end()) return out;
  for (const std::string_view word : found->theirs) {
    if (has_word(name, word)) out = std::max(out, word.size());
  }
  return out;
}

}  // namespace

NameMatch match_name(std::string_view tensor, std::string_view op, std::string_view tap) {
  std::string lower(tensor);
  std::ranges::transform(lower, lower.begin(),
                         [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return {longest(lower, op, modules()), longest(lower, tap, arguments())};
}

std::optional<std::pair<std::string, int>> name_without_layer(const std::string& name) {
  for (std::size_t at = name.find("layer"); at != std::string::npos;
       at = name.find("layer", at + 1)) {
    std::size_t begin = at + 5;
    if (begin < name.size() && name[begin] == 's') ++begin;
    if (begin == name.size() || std::string_view("._-/").find(name[begin]) == std::string::npos) {
      continue;
    }
    ++begin;
    int layer = 0;
    const char* const end = name.data() + name.size();
    const auto read = std::from_chars(name.data() + begin, end, layer);
    const bool ends =
        read.ptr == end || std::string_view("._-/").find(*read.ptr) != std::string::npos;
    if (read.ec != std::errc() || layer < 0 || !ends) continue;
    return std::pair(name.substr(0, begin) + "{layer}" +
                         name.substr(static_cast<std::size_t>(read.ptr - name.data())),
                     layer);
  }
  return std::nullopt;
}

}  // namespace attnscope
