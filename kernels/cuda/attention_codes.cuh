// Tiles of attention_tiles.cuh over rows of codes: the copying warpgroup widens them to f16 in
// shared memory, once for all queries of a tile, which holds every code exactly, int8 less its zero
// point too. Scales of keys are multiplied into scores, those of values into weights: nothing is
// rounded but weights, to f16, relative to the largest scale of values of the tiles so far. What
// has a scale 2^29 or more below it loses bits, 2^39 below it is zero, also for a query that does
// not see the row with that scale.
//
// Besides, an op says (attention_tiles.cuh):
//   Numbers n          with k_codes and v_codes
//   RowPlace place(r, row)  of a row of request r
#pragma once

#include "kernels/cuda/attention_boxes.cuh"
#include "kernels/cuda/kv_codes.cuh"

namespace attnscope::cuda::tiles {

// Weights are so many times what they are, so that f16 holds what counts of them.
constexpr int kWeightPower = 14;
constexpr int kLeastTop = -100, kLargestTop = 126;  // exponents of the largest scale of a value

__device__ __forceinline__ float power_of_two(int exponent) {
  return __uint_as_float(static_cast<std::uint32_t>(127 + exponent) << 23);
}

// A page and a row in it.
struct RowPlace {
  std::uint32_t page, row;
};

__device__ __forceinline__ void store_chunk(std::uint32_t to, uint4 words) {
  asm volatile("st.shared.v4.u32 [%0], {%1,%2,%3,%4};" ::"r"(to), "r"(words.x), "r"(words.y),
               "r"(words.z), "r"(words.w)
               : "memory");
}

// By a warpgroup: its query rows as f16, each times a power of two that brings it near 2^14; back:
// what undoes it, by row.
template <class S, class Op>
__device__ __forceinline__ void widen_queries(const Op& op, const Tile& tile, std::uint32_t queries,
                                              int group, float* back) {
  constexpr int kChunks = S::kDims / 8;
  const int size = static_cast<int>(op.p.q.shape[2]);
#pragma unroll 1
  for (int i = threadIdx.x % 128; i < 64 * kChunks; i += 128) {
    const int row = group * 64 + i / kChunks, chunk = i % kChunks;
    const I64 t = row / tile.heads;
    uint4 words = make_uint4(0, 0, 0, 0);
    if (t < tile.tokens && chunk * 8 < size) {
      words = *reinterpret_cast<const uint4*>(
          at<std::uint16_t>(op.p.q, tile.begin + t, tile.first_head + row % tile.heads, chunk * 8));
    }
    std::uint32_t pairs[4] = {words.x, words.y, words.z, words.w};
    float most = 0.0f;
#pragma unroll
    for (const std::uint32_t pair : pairs) {
      most = fmaxf(most, fmaxf(fabsf(paged::low_bf16(pair)), fabsf(paged::high_bf16(pair))));
    }
    most = warp_max<kChunks>(most);
    const int exponent = static_cast<int>(__float_as_uint(most) >> 23) - 127;
    const int up = most > 0.0f ? min(14 - exponent, 126) : 0;
    const float factor = power_of_two(up);
#pragma unroll
    for (std::uint32_t& pair : pairs) {
      pair = as_bits(
          __floats2half2_rn(paged::low_bf16(pair) * factor, paged::high_bf16(pair) * factor));
    }
    store_chunk(queries + hopper::panel_offset<S::kRows>(row, chunk),
                make_uint4(pairs[0], pairs[1], pairs[2], pairs[3]));
    if (chunk == 0) back[row] = power_of_two(-up);
  }
}

// What a warp of copiers has of a tile's keys or values on their way: every warp a quarter of the
// rows. Lanes that follow each other have chunks of 16 codes of a row that do.
template <class S>
struct CodesOnTheWay {
  static constexpr int kChunks = S::kDims / 16;         // of a row
  static constexpr int kRows = S::kKeys / 4;            // of a warp
  static constexpr int kAtOnce = 32 / kChunks;          // rows that a warp's lanes have at once
  static constexpr int kCopies = kRows / kAtOnce;       // that a lane has
  static constexpr std::uint32_t kNoRow = 0xffffffffu;  // in the place of where one lies
  uint4 words[kCopies];

