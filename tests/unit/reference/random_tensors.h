// Random weights of small models under their published names, in bf16.
#pragma once

#include <cstring>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "reference/model.h"

namespace attnscope::reference {

class RandomTensors {
 public:
  void add(const std::string& name, std::vector<std::int64_t> shape, float spread) {
    TensorEntry& e = entries_[name];
    e.name = name;
    e.type = ElementType::kBf16;
    e.elements = 1;
    for (const std::int64_t n : shape) e.elements *= n;
    e.shape = std::move(shape);
    std::vector<std::uint16_t>& bits = values_[name];
    for (std::int64_t i = 0; i < e.elements; ++i) {
      const float value = spread * normal_(random_);
      std::uint32_t wide = 0;
      std::memcpy(&wide, &value, sizeof(wide));
      bits.push_back(static_cast<std::uint16_t>(wide >> 16));
    }
    e.bytes = bits.size() * 2;
    e.data = reinterpret_cast<const std::uint8_t*>(bits.data());
  }
  TensorSource source() const {
    return [this](const std::string& name) {
      const auto it = entries_.find(name);
      return it == entries_.end() ? nullptr : &it->second;
    };
  }
  std::map<std::string, TensorEntry>& entries() { return entries_; }

 private:
  std::mt19937 random_{7};
  std::normal_distribution<float> normal_;
  std::map<std::string, std::vector<std::uint16_t>> values_;
  std::map<std::string, TensorEntry> entries_;
};

}  // namespace attnscope::reference
