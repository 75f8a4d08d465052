// The packed slab that holds every cache page, and the paged CacheSource over it.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "engine/metadata/step_metadata.h"
#include "engine/session/step/cache_source.h"

namespace attnscope {

// A copy of the slab elsewhere, that may hold newer blocks.
class SlabMirror {
 public:
  virtual ~SlabMirror() = default;
  virtual void fetch(std::int64_t block) = 0;   // before the host's block is looked at
  virtual void wrote(std::int64_t block) = 0;   // the host's block was written
  virtual void filled(std::int64_t block) = 0;  // with 0xFF, all of it
};

// Memory is reserved for every id from 0 on and taken where it is written: ids that do not exist,
// as those below a first block, cost nothing.
class Slab {
 public:
  // num_blocks: ids are below.
  Slab(const CacheLayout& layout, std::int64_t num_blocks);

  as_cache cache(const CacheSpec& spec) const;
  std::int64_t num_blocks() const { return num_blocks_; }
  std::int64_t block_stride() const { return stride_; }
  // Fills a block with 0xFF: NaN in every format stored here (e4m3fn, bf16, fp32, UE8M0).
  void poison(std::int64_t id);
  // The newest bytes of a block.
  std::uint8_t* block(std::int64_t id) const {
    if (mirror_ != nullptr) mirror_->fetch(id);
    return memory_.get() + id * stride_;
  }
  std::uint8_t* base() const { return memory_.get(); }
  void set_mirror(SlabMirror* mirror) { mirror_ = mirror; }

 private:
  struct Free {
    std::size_t bytes;
    void operator()(std::uint8_t* p) const;
  };
  std::int64_t num_blocks_, stride_;
  std::unique_ptr<std::uint8_t, Free> memory_{nullptr, Free{0}};
  SlabMirror* mirror_ = nullptr;
};

class PagedSource : public CacheSource {
 public:
  PagedSource(const CacheLayout& layout, const Slab& slab, const StepMetadata& step, int window)
      : layout_(layout), slab_(slab), step_(step), window_(window) {}

  as_cache cache(int layer, CacheId id) const override;
  as_tensor slots(int layer, CacheId id) const override;
  as_tensor table(int layer, CacheId id) const override;
  as_tensor list(int layer, std::string_view name) const override;

 private:
  const CacheLayout& layout_;
  const Slab& slab_;
  const StepMetadata& step_;
  int window_;
};

}  // namespace attnscope
