// The unpaged address space: every request owns a run of rows in the history of every cache, so
// that position (or entry) p of request r is row base(r) + p, with no block table in between.
// Shadow and references live here.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/metadata/step_metadata.h"

namespace attnscope {

class AddressSpace {
 public:
  // Room for every request's max_len rows; compressed histories hold max_len / ratio entries.
  explicit AddressSpace(const std::vector<Request>& requests);

  // First row of a request. ratio: tokens of a row, a power of two up to 128.
  std::int64_t base(std::int32_t request, int ratio) const;
  std::int64_t rows(int ratio) const;  // of all requests
  // The request whose row this is.
  std::int32_t request_of(std::int64_t row, int ratio) const;

 private:
  std::vector<std::int64_t> base_;  // [request + 1], in tokens
};

// A step in logical rows, straight from the definitions; what the free-running references use. They
// never see a block table.
struct LogicalMetadata {
  // Of caches with a row for so many tokens.
  struct Rows {
    int tokens_per_row = 1;
    std::vector<std::int64_t> rows;   // [T] row that the token completes, -1 = none
    std::vector<std::int32_t> table;  // [R,1] first row of each request
  };

  std::vector<std::int32_t> requests;  // [T] id of the token's request
  std::vector<Rows> caches;            // the first has a row for every token
  // StepMetadata::own, with rows in the place of slots, and one list for all layers.
  std::vector<StepTensor> own;

  const Rows& of(int tokens_per_row) const;
  const std::vector<std::int32_t>& table(int ratio) const { return of(ratio).table; }
  const std::vector<std::int64_t>& rows_of(int ratio) const { return of(ratio).rows; }
};

// All but the family's own tensors (Family::logical_lists).
LogicalMetadata logical_metadata(const StepMetadata& step, const AddressSpace& space,
                                 const CacheLayout& layout);

}  // namespace attnscope
