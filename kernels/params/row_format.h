/* What a cache row holds and where it lies, as data: one entry a format. Whoever copies, compares,
 * stores or shows rows asks here and knows no format; only offsets, no arithmetic on values.
 * Kernels may keep constants of their own (kernels/layout/records.h), which tests hold against
 * this.
 *
 * A row has num_kv_heads heads with the same parts. Its logical form is the page of one row: what
 * shadows, captures and cases keep of it.
 *
 *   as_row_layout l = as_row_layout_of(AS_RECORD_LATENT, 512, 1, 64);   l.row 584, l.page 37440
 *   as_element_place e = as_element_at(&l, 40, 0, 100);                 e.at 23140, e.scale 37185
 */
#ifndef ATTNSCOPE_KERNELS_PARAMS_ROW_FORMAT_H
#define ATTNSCOPE_KERNELS_PARAMS_ROW_FORMAT_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "kernels/params/tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { AS_NULL_BLOCK = 0 /* never owned, never written */ };

static inline int64_t as_round_up(int64_t n, int64_t multiple) {
  return (n + multiple - 1) / multiple * multiple;
}

/* How one number is stored. Little endian where it has more than a byte. */
typedef enum as_code {
  AS_CODE_NONE = 0,
  AS_CODE_E4M3, /* e4m3fn */
  AS_CODE_E5M2,
  AS_CODE_E2M1, /* two a byte, the even one in the low half */
  AS_CODE_BF16, /* upper half of an IEEE binary32 */
  AS_CODE_F16,  /* IEEE binary16 */
  AS_CODE_F32,  /* IEEE binary32 */
  AS_CODE_I8,   /* two's complement */
  AS_CODE_UE8M0 /* 2^(byte - 127) */
} as_code;

static inline int64_t as_code_bits(int32_t code) {
  switch (code) {
    case AS_CODE_E2M1:
      return 4;
    case AS_CODE_E4M3:
    case AS_CODE_E5M2:
    case AS_CODE_I8:
    case AS_CODE_UE8M0:
      return 8;
    case AS_CODE_BF16:
    case AS_CODE_F16:
      return 16;
    case AS_CODE_F32:
      return 32;
    default:
      return 0;
  }
}

/* "e4m3", "bf16", .. */
static inline const char* as_code_name(int32_t code) {
  switch (code) {
    case AS_CODE_E4M3:
      return "e4m3";
    case AS_CODE_E5M2:
      return "e5m2";
    case AS_CODE_E2M1:
      return "e2m1";
    case AS_CODE_BF16:
      return "bf16";
    case AS_CODE_F16:
      return "f16";
    case AS_CODE_F32:
      return "f32";
    case AS_CODE_I8:
      return "i8";
    case AS_CODE_UE8M0:
      return "UE8M0";
    default:
      return "none";
  }
}

/* Which elements of a part share a scale. */
typedef enum as_scale_per {
  AS_PER_BLOCK = 0, /* `block` elements of one head of one row; 0 = all of them */
  AS_PER_TOKEN = 1, /* all heads of a row */
  AS_PER_HEAD = 2,  /* a head in all rows: numbers beside the cache */
  AS_PER_TENSOR = 3 /* everything: a number beside the cache */
} as_scale_per;

typedef struct as_row_part {
  const char* name;
  int32_t code;  /* as_code */
  int32_t count; /* elements of a head; 0 = what the cache's width leaves */
  int32_t scale; /* as_code of its scales, AS_CODE_NONE = it has none */
  int32_t per;   /* as_scale_per */
  int32_t block;
  int32_t zero; /* as_code of a zero point beside each scale */
  int32_t pad;  /* bytes behind its scales, 0 */
} as_row_part;

typedef enum as_placement {
  /* A page is payloads, then scales:  [rows][heads][payload] [rows][heads][scales] [rows][scales of
   * tokens]. Planar is the same with one head. */
  AS_PLANAR = 0,
  AS_NHD = 1,
  AS_HND = 2,         /* [heads][rows][payload] [heads][rows][scales] [rows][scales of tokens] */
  AS_INTERLEAVED = 3, /* [rows][heads] of every part with its scales behind it */
  AS_PLACEMENTS = 4
} as_placement;

