#include <algorithm>

#include "kernels/cuda/codec.cuh"
#include "kernels/cuda/helper_ops.h"
#include "kernels/cuda/prefill_workspace.h"

namespace attnscope::cuda {
namespace {

using Params = as_sparse_attention_params;

constexpr int kThreads = 256;
constexpr int kScanThreads = 1024;
constexpr std::int64_t kMostBlocks = 1 << 16;
constexpr std::int32_t kPayloadBytes = 576, kScaleBytes = 8;  // of a latent row

// Lists of a token: its window's, then its compressed entries'.
struct ListsOf {
  as_tensor slots[2], lens[2];
  std::int64_t first[2];  // of the map, which has a place for each row of both caches
};

// In the op's workspace.
struct Scratch {
  std::int32_t* map;      // [rows of both caches]: 1 where listed, then the workspace's row, or -1
  std::int32_t* masked;   // [2,T] lengths of the lists of tokens that do not prefill
  std::int32_t* lens;     // [T] of the lists over gathered rows, 0 = the token does not prefill
  std::int32_t* indices;  // [T,columns]
  std::uint16_t* rows;    // [as many as are listed,512]
  std::uint16_t* o;       // [T,H,512]
  float* lse;             // [T,H]
  unsigned char* rest;    // of the attentions themselves
};

// Where a step's parts lie, or (base == nullptr) how many bytes they are.
class Carver {
 public:
  explicit Carver(unsigned char* base) : base_(base) {}
  template <class T>
  T* take(std::int64_t count) {
    unsigned char* at = base_ + bytes_;
    bytes_ += (static_cast<std::size_t>(count) * sizeof(T) + 255) / 256 * 256;
    return reinterpret_cast<T*>(at);
  }
  std::size_t bytes() const { return bytes_; }

