// Checks of a params struct before an op touches memory. The first failure fills as_error with what
// is wrong, what is allowed and what to do; later checks return false at once.
#pragma once

#include <cstdint>
#include <initializer_list>

#include "kernels/params/head.h"
#include "kernels/params/lane.h"

namespace attnscope::cpu {

constexpr std::int64_t kAny = -1;  // a dimension that any size fits

class Check {
 public:
  Check(std::int32_t op, as_error* error);

  // Records the failure; returns false, so that it can end a chain of checks.
  [[gnu::format(printf, 2, 3)]] bool fail(const char* format, ...);
  std::int32_t status() const { return status_; }

  bool head(const void* params, std::size_t size);
  // Present, on the host, of a dtype and shape, values of the last dim side by side.
  bool tensor(const char* name, const as_tensor& t, std::int32_t dtype,
              std::initializer_list<std::int64_t> shape);
  // As tensor(), or absent.
  bool optional(const char* name, const as_tensor& t, std::int32_t dtype,
                std::initializer_list<std::int64_t> shape);
  bool range(const char* name, std::int64_t value, std::int64_t low, std::int64_t high);
  bool cache(const char* name, const as_cache& c, std::int32_t record, std::int64_t width);
  bool rope(const as_rope& rope);

  // Every value of an i64 [T] tensor is -1 or a row of the cache.
  bool slots(const char* name, const as_tensor& slots, const as_cache& c);
  // Every value of an i32 [T] tensor is a row of a table with `requests` rows, or negative.
  bool requests(const as_tensor& token_to_req, std::int64_t requests);
  // Token t's position (plus offset) has a row in the rotary table.
  bool rope_position(const as_rope& rope, std::int64_t token, std::int64_t position);
  // Token t's table row has the column; its block id is not negative.
  bool block(const char* table_name, const as_tensor& table_row_0, std::int64_t token,
             std::int64_t request, std::int64_t column);

 private:
  const char* op_;
  as_error* error_;
  std::int32_t status_ = AS_OK;
};

// Rows a cache holds.
std::int64_t cache_rows(const as_cache& c);

}  // namespace attnscope::cpu
