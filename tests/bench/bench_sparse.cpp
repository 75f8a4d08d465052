// The sparse kernels of the CPU lane beside what the machine can do: its multiply-add rate,
// measured here by chains in registers, and what libtorch takes for the same decode step
// (sparse_sdpa.h). All in one process, each in turn, and the fastest run of each counts.
//
//   bench_sparse [threads]
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <numeric>
#include <random>
#include <string_view>
#include <vector>

#include "kernels/cpu/codec.h"
#include "kernels/cpu/cpu_lane.h"
#include "kernels/cpu/thread_pool.h"
#include "kernels/layout/records.h"
#include "kernels/params/attention_params.h"
#include "kernels/params/indexer_params.h"
#include "kernels/params/tensor_view.h"
#include "reference/torch_module.h"
#include "tests/bench/bench_call.h"

namespace attnscope {
namespace {

// Twelve chains of multiply-adds of one vector each: as many as hide their latency.
template <class V>
[[gnu::always_inline]] inline void chains(std::int64_t steps, float* out) {
  V sums[12], a{}, b{};
  for (std::size_t i = 0; i < sizeof(V) / sizeof(float); ++i) a[i] = 0.999f, b[i] = 1e-3f;
  for (V& s : sums) s = b;
  for (std::int64_t i = 0; i < steps; ++i) {
#pragma GCC unroll 12
    for (V& s : sums) s = s * a + b;
  }
  for (V& s : sums) *out += s[0];
}
typedef float V4 __attribute__((vector_size(16)));
#if defined(__x86_64__)
typedef float V8 __attribute__((vector_size(32)));
typedef float V16 __attribute__((vector_size(64)));
__attribute__((target("avx512f"))) void chains_of_16(std::int64_t steps, float* out) {
  chains<V16>(steps, out);
}
__attribute__((target("avx2,fma"))) void chains_of_8(std::int64_t steps, float* out) {
  chains<V8>(steps, out);
}
#endif
void chains_of_4(std::int64_t steps, float* out) { chains<V4>(steps, out); }

// Of a set of as_threads, all at it.
class Machine {
 public:
  explicit Machine(const as_threads* threads) : threads_(threads) {
    const std::string_view level = cpu::simd_level();
    lanes_ = 4, run_ = chains_of_4;
#if defined(__x86_64__)
    if (level.starts_with("avx512")) lanes_ = 16, run_ = chains_of_16;
    if (level == "avx2") lanes_ = 8, run_ = chains_of_8;
#endif
  }

  // Operations a second of the SIMD level; a multiply-add counts as two.
  double rate() {
    constexpr std::int64_t kSteps = 200'000;
    const as_parallel_body body = [](void* self, std::int64_t begin, std::int64_t end) {
      float out = 0;
      for (; begin < end; ++begin) static_cast<Machine*>(self)->run_(kSteps, &out);
      static_cast<Machine*>(self)->sink_[0] = out;
    };
    const double took = seconds(
        [&] { threads_->parallel_for(threads_->pool, threads_->num_threads, 1, body, this); });
    best_ = std::max(best_, 2.0 * 12 * lanes_ * kSteps * threads_->num_threads / took);
    return best_;
  }

 private:
  const as_threads* threads_;
  int lanes_;
  void (*run_)(std::int64_t, float*);
  double best_ = 0;
  volatile float sink_[1] = {};
};

struct Pages {
  Pages(std::int32_t record, std::int64_t width, std::int64_t rows, std::int64_t blocks,
        std::mt19937_64& random)
      : bytes(to_size(blocks * as_page_bytes(record, width, rows))) {
    for (std::uint8_t& b : bytes) {
      b = static_cast<std::uint8_t>(random() >> 56);
      if ((b & 0x7f) >= 0x78) b &= 0x8f;  // no NaN
    }
    cache.data = make_tensor(bytes.data(), {blocks, as_page_bytes(record, width, rows)});
    cache.record = record;
    cache.rows_per_block = static_cast<std::int32_t>(rows);
    cache.width = static_cast<std::int32_t>(width);
    for (std::int64_t slot = 0; slot < blocks * rows; ++slot) {
      const as_row_address row = as_cache_row(&cache, slot);
      if (record == AS_RECORD_INDEX_FP8) {
        const float scale = 1.0f / 64;
        std::memcpy(row.scales, &scale, sizeof(scale));
        continue;
      }
      for (int i = 0; i < AS_QUANT_BLOCKS; ++i) row.scales[i] = 120;
      for (int d = 0; d < AS_ROPE_DIM; ++d) {
        const auto value = cpu::float_to_bf16(static_cast<float>(random() >> 40) * 0x1p-23f - 1);
        std::memcpy(row.payload + AS_NOPE_DIM + 2 * d, &value, 2);
      }
    }
  }

