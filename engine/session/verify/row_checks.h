// Before a reader runs: are the rows it will gather the rows that were written?
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>

#include "engine/session/step/history.h"
#include "engine/session/step/op_params.h"
#include "kernels/params/offload_params.h"
#include "kernels/params/row_format.h"

namespace attnscope {

struct RowCheck {
  std::int64_t rows = 0;  // distinct rows looked at
  std::int64_t bad = 0;   // never written, overwritten, or of another request
  std::string note;       // the first bad one: slot, owner, last writer
};

// "slot 70 (block 1, row 6) of the swa cache".
std::string slot_of_cache(const CacheSpec& spec, std::int64_t slot);
// What a logical row of the session is: "position 6 of request 1", or an entry.
std::string content_of(const CacheSpec& spec, const AddressSpace& space, std::int64_t row);

// Rows of a paged cache, which must outlive this, against what the shadow has of them, where many
// are compared.
class ShadowRows {
 public:
  ShadowRows(const Shadow& shadow, const CacheSpec& spec, const as_cache& paged)
      : paged_(paged), layout_(as_cache_layout(&paged)) {
    const as_cache own = shadow.cache(spec);
    records_ = static_cast<const std::uint8_t*>(own.data.data);
    stride_ = own.data.stride[0] * as_dtype_size(own.data.dtype);
  }
  // As Shadow::matches.
  bool matches(std::int64_t slot, std::int64_t row) const {
    const std::uint8_t* record = records_ + row * stride_;
    as_row_piece piece{};
    for (std::int32_t i = 0; as_row_piece_at(&layout_, &paged_, slot, i, &piece) != 0; ++i) {
      const auto bytes = static_cast<std::size_t>(piece.size);
      if (std::memcmp(piece.bytes, record + piece.at, bytes) != 0) return false;
    }
    return true;
  }

 private:
  const as_cache& paged_;
  as_row_layout layout_;
  const std::uint8_t* records_;
  std::int64_t stride_;
};

// Rows that the op will read from the cache at cache_offset of its params struct, through its index
// lists or tables, against the shadow, byte for byte.
RowCheck check_rows_read(const OpParams& params, std::size_t cache_offset, const CacheSpec& spec,
                         const as_cache& cache, const Shadow& shadow, const AddressSpace& space,
                         const StepMetadata& step);

// What exchange_rows is told: the place of each row that a token selects has to hold that row once
// all rows have come in. The first that does not, in a sentence; empty where all do.
std::string check_places(const as_exchange_rows_params& params, const CacheSpec& spec,
                         const Shadow& shadow, const AddressSpace& space);

// topk_to_slots in the logical address space: entry j of request r is row base4(r) + j.
void logical_top_k_slots(const as_topk_to_slots_params& params, const LogicalMetadata& logical);

}  // namespace attnscope
