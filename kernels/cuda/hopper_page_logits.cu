// indexer_logits on Hopper for 17 to 64 heads and pages of 64 keys.
//
// One block a multiprocessor, and all pages, token after token, dealt out to the blocks in equal
// runs. Four warps copy whole pages into a ring of stages, four warpgroups take the stages in turn:
// one warp that copies cannot keep up with them. A sixth warpgroup has the next token's queries
// ready before its pages come. A warpgroup decodes a page's keys into the left operand's registers
// (e4m3 to fp16, scaled e2m1 to bf16, both exact) and multiplies them with the queries in shared
// memory. The product does not care in which order the 128 dims come, so that a lane reads whole
// chunks of 16 bytes and queries are laid out to match. By AS_SCORES_E4M3 codes are multiplied as
// they lie, which takes less time and power and is as exact as public kernels are.
#include <cuda.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "kernels/cuda/codec.cuh"
#include "kernels/cuda/early.cuh"
#include "kernels/cuda/hopper_logits.h"
#include "kernels/cuda/hopper_pages.cuh"
#include "kernels/cuda/reduce.cuh"
#include "kernels/cuda/wgmma.cuh"

namespace attnscope::cuda::hopper {
namespace {

using Params = as_indexer_logits_params;

constexpr int kHeads = 64;
constexpr int kGroups = 4;         // warpgroups that score
constexpr int kCopiers = kGroups;  // warps that copy, each for one of them
constexpr int kScorers = 128 * kGroups;
constexpr int kPreparers = 128;  // threads that see to queries
constexpr int kThreads = kScorers + 32 * kCopiers + kPreparers;
// Stages of the ring where a block has few pages. Every fourth one is a warpgroup's.
constexpr int kFewStages = 8;

// What is multiplied.
enum class Form {
  kFp8,    // e4m3 decoded to fp16
  kCodes,  // e4m3
  kFp4     // scaled e2m1 decoded to bf16
};
template <Form form>
constexpr bool kFp4 = form == Form::kFp4;
template <Form form>
constexpr int kStages = form == Form::kCodes ? 16 : kFewStages;
template <Form form>
constexpr std::uint32_t kQueryBytes = kHeads * AS_INDEX_DIM * (form == Form::kCodes ? 1 : 2);
template <Form form>
constexpr std::uint32_t kRow = kFp4<form> ? 64 : 128;
template <Form form>
constexpr std::uint32_t kPayload = kPageKeys * kRow<form>;
// Rows and scales of a page, which come by one copy; FP8: 66 rows of 128 bytes.
template <Form form>
constexpr std::uint32_t kPageBytes = kPayload<form> + kPageKeys * 4;

// What the copying warp says of a stage.
struct alignas(16) Told {
  std::int32_t token, first_key;
  std::int32_t keys;     // that count, negative if the page is absent; 0: nothing to score
  std::int32_t segment;  // number of the token among the block's; -1: no more stages come
};

// Pages of FP8 come as tensor boxes, chunk c of row r at c ^ (r % 8), so that rows 4 apart meet
// different banks.
template <Form form>
struct alignas(1024) Shared {
  unsigned char queries[2][kQueryBytes<form>];
  unsigned char stages[kStages<form>][(kPageBytes<form> + 1023) / 1024 * 1024];
  Told told[kStages<form>];
  float weights[2][kHeads];
  Barrier full[kStages<form>], empty[kStages<form>];
  Barrier query_full[2], query_empty[2];
};
template <Form form>
constexpr std::size_t kBytes = sizeof(Shared<form>) + 1024;  // the base may have to move up

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

constexpr int kSteps = AS_INDEX_DIM / 16;
// A thread is launched with 80 registers: 4 * 96 + 56 + 40 = 6 * 80.
constexpr int kScorerRegisters = 96, kCopierRegisters = 56, kPreparerRegisters = 40;
constexpr int kPanel = kHeads * 128;

struct Quad {
  std::uint32_t low, high;
};
// Four codes: e4m3 in 32 bits, or e2m1 in the lower 16 with their block's scale byte.
template <bool fp4>
__device__ __forceinline__ Quad decode_four(std::uint32_t codes, std::uint32_t scale) {
  Quad q;
  if constexpr (fp4) {
    decode_e2m1x4(codes, scale, &q.low, &q.high);
  } else {
    asm("{\n.reg .b16 l, h;\nmov.b32 {l, h}, %2;\ncvt.rn.f16x2.e4m3x2 %0, l;\n"
        "cvt.rn.f16x2.e4m3x2 %1, h;\n}"
        : "=r"(q.low), "=r"(q.high)
        : "r"(codes));
  }
  return q;
}
__device__ __forceinline__ std::uint32_t word_of(const uint4& v, int i) {
  return i == 0 ? v.x : i == 1 ? v.y : i == 2 ? v.z : v.w;
}
__device__ __forceinline__ float no_less_than_zero(float dot) {  // NaN stays
  float result;
  asm("max.NaN.f32 %0, %1, 0f00000000;" : "=f"(result) : "f"(dot));
  return result;
}

// A token's queries and weights, a part of them in each of `threads` threads.
template <Form form, int threads>
struct QueryPart {
  static constexpr int kUnits = kHeads * kSteps;
  static constexpr int kMine = kUnits / threads;
  static_assert(kUnits % threads == 0);
  std::uint32_t words[kMine][4];
  std::uint32_t scales[kMine];
  float weight;

