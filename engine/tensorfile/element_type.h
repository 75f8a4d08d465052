// Element types of safetensors files, with their names there and their sizes.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "kernels/params/dtype.h"

namespace attnscope {

// F8* are raw codes here: nobody but a codec gives them a value.
enum class ElementType {
  kF64,
  kF32,
  kF16,
  kBf16,
  kI64,
  kI32,
  kI16,
  kI8,
  kU64,
  kU32,
  kU16,
  kU8,
  kBool,
  kF8E4m3,
  kF8E5m2,
  kF8E4m3Fnuz,
  kF8E5m2Fnuz,
  kF8E8m0,
  kF4,  // two in a byte
};

const char* element_name(ElementType type);  // "BF16", "F8_E4M3", ..
int element_bits(ElementType type);
std::optional<ElementType> element_by_name(std::string_view name);
// All names, for messages.
std::string element_names();

// The type that holds an as_dtype.
ElementType element_of(std::int32_t dtype);
// The as_dtype with the same bytes: one-byte codes become AS_U8; -1 where there is none.
std::int32_t dtype_of(ElementType type);

}  // namespace attnscope
