// Gathers the rows of tiles and decodes them into shared memory, four threads a row.
//
// A thread holds its nine chunks of 16 bytes of the next tile in registers while the present one is
// decoded; slots and scales are a tile further ahead.
#pragma once

#include "kernels/cuda/hopper_tile.cuh"

namespace attnscope::cuda::hopper {

// What a list's entry without a row reads: zeros of scale 2^-7. Weight 0 times NaN would leak.
struct alignas(16) EmptyRow {
  std::uint32_t payload[144] = {};
  std::uint32_t scales[2] = {0x78787878u, 0x78787878u};
};
static __device__ const EmptyRow kEmptyRow{};
struct alignas(16) EmptyMlaRow {
  std::uint32_t codes[AS_LATENT_656_CODES / 4] = {};
  float scales[AS_LATENT_656_BLOCKS] = {0.0078125f, 0.0078125f, 0.0078125f, 0.0078125f};
  std::uint32_t rope[AS_MLA_ROPE / 2] = {};
};
static_assert(sizeof(EmptyMlaRow) == AS_LATENT_656_BYTES);
static __device__ const EmptyMlaRow kEmptyMlaRow{};

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

// Two e4m3 codes to fp16, exactly; the code of NaN becomes one.
__device__ __forceinline__ std::uint32_t widen_e4m3x2(std::uint32_t codes) {
  std::uint32_t wide;
  asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(wide) : "h"(static_cast<std::uint16_t>(codes)));
  return wide;
}
__device__ __forceinline__ std::uint32_t multiply_f16x2(std::uint32_t a, std::uint32_t b) {
  std::uint32_t product;
  asm("mul.rn.f16x2 %0, %1, %2;" : "=r"(product) : "r"(a), "r"(b));
  return product;
}
__device__ __forceinline__ std::uint32_t add_product_f16x2(std::uint32_t a, std::uint32_t b,
                                                           std::uint32_t c) {
  std::uint32_t sum;
  asm("fma.rn.f16x2 %0, %1, %2, %3;" : "=r"(sum) : "r"(a), "r"(b), "r"(c));
  return sum;
}
// 2^(code - 127 + kRowBits) twice, of a UE8M0 code that fp16 holds then.
__device__ __forceinline__ std::uint32_t factor_of(std::uint32_t code) {
  return (code - (112 - kRowBits)) * 0x04000400u;
}
// Four bytes of scales: the top bit of each that is from kSmallestCode to 126, if all others are.
__device__ __forceinline__ std::uint32_t inside(std::uint32_t scales) {
  constexpr std::uint32_t ones = 0x01010101u;
  return (scales + ones * (128 - kSmallestCode)) & ~(scales | (scales + ones));
}
// Eight codes, each times the same fp16.
__device__ __forceinline__ uint4 decode_codes(std::uint32_t a, std::uint32_t b,
                                              std::uint32_t factor) {
  return make_uint4(
      multiply_f16x2(widen_e4m3x2(a), factor), multiply_f16x2(widen_e4m3x2(a >> 16), factor),
      multiply_f16x2(widen_e4m3x2(b), factor), multiply_f16x2(widen_e4m3x2(b >> 16), factor));
}
// Twice the same fp16.
__device__ __forceinline__ std::uint32_t both_f16(float value) {
  std::uint32_t pair;
  asm("cvt.rn.f16x2.f32 %0, %1, %1;" : "=r"(pair) : "f"(value));
  return pair;
}
// Two bf16, 2^bits of their value, to fp16: infinite where they do not fit.
template <int bits>
__device__ __forceinline__ std::uint32_t narrow_bf16x2(std::uint32_t pair) {
  std::uint32_t v = pair;
  if (bits != 0) {
    const __nv_bfloat162 factor =
        as_bf162(static_cast<std::uint32_t>((127 + bits) << 7) * 0x00010001u);
    v = as_bits(__hmul2(as_bf162(pair), factor));
  }
  std::uint32_t narrow;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;"
      : "=r"(narrow)
      : "f"(__uint_as_float(v & 0xffff0000u)), "f"(__uint_as_float(v << 16)));
  return narrow;
}