  static __device__ __forceinline__ int row_of(int copy) {
    return copy * kAtOnce + static_cast<int>(threadIdx.x % 32) / kChunks;
  }
  // codes: the lane's chunk of a row at the base. mine: where row lane % kRows lies from there, in
  // 16 bytes.
  __device__ __forceinline__ void load(const unsigned char* codes, bool wanted,
                                       std::uint32_t mine) {
#pragma unroll
    for (int i = 0; i < kCopies; ++i) {
      const std::uint32_t from = __shfl_sync(kAllLanes, mine, row_of(i));
      words[i] = make_uint4(0, 0, 0, 0);
      if (wanted && from != kNoRow) {
        words[i] = __ldg(reinterpret_cast<const uint4*>(codes + I64{from} * 16));
      }
    }
  }
  // To a tile in shared memory. zero: the point of row lane % kRows.
  template <int kind>
  __device__ __forceinline__ void store(std::uint32_t to, float zero) const {
    const int lane = static_cast<int>(threadIdx.x % 32), warp = static_cast<int>(threadIdx.x / 32);
    const int chunk = lane % kChunks * 2;
    const bool later = lane % kChunks / 4 % 2 != 0;  // lanes that would meet in a bank take turns
#pragma unroll
    for (int i = 0; i < kCopies; ++i) {
      __half2 zeros{};
      if constexpr (kind == AS_CODE_I8) {
        const float of_row = __shfl_sync(kAllLanes, zero, row_of(i));
        zeros = zeros_of(of_row, of_row);
      }
      const uint4 codes = words[i];
      uint4 low, high;
      low.x = code_pair<kind, false>(codes.x, zeros);
      low.y = code_pair<kind, true>(codes.x, zeros);
      low.z = code_pair<kind, false>(codes.y, zeros);
      low.w = code_pair<kind, true>(codes.y, zeros);
      high.x = code_pair<kind, false>(codes.z, zeros);
      high.y = code_pair<kind, true>(codes.z, zeros);
      high.z = code_pair<kind, false>(codes.w, zeros);
      high.w = code_pair<kind, true>(codes.w, zeros);
      const int row = warp * kRows + row_of(i);
      store_chunk(to + S::offset(row, chunk + (later ? 1 : 0)), later ? high : low);
      store_chunk(to + S::offset(row, chunk + (later ? 0 : 1)), later ? low : high);
    }
  }
  __device__ __forceinline__ void store(std::int32_t kind, std::uint32_t to, float zero) const {
    if (kind == AS_CODE_E4M3) return store<AS_CODE_E4M3>(to, zero);
    if (kind == AS_CODE_E5M2) return store<AS_CODE_E5M2>(to, zero);
    store<AS_CODE_I8>(to, zero);
  }
};

// A cache of codes as a copier addresses it: its chunk of a row at the base, distances in 16 bytes,
// scales of the head.
struct CodedHead {
  const unsigned char *codes, *scales;  // no scales: beside the cache
  std::uint32_t page, row, scale_row;
  bool wanted, zero;

