// Logical histories of all caches: per layer and kind one array of rows, addressed without pages.
//
//   Shadow   what the engine's writers produced, byte for byte, with who wrote each slot last
//   History  the free-running references' own rows (ref.sim: records; ref.exact: float64 values)
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "engine/cache/block_manager.h"
#include "engine/metadata/logical.h"
#include "engine/session/cache_source.h"
#include "kernels/layout/records.h"

namespace attnscope {

// Ratio of a cache's rows: 1 for window and state rows, 4 or 128 for compressed entries.
int row_ratio(const CacheSpec& spec);

class History {
 public:
  // exact: F64 values instead of records. State rows are F32 unless exact.
  History(const CacheLayout& layout, const AddressSpace& space, bool exact);

  as_cache cache(const CacheSpec& spec) const;

 private:
  const CacheLayout& layout_;
  std::vector<as_cache> caches_;  // by spec
  std::vector<std::unique_ptr<std::uint8_t[]>> memory_;
};

// What the engine's writers produced, and which logical row every slot holds.
class Shadow {
 public:
  Shadow(const CacheLayout& layout, const AddressSpace& space, std::int64_t num_blocks);

  as_cache cache(const CacheSpec& spec) const { return rows_.cache(spec); }
  // Copies the row in `slot` of the paged cache to logical row `row`.
  void record(const CacheSpec& spec, const as_cache& paged, std::int64_t slot, std::int64_t row,
              std::int64_t step);
  // Derives the row of every slot in use from block owners and lengths; other slots hold none.
  void rebuild_slots(const BlockManager& blocks, const std::vector<Request>& requests,
                     const AddressSpace& space);
  // Puts back a row that was recorded before: its record and the step that wrote it.
  void restore_row(const CacheSpec& spec, std::int64_t row, const as_row_address& from,
                   std::int64_t step);
  // Logical row a slot was last written for, -1 = never written.
  std::int64_t row_of(const CacheSpec& spec, std::int64_t slot) const;
  std::int64_t slots(const CacheSpec& spec) const {
    return static_cast<std::int64_t>(slot_rows_[index(spec)].size());
  }
  // Step of the last write of a logical row, -1 = never.
  std::int64_t written(const CacheSpec& spec, std::int64_t row) const;
  // Whether the paged row holds exactly the recorded bytes.
  bool matches(const CacheSpec& spec, const as_cache& paged, std::int64_t slot,
               std::int64_t row) const;

 private:
  std::size_t index(const CacheSpec& spec) const;

  const CacheLayout& layout_;
  History rows_;
  std::vector<std::vector<std::int64_t>> slot_rows_;  // by spec, slot
  std::vector<std::vector<std::int32_t>> steps_;      // by spec, row
};

// A History with the lists of LogicalMetadata.
class LogicalSource : public CacheSource {
 public:
  LogicalSource(const CacheLayout& layout, const History& history, const LogicalMetadata& step,
                int window, std::int64_t c128_width)
      : layout_(layout), history_(history), step_(step), window_(window), width_(c128_width) {}

  as_cache cache(int layer, CacheKind kind) const override;
  as_tensor slots(int layer, CacheKind kind) const override;
  as_tensor table(int layer, CacheKind kind) const override;
  as_tensor swa_indices(int layer) const override;
  as_tensor swa_lens() const override;
  as_tensor c128_indices() const override;
  as_tensor c128_lens() const override;
  as_tensor c4_lens() const override;

 private:
  const CacheLayout& layout_;
  const History& history_;
  const LogicalMetadata& step_;
  int window_;
  std::int64_t width_;
};

}  // namespace attnscope
