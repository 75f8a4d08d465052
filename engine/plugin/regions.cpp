#include "engine/plugin/regions.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <span>

#include "engine/model/numbers.h"
#include "engine/opcase/checked_blocks.h"
#include "kernels/params/row_format.h"

namespace attnscope {

namespace {

// Bytes of a block that are no poison any more, beside those of the slots in it.
std::int64_t stray_bytes(const as_cache& cache, const StoredCache& kept, std::int64_t block,
                         std::span<const std::int64_t> slots, std::uint8_t poison) {
  // Behind the last page nothing belongs to the cache.
  const std::int64_t size = block + 1 < kept.blocks ? kept.page_stride : cache.data.shape[1];
  const auto* bytes = static_cast<const std::uint8_t*>(cache.data.data) + block * kept.page_stride;
  std::vector<bool> given(to_size(size), false);
  const as_row_layout layout = as_cache_layout(&cache);
  for (const std::int64_t slot : slots) {
    as_row_piece piece;
    for (std::int32_t i = 0; as_row_piece_at(&layout, &cache, slot, i, &piece) != 0; ++i) {
      std::fill_n(given.begin() + (piece.bytes - bytes), piece.size, true);
    }
  }
  std::int64_t wrong = 0;
  for (std::int64_t i = 0; i < size; ++i) wrong += bytes[i] != poison && !given[to_size(i)];
  return wrong;
}

}  // namespace

void PluginMemory::add(const PluginRegion& region, std::uint8_t* memory) {
  if (region.sparse == 0) {
    std::memset(memory, kCanary, static_cast<std::size_t>(region.pages * kPluginPage));
    std::memset(memory + region.start, region.written != 0 ? poison_ : 0xff, to_size(region.bytes));
  }
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
  if (region.sparse != 0) return {};
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
    std::int64_t wrong = 0, first = -1;
    each_checked_block(it->second, [&](std::int64_t block, std::span<const std::int64_t> slots) {
      const std::int64_t before = wrong;
      wrong += stray_bytes(call.cache(tap), it->second, block, slots, poison);
      if (first < 0 && wrong > before) first = block;
    });
    if (wrong > 0) {
      return fmt::format("wrote {} bytes of {} beside the rows it was given, the first in block {}",
                         wrong, tap.name, first);
    }
  }
  return {};
}

}  // namespace attnscope