  __device__ __forceinline__ CodedHead(const cpu::KvCodes& c, I64 kv_head, I64 size, int chunk) {
    wanted = chunk * 16 < size;
    codes = c.base + kv_head * c.head + (wanted ? chunk * 16 : 0);
    scales = c.beside != nullptr ? nullptr : c.base + c.scales + kv_head * c.scale_head;
    page = static_cast<std::uint32_t>(c.page / 16);
    row = static_cast<std::uint32_t>(c.row / 16);
    scale_row = static_cast<std::uint32_t>(c.scale_row);
    zero = c.zero;
  }
  __device__ __forceinline__ std::uint32_t at_row(const RowPlace& at) const {
    return at.page * page + at.row * row;
  }
  __device__ __forceinline__ cpu::HeadScale scale_of(const RowPlace& at) const {
    cpu::HeadScale s;
    if (scales == nullptr) return s;
    const auto* from =
        reinterpret_cast<const float*>(scales + I64{at.page} * page * 16 + at.row * scale_row);
    s.scale = from[0];
    if (zero) s.zero = from[1];
    return s;
  }
};

// Rows of a tile, by all copiers: scales of both come with the keys.
template <class S, class Op>
__device__ __forceinline__ void widen_all(const Op& op, const Told& told, Shared<S>& shared,
                                          Place<S>& place) {
  const Tile& tile = told.tile;
  const Seen& rows = told.rows;
  using OnTheWay = CodesOnTheWay<S>;
  const int lane = static_cast<int>(threadIdx.x % 32), warp = static_cast<int>(threadIdx.x / 32);
  const int chunk = lane % OnTheWay::kChunks;
  const int mine = warp * OnTheWay::kRows + lane % OnTheWay::kRows;
  const CodedHead keys(op.n.k_codes, tile.kv_head, op.p.q.shape[2], chunk);
  const CodedHead values(op.n.v_codes, tile.kv_head, op.p.o.shape[2], chunk);
  const std::int32_t k_kind = op.n.k_codes.code, v_kind = op.n.v_codes.code;
  const Tiles<S> tiles;
  I64 row = op.first_row(rows);
  const auto find = [&](I64 first) {
    return first + mine < rows.end ? op.place(tile.request, first + mine) : RowPlace{};
  };
  RowPlace at = find(row);
  for (; row < rows.end; row += S::kKeys) {
    const bool there = row + mine < rows.end;
    OnTheWay codes;
    codes.load(keys.codes, keys.wanted, there ? keys.at_row(at) : OnTheWay::kNoRow);
    cpu::HeadScale of_key, of_value;
    of_key.scale = of_value.scale = 0.0f;
    if (there) {
      of_key = keys.scale_of(at);
      of_value = values.scale_of(at);
    }
    const std::uint32_t value_at = there ? values.at_row(at) : OnTheWay::kNoRow;
    at = find(row + S::kKeys);
    shared.empty_k[place.stage].wait(place.parity ^ 1);
    // Of values with a NaN the scale is one, which who does not see them would multiply by zero.
    const int exponent = static_cast<int>(__float_as_uint(of_value.scale) >> 23 & 0xffu);
    const bool unusual = exponent == 0xff && !told.whole(row, S::kKeys);
    if (lane < OnTheWay::kRows) {
      shared.k_scale[place.stage][mine] = of_key.scale;
      shared.v_scale[place.stage][mine] = unusual ? 0.0f : of_value.scale;
    }
    const int top = exponent == 0xff ? kLeastTop : min(max(exponent - 127, kLeastTop), kLargestTop);
    const int largest = __reduce_max_sync(kAllLanes, top);
    if (lane == 0) shared.v_top[place.stage][warp] = largest;
    codes.store(k_kind, tiles.keys_of(place.stage), of_key.zero);
    hopper::publish_shared();
    shared.full_k[place.stage].come();

    codes.load(values.codes, values.wanted, value_at);
    shared.empty_v[place.stage].wait(place.parity ^ 1);
    codes.store(v_kind, tiles.values_of(place.stage), of_value.zero);
    if (told.whole(row, S::kKeys)) {
      if (lane == 0) shared.unusual[place.stage][warp] = 0;
    } else {
      hide_unusual<S>(tiles.values_of(place.stage), shared.unusual[place.stage], unusual);
    }
    hopper::publish_shared();
    shared.full_v[place.stage].come();
    place.next();
  }
}

// As paged::Weights, of keys of codes: products are of one query row times what undoes its power of
// two, and of a key times its scale.
struct CodedWeights {
  float best[2] = {paged::minus_infinity(), paged::minus_infinity()};
  float sum[2] = {0.0f, 0.0f};  // times 2^kWeightPower, as weights are

