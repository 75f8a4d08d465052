#include "kernels/cpu/check.h"

#include <cstdarg>
#include <cstdio>
#include <string>

#include "kernels/layout/records.h"
#include "kernels/params/op_table.h"
#include "kernels/params/tensor_view.h"

namespace attnscope::cpu {
namespace {

std::string shape_text(const std::int64_t* shape, std::int32_t rank) {
  std::string text = "[";
  for (std::int32_t i = 0; i < rank; ++i) {
    if (i > 0) text += ",";
    text += shape[i] == kAny ? "any" : std::to_string(shape[i]);
  }
  return text + "]";
}

const char* record_name(std::int32_t record) {
  switch (record) {
    case AS_RECORD_LATENT:
      return "LATENT";
    case AS_RECORD_INDEX_FP8:
      return "INDEX_FP8";
    case AS_RECORD_INDEX_MXFP4:
      return "INDEX_MXFP4";
    case AS_RECORD_STATE:
      return "STATE";
    default:
      return "NONE or unknown";
  }
}

}  // namespace

Check::Check(std::int32_t op, as_error* error) : op_("?"), error_(error) {
  if (const as_op_info* info = as_op_find(op)) op_ = info->name;
}

bool Check::fail(const char* format, ...) {
  if (status_ != AS_OK) return false;
  status_ = AS_BAD_INPUT;
  if (error_ == nullptr) return false;
  error_->code = AS_BAD_INPUT;
  char text[sizeof(error_->message)];
  va_list args;
  va_start(args, format);
  std::vsnprintf(text, sizeof(text), format, args);
  va_end(args);
  const int used = std::snprintf(error_->message, sizeof(error_->message), "%s: ", op_);
  std::snprintf(error_->message + used, sizeof(error_->message) - static_cast<std::size_t>(used),
                "%s", text);
  return false;
}

bool Check::head(const void* params, std::size_t size) {
  if (params == nullptr) return fail("params is NULL; pass the op's params struct");
  const auto& h = *static_cast<const as_params_head*>(params);
  if (h.struct_size != size) {
    return fail(
        "struct_size is %u, this lane was built for %zu; rebuild both sides with the same "
        "kernels/params headers",
        h.struct_size, size);
  }
  if (h.version != AS_PARAMS_VERSION) {
    return fail("params version is %u, this lane takes %u; set head.version to AS_PARAMS_VERSION",
                h.version, AS_PARAMS_VERSION);
  }
  return true;
}

bool Check::tensor(const char* name, const as_tensor& t, std::int32_t dtype,
                   std::initializer_list<std::int64_t> shape) {
  if (status_ != AS_OK) return false;
  const auto rank = static_cast<std::int32_t>(shape.size());
  const std::string wanted = shape_text(shape.begin(), rank);
  if (t.rank == 0 && t.data == nullptr) {
    return fail("%s is absent; give a %s tensor of shape %s", name, as_dtype_name(dtype),
                wanted.c_str());
  }
  if (t.dtype != dtype) {
    return fail("%s is %s; it must be %s", name, as_dtype_name(t.dtype), as_dtype_name(dtype));
  }
  if (t.device != 0) {
    return fail("%s lies on device %d; this lane reads host memory (device 0)", name, t.device);
  }
  bool fits = t.rank == rank;
  for (std::int32_t i = 0; fits && i < rank; ++i) {
    fits = t.shape[i] >= 0 && (shape.begin()[i] == kAny || t.shape[i] == shape.begin()[i]);
  }
  if (!fits) {
    const std::int32_t shown = t.rank < 0 ? 0 : t.rank > AS_MAX_RANK ? AS_MAX_RANK : t.rank;
    return fail("%s has shape %s; it must be %s", name, shape_text(t.shape, shown).c_str(),
                wanted.c_str());
  }
  if (as_tensor_numel(&t) == 0) return true;
  if (t.data == nullptr) return fail("%s has no data; set its pointer", name);
  if (t.shape[rank - 1] > 1 && t.stride[rank - 1] != 1) {
    return fail("%s has stride %lld in its last dim; it must be 1", name,
                static_cast<long long>(t.stride[rank - 1]));
  }
  return true;
}

bool Check::optional(const char* name, const as_tensor& t, std::int32_t dtype,
                     std::initializer_list<std::int64_t> shape) {
  if (t.rank == 0 && t.data == nullptr) return status_ == AS_OK;
  return tensor(name, t, dtype, shape);
}

bool Check::range(const char* name, std::int64_t value, std::int64_t low, std::int64_t high) {
  if (value >= low && value <= high) return status_ == AS_OK;
  return fail("%s is %lld; allowed: %lld to %lld", name, static_cast<long long>(value),
              static_cast<long long>(low), static_cast<long long>(high));
}

bool Check::cache(const char* name, const as_cache& c, std::int32_t record, std::int64_t width) {
  if (status_ != AS_OK) return false;
  const as_tensor& t = c.data;
  if (c.record != record) {
    return fail("%s holds record %s; this op takes %s there", name, record_name(c.record),
                record_name(record));
  }
  if (c.width != width) {
    return fail("%s has rows of %d values; they must be %lld wide", name, c.width,
                static_cast<long long>(width));
  }
  const bool plain_state =
      c.addressing == AS_LOGICAL && record == AS_RECORD_STATE && t.dtype == AS_F32;
  if (!tensor(name, t, plain_state ? AS_F32 : AS_U8, {kAny, kAny})) return false;
  std::int64_t needed = plain_state ? width : as_row_bytes(record, width);
  if (c.addressing == AS_PAGED) {
    if (c.rows_per_block <= 0) {
      return fail("%s has %d rows per block; a paged cache has at least 1", name, c.rows_per_block);
    }
    needed = as_page_bytes_raw(record, width, c.rows_per_block);
  } else if (c.addressing != AS_LOGICAL) {
    return fail("%s has addressing %d; allowed: AS_PAGED (0), AS_LOGICAL (1)", name, c.addressing);
  }
  if (t.shape[0] > 0 && t.shape[1] < needed) {
    return fail("%s has pages or rows of %lld; %s needs %lld", name,
                static_cast<long long>(t.shape[1]), record_name(record),
                static_cast<long long>(needed));
  }
  if (t.shape[0] > 1 && t.stride[0] < needed) {
    return fail("%s has a page stride of %lld bytes, less than a page of %lld", name,
                static_cast<long long>(t.stride[0]), static_cast<long long>(needed));
  }
  const auto address = reinterpret_cast<std::uintptr_t>(t.data);
  if (record == AS_RECORD_STATE && !plain_state && (address % 4 != 0 || t.stride[0] % 4 != 0)) {
    return fail("%s is not aligned; state rows need a base and a stride that 4 divides", name);
  }
  return true;
}

bool Check::rope(const as_rope& rope) {
  return tensor("rope.table", rope.table, AS_F32, {kAny, AS_ROPE_DIM});
}

std::int64_t cache_rows(const as_cache& c) {
  return c.data.shape[0] * (c.addressing == AS_PAGED ? c.rows_per_block : 1);
}

bool Check::slots(const char* name, const as_tensor& slots, const as_cache& c) {
  if (status_ != AS_OK) return false;
  const std::int64_t rows = cache_rows(c);
  for (std::int64_t t = 0; t < slots.shape[0]; ++t) {
    const std::int64_t slot = *at<const std::int64_t>(slots, t);
    if (slot < -1 || slot >= rows) {
      return fail("%s[%lld] is slot %lld; the cache has rows 0 to %lld (-1 = none)", name,
                  static_cast<long long>(t), static_cast<long long>(slot),
                  static_cast<long long>(rows - 1));
    }
  }
  return true;
}

bool Check::requests(const as_tensor& token_to_req, std::int64_t requests) {
  if (status_ != AS_OK) return false;
  for (std::int64_t t = 0; t < token_to_req.shape[0]; ++t) {
    const std::int32_t r = *at<const std::int32_t>(token_to_req, t);
    if (r >= requests) {
      return fail("token_to_req[%lld] is %d; the step has requests 0 to %lld (negative = padding)",
                  static_cast<long long>(t), r, static_cast<long long>(requests - 1));
    }
  }
  return true;
}

bool Check::rope_position(const as_rope& rope, std::int64_t token, std::int64_t position) {
  if (position >= 0 && position < rope.table.shape[0]) return status_ == AS_OK;
  return fail("token %lld has position %lld; the rotary table has rows 0 to %lld",
              static_cast<long long>(token), static_cast<long long>(position),
              static_cast<long long>(rope.table.shape[0] - 1));
}

bool Check::block(const char* table_name, const as_tensor& table, std::int64_t token,
                  std::int64_t request, std::int64_t column) {
  if (column < 0 || column >= table.shape[1]) {
    return fail("token %lld of request %lld needs column %lld of %s, which has %lld",
                static_cast<long long>(token), static_cast<long long>(request),
                static_cast<long long>(column), table_name, static_cast<long long>(table.shape[1]));
  }
  const std::int32_t id = *at<const std::int32_t>(table, request, column);
  if (id >= 0) return status_ == AS_OK;
  return fail("token %lld of request %lld: %s column %lld holds block id %d; ids start at 0",
              static_cast<long long>(token), static_cast<long long>(request), table_name,
              static_cast<long long>(column), id);
}

}  // namespace attnscope::cpu
