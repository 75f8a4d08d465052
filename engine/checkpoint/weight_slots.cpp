#include "engine/checkpoint/weight_slots.h"

#include <functional>
#include <numeric>

#include "engine/family/family.h"
#include "engine/model/fp8_projections.h"

namespace attnscope {
namespace {

// Adds the tensors of one weight that is there.
void add_slots(const WeightSpec& spec, const Weight& weight, int layer,
               std::vector<WeightSlot>& slots) {
  const bool fp8 = weight.fp8.codes.size() > 0;
  if (!fp8 && weight.bf16.size() == 0 && weight.f32.size() == 0) return;
  std::int64_t first = 0;  // value of the weight
  for (const WeightPart& part : spec.parts) {
    WeightSlot slot;
    slot.name = part.name;
    slot.shape = part.shape;
    slot.in_blocks = spec.in_blocks;
    slot.layer = layer;
    if (fp8) {
      const std::int64_t columns = part.shape[1];
      slot.codes = weight.fp8.codes.data() + first;
      slot.scale_span = rows_of_scale(spec.shape);
      slot.scales =
          weight.fp8.scales.data() + first / columns / slot.scale_span * scale_blocks(columns);
    } else if (spec.dtype == AS_F32) {
      slot.f32 = weight.f32.data() + first;
    } else {
      slot.bf16 = weight.bf16.data() + first;
    }
    first += slot.size();
    slots.push_back(std::move(slot));
  }
}

}  // namespace

std::int64_t WeightSlot::size() const {
  return std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>());
}

std::int64_t WeightSlot::num_scales() const {
  return (shape[0] + scale_span - 1) / scale_span * scale_blocks(shape[1]);
}

std::vector<WeightSlot> weight_slots(const ModelConfig& config, const Weights& weights) {
  const ModelWeights specs = family_of(config).weights(config);
  std::vector<WeightSlot> slots;
  for (const WeightSpec& spec : specs.around) add_slots(spec, weights.around[spec.name], -1, slots);
  for (std::size_t i = 0; i < specs.layers.size(); ++i) {
    for (const WeightSpec& spec : specs.layers[i]) {
      add_slots(spec, weights.layers[i][spec.name], config.layers[i], slots);
    }
  }
  return slots;
}

}  // namespace attnscope