typedef struct as_row_format {
  const char* name;  /* in files */
  const char* words; /* for people: "latent row" */
  int32_t record;    /* as_record, AS_RECORD_HND set or not */
  int32_t placement; /* as_placement */
  int32_t alignment; /* pages are padded to a multiple of it */
  int32_t num_parts;
  as_row_part parts[2];
} as_row_format;

#define AS_PLAIN(code) \
  { "values", code, 0, 0, 0, 0, 0, 0 }
#define AS_SCALED(code, scale, per, block, zero) \
  { "values", code, 0, scale, per, block, zero, 0 }
#define AS_NO_PART \
  { NULL, 0, 0, 0, 0, 0, 0, 0 }
#define AS_TWO_PLACEMENTS(name, words, record, part)                                 \
  {name, words, record, AS_NHD, 1, 1, {part, AS_NO_PART}}, {                         \
    name "_hnd", words, (record) | AS_RECORD_HND, AS_HND, 1, 1, { part, AS_NO_PART } \
  }

/* The list by place, NULL behind its end. */
static inline const as_row_format* as_row_format_at(int32_t i) {
  static const as_row_format formats[] = {
      {"latent",
       "latent row",
       AS_RECORD_LATENT,
       AS_PLANAR,
       576,
       2,
       {{"no-RoPE", AS_CODE_E4M3, 448, AS_CODE_UE8M0, AS_PER_BLOCK, 64, 0, 1},
        {"RoPE", AS_CODE_BF16, 64, 0, 0, 0, 0, 0}}},
      {"index_fp8",
       "index key (FP8)",
       AS_RECORD_INDEX_FP8,
       AS_PLANAR,
       576,
       1,
       {{"values", AS_CODE_E4M3, 128, AS_CODE_F32, AS_PER_BLOCK, 0, 0, 0}, AS_NO_PART}},
      {"index_mxfp4",
       "index key (MXFP4)",
       AS_RECORD_INDEX_MXFP4,
       AS_PLANAR,
       576,
       1,
       {{"values", AS_CODE_E2M1, 128, AS_CODE_UE8M0, AS_PER_BLOCK, 32, 0, 0}, AS_NO_PART}},
      {"state",
       "compressor state row",
       AS_RECORD_STATE,
       AS_PLANAR,
       576,
       1,
       {AS_PLAIN(AS_CODE_F32), AS_NO_PART}},
      AS_TWO_PLACEMENTS("bf16", "bf16 row", AS_RECORD_BF16, AS_PLAIN(AS_CODE_BF16)),
      AS_TWO_PLACEMENTS("f16", "fp16 row", AS_RECORD_F16, AS_PLAIN(AS_CODE_F16)),
      AS_TWO_PLACEMENTS("fp8_tensor", "FP8 row, one scale a tensor", AS_RECORD_FP8_TENSOR,
                        AS_SCALED(AS_CODE_E4M3, AS_CODE_F32, AS_PER_TENSOR, 0, 0)),
      AS_TWO_PLACEMENTS("fp8_head", "FP8 row, a scale a head", AS_RECORD_FP8_HEAD,
                        AS_SCALED(AS_CODE_E4M3, AS_CODE_F32, AS_PER_HEAD, 0, 0)),
      AS_TWO_PLACEMENTS("fp8_token", "FP8 row, a scale a token", AS_RECORD_FP8_TOKEN,
                        AS_SCALED(AS_CODE_E4M3, AS_CODE_F32, AS_PER_TOKEN, 0, 0)),
      AS_TWO_PLACEMENTS("fp8_token_head", "FP8 row, a scale a token and head",
                        AS_RECORD_FP8_TOKEN_HEAD,
                        AS_SCALED(AS_CODE_E4M3, AS_CODE_F32, AS_PER_BLOCK, 0, 0)),
      AS_TWO_PLACEMENTS("e5m2_tensor", "FP8 (e5m2) row, one scale a tensor", AS_RECORD_E5M2_TENSOR,
                        AS_SCALED(AS_CODE_E5M2, AS_CODE_F32, AS_PER_TENSOR, 0, 0)),
      AS_TWO_PLACEMENTS("e5m2_head", "FP8 (e5m2) row, a scale a head", AS_RECORD_E5M2_HEAD,
                        AS_SCALED(AS_CODE_E5M2, AS_CODE_F32, AS_PER_HEAD, 0, 0)),
      AS_TWO_PLACEMENTS("e5m2_token_head", "FP8 (e5m2) row, a scale a token and head",
                        AS_RECORD_E5M2_TOKEN_HEAD,
                        AS_SCALED(AS_CODE_E5M2, AS_CODE_F32, AS_PER_BLOCK, 0, 0)),
      AS_TWO_PLACEMENTS("int8_token_head", "int8 row, scale and zero point a token and head",
                        AS_RECORD_INT8_TOKEN_HEAD,
                        AS_SCALED(AS_CODE_I8, AS_CODE_F32, AS_PER_BLOCK, 0, AS_CODE_F32)),
      {"latent_656",
       "latent row of V3.2",
       AS_RECORD_LATENT_656,
       AS_INTERLEAVED,
       1,
       2,
       {{"latent", AS_CODE_E4M3, 512, AS_CODE_F32, AS_PER_BLOCK, 128, 0, 0},
        {"RoPE", AS_CODE_BF16, 64, 0, 0, 0, 0, 0}}},
  };
  const int32_t n = (int32_t)(sizeof(formats) / sizeof(formats[0]));
  return i >= 0 && i < n ? &formats[i] : NULL;
}

