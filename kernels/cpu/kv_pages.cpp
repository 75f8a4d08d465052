#include "kernels/cpu/kv_pages.h"

#include "kernels/cpu/kv_codes.h"
#include "kernels/params/paged_params.h"
#include "kernels/params/tensor_view.h"

namespace attnscope::cpu {

namespace {

// Rows of plain 16-bit numbers.
bool is_plain(const as_row_format* format) {
  if (format == nullptr || format->num_parts != 1) return false;
  const as_row_part& part = format->parts[0];
  return part.scale == AS_CODE_NONE && (part.code == AS_CODE_BF16 || part.code == AS_CODE_F16);
}

}  // namespace

KvPages kv_pages(const as_cache& cache) {
  const as_row_layout layout = as_cache_layout(&cache);
  KvPages pages;
  pages.base = static_cast<std::uint16_t*>(cache.data.data);
  pages.page = cache.data.stride[0] / 2;
  pages.rows = layout.rows;
  pages.row = layout.rows > 1 ? as_head_at(&layout, 1, 0).payload / 2 : 0;
  pages.head = layout.heads > 1 ? as_head_at(&layout, 0, 1).payload / 2 : 0;
  pages.f16 = layout.format->parts[0].code == AS_CODE_F16;
  return pages;
}

bool check_kv_cache(const char* name, const as_cache& cache, std::int64_t heads, std::int64_t size,
                    Check& check) {
  const as_row_format* format = as_row_format_of(cache.record);
  const bool coded = is_coded(cache.record);
  if (!coded && !is_plain(format)) {
    return check.fail(
        "%s holds record %s (%d); this op takes bf16, f16, fp8_ and e5m2_tensor, _head and "
        "_token_head, int8_token_head there, each of them also _hnd",
        name, format != nullptr ? format->name : "none", cache.record);
  }
  const std::int64_t width = heads * size;
  if (as_cache_heads(&cache) != heads || cache.width != width) {
    return check.fail("%s has rows of %lld heads and %d values; they must be %lld and %lld", name,
                      static_cast<long long>(as_cache_heads(&cache)), cache.width,
                      static_cast<long long>(heads), static_cast<long long>(width));
  }
  if (!check.tensor(name, cache.data, AS_U8, {kAny, kAny})) return false;
  if (cache.addressing != AS_PAGED && cache.addressing != AS_LOGICAL) {
    return check.fail("%s has addressing %d; allowed: AS_PAGED (0), AS_LOGICAL (1)", name,
                      cache.addressing);
  }
  if (cache.addressing == AS_PAGED && cache.rows_per_block <= 0) {
    return check.fail("%s has %d rows per block; a paged cache has at least 1", name,
                      cache.rows_per_block);
  }
  const std::int64_t needed = as_cache_layout(&cache).page_used;
  const as_tensor& t = cache.data;
  if (t.shape[0] > 0 && t.shape[1] < needed) {
    return check.fail("%s has pages or rows of %lld bytes; %s needs %lld", name,
                      static_cast<long long>(t.shape[1]), format->name,
                      static_cast<long long>(needed));
  }
  if (t.shape[0] > 1 && t.stride[0] < needed) {
    return check.fail("%s has a page stride of %lld bytes, less than a page of %lld", name,
                      static_cast<long long>(t.stride[0]), static_cast<long long>(needed));
  }
  const std::int64_t unit = coded ? 4 : 2;
  if (reinterpret_cast<std::uintptr_t>(t.data) % static_cast<std::uintptr_t>(unit) != 0 ||
      t.stride[0] % unit != 0) {
    return check.fail("%s is not aligned; its base and page stride must be multiples of %lld", name,
                      static_cast<long long>(unit));
  }
  if (coded && size % 4 != 0) {
    return check.fail("%s has heads of %lld codes; of quantised rows they must be multiples of 4",
                      name, static_cast<long long>(size));
  }
  return true;
}

bool check_head_size(const char* name, std::int64_t size, Check& check) {
  if (size >= 1 && size <= AS_MAX_HEAD_SIZE) return true;
  return check.fail("%s has heads of %lld values; allowed: 1 to %d", name,
                    static_cast<long long>(size), AS_MAX_HEAD_SIZE);
}

}  // namespace attnscope::cpu
