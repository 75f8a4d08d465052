/* Element types a tensor may have, shared by every lane, the references and the plugin interface.
 * Plain C99. Values never change once released. */
#ifndef ATTNSCOPE_KERNELS_PARAMS_DTYPE_H
#define ATTNSCOPE_KERNELS_PARAMS_DTYPE_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum as_dtype {
  AS_F64 = 0, /* references only: exact values, or sim values held exactly */
  AS_F32 = 1,
  AS_BF16 = 2, /* upper half of an IEEE binary32, round to nearest even */
  AS_U8 = 3,   /* raw bytes: cache pages and rows, e4m3fn codes, packed e2m1 pairs, UE8M0 scales */
  AS_I32 = 4,
  AS_I64 = 5,
  AS_DTYPE_COUNT = 6
} as_dtype;

/* Bytes of one element; 0 for an unknown value. */
static inline int64_t as_dtype_size(int32_t dtype) {
  switch (dtype) {
    case AS_F64:
      return 8;
    case AS_F32:
      return 4;
    case AS_BF16:
      return 2;
    case AS_U8:
      return 1;
    case AS_I32:
      return 4;
    case AS_I64:
      return 8;
    default:
      return 0;
  }
}

static inline const char* as_dtype_name(int32_t dtype) {
  switch (dtype) {
    case AS_F64:
      return "f64";
    case AS_F32:
      return "f32";
    case AS_BF16:
      return "bf16";
    case AS_U8:
      return "u8";
    case AS_I32:
      return "i32";
    case AS_I64:
      return "i64";
    default:
      return "?";
  }
}

#ifdef __cplusplus
}
#endif

#endif
