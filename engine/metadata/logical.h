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

  // First row of a request. ratio 1 (window and state rows), 4 or 128.
  std::int64_t base(std::int32_t request, int ratio) const;
  std::int64_t rows(int ratio) const;  // of all requests
  // The request whose row this is.
  std::int32_t request_of(std::int64_t row, int ratio) const;

 private:
  std::vector<std::int64_t> base_;  // [request + 1], in tokens
};

// The index lists of a step in logical rows, straight from their definitions; what the free-running
// references use. They never see a block table.
struct LogicalMetadata {
  std::vector<std::int32_t> requests;                  // [T] id of the token's request
  std::vector<std::int64_t> rows;                      // [T] row of the token's own position
  std::vector<std::int64_t> c4_rows;                   // [T] entry emitted by the token, -1 = none
  std::vector<std::int64_t> c128_rows;                 // [T]
  std::vector<std::int32_t> table1, table4, table128;  // [R,1] first row of each request
  std::vector<std::int32_t> swa_indices;               // [T,W]
  std::vector<std::int32_t> swa_lens;                  // [T]
  std::vector<std::int32_t> c128_indices;              // [T,A]
  std::vector<std::int32_t> c128_lens;                 // [T]
  std::vector<std::int32_t> c4_lens;                   // [T]

  // Of caches of this ratio: table1, table4 or table128; rows, c4_rows or c128_rows.
  const std::vector<std::int32_t>& table(int ratio) const;
  const std::vector<std::int64_t>& rows_of(int ratio) const;
};

LogicalMetadata logical_metadata(const StepMetadata& step, const AddressSpace& space, int window);

}  // namespace attnscope
