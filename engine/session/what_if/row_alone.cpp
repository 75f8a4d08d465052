#include "engine/session/what_if/row_alone.h"

#include <fmt/format.h>

#include <array>
#include <cstring>
#include <limits>

#include "engine/backend/call_op.h"
#include "engine/session/step/merged_parts.h"
#include "engine/session/step/most_taps.h"
#include "engine/session/step/own_rows.h"
#include "engine/session/verify/forced_copy.h"
#include "engine/trace/compare.h"
#include "kernels/params/tensor_view.h"

namespace attnscope {
namespace {

// Tensor axes start with the letter T: one row of it.
as_tensor row_view(const as_tensor& tensor, std::int64_t row) {
  as_tensor one = tensor;
  one.data = static_cast<char*>(tensor.data) + row * tensor.stride[0] * as_dtype_size(tensor.dtype);
  one.shape[0] = 1;
  return one;
}

// See RowAlone::budget_used.
Tolerance another_order(std::int32_t dtype, as_op_id op, bool merged) {
  Tolerance t;
  if (dtype == AS_BF16) {
    t.bf16_ulp = 2;
    const bool rounded = op == AS_OP_PAGED_ATTENTION || op == AS_OP_VARLEN_ATTENTION;
    t.row_max = rounded ? 0x1p-8 : 0x1p-10;
    // Alone it is computed as one, without parts that are rounded.
    if (merged) t.row_max = 0x1p-7;
  } else if (dtype == AS_F32) {
    t.abs = 1e-6;
    t.rel = 0x1p-18;
  } else {
    t.exact = true;
  }
  return t;
}

bool by_token(const as_tap_info& tap) {
  return tap.kind == AS_TAP_TENSOR && tap.axes[0] == 'T' &&
         (tap.axes[1] == ',' || tap.axes[1] == '\0');
}

}  // namespace

RowAlone run_row_alone(const Session& session, std::int64_t token) {
  RowAlone result;
  result.token = token;
  const OpParams& batch = session.last_called();
  const as_op_info& info = batch.info();
  if (info.phase != AS_PHASE_LAYER) return result;
  OpParams alone = batch;
  std::array<Scratch, kMostTaps> outputs;
  std::int64_t slot = 0;
  for (std::uint32_t i = 0; i < info.num_taps; ++i) {
    const as_tap_info& tap = info.taps[i];
    if (tap.kind == AS_TAP_CACHE) continue;
    if (!by_token(tap) || !present(batch.tensor(tap.offset))) continue;
    const as_tensor& all = batch.tensor(tap.offset);
    if (token < 0 || token >= all.shape[0]) return result;
    alone.tensor(tap.offset) = row_view(all, token);
    if (tap.direction == AS_TAP_OUT) {
      as_tensor& out = alone.tensor(tap.offset);
      out = outputs[i].make_like(all.dtype, out);
      std::memset(out.data, 0xFF,
                  static_cast<std::size_t>(as_tensor_numel(&out) * as_dtype_size(out.dtype)));
    }
  }
  // What it writes to a cache goes to a cache of one row.
  for (std::uint32_t i = 0; i < info.num_taps; ++i) {
    const as_tap_info& tap = info.taps[i];
    if (!batch.has_cache(tap) || tap.direction != AS_TAP_OUT) continue;
    const as_tensor& told = batch.tensor(tap.mask_offset);
    if (token < 0 || token >= told.shape[0]) return result;
    slot = *at<std::int64_t>(told, token) >= 0 ? 0 : -1;
    alone.tensor(tap.mask_offset) = make_tensor(&slot, {1});
    as_cache& cache = alone.cache(tap.offset);
    make_logical(cache, 1, AS_F32, outputs[i]);
    std::memset(
        cache.data.data, 0xFF,
        static_cast<std::size_t>(as_tensor_numel(&cache.data) * as_dtype_size(cache.data.dtype)));
  }
  const as_call call = host_call(session.parts().threads);
  if (!call_op(session.lanes().function(batch.op()), alone.data(), call)) return result;
  result.possible = true;
  const bool merged = is_merged(session.parts(), session.cursor().layer, batch.op());
  const auto hold = [&](const as_tap_info& tap, const as_tensor& own, const as_tensor& in_batch,
                        const TapMask& mask) {
    const Comparison c = compare(own, in_batch, mask, another_order(own.dtype, batch.op(), merged));
    result.elements += c.elements;
    result.differing += c.figures.differing;
    if (c.figures.differing > 0 && (result.worst.empty() || c.figures.max_ulp > result.worst_ulp)) {
      result.worst =
          fmt::format("{}: {} instead of {}", tap.name, c.worst.value, c.worst.reference);
    }
    result.worst_ulp = std::max(result.worst_ulp, c.figures.max_ulp);
    result.budget_used = std::max(result.budget_used, c.budget_used);
    if (c.anomalies > 0) {
      result.worst_ulp = 65536;
      result.budget_used = std::numeric_limits<double>::infinity();
    }
  };
  for (std::uint32_t i = 0; i < info.num_taps; ++i) {
    const as_tap_info& tap = info.taps[i];
    if (tap.direction != AS_TAP_OUT) continue;
    TapMask mask;
    if (tap.kind == AS_TAP_CACHE && !batch.has_cache(tap)) continue;
    if (tap.kind == AS_TAP_CACHE) {
      Scratch written;
      std::int64_t in_batch = *at<std::int64_t>(batch.tensor(tap.mask_offset), token);
      mask.slots = &slot;
      hold(tap, alone.cache(tap.offset).data,
           gather_rows(batch.cache(tap.offset), make_tensor(&in_batch, {1}), written), mask);
      continue;
    }
    if (!by_token(tap) || !present(batch.tensor(tap.offset))) continue;
    if (tap.mask == AS_MASK_LENS) mask.lens = at<std::int32_t>(alone.tensor(tap.mask_offset));
    if (tap.mask == AS_MASK_SLOTS) mask.slots = at<std::int64_t>(alone.tensor(tap.mask_offset));
    hold(tap, alone.tensor(tap.offset), row_view(batch.tensor(tap.offset), token), mask);
  }
  return result;
}

}  // namespace attnscope
