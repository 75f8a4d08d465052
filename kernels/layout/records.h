/* The byte layouts of DeepSeek-V4's rows and pages as constants, for kernels and references; what
 * other code asks is kernels/params/row_format.h, and tests hold the two together. C99.
 *
 * A page of `rows` rows is planar: all payloads, then all scales, then padding up to a multiple of
 * 576 bytes.
 *   record        payload           scales          page of rows, padded
 *   LATENT        448 e4m3+64 bf16  7 UE8M0 + 0     64 rows: 37376 -> 37440;  2 rows: 1168 -> 1728
 *   INDEX_FP8     128 e4m3          one fp32        64 rows: 8448 -> 8640
 *   INDEX_MXFP4   64 packed e2m1    4 UE8M0         64 rows: 4352 -> 4608
 *   STATE         width fp32        none            4 rows of 2048: 32768 -> 32832
 * The logical form of a row is its payload followed by its scales. */
#ifndef ATTNSCOPE_KERNELS_LAYOUT_RECORDS_H
#define ATTNSCOPE_KERNELS_LAYOUT_RECORDS_H

#include <stdint.h>

#include "kernels/params/row_format.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
  AS_HEAD_DIM = 512,   /* D */
  AS_NOPE_DIM = 448,   /* dims without RoPE */
  AS_ROPE_DIM = 64,    /* dims with RoPE, the last ones */
  AS_INDEX_DIM = 128,  /* dims of an index key */
  AS_QUANT_BLOCK = 64, /* latent dims that share a scale */
  AS_QUANT_BLOCKS = 7,
  AS_MXFP4_BLOCK = 32,
  AS_PAGE_ALIGNMENT = 576
};

/* Bytes of a row's payload; width matters for STATE only. */
static inline int64_t as_payload_bytes(int32_t record, int64_t width) {
  switch (record) {
    case AS_RECORD_LATENT:
      return 576;
    case AS_RECORD_INDEX_FP8:
      return 128;
    case AS_RECORD_INDEX_MXFP4:
      return 64;
    case AS_RECORD_STATE:
      return 4 * width;
    default:
      return 0;
  }
}

/* Bytes of a row's scales. */
static inline int64_t as_scale_bytes(int32_t record) {
  switch (record) {
    case AS_RECORD_LATENT:
      return 8;
    case AS_RECORD_INDEX_FP8:
      return 4;
    case AS_RECORD_INDEX_MXFP4:
      return 4;
    default:
      return 0;
  }
}

/* Bytes of a whole row in logical form: 584, 132, 68, 4 * width. */
static inline int64_t as_row_bytes(int32_t record, int64_t width) {
  return as_payload_bytes(record, width) + as_scale_bytes(record);
}

/* Page of `rows` rows: used bytes, and bytes with padding. */
static inline int64_t as_page_bytes_raw(int32_t record, int64_t width, int64_t rows) {
  return rows * as_row_bytes(record, width);
}
static inline int64_t as_page_bytes(int32_t record, int64_t width, int64_t rows) {
  return as_round_up(as_page_bytes_raw(record, width, rows), AS_PAGE_ALIGNMENT);
}

/* Byte offsets inside a page. */
static inline int64_t as_payload_offset(int32_t record, int64_t width, int64_t row) {
  return row * as_payload_bytes(record, width);
}
static inline int64_t as_scale_offset(int32_t record, int64_t width, int64_t rows, int64_t row) {
  return rows * as_payload_bytes(record, width) + row * as_scale_bytes(record);
}

/* Address of a slot's payload and scales in a cache, either addressing. slot >= 0. */
typedef struct as_row_address {
  unsigned char* payload;
  unsigned char* scales; /* NULL for records without */
} as_row_address;

static inline as_row_address as_cache_row(const as_cache* c, int64_t slot) {
  as_row_address a;
  unsigned char* base = (unsigned char*)c->data.data;
  if (c->addressing == AS_LOGICAL) {
    a.payload = base + slot * c->data.stride[0] * as_dtype_size(c->data.dtype);
    a.scales =
        as_scale_bytes(c->record) > 0 ? a.payload + as_payload_bytes(c->record, c->width) : NULL;
  } else {
    int64_t row = slot % c->rows_per_block;
    unsigned char* page = base + slot / c->rows_per_block * c->data.stride[0];
    a.payload = page + as_payload_offset(c->record, c->width, row);
    a.scales = as_scale_bytes(c->record) > 0
                   ? page + as_scale_offset(c->record, c->width, c->rows_per_block, row)
                   : NULL;
  }
  return a;
}

/* Width A of a C128A index row: min(max(nextpow2(max(max_seq_len / 128, 1)), 128),
 * roundup(ceil(max_model_len / 128), 128)). */
static inline int64_t as_c128_index_width(int64_t max_seq_len, int64_t max_model_len) {
  int64_t n = max_seq_len / 128 > 1 ? max_seq_len / 128 : 1;
  int64_t width = 1;
  while (width < n) width *= 2;
  if (width < 128) width = 128;
  int64_t cap = as_round_up((max_model_len + 127) / 128, 128);
  return width < cap ? width : cap;
}

#ifdef __cplusplus
}
#endif

#endif
