#include "engine/session/frame.h"

#include <cstdlib>
#include <new>
#include <utility>

#include "kernels/params/tensor_view.h"

namespace attnscope {

void Scratch::Free::operator()(void* p) const { std::free(p); }

as_tensor Scratch::make(std::int32_t dtype, std::initializer_list<std::int64_t> shape) {
  std::size_t bytes = static_cast<std::size_t>(as_dtype_size(dtype));
  for (std::int64_t n : shape) bytes *= static_cast<std::size_t>(n);
  if (bytes > capacity_ || capacity_ == 0) {
    const std::size_t rounded = (bytes / 64 + 1) * 64;
    memory_.reset(std::aligned_alloc(64, rounded));
    if (!memory_) throw std::bad_alloc();
    capacity_ = rounded;
  }
  return make_tensor(memory_.get(), dtype, shape);
}

as_tensor Scratch::make_like(std::int32_t dtype, const as_tensor& shape) {
  const auto* n = shape.shape;
  switch (shape.rank) {
    case 1:
      return make(dtype, {n[0]});
    case 2:
      return make(dtype, {n[0], n[1]});
    case 3:
      return make(dtype, {n[0], n[1], n[2]});
    default:
      return make(dtype, {n[0], n[1], n[2], n[3]});
  }
}

as_tensor Frame::make(Act act, std::int32_t kernel_dtype,
                      std::initializer_list<std::int64_t> shape) {
  const bool is_float = kernel_dtype == AS_BF16 || kernel_dtype == AS_F32;
  const std::int32_t dtype = kind_ != Kind::kEngine && is_float ? AS_F64 : kernel_dtype;
  const auto i = static_cast<std::size_t>(act);
  tensors_[i] = scratch_[i].make(dtype, shape);
  return tensors_[i];
}

void Frame::swap(Act a, Act b) {
  std::swap(tensors_[static_cast<std::size_t>(a)], tensors_[static_cast<std::size_t>(b)]);
  std::swap(scratch_[static_cast<std::size_t>(a)], scratch_[static_cast<std::size_t>(b)]);
}

std::size_t Frame::bytes() const {
  std::size_t sum = 0;
  for (const Scratch& scratch : scratch_) sum += scratch.bytes();
  return sum;
}

}  // namespace attnscope
