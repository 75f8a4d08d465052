// Weights of the layers that run, by name, in the dtypes of published checkpoints, matrices stored
// [out, in]. Which there are is said by the model's family (weight_spec.h).
//
//   weights.layers[2]["wq_b"].tensor()
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/params/tensor_view.h"

namespace attnscope {

// A dense matrix or vector that owns its memory (64-byte aligned).
template <class T>
class Buffer {
 public:
  Buffer() = default;
  explicit Buffer(std::vector<std::int64_t> shape);
  ~Buffer();
  Buffer(Buffer&& other) noexcept;
  Buffer& operator=(Buffer&& other) noexcept;
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  T* data() const { return data_; }
  std::int64_t size() const { return size_; }
  const std::vector<std::int64_t>& shape() const { return shape_; }
  as_tensor tensor() const;  // rank 1 to 4; absent tensor when empty

 private:
  T* data_ = nullptr;
  std::int64_t size_ = 0;
  std::vector<std::int64_t> shape_;
};

// A projection in FP8, as the published checkpoints have it.
struct Fp8Matrix {
  Buffer<std::uint8_t> codes;  // [out, in] e4m3
  Buffer<float> scales;        // [out/128, in/128]
};

// One weight, in one of its forms. What a rank does not have, or a layer, is in none of them.
struct Weight {
  std::string name;  // WeightSpec::name
  Buffer<bf16_t> bf16;
  Buffer<float> f32;
  Fp8Matrix fp8;

  as_tensor tensor() const;  // absent where there is none
  as_tensor scale() const;   // of its blocks; absent where it is not in FP8
  std::int64_t bytes() const;
};

// Weights by name.
class WeightList {
 public:
  // An empty one where the list has none of this name.
  const Weight& operator[](std::string_view name) const;
  // Adds one.
  Weight& operator[](std::string_view name);
  std::vector<Weight>::const_iterator begin() const { return weights_.begin(); }
  std::vector<Weight>::const_iterator end() const { return weights_.end(); }

 private:
  std::vector<Weight> weights_;
};

struct Weights {
  WeightList around;               // "embedding" [vocabulary, hidden], also the head; "final_norm"
  std::vector<WeightList> layers;  // the layers that run

  // Of a layer that runs, or of what is around them.
  const Weight& find(int layer, std::string_view name) const;
  const bf16_t* embedding() const { return around["embedding"].bf16.data(); }
  std::int64_t bytes() const;
};

}  // namespace attnscope