#undef AS_PLAIN
#undef AS_SCALED
#undef AS_NO_PART
#undef AS_TWO_PLACEMENTS

/* The entry of an as_record, NULL when there is none. */
static inline const as_row_format* as_row_format_of(int32_t record) {
  const as_row_format* f = as_row_format_at(record - 1); /* the first ones lie by their number */
  if (f != NULL && f->record == record) return f;
  for (int32_t i = 0; (f = as_row_format_at(i)) != NULL; ++i) {
    if (f->record == record) return f;
  }
  return NULL;
}

/* The entry of a name, NULL when there is none. */
static inline const as_row_format* as_row_format_by_name(const char* name) {
  const as_row_format* f;
  for (int32_t i = 0; (f = as_row_format_at(i)) != NULL; ++i) {
    if (strcmp(f->name, name) == 0) return f;
  }
  return NULL;
}

/* Whether a row is fp32 numbers and nothing else: compared as such, not as bytes. */
static inline int as_row_is_values(int32_t record) {
  const as_row_format* f = as_row_format_of(record);
  return f != NULL && f->num_parts == 1 && f->parts[0].code == AS_CODE_F32 &&
         f->parts[0].scale == AS_CODE_NONE;
}

/* Values of a row that its format alone says: 0 = any number, the cache says it. */
static inline int64_t as_row_width(int32_t record) {
  const as_row_format* f = as_row_format_of(record);
  int64_t width = 0;
  for (int32_t i = 0; f != NULL && i < f->num_parts; ++i) {
    if (f->parts[i].count == 0) return 0;
    width += f->parts[i].count;
  }
  return width;
}

/* Bytes of rows and pages of one format; all 0 where there is no such format or the width does not
 * fit it. */
typedef struct as_row_layout {
  const as_row_format* format;
  int64_t heads, rows;
  int64_t width;        /* elements of a head */
  int64_t head_payload; /* bytes of a head's elements */
  int64_t head_scales;  /* of its scales, zero points and padding */
  int64_t token_scales; /* of scales that all heads of a row share */
  int64_t payload;      /* of a row: elements */
  int64_t scales;       /* of a row: all else */
  int64_t row;          /* payload + scales: the logical form */
  int64_t page_used;    /* rows * row */
  int64_t page;         /* padded */
} as_row_layout;

