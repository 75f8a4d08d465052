// Rows of K and V caches as the ops of dense attention address them, and what they ask of a cache:
// rows of 16-bit numbers, or of codes (kv_codes.h), heads of one size.
#pragma once

#include <cstdint>

#include "kernels/cpu/check.h"
#include "kernels/params/row_format.h"

namespace attnscope::cpu {

// Where heads of rows lie; distances in 16-bit numbers.
struct KvPages {
  std::uint16_t* base = nullptr;
  std::int64_t page = 0;  // between two pages
  std::int64_t row = 0;   // between two rows of a page
  std::int64_t head = 0;  // between two heads of a row
  std::int64_t rows = 1;  // in a page; 1 in a logical cache
  bool f16 = false;       // else bf16

  std::uint16_t* at(std::int64_t block, std::int64_t in_page, std::int64_t kv_head) const {
    return base + block * page + in_page * row + kv_head * head;
  }
};

// Of a cache of 16-bit numbers that check_kv_cache has let pass.
KvPages kv_pages(const as_cache& cache);

// K or V rows of `heads` heads of `size` numbers.
bool check_kv_cache(const char* name, const as_cache& cache, std::int64_t heads, std::int64_t size,
                    Check& check);

// A head size that the ops take.
bool check_head_size(const char* name, std::int64_t size, Check& check);

}  // namespace attnscope::cpu
