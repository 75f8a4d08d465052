#include "reference/torch/weights.h"

#include <map>
#include <mutex>
#include <tuple>
#include <vector>

#include "reference/torch/device.h"

namespace attnscope::reference {

namespace {

// Where, what and how it lies there.
using Key = std::tuple<const void*, std::int32_t, std::vector<std::int64_t>>;

Key key_of(const as_tensor& t) {
  std::vector<std::int64_t> lies(t.shape, t.shape + t.rank);
  lies.insert(lies.end(), t.stride, t.stride + t.rank);
  return {t.data, t.dtype, std::move(lies)};
}

// In float64 where there is room, and there when it returns: other threads have other streams.
Tensor to_keep(const as_tensor& weight) {
  const Tensor there = in_place(weight).to(torch_device());
  const auto bytes = static_cast<std::size_t>(there.numel()) * sizeof(double);
  if (weight.dtype == AS_U8 || there.numel() == 0 || !leaves_half_free(bytes)) return there;
  Tensor numbers = there.to(at::kDouble);
  numbers.flatten().narrow(0, 0, 1).cpu();  // waits
  return numbers;
}

class Kept {
 public:
  Tensor get(const as_tensor& weight, std::uint64_t number) {
    const std::lock_guard lock(mutex_);
    if (number != number_) copies_.clear();
    number_ = number;
    const auto [at, fresh] = copies_.try_emplace(key_of(weight));
    try {
      if (fresh) at->second = to_keep(weight);
    } catch (...) {  // no room: what is kept goes, the weight once more
      copies_.clear();
      return in_place(weight).to(torch_device());
    }
    return at->second;
  }

 private:
  std::mutex mutex_;
  std::uint64_t number_ = 0;
  std::map<Key, Tensor> copies_;
};

}  // namespace

Tensor weight_in_place(const as_tensor& weight, std::uint64_t number) {
  if (number == 0 || torch_device().is_cpu()) return in_place(weight).to(torch_device());
  // Never destroyed: what it holds may outlive the device's library.
  static Kept& kept = *new Kept;
  return kept.get(weight, number);
}

}  // namespace attnscope::reference
