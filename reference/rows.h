// Cache rows as float64 values: decoding of records, and quantisation into them.
#pragma once

#include <cstdint>
#include <optional>

#include "kernels/params/numeric_rules.h"
#include "kernels/params/tensor.h"
#include "reference/precision.h"
#include "reference/tensors.h"

namespace attnscope::reference {

// What published code does in more than one way.
struct Quantiser {
  std::int32_t scale_floor = AS_SCALE_FLOOR_1E4;
  std::int32_t fp4_rule = AS_FP4_EVEN;
};

// Values <-> one record. Payload and scales lie as in kernels/layout/records.h; `scales` is unused
// for STATE records.
void encode_record(std::int32_t record, std::int64_t width, const double* values,
                   std::uint8_t* payload, std::uint8_t* scales, const Quantiser& quantiser = {});
void decode_record(std::int32_t record, std::int64_t width, const std::uint8_t* payload,
                   const std::uint8_t* scales, double* values);

// e4m3 codes of one block under a common scale 2^e; returns e.
int encode_fp8(const double* values, std::int64_t n, std::uint8_t* codes,
               std::int32_t scale_floor = AS_SCALE_FLOOR_1E4);

// The 32-dim blocks of an index query or key: packed codes and one UE8M0 byte a block.
void encode_mxfp4(const double* values, std::int64_t n, std::uint8_t* packed, std::uint8_t* scales,
                  std::int32_t fp4_rule = AS_FP4_EVEN);
void decode_mxfp4(const std::uint8_t* packed, const std::uint8_t* scales, std::int64_t n,
                  double* values);

// Kinds of records that an op may accept besides one of as_record.
inline constexpr std::int32_t kAnyEntryRecord = -1;  // LATENT or an index format
inline constexpr std::int32_t kAnyIndexRecord = -2;  // an index format

// A logical cache: rows by number, checked against its size.
class CacheRows {
 public:
  CacheRows(const as_cache& cache, const char* name, std::int32_t record, std::int64_t width);

  std::int64_t rows() const { return cache_.data.shape[0]; }
  std::int64_t width() const { return cache_.width; }
  std::int32_t record() const { return cache_.record; }
  void load(std::int64_t row, std::int64_t token, double* values) const;
  // Quantises as the cache's dtype and the precision ask for (register.h).
  void store(std::int64_t row, std::int64_t token, const double* values, const Precision& precision,
             const Quantiser& quantiser = {}) const;

 private:
  as_cache cache_;
  const char* name_;
  std::optional<FloatRows> plain_;  // absent for records
};

}  // namespace attnscope::reference
