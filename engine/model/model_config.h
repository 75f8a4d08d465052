// What a model is: dimensions, layer types, constants and the profile switches. Pure data. Presets
// and config.json files give it (engine/family/models.h); its family says which values go.
//
// Profiles and their switches by name: profile_switches.h.
//
// The model around attention is only what closes the loop: h += attention(RMSNorm(h)) per layer,
// final norm, tied head, greedy sampling over 256 byte tokens. No hyper-connections, no MoE.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/params/numeric_rules.h"
#include "kernels/params/result.h"
#include "kernels/params/tensor.h"

namespace attnscope {

// Places where published implementations disagree; each is one named switch.
struct ProfileSwitches {
  std::string profile = "vllm";                     // name of the set these came from
  std::int32_t index_format = AS_RECORD_INDEX_FP8;  // or AS_RECORD_INDEX_MXFP4
  bool hadamard = false;      // rotate index queries and keys before quantisation
  bool ratio0_yarn = false;   // YaRN also in SWA-only layers (a known bug of old releases)
  bool round_pooled = false;  // pooled entry rounded to bf16 before its norm
  std::int32_t scale_floor = AS_SCALE_FLOOR_1E4;
  std::int32_t fp4_rule = AS_FP4_EVEN;
  std::int32_t q_norm = AS_Q_NORM_FP32;
  bool round_rotated = false;  // index queries and keys rounded to bf16 before that rotation too
  std::int32_t index_scores = AS_SCORES_FP32;
  std::int32_t rope_frequencies = AS_ROPE_FP32;
  bool fp8_projections = false;   // weights and inputs of the large projections as e4m3 codes
  bool bf16_wo_a = false;         // but wo_a, which DeepSeek's code has in bf16
  bool gathered_prefill = false;  // prompts attend over rows gathered and dequantised before
  // Whether a step has a plan of its attention, by which rule, and for how many multiprocessors: of
  // an H100 or H200 (SXM) where nothing is said, on every machine.
  std::int32_t attention_plan = AS_PLAN_NONE;
  std::int32_t multiprocessors = 132;
  // In which passes dense attention goes over rows (as_paged_form).
  std::int32_t attention_form = AS_PAGED_ONE_PASS;
};

// What the named profiles set has changed: 2 since their rotary frequencies are fp32 and deepseek
// rounds rotated index queries and keys, 3 since projections=fp8 is of wo_a too.
inline constexpr int kProfilesVersion = 3;

// "vllm" (default) or "deepseek", then single switches set otherwise:
// "vllm,hadamard=on,scale_floor=1e-8".
Result<ProfileSwitches> profile_switches(std::string_view text);
// Of a file that was written when profiles had this version: switches that the text does not name
// and that its profile set otherwise then get that value, and the text says so.
ProfileSwitches switches_of_version(ProfileSwitches switches, int version);

// Which of how many ranks: heads and output groups are dealt out, the rest is on every rank.
struct TensorParallel {
  int size = 1;
  int rank = 0;
  friend bool operator==(const TensorParallel&, const TensorParallel&) = default;
};

// Of dense attention (engine/family/dense/): what the other numbers leave out.
struct DenseAttention {
  std::vector<int> windows;  // of every published layer: tokens that it sees, 0 = all
  // Of every published layer: tokens of the chunks that it attends within, 0 = it has none. Empty:
  // no layer has.
  std::vector<int> chunks;
  // Of every published layer: 1 = nothing is rotated. Empty: all layers have a rotary embedding.
  std::vector<int> unrotated;
  // Published layers, the last ones, that have no keys and values of their own: each reads those of
  // the last layer before them that sees as much.
  int shared_layers = 0;
  int block_tokens = 16;         // of a page
  int rope_style = 0;            // as_rope_style
  double local_rope_theta = 0;   // of layers with a window; 0 = rope_theta
  double scale = 0;              // of scores; 0 = head_dim^-0.5
  double soft_cap = 0;           // of scores, 0 = none
  double alibi_bias_max = 0;     // of ALiBi's slopes, mostly 8 (dense_slopes); 0 = no ALiBi
  bool qk_norm = false;          // RMS norms of the heads of queries and keys
  bool weight_plus_one = false;  // norms multiply by 1 + w
  bool sinks = false;            // a logit a head that takes mass and gives nothing
  bool tied = true;              // the head is the embedding
  // Tokens see all of their request, before and behind them, and nothing is kept: a request is
  // computed in one step and ends with it.
  bool encoder = false;
  // Of every published layer of an encoder-decoder: what it attends (DenseSide). Empty: the model
  // is no such one. A request is its source, then decoder_prompt tokens that the decoder begins
  // with, then what it says.
  std::vector<int> sides;
  int decoder_prompt = 1;
  // T5's bias by distance, of layers that are not cross attention; 0 = none.
  int bias_buckets = 0, bias_distance = 0;
  // Which keys are seen, and what scores become, as a user writes it (mask_expression.h). A mask
  // stands in the place of causality; empty = as the layers have it.
  std::string mask, score;
  // What rows of K and V hold (as_record), of heads: bf16, f16, or codes of FP8 or int8. With
  // AS_RECORD_HND the rows of a head lie together in a page (HND), without it the heads of a row.
  std::int32_t cache_record = AS_RECORD_BF16;
  // Where these are codes: so many first tokens of a request have bf16 rows too, in layers that see
  // all tokens, and attention reads those (paged_params.h). 0 = none.
  int first_tokens_16bit = 0;
};

// Which tokens a layer is for: those of the decoder that see each other; those of the source, which
// see all of it; those of the decoder, which see the source.
enum DenseSide { kDecoderSide, kSourceSide, kCrossSide };

// Of absorbed MLA (engine/family/mla/): what the other numbers leave out. Rows are 512 latent dims
// and 64 with RoPE.
struct MlaAttention {
  int nope_dim = 128;            // dims of a head's query without RoPE
  int value_dim = 128;           // of a head's value
  bool indexer = false;          // layers attend over the index_topk best tokens alone
  bool hadamard = true;          // index queries and keys are transformed before quantisation
  int block_tokens = 64;         // of a page
  double mscale = 0;             // of YaRN: its square is in the scale of scores; 0 = 1
  double index_norm_eps = 1e-6;  // of the LayerNorm of index keys
  std::int32_t latent_record = AS_RECORD_LATENT_656;  // or AS_RECORD_BF16
  std::int32_t latent_scale = AS_SCALE_FLOAT;         // as_scale_rule
  std::int32_t index_scale = AS_SCALE_POWER_OF_TWO;   // likewise
  bool tied = false;                                  // the head is the embedding
};

struct ModelConfig {
  std::string name;                    // preset or file it came from
  std::string family = "deepseek_v4";  // Family::name
  int hidden = 0;                      // hidden_size
  int vocabulary = 256;                // tokens are bytes
  int heads = 0;                       // H, num_attention_heads
  int kv_heads = 1;                    // that keys and values have; the others share them
  int head_dim = 512;                  // D; 448 no-RoPE + 64 RoPE
  int rope_dim = 64;                   // of them, the last ones, that are rotated
  int q_lora = 0;                      // q_lora_rank
  int o_lora = 0;                      // o_lora_rank
  int o_groups = 0;                    // output groups of heads/o_groups heads
  int window = 128;                    // W, sliding_window
  int index_heads = 64;                // J
  int index_dim = 128;
  int index_topk = 512;  // K
  double rms_eps = 1e-6;
  double rope_theta = 10000.0;            // SWA-only layers
  double compress_rope_theta = 160000.0;  // layers with ratio > 0
  double yarn_factor = 16.0;
  double yarn_original_max = 65536.0;
  double yarn_beta_fast = 32.0;
  double yarn_beta_slow = 1.0;
  std::int64_t max_position = 1048576;  // max_position_embeddings
  // Of every published layer: tokens that an entry of its cache stands for, 0 = it has none such.
  std::vector<int> compress_ratios;
  std::vector<int> layers;  // the layers that run, ascending indices into compress_ratios
  // Layers that draft tokens (multi-token prediction): the ratios of those that are published, and
  // how many of these run (models.h, add_draft_layer). Those that run stand behind the main ones,
  // at the end of compress_ratios and of layers.
  std::vector<int> draft_ratios;
  int draft_layers = 0;
  ProfileSwitches switches;
  double sink_shift = 0;  // added to every sink, whichever weights these are
  // Sinks of single heads, of the whole model and in every layer, in the place of the weights' own:
  // a number, -inf (none) or +inf (it takes all).
  std::map<int, float> sinks;
  // Of synthetic weights: a factor of the norms that logits are products with, and whether bytes
  // 128 apart have one embedding (and so equal logits).
  double logit_gain = 1;
  bool twin_tokens = false;
  DenseAttention dense;
  MlaAttention mla;
  // Rows that layers select from lie in host memory while their requests decode, behind a pool of
  // rows a layer on the device (engine/session/step/host_tier.h).
  bool host_rows = false;
  // Blocks of preempted requests wait in host memory: a step may move some out, or back.
  bool swaps = false;
  // Ranks that share the rows of each request (engine/cache/context_split.h). Blocks of rows that
  // they deal out are so many times as long in DeepSeek-V4 (deepseek_v4/caches.cpp).
  int context_ranks = 1;
  // Of more than one rank: heads and o_groups are those of this rank.
  TensorParallel parallel;

  int ratio(int i) const {
    return compress_ratios[static_cast<std::size_t>(layers[static_cast<std::size_t>(i)])];
  }  // of the i-th layer that runs
  int published_layers() const { return static_cast<int>(compress_ratios.size()); }
  int num_layers() const { return static_cast<int>(layers.size()); }
  // The layers that run and make the hidden state that tokens are sampled from.
  int main_layers() const { return num_layers() - draft_layers; }
  bool is_draft(int i) const { return i >= main_layers(); }  // of the i-th layer that runs
  int heads_per_group() const { return heads / o_groups; }
};

}  // namespace attnscope