  // k_scale, v_scale: of the tile's rows, or null; v_factor: of the latter.
  template <int columns>
  __device__ __forceinline__ void take(float (&s)[columns / 8][4], const Exponents& exponents,
                                       const float (&row_scale)[2], const float* k_scale,
                                       const float* v_scale, float v_factor, bool masked,
                                       std::int32_t row, const std::int32_t (&first)[2],
                                       const std::int32_t (&end)[2], float (&factor)[2]) {
    const int mine = 2 * static_cast<int>(threadIdx.x % 4);
    const std::int32_t column = row + mine;
    if (k_scale != nullptr) {
#pragma unroll
      for (int n = 0; n < columns / 8; ++n) {
        const float2 of = *reinterpret_cast<const float2*>(k_scale + mine + 8 * n);
#pragma unroll
        for (int j = 0; j < 4; ++j) s[n][j] *= j % 2 == 0 ? of.x : of.y;
      }
    }
    float scale[2] = {paged::kLog2E, paged::kLog2E};
    if (exponents.plain()) {
      // Not zero, by which what is masked would be no number.
      for (int i = 0; i < 2; ++i) scale[i] = fmaxf(scale[i] * row_scale[i], 0x1p-126f);
    } else {
#pragma unroll
      for (int n = 0; n < columns / 8; ++n) {
#pragma unroll
        for (int j = 0; j < 4; ++j) s[n][j] *= row_scale[j / 2];
      }
      Exponents scaled = exponents;
      scaled.scale = 1.0f;
      scaled.template apply<columns, true>(s, column);
    }
    if (masked) {
#pragma unroll
      for (int n = 0; n < columns / 8; ++n) {
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          const std::int32_t at_row = column + 8 * n + j % 2;
          if (at_row < first[j / 2] || at_row >= end[j / 2]) s[n][j] = paged::minus_infinity();
        }
      }
    }
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      float larger = s[0][2 * i];
#pragma unroll
      for (int n = 0; n < columns / 8; ++n) {
        larger = fmaxf(larger, fmaxf(s[n][2 * i], s[n][2 * i + 1]));
      }
      larger = fmaxf(larger, __shfl_xor_sync(kAllLanes, larger, 1));
      larger = fmaxf(larger, __shfl_xor_sync(kAllLanes, larger, 2));
      larger = fmaxf(best[i], larger * scale[i]);
      const float shift = larger == paged::minus_infinity() ? 0.0f : larger;
      factor[i] = best[i] == paged::minus_infinity() ? 0.0f : paged::exp2_of(best[i] - shift);
      best[i] = larger;
      float more[2] = {};
#pragma unroll
      for (int n = 0; n < columns / 8; ++n) {
#pragma unroll
        for (int j = 2 * i; j < 2 * i + 2; ++j) {
          s[n][j] = paged::exp2_of(fmaf(s[n][j], scale[i], float{kWeightPower} - shift));
          more[j % 2] += s[n][j];
        }
      }
      sum[i] = sum[i] * factor[i] + (more[0] + more[1]);
    }
    if (v_scale == nullptr) return;
#pragma unroll
    for (int n = 0; n < columns / 8; ++n) {
      const float2 of = *reinterpret_cast<const float2*>(v_scale + mine + 8 * n);
#pragma unroll
      for (int j = 0; j < 4; ++j) s[n][j] *= (j % 2 == 0 ? of.x : of.y) * v_factor;
    }
  }

  // Of all columns, in every lane of the row.
  __device__ __forceinline__ void sum_up() {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      sum[i] += __shfl_xor_sync(kAllLanes, sum[i], 1);
      sum[i] += __shfl_xor_sync(kAllLanes, sum[i], 2);
    }
  }
};

// Weights of 16 columns as the left operand of a step of f16.
__device__ __forceinline__ void pack_weights_f16(const float (&a)[4], const float (&b)[4],
                                                 std::uint32_t (&out)[4]) {
  out[0] = as_bits(__floats2half2_rn(a[0], a[1]));
  out[1] = as_bits(__floats2half2_rn(a[2], a[3]));
  out[2] = as_bits(__floats2half2_rn(b[0], b[1]));
  out[3] = as_bits(__floats2half2_rn(b[2], b[3]));
}

}  // namespace attnscope::cuda::tiles
