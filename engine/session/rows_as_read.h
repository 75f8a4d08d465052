// For a reader whose rows are not the rows that were written: the bytes it gathers through its own
// lists and tables, as logical caches. Fed with these a reference judges the reader alone, and not
// whoever spoiled the rows.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/session/op_params.h"

namespace attnscope {

// By row of its table: entries that some token of the call sees.
std::vector<std::int64_t> visible_entries(const as_indexer_logits_params& p);

class RowsAsRead {
 public:
  // Gathers the rows that `engine` reads and puts them, with lists and tables that lead to them,
  // into `copy`, a copy of the same params. Valid until the next call.
  void replace(const OpParams& engine, OpParams& copy);
  // Tokens that read a row with values of 2^20 and more, finite: bytes of something else. Sums over
  // them are beyond what fp32 can get right, so that nobody can be judged on them. Empty = none.
  const std::vector<bool>& wild_tokens() const { return wild_; }

 private:
  struct List {
    std::vector<std::uint8_t> rows;
    std::vector<std::int32_t> indices;
  };
  void by_list(const as_cache& cache, const as_tensor& indices, const as_tensor& lens, List& memory,
               as_cache* out, as_tensor* out_indices);
  // ends[r]: rows 0 .. ends[r]-1 of table row r are read.
  void by_table(const as_cache& cache, const as_tensor& table, const as_tensor& request_of,
                const std::vector<std::int64_t>& ends, as_cache* out, as_tensor* out_table);

  std::vector<bool> wild_;
  List window_, extra_;
  std::vector<std::uint8_t> rows_;
  std::vector<float> state_;
  std::vector<std::int32_t> table_;
};

}  // namespace attnscope
