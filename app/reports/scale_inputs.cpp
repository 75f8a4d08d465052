#include "app/reports/scale_inputs.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "engine/model/numbers.h"
#include "kernels/layout/records.h"

namespace attnscope {
namespace {

constexpr std::int64_t kPattern = 1 << 22;  // bytes of different pages, which caches repeat
constexpr unsigned char kBelowTwo = 0xbf;   // of an e4m3 code: its sign and |x| < 2, never NaN
constexpr int kScaleCode = 119;             // UE8M0: 2^-8, and up to 2^-1 with 3 random bits

// A row as writers leave it: codes, scales, zeros where the format has padding.
void random_row(const CacheSpec& spec, as_row_address row, std::mt19937_64& random) {
  const std::int64_t payload = as_payload_bytes(spec.record, spec.width);
  for (std::int64_t i = 0; i < payload; ++i) {
    row.payload[i] = static_cast<unsigned char>(random()) & kBelowTwo;
  }
  if (spec.record == AS_RECORD_INDEX_FP8) {
    const float scale = (random() & 1) != 0 ? 0.0625f : 0.125f;
    std::memcpy(row.scales, &scale, sizeof(scale));
    return;
  }
  std::memset(row.scales, 0, to_size(as_scale_bytes(spec.record)));
  for (int i = 0; i < AS_QUANT_BLOCKS; ++i) {
    row.scales[i] = static_cast<unsigned char>(kScaleCode + static_cast<int>(random() & 7));
  }
  for (int i = 0; i < AS_ROPE_DIM; ++i) {
    // bf16 of either sign, 1/2 to 1.
    const auto bits = static_cast<std::uint16_t>(0x3f00u | (random() & 0x807fu));
    std::memcpy(row.payload + AS_NOPE_DIM + 2 * i, &bits, sizeof(bits));
  }
}

}  // namespace

as_tensor ScaleInputs::make(std::int32_t dtype, std::initializer_list<std::int64_t> shape) {
  as_tensor t = make_tensor(nullptr, dtype, shape);
  const std::size_t bytes = tensor_bytes(t);
  bytes_ += bytes;
  if (counting() || error_) return t;
  t.device = timer_->device();
  const Result<void*> memory = timer_->allocate(bytes);
  if (memory) {
    t.data = *memory;
  } else {
    error_ = memory.error();
  }
  return t;
}

void ScaleInputs::write(void* to, const void* from, std::size_t bytes) {
  if (counting() || error_) return;
  if (auto ok = timer_->write(to, from, bytes); !ok) error_ = ok.error();
}

as_tensor ScaleInputs::numbers(std::int32_t dtype, std::initializer_list<std::int64_t> shape) {
  const as_tensor t = make(dtype, shape);
  if (counting()) return t;
  std::normal_distribution<float> normal;
  std::vector<float> values(to_size(as_tensor_numel(&t)));
  for (float& v : values) v = normal(random_);
  if (dtype == AS_F32) {
    write(t.data, values.data(), tensor_bytes(t));
    return t;
  }
  std::vector<bf16_t> upper(values.size());
  for (std::size_t i = 0; i < values.size(); ++i) {
    std::uint32_t bits = 0;
    std::memcpy(&bits, &values[i], sizeof(bits));
    upper[i].bits = static_cast<std::uint16_t>(bits >> 16);
  }
  write(t.data, upper.data(), tensor_bytes(t));
  return t;
}

as_tensor ScaleInputs::codes(std::initializer_list<std::int64_t> shape) {
  const as_tensor t = make(AS_U8, shape);
  if (counting()) return t;
  std::vector<std::uint8_t> values(tensor_bytes(t));
  for (std::uint8_t& v : values) v = static_cast<std::uint8_t>(random_()) & kBelowTwo;
  write(t.data, values.data(), values.size());
  return t;
}

std::vector<unsigned char> ScaleInputs::random_pages(const CacheSpec& spec, std::int64_t count) {
  std::vector<unsigned char> pages(to_size(count * spec.page_bytes), 0);
  const as_cache c = spec.cache(make_tensor(pages.data(), {count, spec.page_bytes}));
  for (std::int64_t slot = 0; slot < count * spec.rows_per_block; ++slot) {
    random_row(spec, as_cache_row(&c, slot), random_);
  }
  return pages;
}

as_cache ScaleInputs::cache(const CacheSpec& spec, std::int64_t pages) {
  const as_tensor t = make(AS_U8, {pages + 1, spec.page_bytes});
  const as_cache c = spec.cache(t);
  if (counting() || error_) return c;
  const std::int64_t different = std::clamp<std::int64_t>(kPattern / spec.page_bytes, 1, pages + 1);
  const std::vector<unsigned char> pattern = random_pages(spec, different);
  const std::size_t size = tensor_bytes(t);
  for (std::size_t at = 0; at < size; at += pattern.size()) {
    write(static_cast<unsigned char*>(t.data) + at, pattern.data(),
          std::min(pattern.size(), size - at));
  }
  return c;
}

std::vector<std::int32_t> ScaleInputs::tables(std::int64_t rows, std::int64_t columns) {
  std::vector<std::int32_t> pages(to_size(rows * columns));
  if (counting()) return pages;
  std::iota(pages.begin(), pages.end(), 1);
  std::shuffle(pages.begin(), pages.end(), random_);
  return pages;
}

std::vector<std::int32_t> ScaleInputs::chosen(std::int64_t count, std::int64_t limit) {
  std::vector<std::int32_t> all(to_size(limit)), some;
  if (counting()) return std::vector<std::int32_t>(to_size(count));
  std::iota(all.begin(), all.end(), 0);
  some.reserve(to_size(count));
  std::sample(all.begin(), all.end(), std::back_inserter(some), count, random_);
  return some;
}

}  // namespace attnscope
