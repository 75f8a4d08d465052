#include "reference/kv_rows.h"

#include <cstring>
#include <string>

#include "kernels/params/row_format.h"
#include "reference/codec.h"

namespace attnscope::reference {

KvRows::KvRows(const as_cache& cache, const char* name, std::int64_t heads, std::int64_t size)
    : cache_(cache), name_(name), f16_((cache.record & ~AS_RECORD_HND) == AS_RECORD_F16) {
  const std::string what = name;
  if (!f16_ && (cache.record & ~AS_RECORD_HND) != AS_RECORD_BF16) {
    const as_row_format* format = as_row_format_of(cache.record);
    throw BadInput(what + " holds record " + (format != nullptr ? format->name : "none") +
                   "; allowed: bf16, bf16_hnd, f16, f16_hnd");
  }
  if (cache.addressing != AS_LOGICAL) {
    throw BadInput(what + " is paged; the references read logical rows (AS_LOGICAL)");
  }
  if (as_cache_heads(&cache) != heads || cache.width != heads * size) {
    throw BadInput(what + " has rows of " + std::to_string(as_cache_heads(&cache)) +
                   " heads and width " + std::to_string(cache.width) + "; expected " +
                   std::to_string(heads) + " and " + std::to_string(heads * size));
  }
  if (cache.data.dtype == AS_U8) {
    bytes_.emplace(cache.data, name, Shape{kAny, 2 * heads * size});
  } else {
    values_.emplace(cache.data, name, Shape{kAny, heads * size});
  }
}

std::vector<double> KvRows::load(std::int64_t row, std::int64_t token) const {
  check_index(row, cache_.data.shape[0], name_, token);
  std::vector<double> values(static_cast<std::size_t>(cache_.width));
  if (values_) {
    values_->load(row, values.data());
    return values;
  }
  for (std::size_t i = 0; i < values.size(); ++i) {
    std::uint16_t bits;
    std::memcpy(&bits, bytes_->row(row) + 2 * i, sizeof(bits));
    values[i] = f16_ ? f16_value(bits) : bf16_value(bits);
  }
  return values;
}

void KvRows::store(std::int64_t row, std::int64_t token, const std::vector<double>& values,
                   const Precision& precision) const {
  check_index(row, cache_.data.shape[0], name_, token);
  std::vector<double> kept = values;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const std::uint16_t bits = f16_ ? f16_bits(values[i]) : bf16_bits(values[i]);
    if (bytes_) std::memcpy(bytes_->row(row) + 2 * i, &bits, sizeof(bits));
    if (!precision.exact) kept[i] = f16_ ? f16_value(bits) : bf16_value(bits);
  }
  if (values_) values_->store(row, kept.data());
}

}  // namespace attnscope::reference
