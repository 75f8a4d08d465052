// Memory of Buffer<T>: zero-filled, 64-byte aligned.
#include <sys/mman.h>

#include <cstdlib>
#include <cstring>
#include <new>
#include <utility>

#include "engine/model/weights.h"

namespace attnscope {
namespace {

constexpr std::size_t kBufferAlignment = 64;
// From this size on memory comes straight from the kernel: zero pages on first touch (so that the
// threads that fill a tensor also fault it in) and huge pages where the system allows them.
constexpr std::size_t kMapFrom = std::size_t{4} << 20;

void* allocate(std::size_t bytes) {
  if (bytes >= kMapFrom) {
    void* p = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) throw std::bad_alloc();
    ::madvise(p, bytes, MADV_HUGEPAGE);  // a hint; failure changes nothing but speed
    return p;
  }
  const std::size_t rounded = (bytes + kBufferAlignment - 1) / kBufferAlignment * kBufferAlignment;
  void* p = std::aligned_alloc(kBufferAlignment, rounded);
  if (p == nullptr) throw std::bad_alloc();
  std::memset(p, 0, rounded);
  return p;
}

void release(void* p, std::size_t bytes) {
  if (p == nullptr) return;
  if (bytes >= kMapFrom) {
    ::munmap(p, bytes);
  } else {
    std::free(p);
  }
}

}  // namespace

template <class T>
Buffer<T>::Buffer(std::vector<std::int64_t> shape) : shape_(std::move(shape)) {
  size_ = shape_.empty() ? 0 : 1;
  for (std::int64_t n : shape_) size_ *= n;
  if (size_ > 0) data_ = static_cast<T*>(allocate(static_cast<std::size_t>(size_) * sizeof(T)));
}

template <class T>
Buffer<T>::~Buffer() {
  release(data_, static_cast<std::size_t>(size_) * sizeof(T));
}

template <class T>
Buffer<T>::Buffer(Buffer&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)),
      shape_(std::exchange(other.shape_, {})) {}

template <class T>
Buffer<T>& Buffer<T>::operator=(Buffer&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  std::swap(shape_, other.shape_);
  return *this;
}

template <class T>
as_tensor Buffer<T>::tensor() const {
  as_tensor t{};
  if (data_ == nullptr || shape_.size() > AS_MAX_RANK) return t;
  t.data = data_;
  t.dtype = kDtypeOf<T>;
  t.rank = static_cast<std::int32_t>(shape_.size());
  std::int64_t stride = 1;
  for (std::int32_t i = t.rank - 1; i >= 0; --i) {
    t.shape[i] = shape_[static_cast<std::size_t>(i)];
    t.stride[i] = stride;
    stride *= t.shape[i];
  }
  return t;
}

template class Buffer<double>;
template class Buffer<float>;
template class Buffer<bf16_t>;
template class Buffer<std::uint8_t>;
template class Buffer<std::int32_t>;
template class Buffer<std::int64_t>;

}  // namespace attnscope
