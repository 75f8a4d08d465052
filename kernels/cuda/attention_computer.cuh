// What a computing warpgroup of attention_tiles.cuh does. Of its 64 query rows a lane has those of
// mma.cuh in its warp's 16.
#pragma once

#include <type_traits>

#include "kernels/cuda/attention_codes.cuh"

namespace attnscope::cuda::tiles {

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

__device__ __forceinline__ float number_of(const std::uint16_t* row, int dim) {
  return bf16_to_float(row[dim]);
}

template <class S, class Op>
struct Computer {
  const Op& op;
  const Told& told;
  const Tile& tile;
  const Seen& rows;
  Shared<S>& shared;
  int group;
  Place<S>& place;
  const Tiles<S> tiles{};

  std::int32_t first[2] = {0, 0}, end[2] = {0, 0};  // that the lane's two query rows see
  I64 token[2];
  int head[2];
  bool any[2];
  paged::Exponents exponents{};
  std::conditional_t<S::kCoded, CodedWeights, paged::Weights> weights;
  float row_scale[2] = {0.0f, 0.0f};  // of codes: what products of the two rows are multiplied by
  int top = kLeastTop;                // the exponent that weights of values are relative to
  float o[S::kDims / 2] = {};
  std::uint32_t packed[S::kKeys / 16][4] = {};

  __device__ __forceinline__ void prepare() {
    if (S::kGoesOn) hopper::barrier_wait(group + 1, 128);  // nobody reads the queries before
    const int thread = threadIdx.x % 128, lane = thread % 32, warp = thread / 32;
    exponents.scale = static_cast<float>(op.p.scale);
    exponents.cap = static_cast<float>(op.p.soft_cap);
    for (int i = 0; i < 2; ++i) {
      const int row = group * 64 + warp * 16 + lane / 4 + 8 * i;
      token[i] = row / tile.heads;
      head[i] = row % tile.heads;
      any[i] = false;
      if (token[i] >= tile.tokens) {
        token[i] = -1;
        continue;
      }
      token[i] += tile.begin;
      const Seen seen = op.seen(token[i], tile.request);
      any[i] = seen.first < seen.end;
      first[i] = static_cast<std::int32_t>(max(seen.first, rows.first));
      end[i] = static_cast<std::int32_t>(min(seen.end, rows.end));
      exponents.position[i] = static_cast<std::int32_t>(seen.position);
      if (present(op.p.alibi_slopes)) {
        exponents.slope[i] = *at<float>(op.p.alibi_slopes, tile.first_head + head[i]);
      }
    }
    if constexpr (S::kCoded) {
      widen_queries<S>(op, tile, tiles.queries, group, shared.back);
      hopper::publish_shared();
      hopper::barrier_wait(group + 1, 128);
      const cpu::KvCodes& k = op.n.k_codes;
      const float beside = k.beside == nullptr ? 1.0f : k.beside[tile.kv_head * k.beside_step];
      for (int i = 0; i < 2; ++i) {
        const int row = group * 64 + warp * 16 + lane / 4 + 8 * i;
        row_scale[i] = shared.back[row] * beside * exponents.scale;
      }
      return;
    }
    constexpr int kChunks = S::kDims / 8;
    const int size = static_cast<int>(op.p.q.shape[2]);
#pragma unroll 1
    for (int i = thread; i < 64 * kChunks; i += 128) {
      const int row = group * 64 + i / kChunks, chunk = i % kChunks;
      const I64 t = row / tile.heads;
      const bool there = t < tile.tokens && chunk * 8 < size;
      paged::copy_chunk(tiles.queries + hopper::panel_offset<S::kRows>(row, chunk),
                        there ? at<std::uint16_t>(op.p.q, tile.begin + t,
                                                  tile.first_head + row % tile.heads, chunk * 8)
                              : op.p.q.data,
                        there);
    }
    paged::end_copies();
    paged::wait_copies<0>();
    hopper::publish_shared();
    hopper::barrier_wait(group + 1, 128);
  }

