// Wrong compressed entries.
#include <algorithm>
#include <cstring>
#include <limits>
#include <vector>

#include "kernels/layout/records.h"
#include "kernels/mutants/bugs.h"
#include "kernels/params/compressor_params.h"
#include "kernels/params/tensor_view.h"

namespace attnscope::mutants {
namespace {

constexpr std::int64_t kRatio = 4;

std::int64_t state_slot(const as_compress_insert_params& p, std::int64_t request,
                        std::int64_t position) {
  if (p.state.addressing == AS_LOGICAL) return *at<std::int32_t>(p.table, request) + position;
  const std::int64_t rows = p.state.rows_per_block;
  return *at<std::int32_t>(p.table, request, position / rows) * rows + position % rows;
}

}  // namespace

// The right op again on a copy of the windows, one table row a token, whose older four rows have
// the score -inf.
std::int32_t overlap_half_lost(const void* params, const as_call* call, as_error* error) {
  const std::int32_t status = run_cpu(AS_OP_COMPRESS_INSERT, params, call, error);
  if (status != AS_OK) return status;
  as_compress_insert_params p = *static_cast<const as_compress_insert_params*>(params);
  if (p.ratio != kRatio || p.rows_given != 0) return status;
  const std::int64_t tokens = p.slots.shape[0];
  const std::int64_t width = p.state.width;
  std::int64_t columns = 1;
  for (std::int64_t t = 0; t < tokens; ++t) {
    if (*at<std::int64_t>(p.slots, t) < 0) continue;
    columns = std::max(columns, *at<std::int64_t>(p.positions, t) / kRatio + 1);
  }
  // Token t owns block 2t, its older rows, and block 2t + 1, its own.
  std::vector<float> windows(static_cast<std::size_t>(tokens * 2 * kRatio * width), 0.0f);
  std::vector<std::int32_t> table(static_cast<std::size_t>(tokens * columns), 0);
  std::vector<std::int32_t> request_of(static_cast<std::size_t>(tokens), -1);
  for (std::int64_t t = 0; t < tokens; ++t) {
    if (*at<std::int64_t>(p.slots, t) < 0) continue;
    const std::int64_t first = *at<std::int64_t>(p.positions, t) + 1 - kRatio;
    const std::int64_t request = *at<std::int32_t>(p.request_of, t);
    request_of[static_cast<std::size_t>(t)] = static_cast<std::int32_t>(t);
    std::int32_t* own = table.data() + t * columns + first / kRatio;
    own[0] = static_cast<std::int32_t>(2 * t + 1);
    if (first > 0) own[-1] = static_cast<std::int32_t>(2 * t);
    float* row = windows.data() + t * 2 * kRatio * width;
    for (std::int64_t i = 0; i < kRatio; ++i, row += width) {
      std::fill(row + width / 2, row + width, -std::numeric_limits<float>::infinity());
    }
    for (std::int64_t i = 0; i < kRatio; ++i, row += width) {
      const as_row_address from = as_cache_row(&p.state, state_slot(p, request, first + i));
      std::memcpy(row, from.payload, static_cast<std::size_t>(width) * sizeof(float));
    }
  }
  const std::int64_t page = as_page_bytes_raw(AS_RECORD_STATE, width, kRatio);
  p.state.addressing = AS_PAGED;
  p.state.rows_per_block = static_cast<std::int32_t>(kRatio);
  p.state.data = make_tensor(reinterpret_cast<std::uint8_t*>(windows.data()), {2 * tokens, page});
  p.table = make_tensor(table.data(), {tokens, columns});
  p.request_of = make_tensor(request_of.data(), {tokens});
  return run_cpu(AS_OP_COMPRESS_INSERT, &p, call, error);
}

// Moving the table by ratio - 1 rows turns position p + 1 - ratio into p.
std::int32_t entry_rope_position(const void* params, const as_call* call, as_error* error) {
  const std::int32_t status = run_cpu(AS_OP_COMPRESS_INSERT, params, call, error);
  if (status != AS_OK) return status;
  as_compress_insert_params p = *static_cast<const as_compress_insert_params*>(params);
  if (p.rows_given != 0) return status;
  p.rope.table.data = at<float>(p.rope.table, p.ratio - 1);
  p.rope.table.shape[0] -= p.ratio - 1;
  return run_cpu(AS_OP_COMPRESS_INSERT, &p, call, error);
}

}  // namespace attnscope::mutants
