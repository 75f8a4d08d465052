// The tensors of one step as one party sees them: the engine (bf16, fp32, bytes) or a free-running
// reference (float64). Named by what they hold; shapes as in the op table.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>

#include "kernels/params/tensor.h"

namespace attnscope {

enum class Act {
  kHidden,           // [T,hidden] residual stream entering the layer
  kNormed,           // [T,hidden]
  kQkv,              // [T,q_lora+512]
  kQr,               // [T,q_lora]
  kKv,               // [T,512]
  kQRaw,             // [T,H,512]
  kQ,                // [T,H,512]
  kKvRow,            // [T,512]
  kProj,             // [T,2cd] attention compressor
  kRow,              // [T,512]
  kIndexProj,        // [T,2cd] indexer compressor
  kIndexRow,         // [T,128]
  kIndexQRaw,        // [T,J,128]
  kIndexWeightsRaw,  // [T,J]
  kIndexQRow,        // [T,J,128]
  kIndexQ,           // [T,J,bytes]
  kIndexQScale,      // [T,J,4]
  kIndexWeights,     // [T,J]
  kLogits,           // [T,N]
  kTopK,             // [T,K]
  kTopKSlots,        // [T,K]
  kTopKLens,         // [T]
  kO,                // [T,H,512]
  kLse,              // [T,H]
  kORotated,         // [T,H,512]
  kZ,                // [T,groups,o_lora]
  kY,                // [T,hidden]
  kYSum,             // [T,hidden] kY over all ranks, where there are several
  kHiddenOut,        // [T,hidden]
  kLast,             // [N,hidden] rows to sample from
  kLastNormed,       // [N,hidden]
  kHeadLogits,       // [N,V]
  kSampled,          // [N]
  kCount
};

// Memory for tensors that grows to the largest step and is then reused.
class Scratch {
 public:
  // A dense tensor of this shape, contents undefined; valid until the next make() of this Scratch.
  as_tensor make(std::int32_t dtype, std::initializer_list<std::int64_t> shape);
  as_tensor make_like(std::int32_t dtype, const as_tensor& shape);
  std::size_t bytes() const { return capacity_; }

 private:
  struct Free {
    void operator()(void* p) const;
  };
  std::unique_ptr<void, Free> memory_;
  std::size_t capacity_ = 0;
};

class Frame {
 public:
  // float64: every float and code tensor is F64 (ref.exact; ref.sim keeps codes as U8).
  enum class Kind { kEngine, kSim, kExact };
  explicit Frame(Kind kind) : kind_(kind) {}

  Kind kind() const { return kind_; }
  // kernel_dtype: the engine's; mapped to F64 for references where it is a float.
  as_tensor make(Act act, std::int32_t kernel_dtype, std::initializer_list<std::int64_t> shape);
  const as_tensor& get(Act act) const { return tensors_[static_cast<std::size_t>(act)]; }
  // A tensor that another frame made, as long as that one keeps it.
  void borrow(Act act, const Frame& from) {
    tensors_[static_cast<std::size_t>(act)] = from.get(act);
  }
  void swap(Act a, Act b);
  void clear(Act act) { tensors_[static_cast<std::size_t>(act)] = as_tensor{}; }
  std::size_t bytes() const;

 private:
  Kind kind_;
  std::array<as_tensor, static_cast<std::size_t>(Act::kCount)> tensors_{};
  std::array<Scratch, static_cast<std::size_t>(Act::kCount)> scratch_;
};

}  // namespace attnscope