  std::vector<std::uint8_t> bytes;
  as_cache cache{};
};

class Bench {
 public:
  explicit Bench(int threads) : pool_(threads), machine_(pool_.handle()) {
    how_.struct_size = sizeof(how_);
    how_.threads = pool_.handle();
  }

  void attention(std::int64_t tokens, std::int64_t heads, std::int64_t compressed) {
    constexpr std::int64_t kWindow = 128, kRows = 64;
    const std::int64_t blocks = 1 + tokens * (compressed + kWindow) / kRows * 4;
    Pages window(AS_RECORD_LATENT, AS_HEAD_DIM, kRows, blocks, random_);
    Pages extra(AS_RECORD_LATENT, AS_HEAD_DIM, kRows, blocks, random_);
    std::vector<bf16_t> q(to_size(tokens * heads * AS_HEAD_DIM)), o(q.size()), kept;
    for (bf16_t& v : q) {
      v.bits = cpu::float_to_bf16(static_cast<float>(random_() >> 40) * 0x1p-23f - 1);
    }
    std::vector<float> lse(to_size(tokens * heads)), sinks(to_size(heads), 0.5f);
    const std::vector<std::int32_t> near = list(tokens, kWindow, blocks * kRows);
    const std::vector<std::int32_t> far = list(tokens, compressed, blocks * kRows);
    const std::vector<std::int32_t> near_lens(to_size(tokens), kWindow);
    const std::vector<std::int32_t> far_lens(to_size(tokens),
                                             static_cast<std::int32_t>(compressed));
    as_sparse_attention_params p{};
    p.head = {sizeof(p), AS_PARAMS_VERSION};
    p.q = make_tensor(q.data(), {tokens, heads, AS_HEAD_DIM});
    p.cache = window.cache;
    p.indices = make_tensor(near.data(), {tokens, kWindow});
    p.topk_length = make_tensor(near_lens.data(), {tokens});
    p.extra_cache = extra.cache;
    p.extra_indices = make_tensor(far.data(), {tokens, compressed});
    p.extra_topk_length = make_tensor(far_lens.data(), {tokens});
    p.sinks = make_tensor(sinks.data(), {heads});
    p.o = make_tensor(o.data(), {tokens, heads, AS_HEAD_DIM});
    p.lse = make_tensor(lse.data(), {tokens, heads});
    p.scale = 1 / std::sqrt(double{AS_HEAD_DIM});
    double ours = 1e9, bf16 = 1e9, fp32 = 1e9, spent = 0, difference = 0;
    for (int round = 0; round < 40 && (round < 3 || spent < 4.0); ++round) {
      bf16 = std::min(bf16, seconds([&] { torch(p, false); }));
      const double took = seconds([&] { torch(p, true); });
      fp32 = std::min(fp32, took);
      kept = o;
      double mine = 0;
      for (int i = 0; i < 5; ++i) mine = seconds([&] { call(AS_OP_SPARSE_ATTENTION, &p); });
      ours = std::min(ours, mine);
      machine_.rate();
      spent += 5 * mine + took;
    }
    for (std::size_t i = 0; i < o.size(); ++i) {
      difference = std::max(difference, std::fabs(double{cpu::bf16_to_float(o[i].bits)} -
                                                  double{cpu::bf16_to_float(kept[i].bits)}));
    }
    const double work = 4.0 * double{AS_HEAD_DIM} * static_cast<double>(tokens * heads) *
                        static_cast<double>(compressed + kWindow);
    fmt::print("{:<28}{:>10.3f}{:>9.1f}{:>7.0f} %{:>12.3f}{:>11.3f}{:>8.1f}x{:>10.1e}\n",
               fmt::format("attention b={} h={} N={}", tokens, heads, compressed + kWindow),
               1e3 * ours, work / ours * 1e-9, 100 * work / ours / machine_.rate(), 1e3 * bf16,
               1e3 * fp32, std::min(bf16, fp32) / ours, difference);
    std::fflush(stdout);
  }