  __device__ void load(const Params& p, int token, int tid) {
    const int heads = static_cast<int>(p.weights.shape[1]);
#pragma unroll
    for (int k = 0; k < kMine; ++k) {
      const int unit = tid + k * threads, head = unit / kSteps, step = unit % kSteps;
      scales[k] = 0u;
#pragma unroll
      for (std::uint32_t& word : words[k]) word = 0u;
      if (head >= heads) continue;
      const unsigned char* row = at<unsigned char>(p.q, token, head);
      if constexpr (form == Form::kCodes) {
        const uint4 chunk = reinterpret_cast<const uint4*>(row)[step];
#pragma unroll
        for (int c = 0; c < 4; ++c) words[k][c] = word_of(chunk, c);
      } else {
        if constexpr (kFp4<form>) {
          scales[k] =
              *reinterpret_cast<const std::uint32_t*>(at<unsigned char>(p.q_scale, token, head));
        }
        // A lane of the product has four dims of a step of 16: FP8 rows are read in two chunks of
        // 64 dims, MXFP4 rows in one of 128.
#pragma unroll
        for (int c = 0; c < 4; ++c) {
          if constexpr (kFp4<form>) {
            words[k][c] = *reinterpret_cast<const std::uint16_t*>(row + 16 * c + 2 * step);
          } else {
            words[k][c] = *reinterpret_cast<const std::uint32_t*>(row + step / 4 * 64 + 16 * c +
                                                                  step % 4 * 4);
          }
        }
      }
    }
    weight = tid < heads ? *at<float>(p.weights, token, tid) : 0.0f;
  }
  __device__ void store(Shared<form>& shared, int buffer, int tid) const {
#pragma unroll
    for (int k = 0; k < kMine; ++k) {
      const int unit = tid + k * threads, head = unit / kSteps, step = unit % kSteps;
      unsigned char* to = shared.queries[buffer];
      if constexpr (form == Form::kCodes) {
        *reinterpret_cast<uint4*>(to + panel_offset<kHeads>(head, step)) =
            make_uint4(words[k][0], words[k][1], words[k][2], words[k][3]);
      } else {
        Quad q[4];
#pragma unroll
        for (int c = 0; c < 4; ++c)
          q[c] = decode_four<kFp4<form>>(words[k][c], scales[k] >> (8 * c) & 0xffu);
        *reinterpret_cast<uint4*>(to + panel_offset<kHeads>(head, 2 * step)) =
            make_uint4(q[0].low, q[1].low, q[2].low, q[3].low);
        *reinterpret_cast<uint4*>(to + panel_offset<kHeads>(head, 2 * step + 1)) =
            make_uint4(q[0].high, q[1].high, q[2].high, q[3].high);
      }
    }
    if (tid < kHeads) shared.weights[buffer][tid] = weight;
    publish_shared();
  }
};

// The queries of the block's tokens after the first, each while the token before is scored.
template <Form form>
__device__ void prepare_queries(const Params& p, Shared<form>& shared) {
  const int tid = static_cast<int>(threadIdx.x) - kScorers - 32 * kCopiers;
  PageRun run;
  run.start(p);
  if (run.left == 0) return;
  for (int segment = 1; run.next(p); ++segment) {
    const int buffer = segment & 1;
    // In two rounds, for want of registers.
#pragma unroll 1
    for (int round = 0; round < 2; ++round) {
      const int mine = tid + round * kPreparers;
      QueryPart<form, 2 * kPreparers> part;
      part.load(p, run.token, mine);
      if (round == 0) {
        shared.query_empty[buffer].wait((segment >> 1 & 1) ^ 1);
        __syncwarp();
      }
      part.store(shared, buffer, mine);
    }
    shared.query_full[buffer].come();
  }
}

// Where a copying warp or its warpgroup is in the ring.
struct Turn {
  int stage;
  int parity;  // of the phase that it waits for next
  int stages;  // of the ring
  __device__ void advance() {
    stage += kGroups;
    if (stage >= stages) {
      stage -= stages;
      parity ^= 1;
    }
  }
};

// Stages in use in a block with so many pages. All copies that are on their way share the memory's
// speed: more of them make the first page come later, and pay only where many come.
template <Form form>
__device__ int stages_for(int pages) {
  return pages < 200 ? kFewStages : kStages<form>;
}

// One lane: a page into a stage.
template <Form form>
__device__ void copy_page(const CacheView& cache, const CUtensorMap* map, Shared<form>& shared,
                          int stage, int id) {
  AS_DEVICE_CHECK(std::int64_t{id} * kPageKeys < cache.rows_total);
  Barrier& full = shared.full[stage];
  full.come_and_expect(kPageBytes<form>);
  if constexpr (kFp4<form>) {
    bulk_copy(shared.stages[stage], cache.base + id * cache.page_stride, kPageBytes<form>, full);
  } else {
    box_copy(shared.stages[stage], map, id, full);
  }
}

// Copying warp w of four: every fourth page of the block from w on. One lane waits for stages and
// fills them; each lane knows the id of one of the warp's next 32 pages.
template <Form form>
__device__ void copy_pages(const Params& p, const CacheView& cache, const CUtensorMap* map,
                           Shared<form>& shared) {
  const int tid = static_cast<int>(threadIdx.x) - kScorers, lane = tid % 32;
  const int w = __shfl_sync(kAllLanes, tid / 32, 0);
  PageRun run;
  run.start(p);
  Turn turn{w, 1, stages_for<form>(run.left)};  // a first phase that nobody came to counts as over
  bool untouched = true, second = false;        // about to fill the block's first stage, the next
  const auto fill = [&](const Told& told, int id) {
    if (elected()) {
      // All copies under way share the memory's speed, and nothing can begin before the first page.
      if (second) shared.full[w].wait(0);
      shared.empty[turn.stage].wait(turn.parity);
      shared.told[turn.stage] = told;
      if (told.keys > 0) {
        copy_page<form>(cache, map, shared, turn.stage, id);
      } else {
        shared.full[turn.stage].come();
      }
    }
    __syncwarp();
    second = untouched;
    untouched = false;
    turn.advance();
  };
  // Page `first` + kCopiers * lane of a segment, if that has so many; the segment's begins at
  // `page`.
  const auto id_of = [&](int request, int page, int first, int pages) {
    AS_DEVICE_CHECK(page + pages <= p.table.shape[1]);
    const int at_page = first + kCopiers * lane;
    return at_page < pages ? *at<std::int32_t>(p.table, request, page + at_page) : -1;
  };
  int first = w;  // the warp's first page of the segment
  int ids = id_of(run.request, run.page, first, run.here());
  bool more = run.left > 0;
  for (int segment = 0; more; ++segment) {
    const int pages = run.here();
    more = pages < run.left;
    // What has to be known of the token after this one is asked for as early as it can be.
    int len_after = 0, request_after = 0, ids_after = -1;
    if (more) {
      len_after = keys_of(p, run.token + 1);
      request_after = *at<std::int32_t>(p.token_to_req, run.token + 1);
    }
    const int first_after = (first - pages % kCopiers + kCopiers) % kCopiers;
    bool asked = false;
    const auto ask = [&] {
      if (asked) return;
      asked = true;
      ids_after = id_of(request_after, 0, first_after, min(run.left - pages, pages_of(len_after)));
    };
    // A warpgroup without a page still has to let go of the queries before these.
    if (first >= pages) {
      fill({0, 0, 0, segment}, 0);
      ask();
    }
    for (int page = first; page < pages; page += 32 * kCopiers) {
      const int later = id_of(run.request, run.page, page + 32 * kCopiers, pages);
      const int many = min(32, (pages - page + kCopiers - 1) / kCopiers);
#pragma unroll 1
      for (int j = 0; j < many; ++j) {
        const int id = __shfl_sync(kAllLanes, ids, j);
        const int key = (run.page + page + kCopiers * j) * kPageKeys;
        const int keys = min(kPageKeys, run.len - key);
        fill({run.token, key, id < 0 ? -keys : keys, segment}, id);
        ask();
      }
      ids = later;
    }
    first = first_after;
    if (len_after > 0) {
      run.left -= pages;
      run.page = 0;
      ++run.token;
      run.len = len_after;
      run.request = request_after;
      ids = ids_after;
    } else if (more) {  // tokens without keys lie between
      run.next(p);
      ids = id_of(run.request, 0, first, run.here());
    }
  }
  fill({0, 0, 0, -1}, 0);
}

// A lane's bytes of a page: two keys, eight apart.
template <Form form>
struct Raw {
  static constexpr bool fp4 = kFp4<form>;
  static constexpr std::uint32_t kRowBytes = kRow<form>, kScales = kPayload<form>;
  uint4 chunk[2][fp4 ? 1 : 2];  // none of codes, which are multiplied as they lie
  std::uint32_t scale[2];  // MXFP4: of each key's block; FP8: [0] of the key that the lane writes

