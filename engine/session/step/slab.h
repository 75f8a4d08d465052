// The packed slab that holds every cache page, and the paged CacheSource over it.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "engine/metadata/step_metadata.h"
#include "engine/session/step/cache_source.h"

namespace attnscope {

class HostTier;  // host_tier.h

// A copy of the slab elsewhere, that may hold newer blocks.
class SlabMirror {
 public:
  virtual ~SlabMirror() = default;
  virtual void fetch(std::int64_t block) = 0;  // before the host's block is looked at
  virtual void wrote(std::int64_t block) = 0;  // the host's block was written
  // All of a block is 0xFF from now on. The mirror may leave the host's bytes for later.
  virtual void fill(std::int64_t block) = 0;
};

// Memory is reserved for every id from 0 on and taken where it is written: ids that do not exist,
// as those below a first block, cost nothing.
class Slab {
 public:
  // num_blocks: ids are below. pool_blocks: the last of them, which no table names.
  Slab(const CacheLayout& layout, std::int64_t num_blocks, std::int64_t pool_blocks = 0);

  as_cache cache(const CacheSpec& spec) const;
  std::int64_t num_blocks() const { return num_blocks_; }
  std::int64_t first_pool_block() const { return num_blocks_ - pool_blocks_; }
  std::int64_t block_stride() const { return stride_; }
  // Of a block, its first ones: those of the session's own rank.
  std::int64_t own_bytes() const { return own_bytes_; }
  // Fills a block with 0xFF: NaN in every format stored here (e4m3fn, bf16, fp32, UE8M0).
  void poison(std::int64_t id) {
    met_[static_cast<std::size_t>(id)] = 1;
    if (mirror_ != nullptr) {
      mirror_->fill(id);
    } else {
      fill(id);
    }
  }
  // The same, of the host's bytes alone.
  void fill(std::int64_t id);
  // Whether anybody has filled it or asked for its bytes; else they are zero.
  bool met(std::int64_t id) const { return met_[static_cast<std::size_t>(id)] != 0; }
  // The newest bytes of a block.
  std::uint8_t* block(std::int64_t id) const {
    if (mirror_ != nullptr) mirror_->fetch(id);
    met_[static_cast<std::size_t>(id)] = 1;
    return memory_.get() + id * stride_;
  }
  // Somebody has written the bytes that block() gave.
  void wrote(std::int64_t id) {
    if (mirror_ != nullptr) mirror_->wrote(id);
  }
  std::uint8_t* base() const { return memory_.get(); }
  void set_mirror(SlabMirror* mirror) { mirror_ = mirror; }

 private:
  struct Free {
    std::size_t bytes;
    void operator()(std::uint8_t* p) const;
  };
  std::int64_t num_blocks_, pool_blocks_, stride_, own_bytes_;
  std::unique_ptr<std::uint8_t, Free> memory_{nullptr, Free{0}};
  SlabMirror* mirror_ = nullptr;
  mutable std::vector<std::uint8_t> met_;  // by block; threads may look at different ones
};

class PagedSource : public CacheSource {
 public:
  // tier: where it says so, new rows go to a pool; nullptr = there is none.
  PagedSource(const CacheLayout& layout, const Slab& slab, const StepMetadata& step,
              const HostTier* tier = nullptr)
      : layout_(layout), slab_(slab), step_(step), tier_(tier) {}

  as_cache cache(int layer, CacheId id, int peer = -1) const override;
  as_tensor slots(int layer, CacheId id) const override;
  as_tensor table(int layer, CacheId id) const override;
  as_tensor list(int layer, int own) const override;
  std::int32_t chunk(int layer, CacheId id) const override;

 private:
  const CacheLayout& layout_;
  const Slab& slab_;
  const StepMetadata& step_;
  const HostTier* tier_;
};

}  // namespace attnscope
