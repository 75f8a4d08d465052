// An op of the table (kernels/params/op_table.h) as cases, plugins and scripts walk its struct: by
// its taps and fields, so that a new op needs no code of its own there.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "kernels/params/op_table.h"
#include "kernels/params/result.h"
#include "kernels/params/tensor.h"

namespace attnscope {

struct CaseOp {
  const char* name = "";
  const char* summary = "";
  std::int32_t id = -1;  // as_op_id
  bool helper = false;   // has no place in a step
  std::size_t params_size = 0;
  std::span<const as_tap_info> taps;
  std::span<const as_param_info> fields;
};

std::optional<CaseOp> find_case_op(std::int32_t id);
// AS_BAD_INPUT with the names there are.
Result<CaseOp> case_op_by_name(std::string_view name);

// Whether a lane reads this tap: inputs, and the row before quantisation of a struct that gives it.
// `params` is a struct of the op with its numbers set.
bool reads_tap(const as_tap_info& tap, const void* params);

// What a field or a tap of a struct is.
inline std::int32_t& integer_at(void* params, std::size_t offset) {
  return *reinterpret_cast<std::int32_t*>(static_cast<char*>(params) + offset);
}
inline std::int32_t integer_at(const void* params, std::size_t offset) {
  return *reinterpret_cast<const std::int32_t*>(static_cast<const char*>(params) + offset);
}
inline as_tensor& tensor_at(void* params, std::size_t offset) {
  return *reinterpret_cast<as_tensor*>(static_cast<char*>(params) + offset);
}
inline const as_tensor& tensor_at(const void* params, std::size_t offset) {
  return *reinterpret_cast<const as_tensor*>(static_cast<const char*>(params) + offset);
}
inline as_cache& cache_at(void* params, std::size_t offset) {
  return *reinterpret_cast<as_cache*>(static_cast<char*>(params) + offset);
}
inline const as_cache& cache_at(const void* params, std::size_t offset) {
  return *reinterpret_cast<const as_cache*>(static_cast<const char*>(params) + offset);
}
inline as_rope& rope_at(void* params, std::size_t offset) {
  return *reinterpret_cast<as_rope*>(static_cast<char*>(params) + offset);
}
inline const as_rope& rope_at(const void* params, std::size_t offset) {
  return *reinterpret_cast<const as_rope*>(static_cast<const char*>(params) + offset);
}

}  // namespace attnscope
