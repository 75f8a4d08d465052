// paged_attention of tokens over rows of codes: a block has one token, up to eight query heads of a
// KV head and a split of the rows. Each of its warps goes through every fourth tile of 16 rows by
// itself, copies two ahead of its steps, and the block adds up what its warps have.
//
// A lane copies the very codes that it gives to the tensor cores: rows are their left operand, keys
// as 16 rows by 16 dims, values as 16 dims by 16 rows, and any order of dims will do. So codes go
// from their 16 bytes to a pair of f16 in one instruction, without an exchange between lanes; of
// scores and weights, of which a lane has four, pairs are transposed. Queries are brought near 2^14
// by a power of two, so that f16 holds what counts of them. Scales of keys are multiplied into
// scores, those of values into weights, which are relative to the largest of their products and
// sums of two f16: nothing but the order of sums is lost against fp32.
//
// Bound by memory: all 16 rows of a step cost what one of them does.
#include "kernels/cuda/early.cuh"
#include "kernels/cuda/kv_codes.cuh"
#include "kernels/cuda/paged_parts.cuh"
#include "kernels/cuda/paged_steps.cuh"

namespace attnscope::cuda::paged {
namespace {

constexpr int kWarps = 4, kTile = 16, kHeads = kHeadsOfCodes;
constexpr float kLargestWeight = 0x1p14f;  // twice that with a scale
constexpr float kLeastWeight = 0x1p-24f;   // that f16 holds

// kDims: of a head in shared memory, the others zeros.
template <int kDims>
struct Shape {
  static constexpr int kStages = 3;
  static constexpr int kCodeBytes = kTile * kDims;
  static constexpr int kScaleBytes = 2 * kTile * 8;  // a scale and a zero point a row
  static constexpr int kStageBytes = 2 * kCodeBytes + kScaleBytes;
  static constexpr int kWarpBytes = std::max(kStages * kStageBytes, kHeads* kDims * 4);
  static constexpr int kBytes = kWarps * kWarpBytes;
  static constexpr int kBlocks = kDims > 128 ? 2 : 4;  // on a multiprocessor, 128 registers each
  static constexpr int kRowChunks = kDims / 16;
  static constexpr int kKeyChunks = kDims / 64;  // that a lane has of a key
  static constexpr int kValueBytes = kDims > 64 ? 16 : 8;
  static constexpr int kValueChunks = kDims / 8 / kValueBytes;  // of kValueBytes, of a value
};

// A copy of 8 bytes; zeros where `there` is false.
__device__ __forceinline__ void copy_half(std::uint32_t to, const void* from, bool there) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 8, %2;" ::"r"(to), "l"(from),
               "r"(there ? 8 : 0)
               : "memory");
}

// Which rows a lane has. Of a step over keys: row l / 4 and eight behind it, chunks of 16 bytes
// l % 4 and every fourth behind it. Of one over values: these rows, and dims from chunk l / 4 on.
__device__ __forceinline__ int value_row(int i) {
  return static_cast<int>(2 * (threadIdx.x % 4)) + (i & 1) + 8 * (i >> 1);
}

// Lanes that follow each other copy chunks of 16 bytes of a row that do; lane l of a warp has chunk
// l % kRowChunks of rows l / kRowChunks and on. Where they lie in shared memory, in bytes, so that
// they and the lanes that read them meet all banks. The lane that has a key's chunk reads its j-th
// one of row l / 4 + 8 i as number 32 (i kKeyChunks + j) + (l ^ 4 (j % 2)),
template <int kDims>
__device__ __forceinline__ int key_place(int row, int chunk) {
  const int j = chunk / 4, lane = row % 8 * 4 + chunk % 4;
  return (32 * (row / 8 * Shape<kDims>::kKeyChunks + j) + (lane ^ (j % 2 * 4))) * 16;
}
// and of a value's the j-th of row value_row(i) as number 32 (i kValueChunks + j) +
// value_lane(l % 4, l / 4), of kValueBytes each.
__device__ __forceinline__ int value_lane(int rows, int chunk) {
  return 8 * rows + (chunk ^ (2 * rows));
}
template <int kDims>
__device__ __forceinline__ int value_place(int row, int chunk) {
  using S = Shape<kDims>;
  const int rows = row % 8 / 2, i = (row & 1) + 2 * (row / 8);
  const int number = chunk * (16 / S::kValueBytes);
  return (32 * (i * S::kValueChunks + number / 8) + value_lane(rows, number % 8)) * S::kValueBytes;
}

