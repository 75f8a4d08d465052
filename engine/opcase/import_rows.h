// Cache rows as other engines keep them, as the records of kernels/layout.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/opcase/import_map.h"

namespace attnscope {

// Pages of a cache in the layout of kernels/layout, one after the other without a gap.
struct ImportedPages {
  std::vector<std::uint8_t> bytes;
  std::int64_t blocks = 0, page_bytes = 0;
  // Slots whose FNUZ codes have no e4m3fn ones at half the scale (+-240, scales that cannot be
  // halved), ascending: rows that nobody wrote may be anything.
  std::vector<std::int64_t> without_codes;
};

// bytes: of the dump's tensor; first_axis: its number of pages where page_stride is not given.
// scales: bytes of the tensor of scales, [pages, rows, scale bytes]; empty = none.
// AS_BAD_INPUT: too few bytes.
Result<ImportedPages> import_pages(const ImportCache& cache, std::span<const std::uint8_t> bytes,
                                   std::int64_t first_axis, std::span<const std::uint8_t> scales);

// Value of a code.
float e4m3_value(std::uint8_t code, bool fnuz);

}  // namespace attnscope
