// What the kernel tests share: random arrays behind tensors, paged caches with guard bytes between
// the pages, calling an op.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "kernels/cpu/codec.h"
#include "kernels/cpu/cpu_lane.h"
#include "kernels/cpu/rope_table.h"
#include "kernels/cpu/thread_pool.h"
#include "kernels/layout/records.h"
#include "kernels/params/attention_params.h"
#include "kernels/params/compressor_params.h"
#include "kernels/params/dense_params.h"
#include "kernels/params/draft_params.h"
#include "kernels/params/indexer_params.h"
#include "kernels/params/op_table.h"
#include "kernels/params/step_params.h"
#include "kernels/params/tensor_view.h"

namespace attnscope::kernel_tests {

using Random = std::mt19937_64;

inline float normal(Random& random) {
  // Sum of uniforms: the same values with every standard library.
  double sum = 0.0;
  for (int i = 0; i < 12; ++i) sum += static_cast<double>(random() >> 11) * 0x1p-53;
  return static_cast<float>(sum - 6.0);
}

// Owns the memory of one dense tensor.
template <class T>
struct Array {
  std::vector<T> values;
  as_tensor tensor;

  explicit Array(std::initializer_list<std::int64_t> shape, T fill = T{}) {
    std::int64_t n = 1;
    for (std::int64_t s : shape) n *= s;
    values.assign(static_cast<std::size_t>(n), fill);
    tensor = make_tensor(values.data(), shape);
  }
  Array(std::initializer_list<std::int64_t> shape, std::vector<T> content)
      : values(std::move(content)), tensor(make_tensor(values.data(), shape)) {}
  Array(const Array&) = delete;
  Array& operator=(const Array&) = delete;

  T& operator[](std::int64_t i) { return values[static_cast<std::size_t>(i)]; }
};

inline bf16_t to_bf16(float value) { return {cpu::float_to_bf16(value)}; }
inline float to_float(bf16_t value) { return cpu::bf16_to_float(value.bits); }

inline void fill_normal(Array<bf16_t>& a, Random& random, float scale = 1.0f) {
  for (bf16_t& v : a.values) v = to_bf16(scale * normal(random));
}
inline void fill_normal(Array<float>& a, Random& random, float scale = 1.0f) {
  for (float& v : a.values) v = scale * normal(random);
}

// Distance in units of the last place of the larger bf16.
inline int bf16_steps(bf16_t a, double exact) {
  const auto order = [](std::uint16_t bits) {
    return (bits & 0x8000) != 0 ? -static_cast<int>(bits & 0x7fff) : static_cast<int>(bits);
  };
  return std::abs(order(a.bits) - order(cpu::float_to_bf16(static_cast<float>(exact))));
}

// A cache of pages with foreign bytes between them, as in a slab that several layers share.
class PagedCache {
 public:
  PagedCache(std::int32_t record, std::int32_t width, std::int32_t rows, std::int64_t blocks,
             std::int64_t gap = 1152)
      : page_(as_page_bytes(record, width, rows)), stride_(page_ + gap), blocks_(blocks) {
    bytes_.assign(static_cast<std::size_t>(stride_ * blocks), kGuard);
    view_.data = make_tensor(bytes_.data(), {blocks, page_});
    view_.data.stride[0] = stride_;
    view_.record = record;
    view_.addressing = AS_PAGED;
    view_.rows_per_block = rows;
    view_.width = width;
  }
  PagedCache(const PagedCache&) = delete;
  PagedCache& operator=(const PagedCache&) = delete;

  const as_cache& view() const { return view_; }
  as_row_address row(std::int64_t slot) const { return as_cache_row(&view_, slot); }
  std::vector<unsigned char>& bytes() { return bytes_; }
  const std::vector<unsigned char>& bytes() const { return bytes_; }

  void put(std::int64_t slot, const float* values) {
    const as_row_address to = row(slot);
    cpu::quantise_row(view_.record, view_.width, values, to.payload, to.scales);
  }
  std::vector<float> get(std::int64_t slot) const {
    std::vector<float> values(static_cast<std::size_t>(view_.width));
    const as_row_address from = row(slot);
    cpu::decode_row(view_.record, view_.width, from.payload, from.scales, values.data());
    return values;
  }

