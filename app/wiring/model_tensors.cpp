#include "app/wiring/model_tensors.h"

#include <deque>
#include <map>
#include <string>
#include <utility>

#include "engine/checkpoint/checkpoint.h"
#include "engine/checkpoint/tensor_names.h"
#include "engine/checkpoint/weight_slots.h"
#include "engine/family/model_weights.h"
#include "engine/model/fp8_projections.h"

namespace attnscope {
namespace {

// Entries that point into weights, which must stay.
class SlotEntries {
 public:
  SlotEntries(const ModelConfig& config, const Weights& weights) {
    for (const WeightSlot& slot : weight_slots(config, weights)) {
      if (slot.bf16 != nullptr) add(slot.name, ElementType::kBf16, slot.shape, slot.bf16);
      if (slot.f32 != nullptr) add(slot.name, ElementType::kF32, slot.shape, slot.f32);
      if (slot.codes == nullptr) continue;
      add(slot.name, ElementType::kF8E4m3, slot.shape, slot.codes);
      const std::vector<float>& scales = scales_.emplace_back(
          published_scales(slot.scales, slot.shape[0], slot.shape[1], slot.scale_span));
      add(scale_name(slot.name), ElementType::kF32,
          {scale_blocks(slot.shape[0]), scale_blocks(slot.shape[1])}, scales.data());
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
  std::deque<std::vector<float>> scales_;  // as published
};

// What from_weights() reads in place.
struct OwnWeights {
  OwnWeights(const ModelConfig& config, Weights&& filled)
      : weights(std::move(filled)), entries(config, weights) {}
  Weights weights;
  SlotEntries entries;
};

}  // namespace

Result<ModelTensors> model_tensors(const Scenario& scenario, const as_threads* threads,
                                   bool (*bf16)(const std::string& name)) {
  ModelConfig config = scenario.model;
  config.sink_shift = 0;  // ref.model shifts and replaces them itself
  config.sinks.clear();
  std::shared_ptr<OwnWeights> made;
  if (scenario.checkpoint.empty()) {
    made = std::make_shared<OwnWeights>(config, synthetic_weights(config, scenario.seed, threads));
    return ModelTensors{[made](const std::string& name) { return made->entries.find(name); }, made};
  }
  auto opened = Checkpoint::open(scenario.checkpoint, config);
  if (!opened) return opened.error();
  const std::shared_ptr<Checkpoint> checkpoint = std::move(*opened);
  if (config.switches.fp8_projections) {  // those not published so are quantised when read
    auto loaded = load_weights(*checkpoint, config, threads);
    if (!loaded) return loaded.error();
    made = std::make_shared<OwnWeights>(config, std::move(loaded->weights));
  }
  const auto find = [=](const std::string& name) -> const TensorEntry* {
    const bool there = checkpoint->has(name);
    const auto found = there ? checkpoint->get(name) : Checkpoint::Found{};
    const TensorEntry* published = found ? found->entry : nullptr;
    const TensorEntry* run = made ? made->entries.find(name) : nullptr;
    if (run == nullptr || published == nullptr) return run != nullptr ? run : published;
    const bool same =
        published->type == run->type || (run->type == ElementType::kBf16 && bf16(name));
    return same || name.ends_with(".scale") ? published : run;
  };
  using Owner = std::pair<std::shared_ptr<Checkpoint>, std::shared_ptr<OwnWeights>>;
  return ModelTensors{find, std::make_shared<Owner>(checkpoint, made)};
}

}  // namespace attnscope
