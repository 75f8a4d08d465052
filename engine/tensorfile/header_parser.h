// The JSON header of a safetensors file as it stands there, before anything is checked against the
// bytes that follow. Internal to tensor_file.cpp.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "engine/tensorfile/element_type.h"
#include "kernels/params/result.h"

namespace attnscope {

struct RawTensor {
  std::string name;
  ElementType type = ElementType::kU8;
  std::vector<std::uint64_t> shape;
  std::uint64_t begin = 0, end = 0;
};

struct RawHeader {
  std::vector<RawTensor> tensors;
  std::map<std::string, std::string> metadata;
};

// Refuses duplicate names, unknown and missing keys, values of another kind, numbers that are not
// whole or do not fit 64 bits. file: for messages.
Result<RawHeader> parse_header(std::string_view text, const std::string& file);

}  // namespace attnscope
