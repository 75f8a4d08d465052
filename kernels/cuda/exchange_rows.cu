// exchange_rows: rows of a cache between their pages, which may be pinned memory of the host that
// the GPU reaches by itself, and the pool in its own memory. A warp moves a row: 32 loads are under
// way at once, and the whole grid keeps the bus full where one copy a row would wait for each.
#include "kernels/cuda/ops.h"
#include "kernels/cuda/view.cuh"
#include "kernels/params/row_format.h"

namespace attnscope::cuda {
namespace {

constexpr int kWarps = 4;  // of a block

// Where a row lies: one run of bytes, or two where scales follow all payloads of a page.
struct RowRuns {
  unsigned char* base;
  std::int64_t stride;                    // of a page, or of a row without pages
  std::int32_t rows;                      // of a page
  std::int32_t first, second, second_at;  // bytes of the runs; where the second ones begin
};

RowRuns runs_of(const as_cache& c) {
  const as_row_layout l = as_cache_layout(&c);
  const bool paged = c.addressing == AS_PAGED;
  RowRuns r{};
  r.base = static_cast<unsigned char*>(c.data.data);
  r.stride = c.data.stride[0];
  r.rows = paged ? c.rows_per_block : 1;
  const bool apart = paged && l.format->placement != AS_INTERLEAVED;
  r.first = static_cast<std::int32_t>(apart ? l.payload : l.row);
  r.second = static_cast<std::int32_t>(l.row) - r.first;
  r.second_at = r.rows * r.first;
  return r;
}

// The widest steps that both addresses and the size allow.
__device__ void copy_run(unsigned char* to, const unsigned char* from, int bytes, int lane) {
  const auto bits = reinterpret_cast<std::uintptr_t>(to) | reinterpret_cast<std::uintptr_t>(from) |
                    static_cast<std::uintptr_t>(bytes);
  if (bits % 16 == 0) {
    for (int i = lane; i < bytes / 16; i += 32) {
      reinterpret_cast<uint4*>(to)[i] = reinterpret_cast<const uint4*>(from)[i];
    }
  } else if (bits % 8 == 0) {
    for (int i = lane; i < bytes / 8; i += 32) {
      reinterpret_cast<uint2*>(to)[i] = reinterpret_cast<const uint2*>(from)[i];
    }
  } else {
    for (int i = lane; i < bytes; i += 32) to[i] = from[i];
  }
}

__device__ void copy_row(const RowRuns& from, std::int64_t source, const RowRuns& to,
                         std::int64_t target, int lane) {
  const unsigned char* a = from.base + source / from.rows * from.stride;
  unsigned char* b = to.base + target / to.rows * to.stride;
  const std::int64_t i = source % from.rows, j = target % to.rows;
  copy_run(b + j * to.first, a + i * from.first, from.first, lane);
  if (from.second == 0) return;
  copy_run(b + to.second_at + j * to.second, a + from.second_at + i * from.second, from.second,
           lane);
}

__global__ void __launch_bounds__(32 * kWarps)
    move_rows_kernel(RowRuns from, as_tensor sources, RowRuns to, as_tensor targets,
                     std::int64_t from_rows, std::int64_t to_rows) {
  const std::int64_t n = std::int64_t{blockIdx.x} * kWarps + threadIdx.x / 32;
  if (n >= sources.shape[0]) return;
  const std::int64_t source = *at<std::int64_t>(sources, n), target = *at<std::int64_t>(targets, n);
  if (source < 0 || target < 0) return;
  AS_DEVICE_CHECK(source < from_rows && target < to_rows);
  copy_row(from, source, to, target, static_cast<int>(threadIdx.x % 32));
}

__global__ void find_rows_kernel(as_exchange_rows_params p) {
  const std::int64_t t = blockIdx.x;
  for (std::int64_t k = threadIdx.x; k < p.slots.shape[1]; k += blockDim.x) {
    const std::int32_t place = *at<std::int32_t>(p.places, t, k);
    *at<std::int32_t>(p.slots, t, k) = place >= 0 ? place : *at<std::int32_t>(p.selected, t, k);
  }
}

std::int64_t rows_in(const as_cache& c) {
  return c.data.shape[0] * (c.addressing == AS_PAGED ? c.rows_per_block : 1);
}

int move_rows(const as_cache& from, const as_tensor& sources, const as_cache& to,
              const as_tensor& targets, cudaStream_t stream) {
  const std::int64_t rows = sources.shape[0];
  if (rows == 0) return 0;
  const auto blocks = static_cast<unsigned>((rows + kWarps - 1) / kWarps);
  move_rows_kernel<<<blocks, 32 * kWarps, 0, stream>>>(runs_of(from), sources, runs_of(to), targets,
                                                       rows_in(from), rows_in(to));
  return launch_status();
}

}  // namespace

int exchange_rows(const as_exchange_rows_params& p, const Launch& launch) {
  const auto stream = static_cast<cudaStream_t>(launch.stream);
  if (const int code = move_rows(p.fresh, p.fresh_from, p.pages, p.pages_to, stream); code != 0) {
    return code;
  }
  if (const int code = move_rows(p.missed, p.missed_from, p.pool, p.pool_to, stream); code != 0) {
    return code;
  }
  const auto tokens = static_cast<unsigned>(p.slots.shape[0]);
  if (tokens == 0) return 0;
  find_rows_kernel<<<tokens, 128, 0, stream>>>(p);
  return launch_status();
}

}  // namespace attnscope::cuda
