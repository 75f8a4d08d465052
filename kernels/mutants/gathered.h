// Rows of a paged cache as a bug reads them: each slot that a list names, fetched by a function of
// the bug's and put into an unpaged copy.
#pragma once

#include <cstdint>
#include <cstring>
#include <vector>

#include "kernels/layout/records.h"
#include "kernels/params/tensor_view.h"

namespace attnscope::mutants {

class Gathered {
 public:
  // fetch(slot, payload, scales) fills one row.
  template <class Fetch>
  Gathered(const as_cache& cache, const as_tensor& indices, const as_tensor& lens,
           const Fetch& fetch) {
    const std::int64_t tokens = indices.shape[0], width = indices.shape[1];
    const std::int64_t payload = as_payload_bytes(cache.record, cache.width);
    const std::int64_t bytes = as_row_bytes(cache.record, cache.width);
    list_.assign(static_cast<std::size_t>(tokens * width), -1);
    for (std::int64_t t = 0; t < tokens; ++t) {
      for (std::int64_t k = 0; k < *at<std::int32_t>(lens, t); ++k) {
        const std::int32_t slot = *at<std::int32_t>(indices, t, k);
        if (slot < 0) continue;
        list_[static_cast<std::size_t>(t * width + k)] = static_cast<std::int32_t>(rows_++);
        data_.resize(static_cast<std::size_t>(rows_ * bytes));
        std::uint8_t* row = data_.data() + (rows_ - 1) * bytes;
        fetch(slot, row, row + payload);
      }
    }
    data_.resize(static_cast<std::size_t>(std::max<std::int64_t>(1, rows_) * bytes));
    cache_ = cache;
    cache_.addressing = AS_LOGICAL;
    cache_.rows_per_block = 0;
    cache_.data = make_tensor(data_.data(), {std::max<std::int64_t>(1, rows_), bytes});
    indices_ = make_tensor(list_.data(), {tokens, width});
  }

  const as_cache& cache() const { return cache_; }
  const as_tensor& indices() const { return indices_; }

 private:
  std::vector<std::uint8_t> data_;
  std::vector<std::int32_t> list_;
  std::int64_t rows_ = 0;
  as_cache cache_{};
  as_tensor indices_{};
};

// The page read as if every row's scales followed its payload.
inline void fetch_interleaved(const as_cache& cache, std::int64_t slot, std::uint8_t* payload,
                              std::uint8_t* scales) {
  const std::int64_t in_page = cache.addressing == AS_PAGED ? slot % cache.rows_per_block : 0;
  const std::int64_t bytes = as_row_bytes(cache.record, cache.width);
  const std::uint8_t* page = as_cache_row(&cache, slot - in_page).payload;
  const std::int64_t split = as_payload_bytes(cache.record, cache.width);
  std::memcpy(payload, page + in_page * bytes, static_cast<std::size_t>(split));
  std::memcpy(scales, page + in_page * bytes + split, static_cast<std::size_t>(bytes - split));
}

}  // namespace attnscope::mutants