/* Of a part where a head has `width` elements: its elements, bytes of its payload and of one of
 * its scales with zero point, and how many scales it has in a head. */
static inline int64_t as_part_count(const as_row_format* f, int32_t part, int64_t width) {
  if (f->parts[part].count > 0) return f->parts[part].count;
  for (int32_t i = 0; i < f->num_parts; ++i) width -= f->parts[i].count;
  return width;
}
static inline int64_t as_part_scales(const as_row_part* part, int64_t count) {
  if (part->scale == AS_CODE_NONE) return 0;
  if (part->per != AS_PER_BLOCK) return 0;
  return part->block > 0 ? (count + part->block - 1) / part->block : 1;
}
static inline int64_t as_part_scale_bytes(const as_row_part* part, int64_t scales) {
  const int64_t bits = as_code_bits(part->scale) + as_code_bits(part->zero);
  return scales * bits / 8 + part->pad;
}

/* width: of a row with all its heads. rows: of a page; 1 gives the logical form. */
static inline as_row_layout as_row_layout_of(int32_t record, int64_t width, int64_t heads,
                                             int64_t rows) {
  as_row_layout l;
  memset(&l, 0, sizeof(l));
  const as_row_format* f = as_row_format_of(record);
  const int64_t fixed = as_row_width(record);
  if (f == NULL || heads < 1 || width % heads != 0 || (fixed > 0 && width != fixed * heads)) {
    return l;
  }
  l.format = f;
  l.heads = heads;
  l.rows = rows;
  l.width = width / heads;
  for (int32_t i = 0; i < f->num_parts; ++i) {
    const as_row_part* part = &f->parts[i];
    const int64_t count = as_part_count(f, i, l.width);
    l.head_payload += count * as_code_bits(part->code) / 8;
    l.head_scales += as_part_scale_bytes(part, as_part_scales(part, count));
    if (part->scale != AS_CODE_NONE && part->per == AS_PER_TOKEN) {
      l.token_scales += as_part_scale_bytes(part, 1);
    }
  }
  l.payload = heads * l.head_payload;
  l.scales = heads * l.head_scales + l.token_scales;
  l.row = l.payload + l.scales;
  l.page_used = rows * l.row;
  l.page = as_round_up(l.page_used, f->alignment);
  return l;
}

/* Heads of a cache's rows: 0 in caches of before stands for one. */
static inline int64_t as_cache_heads(const as_cache* c) {
  return c->data.reserved > 0 ? c->data.reserved : 1;
}

/* Of a cache's rows in its pages, or on their own. */
static inline as_row_layout as_cache_layout(const as_cache* c) {
  return as_row_layout_of(c->record, c->width, as_cache_heads(c),
                          c->addressing == AS_PAGED ? c->rows_per_block : 1);
}

/* Bytes of a cache's rows in logical form. */
static inline int64_t as_cache_row_bytes(const as_cache* c) {
  return as_row_layout_of(c->record, c->width, as_cache_heads(c), 1).row;
}

/* Where one element lies. */
typedef struct as_element_place {
  int32_t code;        /* as_code, NONE: there is no such element */
  int32_t scale_kind;  /* as_code of its scale, NONE: it has none */
  int64_t at;          /* byte in the page */
  int32_t shift;       /* bits below it in that byte: 4 for the odd one of a pair */
  int32_t part;        /* of the format */
  int64_t scale;       /* byte of its scale in the page, -1: beside the cache, or none */
  int64_t zero;        /* byte of its zero point, -1 = none */
  int64_t scale_index; /* which of the scales beside the cache, -1 = none of them */
  int64_t first;       /* first element of the head that has this scale */
  int64_t shared;      /* elements of the head that have it; 0 without one */
} as_element_place;