// One warpgroup's half of every tile: dims 0 to 255, or 256 to 511; the bf16 dims of a record are
// among the latter, those of absorbed MLA are shared. A thread has two rows. `slots_first`: slots
// are asked for before rows; in blocks of a cluster that is slower.
template <bool exact, int half, class Rows, bool slots_first>
class Gather {
 public:
  __device__ __forceinline__ Gather(const Lists& lists, const Sources& sources, int thread)
      : lists_(lists), sources_(sources), row_(thread / 4), lane_(thread % 4) {}

  // Fills tiles begin to end - 1. Whether some row does not fit the form.
  __device__ __forceinline__ bool tiles(Shared<Rows>& shared, int begin, int end) {
    if (begin >= end) return false;
    // A chunk of codes becomes chunks 2 lane and the next of its panel; the two of bf16, which rows
    // that follow one another take in turn so that their stores meet different banks, are copied.
    const std::uint32_t first = panel_offset<kTile>(row_, half * 32 + 2 * lane_);
    const std::uint32_t last =
        panel_offset<kTile>(row_, kMla ? 64 + other() : 56 + lane_ + 4 * (row_ & 1));
    if (slots_first && half == 1) fetch_lists(begin + 2, end);
    // Slots of the next tile and of the one after it, which is on its way into the L2.
    int next[kRows], ahead[kRows];
    std::uint32_t masks[kRows];
    {
      int now[kRows];
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        now[r] = slot(begin, r, end);
        next[r] = slot(begin + 1, r, end);
        ahead[r] = half == 0 ? slot(begin + 2, r, end) : 0;
      }
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        load(r, find(begin, now[r]));
        masks[r] = __ballot_sync(kAllLanes, now[r] >= 0);
      }
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        if (half == 0) fetch(begin + 1, next[r]);
      }
    }
    for (int t = begin; t < end; ++t) {
      const int buffer = (t - begin) & 1;
      unsigned char* rows = shared.rows[buffer];
      if (!exact && !(fits(scales_[0]) && fits(scales_[1]))) {
        misfit_ = misfit_ || !(fits(scales_[0]) || zeros(0)) || !(fits(scales_[1]) || zeros(1));
      }
      if (t - begin >= 2) barrier_wait(kEmpty + 2 * half + buffer, kPartners);
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
#pragma unroll
        for (int i = 0; i < kCodes; ++i) {
          store_codes(r, i, rows + first + r * kStep, rows + (first ^ 16) + r * kStep);
        }
        if (kMla) {
          store_values(chunk_[r][kCodes], rows + last + r * kStep);
        } else if (half == 1) {
          store_values(chunk_[r][3], rows + last + r * kStep);
          store_values(chunk_[r][4], rows + (last ^ 64) + r * kStep);
        }
      }
      if (half == 1 && threadIdx.x % 32 == 0) {
#pragma unroll
        for (int r = 0; r < kRows; ++r) shared.valid[buffer][row_ / 8 + 4 * r] = masks[r];
      }
      publish_shared();
      barrier_arrive(kFull + 2 * half + buffer, kPartners);
      if (t + 1 >= end) break;
      // Slots before rows: the compiler has all loads of a turn of the loop wait for one another,
      // and one that is made behind them is waited for in full.
      int then[kRows] = {};
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        if (slots_first) then[r] = slot(half == 0 ? t + 3 : t + 2, r, end);
      }
