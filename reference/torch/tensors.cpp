#include "reference/torch/tensors.h"

#include <array>

#include "reference/torch/numbers.h"

namespace attnscope::reference {

namespace {

// Rounding takes one pass on the host and ten calls on a GPU, to where the numbers go anyway.
constexpr std::int64_t kRoundedOnHost = 1 << 16;
// What is as small as this goes to a GPU without waiting.
constexpr std::int64_t kSentAsDoubles = 1 << 13;

Tensor few_on_host(const Tensor& values) {
  return values.is_cpu() || values.numel() > kRoundedOnHost ? values : values.cpu();
}

at::ScalarType type_of(std::int32_t dtype) {
  switch (dtype) {
    case AS_F64:
      return at::kDouble;
    case AS_F32:
      return at::kFloat;
    case AS_BF16:
      return at::kBFloat16;
    case AS_I32:
      return at::kInt;
    case AS_I64:
      return at::kLong;
    default:
      return at::kByte;
  }
}

}  // namespace

Tensor in_place(const as_tensor& t) {
  const at::IntArrayRef shape(t.shape, static_cast<std::size_t>(t.rank));
  if (as_tensor_numel(&t) == 0) return at::empty(shape, type_of(t.dtype));
  const at::IntArrayRef strides(t.stride, static_cast<std::size_t>(t.rank));
  return at::from_blob(t.data, shape, strides, type_of(t.dtype));
}

Tensor floats(const as_tensor& tensor, const char* name, Shape shape) {
  check(tensor, name, Kind::kFloat, shape);
  const Tensor values = in_place(tensor);
  if (values.numel() <= kSentAsDoubles) return doubles(values).to(torch_device());
  return doubles(values.to(torch_device()));
}

Tensor integers(const as_tensor& tensor, const char* name, Shape shape) {
  check(tensor, name, Kind::kInteger, shape);
  return in_place(tensor).to(at::kLong);
}

Tensor bytes(const as_tensor& tensor, const char* name, Shape shape) {
  check(tensor, name, Kind::kBytes, shape);
  check_dense_rows(tensor, name);
  return in_place(tensor).to(torch_device());
}

Tensor stored_as(const Tensor& values, at::ScalarType type) {
  return type == at::kBFloat16 ? in_bf16(values) : values.to(type);
}

void put(const as_tensor& tensor, const Tensor& values) {
  Tensor out = in_place(tensor);
  if (out.scalar_type() != at::kBFloat16) {
    out.copy_(values);
    return;
  }
  const Tensor v = few_on_host(values);
  if (v.is_cpu() && v.sizes() == out.sizes()) {
    to_bf16(v, out);
  } else {
    out.copy_(in_bf16(v));
  }
}

void put_bf16(const as_tensor& tensor, const Tensor& values, const Numbers& numbers) {
  put(tensor, tensor.dtype == AS_BF16 ? values : numbers.bf16(few_on_host(values)));
}

void put_rows(const as_tensor& tensor, const Tensor& which, const Tensor& values) {
  Tensor out = in_place(tensor);
  out.index_copy_(0, which, stored_as(few_on_host(values), out.scalar_type()).cpu());
}

as_tensor narrow(as_tensor tensor, int dim, std::int64_t first, std::int64_t n) {
  tensor.data =
      static_cast<char*>(tensor.data) + first * tensor.stride[dim] * as_dtype_size(tensor.dtype);
  tensor.shape[dim] = n;
  return tensor;
}

as_tensor select(const as_tensor& tensor, int dim, std::int64_t i) {
  as_tensor slice = narrow(tensor, dim, i, 1);
  --slice.rank;
  for (int d = dim; d < slice.rank; ++d) {
    slice.shape[d] = tensor.shape[d + 1];
    slice.stride[d] = tensor.stride[d + 1];
  }
  return slice;
}

void check_indices(const Tensor& indices, std::int64_t size, const char* what, std::int64_t first) {
  const Tensor wrong = indices.lt(0).logical_or_(indices.ge(size));
  if (!wrong.any().item<bool>()) return;
  const std::int64_t token = first + wrong.nonzero()[0][0].item<std::int64_t>();
  check_index(indices.masked_select(wrong)[0].item<std::int64_t>(), size, what, token);
}

}  // namespace attnscope::reference