  // The first of its keys. Lanes that read at once meet different banks.
  static __device__ int key(int warp, int r) {
    return 16 * warp + (form == Form::kFp8 ? (r >> 1) + 4 * (r & 1) : r);
  }
  __device__ void load(std::uint32_t page, std::uint32_t key, std::uint32_t own) {
    const std::uint32_t c = threadIdx.x % 4, from = page + key * kRowBytes;
    if constexpr (fp4) {
      chunk[0][0] = load_shared16(from + 16 * c);
      chunk[1][0] = load_shared16(from + 16 * c + 8 * kRowBytes);
      scale[0] = load_shared4(page + kScales + 4 * key) >> (8 * c) & 0xffu;
      scale[1] = load_shared4(page + kScales + 4 * key + 32) >> (8 * c) & 0xffu;
      return;
    }
    if constexpr (form == Form::kFp8) {
      const std::uint32_t near = from + ((c ^ (key & 7u)) << 4), far = near ^ 64u;
      chunk[0][0] = load_shared16(near);
      chunk[1][0] = load_shared16(near + 8 * kRowBytes);
      chunk[0][1] = load_shared16(far);
      chunk[1][1] = load_shared16(far + 8 * kRowBytes);
    }
    // The second row of scales has its chunks exchanged as any odd row.
    scale[0] = load_shared4(page + kScales + ((4 * own) ^ (own >> 5 << 4)));
  }
  __device__ Quad quad(int key, int step) const {
    if constexpr (fp4) {
      return decode_four<true>(word_of(chunk[key][0], step / 2) >> (16 * (step % 2)) & 0xffffu,
                               scale[key]);
    } else {
      return decode_four<false>(word_of(chunk[key][step / 4], step % 4), 0u);
    }
  }
};

// A key's score: sums over heads, times its scale. In fp32, or in float64 from four heads on. The
// upper two of the four lanes that share two keys return the second key.
template <class Sum>
__device__ float score_of(const float (&dots)[kHeads / 2], const float (&w)[16], int c,
                          float scale) {
  Sum score[2] = {};
#pragma unroll
  for (int j = 0; j < kHeads / 8; j += 2) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      float sum = no_less_than_zero(dots[4 * j + 2 * i]) * w[2 * j];
      sum = fmaf(no_less_than_zero(dots[4 * j + 2 * i + 1]), w[2 * j + 1], sum);
      sum = fmaf(no_less_than_zero(dots[4 * j + 4 + 2 * i]), w[2 * j + 2], sum);
      sum = fmaf(no_less_than_zero(dots[4 * j + 4 + 2 * i + 1]), w[2 * j + 3], sum);
      score[i] += static_cast<Sum>(sum);
    }
  }
  const bool second = (c & 2) != 0;
  Sum keep = second ? score[1] : score[0];
  const Sum give = second ? score[0] : score[1];
  keep += __shfl_xor_sync(kAllLanes, give, 2);
  keep += __shfl_xor_sync(kAllLanes, keep, 1);
  return static_cast<float>(keep * static_cast<Sum>(scale));
}

