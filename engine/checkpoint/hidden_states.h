// Inputs of layers that were recorded elsewhere: for every layer the rows that attention is fed,
// after the layer's norm. A safetensors file with one tensor per layer,
//
//   layers.2.attn_norm.y          [rows, hidden] or [1, rows, hidden], BF16, F16, F32 or F64
//   NAME/layers.2.attn_norm.y     the same for the request NAME alone, which then comes first
//
// where row p belongs to position p of the request. Values wider than bf16 are rounded for the
// engine and for ref.sim; ref.exact takes them as they are.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "engine/model/model_config.h"
#include "engine/tensorfile/tensor_file.h"
#include "kernels/params/tensor_view.h"

namespace attnscope {

class HiddenStates {
 public:
  struct Need {
    std::string request;
    std::int64_t rows = 0;  // of its prompt: at least as many there must be
  };
  // AS_BAD_INPUT names file, tensor and what was expected of it.
  static Result<std::shared_ptr<const HiddenStates>> open(const std::string& path,
                                                          const ModelConfig& config,
                                                          const std::vector<Need>& needs);

  // Positions that all running layers have rows for.
  std::int64_t rows(std::int32_t request) const;
  // Row of a running layer (its index), request and position; `out` holds hidden values. As bf16
  // with one rounding.
  void row(int layer, std::int32_t request, std::int64_t position, bf16_t* out) const;
  void row(int layer, std::int32_t request, std::int64_t position, double* out) const;

  static std::string tensor_name(int published_layer);

 private:
  HiddenStates(TensorFile file, std::int64_t hidden) : file_(std::move(file)), hidden_(hidden) {}

  TensorFile file_;
  std::int64_t hidden_;
  std::vector<std::vector<const TensorEntry*>> entries_;  // by request, running layer
};

}  // namespace attnscope
