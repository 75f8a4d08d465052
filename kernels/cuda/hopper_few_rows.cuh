// Where the warps of hopper_few.cu find the rows of their entries, and a row on its way to them.
#pragma once

#include "kernels/cuda/hopper_gather.cuh"
#include "kernels/cuda/hopper_tile.cuh"

namespace attnscope::cuda::hopper::few {

constexpr int kUnit = 8;   // entries that a warp gathers at once, four lanes each
constexpr int kWarps = 8;  // of a block
constexpr int kEntries = kUnit * kWarps;
constexpr int kCodes = 7;   // chunks of a lane that are codes
constexpr int kChunks = 9;  // of a row of 36, a lane has every fourth

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

// The entry of this lane's row in each tile of 64. Eight entries of a list are a unit; those of the
// second list follow those of the first, and a cluster's blocks take turns: how long lists are
// need not be known to ask for an entry.
class Entries {
 public:
  __device__ __forceinline__ Entries(const as_sparse_attention_params& p, std::int64_t token) {
    take(0, p.indices, p.topk_length, token);
    if (p.extra_cache.record != AS_RECORD_NONE) {
      take(1, p.extra_indices, p.extra_topk_length, token);
    } else {
      lists_[1] = lens_at_[0];
      lens_at_[1] = nullptr;
      last_[1] = 0;
    }
    second_ = (static_cast<int>(p.indices.shape[1]) + kUnit - 1) / kUnit * kUnit;
    first_ = static_cast<int>((blockIdx.z + gridDim.z * (threadIdx.x / 32)) * kUnit +
                              threadIdx.x % 32 / 4);
  }

  __device__ __forceinline__ void load_lens(const as_sparse_attention_params& p) {
    ends_[0] = __ldg(lens_at_[0]);
    ends_[1] = lens_at_[1] != nullptr ? __ldg(lens_at_[1]) : 0;
    AS_DEVICE_CHECK(ends_[0] <= p.indices.shape[1]);
    AS_DEVICE_CHECK(lens_at_[1] == nullptr || ends_[1] <= p.extra_indices.shape[1]);
    ends_[1] += second_;
  }

  // The tile's rows are those of the second cache, for this warp.
  __device__ __forceinline__ int cache(int tile) const { return place(tile) >= second_ ? 1 : 0; }
  // Where the entry lies. Where the list has no room for it, something else that can be read: CUDA
  // 13.0 was seen to load from a null pointer chosen instead, before its test had arrived.
  __device__ __forceinline__ const std::int32_t* address(int tile) const {
    const bool second = cache(tile) != 0;
    const int column = place(tile) - (second ? second_ : 0);
    return (second ? lists_[1] : lists_[0]) + min(column, second ? last_[1] : last_[0]);
  }
  // Its slot, given what lies there; -1 behind the end of the list.
  __device__ __forceinline__ int within(int tile, int slot) const {
    return place(tile) < (cache(tile) != 0 ? ends_[1] : ends_[0]) ? slot : -1;
  }
  // Of this block, up to the last that is not empty.
  __device__ __forceinline__ int units() const {
    const int last = (ends_[1] > second_ ? ends_[1] - 1 + kUnit : ends_[0] - 1 + kUnit) / kUnit - 1;
    const int rank = static_cast<int>(blockIdx.z), blocks = static_cast<int>(gridDim.z);
    return last < rank ? 0 : (last - rank) / blocks + 1;
  }

 private:
  // Of a list without room its length is read.
  __device__ __forceinline__ void take(int i, const as_tensor& list, const as_tensor& lens,
                                       std::int64_t token) {
    const int capacity = static_cast<int>(list.shape[1]);
    lens_at_[i] = at<std::int32_t>(lens, token);
    lists_[i] = capacity > 0 ? at<std::int32_t>(list, token) : lens_at_[i];
    last_[i] = max(capacity - 1, 0);
  }
  // Among the entries of both lists.
  __device__ __forceinline__ int place(int tile) const {
    return first_ + static_cast<int>(gridDim.z) * kEntries * tile;
  }