// Scoring warpgroup g: every fourth page of the block's `pages` from g on.
template <Form form>
__device__ void score_pages(const Params& p, Shared<form>& shared, int pages, bool exact) {
  const bool any = pages > 0;
  const int g = __shfl_sync(kAllLanes, static_cast<int>(threadIdx.x) / 128, 0);
  const int lane = static_cast<int>(threadIdx.x % 32), c = lane % 4;
  const int key = Raw<form>::key(static_cast<int>(threadIdx.x % 128) / 32, lane / 4);
  const int own = key + 8 * (c >> 1);  // what the lane writes
  Turn turn{g, 0, stages_for<form>(pages)};
  int current = any ? 0 : -1;  // segment whose queries are at hand
  std::uint64_t queries = 0;   // descriptor of their first step
  float w[16];
  const auto arm = [&] {
    queries = descriptor(shared_address(shared.queries[current & 1]), 16);
#pragma unroll
    for (int j = 0; j < kHeads / 8; ++j) {
      const float2 v =
          *reinterpret_cast<const float2*>(&shared.weights[current & 1][8 * j + 2 * c]);
      w[2 * j] = v.x;
      w[2 * j + 1] = v.y;
    }
  };
  // A stage whose bytes have been used. Every thread says so for what it read itself.
  const auto give_back = [&] {
    shared.empty[turn.stage].come();
    turn.advance();
  };
  if (any) arm();
  for (;;) {
    shared.full[turn.stage].wait(turn.parity);
    __syncwarp();
    const Told told = shared.told[turn.stage];
    Raw<form> raw;
    raw.load(shared_address(shared.stages[turn.stage]), static_cast<std::uint32_t>(key),
             static_cast<std::uint32_t>(own));
    if (told.segment < 0) break;
    if (current < told.segment) {
      shared.query_empty[current & 1].come();
      ++current;
      shared.query_full[current & 1].wait((current - 1) >> 1 & 1);
      __syncwarp();
      arm();
    }
    const bool writes = abs(told.keys) > own && c % 2 == 0;
    float* const to =
        static_cast<float*>(p.logits.data) + told.token * p.logits.stride[0] + told.first_key + own;
    if (told.keys <= 0) {
      give_back();
      if (writes) write_score(to, 0.0f);
      continue;
    }
    float dots[kHeads / 2];
    if constexpr (form == Form::kCodes) {
      const std::uint64_t codes = descriptor(shared_address(shared.stages[turn.stage]), 16);
      begin_steps();
#pragma unroll
      for (int s = 0; s < kSteps / 2; ++s) {
        step_64x64_codes(dots, further(codes, 32 * s), further(queries, 32 * s), s > 0);
      }
      end_steps();
      wait_steps();
      give_back();
    } else {
      std::uint32_t keys[kSteps][4];
#pragma unroll
      for (int s = 0; s < kSteps; ++s) {
        const Quad x = raw.quad(0, s), y = raw.quad(1, s);
        keys[s][0] = x.low;
        keys[s][1] = y.low;
        keys[s][2] = x.high;
        keys[s][3] = y.high;
      }
      begin_steps();
#pragma unroll
      for (int s = 0; s < kSteps; ++s) {
        step_64x64<kFp4<form>>(dots, keys[s], further(queries, s / 4 * kPanel + s % 4 * 32), s > 0);
      }
      end_steps();
      give_back();
      wait_steps();
    }
    const float scale = kFp4<form> ? 1.0f : __uint_as_float(raw.scale[0]);
    // Scores may cancel between heads of either sign. Among many that is nothing; a row of a few
    // may have none that is larger.
    const bool few = told.first_key == 0 && told.keys < kPageKeys;
    const float score =
        exact || few ? score_of<double>(dots, w, c, scale) : score_of<float>(dots, w, c, scale);
    if (writes) write_score(to, score);
  }
}

