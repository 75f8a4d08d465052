#include "engine/session/step/slab.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <new>

#include "engine/model/numbers.h"
#include "engine/session/step/host_tier.h"
#include "kernels/params/row_format.h"
#include "kernels/params/tensor_view.h"

namespace attnscope {

void Slab::Free::operator()(std::uint8_t* p) const { munmap(p, bytes); }

Slab::Slab(const CacheLayout& layout, std::int64_t num_blocks, std::int64_t pool_blocks)
    : num_blocks_(num_blocks),
      pool_blocks_(pool_blocks),
      stride_(layout.block_stride),
      own_bytes_(layout.own_bytes()) {
  // A page at least: where a model has no caches blocks have no bytes.
  const auto bytes = static_cast<std::size_t>(std::max<std::int64_t>(num_blocks_ * stride_, 4096));
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  memory_ = {static_cast<std::uint8_t*>(memory), Free{bytes}};
  met_.assign(static_cast<std::size_t>(num_blocks_), 0);
  // Other blocks are filled when somebody gets them, so that a large pool costs only what is used.
  poison(AS_NULL_BLOCK);
}

void Slab::fill(std::int64_t id) {
  std::memset(memory_.get() + id * stride_, 0xFF, static_cast<std::size_t>(stride_));
}

as_cache Slab::cache(const CacheSpec& spec) const {
  as_cache c = spec.cache(make_tensor(memory_.get() + spec.offset, {num_blocks_, spec.page_bytes}));
  c.data.stride[0] = stride_;
  return c;
}

as_cache PagedSource::cache(int layer, CacheId id, int peer) const {
  return slab_.cache(*layout_.find(layer, id, peer));
}

as_tensor PagedSource::slots(int layer, CacheId id) const {
  const std::int64_t tokens = step_.num_tokens_in_step();
  const CacheSpec& spec = *layout_.find(layer, id);
  if (tier_ != nullptr && tier_->has(layer) && &spec == layout_.find(layer, CacheId{})) {
    return tier_->slots(layer);
  }
  if (spec.tokens_per_row > 1) {
    return make_tensor(step_.entry_slots(spec.tokens_per_row)->slots.data(), {tokens});
  }
  return make_tensor(step_.slots.data() + spec.group * tokens, {tokens});
}

as_tensor PagedSource::table(int layer, CacheId id) const {
  return step_.group_table(layout_.find(layer, id)->group);
}

std::int32_t PagedSource::chunk(int, CacheId) const { return 0; }

as_tensor PagedSource::list(int layer, int own) const {
  const StepTensor& tensor = step_.own[to_size(own)];
  const std::int64_t tokens = step_.num_tokens_in_step();
  if (tensor.lists_by == StepTensor::ListsBy::kAll) {
    return tensor.tensor(tokens, step_.list_columns);
  }
  return tensor.list(tensor.list_of_layer(layout_, layer), tokens, step_.list_columns);
}

}  // namespace attnscope
