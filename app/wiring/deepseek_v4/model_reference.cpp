#include "app/wiring/deepseek_v4/model_reference.h"

#include <map>
#include <string>
#include <utility>

#include "engine/checkpoint/checkpoint.h"
#include "engine/checkpoint/tensor_names.h"
#include "engine/checkpoint/weight_slots.h"
#include "engine/family/model_weights.h"
#include "engine/model/fp8_blocks.h"

namespace attnscope {
namespace {

using reference::ModelReference;

reference::ModelNumbers numbers_of(const ModelConfig& c) {
  reference::ModelNumbers n;
  n.hidden = c.hidden;
  n.heads = c.heads;
  n.q_lora = c.q_lora;
  n.o_lora = c.o_lora;
  n.o_groups = c.o_groups;
  n.head_dim = c.head_dim;
  n.window = c.window;
  n.index_heads = c.index_heads;
  n.index_dim = c.index_dim;
  n.index_topk = c.index_topk;
  n.norm_eps = c.rms_eps;
  n.rope_theta = c.rope_theta;
  n.compress_rope_theta = c.compress_rope_theta;
  n.yarn_factor = c.yarn_factor;
  n.yarn_original_max = c.yarn_original_max;
  n.yarn_beta_fast = c.yarn_beta_fast;
  n.yarn_beta_slow = c.yarn_beta_slow;
  n.compress_ratios = c.compress_ratios;
  n.layers = c.layers;
  n.yarn_in_every_layer = c.switches.ratio0_yarn;
  n.fp32_frequencies = c.switches.rope_frequencies == AS_ROPE_FP32;
  n.keep_fp8_values = c.switches.fp8_projections;
  n.sink_shift = static_cast<float>(c.sink_shift);
  return n;
}

// Entries that point into weights, which must stay.
class SlotEntries {
 public:
  SlotEntries(const ModelConfig& config, const Weights& weights) {
    for (const WeightSlot& slot : weight_slots(config, weights)) {
      if (slot.bf16 != nullptr) add(slot.name, ElementType::kBf16, slot.shape, slot.bf16);
      if (slot.f32 != nullptr) add(slot.name, ElementType::kF32, slot.shape, slot.f32);
      if (slot.codes == nullptr) continue;
      add(slot.name, ElementType::kF8E4m3, slot.shape, slot.codes);
      add(scale_name(slot.name), ElementType::kF32,
          {scale_blocks(slot.shape[0]), scale_blocks(slot.shape[1])}, slot.scales);
    }
  }
  const TensorEntry* find(const std::string& name) const {
    const auto it = entries_.find(name);
    return it == entries_.end() ? nullptr : &it->second;
  }

 private:
  void add(const std::string& name, ElementType type, const std::vector<std::int64_t>& shape,
           const void* data) {
    TensorEntry& entry = entries_[name];
    entry.name = name;
    entry.type = type;
    entry.shape = shape;
    entry.elements = 1;
    for (const std::int64_t n : shape) entry.elements *= n;
    entry.data = static_cast<const std::uint8_t*>(data);
    entry.bytes = static_cast<std::size_t>(entry.elements * element_bits(type) / 8);
  }
  std::map<std::string, TensorEntry> entries_;
};

// What from_weights() reads in place.
struct OwnWeights {
  OwnWeights(const ModelConfig& config, Weights&& filled)
      : weights(std::move(filled)), entries(config, weights) {}
  Weights weights;
  SlotEntries entries;
};

}  // namespace

Result<std::unique_ptr<ModelReference>> model_reference(const Scenario& scenario,
                                                        const as_threads* threads) {
  const reference::ModelNumbers numbers = numbers_of(scenario.model);
  ModelConfig config = scenario.model;
  config.sink_shift = 0;  // ref.model shifts them itself
  std::shared_ptr<OwnWeights> made;
  if (scenario.checkpoint.empty()) {
    made = std::make_shared<OwnWeights>(config, synthetic_weights(config, scenario.seed, threads));
    return ModelReference::make(
        numbers, [&](const std::string& name) { return made->entries.find(name); }, made);
  }
  auto opened = Checkpoint::open(scenario.checkpoint, config);
  if (!opened) return opened.error();
  const std::shared_ptr<Checkpoint> checkpoint = std::move(*opened);
  if (config.switches.fp8_projections) {  // those not published so are quantised when read
    auto loaded = load_weights(*checkpoint, config, threads);
    if (!loaded) return loaded.error();
    made = std::make_shared<OwnWeights>(config, std::move(loaded->weights));
  }
  const auto find = [&](const std::string& name) -> const TensorEntry* {
    const bool there = checkpoint->has(name);
    const auto found = there ? checkpoint->get(name) : Checkpoint::Found{};
    const TensorEntry* published = found ? found->entry : nullptr;
    const TensorEntry* run = made ? made->entries.find(name) : nullptr;
    if (run == nullptr || published == nullptr) return run != nullptr ? run : published;
    // wo_a is published in FP8 and always run in bf16, which ref.model knows.
    const bool same = published->type == run->type || name.find("wo_a") != name.npos;
    return same || name.ends_with(".scale") ? published : run;
  };
  using Owner = std::pair<std::shared_ptr<Checkpoint>, std::shared_ptr<OwnWeights>>;
  return ModelReference::make(numbers, find, std::make_shared<Owner>(checkpoint, made));
}

}  // namespace attnscope