// Copies of tiles of a split by one warp, which asks for the places of a tile one tile ahead: lanes
// below 16 know of the rows of keys, the others of those of values.
template <int kDims>
struct Copier {
  using S = Shape<kDims>;
  const as_paged_attention_params& p;
  const Numbers& n;
  const Seen& seen;
  I64 request;
  std::uint32_t base;
  const unsigned char *keys, *values;  // the chunk that the lane copies, of a row at the base
  bool key_wanted, value_wanted;
  std::uint32_t page, row;      // in units of 16 bytes
  const unsigned char* scales;  // null: beside the cache
  std::uint32_t scale_row;
  bool zero;
  std::uint32_t block = 0, in_page = 0;  // of the tile that is copied next
  int rows = 0;                          // of it that are there

  __device__ __forceinline__ Copier(const as_paged_attention_params& params, const Numbers& numbers,
                                    const Seen& seen_rows, I64 of_request, I64 kv_head,
                                    std::uint32_t to)
      : p(params), n(numbers), seen(seen_rows), request(of_request), base(to) {
    const int dim = static_cast<int>(threadIdx.x % S::kRowChunks) * 16;
    key_wanted = dim < p.q.shape[2];
    value_wanted = dim < p.o.shape[2];
    keys = n.k_codes.base + kv_head * n.k_codes.head + (key_wanted ? dim : 0);
    values = n.v_codes.base + kv_head * n.v_codes.head + (value_wanted ? dim : 0);
    const cpu::KvCodes& c = threadIdx.x < kTile ? n.k_codes : n.v_codes;
    page = static_cast<std::uint32_t>(c.page / 16);
    row = static_cast<std::uint32_t>(c.row / 16);
    scales = c.beside != nullptr ? nullptr : c.base + c.scales + kv_head * c.scale_head;
    scale_row = static_cast<std::uint32_t>(c.scale_row);
    zero = c.zero;
  }

  // Of rows that are not there, the last one that is stands for all.
  __device__ __forceinline__ void ask(int tile) {
    const I64 first = seen.first + I64{tile} * kTile;
    rows = static_cast<int>(min(I64{kTile}, seen.end - first));
    if (rows <= 0) return;
    const auto narrow = static_cast<std::uint32_t>(first) +
                        min(threadIdx.x % kTile, static_cast<unsigned>(rows - 1));
    if (n.paged) {
      const auto of_page = static_cast<std::uint32_t>(n.rows_of_page);
      const std::uint32_t column = (of_page & (of_page - 1)) == 0
                                       ? narrow >> (31 - __clz(static_cast<int>(of_page)))
                                       : narrow / of_page;
      AS_DEVICE_CHECK(column < p.table.shape[1]);
      block = static_cast<std::uint32_t>(*at<std::int32_t>(p.table, request, column));
      in_page = narrow - column * of_page;
    } else {
      block = static_cast<std::uint32_t>(*at<std::int32_t>(p.table, request)) + narrow;
    }
    AS_DEVICE_CHECK(I64{block} * n.rows_of_page + in_page < n.rows_total);
  }

  __device__ __forceinline__ void copy(int stage) const {
    const std::uint32_t to = base + stage * S::kStageBytes;
    const int lane = threadIdx.x;
    const std::uint32_t mine = block * page + in_page * row;
    constexpr int kCopies = kTile * S::kRowChunks / 32;
#pragma unroll
    for (int i = 0; i < kCopies; ++i) {
      const int of_row = (i * 32 + lane) / S::kRowChunks, chunk = lane % S::kRowChunks;
      copy_chunk(to + key_place<kDims>(of_row, chunk),
                 keys + I64{__shfl_sync(kAllLanes, mine, of_row)} * 16,
                 key_wanted && of_row < rows);
    }
#pragma unroll
    for (int i = 0; i < kCopies; ++i) {
      const int of_row = (i * 32 + lane) / S::kRowChunks, chunk = lane % S::kRowChunks;
      copy_chunk(to + S::kCodeBytes + value_place<kDims>(of_row, chunk),
                 values + I64{__shfl_sync(kAllLanes, mine, kTile + of_row)} * 16,
                 value_wanted && of_row < rows);
    }
    if (scales == nullptr) return;
    const bool there = lane % kTile < rows;
    const std::uint32_t here = to + 2 * S::kCodeBytes + lane * 8;
    const unsigned char* scale = scales + I64{block} * page * 16 + in_page * scale_row;
    if (zero) {
      copy_half(here, scale, there);
    } else {
      copy_word(here, scale, there);
    }
  }
};

