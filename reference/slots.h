// Where the row of a position or entry lies.
#pragma once

#include <cstdint>
#include <string>

#include "reference/tensors.h"

namespace attnscope::reference {

// Through row r (of group g) of block tables of pages with `rows` rows; rows 0 = logical rows.
// Tables of rank 2 are [R,C], of rank 3 [G,R,C].
inline std::int64_t slot_of(const Integers& tables, std::int64_t g, std::int64_t r,
                            std::int64_t position, std::int64_t rows, std::int64_t token) {
  if (position < 0 || rows < 0) {
    throw BadInput("token " + std::to_string(token) + " asks for position " +
                   std::to_string(position) + " in pages of " + std::to_string(rows) +
                   " rows; neither may be negative");
  }
  if (rows == 0) return tables.get(g, r, 0) + position;
  const std::int64_t column = position / rows;
  check_index(column, tables.size(2), "block table column", token);
  return tables.get(g, r, column) * rows + position % rows;
}

// A [R,C] table as [1,R,C].
inline as_tensor as_one_group(const as_tensor& table) {
  if (table.rank != 2) return table;  // refused later, with its own shape
  as_tensor grouped = table;
  grouped.rank = 3;
  for (int d = 2; d > 0; --d) {
    grouped.shape[d] = table.shape[d - 1];
    grouped.stride[d] = table.stride[d - 1];
  }
  grouped.shape[0] = 1;
  grouped.stride[0] = 0;
  return grouped;
}

}  // namespace attnscope::reference
