// Inputs of timed calls: random values in the memory of a lane, caches of random valid rows. The
// same numbers in every run. Without a timer nothing is allocated, only counted.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <random>
#include <vector>

#include "engine/backend/lane_timer.h"
#include "engine/cache/cache_spec.h"
#include "kernels/params/tensor_view.h"

namespace attnscope {

class ScaleInputs {
 public:
  explicit ScaleInputs(LaneTimer* timer) : timer_(timer) {}

  // Not filled: for what the op writes.
  as_tensor make(std::int32_t dtype, std::initializer_list<std::int64_t> shape);
  template <class T>
  as_tensor upload(const std::vector<T>& values, std::initializer_list<std::int64_t> shape) {
    const as_tensor t = make(kDtypeOf<T>, shape);
    write(t.data, values.data(), values.size() * sizeof(T));
    return t;
  }
  // One integer in all places.
  as_tensor same(std::int32_t value, std::int64_t count) {
    return upload(std::vector<std::int32_t>(static_cast<std::size_t>(count), value), {count});
  }
  // Normally distributed, f32 or bf16.
  as_tensor numbers(std::int32_t dtype, std::initializer_list<std::int64_t> shape);
  // e4m3 codes of numbers below 2.
  as_tensor codes(std::initializer_list<std::int64_t> shape);
  // Pages 1 .. `pages` of random rows, and the null block before them.
  as_cache cache(const CacheSpec& spec, std::int64_t pages);
  // `rows` tables of `columns` pages each: all pages from 1 on, in random order.
  std::vector<std::int32_t> tables(std::int64_t rows, std::int64_t columns);
  // `count` of the numbers below `limit`, ascending.
  std::vector<std::int32_t> chosen(std::int64_t count, std::int64_t limit);

  std::size_t bytes() const { return bytes_; }
  bool counting() const { return timer_ == nullptr; }
  const std::optional<Error>& error() const { return error_; }  // the first one

 private:
  void write(void* to, const void* from, std::size_t bytes);
  std::vector<unsigned char> random_pages(const CacheSpec& spec, std::int64_t count);

  LaneTimer* timer_;
  std::mt19937_64 random_{1};
  std::size_t bytes_ = 0;
  std::optional<Error> error_;
};

}  // namespace attnscope
