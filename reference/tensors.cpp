#include "reference/tensors.h"

#include <algorithm>
#include <cstring>

namespace attnscope::reference {

namespace {

std::string shape_text(const std::int64_t* shape, std::int64_t rank) {
  std::string text = "[";
  for (std::int64_t i = 0; i < rank; ++i) {
    if (i > 0) text += ",";
    text += shape[i] == kAny ? "*" : std::to_string(shape[i]);
  }
  return text + "]";
}

const char* allowed_dtypes(Kind kind) {
  switch (kind) {
    case Kind::kFloat:
      return "f64, f32 or bf16";
    case Kind::kInteger:
      return "i32 or i64";
    default:
      return "u8";
  }
}

bool has_kind(std::int32_t dtype, Kind kind) {
  switch (kind) {
    case Kind::kFloat:
      return dtype == AS_F64 || dtype == AS_F32 || dtype == AS_BF16;
    case Kind::kInteger:
      return dtype == AS_I32 || dtype == AS_I64;
    default:
      return dtype == AS_U8;
  }
}

template <class T>
T element(const void* data, std::int64_t index) {
  T value;
  std::memcpy(&value, static_cast<const T*>(data) + index, sizeof(T));
  return value;
}

template <class T>
void set_element(void* data, std::int64_t index, T value) {
  std::memcpy(static_cast<T*>(data) + index, &value, sizeof(T));
}

}  // namespace

void check(const as_tensor& tensor, const char* name, Kind kind, Shape shape) {
  const auto rank = static_cast<std::int64_t>(shape.size());
  const auto expected = [&] { return shape_text(shape.begin(), rank); };
  if (tensor.device != 0) {
    throw BadInput(std::string(name) + " lies on device " + std::to_string(tensor.device) +
                   "; the references run on the host: copy it there (device 0) first");
  }
  if (!has_kind(tensor.dtype, kind)) {
    throw BadInput(std::string(name) + " has dtype " + as_dtype_name(tensor.dtype) +
                   "; allowed: " + allowed_dtypes(kind));
  }
  if (tensor.rank != rank || tensor.rank > AS_MAX_RANK) {
    throw BadInput(std::string(name) + " has rank " + std::to_string(tensor.rank) +
                   "; expected shape " + expected() + " (* = any size)");
  }
  const bool fits = std::equal(shape.begin(), shape.end(), tensor.shape,
                               [](std::int64_t want, std::int64_t have) {
                                 return have >= 0 && (want == kAny || want == have);
                               });
  if (!fits) {
    throw BadInput(std::string(name) + " has shape " + shape_text(tensor.shape, rank) +
                   "; expected " + expected() + " (* = any size)");
  }
  if (tensor.data == nullptr && as_tensor_numel(&tensor) > 0) {
    throw BadInput(std::string(name) + " has no data; expected shape " + expected());
  }
}

void check_dense_rows(const as_tensor& tensor, const char* name) {
  const std::int32_t last = tensor.rank - 1;
  if (last < 0 || tensor.shape[last] <= 1 || tensor.stride[last] == 1) return;
  throw BadInput(std::string(name) + " has gaps between the elements of a row; stride 1 is needed");
}

Integers::Integers(const as_tensor& tensor, const char* name, Shape shape) : tensor_(tensor) {
  check(tensor, name, Kind::kInteger, shape);
  for (int d = tensor_.rank; d < AS_MAX_RANK; ++d) tensor_.stride[d] = 0;
}

std::int64_t Integers::get(std::int64_t i, std::int64_t j, std::int64_t k) const {
  const std::int64_t index = offset(i, j, k);
  return tensor_.dtype == AS_I32 ? element<std::int32_t>(tensor_.data, index)
                                 : element<std::int64_t>(tensor_.data, index);
}

void Integers::set(std::int64_t value, std::int64_t i, std::int64_t j, std::int64_t k) const {
  const std::int64_t index = offset(i, j, k);
  if (tensor_.dtype == AS_I32) {
    set_element(tensor_.data, index, static_cast<std::int32_t>(value));
  } else {
    set_element(tensor_.data, index, value);
  }
}

Bytes::Bytes(const as_tensor& tensor, const char* name, Shape shape) : tensor_(tensor) {
  check(tensor, name, Kind::kBytes, shape);
  check_dense_rows(tensor, name);
}

void check_index(std::int64_t index, std::int64_t size, const char* what, std::int64_t token) {
  if (index >= 0 && index < size) return;
  throw BadInput(std::string(what) + " " + std::to_string(index) + " of token " +
                 std::to_string(token) + " is out of range; allowed: 0 to " +
                 std::to_string(size - 1));
}

void check_rule(const char* name, std::int32_t value, std::int32_t last) {
  if (value >= 0 && value <= last) return;
  throw BadInput(std::string(name) + " is " + std::to_string(value) + "; allowed: 0 to " +
                 std::to_string(last));
}

}  // namespace attnscope::reference
