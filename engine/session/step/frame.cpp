#include "engine/session/step/frame.h"

#include <algorithm>
#include <cstdlib>
#include <new>
#include <utility>

#include "kernels/params/tensor_view.h"

namespace attnscope {

as_tensor dense_tensor(void* data, std::int32_t dtype, std::span<const std::int64_t> shape) {
  as_tensor t{};
  t.data = data;
  t.dtype = dtype;
  t.rank = static_cast<std::int32_t>(shape.size());
  std::int64_t stride = 1;
  for (std::int32_t i = t.rank - 1; i >= 0; --i) {
    t.shape[i] = shape[static_cast<std::size_t>(i)];
    t.stride[i] = stride;
    stride *= t.shape[i];
  }
  return t;
}

namespace {

constexpr std::size_t kLarge = std::size_t{1} << 20;
// Memory goes after so many tensors in a row that need less than this share of it.
constexpr std::size_t kShare = 8;
constexpr int kSmallInARow = 12;

std::size_t bytes_of(std::int32_t dtype, std::span<const std::int64_t> shape) {
  std::size_t bytes = static_cast<std::size_t>(as_dtype_size(dtype));
  for (std::int64_t n : shape) bytes *= static_cast<std::size_t>(n);
  return bytes;
}

HostMemory& host_memory() {
  static HostMemory chosen{nullptr, nullptr};
  return chosen;
}

}  // namespace

void use_host_memory(HostMemory memory) { host_memory() = memory; }

void Scratch::allocate(std::size_t bytes) {
  memory_.reset();
  const HostMemory chosen = host_memory();
  void* memory = nullptr;
  if (chosen.allocate != nullptr && bytes >= kLarge) memory = chosen.allocate(bytes);
  if (memory != nullptr) {
    memory_ = {memory, Free{chosen.release}};
    return;
  }
  memory_ = {std::aligned_alloc(64, bytes), Free{std::free}};
  if (!memory_) throw std::bad_alloc();
}

// Memory of a device's driver is dear to get: it stays.
bool Scratch::lets_go(std::size_t bytes) const {
  if (capacity_ == 0 || bytes > capacity_) return capacity_ > 0;
  const bool own = memory_.get_deleter().release == &std::free;
  return own && capacity_ >= kLarge && bytes < capacity_ / kShare && small_ >= kSmallInARow;
}

bool Scratch::let_go_for(std::int32_t dtype, std::span<const std::int64_t> shape) const {
  return lets_go(bytes_of(dtype, shape));
}

as_tensor Scratch::make(std::int32_t dtype, std::span<const std::int64_t> shape) {
  const std::size_t bytes = bytes_of(dtype, shape);
  if (capacity_ == 0 || lets_go(bytes)) {
    const std::size_t rounded = (bytes / 64 + 1) * 64;
    capacity_ = 0;
    small_ = 0;
    allocate(rounded);
    capacity_ = rounded;
  }
  small_ = bytes < capacity_ / kShare ? std::min(small_ + 1, kSmallInARow) : 0;
  return dense_tensor(memory_.get(), dtype, shape);
}

as_tensor Scratch::make_like(std::int32_t dtype, const as_tensor& shape) {
  return make(dtype, std::span(shape.shape, static_cast<std::size_t>(shape.rank)));
}

Frame::Slot& Frame::slot(ValueId value) {
  const auto i = static_cast<std::size_t>(value);
  if (i >= slots_.size()) slots_.resize(i + 1);
  return slots_[i];
}

as_tensor Frame::get(ValueId value) const {
  const auto i = static_cast<std::size_t>(value);
  return i < slots_.size() ? slots_[i].tensor : no_tensor();
}

as_tensor Frame::make(ValueId value, std::int32_t kernel_dtype,
                      std::span<const std::int64_t> shape) {
  const bool is_float = kernel_dtype == AS_BF16 || kernel_dtype == AS_F32;
  const std::int32_t dtype = kind_ == Kind::kExact && is_float ? AS_F64 : kernel_dtype;
  Slot& made = slot(value);
  if (made.memory.let_go_for(dtype, shape)) {
    outgrown_.push_back(std::exchange(made.memory, Scratch()));
  }
  made.tensor = made.memory.make(dtype, shape);
  return made.tensor;
}

void Frame::swap(ValueId a, ValueId b) {
  const auto most = static_cast<std::size_t>(std::max(a, b));
  if (most >= slots_.size()) slots_.resize(most + 1);
  std::swap(slot(a), slot(b));
}

}  // namespace attnscope
