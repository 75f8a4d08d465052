// Logical histories of all caches: per layer and kind one array of rows, addressed without pages.
//
//   Shadow   what the engine's writers produced, byte for byte, with who wrote each slot last
//   History  the free-running references' own rows (ref.sim: records; ref.exact: float64 values)
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "engine/io/resting_memory.h"
#include "engine/metadata/logical.h"
#include "engine/session/step/cache_source.h"

namespace attnscope {

// Ratio of a cache's rows: 1 for window and state rows, 4 or 128 for compressed entries.
int row_ratio(const CacheSpec& spec);

class History {
 public:
  // exact: F64 values instead of records. State rows are F32 unless exact.
  History(const CacheLayout& layout, const AddressSpace& space, bool exact);

  as_cache cache(const CacheSpec& spec) const;
  // Makes row `to` equal to row `from`.
  void copy_row(const CacheSpec& spec, std::int64_t from, std::int64_t to);
  // Rows of a request that its tokens from `position` on do not see rest in a file until somebody
  // wants them. Nobody may write meanwhile.
  // over: no more tokens come, so that nothing before it is seen.
  void rest_before(std::int32_t request, std::int64_t position, bool over = false);
  // Those that did may be in memory again.
  void touched() { rested_.clear(); }

 private:
  const CacheLayout& layout_;
  const AddressSpace& space_;
  std::vector<as_cache> caches_;  // by spec
  std::unique_ptr<RestingMemory> memory_;
  std::map<std::pair<std::int32_t, std::size_t>, std::int64_t>
      rested_;  // rows, by request and spec
};

// Which row every slot of a block was last written for, and in which step: what a rewind point
// keeps of the shadow. One list per spec of the block's group, in the order of the layout.
struct SlotMarks {
  std::vector<std::int64_t> rows;
  std::vector<std::int32_t> steps;
  friend bool operator==(const SlotMarks&, const SlotMarks&) = default;
};

// What the engine's writers produced, and which logical row every slot holds.
//
// A slot belongs to the row it was written for. Other requests may read it too: take_over() gives
// each of them a row of its own with the same record, which remembers where it comes from. Records
// of a row are those of its last write; a slot written earlier for the same row (its request was
// preempted and computed it again elsewhere) still holds the older one.
class Shadow {
 public:
  // num_blocks: null block included; the others have the ids from first_block on.
  Shadow(const CacheLayout& layout, const AddressSpace& space, std::int64_t num_blocks,
         std::int64_t first_block = 1);

  as_cache cache(const CacheSpec& spec) const { return rows_.cache(spec); }
  // History::rest_before().
  void rest_before(std::int32_t request, std::int64_t position, bool over) {
    rows_.rest_before(request, position, over);
  }
  void touched() { rows_.touched(); }
  // Copies the row in `slot` of the paged cache to logical row `row`.
  void record(const CacheSpec& spec, const as_cache& paged, std::int64_t slot, std::int64_t row,
              std::int64_t step);
  // Slot `to` has got the bytes of slot `from`, and holds what that holds.
  void copied(const CacheSpec& spec, std::int64_t from, std::int64_t to);
  // Logical row `row` of another request is from now on what `slot` holds. Returns the row that the
  // slot was written for; -1, with nothing done, when it was never written.
  std::int64_t take_over(const CacheSpec& spec, const as_cache& paged, std::int64_t slot,
                         std::int64_t row);
  // A block's slots hold nothing any more.
  void forget_block(std::int32_t block);
  SlotMarks marks(std::int32_t group, std::int32_t block) const;
  void restore_marks(std::int32_t group, std::int32_t block, const SlotMarks& marks);
  // Makes row `row` the one that `slot` holds, as it was when these marks were true: where it has
  // been written again since, its record is read from the page, whose bytes are of that time too:
  // from the row in `kept` of it, or (-1) the one in the slot itself.
  void restore_row(const CacheSpec& spec, const as_cache& paged, std::int64_t slot,
                   std::int64_t row, std::int64_t kept = -1);
  // Puts back a row that was recorded before: its record, the step that wrote it, and the row it
  // was taken over from (its own: nobody's).
  void put_record(const CacheSpec& spec, std::int64_t row, const void* record, std::int64_t step,
                  std::int64_t origin);
  // The same, the record being that in a slot of a cache.
  void put_record(const CacheSpec& spec, std::int64_t row, const as_cache& from, std::int64_t slot,
                  std::int64_t step, std::int64_t origin);
  std::int64_t origin(const CacheSpec& spec, std::int64_t row) const {
    return origins_[index(spec)][static_cast<std::size_t>(row)];
  }
  // Logical row a slot was last written for, -1 = never written.
  std::int64_t row_of(const CacheSpec& spec, std::int64_t slot) const;
  // The row of `request` that the slot holds, its own or a taken over one; -1 = none.
  std::int64_t row_of(const CacheSpec& spec, std::int64_t slot, std::int32_t request) const;
  // Whether the slot is where this row was written, or taken over from.
  bool holds(const CacheSpec& spec, std::int64_t slot, std::int64_t row) const;
  // Whether there is such a slot.
  bool has(const CacheSpec& spec, std::int64_t slot) const { return place(spec, slot) >= 0; }
  // Step of the last write of a logical row, -1 = never.
  std::int64_t written(const CacheSpec& spec, std::int64_t row) const;
  // Whether the paged row holds exactly the recorded bytes.
  bool matches(const CacheSpec& spec, const as_cache& paged, std::int64_t slot,
               std::int64_t row) const;

 private:
  std::size_t index(const CacheSpec& spec) const;
  // Of a slot in what is kept by slot, where no place is for ids that do not exist; -1 = none.
  std::int64_t place(const CacheSpec& spec, std::int64_t slot) const;
  // Of a block's first slot.
  std::ptrdiff_t first_place(const CacheSpec& spec, std::int32_t block) const {
    return static_cast<std::ptrdiff_t>(place(spec, std::int64_t{block} * spec.rows_per_block));
  }

  const CacheLayout& layout_;
  std::int64_t skipped_;  // ids between the null block and the first one
  AddressSpace space_;
  History rows_;
  std::vector<std::vector<std::int64_t>> slot_rows_;   // by spec, place of the slot
  std::vector<std::vector<std::int32_t>> slot_steps_;  // by spec, place: when it was written
  std::vector<std::vector<std::int32_t>> steps_;       // by spec, row: of its record
  std::vector<std::vector<std::int64_t>> origins_;     // by spec, row: the row it was taken from
};

// A History with the lists of LogicalMetadata.
class LogicalSource : public CacheSource {
 public:
  LogicalSource(const CacheLayout& layout, const History& history, const LogicalMetadata& step,
                std::int64_t list_columns)
      : layout_(layout), history_(history), step_(step), list_columns_(list_columns) {}

  as_cache cache(int layer, CacheId id, int peer = -1) const override;
  as_tensor slots(int layer, CacheId id) const override;
  as_tensor table(int layer, CacheId id) const override;
  as_tensor list(int layer, int own) const override;
  std::int32_t chunk(int layer, CacheId id) const override;

 private:
  const CacheLayout& layout_;
  const History& history_;
  const LogicalMetadata& step_;
  std::int64_t list_columns_;
  mutable std::vector<std::int64_t> first_rows_;  // of a group that has no rows behind them
};

}  // namespace attnscope
