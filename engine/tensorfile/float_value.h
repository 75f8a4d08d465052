// Values of the float types of safetensors files, as float64, which holds all of them.
#pragma once

#include <cstdint>

#include "engine/tensorfile/tensor_file.h"

namespace attnscope {

bool is_float(ElementType type);  // F64, F32, F16 or BF16

// Of an element of such a type; may be unaligned.
double float_value(ElementType type, const std::uint8_t* at);
double float_value(const TensorEntry& entry, std::int64_t i);

}  // namespace attnscope