// Of 8x8 numbers of 16 bits, lane l has row l / 4, columns 2 (l % 4) and the next.
__device__ __forceinline__ std::uint32_t transposed(std::uint32_t pair) {
  std::uint32_t out;
  asm("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(out) : "r"(pair));
  return out;
}

// Of a stage in shared memory; scales of keys, then of values, each with its zero point.
template <int kDims>
__device__ __forceinline__ const float* scales_of(const unsigned char* stage) {
  return reinterpret_cast<const float*>(stage + 2 * Shape<kDims>::kCodeBytes);
}

// A lane's scores, before their scales: of key l / 4 with heads 2 (l % 4) and the next, then of the
// key eight behind.
template <int kind, int kDims>
__device__ __forceinline__ void score(const unsigned char* stage,
                                      const std::uint32_t (&q)[kDims / 16][2], float (&s)[4]) {
  using S = Shape<kDims>;
  const int lane = threadIdx.x;
  const float* scales = scales_of<kDims>(stage) + 2 * (lane / 4);
  __half2 zeros[2] = {};
  if constexpr (kind == AS_CODE_I8) {
    zeros[0] = zeros_of(scales[1], scales[1]);
    zeros[1] = zeros_of(scales[17], scales[17]);
  }
  const uint4* keys = reinterpret_cast<const uint4*>(stage);
  float sums[2][4] = {};
#pragma unroll
  for (int j = 0; j < S::kKeyChunks; ++j) {
    const uint4* first = keys + j * 32 + (lane ^ (j % 2 * 4));
    const uint4 a = first[0], b = first[S::kKeyChunks * 32];
    const std::uint32_t of_a[4] = {a.x, a.y, a.z, a.w}, of_b[4] = {b.x, b.y, b.z, b.w};
#pragma unroll
    for (int w = 0; w < 4; ++w) {
      const std::uint32_t k[4] = {
          code_pair<kind, false>(of_a[w], zeros[0]), code_pair<kind, false>(of_b[w], zeros[1]),
          code_pair<kind, true>(of_a[w], zeros[0]), code_pair<kind, true>(of_b[w], zeros[1])};
      mma_f16(sums[w % 2], k, q[4 * j + w][0], q[4 * j + w][1]);
    }
  }
#pragma unroll
  for (int i = 0; i < 4; ++i) s[i] = sums[0][i] + sums[1][i];
}

// A word of each of four rows: two dims of all of them are a step's left operand.
template <int kind>
__device__ __forceinline__ void add_word(float (*o)[4], const std::uint32_t (&rows)[4],
                                         const __half2 (&zeros)[2], const std::uint32_t (&large)[2],
                                         const std::uint32_t (&small)[2]) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int order = half == 0 ? 0x5140 : 0x7362;
    const std::uint32_t first = __byte_perm(rows[0], rows[1], order);
    const std::uint32_t second = __byte_perm(rows[2], rows[3], order);
    const std::uint32_t v[4] = {
        code_pair<kind, false>(first, zeros[0]), code_pair<kind, true>(first, zeros[0]),
        code_pair<kind, false>(second, zeros[1]), code_pair<kind, true>(second, zeros[1])};
    mma_f16(o[half], v, large[0], large[1]);
    mma_f16(o[half], v, small[0], small[1]);
  }
}

