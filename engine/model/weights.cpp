#include "engine/model/weights.h"

#include <algorithm>

namespace attnscope {
namespace {

template <class T>
std::int64_t bytes_of(const Buffer<T>& b) {
  return b.size() * static_cast<std::int64_t>(sizeof(T));
}

}  // namespace

as_tensor Weight::tensor() const {
  if (fp8.codes.size() > 0) return fp8.codes.tensor();
  return bf16.size() > 0 ? bf16.tensor() : f32.tensor();
}

as_tensor Weight::scale() const { return fp8.scales.tensor(); }

std::int64_t Weight::bytes() const {
  return bytes_of(bf16) + bytes_of(f32) + bytes_of(fp8.codes) + bytes_of(fp8.scales);
}

const Weight& WeightList::operator[](std::string_view name) const {
  static const Weight kNone;
  const auto it = std::ranges::find(weights_, name, &Weight::name);
  return it != weights_.end() ? *it : kNone;
}

Weight& WeightList::operator[](std::string_view name) {
  const auto it = std::ranges::find(weights_, name, &Weight::name);
  if (it != weights_.end()) return *it;
  Weight& added = weights_.emplace_back();
  added.name = name;
  return added;
}

const Weight& Weights::find(int layer, std::string_view name) const {
  const auto at = static_cast<std::size_t>(layer);
  if (layer >= 0 && at < layers.size()) {
    const Weight& own = layers[at][name];
    if (!own.name.empty()) return own;
  }
  return around[name];
}

std::int64_t Weights::bytes() const {
  std::int64_t total = 0;
  for (const Weight& w : around) total += w.bytes();
  for (const WeightList& layer : layers) {
    for (const Weight& w : layer) total += w.bytes();
  }
  return total;
}

}  // namespace attnscope
