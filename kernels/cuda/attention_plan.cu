// attention_plan: a warp for each type of layers. Rows follow one another, so that one walk over
// them decides; lanes look up 32 rows at a time and write what lies behind the last split.
#include "kernels/cuda/ops.h"
#include "kernels/cuda/reduce.cuh"
#include "kernels/cuda/view.cuh"

namespace attnscope::cuda {
namespace {

using Params = as_attention_plan_params;

constexpr int kLanes = 32;
constexpr int kOverhead = 5;     // tiles that FlashMLA's rule charges a row
constexpr int kMostSplits = 64;  // of a row by the own rule

__device__ int ceil_tiles(int entries) {
  return entries == 0 ? 0 : (entries - 1) / AS_PLAN_TILE + 1;
}

__device__ int tiles_of(const Params& p, int type, std::int64_t t) {
  const int window = max(*at<std::int32_t>(p.window_lens, t), 0);
  int entries = 0;
  if (type > 0) entries = max(*at<std::int32_t>(type == 1 ? p.c4_lens : p.c128_lens, t), 0);
  if (type == 1) entries = min(entries, p.top_k);
  return window == 0 && entries == 0 ? 0 : ceil_tiles(max(window, 1)) + ceil_tiles(entries);
}

// What the warp knows of the plan of its type; the same in all lanes.
struct Walk {
  const Params& p;
  int type, lane;
  std::int64_t tokens;
  int splits = 0, combined = 0, places = 0;

  __device__ void add(std::int64_t row, int begin, int end, int part, bool whole) {
    AS_DEVICE_CHECK(splits < p.splits.shape[1]);
    const int values[AS_PLAN_COLUMNS] = {static_cast<int>(row), begin, end, part,
                                         whole ? -1 : places};
    std::int32_t* to = at<std::int32_t>(p.splits, type, splits);
    if (lane < AS_PLAN_COLUMNS) to[lane] = values[lane];
    places += whole ? 0 : 1;
    ++splits;
  }

  __device__ void end_row(std::int64_t row, int first) {
    if (lane < 2) *at<std::int32_t>(p.rows, type, row, lane) = lane == 0 ? first : splits - first;
    combined += splits - first > 1 ? 1 : 0;
  }

  // visit(row, tiles) of every row, in order.
  template <class Visit>
  __device__ void rows(const Visit& visit) {
    for (std::int64_t base = 0; base < tokens; base += kLanes) {
      const int mine = base + lane < tokens ? tiles_of(p, type, base + lane) : 0;
      const int here = static_cast<int>(min(std::int64_t{kLanes}, tokens - base));
      for (int i = 0; i < here; ++i) visit(base + i, __shfl_sync(kAllLanes, mine, i));
    }
  }
};

__device__ void fill_parts(Walk& walk, int parts, long long cost) {
  const long long budget = (cost + parts - 1) / parts + kOverhead;
  long long left = budget;
  int part = 0;
  walk.rows([&](std::int64_t row, int tiles) {
    const int first = walk.splits;
    int done = 0;
    while (tiles > 0 && left < tiles - done + kOverhead) {
      const int taken = static_cast<int>(left) - kOverhead;
      if (taken > 0) {
        walk.add(row, done, done + taken, part, false);
        done += taken;
      }
      ++part;
      left = budget;
    }
    if (tiles > 0) {
      walk.add(row, done, tiles, part, done == 0);
      left -= tiles - done + kOverhead;
    }
    walk.end_row(row, first);
  });
}

__device__ void cut_alike(Walk& walk, long long blocks, int longest) {
  int wanted = 1;
  long long least = 16ll * longest;
  for (int n = 2; n <= min(kMostSplits, longest) && blocks * n <= walk.p.multiprocessors; ++n) {
    const long long cost = 16ll * ((longest + n - 1) / n) + 25 + blocks * n / 2;
    if (cost >= least) continue;
    least = cost;
    wanted = n;
  }
  walk.rows([&](std::int64_t row, int tiles) {
    const int first = walk.splits;
    const bool whole = wanted == 1 || tiles == 1;
    for (int j = 0; j < wanted; ++j) {
      const auto begin = static_cast<int>(std::int64_t{tiles} * j / wanted);
      const auto end = static_cast<int>(std::int64_t{tiles} * (j + 1) / wanted);
      if (begin < end) walk.add(row, begin, end, walk.splits, whole);
    }
    walk.end_row(row, first);
  });
}

__global__ void attention_plan_kernel(const __grid_constant__ Params p) {
  const int type = static_cast<int>(blockIdx.x), lane = static_cast<int>(threadIdx.x);
  Walk walk{p, type, lane, p.window_lens.shape[0]};
  const bool absent =
      (type == 1 && p.c4_lens.data == nullptr) || (type == 2 && p.c128_lens.data == nullptr);
  if (absent) {
    for (std::int64_t t = lane; t < walk.tokens; t += kLanes) {
      *at<std::int32_t>(p.rows, type, t, 0) = *at<std::int32_t>(p.rows, type, t, 1) = 0;
    }
  } else {
    const int of_row = (p.heads + AS_PLAN_HEADS - 1) / AS_PLAN_HEADS;
    long long cost = 0, rows = 0;
    int longest = 0;
    walk.rows([&](std::int64_t, int tiles) {
      cost += tiles > 0 ? tiles + kOverhead : 0;
      rows += tiles > 0 ? 1 : 0;
      longest = max(longest, tiles);
    });
    if (p.rule == AS_PLAN_FLASHMLA) {
      fill_parts(walk, max(1, p.multiprocessors / of_row), cost);
    } else {
      cut_alike(walk, rows * of_row, longest);
    }
  }
  if (lane < 2) *at<std::int32_t>(p.counts, type, lane) = lane == 0 ? walk.splits : walk.combined;
  const std::int64_t rest = (p.splits.shape[1] - walk.splits) * AS_PLAN_COLUMNS;
  for (std::int64_t i = lane; i < rest; i += kLanes) {
    *at<std::int32_t>(p.splits, type, walk.splits + i / AS_PLAN_COLUMNS, i % AS_PLAN_COLUMNS) = -1;
  }
}

}  // namespace

int attention_plan(const as_attention_plan_params& p, const Launch& launch) {
  attention_plan_kernel<<<AS_PLAN_TYPES, kLanes, 0, static_cast<cudaStream_t>(launch.stream)>>>(p);
  return launch_status();
}

}  // namespace attnscope::cuda
