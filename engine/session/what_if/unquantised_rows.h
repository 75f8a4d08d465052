// The rows of one layer's caches as they were before quantisation, gathered while a session runs:
// what a reader would read if the cache kept what the writers had.
#pragma once

#include <cstdint>
#include <map>
#include <unordered_map>
#include <vector>

#include "engine/session/session.h"
#include "kernels/params/cache_access.h"

namespace attnscope {

class UnquantisedRows {
 public:
  // layer: published.
  explicit UnquantisedRows(int layer) : layer_(layer) {}

  // After every op of a session, from its start on.
  void op_done(const Session& session);
  // Puts logical float64 caches, with the lists or tables that lead to them, into `copy`, a copy of
  // `engine`'s params for a reference. False when the op reads no quantised cache, or a row that it
  // reads was not seen when it was written. Valid until the next call.
  bool replace(const OpParams& engine, OpParams& copy);

 private:
  using Rows = std::unordered_map<std::int64_t, std::vector<double>>;  // by slot
  struct Memory {
    std::vector<double> values;
    std::vector<std::int32_t> numbers;  // of rows: by place of a list, by row of a table
  };
  static bool by_list(const OpParams& engine, const as_cache_access& access, const Rows& rows,
                      Memory& memory, OpParams& copy);
  static bool by_table(const OpParams& engine, const as_cache_access& access, const Rows& rows,
                       Memory& memory, OpParams& copy);

  int layer_;
  std::map<CacheId, Rows> rows_;
  std::vector<Memory> memory_;  // by access
};

}  // namespace attnscope
