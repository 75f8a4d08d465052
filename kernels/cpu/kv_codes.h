// Quantised rows of K and V caches: where codes, scales and zero points of heads lie, and what a
// head's numbers are stored as and read as (paged_params.h). Scales are behind the codes of their
// row, or beside the cache.
#pragma once

#include <cstdint>

#include "kernels/cpu/check.h"
#include "kernels/cpu/kv_pages.h"
#include "kernels/cpu/simd/simd.h"
#include "kernels/params/row_format.h"

namespace attnscope::cpu {

// Distances in bytes; for the lanes, which have arithmetic of their own.
struct KvCodes {
  unsigned char* base = nullptr;
  std::int64_t page = 0, row = 0, head = 0;  // between two pages, rows of a page, heads of a row
  std::int64_t rows = 1;                     // in a page; 1 in a logical cache
  std::int64_t scales = 0;                   // first scale of a page
  std::int64_t scale_row = 0, scale_head = 0;
  const float* beside = nullptr;  // scales beside the cache, else they are in the rows
  std::int64_t beside_step = 0;   // between those of two heads, in floats
  std::int32_t code = AS_CODE_NONE;
  bool zero = false;  // a zero point behind each scale

  std::int64_t at(std::int64_t block, std::int64_t in_page, std::int64_t kv_head) const {
    return block * page + in_page * row + kv_head * head;
  }
  std::int64_t scale_at(std::int64_t block, std::int64_t in_page, std::int64_t kv_head) const {
    return block * page + scales + in_page * scale_row + kv_head * scale_head;
  }
};

// Whether K and V rows of this record are codes.
bool is_coded(std::int32_t record);

// Of a coded cache that check_kv_cache has let pass, and the scales beside it.
KvCodes kv_codes(const as_cache& cache, const as_tensor& beside);

// What a code times scale is read as, with its zero point.
struct HeadScale {
  float scale = 1, zero = 0;
};
HeadScale head_scale(const KvCodes& codes, std::int64_t block, std::int64_t in_page,
                     std::int64_t kv_head);

// bf16 numbers of a head into its row, and back as fp32.
void store_head(const KvCodes& codes, std::int64_t block, std::int64_t in_page,
                std::int64_t kv_head, const std::uint16_t* values, std::int64_t size);
void load_head(const KvCodes& codes, std::int64_t block, std::int64_t in_page, std::int64_t kv_head,
               std::int64_t size, float* out);

// A row of coded heads in logical form, as one number after another.
void decode_kv_row(const as_cache& cache, const as_tensor& beside, const std::uint8_t* row,
                   float* out);

// One cache of either kind.
struct KvRows {
  KvRows(const as_cache& cache, const as_tensor& beside);

  bool bf16() const { return !coded && !pages.f16; }
  // A head of the row in a slot, from bf16 numbers.
  void put(std::int64_t slot, std::int64_t kv_head, const std::uint16_t* values,
           std::int64_t size) const;
  // Its first byte.
  const unsigned char* head(std::int64_t block, std::int64_t in_page, std::int64_t kv_head) const {
    if (coded) return codes.base + codes.at(block, in_page, kv_head);
    return reinterpret_cast<const unsigned char*>(pages.at(block, in_page, kv_head));
  }
  // A head of a row as fp32.
  void read(const simd::Kernels& simd, std::int64_t block, std::int64_t in_page,
            std::int64_t kv_head, std::int64_t size, float* to) const {
    if (coded) return load_head(codes, block, in_page, kv_head, size, to);
    const std::uint16_t* from = pages.at(block, in_page, kv_head);
    pages.f16 ? simd.from_f16(from, size, to) : simd.from_bf16(from, size, to);
  }

  bool coded;
  KvPages pages;  // of 16-bit numbers
  KvCodes codes;
  std::int64_t rows = 1;  // of a page; 1 in a logical cache
};

// Scales that a record has beside its cache: none, or positive numbers, 1 or one a head.
bool check_kv_scale(const char* name, const as_tensor& scale, std::int32_t record,
                    std::int64_t heads, bool values, Check& check);

}  // namespace attnscope::cpu
