// Caches of the property tests: pages and logical rows with the same content.
#include <fmt/format.h>

#include <algorithm>
#include <climits>
#include <cmath>
#include <cstring>
#include <numeric>

#include "tests/property/harness.h"

namespace attnscope::properties {
namespace {

constexpr unsigned char kPoison = 0xff;
constexpr std::int64_t kSpareBlocks = 3;
constexpr std::int64_t kSpareColumns = 2;

}  // namespace

TwinCache::TwinCache(std::int32_t record, std::int32_t width, std::vector<std::int64_t> lengths,
                     Pages pages, Random& random)
    : lengths_(std::move(lengths)) {
  const auto requests = static_cast<std::int64_t>(lengths_.size());
  std::int64_t rows = 0;
  std::int64_t used = 0;
  for (std::int64_t length : lengths_) {
    first_row_.push_back(rows);
    logical_table_.push_back(static_cast<std::int32_t>(rows));
    rows += length;
    used += ceil_div(length, pages.rows);
    columns_ = std::max(columns_, ceil_div(length, pages.rows) + kSpareColumns);
  }
  const std::int64_t blocks = 1 + used + kSpareBlocks;
  std::vector<std::int32_t> ids(static_cast<std::size_t>(blocks - 1));
  std::iota(ids.begin(), ids.end(), 1);
  std::shuffle(ids.begin(), ids.end(), random);
  row_of_block_.assign(static_cast<std::size_t>(blocks), -1);
  for (std::int64_t r = 0; r < requests; ++r) {
    for (std::int64_t c = 0; c < columns_; ++c) {
      const std::int64_t length = lengths_[static_cast<std::size_t>(r)];
      if (c >= ceil_div(length, pages.rows)) {
        table_.push_back(c % 2 == 0 ? INT_MAX : -5);
        continue;
      }
      row_of_block_[static_cast<std::size_t>(ids.back())] = row(r, c * pages.rows);
      table_.push_back(ids.back());
      ids.pop_back();
    }
  }
  const std::int64_t page = as_page_bytes(record, width, pages.rows);
  const std::int64_t raw = as_page_bytes_raw(record, width, pages.rows);
  const std::int64_t stride = page + pages.gap;
  // The slab ends with the last row, so that a memory checker sees reads beyond it.
  slab_.assign(static_cast<std::size_t>((blocks - 1) * stride + raw), kPoison);
  paged_.data = make_tensor(slab_.data(), {blocks, raw});
  paged_.data.stride[0] = stride;
  paged_.record = record;
  paged_.addressing = AS_PAGED;
  paged_.rows_per_block = pages.rows;
  paged_.width = width;
  rows_.assign(static_cast<std::size_t>(rows * as_row_bytes(record, width)), kPoison);
  values_.assign(static_cast<std::size_t>(rows * width), NAN);
}

as_cache TwinCache::logical() const {
  as_cache c = paged_;
  const std::int64_t bytes = as_row_bytes(c.record, c.width);
  const std::int64_t rows = static_cast<std::int64_t>(rows_.size()) / bytes;
  c.addressing = AS_LOGICAL;
  c.rows_per_block = 0;
  c.data = make_tensor(rows_.data(), {rows, bytes});
  if (c.record == AS_RECORD_STATE) {
    c.data = make_tensor(reinterpret_cast<const float*>(rows_.data()), {rows, c.width});
  }
  return c;
}

as_cache TwinCache::values() const {
  as_cache c = logical();
  c.data = make_tensor(values_.data(), {c.data.shape[0], c.width});
  return c;
}

as_tensor TwinCache::table() const {
  return make_tensor(table_.data(), {static_cast<std::int64_t>(lengths_.size()), columns_});
}

as_tensor TwinCache::logical_table() const {
  return make_tensor(logical_table_.data(), {static_cast<std::int64_t>(lengths_.size()), 1});
}

std::int64_t TwinCache::slot(std::int64_t request, std::int64_t position) const {
  const std::int64_t rows = paged_.rows_per_block;
  const std::int64_t block = table_[static_cast<std::size_t>(request * columns_ + position / rows)];
  return block * rows + position % rows;
}

std::int64_t TwinCache::row(std::int64_t request, std::int64_t position) const {
  return first_row_[static_cast<std::size_t>(request)] + position;
}

std::int64_t TwinCache::row_of_slot(std::int64_t slot) const {
  const std::int64_t rows = paged_.rows_per_block;
  const std::int64_t first = row_of_block_[static_cast<std::size_t>(slot / rows)];
  return first < 0 ? -1 : first + slot % rows;
}

void TwinCache::put(std::int64_t request, std::int64_t position, const float* values) {
  const as_row_address to = as_cache_row(&paged_, slot(request, position));
  cpu::quantise_row(paged_.record, paged_.width, values, to.payload, to.scales);
  std::copy_n(values, paged_.width, values_.begin() + row(request, position) * paged_.width);
  adopt(request, position);
}

void TwinCache::put_all(Random& random, float scale) {
  std::vector<float> values(static_cast<std::size_t>(paged_.width));
  for (std::size_t r = 0; r < lengths_.size(); ++r) {
    for (std::int64_t p = 0; p < lengths_[r]; ++p) {
      for (float& v : values) v = cpu::round_bf16(scale * normal(random));
      put(static_cast<std::int64_t>(r), p, values.data());
    }
  }
}

void TwinCache::adopt(std::int64_t request, std::int64_t position) {
  const as_row_address from = as_cache_row(&paged_, slot(request, position));
  const std::int64_t payload = as_payload_bytes(paged_.record, paged_.width);
  const std::int64_t scales = as_scale_bytes(paged_.record);
  unsigned char* to = rows_.data() + row(request, position) * (payload + scales);
  std::memcpy(to, from.payload, static_cast<std::size_t>(payload));
  if (scales > 0) std::memcpy(to + payload, from.scales, static_cast<std::size_t>(scales));
}

void TwinCache::drop_below(std::int64_t request, std::int64_t position) {
  const std::int64_t gone = std::max<std::int64_t>(position, 0) / paged_.rows_per_block;
  std::fill_n(table_.begin() + request * columns_, gone, AS_NULL_BLOCK);
}

std::vector<double> TwinCache::decoded(std::int64_t slot) const {
  std::vector<float> values(static_cast<std::size_t>(paged_.width));
  const as_row_address from = as_cache_row(&paged_, slot);
  cpu::decode_row(paged_.record, paged_.width, from.payload, from.scales, values.data());
  return {values.begin(), values.end()};
}

RowsOut rows_out(const as_cache& engine, const as_tensor& slots, bool values, Memory* memory) {
  RowsOut out;
  const std::int64_t tokens = slots.shape[0];
  out.cache = engine;
  out.cache.addressing = AS_LOGICAL;
  out.cache.rows_per_block = 0;
  out.cache.data = values
                       ? memory->make(AS_F64, {tokens, engine.width})
                       : memory->make(AS_U8, {tokens, as_row_bytes(engine.record, engine.width)});
  out.slots = memory->make(AS_I64, {tokens});
  for (std::int64_t t = 0; t < tokens; ++t) {
    *at<std::int64_t>(out.slots, t) = *at<std::int64_t>(slots, t) < 0 ? -1 : t;
  }
  return out;
}

void judge_slab(const TwinCache& cache, const std::vector<unsigned char>& before,
                const as_tensor& slots, const as_tensor& records, Report* report) {
  std::vector<unsigned char> expected = before;
  as_cache view = cache.paged();
  view.data.data = expected.data();
  const std::int64_t payload = as_payload_bytes(view.record, view.width);
  const std::int64_t scales = as_scale_bytes(view.record);
  for (std::int64_t t = 0; t < slots.shape[0]; ++t) {
    const std::int64_t slot = *at<std::int64_t>(slots, t);
    if (slot < 0) continue;
    const auto* record = at<unsigned char>(records, t);
    const as_row_address to = as_cache_row(&view, slot);
    std::memcpy(to.payload, record, static_cast<std::size_t>(payload));
    if (scales > 0) std::memcpy(to.scales, record + payload, static_cast<std::size_t>(scales));
  }
  const std::vector<unsigned char> now = cache.slab();
  const auto differ = std::mismatch(expected.begin(), expected.end(), now.begin(), now.end());
  if (differ.first == expected.end()) return;
  const std::int64_t i = differ.first - expected.begin();
  const std::int64_t stride = view.data.stride[0];
  report->fail("cache", fmt::format("byte {} of block {} is {}, expected {}", i % stride,
                                    i / stride, *differ.second, *differ.first));
}

double quantisation_step(std::int32_t record, std::int64_t column, double x, double amax) {
  if (record == AS_RECORD_STATE) return 0;
  if (record == AS_RECORD_INDEX_MXFP4) {
    // Steps of e2m1: 0.5, then 1 from 2 on and 2 from 4 on, so half a step is at most a quarter of
    // the value, and a quarter of the scale near 0. The scale is below amax / 3.
    return std::max({0.25 * std::fabs(x), amax / 12, 0x1p-128});
  }
  if (record == AS_RECORD_LATENT && column >= AS_NOPE_DIM) return 0;
  // e4m3: half a step is 2^-4 of the value, 2^-10 of the scale near 0; the scale is below
  // amax / 224.
  return std::max(0x1p-4 * std::fabs(x), 0x1p-10 / 224 * std::max(amax, 1e-4));
}

double block_amax(std::int32_t record, std::int64_t column, const double* row) {
  std::int64_t size = AS_INDEX_DIM;
  if (record == AS_RECORD_INDEX_MXFP4) size = AS_MXFP4_BLOCK;
  if (record == AS_RECORD_LATENT) {
    if (column >= AS_NOPE_DIM) return 0;
    size = AS_QUANT_BLOCK;
  }
  const double* first = row + column / size * size;
  double amax = 0;
  for (std::int64_t i = 0; i < size; ++i) amax = std::max(amax, std::fabs(first[i]));
  return amax;
}

}  // namespace attnscope::properties