  void logits(std::int64_t tokens, std::int64_t keys) {
    constexpr std::int64_t kHeads = 64, kRows = 64;
    const std::int64_t columns = keys / kRows;
    Pages index(AS_RECORD_INDEX_FP8, AS_INDEX_DIM, kRows, tokens * columns, random_);
    std::vector<std::uint8_t> q(to_size(tokens * kHeads * AS_INDEX_DIM));
    for (std::uint8_t& b : q) {
      b = static_cast<std::uint8_t>(random_() >> 56);
      if ((b & 0x7f) >= 0x78) b &= 0x8f;
    }
    std::vector<float> weights(to_size(tokens * kHeads), 0.01f), out(to_size(tokens * keys));
    std::vector<std::int32_t> table(to_size(tokens * columns)), requests(to_size(tokens));
    std::iota(table.begin(), table.end(), 0);
    std::shuffle(table.begin(), table.end(), random_);
    std::iota(requests.begin(), requests.end(), 0);
    const std::vector<std::int32_t> lens(to_size(tokens), static_cast<std::int32_t>(keys));
    as_indexer_logits_params p{};
    p.head = {sizeof(p), AS_PARAMS_VERSION};
    p.q = make_tensor(q.data(), {tokens, kHeads, AS_INDEX_DIM});
    p.weights = make_tensor(weights.data(), {tokens, kHeads});
    p.cache = index.cache;
    p.table = make_tensor(table.data(), {tokens, columns});
    p.token_to_req = make_tensor(requests.data(), {tokens});
    p.lens = make_tensor(lens.data(), {tokens});
    p.logits = make_tensor(out.data(), {tokens, keys});
    const double best = fastest(AS_OP_INDEXER_LOGITS, &p);
    const double work = 2.0 * double{AS_INDEX_DIM} * kHeads * static_cast<double>(tokens * keys);
    fmt::print("{:<28}{:>10.3f}{:>9.1f}{:>7.0f} %\n", fmt::format("logits b={} T={}", tokens, keys),
               1e3 * best, work / best * 1e-9, 100 * work / best / machine_.rate());
    std::fflush(stdout);
    std::vector<std::int32_t> chosen(to_size(tokens * 512));
    std::normal_distribution<float> normal;
    for (float& v : out) v = normal(random_);
    as_indexer_topk_params k{};
    k.head = {sizeof(k), AS_PARAMS_VERSION};
    k.logits = p.logits;
    k.lens = p.lens;
    k.indices = make_tensor(chosen.data(), {tokens, std::int64_t{512}});
    fmt::print("{:<28}{:>10.3f}\n", fmt::format("top-k 512 b={} T={}", tokens, keys),
               1e3 * fastest(AS_OP_INDEXER_TOPK, &k));
    std::fflush(stdout);
  }

  double rate() { return machine_.rate(); }

 private:
  void call(int op, const void* p) {
    as_error error{};
    if (cpu::lane()->ops[op](p, &how_, &error) != AS_OK) stop(error.message);
  }
  double fastest(int op, const void* p) {
    double best = 1e9, spent = 0;
    for (int round = 0; round < 200 && (round < 3 || spent < 2.0); ++round) {
      const double took = seconds([&] { call(op, p); });
      best = std::min(best, took);
      spent += took;
      if (round % 8 == 0) machine_.rate();
    }
    return best;
  }
  static void torch(const as_sparse_attention_params& p, bool fp32) {
    reference::TorchFailure failure{};
    if (!reference::torch_module().sparse_sdpa(&p, fp32, &failure)) stop(failure.message);
  }
  // Different slots for a token, in no order.
  std::vector<std::int32_t> list(std::int64_t tokens, std::int64_t entries, std::int64_t slots) {
    std::vector<std::int32_t> all(to_size(slots)), result;
    std::iota(all.begin(), all.end(), 0);
    for (std::int64_t t = 0; t < tokens; ++t) {
      std::shuffle(all.begin(), all.end(), random_);
      result.insert(result.end(), all.begin(), all.begin() + entries);
    }
    return result;
  }

  cpu::ThreadPool pool_;
  Machine machine_;
  as_call how_{};
  std::mt19937_64 random_{1};
};

}  // namespace
}  // namespace attnscope

int main(int argc, char** argv) {
  using namespace attnscope;
  const int threads = argc > 1 ? std::atoi(argv[1]) : 2;
  Bench bench(threads);
  fmt::print("{} threads, SIMD {}: {:.0f} GFLOP/s of multiply-adds\n", threads, cpu::simd_level(),
             bench.rate() * 1e-9);
  fmt::print("{:<28}{:>10}{:>9}{:>9}{:>12}{:>11}{:>9}{:>10}\n", "", "ms", "GFLOP/s", "of rate",
             "torch bf16", "fp32", "faster", "differs");
  for (std::int64_t tokens : {1, 8}) bench.attention(tokens, 64, 512);
  bench.attention(8, 8, 512);
  bench.attention(8, 128, 1024);
  bench.logits(1, 32768);
  bench.logits(8, 32768);
  fmt::print("multiply-adds at the end: {:.0f} GFLOP/s\n", bench.rate() * 1e-9);
  return 0;
}
