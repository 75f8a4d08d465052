// What weights a model has, as its family lists them (engine/family/family.h). From the list come
// their memory, the random values of synthetic models and their names in a checkpoint.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kernels/params/tensor.h"

namespace attnscope {

// The values of a synthetic weight; each is a function of the seed, the key and its index
// (synthetic_fill.h).
struct WeightFill {
  enum class Kind {
    kNormal,   // offset + scale * N(0, 1)
    kUniform,  // scale * U[-1, 1)
    kStrata    // from offset to offset + scale in equal steps, shuffled
  };
  Kind kind = Kind::kNormal;
  std::string key;  // "layers.2.attn.wq_a"
  double scale = 1;
  double offset = 0;
};

// A tensor of a checkpoint: some rows of a weight, or all of it.
struct WeightPart {
  std::string name;                 // as published: "layers.2.attn.wq_a.weight"
  std::string label;                // within a layer: "wq_a"
  std::vector<std::int64_t> shape;  // as published
  WeightFill fill;
};

// A weight as the ops of the graph have it.
struct WeightSpec {
  std::string name;                 // within a layer: "wq_kv_a"
  std::vector<std::int64_t> shape;  // matrices [out, in]
  std::vector<WeightPart> parts;    // one upon the other
  std::int32_t dtype = AS_BF16;     // or AS_F32
  bool in_blocks = false;           // published in FP8 with a scale per 128 x 128
  bool projection = false;          // e4m3 codes where the switch `projections` says fp8
  // Values (fp32) that follow from the model's numbers: in no file (no parts), no parameters.
  std::vector<float> given = {};

  std::int64_t size() const {
    std::int64_t n = 1;
    for (const std::int64_t axis : shape) n *= axis;
    return n;
  }
};

// In the order of published files.
struct ModelWeights {
  std::vector<WeightSpec> around;               // "embedding", "final_norm"
  std::vector<std::vector<WeightSpec>> layers;  // of the layers that run
};

}  // namespace attnscope