// Adds weighted values; of kDims / 16 steps a lane has dims 2 i and 2 i + 1 of its chunk i / 8.
template <int kind, int kDims>
__device__ __forceinline__ void add_values(const unsigned char* stage,
                                           const std::uint32_t (&large)[2],
                                           const std::uint32_t (&small)[2],
                                           float (&o)[kDims / 16][4]) {
  using S = Shape<kDims>;
  const int lane = threadIdx.x;
  __half2 zeros[2] = {};
  if constexpr (kind == AS_CODE_I8) {
    const float* scales = scales_of<kDims>(stage) + 2 * kTile + 1;
    zeros[0] = zeros_of(scales[2 * value_row(0)], scales[2 * value_row(1)]);
    zeros[1] = zeros_of(scales[2 * value_row(2)], scales[2 * value_row(3)]);
  }
  const unsigned char* values =
      stage + S::kCodeBytes + value_lane(lane % 4, lane / 4) * S::kValueBytes;
#pragma unroll
  for (int j = 0; j < S::kValueChunks; ++j) {
    std::uint32_t words[4][S::kValueBytes / 4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const unsigned char* from = values + (i * S::kValueChunks + j) * 32 * S::kValueBytes;
      if constexpr (S::kValueBytes == 16) {
        const uint4 read = *reinterpret_cast<const uint4*>(from);
        words[i][0] = read.x, words[i][1] = read.y, words[i][2] = read.z, words[i][3] = read.w;
      } else {
        const uint2 read = *reinterpret_cast<const uint2*>(from);
        words[i][0] = read.x, words[i][1] = read.y;
      }
    }
#pragma unroll
    for (int w = 0; w < S::kValueBytes / 4; ++w) {
      const std::uint32_t rows[4] = {words[0][w], words[1][w], words[2][w], words[3][w]};
      add_word<kind>(o + (j * S::kValueBytes / 2 + 2 * w), rows, zeros, large, small);
    }
  }
}

__device__ __forceinline__ float largest_of_column(float x) {
  x = fmaxf(x, __shfl_xor_sync(kAllLanes, x, 4));
  x = fmaxf(x, __shfl_xor_sync(kAllLanes, x, 8));
  return fmaxf(x, __shfl_xor_sync(kAllLanes, x, 16));
}
__device__ __forceinline__ float sum_of_column(float x) {
  x += __shfl_xor_sync(kAllLanes, x, 4);
  x += __shfl_xor_sync(kAllLanes, x, 8);
  return x + __shfl_xor_sync(kAllLanes, x, 16);
}

// What a maximum was, as a factor of what was summed relative to it.
__device__ __forceinline__ float raise(float& best, float larger) {
  larger = fmaxf(best, larger);
  const float shift = larger == minus_infinity() ? 0.0f : larger;
  const float factor = best == minus_infinity() ? 0.0f : exp2_of(best - shift);
  best = larger;
  return factor;
}

// Of a lane's two heads, exponents of 2: the largest of a weight, the largest of a weight times the
// scale of its value, the sum of weights of the lane's rows.
struct ColumnWeights {
  float best[2] = {minus_infinity(), minus_infinity()};
  float top[2] = {minus_infinity(), minus_infinity()};
  float sum[2] = {0.0f, 0.0f};

  // Exponents become weights of values relative to 2^top / kLargestWeight; factor: of what was
  // summed before. v_scale: of the lane's two rows, or null.
  __device__ __forceinline__ void take(float (&s)[4], const float* v_scale, float (&factor)[2]) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const float larger = largest_of_column(fmaxf(s[i], s[2 + i]));
      factor[i] = raise(best[i], larger);
      const float shift = best[i] == minus_infinity() ? 0.0f : best[i];
      const float w[2] = {exp2_of(s[i] - shift), exp2_of(s[2 + i] - shift)};
      sum[i] = fmaf(sum[i], factor[i], w[0] + w[1]);
      if (v_scale == nullptr) {
        s[i] = w[0] * kLargestWeight;
        s[2 + i] = w[1] * kLargestWeight;
      }
    }
    if (v_scale == nullptr) return;
    const float scale[2] = {v_scale[0], v_scale[16]};
    float power[2];
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      power[j] =
          static_cast<float>(static_cast<int>(__float_as_uint(scale[j]) >> 23 & 0xffu) - 127);
    }
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const float larger = largest_of_column(fmaxf(s[i] + power[0], s[2 + i] + power[1]));
      factor[i] = raise(top[i], larger);
      const float shift = top[i] == minus_infinity() ? 0.0f : top[i];
      s[i] = exp2_of(s[i] - shift) * (scale[0] * kLargestWeight);
      s[2 + i] = exp2_of(s[2 + i] - shift) * (scale[1] * kLargestWeight);
    }
  }
  // What the lane's sums of values are multiplied by to be relative to 2^best.
  __device__ __forceinline__ float last_factor(int i, bool scaled) const {
    if (!scaled) return 1.0f / kLargestWeight;
    return top[i] == minus_infinity() ? 0.0f : exp2_of(top[i] - best[i]) / kLargestWeight;
  }
};

