#include "reference/rows.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "kernels/layout/records.h"
#include "reference/codec.h"

namespace attnscope::reference {

namespace {

void encode_latent(const double* values, std::uint8_t* payload, std::uint8_t* scales,
                   const Quantiser& quantiser) {
  for (int block = 0; block < AS_QUANT_BLOCKS; ++block) {
    const double* x = values + block * AS_QUANT_BLOCK;
    std::uint8_t* codes = payload + block * AS_QUANT_BLOCK;
    scales[block] = ue8m0_byte(encode_fp8(x, AS_QUANT_BLOCK, codes, quantiser.scale_floor));
  }
  scales[AS_QUANT_BLOCKS] = 0;  // pad byte
  for (int i = 0; i < AS_ROPE_DIM; ++i) {
    const std::uint16_t bits = bf16_bits(values[AS_NOPE_DIM + i]);
    std::memcpy(payload + AS_NOPE_DIM + 2 * i, &bits, sizeof(bits));
  }
}

void decode_latent(const std::uint8_t* payload, const std::uint8_t* scales, double* values) {
  for (int block = 0; block < AS_QUANT_BLOCKS; ++block) {
    const double scale = ue8m0_value(scales[block]);
    for (int i = block * AS_QUANT_BLOCK; i < (block + 1) * AS_QUANT_BLOCK; ++i) {
      values[i] = e4m3_value(payload[i]) * scale;
    }
  }
  for (int i = 0; i < AS_ROPE_DIM; ++i) {
    std::uint16_t bits;
    std::memcpy(&bits, payload + AS_NOPE_DIM + 2 * i, sizeof(bits));
    values[AS_NOPE_DIM + i] = bf16_value(bits);
  }
}

void encode_index_fp8(const double* values, std::uint8_t* payload, std::uint8_t* scales,
                      const Quantiser& quantiser) {
  const int exponent = encode_fp8(values, AS_INDEX_DIM, payload, quantiser.scale_floor);
  const auto scale = static_cast<float>(std::ldexp(1.0, exponent));
  std::memcpy(scales, &scale, sizeof(scale));
}

void decode_index_fp8(const std::uint8_t* payload, const std::uint8_t* scales, double* values) {
  float scale;
  std::memcpy(&scale, scales, sizeof(scale));
  for (int i = 0; i < AS_INDEX_DIM; ++i) values[i] = e4m3_value(payload[i]) * scale;
}

const char* record_name(std::int32_t record) {
  switch (record) {
    case AS_RECORD_NONE:
      return "NONE";
    case AS_RECORD_LATENT:
      return "LATENT";
    case AS_RECORD_INDEX_FP8:
      return "INDEX_FP8";
    case AS_RECORD_INDEX_MXFP4:
      return "INDEX_MXFP4";
    case AS_RECORD_STATE:
      return "STATE";
    default:
      return "unknown";
  }
}

bool allowed_record(std::int32_t record, std::int32_t expected) {
  const bool index = record == AS_RECORD_INDEX_FP8 || record == AS_RECORD_INDEX_MXFP4;
  if (expected == kAnyIndexRecord) return index;
  if (expected == kAnyEntryRecord) return index || record == AS_RECORD_LATENT;
  return record == expected;
}

std::string allowed_records(std::int32_t expected) {
  if (expected == kAnyIndexRecord) return "INDEX_FP8 or INDEX_MXFP4";
  if (expected == kAnyEntryRecord) return "LATENT, INDEX_FP8 or INDEX_MXFP4";
  return record_name(expected);
}

}  // namespace

int encode_fp8(const double* values, std::int64_t n, std::uint8_t* codes,
               std::int32_t scale_floor) {
  const int exponent = fp8_scale_exponent(abs_max(values, n), scale_floor);
  const double inverse = inverse_scale(exponent);
  for (std::int64_t i = 0; i < n; ++i) codes[i] = e4m3_code(values[i] * inverse);
  return exponent;
}

void encode_mxfp4(const double* values, std::int64_t n, std::uint8_t* packed, std::uint8_t* scales,
                  std::int32_t fp4_rule) {
  const auto code = fp4_rule == AS_FP4_DOWN ? e2m1_code_down : e2m1_code;
  for (std::int64_t block = 0; block < n / AS_MXFP4_BLOCK; ++block) {
    const double* x = values + block * AS_MXFP4_BLOCK;
    const int exponent = fp4_scale_exponent(abs_max(x, AS_MXFP4_BLOCK), fp4_rule);
    scales[block] = ue8m0_byte(exponent);
    const double inverse = inverse_scale(exponent);
    std::uint8_t* bytes = packed + block * AS_MXFP4_BLOCK / 2;
    for (int i = 0; i < AS_MXFP4_BLOCK; i += 2) {
      const std::uint8_t even = code(x[i] * inverse);
      const std::uint8_t odd = code(x[i + 1] * inverse);
      bytes[i / 2] = static_cast<std::uint8_t>(even | odd << 4);
    }
  }
}

void decode_mxfp4(const std::uint8_t* packed, const std::uint8_t* scales, std::int64_t n,
                  double* values) {
  for (std::int64_t i = 0; i < n; i += 2) {
    const double scale = ue8m0_value(scales[i / AS_MXFP4_BLOCK]);
    values[i] = e2m1_value(packed[i / 2] & 15) * scale;
    values[i + 1] = e2m1_value(packed[i / 2] >> 4) * scale;
  }
}

void encode_record(std::int32_t record, std::int64_t width, const double* values,
                   std::uint8_t* payload, std::uint8_t* scales, const Quantiser& quantiser) {
  switch (record) {
    case AS_RECORD_LATENT:
      return encode_latent(values, payload, scales, quantiser);
    case AS_RECORD_INDEX_FP8:
      return encode_index_fp8(values, payload, scales, quantiser);
    case AS_RECORD_INDEX_MXFP4:
      return encode_mxfp4(values, AS_INDEX_DIM, payload, scales, quantiser.fp4_rule);
    default:
      for (std::int64_t i = 0; i < width; ++i) {
        const auto value = static_cast<float>(values[i]);
        std::memcpy(payload + 4 * i, &value, sizeof(value));
      }
  }
}

void decode_record(std::int32_t record, std::int64_t width, const std::uint8_t* payload,
                   const std::uint8_t* scales, double* values) {
  switch (record) {
    case AS_RECORD_LATENT:
      return decode_latent(payload, scales, values);
    case AS_RECORD_INDEX_FP8:
      return decode_index_fp8(payload, scales, values);
    case AS_RECORD_INDEX_MXFP4:
      return decode_mxfp4(payload, scales, AS_INDEX_DIM, values);
    default:
      for (std::int64_t i = 0; i < width; ++i) {
        float value;
        std::memcpy(&value, payload + 4 * i, sizeof(value));
        values[i] = value;
      }
  }
}

CacheRows::CacheRows(const as_cache& cache, const char* name, std::int32_t record,
                     std::int64_t width)
    : cache_(cache), name_(name) {
  const std::string what = name;
  if (cache.addressing != AS_LOGICAL) {
    throw BadInput(what + " is paged; the references read logical rows (AS_LOGICAL)");
  }
  if (!allowed_record(cache.record, record)) {
    throw BadInput(what + " holds records of kind " + record_name(cache.record) +
                   "; allowed: " + allowed_records(record));
  }
  if (cache.width != width) {
    throw BadInput(what + " has rows of width " + std::to_string(cache.width) + "; expected " +
                   std::to_string(width));
  }
  if (cache.data.dtype == AS_U8) {
    Bytes(cache.data, name, {kAny, as_row_bytes(cache.record, width)});
  } else {
    plain_.emplace(cache.data, name, Shape{kAny, width});
  }
}

void CacheRows::load(std::int64_t row, std::int64_t token, double* values) const {
  check_index(row, rows(), name_, token);
  if (!plain_) {
    const as_row_address address = as_cache_row(&cache_, row);
    decode_record(cache_.record, cache_.width, address.payload, address.scales, values);
  } else {
    plain_->load(row, values);
  }
}

void CacheRows::store(std::int64_t row, std::int64_t token, const double* values,
                      const Precision& precision, const Quantiser& quantiser) const {
  check_index(row, rows(), name_, token);
  if (!plain_) {
    const as_row_address address = as_cache_row(&cache_, row);
    encode_record(cache_.record, cache_.width, values, address.payload, address.scales, quantiser);
    return;
  }
  if (precision.exact) {
    plain_->store(row, values);
    return;
  }
  std::vector<std::uint8_t> bytes(
      static_cast<std::size_t>(as_row_bytes(cache_.record, cache_.width)));
  std::uint8_t* scales = bytes.data() + as_payload_bytes(cache_.record, cache_.width);
  std::vector<double> read_back(static_cast<std::size_t>(cache_.width));
  encode_record(cache_.record, cache_.width, values, bytes.data(), scales, quantiser);
  decode_record(cache_.record, cache_.width, bytes.data(), scales, read_back.data());
  plain_->store(row, read_back.data());
}

}  // namespace attnscope::reference