#endif

template <Form form>
__global__ void __launch_bounds__(kThreads, 1)
    page_logits_kernel(const __grid_constant__ Params p, const __grid_constant__ CacheView cache,
                       const __grid_constant__ CUtensorMap map, bool exact) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  extern __shared__ unsigned char raw_shared[];
  auto& shared = *reinterpret_cast<Shared<form>*>(
      raw_shared + ((1024u - (shared_address(raw_shared) & 1023u)) & 1023u));
  const int tid = static_cast<int>(threadIdx.x), warp = tid / 32;
  if (tid % 32 == 0) {  // one lane each: a warp's lanes would come one after another
    if (warp < kStages<form>) {
      shared.full[warp].init(1);
      shared.empty[warp].init(kScorers / kGroups);
    }
    if (warp < 2) {
      shared.query_full[warp].init(kPreparers);
      shared.query_empty[warp].init(kScorers);
    }
    publish_barriers();
  }
  static_assert(kThreads / 32 >= kStages<form>);
  if (!kFp4<form> && tid == kScorers) prefetch_map(&map);
  // What blocks read first is brought nearer before it may be read. Every block asks for some of
  // it: so its multiprocessor has looked up where those pages of memory lie.
  const std::int64_t tokens = p.weights.shape[0];
  const auto all = static_cast<std::size_t>(kThreads) * gridDim.x;
  const auto mine = static_cast<std::size_t>(tid) * gridDim.x + blockIdx.x;
  fetch_line(p.lens, 4 * (tokens - 1) * p.lens.stride[0] + kLine, tid, kThreads);
  fetch_line(p.token_to_req, 4 * (tokens - 1) * p.token_to_req.stride[0] + kLine, tid, kThreads);
  fetch_line(p.table, 4 * ((p.table.shape[0] - 1) * p.table.stride[0] + p.table.shape[1]), mine,
             all);
  fetch_line(p.q, (tokens - 1) * p.q.stride[0], mine, all);
  fetch_line(p.weights, 4 * (tokens - 1) * p.weights.stride[0], mine, all);
  __syncthreads();
  if (tid >= kScorers + 32 * kCopiers) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kPreparerRegisters));
    follow_kernel_before();
    prepare_queries<form>(p, shared);
  } else if (tid >= kScorers) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kCopierRegisters));
    follow_kernel_before();
    copy_pages<form>(p, cache, &map, shared);
  } else {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kScorerRegisters));
    follow_kernel_before();
    PageRun run;
    run.start(p);
    if (run.left > 0) {
      QueryPart<form, kScorers> part;
      part.load(p, run.token, tid);
      part.store(shared, 0, tid);
    }
    barrier_wait(1, kScorers);
    score_pages<form>(p, shared, run.left, exact);
  }