// Two weights as two pairs of f16, none of them zero, so that an infinite value stays what it is.
__device__ __forceinline__ void split_weights_f16(float low, float high, std::uint32_t& large,
                                                  std::uint32_t& small) {
  std::uint32_t cut;
  asm("cvt.rz.f16x2.f32 %0, %1, %2;" : "=r"(cut) : "f"(high), "f"(low));
  const float2 of_cut = __half22float2(as_half2(cut));
  small = as_bits(
      __floats2half2_rn(fmaxf(low - of_cut.x, kLeastWeight), fmaxf(high - of_cut.y, kLeastWeight)));
  large = as_bits(__hmax2_nan(as_half2(cut), as_half2(0x00010001u)));
}

// Queries of head l / 4 as a step's right operand, times a power of two; what undoes it.
template <int kDims>
__device__ __forceinline__ float load_queries(const as_paged_attention_params& p, I64 t, I64 head,
                                              bool there, std::uint32_t (&q)[kDims / 16][2]) {
  const int size = static_cast<int>(p.q.shape[2]);
  std::uint32_t read[kDims / 16][2];
  float most = 0.0f;
#pragma unroll
  for (int j = 0; j < kDims / 64; ++j) {
    const int dim = 16 * (static_cast<int>(threadIdx.x % 4) + 4 * j);
#pragma unroll
    for (int part = 0; part < 2; ++part) {
      uint4 words = make_uint4(0, 0, 0, 0);
      if (there && dim < size) {
        words = *reinterpret_cast<const uint4*>(at<std::uint16_t>(p.q, t, head, dim + 8 * part));
      }
      const std::uint32_t of[4] = {words.x, words.y, words.z, words.w};
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        read[4 * j + 2 * part + i / 2][i % 2] = of[i];
        most = fmaxf(most, fmaxf(fabsf(low_bf16(of[i])), fabsf(high_bf16(of[i]))));
      }
    }
  }
  most = fmaxf(most, __shfl_xor_sync(kAllLanes, most, 1));
  most = fmaxf(most, __shfl_xor_sync(kAllLanes, most, 2));
  const int exponent = static_cast<int>(__float_as_uint(most) >> 23) - 127;
  const int up = min(14 - exponent, 126);
  const float factor = __uint_as_float(static_cast<std::uint32_t>(127 + up) << 23);
#pragma unroll
  for (int i = 0; i < kDims / 16; ++i) {
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      q[i][j] =
          as_bits(__floats2half2_rn(low_bf16(read[i][j]) * factor, high_bf16(read[i][j]) * factor));
    }
  }
  return __uint_as_float(static_cast<std::uint32_t>(127 - up) << 23);
}

