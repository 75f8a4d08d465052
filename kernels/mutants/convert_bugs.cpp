// Wrong conversions of rows: bugs of a helper op, which no step runs.
#include <cstring>
#include <vector>

#include "kernels/cpu/kv_codes.h"
#include "kernels/mutants/bugs.h"
#include "kernels/params/helper_params.h"
#include "kernels/params/row_format.h"
#include "kernels/params/tensor_view.h"

namespace attnscope::mutants {
namespace {

using Convert = as_convert_rows_params;
using Bytes = std::vector<unsigned char>;

// Changes each row that the call has written, in logical form.
template <class Change>
std::int32_t change_converted(const void* params, const as_call* call, as_error* error,
                              const Change& change) {
  return spoil_after<Convert>(AS_OP_CONVERT_ROWS, params, call, error, [&](const Convert& p) {
    const as_row_layout row = as_row_layout_of(p.to.record, p.to.width, as_cache_heads(&p.to), 1);
    Bytes bytes(static_cast<std::size_t>(row.row));
    for (std::int64_t n = 0; n < p.slots.shape[0]; ++n) {
      const std::int64_t slot = *at<std::int64_t>(p.slots, n);
      if (slot < 0) continue;
      as_row_get(&p.to, slot, bytes.data());
      change(row, bytes.data());
      as_row_put(&p.to, slot, bytes.data());
    }
    return AS_OK;
  });
}

std::int32_t converted_heads_swapped(const void* params, const as_call* call, as_error* error) {
  return change_converted(params, call, error, [](const as_row_layout& row, unsigned char* bytes) {
    if (row.heads < 2) return;
    const auto size = static_cast<std::size_t>(row.head_payload);
    const Bytes first(bytes, bytes + size);
    std::memcpy(bytes, bytes + size, size);
    std::memcpy(bytes + size, first.data(), size);
  });
}

// As if the format had no zero point.
std::int32_t converted_without_zero(const void* params, const as_call* call, as_error* error) {
  return change_converted(params, call, error, [](const as_row_layout& row, unsigned char* bytes) {
    for (std::int64_t h = 0; h < row.heads; ++h) {
      const as_element_place e = as_element_at(&row, 0, h, 0);
      if (e.zero >= 0) std::memset(bytes + e.zero, 0, sizeof(float));
    }
  });
}

// The list's last row keeps what it held.
std::int32_t last_row_not_converted(const void* params, const as_call* call, as_error* error) {
  if (!readable<Convert>(params)) return run_cpu(AS_OP_CONVERT_ROWS, params, call, error);
  Convert p = *static_cast<const Convert*>(params);
  if (p.slots.rank == 1 && p.slots.shape[0] > 0) --p.slots.shape[0];
  return run_cpu(AS_OP_CONVERT_ROWS, &p, call, error);
}

// Codes of the format that a row comes from, taken over as they are.
std::int32_t codes_not_converted(const void* params, const as_call* call, as_error* error) {
  return spoil_after<Convert>(AS_OP_CONVERT_ROWS, params, call, error, [&](const Convert& p) {
    if (!cpu::is_coded(p.from.record) || !cpu::is_coded(p.to.record)) return AS_OK;
    const as_row_layout a =
        as_row_layout_of(p.from.record, p.from.width, as_cache_heads(&p.from), 1);
    const as_row_layout b = as_row_layout_of(p.to.record, p.to.width, as_cache_heads(&p.to), 1);
    Bytes source(static_cast<std::size_t>(a.row)), target(static_cast<std::size_t>(b.row));
    for (std::int64_t n = 0; n < p.slots.shape[0]; ++n) {
      const std::int64_t slot = *at<std::int64_t>(p.slots, n);
      if (slot < 0) continue;
      as_row_get(&p.from, slot, source.data());
      as_row_get(&p.to, slot, target.data());
      std::memcpy(target.data(), source.data(), static_cast<std::size_t>(b.payload));
      as_row_put(&p.to, slot, target.data());
    }
    return AS_OK;
  });
}

}  // namespace

std::vector<Bug> convert_bugs() {
  return {
      {"mutant:converted_heads_swapped", "The first two heads of a converted row are exchanged.",
       AS_OP_CONVERT_ROWS, converted_heads_swapped},
      {"mutant:converted_without_zero", "Converted int8 rows have no zero point.",
       AS_OP_CONVERT_ROWS, converted_without_zero},
      {"mutant:last_row_not_converted", "The last row of the list keeps what it held.",
       AS_OP_CONVERT_ROWS, last_row_not_converted},
      {"mutant:codes_not_converted", "Codes are taken over as they are, with another scale.",
       AS_OP_CONVERT_ROWS, codes_not_converted},
  };
}

}  // namespace attnscope::mutants
