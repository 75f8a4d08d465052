// Weights of the layers that run, in the dtypes of the published checkpoints (bf16 matrices and
// norms, fp32 ape and sinks), stored [out, in].
//
// synthetic_weights() is seeded and counter-based: the same bytes for any number of threads. Scales
// are chosen so that logits, softmax and sinks lie in realistic ranges (see weights.cpp).
#pragma once

#include <cstdint>
#include <vector>

#include "engine/model/model_config.h"
#include "kernels/params/lane.h"
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

struct CompressorWeights {
  Buffer<bf16_t> kv_gate;  // [2*coff*d, hidden]: W_kv over W_gate
  Buffer<float> ape;       // [ratio, coff*d]
  Buffer<bf16_t> norm;     // [d]
};

// A projection in FP8, as the published checkpoints have it.
struct Fp8Matrix {
  Buffer<std::uint8_t> codes;  // [out, in] e4m3
  Buffer<float> scales;        // [out/128, in/128]
};

// Those that the switch `projections` puts in FP8 and whose sides are multiples of 128; the bf16
// matrix of the same name is empty then.
struct Fp8Projections {
  Fp8Matrix wq_kv_a, wq_b, wo_b, indexer_wq_b;
};

struct LayerWeights {
  Buffer<bf16_t> attn_norm;              // [hidden]
  Buffer<bf16_t> wq_kv_a;                // [q_lora + 512, hidden]: wq_a over wkv
  Buffer<bf16_t> q_norm;                 // [q_lora]
  Buffer<bf16_t> kv_norm;                // [512]
  Buffer<bf16_t> wq_b;                   // [heads*512, q_lora]
  Buffer<float> sinks;                   // [heads]
  Buffer<bf16_t> wo_a;                   // [o_groups, o_lora, heads/o_groups*512]
  Buffer<bf16_t> wo_b;                   // [hidden, o_groups*o_lora]
  CompressorWeights compressor;          // ratio > 0
  CompressorWeights indexer_compressor;  // C4A, d = 128
  Buffer<bf16_t> indexer_wq_b;           // C4A [index_heads*128, q_lora]
  Buffer<bf16_t> indexer_weights_proj;   // C4A [index_heads, hidden]
  Fp8Projections fp8;
};

struct Weights {
  Buffer<bf16_t> embedding;          // [256, hidden], also the head
  Buffer<bf16_t> final_norm;         // [hidden]
  std::vector<LayerWeights> layers;  // the layers that run

  std::int64_t bytes() const;
};

// Adds config.sink_shift to every sink; where weights are made or read.
void shift_sinks(const ModelConfig& config, Weights& weights);

Weights synthetic_weights(const ModelConfig& config, std::uint64_t seed, const as_threads* threads);

}  // namespace attnscope
