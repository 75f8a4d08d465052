// For a reader whose rows are not the rows that were written: the bytes it gathers through its own
// lists and tables, as logical caches. Fed with these a reference judges the reader alone, and not
// whoever spoiled the rows.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/session/step/op_params.h"
#include "kernels/params/cache_access.h"

namespace attnscope {

class RowsAsRead {
 public:
  // Gathers the rows that `engine` reads and puts them, with lists and tables that lead to them,
  // into `copy`, a copy of the same params. Valid until the next call.
  void replace(const OpParams& engine, OpParams& copy);
  // Tokens that read a row with values of 2^20 and more, finite: bytes of something else. Sums over
  // them are beyond what fp32 can get right, so that nobody can be judged on them. Empty = none.
  const std::vector<bool>& wild_tokens() const { return wild_; }

 private:
  struct Memory {
    std::vector<std::uint8_t> rows;
    std::vector<float> states;
    std::vector<std::int32_t> numbers;  // of rows: by place of a list, by row of a table
    std::vector<std::int64_t> slots;    // of rows that are moved
  };
  void by_list(const OpParams& engine, const as_cache_access& access, Memory& memory,
               OpParams& copy);
  void by_slots(const OpParams& engine, const as_cache_access& access, Memory& memory,
                OpParams& copy);
  void by_table(const OpParams& engine, const as_cache_access& access, Memory& memory,
                OpParams& copy);
  void mark_wild(std::int64_t token, std::int64_t tokens);

  std::vector<bool> wild_;
  std::vector<Memory> memory_;  // by access
};

}  // namespace attnscope
