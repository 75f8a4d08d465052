// Rows of logical caches as float64 values: decoding of records, and quantisation into them.
#pragma once

#include <cstdint>

#include "kernels/params/tensor.h"
#include "reference/torch/numbers.h"
#include "reference/torch/tensors.h"

namespace attnscope::reference {

// What published code does in more than one way.
struct Quantiser {
  std::int32_t scale_floor = AS_SCALE_FLOOR_1E4;
  std::int32_t fp4_rule = AS_FP4_EVEN;
  std::int32_t scale_rule = AS_SCALE_POWER_OF_TWO;  // of index keys and LATENT_656
};

// FP8 under a scale for each `block` of the last dimension.
struct Fp8 {
  Tensor codes;      // as the values
  Tensor exponents;  // [..., blocks]
};
Fp8 encode_fp8(const Tensor& x, std::int64_t block, std::int32_t scale_floor = AS_SCALE_FLOOR_1E4);
// The same under fp32 scales by as_scale_rule.
struct ScaledFp8 {
  Tensor codes;   // as the values
  Tensor scales;  // [..., blocks]
};
ScaledFp8 encode_fp8_by(std::int32_t scale_rule, const Tensor& x, std::int64_t block);
// Codes times the scales of their blocks.
Tensor decode_fp8(const Tensor& codes, const Tensor& scales);

// MXFP4: two codes a byte, the even one low, and a UE8M0 byte for each 32 values.
struct Mxfp4 {
  Tensor packed;  // [..., n / 2]
  Tensor scales;  // [..., n / 32]
};
Mxfp4 encode_mxfp4(const Tensor& x, std::int32_t fp4_rule = AS_FP4_EVEN);
Tensor decode_mxfp4(const Tensor& packed, const Tensor& scales);

// Kinds of records that an op may accept besides one of as_record.
inline constexpr std::int32_t kAnyEntryRecord = -1;  // LATENT or an index format
inline constexpr std::int32_t kAnyIndexRecord = -2;  // an index format
inline constexpr std::int32_t kKvRecord = -3;        // of keys or values (kv_codes.h), any heads
inline constexpr std::int32_t kMlaRecord = -4;       // LATENT_656, or bf16

// A logical cache: rows by number, checked against its size.
class CacheRows {
 public:
  // scales: of a cache of keys or values, beside it; none where there are none.
  CacheRows(const as_cache& cache, const char* name, std::int32_t record, std::int64_t width,
            std::int64_t heads = 1, const as_tensor* scales = nullptr);

  std::int64_t size() const { return cache_.data.shape[0]; }
  std::int64_t width() const { return cache_.width; }
  // [N,width] of rows [N].
  Tensor load(const Tensor& rows) const;
  // values [T,width] to rows slots[t], nothing for a negative one; of two for one row the later one
  // stays. Quantises as the cache's dtype and the lane ask for (register.h).
  void store(const Tensor& slots, const Tensor& values, const Numbers& numbers,
             const Quantiser& quantiser = {}) const;

 private:
  bool plain() const { return cache_.data.dtype != AS_U8; }
  Tensor encoded(const Tensor& values, const Quantiser& quantiser) const;
  Tensor decoded(const Tensor& rows) const;

  as_cache cache_;
  const char* name_;
  Tensor scales_;  // [1] or [heads], undefined where none are beside the cache
};

}  // namespace attnscope::reference