/* Bytes before a part: of payloads and of scales of a head, and of scales of tokens. */
typedef struct as_part_place {
  int64_t first, payload, scales, token;
} as_part_place;
static inline as_part_place as_part_at(const as_row_layout* l, int32_t part) {
  as_part_place at;
  memset(&at, 0, sizeof(at));
  for (int32_t i = 0; i < part; ++i) {
    const as_row_part* p = &l->format->parts[i];
    const int64_t count = as_part_count(l->format, i, l->width);
    at.first += count;
    at.payload += count * as_code_bits(p->code) / 8;
    at.scales += as_part_scale_bytes(p, as_part_scales(p, count));
    if (p->scale != AS_CODE_NONE && p->per == AS_PER_TOKEN) {
      at.token += as_part_scale_bytes(p, 1);
    }
  }
  return at;
}

/* First bytes of a head's elements, of its scales and of its row's shared ones in a page. */
typedef struct as_head_place {
  int64_t payload, scales, token;
} as_head_place;
static inline as_head_place as_head_at(const as_row_layout* l, int64_t row, int64_t head) {
  as_head_place at;
  const int64_t unit =
      l->format->placement == AS_HND ? head * l->rows + row : row * l->heads + head;
  if (l->format->placement == AS_INTERLEAVED) {
    at.payload = at.scales = row * l->row + head * (l->head_payload + l->head_scales);
    at.token = row * l->row + l->heads * (l->head_payload + l->head_scales);
    return at;
  }
  at.payload = unit * l->head_payload;
  at.scales = l->rows * l->payload + unit * l->head_scales;
  at.token = l->rows * (l->payload + l->heads * l->head_scales) + row * l->token_scales;
  return at;
}

static inline as_element_place as_element_at(const as_row_layout* l, int64_t row, int64_t head,
                                             int64_t element) {
  as_element_place e;
  memset(&e, 0, sizeof(e));
  e.at = e.scale = e.zero = e.scale_index = -1;
  if (l->format == NULL || element < 0 || element >= l->width || head < 0 || head >= l->heads ||
      row < 0 || row >= l->rows) {
    return e;
  }
  as_part_place part = as_part_at(l, 0);
  for (int32_t i = 1; i < l->format->num_parts; ++i) {
    const as_part_place next = as_part_at(l, i);
    if (element < next.first) break;
    e.part = i;
    part = next;
  }
  const as_row_part* p = &l->format->parts[e.part];
  const int64_t count = as_part_count(l->format, e.part, l->width);
  const int64_t bits = as_code_bits(p->code), inside = element - part.first;
  const as_head_place at = as_head_at(l, row, head);
  const int behind = l->format->placement == AS_INTERLEAVED;
  e.code = p->code;
  e.at = at.payload + part.payload + (behind ? part.scales : 0) + inside * bits / 8;
  e.shift = (int32_t)(inside * bits % 8);
  e.scale_kind = p->scale;
  if (p->scale == AS_CODE_NONE) return e;
  const int64_t scale_bytes = as_code_bits(p->scale) / 8;
  const int64_t scales = as_part_scales(p, count);
  e.first = part.first;
  e.shared = count;
  if (p->per == AS_PER_BLOCK) {
    const int64_t block = p->block > 0 ? p->block : count;
    const int64_t k = inside / block;
    const int64_t from = at.scales + part.scales + (behind ? part.payload + count * bits / 8 : 0);
    e.first += k * block;
    e.shared = block < part.first + count - e.first ? block : part.first + count - e.first;
    e.scale = from + k * scale_bytes;
    if (p->zero != AS_CODE_NONE) {
      e.zero = from + scales * scale_bytes + k * as_code_bits(p->zero) / 8;
    }
  } else if (p->per == AS_PER_TOKEN) {
    e.scale = at.token + part.token;
    if (p->zero != AS_CODE_NONE) e.zero = e.scale + scale_bytes;
  } else {
    e.scale_index = p->per == AS_PER_HEAD ? head : 0;
  }
  return e;
}

/* A part of a head in a row's logical form: where its elements begin and how many there are, where
 * its scales and zero points begin (a token's: the same for all heads) and how many it has of
 * each. */
