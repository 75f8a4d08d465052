#include "kernels/cpu/kv_codes.h"

#include <cmath>
#include <cstring>
#include <limits>

#include "kernels/cpu/codec.h"
#include "kernels/params/paged_params.h"
#include "kernels/params/tensor_view.h"

namespace attnscope::cpu {

namespace {

constexpr float kLeastScale = std::numeric_limits<float>::min();  // 2^-126
constexpr float kMostE4m3 = 448, kMostE5m2 = 57344;
constexpr float kInt8Steps = 255, kInt8Low = -128;

const as_row_part* coded_part(std::int32_t record) {
  const as_row_format* format = as_row_format_of(record);
  const bool any = format != nullptr && format->num_parts == 1 && format->parts[0].count == 0;
  if (!any || format->parts[0].scale != AS_CODE_F32) return nullptr;
  return format->parts[0].per == AS_PER_TOKEN ? nullptr : &format->parts[0];
}

bool is_beside(const as_row_part& part) {
  return part.per == AS_PER_HEAD || part.per == AS_PER_TENSOR;
}

// Of numbers without NaN and infinities; else a scale of NaN.
HeadScale computed_scale(const KvCodes& codes, const float* x, std::int64_t size) {
  const simd::Kernels& simd = simd::kernels();
  HeadScale made;
  float low = 0, high = 0;
  const float largest = simd.abs_max(x, size);
  // NaN counts nothing there: 0 * NaN and 0 * infinity do.
  float any = 0;
  for (std::int64_t i = 0; i < size; ++i) any += x[i] * 0.0f;
  if (any != 0.0f || !std::isfinite(largest)) {
    made.scale = std::numeric_limits<float>::quiet_NaN();
    return made;
  }
  if (codes.code != AS_CODE_I8) {
    made.scale = largest / (codes.code == AS_CODE_E5M2 ? kMostE5m2 : kMostE4m3);
    if (!(made.scale > kLeastScale)) made.scale = kLeastScale;
    return made;
  }
  simd.range(x, size, &low, &high);
  made.scale = high / kInt8Steps - low / kInt8Steps;
  if (!(made.scale > kLeastScale)) made.scale = kLeastScale;
  made.zero = kInt8Low - std::nearbyint(low / made.scale);
  return made;
}

}  // namespace

bool is_coded(std::int32_t record) { return coded_part(record) != nullptr; }

KvCodes kv_codes(const as_cache& cache, const as_tensor& beside) {
  const as_row_layout layout = as_cache_layout(&cache);
  const as_row_part& part = layout.format->parts[0];
  KvCodes codes;
  codes.base = static_cast<unsigned char*>(cache.data.data);
  codes.page = cache.data.stride[0];
  codes.rows = layout.rows;
  codes.code = part.code;
  codes.zero = part.zero != AS_CODE_NONE;
  const as_head_place first = as_head_at(&layout, 0, 0);
  codes.scales = first.scales;
  if (layout.rows > 1) {
    const as_head_place next = as_head_at(&layout, 1, 0);
    codes.row = next.payload;
    codes.scale_row = next.scales - first.scales;
  }
  if (layout.heads > 1) {
    const as_head_place next = as_head_at(&layout, 0, 1);
    codes.head = next.payload;
    codes.scale_head = next.scales - first.scales;
  }
  if (is_beside(part)) {
    codes.beside = static_cast<const float*>(beside.data);
    codes.beside_step = part.per == AS_PER_HEAD ? beside.stride[0] : 0;
  }
  return codes;
}

HeadScale head_scale(const KvCodes& codes, std::int64_t block, std::int64_t in_page,
                     std::int64_t kv_head) {
  HeadScale read;
  if (codes.beside != nullptr) {
    read.scale = codes.beside[kv_head * codes.beside_step];
    return read;
  }
  const unsigned char* from = codes.base + codes.scale_at(block, in_page, kv_head);
  std::memcpy(&read.scale, from, sizeof(read.scale));
  if (codes.zero) std::memcpy(&read.zero, from + sizeof(read.scale), sizeof(read.zero));
  return read;
}

void store_head(const KvCodes& codes, std::int64_t block, std::int64_t in_page,
                std::int64_t kv_head, const std::uint16_t* values, std::int64_t size) {
  const simd::Kernels& simd = simd::kernels();
  float x[AS_MAX_HEAD_SIZE];
  simd.from_bf16(values, size, x);
  unsigned char* to = codes.base + codes.at(block, in_page, kv_head);
  HeadScale used;
  if (codes.beside != nullptr) {
    used.scale = codes.beside[kv_head * codes.beside_step];
  } else {
    used = computed_scale(codes, x, size);
    unsigned char* place = codes.base + codes.scale_at(block, in_page, kv_head);
    std::memcpy(place, &used.scale, sizeof(used.scale));
    if (codes.zero) std::memcpy(place + sizeof(used.scale), &used.zero, sizeof(used.zero));
    if (used.scale != used.scale) {
      std::memset(to, 0, static_cast<std::size_t>(size));
      return;
    }
  }
  simd.divide(x, size, used.scale);
  if (codes.code == AS_CODE_E4M3) {
    simd.encode_e4m3(x, 1.0f, size, to);
  } else if (codes.code == AS_CODE_E5M2) {
    simd.encode_e5m2(x, size, to);
  } else {
    simd.encode_i8(x, used.zero, size, to);
  }
}

void load_head(const KvCodes& codes, std::int64_t block, std::int64_t in_page, std::int64_t kv_head,
               std::int64_t size, float* out) {
  const simd::Kernels& simd = simd::kernels();
  const HeadScale read = head_scale(codes, block, in_page, kv_head);
  const unsigned char* from = codes.base + codes.at(block, in_page, kv_head);
  if (codes.code == AS_CODE_E4M3) {
    simd.decode_e4m3(from, read.scale, size, out);
  } else if (codes.code == AS_CODE_E5M2) {
    simd.decode_e5m2(from, read.scale, size, out);
  } else {
    simd.decode_i8(from, read.scale, read.zero, size, out);
  }
}

void decode_kv_row(const as_cache& cache, const as_tensor& beside, const std::uint8_t* row,
                   float* out) {
  as_cache one = cache;
  one.addressing = AS_LOGICAL;
  const std::int64_t bytes = as_cache_row_bytes(&cache);
  one.data = make_tensor(const_cast<std::uint8_t*>(row), {std::int64_t{1}, bytes});
  one.data.reserved = cache.data.reserved;
  const KvCodes codes = kv_codes(one, beside);
  const std::int64_t heads = as_cache_heads(&cache), size = cache.width / heads;
  for (std::int64_t h = 0; h < heads; ++h) load_head(codes, 0, 0, h, size, out + h * size);
}

KvRows::KvRows(const as_cache& cache, const as_tensor& beside) : coded(is_coded(cache.record)) {
  if (coded) {
    codes = kv_codes(cache, beside);
    rows = codes.rows;
  } else {
    pages = kv_pages(cache);
    rows = pages.rows;
  }
}

void KvRows::put(std::int64_t slot, std::int64_t kv_head, const std::uint16_t* values,
                 std::int64_t size) const {
  if (coded) return store_head(codes, slot / rows, slot % rows, kv_head, values, size);
  std::uint16_t* to = pages.at(slot / rows, slot % rows, kv_head);
  if (!pages.f16) {
    std::memcpy(to, values, static_cast<std::size_t>(size) * sizeof(*values));
    return;
  }
  for (std::int64_t i = 0; i < size; ++i) to[i] = float_to_f16(bf16_to_float(values[i]));
}

bool check_kv_scale(const char* name, const as_tensor& scale, std::int32_t record,
                    std::int64_t heads, bool values, Check& check) {
  const as_row_part* part = coded_part(record);
  if (part == nullptr || !is_beside(*part)) {
    if (!present(scale) && scale.rank == 0) return true;
    return check.fail("%s is given, and rows of %s have no scale beside the cache", name,
                      as_row_format_of(record)->name);
  }
  const std::int64_t count = part->per == AS_PER_HEAD ? heads : 1;
  if (!check.tensor(name, scale, AS_F32, {count})) return false;
  for (std::int64_t h = 0; values && h < count; ++h) {
    const float s = *at<float>(scale, h);
    if (s > 0 && std::isfinite(s)) continue;
    return check.fail("%s[%lld] is %g; scales are finite and above 0", name,
                      static_cast<long long>(h), static_cast<double>(s));
  }
  return true;
}

}  // namespace attnscope::cpu