template <int kDims>
__device__ __forceinline__ void token_over_codes(const as_paged_attention_params& p,
                                                 const Numbers& n, I64 t, unsigned of_token,
                                                 unsigned head_blocks, float* parts) {
  using S = Shape<kDims>;
  extern __shared__ __align__(128) unsigned char shared[];
  __shared__ float of_warps[kWarps][2][kHeads];
  const I64 kv_head = of_token / head_blocks, group_block = of_token % head_blocks;
  const I64 first_head = kv_head * n.group + group_block * kHeads;
  const int heads = static_cast<int>(min(I64{kHeads}, n.group - group_block * kHeads));
  const int lane = threadIdx.x, warp = threadIdx.y;
  const I64 request = *at<std::int32_t>(p.token_to_req, t);
  const Seen all = seen_by(p, t, request);
  const Seen seen = part_of(all, n.splits, blockIdx.z);
  const int tiles =
      seen.end > seen.first ? static_cast<int>((seen.end - seen.first + kTile - 1) / kTile) : 0;

  unsigned char* own = shared + warp * S::kWarpBytes;
  Copier<kDims> copier(p, n, seen, request, kv_head, shared_address(own));
  copier.ask(warp);
#pragma unroll
  for (int i = 0; i < S::kStages - 1; ++i) {
    if (warp + i * kWarps < tiles) copier.copy(i);
    end_copies();
    copier.ask(warp + (i + 1) * kWarps);
  }

  std::uint32_t q[kDims / 16][2];
  const float back = load_queries<kDims>(p, t, first_head + lane / 4, lane / 4 < heads, q);
  const bool v_scaled = n.v_codes.beside == nullptr, k_scaled = n.k_codes.beside == nullptr;
  const float k_beside = k_scaled ? 1.0f : n.k_codes.beside[kv_head * n.k_codes.beside_step];
  const auto cap = static_cast<float>(p.soft_cap);
  const bool plain = cap <= 0.0f && !present(p.alibi_slopes);
  float scale[2], slope[2];
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const int head = 2 * (lane % 4) + i;
    scale[i] = __shfl_sync(kAllLanes, back, 4 * head) * k_beside * static_cast<float>(p.scale) *
               (plain ? kLog2E : 1.0f);
    slope[i] = present(p.alibi_slopes) && head < heads
                   ? *at<float>(p.alibi_slopes, first_head + head)
                   : 0.0f;
  }

  ColumnWeights weights;
  float o[kDims / 16][4] = {};
  int stage = 0;
  for (int tile = warp; tile < tiles; tile += kWarps) {
    {
      const int ahead = tile + (S::kStages - 1) * kWarps;
      if (ahead < tiles) copier.copy(stage == 0 ? S::kStages - 1 : stage - 1);
      end_copies();
      copier.ask(ahead + kWarps);
    }
    wait_copies<S::kStages - 1>();
    __syncwarp();  // scales are of other lanes
    const unsigned char* at_stage = own + stage * S::kStageBytes;
    float s[4];
    if (n.k_codes.code == AS_CODE_E4M3) {
      score<AS_CODE_E4M3, kDims>(at_stage, q, s);
    } else if (n.k_codes.code == AS_CODE_E5M2) {
      score<AS_CODE_E5M2, kDims>(at_stage, q, s);
    } else {
      score<AS_CODE_I8, kDims>(at_stage, q, s);
    }
    const float* scales = scales_of<kDims>(at_stage) + 2 * (lane / 4);
    const auto row = static_cast<std::int32_t>(seen.first) + tile * kTile + lane / 4;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      s[i] *= k_scaled ? scales[16 * (i / 2)] * scale[i % 2] : scale[i % 2];
    }
    if (!plain) {
      const auto position = static_cast<std::int32_t>(all.position);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        if (cap > 0.0f) s[i] = cap * tanhf(s[i] / cap);
        const std::int32_t apart = position - (row + 8 * (i / 2));
        s[i] -= slope[i % 2] * static_cast<float>(apart > 0 ? apart : -apart);
        s[i] *= kLog2E;
      }
    }
    if (tile + 1 == tiles) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        if (row + 8 * (i / 2) >= static_cast<std::int32_t>(seen.end)) s[i] = minus_infinity();
      }
    }
    float factor[2];
    weights.take(s, v_scaled ? scales + 2 * kTile : nullptr, factor);
    if (__any_sync(kAllLanes, factor[0] != 1.0f || factor[1] != 1.0f)) {
#pragma unroll
      for (int d = 0; d < kDims / 16; ++d) {
#pragma unroll
        for (int i = 0; i < 4; ++i) o[d][i] *= factor[i % 2];
      }
    }
    std::uint32_t large[2], small[2];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      split_weights_f16(s[2 * i], s[2 * i + 1], large[i], small[i]);
      large[i] = transposed(large[i]);
      small[i] = transposed(small[i]);
    }
    if (n.v_codes.code == AS_CODE_E4M3) {
      add_values<AS_CODE_E4M3, kDims>(at_stage, large, small, o);
    } else if (n.v_codes.code == AS_CODE_E5M2) {
      add_values<AS_CODE_E5M2, kDims>(at_stage, large, small, o);
    } else {
      add_values<AS_CODE_I8, kDims>(at_stage, large, small, o);
    }
    stage = stage + 1 == S::kStages ? 0 : stage + 1;
    __syncwarp();  // scales have been read
  }
  wait_copies<0>();
  __syncwarp();
  const float v_beside = v_scaled ? 1.0f : n.v_codes.beside[kv_head * n.v_codes.beside_step];
  auto* sums = reinterpret_cast<float*>(own);
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const float factor = weights.last_factor(i, v_scaled) * v_beside;
    const float sum = sum_of_column(weights.sum[i]);
    float* to = sums + (2 * (lane % 4) + i) * kDims;
