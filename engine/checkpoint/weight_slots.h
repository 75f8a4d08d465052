// The tensors of a model's weights one by one, under their published names: where a checkpoint is
// read into and what an export writes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/model/model_config.h"
#include "engine/model/weights.h"

namespace attnscope {

// Part of a Buffer. Dense, outermost axis first; exactly one of bf16, f32 and codes is set.
struct WeightSlot {
  std::string name;  // "layers.2.attn.wq_a.weight"
  std::vector<std::int64_t> shape;
  bf16_t* bf16 = nullptr;
  float* f32 = nullptr;
  std::uint8_t* codes = nullptr;  // of a projection in FP8, with scales [rows/span, columns/128]
  float* scales = nullptr;
  std::int64_t scale_span = 128;  // rows that share scales there; in a file always 128
  bool in_blocks = false;         // published in FP8 with a scale per 128 x 128
  int layer = -1;                 // published number; -1 = embedding and final norm

  std::int64_t size() const;
  std::int64_t num_scales() const;
};

// In the order of the file: what is around the layers, then layer by layer, as far as it is there.
// The slots point into `weights`, which must have the shapes of `config`.
std::vector<WeightSlot> weight_slots(const ModelConfig& config, const Weights& weights);

}  // namespace attnscope