typedef struct as_part_span {
  int64_t first, count, elements, scales, num_scales;
} as_part_span;
static inline as_part_span as_part_in_row(const as_row_layout* l, int64_t head, int32_t part) {
  const as_row_part* p = &l->format->parts[part];
  const as_part_place before = as_part_at(l, part);
  const as_head_place at = as_head_at(l, 0, head);
  const int behind = l->format->placement == AS_INTERLEAVED;
  as_part_span s;
  s.first = before.first;
  s.count = as_part_count(l->format, part, l->width);
  s.elements = at.payload + before.payload + (behind ? before.scales : 0);
  s.scales = at.scales + before.scales;
  if (behind) s.scales = s.elements + s.count * as_code_bits(p->code) / 8;
  s.num_scales = as_part_scales(p, s.count);
  if (p->scale != AS_CODE_NONE && p->per == AS_PER_TOKEN) {
    s.scales = at.token + before.token;
    s.num_scales = 1;
  }
  return s;
}

typedef enum as_field_kind {
  AS_FIELD_PADDING = 0,
  AS_FIELD_ELEMENT = 1,
  AS_FIELD_SCALE = 2,
  AS_FIELD_ZERO = 3
} as_field_kind;

/* What a byte of a row in logical form is of. */
typedef struct as_row_field {
  int32_t kind; /* as_field_kind */
  int32_t code; /* as_code that is stored */
  int32_t head; /* 0 for scales that all heads share */
  int32_t part;
  int64_t first; /* first element held, or scaled */
  int64_t count; /* elements held (2 of a pair) or scaled; of a row for a scale of a token */
  int64_t at;    /* first byte of the field */
  int64_t bytes;
} as_row_field;

/* l: of one row. byte: 0 .. l->row - 1. */
static inline as_row_field as_field_at(const as_row_layout* l, int64_t byte) {
  as_row_field f;
  memset(&f, 0, sizeof(f));
  f.at = byte;
  f.bytes = 1;
  f.first = -1;
  const int behind = l->format->placement == AS_INTERLEAVED;
  const int64_t head_bytes = l->head_payload + (behind ? l->head_scales : 0);
  int64_t head = 0; /* of a scale that heads share, too */
  if (byte < l->heads * head_bytes) {
    head = byte / head_bytes;
  } else if (byte < l->row - l->token_scales) {
    head = (byte - l->payload) / l->head_scales;
  }
  for (int32_t i = 0; i < l->format->num_parts; ++i) {
    const as_row_part* p = &l->format->parts[i];
    const as_part_span s = as_part_in_row(l, head, i);
    const int64_t bits = as_code_bits(p->code), scale = as_code_bits(p->scale) / 8;
    const int64_t zero = as_code_bits(p->zero) / 8, zeros = s.scales + s.num_scales * scale;
    const int64_t block = p->per == AS_PER_BLOCK && p->block > 0 ? p->block : s.count;
    int64_t k = -1; /* which scale */
    f.part = i;
    f.head = (int32_t)head;
    if (byte >= s.elements && byte < s.elements + s.count * bits / 8) {
      f.kind = AS_FIELD_ELEMENT;
      f.code = p->code;
      f.bytes = bits < 8 ? 1 : bits / 8;
      f.count = bits < 8 ? 8 / bits : 1;
      f.at = byte - (byte - s.elements) % f.bytes;
      f.first = s.first + (f.at - s.elements) / f.bytes * f.count;
      return f;
    }
    if (byte >= s.scales && byte < zeros) {
      k = (byte - s.scales) / scale;
      f.kind = AS_FIELD_SCALE;
      f.code = p->scale;
      f.bytes = scale;
      f.at = s.scales + k * scale;
    } else if (byte >= zeros && byte < zeros + s.num_scales * zero) {
      k = (byte - zeros) / zero;
      f.kind = AS_FIELD_ZERO;
      f.code = p->zero;
      f.bytes = zero;
      f.at = zeros + k * zero;
    }
    if (k < 0) continue;
    f.first = s.first + k * block;
    f.count = block < s.first + s.count - f.first ? block : s.first + s.count - f.first;
    return f;
  }
  return f;
}

/* A run of bytes of a row in memory, and where it stands in the logical form. */
typedef struct as_row_piece {
  unsigned char* bytes;
  int64_t at;
  int64_t size;
} as_row_piece;