  __device__ __forceinline__ void start_scores(int stage, float (&s)[S::kKeys / 2]) {
    const std::uint64_t q = hopper::uniform_descriptor(tiles.queries + group * 64 * 128, 16);
    const std::uint64_t k = hopper::uniform_descriptor(tiles.keys_of(stage), 16, S::kGroupStep);
#pragma unroll
    for (int step = 0; step < S::kDims / 16; ++step) {
      const std::uint64_t a = hopper::further(q, step / 4 * S::kQueryPanel + step % 4 * 32);
      const std::uint64_t b = hopper::further(k, step / 4 * S::kPanelStep + step % 4 * 32);
      if constexpr (S::kKeys == 64) {
        hopper::step_64x64<!S::kCoded>(s, a, b, step > 0);
      } else {
        hopper::step_64x128_rows<!S::kCoded>(s, a, b, step > 0);
      }
    }
    hopper::end_steps();
  }
  __device__ __forceinline__ void start_values(int stage) {
    const std::uint64_t v =
        hopper::uniform_descriptor(tiles.values_of(stage), S::kPanelStep, S::kGroupStep);
#pragma unroll
    for (int step = 0; step < S::kKeys / 16; ++step) {
      const std::uint64_t b = hopper::further(v, step * 2 * S::kGroupStep);
      if constexpr (S::kDims == 64) {
        hopper::step_64x64_columns<!S::kCoded>(o, packed[step], b);
      } else {
#pragma unroll
        for (int half = 0; half < S::kDims / 128; ++half) {
          hopper::step_64x128<!S::kCoded>(o + 64 * half, packed[step],
                                          hopper::further(b, 2 * half * S::kPanelStep));
        }
      }
    }
    hopper::end_steps();
  }
  __device__ __forceinline__ void scale_values(const float (&factor)[2]) {
#pragma unroll
    for (int i = 0; i < S::kDims / 2; ++i) o[i] *= factor[i % 4 / 2];
  }

  // Rows of values whose place was taken by zeros, for the queries that see them.
  __device__ __forceinline__ void add_unusual(int stage, I64 row) {
    constexpr int kPairs = S::kKeys / 4;
    std::uint32_t weights_of[kPairs];
#pragma unroll
    for (int i = 0; i < kPairs; ++i) weights_of[i] = packed[i / 4][i % 4];
    const int lane = threadIdx.x % 32, size_v = static_cast<int>(op.p.o.shape[2]);
    for (int c = 0; c < S::kKeys; ++c) {
      if ((shared.unusual[stage][c / S::kRowsOfBits] >> c % S::kRowsOfBits & 1) == 0) continue;
      if (row + c < rows.first || row + c >= rows.end) continue;
      const auto values = op.value_row(tile.request, row + c, tile.kv_head);
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const std::uint32_t pair = __shfl_sync(
            kAllLanes, weights_of[c / 16 * 4 + c % 16 / 8 * 2 + i], lane / 4 * 4 + c % 8 / 2);
        float weight = c % 2 == 0 ? paged::low_bf16(pair) : paged::high_bf16(pair);
        if constexpr (S::kCoded) {
          weight = c % 2 == 0 ? __low2float(as_half2(pair)) : __high2float(as_half2(pair));
        }
        if (row + c < first[i] || row + c >= end[i]) continue;
#pragma unroll
        for (int d = 0; d < S::kDims / 4; ++d) {
          const int dim = d / 2 * 8 + lane % 4 * 2 + d % 2;
          const float v = dim < size_v ? number_of(values, dim) : 0.0f;
          float& sum = o[d / 2 * 4 + 2 * i + d % 2];
          sum = fmaf(weight, v, sum);
        }
      }
    }
  }
  __device__ __forceinline__ void values_done(const Place<S>& place, I64 row) {
    const auto& unusual = shared.unusual[place.stage];
    if ((unusual[0] | unusual[1] | unusual[2] | unusual[3]) != 0) add_unusual(place.stage, row);
    shared.empty_v[place.stage].come();
  }
  // Of the keys of a stage, which is free then.
  __device__ __forceinline__ void weigh(int stage, float (&s)[S::kKeys / 2], I64 row,
                                        float (&factor)[2]) {
    auto& products = reinterpret_cast<float(&)[S::kKeys / 8][4]>(s);
    const bool masked = !told.whole(row, S::kKeys);
    const auto narrow = static_cast<std::int32_t>(row);
    if constexpr (S::kCoded) {
      const float* k_scale = op.n.k_codes.beside == nullptr ? shared.k_scale[stage] : nullptr;
      const float* v_scale = op.n.v_codes.beside == nullptr ? shared.v_scale[stage] : nullptr;
      int larger = top;
      if (v_scale != nullptr) {
#pragma unroll
        for (const int of_warp : shared.v_top[stage]) larger = max(larger, of_warp);
      }
      weights.template take<S::kKeys>(products, exponents, row_scale, k_scale, v_scale,
                                      power_of_two(-larger), masked, narrow, first, end, factor);
      // Of values alone: what was summed is relative to another power of two.
      const float lower = power_of_two(max(top - larger, -126));
      top = larger;
      for (int i = 0; i < 2; ++i) factor[i] *= lower;
      shared.empty_k[stage].come();
    } else {
      shared.empty_k[stage].come();
      weights.template take<S::kKeys, true>(products, exponents, masked, narrow, first, end,
                                            factor);
    }
  }
  __device__ __forceinline__ void pack(const float (&s)[S::kKeys / 2]) {
    const auto& weights_of = reinterpret_cast<const float(&)[S::kKeys / 8][4]>(s);
#pragma unroll
    for (int step = 0; step < S::kKeys / 16; ++step) {
      if constexpr (S::kCoded) {
        pack_weights_f16(weights_of[2 * step], weights_of[2 * step + 1], packed[step]);
      } else {
        paged::pack_weights(weights_of[2 * step], weights_of[2 * step + 1], packed[step]);
      }
    }
  }