#pragma unroll
      for (int r = 0; r < kRows; ++r) load(r, find(t + 1, next[r]));
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        if (half == 1) masks[r] = __ballot_sync(kAllLanes, next[r] >= 0);
        if (half == 0) {
          fetch(t + 2, ahead[r]);
          next[r] = ahead[r];
          ahead[r] = slots_first ? then[r] : slot(t + 3, r, end);
        } else {
          next[r] = slots_first ? then[r] : slot(t + 2, r, end);
        }
      }
    }
    return misfit_;
  }

 private:
  static constexpr int kRows = 2;
  static constexpr bool kMla = std::is_same_v<Rows, MlaRows>;
  static_assert(!kMla || !exact);
  static constexpr int kCodes = kMla || half == 0 ? 4 : 3;  // of a row's chunks
  static constexpr int kOthers = kMla ? 1 : 2 * half;       // more of them, in bf16
  using Scales = std::conditional_t<kMla, float2, std::uint32_t>;
  static constexpr int kStep = 32 * 128;  // bytes from a thread's row to the next

  __device__ __forceinline__ int slot(int tile, int r, int end) const {
    // The lists lie in registers: no index into them.
    const bool extra = tile >= lists_.tiles[0];
    const int column = (extra ? tile - lists_.tiles[0] : tile) * kTile + row_ + 32 * r;
    const std::int32_t* from = extra ? lists_.slots[1] : lists_.slots[0];
    const int len = extra ? lists_.lens[1] : lists_.lens[0];
    return tile < end && column < len ? __ldg(from + column) : -1;
  }

  // The slots of tiles `from` to end - 1 into the L2, a line of 32 a thread.
  __device__ __forceinline__ void fetch_lists(int from, int end) const {
    constexpr int kLine = 32, kLines = kTile / kLine;
#pragma unroll 1
    for (int line = kLines * from + static_cast<int>(threadIdx.x % kGroup); line < kLines * end;
         line += kGroup) {
      const bool extra = line >= kLines * lists_.tiles[0];
      const int column = kLine * (extra ? line - kLines * lists_.tiles[0] : line);
      if (column < (extra ? lists_.lens[1] : lists_.lens[0])) {
        const std::int32_t* list = extra ? lists_.slots[1] : lists_.slots[0];
        prefetch(reinterpret_cast<const unsigned char*>(list + column));
      }
    }
  }

  // The chunk of a row's bf16 dims that is this thread's, in absorbed MLA.
  __device__ __forceinline__ int other() const { return lane_ + 4 * ((row_ & 1) ^ half); }

  __device__ __forceinline__ RowAddress find(int tile, int slot) const {
    if (slot >= 0) {
      return row_at<Rows>(sources_.pages[tile >= lists_.tiles[0] ? 1 : 0],
                          static_cast<std::uint32_t>(slot));
    }
    if constexpr (kMla) {
      auto* row = reinterpret_cast<unsigned char*>(const_cast<EmptyMlaRow*>(&kEmptyMlaRow));
      return {row, row + AS_LATENT_656_SCALES};
    }
    auto* empty = reinterpret_cast<unsigned char*>(const_cast<EmptyRow*>(&kEmptyRow));
    return {empty, empty + sizeof(kEmptyRow.payload)};
  }

  // Into the L2, a tile before it is loaded: the compiler has all loads of a turn of the loop wait
  // for one another.
  __device__ __forceinline__ void fetch(int tile, int slot) const {
    if (slot < 0) return;
    const RowAddress row = find(tile, slot);
    prefetch(row.payload + 64 * lane_);
    prefetch(row.payload + 256 + 64 * lane_);
    if constexpr (kMla) {
      if (lane_ < 3) prefetch(row.payload + 512 + 64 * lane_);
    } else {
      if (lane_ < 2) prefetch(lane_ == 0 ? row.payload + 512 : row.scales);
    }
  }

  __device__ __forceinline__ void load(int r, const RowAddress& row) {
    const unsigned char* from = row.payload + 256 * half + 16 * lane_;
    scales_[r] = __ldg(reinterpret_cast<const Scales*>(row.scales) + half);
#pragma unroll
    for (int i = 0; i < kCodes; ++i) {
      chunk_[r][i] = __ldg(reinterpret_cast<const uint4*>(from + 64 * i));
    }
    if constexpr (kMla) {
      chunk_[r][kCodes] =
          __ldg(reinterpret_cast<const uint4*>(row.payload + AS_LATENT_656_ROPE) + other());
    } else if (half == 1) {
      const int odd = 64 * (row_ & 1);
      chunk_[r][3] = __ldg(reinterpret_cast<const uint4*>(from + 192 + odd));
      chunk_[r][4] = __ldg(reinterpret_cast<const uint4*>(from + 256 - odd));
    }
  }

  // Zeros fit whatever their scale.
  __device__ __forceinline__ bool zeros(int r) const {
    std::uint32_t bits = 0;
#pragma unroll
    for (int i = 0; i < kCodes; ++i) {
      bits |= chunk_[r][i].x | chunk_[r][i].y | chunk_[r][i].z | chunk_[r][i].w;
    }
    return bits == 0;
  }

  // Code 448 times a scale is finite in fp16?
  __device__ __forceinline__ static bool fits(float2 scales) {
    constexpr float kMost = 65504.0f / 448.0f / (1 << kRowBits);
    return scales.x <= kMost && scales.y <= kMost;
  }
  // The half's four or three bytes, each from kSmallestCode to 126?
  __device__ __forceinline__ static bool fits(std::uint32_t scales) {
    return (inside(scales) | ~(half == 0 ? 0x80808080u : 0x00808080u)) == ~0u;
  }

  // The i-th chunk of codes, which lies in the i-th block of 64 values.
  __device__ __forceinline__ void store_codes(int r, int i, unsigned char* low_at,
                                              unsigned char* high_at) const {
    const uint4& from = chunk_[r][i];
    uint4 low, high;
    if constexpr (kMla) {
      // A scale as the sum of two fp16: a product is rounded once.
      const float scale = (i < 2 ? scales_[r].x : scales_[r].y) * (1 << kRowBits);
      const std::uint32_t factor = both_f16(scale);
      const std::uint32_t rest =
          both_f16(scale - __half2float(__ushort_as_half(static_cast<std::uint16_t>(factor))));
      low = decode(from.x, from.y, factor, rest);
      high = decode(from.z, from.w, factor, rest);
      *reinterpret_cast<uint4*>(low_at + i * kPanel) = low;
      *reinterpret_cast<uint4*>(high_at + i * kPanel) = high;
      return;
    } else {
      const std::uint32_t code = scales_[r] >> (8 * i) & 0xffu;
      if (exact) {
        decode_e4m3x16(from, code, &low, &high);
      } else {
        low = decode_codes(from.x, from.y, factor_of(code));
        high = decode_codes(from.z, from.w, factor_of(code));
      }
    }
    *reinterpret_cast<uint4*>(low_at + i * kPanel) = low;
    *reinterpret_cast<uint4*>(high_at + i * kPanel) = high;
  }
  __device__ __forceinline__ void store_values(const uint4& from, unsigned char* to) const {
    uint4 values = from;
    if (!exact) {
      values = make_uint4(narrow_bf16x2<kRowBits>(from.x), narrow_bf16x2<kRowBits>(from.y),
                          narrow_bf16x2<kRowBits>(from.z), narrow_bf16x2<kRowBits>(from.w));
    }
    *reinterpret_cast<uint4*>(to) = values;
  }

  __device__ __forceinline__ static std::uint32_t scaled(std::uint32_t codes, std::uint32_t factor,
                                                         std::uint32_t rest) {
    const std::uint32_t values = widen_e4m3x2(codes);
    return add_product_f16x2(values, factor, multiply_f16x2(values, rest));
  }
  __device__ __forceinline__ static uint4 decode(std::uint32_t a, std::uint32_t b,
                                                 std::uint32_t factor, std::uint32_t rest) {
    return make_uint4(scaled(a, factor, rest), scaled(a >> 16, factor, rest),
                      scaled(b, factor, rest), scaled(b >> 16, factor, rest));
  }

  const Lists lists_;
  const Sources& sources_;
  const int row_, lane_;
  uint4 chunk_[kRows][kCodes + kOthers];
  Scales scales_[kRows];
  bool misfit_ = false;
};

#endif

}  // namespace attnscope::cuda::hopper