/* Piece i of the row in a slot (>= 0) of a cache with this layout; 0 behind the last one. */
static inline int as_row_piece_at(const as_row_layout* l, const as_cache* c, int64_t slot,
                                  int32_t i, as_row_piece* piece) {
  unsigned char* base = (unsigned char*)c->data.data;
  if (l->format == NULL) return 0;
  if (c->addressing == AS_LOGICAL) {
    piece->bytes = base + slot * c->data.stride[0] * as_dtype_size(c->data.dtype);
    piece->at = 0;
    piece->size = l->row;
    return i == 0;
  }
  const int64_t row = slot % l->rows;
  unsigned char* page = base + slot / l->rows * c->data.stride[0];
  if (l->format->placement == AS_INTERLEAVED) {
    piece->bytes = page + row * l->row;
    piece->at = 0;
    piece->size = l->row;
    return i == 0;
  }
  /* Heads apart where rows lie between them. */
  const int64_t runs = l->format->placement == AS_HND ? l->heads : 1;
  if (i < runs) {
    piece->bytes = page + as_head_at(l, row, i).payload;
    piece->at = i * l->head_payload;
    piece->size = l->payload / runs;
  } else if (i < 2 * runs && l->head_scales > 0) {
    piece->bytes = page + as_head_at(l, row, i - runs).scales;
    piece->at = l->payload + (i - runs) * l->head_scales;
    piece->size = l->heads * l->head_scales / runs;
  } else if (i == runs * (l->head_scales > 0 ? 2 : 1) && l->token_scales > 0) {
    piece->bytes = page + as_head_at(l, row, 0).token;
    piece->at = l->row - l->token_scales;
    piece->size = l->token_scales;
  } else {
    return 0;
  }
  return 1;
}

/* The row in a slot (>= 0) as its logical form, and the other way round. Logical caches hold
 * records or the fp32 values of as_row_is_values. */
static inline void as_row_get(const as_cache* c, int64_t slot, void* row) {
  const as_row_layout l = as_cache_layout(c);
  as_row_piece p;
  for (int32_t i = 0; as_row_piece_at(&l, c, slot, i, &p); ++i) {
    memcpy((unsigned char*)row + p.at, p.bytes, (size_t)p.size);
  }
}
static inline void as_row_put(const as_cache* c, int64_t slot, const void* row) {
  const as_row_layout l = as_cache_layout(c);
  as_row_piece p;
  for (int32_t i = 0; as_row_piece_at(&l, c, slot, i, &p); ++i) {
    memcpy(p.bytes, (const unsigned char*)row + p.at, (size_t)p.size);
  }
}
/* Whether a slot holds this row, byte for byte. */
static inline int as_row_equals(const as_cache* c, int64_t slot, const void* row) {
  const as_row_layout l = as_cache_layout(c);
  as_row_piece p;
  for (int32_t i = 0; as_row_piece_at(&l, c, slot, i, &p); ++i) {
    if (memcmp(p.bytes, (const unsigned char*)row + p.at, (size_t)p.size) != 0) return 0;
  }
  return 1;
}
/* The same bytes from one cache's row into another's of the same format. */
static inline void as_row_copy(const as_cache* from, int64_t slot, const as_cache* to,
                               int64_t to_slot) {
  const as_row_layout a = as_cache_layout(from), b = as_cache_layout(to);
  as_row_piece p, q;
  int32_t j = 0;
  int there = as_row_piece_at(&b, to, to_slot, j, &q);
  for (int32_t i = 0; as_row_piece_at(&a, from, slot, i, &p); ++i) {
    while (p.size > 0 && there) {
      const int64_t n = p.size < q.size ? p.size : q.size;
      memcpy(q.bytes, p.bytes, (size_t)n);
      p.bytes += n;
      p.size -= n;
      q.bytes += n;
      q.size -= n;
      if (q.size == 0) there = as_row_piece_at(&b, to, to_slot, ++j, &q);
    }
  }
}

#ifdef __cplusplus
}
#endif

#endif