  const std::int32_t* lists_[2];
  const std::int32_t* lens_at_[2];
  int last_[2], ends_[2];
  int first_;   // place of the lane's first entry
  int second_;  // where the second list begins
};

// Where a lane's chunks of a row begin; those of zeros where there is none.
struct Place {
  const unsigned char* chunks;
  std::int32_t scales;  // from there
  bool valid;

  __device__ __forceinline__ Place(const Pages& pages, int slot) : valid(slot >= 0) {
    AS_DEVICE_CHECK(!valid || slot < pages.total);
    const RowAddress row = place_at<RecordRows>(pages, static_cast<std::uint32_t>(max(slot, 0)));
    const auto* payload = valid ? row.payload : reinterpret_cast<const unsigned char*>(&kEmptyRow);
    const int lane = static_cast<int>(threadIdx.x % 4) * 16;
    chunks = payload + lane;
    scales = (valid ? static_cast<std::int32_t>(row.scales - row.payload)
                    : static_cast<std::int32_t>(sizeof(kEmptyRow.payload))) -
             lane;
  }
};

// A lane's chunks of a row.
struct Row {
  uint2 scales;
  uint4 chunk[kChunks];
  bool valid;

  __device__ __forceinline__ void load(const Place& place) {
    valid = place.valid;
    load_scales(place);
#pragma unroll
    for (int i = 0; i < kChunks; ++i) load_chunk(place, i);
  }
  __device__ __forceinline__ void load_scales(const Place& place) {
    scales = __ldg(reinterpret_cast<const uint2*>(place.chunks + place.scales));
  }
  __device__ __forceinline__ void load_chunk(const Place& place, int i) {
    chunk[i] = __ldg(reinterpret_cast<const uint4*>(place.chunks) + 4 * i);
  }

  // Sixteen values of block i of 64 dims as fp16, 2^kRowBits of their value: 16 lane % 4 and on of
  // codes; of bf16 eight at 8 lane % 4 and eight 32 dims behind them.
  __device__ __forceinline__ void decode(int i, std::uint32_t (&out)[8]) const {
    if (i < kCodes) {
      const std::uint32_t code = (i < 4 ? scales.x >> (8 * i) : scales.y >> (8 * i - 32)) & 0xffu;
      const uint4 low = decode_codes(chunk[i].x, chunk[i].y, factor_of(code));
      const uint4 high = decode_codes(chunk[i].z, chunk[i].w, factor_of(code));
      const std::uint32_t words[8] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
#pragma unroll
      for (int k = 0; k < 8; ++k) out[k] = words[k];
      return;
    }
    const uint4 &low = chunk[kCodes], &high = chunk[kCodes + 1];
    const std::uint32_t words[8] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
#pragma unroll
    for (int k = 0; k < 8; ++k) out[k] = narrow_bf16x2<kRowBits>(words[k]);
  }
  // The 16-byte chunk of a block that holds out[4 k] and on.
  __device__ __forceinline__ static int chunk_of(int i, int k) {
    const int lane = static_cast<int>(threadIdx.x % 4);
    return i < kCodes ? 2 * lane + k : lane + 4 * k;
  }

  // fp16 holds the codes: seven bytes of scales, each from kSmallestCode to 126, or codes of zeros.
  __device__ __forceinline__ bool fits() const {
    if ((inside(scales.x) & (inside(scales.y) | 0x80000000u) & 0x80808080u) == 0x80808080u) {
      return true;
    }
    std::uint32_t bits = 0;
#pragma unroll
    for (int i = 0; i < kCodes; ++i) bits |= chunk[i].x | chunk[i].y | chunk[i].z | chunk[i].w;
    return bits == 0;
  }
};

#endif

}  // namespace attnscope::cuda::hopper::few