#pragma unroll
    for (int d = 0; d < kDims / 16; ++d) {
      constexpr int kSteps = S::kValueBytes / 2;  // of a chunk
      const int dim = S::kValueBytes * (lane / 4 + 8 * (d / kSteps)) + 2 * (d % kSteps);
      *reinterpret_cast<float2*>(to + dim) = make_float2(o[d][i] * factor, o[d][2 + i] * factor);
    }
    if (lane < 4) {
      of_warps[warp][0][2 * lane + i] = weights.best[i];
      of_warps[warp][1][2 * lane + i] = sum;
    }
  }
  __syncthreads();
  add_warps<kDims, kWarps>(p, n, shared, S::kWarpBytes, of_warps, t, first_head, heads,
                           all.first < all.end, parts);
}

// Heads of a token side by side: pages and scales of a row are shared by them. listed: of others,
// else of all tokens.
template <int kDims, bool listed>
__global__ void __launch_bounds__(32 * kWarps, Shape<kDims>::kBlocks)
    codes_kernel(const __grid_constant__ as_paged_attention_params p,
                 const __grid_constant__ Numbers n, Others others, unsigned head_blocks,
                 unsigned blocks_of_token, float* parts) {
  follow_kernel_before();
  const unsigned of_token = blockIdx.x % blocks_of_token, block = blockIdx.x / blocks_of_token;
  if constexpr (!listed) {
    token_over_codes<kDims>(p, n, block, of_token, head_blocks, parts);
  } else {
    const int count = *others.list, step = static_cast<int>(gridDim.x / blocks_of_token);
    for (int i = static_cast<int>(block); i < count; i += step) {
      token_over_codes<kDims>(p, n, others.list[1 + i], of_token, head_blocks, parts);
      __syncthreads();
    }
  }
}

template <int kDims>
int launch_codes(const as_paged_attention_params& p, const Numbers& n, float* parts,
                 const Others& others, I64 blocks, const Launch& launch) {
  constexpr int kBytes = Shape<kDims>::kBytes;
  const auto kernel =
      others.list != nullptr ? codes_kernel<kDims, true> : codes_kernel<kDims, false>;
  const cudaError_t code =
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes);
  if (code != cudaSuccess) return code;
  const auto head_blocks = static_cast<unsigned>((n.group + kHeads - 1) / kHeads);
  const auto of_token = static_cast<unsigned>(as_cache_heads(&p.k_cache)) * head_blocks;
  const dim3 grid(static_cast<unsigned>(blocks) * of_token, 1, static_cast<unsigned>(n.splits));
  return launch_early(launch.gpu.hopper, launch.stream, grid, dim3(32, kWarps), kBytes, kernel, p,
                      n, others, head_blocks, of_token, parts);
}

}  // namespace

int decode_codes(const as_paged_attention_params& p, const Numbers& n, float* parts,
                 const Others& others, I64 blocks, const Launch& launch) {
  const I64 largest = std::max(p.q.shape[2], p.o.shape[2]);
  if (largest <= 64) return launch_codes<64>(p, n, parts, others, blocks, launch);
  if (largest <= 128) return launch_codes<128>(p, n, parts, others, blocks, launch);
  return launch_codes<256>(p, n, parts, others, blocks, launch);
}

}  // namespace attnscope::cuda::paged
