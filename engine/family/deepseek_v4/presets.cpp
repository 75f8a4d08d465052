// v4-flash and v4-pro have the published dimensions; tiny has every byte layout of V4 at a hidden
// size that steps quickly.
#include "engine/family/deepseek_v4/deepseek_v4.h"

namespace attnscope {
namespace {

constexpr int kRatioC4 = 4;
constexpr int kRatioC128 = 128;

// Entries `first` for layers 0 and 1, then 4, 128, 4, ..: the published pattern.
std::vector<int> published_ratios(int num_layers, int first) {
  std::vector<int> ratios(static_cast<std::size_t>(num_layers));
  for (int i = 0; i < num_layers; ++i) {
    ratios[static_cast<std::size_t>(i)] = i < 2 ? first : i % 2 == 0 ? kRatioC4 : kRatioC128;
  }
  return ratios;
}

ModelConfig v4_flash() {
  ModelConfig c;
  c.name = "v4-flash";
  c.hidden = 4096;
  c.heads = 64;
  c.q_lora = 1024;
  c.o_lora = 1024;
  c.o_groups = 8;
  c.index_topk = 512;
  c.compress_ratios = published_ratios(43, 0);
  c.draft_ratios = {0};
  return c;
}

ModelConfig v4_pro() {
  ModelConfig c;
  c.name = "v4-pro";
  c.hidden = 7168;
  c.heads = 128;
  c.q_lora = 1536;
  c.o_lora = 1024;
  c.o_groups = 16;
  c.index_topk = 1024;
  c.compress_ratios = published_ratios(61, kRatioC128);
  c.draft_ratios = {0};
  return c;
}

// Every byte layout as in V4, small enough to step quickly.
ModelConfig tiny() {
  ModelConfig c;
  c.name = "tiny";
  c.hidden = 512;
  c.heads = 8;
  c.q_lora = 128;
  c.o_lora = 64;
  c.o_groups = 2;
  c.index_heads = 8;
  c.compress_ratios = {0, kRatioC4, kRatioC128, kRatioC4};
  c.draft_ratios = {0};
  return c;
}

}  // namespace

ModelConfig deepseek_v4_example() {
  ModelConfig c = tiny();
  // So that no op is left out.
  c.switches.attention_plan = AS_PLAN_FLASHMLA;
  c.compress_ratios.push_back(c.draft_ratios.front());
  c.draft_layers = 1;
  return c;
}

std::span<const FamilyPreset> deepseek_v4_presets() {
  static constexpr FamilyPreset kPresets[] = {
      {"tiny", tiny}, {"v4-flash", v4_flash}, {"v4-pro", v4_pro}};
  return kPresets;
}

}  // namespace attnscope