  // Bytes between pages and the padding of pages, unchanged since construction?
  bool guards_intact() const {
    const std::int64_t used = as_page_bytes_raw(view_.record, view_.width, view_.rows_per_block);
    for (std::int64_t b = 0; b < blocks_; ++b) {
      for (std::int64_t i = used; i < stride_; ++i) {
        if (bytes_[static_cast<std::size_t>(b * stride_ + i)] != kGuard) return false;
      }
    }
    return true;
  }

 private:
  static constexpr unsigned char kGuard = 0xa5;
  std::int64_t page_;
  std::int64_t stride_;
  std::int64_t blocks_;
  std::vector<unsigned char> bytes_;
  as_cache view_{};
};

// Rotary numbers with a table of max_pos rows.
class Rope {
 public:
  explicit Rope(std::int64_t max_pos, double base = 160000.0, double factor = 16.0)
      : table_({max_pos, AS_ROPE_DIM}) {
    view_.base = base;
    view_.factor = factor;
    view_.original_max_pos = 65536.0;
    view_.beta_fast = 32.0;
    view_.beta_slow = 1.0;
    cpu::build_rope_table(view_, max_pos, table_.values.data(), nullptr);
    view_.table = table_.tensor;
  }
  const as_rope& view() const { return view_; }

 private:
  Array<float> table_;
  as_rope view_{};
};

template <class Params>
Params make_params() {
  Params p{};
  p.head = {sizeof(Params), AS_PARAMS_VERSION};
  return p;
}

// Status and message of an op of the CPU lane.
struct Outcome {
  std::int32_t status;
  std::string message;
};

template <class Params>
Outcome run(as_op_id op, const Params& params, const as_threads* threads = nullptr,
            const Lane* lane = cpu::lane()) {
  as_call call{};
  call.struct_size = sizeof(call);
  call.threads = threads;
  as_error error{};
  const std::int32_t status = lane->ops[op](&params, &call, &error);
  return {status, error.message};
}

#define EXPECT_OK(outcome)                                 \
  do {                                                     \
    const Outcome outcome_ = (outcome);                    \
    EXPECT_EQ(outcome_.status, AS_OK) << outcome_.message; \
  } while (false)

#define EXPECT_REFUSED(outcome, text)                                              \
  do {                                                                             \
    const Outcome outcome_ = (outcome);                                            \
    EXPECT_EQ(outcome_.status, AS_BAD_INPUT);                                      \
    EXPECT_NE(outcome_.message.find(text), std::string::npos) << outcome_.message; \
  } while (false)

// Every op of a lane refuses params of another size or version and params of zeros, where something
// is absent or out of range; the message says so or names the op.
inline void expect_foreign_structs_refused(const Lane& lane) {
  for (int i = 0; const as_op_info* info = as_op_at(i); ++i) {
    const as_op_fn function = lane.ops[info->id];
    if (function == nullptr) continue;
    std::vector<unsigned char> bytes(info->params_size, 0);
    auto* head = reinterpret_cast<as_params_head*>(bytes.data());
    as_error error{};
    const auto refused_with = [&](const char* text) {
      EXPECT_EQ(function(bytes.data(), nullptr, &error), AS_BAD_INPUT) << info->name;
      EXPECT_NE(std::string(error.message).find(text), std::string::npos) << error.message;
    };
    EXPECT_EQ(function(nullptr, nullptr, &error), AS_BAD_INPUT) << info->name;
    *head = {static_cast<std::uint32_t>(info->params_size) - 8u, AS_PARAMS_VERSION};
    refused_with("struct_size");
    *head = {info->params_size, AS_PARAMS_VERSION + 1};
    refused_with("version");
    *head = {info->params_size, AS_PARAMS_VERSION};
    refused_with(info->name);
    EXPECT_EQ(std::string(error.message).find(info->name), 0u) << error.message;
    EXPECT_EQ(function(bytes.data(), nullptr, nullptr), AS_BAD_INPUT) << info->name;
  }
}

}  // namespace attnscope::kernel_tests
