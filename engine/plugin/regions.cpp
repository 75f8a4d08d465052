#include "engine/plugin/regions.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "engine/model/numbers.h"
#include "kernels/params/row_format.h"

namespace attnscope {

void PluginMemory::add(const PluginRegion& region, std::uint8_t* memory) {
  std::memset(memory, kCanary, static_cast<std::size_t>(region.pages * kPluginPage));
  std::memset(memory + region.start, region.written != 0 ? poison_ : 0xff, to_size(region.bytes));
  regions_.push_back(region);
  memory_.push_back(memory);
}

void PluginMemory::forget() {
  regions_.clear();
  memory_.clear();
}

std::vector<PluginPointer> PluginMemory::pointers(const CaseCall& call) const {
  std::vector<PluginPointer> out;
  const auto point = [&](std::size_t offset) {
    const void* data = nullptr;
    std::memcpy(&data, static_cast<const char*>(call.params()) + offset, sizeof(data));
    for (std::size_t i = 0; i < regions_.size(); ++i) {
      if (memory_[i] + regions_[i].start != data) continue;
      out.push_back({static_cast<std::int32_t>(offset), static_cast<std::int32_t>(i)});
    }
  };
  for (const as_tap_info& tap : call.op().taps) point(tap.offset);
  for (const as_param_info& field : call.op().fields) {
    if (field.kind == AS_PARAM_ROPE) point(field.offset);
  }
  return out;
}

void point_to_device(void* params, std::span<const PluginPointer> pointers,
                     std::span<const PluginRegion> regions, std::uint8_t* room) {
  for (const PluginPointer& pointer : pointers) {
    const PluginRegion& region = regions[static_cast<std::size_t>(pointer.region)];
    // Caches and rotary embeddings begin with their tensor.
    as_tensor& tensor = tensor_at(params, static_cast<std::size_t>(pointer.offset));
    tensor.data = room + region.offset + region.start;
    tensor.device = 1;
  }
}

std::string spoilt(const PluginRegion& region, const std::uint8_t* all) {
  const auto changed = [all](std::int64_t from, std::int64_t to) {
    return std::count_if(all + from, all + to, [](std::uint8_t b) { return b != kCanary; });
  };
  const std::int64_t behind = changed(region.start + region.bytes, region.pages * kPluginPage);
  const std::int64_t wrong = behind + changed(0, region.start);
  if (wrong == 0) return {};
  return fmt::format("wrote {} bytes {} {}", wrong, behind > 0 ? "behind the end of" : "before",
                     region.name);
}

std::string strays(const CaseCall& call, const OpCase& kept, std::uint8_t poison) {
  for (const as_tap_info& tap : call.op().taps) {
    const auto it = kept.caches.find(tap.name);
    if (it == kept.caches.end() || tap.direction != AS_TAP_OUT) continue;
    const as_cache& cache = call.cache(tap);
    const auto total = static_cast<std::size_t>((it->second.blocks - 1) * it->second.page_stride +
                                                cache.data.shape[1]);
    const auto* bytes = static_cast<const std::uint8_t*>(cache.data.data);
    // Bytes of given rows, by address; what is left must be as it was.
    std::vector<bool> given(total, false);
    const auto mark = [&](const std::uint8_t* from, std::int64_t count) {
      const auto first = static_cast<std::size_t>(from - bytes);
      std::fill_n(given.begin() + static_cast<std::ptrdiff_t>(first), count, true);
    };
    const as_row_layout layout = as_cache_layout(&cache);
    for (const std::int64_t slot : it->second.slots) {
      as_row_piece piece;
      for (std::int32_t i = 0; as_row_piece_at(&layout, &cache, slot, i, &piece) != 0; ++i) {
        mark(piece.bytes, piece.size);
      }
    }
    std::int64_t wrong = 0, block = -1;
    for (std::size_t i = 0; i < total; ++i) {
      if (bytes[i] == poison || given[i]) continue;
      if (wrong++ == 0) {
        block = static_cast<std::int64_t>(i) / it->second.page_stride;
      }
    }
    if (wrong > 0) {
      return fmt::format("wrote {} bytes of {} beside the rows it was given, the first in block {}",
                         wrong, tap.name, block);
    }
  }
  return {};
}

}  // namespace attnscope