#endif
}

std::int64_t most_pages(const Params& p) {
  return p.weights.shape[0] * ((p.logits.shape[1] + kPageKeys - 1) / kPageKeys);
}

template <Form form>
int launch_kernel(const Params& p, const Launch& launch) {
  const auto kernel = page_logits_kernel<form>;
  const cudaError_t code = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                                static_cast<int>(kBytes<form>));
  if (code != cudaSuccess) return code;
  const CacheView cache = cache_view(p.cache);
  CUtensorMap map{};
  if constexpr (!kFp4<form>) {
    if (const int status = map_pages(cache, &map); status != 0) return status;
  }
  const auto blocks =
      static_cast<unsigned>(std::min(most_pages(p), std::int64_t{launch.gpu.multiprocessors}));
  return launch_early(true, launch.stream, blocks, kThreads, kBytes<form>, kernel, p, cache, map,
                      launch.gpu.exact);
}

}  // namespace

// Copies begin at multiples of 16 bytes, and of no rows there is no map.
bool takes_pages(const Params& p, const Gpu& gpu) {
  const bool fp4 = p.cache.record == AS_RECORD_INDEX_MXFP4;
  const CacheView cache = cache_view(p.cache);
  return takes(p, gpu) && p.cache.addressing == AS_PAGED && cache.rows == kPageKeys &&
         cache.rows_total > 0 && most_pages(p) < std::int64_t{1} << 31 &&
         reinterpret_cast<std::uintptr_t>(cache.base) % 16 == 0 && cache.page_stride % 16 == 0 &&
         gpu.shared_memory >= (fp4 ? kBytes<Form::kFp4> : kBytes<Form::kFp8>);
}

int page_logits(const Params& p, const Launch& launch) {
  if (p.cache.record == AS_RECORD_INDEX_MXFP4) return launch_kernel<Form::kFp4>(p, launch);
  const bool asked = p.weights.reserved == AS_SCORES_E4M3 && !launch.gpu.exact;
  const bool chunks = reinterpret_cast<std::uintptr_t>(p.q.data) % 16 == 0 &&
                      p.q.stride[0] % 16 == 0 && p.q.stride[1] % 16 == 0;  // which are read whole
  return asked && chunks && launch.gpu.shared_memory >= kBytes<Form::kCodes>
             ? launch_kernel<Form::kCodes>(p, launch)
             : launch_kernel<Form::kFp8>(p, launch);
}

}  // namespace attnscope::cuda::hopper