  __device__ __forceinline__ void run() {
    if (rows.first >= rows.end) return;
    Place<S> before = place;
    float s[S::kKeys / 2], factor[2];
    shared.full_k[place.stage].wait(place.parity);
    hopper::begin_steps();
    start_scores(place.stage, s);
    hopper::wait_steps<0>();
    I64 row = op.first_row(rows);
    weigh(place.stage, s, row, factor);
    pack(s);
    place.next();
    row += S::kKeys;
    for (; row < rows.end; row += S::kKeys) {
      shared.full_k[place.stage].wait(place.parity);
      shared.full_v[before.stage].wait(before.parity);
      hopper::begin_steps();
      start_scores(place.stage, s);
      start_values(before.stage);
      hopper::wait_steps<1>();
      weigh(place.stage, s, row, factor);
      hopper::wait_steps<0>();
      values_done(before, row - S::kKeys);
      if (__any_sync(kAllLanes, factor[0] != 1.0f || factor[1] != 1.0f)) scale_values(factor);
      pack(s);
      before = place;
      place.next();
    }
    shared.full_v[before.stage].wait(before.parity);
    hopper::begin_steps();
    start_values(before.stage);
    hopper::wait_steps<0>();
    values_done(before, row - S::kKeys);
  }

  __device__ __forceinline__ void finish() {
    weights.sum_up();
    const int column = 2 * (threadIdx.x % 4), size_v = static_cast<int>(op.p.o.shape[2]);
    if constexpr (S::kCoded) {
      const cpu::KvCodes& v = op.n.v_codes;
      const float beside =
          v.beside == nullptr ? power_of_two(top) : v.beside[tile.kv_head * v.beside_step];
      for (float& value : o) value *= beside * power_of_two(-kWeightPower);
      for (float& of_row : weights.sum) of_row *= power_of_two(-kWeightPower);
    }
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      if (token[i] < 0) continue;
      const I64 t = token[i], h = tile.first_head + head[i];
      const float best = weights.best[i] * paged::kLn2, sum = weights.sum[i];
      if (float* to = op.part_of_head(t, h); to != nullptr) {
        if (column == 0) {
          to[0] = best;
          to[1] = sum;
        }
#pragma unroll
        for (int d = 0; d < S::kDims / 4; ++d) {
          const int dim = d / 2 * 8 + column + d % 2;
          if (dim < size_v) to[paged::kOthers + dim] = o[d / 2 * 4 + 2 * i + d % 2];
        }
        continue;
      }
      const float share = any[i] ? 1.0f / op.total(h, best, sum) : 0.0f;
      std::uint16_t* to = at<std::uint16_t>(op.p.o, t, h) + column;
#pragma unroll
      for (int d = 0; d < S::kDims / 8; ++d) {
        const float low = o[4 * d + 2 * i], high = o[4 * d + 2 * i + 1];
        if (d * 8 + column < size_v) {
          *reinterpret_cast<std::uint32_t*>(to + d * 8) =
              paged::pack_bf16(low * share, high * share);
        }
      }
      if (column == 0) {
        *at<float>(op.p.lse, t, h) = any[i] ? paged::lse_of(best, sum) : paged::minus_infinity();
      }
    }
  }
};

#endif

}  // namespace attnscope::cuda::tiles