 private:
  unsigned char* base_;
  std::size_t bytes_ = 0;
};

struct Sizes {
  explicit Sizes(const Params& p) : tokens(p.q.shape[0]), heads(p.q.shape[1]) {
    const bool extra = p.extra_cache.record != AS_RECORD_NONE;
    columns = p.indices.shape[1] + (extra ? p.extra_indices.shape[1] : 0);
    of_cache = cache_view(p.cache).rows_total;
    places = of_cache + (extra ? cache_view(p.extra_cache).rows_total : 0);
    rows = std::min(places, tokens * columns);
  }
  std::int64_t tokens, heads, columns, of_cache, places, rows;
};

Scratch carve(const Sizes& n, Carver& from) {
  Scratch s{};
  s.map = from.take<std::int32_t>(n.places);
  s.masked = from.take<std::int32_t>(2 * n.tokens);
  s.lens = from.take<std::int32_t>(n.tokens);
  s.indices = from.take<std::int32_t>(n.tokens * n.columns);
  s.rows = from.take<std::uint16_t>(n.rows * AS_HEAD_DIM);
  s.o = from.take<std::uint16_t>(n.tokens * n.heads * AS_HEAD_DIM);
  s.lse = from.take<float>(n.tokens * n.heads);
  s.rest = from.take<unsigned char>(0);
  return s;
}

as_tensor dense(void* data, std::int32_t dtype, std::int64_t a, std::int64_t b, std::int64_t c) {
  as_tensor t{};
  t.data = data;
  t.dtype = dtype;
  t.rank = c > 0 ? 3 : b > 0 ? 2 : 1;
  t.shape[0] = a;
  t.shape[1] = b;
  t.shape[2] = c;
  t.stride[2] = 1;
  t.stride[1] = c > 0 ? c : 1;
  t.stride[0] = b > 0 ? b * t.stride[1] : 1;
  return t;
}

__device__ __forceinline__ bool prefills(const as_tensor& prefill, std::int64_t t) {
  return *at<std::int32_t>(prefill, t, 0) >= 0;
}

// A block a token: its rows are marked, and lengths go to whoever attends.
__global__ void mark_kernel(ListsOf lists, as_tensor prefill, Scratch s) {
  const std::int64_t t = blockIdx.x, tokens = gridDim.x;
  const bool gathered = prefills(prefill, t);
  for (int l = 0; l < 2; ++l) {
    if (!present(lists.slots[l])) continue;
    const std::int32_t len = *at<std::int32_t>(lists.lens[l], t);
    if (threadIdx.x == 0) s.masked[l * tokens + t] = gathered ? 0 : len;
    for (int k = static_cast<int>(threadIdx.x); gathered && k < len;
         k += static_cast<int>(blockDim.x)) {
      const std::int32_t slot = *at<std::int32_t>(lists.slots[l], t, k);
      if (slot >= 0) s.map[lists.first[l] + slot] = 1;
    }
  }
}

// Marked places numbered in their order, by one block: the same rows on every run.
__global__ void number_kernel(std::int32_t* map, std::int64_t places) {
  __shared__ std::int32_t counts[kScanThreads];
  const int me = static_cast<int>(threadIdx.x);
  const std::int64_t share = (places + kScanThreads - 1) / kScanThreads;
  const std::int64_t begin = min(me * share, places), end = min(begin + share, places);
  std::int32_t mine = 0;
  for (std::int64_t i = begin; i < end; ++i) mine += map[i];
  counts[me] = mine;
  __syncthreads();
  for (int step = 1; step < kScanThreads; step *= 2) {
    const std::int32_t before = me >= step ? counts[me - step] : 0;
    __syncthreads();
    counts[me] += before;
    __syncthreads();
  }
  std::int32_t next = counts[me] - mine;
  for (std::int64_t i = begin; i < end; ++i) map[i] = map[i] != 0 ? next++ : -1;
}

// A block a place, over and over: the row of a marked one in bf16, which holds it exactly.
__global__ void gather_kernel(CacheView window, CacheView extra, std::int64_t of_window,
                              std::int64_t places, Scratch s) {
  for (std::int64_t i = blockIdx.x; i < places; i += gridDim.x) {
    const std::int32_t to = s.map[i];
    if (to < 0) continue;
    const bool first = i < of_window;
    const RowAddress row =
        cache_row(first ? window : extra, first ? i : i - of_window, kPayloadBytes, kScaleBytes);
    for (int d = static_cast<int>(threadIdx.x); d < AS_HEAD_DIM; d += kThreads) {
      std::uint16_t bits;
      if (d >= AS_NOPE_DIM) {
        bits = reinterpret_cast<const std::uint16_t*>(row.payload + AS_NOPE_DIM)[d - AS_NOPE_DIM];
      } else {
        std::uint32_t low = 0, high = 0;
        decode_e4m3x4(row.payload[d], 127u, &low, &high);
        bits = float_to_bf16(bf16_to_float(static_cast<std::uint16_t>(low)) *
                             ue8m0_to_float(row.scales[d / AS_QUANT_BLOCK]));
      }
      s.rows[std::int64_t{to} * AS_HEAD_DIM + d] = bits;
    }
  }
}

// A block a token: [compressed | window], as rows of the workspace.
__global__ void combine_kernel(ListsOf lists, as_tensor prefill, std::int64_t columns, Scratch s) {
  const std::int64_t t = blockIdx.x;
  const bool gathered = prefills(prefill, t);
  std::int32_t length = 0;
  for (int l = 1; l >= 0 && gathered; --l) {
    if (!present(lists.slots[l])) continue;
    const std::int32_t len = max(*at<std::int32_t>(lists.lens[l], t), 0);
    for (int k = static_cast<int>(threadIdx.x); k < len; k += static_cast<int>(blockDim.x)) {
      const std::int32_t slot = *at<std::int32_t>(lists.slots[l], t, k);
      s.indices[t * columns + length + k] = slot < 0 ? -1 : s.map[lists.first[l] + slot];
    }
    length += len;
  }
  if (threadIdx.x == 0) s.lens[t] = length;
}

// A block a token and head.
__global__ void take_over_kernel(as_tensor prefill, as_tensor o, as_tensor lse, Scratch s) {
  const std::int64_t t = blockIdx.x, h = blockIdx.y;
  if (!prefills(prefill, t)) return;
  const std::int64_t row = t * gridDim.y + h;
  std::uint16_t* to = at<std::uint16_t>(o, t, h);
  for (int d = static_cast<int>(threadIdx.x); d < AS_HEAD_DIM; d += static_cast<int>(blockDim.x)) {
    to[d] = s.o[row * AS_HEAD_DIM + d];
  }
  if (threadIdx.x == 0) *at<float>(lse, t, h) = s.lse[row];
}

as_workspace_attention_params over_rows(const Params& p, const Sizes& n, const Scratch& s) {
  as_workspace_attention_params over{};
  over.q = p.q;
  over.rows = dense(s.rows, AS_BF16, n.rows, AS_HEAD_DIM, 0);
  over.indices = dense(s.indices, AS_I32, n.tokens, n.columns, 0);
  over.topk_length = dense(s.lens, AS_I32, n.tokens, 0, 0);
  over.sinks = p.sinks;
  over.o = dense(s.o, AS_BF16, n.tokens, n.heads, AS_HEAD_DIM);
  over.lse = dense(s.lse, AS_F32, n.tokens, n.heads, 0);
  over.scale = p.scale;
  return over;
}

}  // namespace

std::size_t gathered_bytes(const Params& p, std::size_t direct, const Gpu& gpu) {
  const Sizes n(p);
  Carver sizes(nullptr);
  const Scratch s = carve(n, sizes);
  return sizes.bytes() + std::max(direct, workspace_bytes(over_rows(p, n, s), gpu));
}

int gathered_attention(const Params& p, const Launch& launch,
                       int (*direct)(const Params& p, const Launch& launch)) {
  const Sizes n(p);
  if (n.tokens == 0 || n.heads == 0) return 0;
  const auto stream = static_cast<cudaStream_t>(launch.stream);
  Carver carver(launch.workspace);
  const Scratch s = carve(n, carver);
  const bool extra = p.extra_cache.record != AS_RECORD_NONE;
  ListsOf lists{{p.indices, {}}, {p.topk_length, {}}, {0, n.of_cache}};
  if (extra) {
    lists.slots[1] = p.extra_indices;
    lists.lens[1] = p.extra_topk_length;
  }
  const auto tokens = static_cast<unsigned>(n.tokens);
  const auto bytes = static_cast<std::size_t>(n.places) * sizeof(std::int32_t);
  if (const int code = cudaMemsetAsync(s.map, 0, bytes, stream); code != 0) return code;
  mark_kernel<<<tokens, kThreads, 0, stream>>>(lists, p.prefill, s);
  number_kernel<<<1, kScanThreads, 0, stream>>>(s.map, n.places);
  const auto blocks = static_cast<unsigned>(std::clamp<std::int64_t>(n.places, 1, kMostBlocks));
  gather_kernel<<<blocks, kThreads, 0, stream>>>(cache_view(p.cache),
                                                 extra ? cache_view(p.extra_cache) : CacheView{},
                                                 n.of_cache, n.places, s);
  combine_kernel<<<tokens, kThreads, 0, stream>>>(lists, p.prefill, n.columns, s);
  if (const int code = launch_status(); code != 0) return code;

  Launch rest = launch;
  rest.workspace = s.rest;
  rest.workspace_bytes -= carver.bytes();
  if (const int code = workspace_attention(over_rows(p, n, s), rest); code != 0) return code;
  Params others = p;
  others.prefill = as_tensor{};
  others.topk_length = dense(s.masked, AS_I32, n.tokens, 0, 0);
  if (extra) others.extra_topk_length = dense(s.masked + n.tokens, AS_I32, n.tokens, 0, 0);
  if (const int code = direct(others, rest); code != 0) return code;
  take_over_kernel<<<dim3(tokens, static_cast<unsigned>(n.heads)), kThreads, 0, stream>>>(
      p.prefill, p.o, p.lse, s);
  return launch_status();
}

}  // namespace attnscope::cuda
