// A checkpoint whose tensors are stored in another type of float than published ones, with values
// that have more than bf16 holds: what is rounded twice on the way becomes another value than what
// is rounded once.
#pragma once

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "engine/tensorfile/float_value.h"
#include "engine/tensorfile/tensor_writer.h"

namespace attnscope {

// Nearest binary16; of values in its range.
inline std::uint16_t to_f16(double value) {
  const std::uint16_t sign = std::signbit(value) ? 0x8000 : 0;
  int exponent = 0;
  std::frexp(value, &exponent);
  const int step = std::max(exponent - 11, -24);
  const auto units = static_cast<int>(std::nearbyint(std::ldexp(std::fabs(value), -step)));
  return static_cast<std::uint16_t>(sign + units + (step + 24) * 1024);
}

// F64: every third value is moved up to where it is above the middle of two bf16 numbers by less
// than fp32 holds. F16: the three bits that bf16 has no room for count up.
inline void append_stored(double value, std::size_t i, ElementType type,
                          std::vector<std::uint8_t>& bytes) {
  const auto append = [&](auto stored) {
    const auto* p = reinterpret_cast<const std::uint8_t*>(&stored);
    bytes.insert(bytes.end(), p, p + sizeof(stored));
  };
  if (type == ElementType::kF16) {
    append(static_cast<std::uint16_t>(to_f16(value) | (i & 7)));
  } else {
    int exponent = 0;
    std::frexp(value, &exponent);
    const double up = std::ldexp(1 + 0x1p-30, exponent - 9);
    append(value == 0 || i % 3 != 0 ? value : value + std::copysign(up, value));
  }
}

// Rewrites all shards; codes and their scales stay.
inline void store_otherwise(const std::string& folder, ElementType type) {
  for (const auto& at : std::filesystem::directory_iterator(folder)) {
    if (at.path().extension() != ".safetensors") continue;
    auto file = TensorFile::open(at.path().string());
    ASSERT_TRUE(file) << file.error().text();
    TensorWriter writer;
    for (const TensorEntry& entry : file->tensors()) {
      if (!is_float(entry.type)) {
        writer.add(entry.name, entry.type, entry.shape, entry.data, entry.bytes);
        continue;
      }
      std::vector<std::uint8_t> bytes;
      for (std::int64_t i = 0; i < entry.elements; ++i) {
        append_stored(float_value(entry, i), static_cast<std::size_t>(i), type, bytes);
      }
      writer.add_owned(entry.name, type, entry.shape, std::move(bytes));
    }
    ASSERT_TRUE(writer.write(at.path().string()));
  }
}

}  // namespace attnscope
