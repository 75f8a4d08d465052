// paged_attention of the CPU lane beside gather + scaled_dot_product_attention of libtorch, in one
// process: decode steps of a few requests and prompts of several lengths. Each is run in turn, some
// times, and the fastest run counts; libtorch is given bf16 and fp32, its faster one counts. Then
// decode steps over the same rows as codes of FP8 and int8, beside those over bf16.
//
//   bench_paged [threads] [formats]     formats: the last part alone
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <memory>
#include <numeric>
#include <random>
#include <string_view>
#include <vector>

#include "kernels/cpu/codec.h"
#include "kernels/cpu/cpu_lane.h"
#include "kernels/cpu/kv_codes.h"
#include "kernels/cpu/thread_pool.h"
#include "kernels/params/paged_params.h"
#include "kernels/params/tensor_view.h"
#include "reference/torch_module.h"
#include "tests/bench/bench_call.h"

namespace attnscope {
namespace {

constexpr std::int64_t kHeads = 32, kKvHeads = 8, kSize = 128, kRows = 16;  // of a 4:1 GQA layer

struct Shape {
  std::int64_t requests, context, new_tokens;
};

class Call {
 public:
  explicit Call(const Shape& s) {
    std::mt19937_64 random(1);
    const std::int64_t tokens = s.requests * s.new_tokens;
    const std::int64_t columns = (s.context + kRows - 1) / kRows, blocks = s.requests * columns + 1;
    q_.resize(to_size(tokens * kHeads * kSize));
    o_.resize(q_.size());
    lse_.resize(to_size(tokens * kHeads));
    for (auto* pages : {&k_, &v_}) pages->resize(to_size(blocks * kRows * kKvHeads * kSize));
    for (auto* values : {&q_, &k_, &v_}) {
      for (bf16_t& v : *values) {
        v.bits = cpu::float_to_bf16(static_cast<float>(random() >> 40) * 0x1p-23f - 1.0f);
      }
    }
    table_.resize(to_size(blocks - 1));
    std::iota(table_.begin(), table_.end(), 1);
    std::shuffle(table_.begin(), table_.end(), random);
    for (std::int64_t t = 0; t < tokens; ++t) {
      token_to_req_.push_back(static_cast<std::int32_t>(t / s.new_tokens));
      positions_.push_back(s.context - s.new_tokens + t % s.new_tokens);
    }
    seq_lens_.assign(to_size(s.requests), static_cast<std::int32_t>(s.context));
    p.head = {sizeof(p), AS_PARAMS_VERSION};
    p.q = make_tensor(q_.data(), {tokens, kHeads, kSize});
    p.k_cache = cache_of(k_, blocks);
    p.v_cache = cache_of(v_, blocks);
    p.table = make_tensor(table_.data(), {s.requests, columns});
    p.token_to_req = make_tensor(token_to_req_.data(), {tokens});
    p.positions = make_tensor(positions_.data(), {tokens});
    p.seq_lens = make_tensor(seq_lens_.data(), {s.requests});
    p.o = make_tensor(o_.data(), {tokens, kHeads, kSize});
    p.lse = make_tensor(lse_.data(), {tokens, kHeads});
    p.scale = 1 / std::sqrt(double{kSize});
    p.causal = 1;
  }
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

  // The largest difference to another result.
  double difference(const std::vector<bf16_t>& other) const {
    double most = 0;
    for (std::size_t i = 0; i < o_.size(); ++i) {
      const double d = static_cast<double>(cpu::bf16_to_float(o_[i].bits)) -
                       static_cast<double>(cpu::bf16_to_float(other[i].bits));
      most = std::max(most, std::fabs(d));
    }
    return most;
  }
  const std::vector<bf16_t>& output() const { return o_; }

  // The rows of both caches in another format, which the call reads from then on.
  void store_as(std::int32_t record) {
    const as_row_layout l = as_row_layout_of(record, kKvHeads * kSize, kKvHeads, kRows);
    const std::int64_t blocks = p.k_cache.data.shape[0];
    const as_row_part& part = l.format->parts[0];
    const bool beside = part.per == AS_PER_TENSOR;
    for (int i = 0; i < 2; ++i) {
      std::vector<std::uint8_t>& bytes = codes_[i];
      bytes.assign(to_size(blocks * l.page), 0);
      as_cache coded = i == 0 ? p.k_cache : p.v_cache;
      coded.data = make_tensor(bytes.data(), {blocks, l.page});
      coded.data.reserved = static_cast<std::int32_t>(kKvHeads);
      coded.record = record;
      const as_tensor scale = beside ? make_tensor(&scale_, {std::int64_t{1}}) : no_tensor();
      const cpu::KvRows rows(coded, scale);
      const auto* values = reinterpret_cast<const std::uint16_t*>((i == 0 ? k_ : v_).data());
      for (std::int64_t slot = 0; slot < blocks * kRows; ++slot) {
        for (std::int64_t h = 0; h < kKvHeads; ++h) {
          rows.put(slot, h, values + (slot * kKvHeads + h) * kSize, kSize);
        }
      }
      (i == 0 ? p.k_cache : p.v_cache) = coded;
      (i == 0 ? p.k_scale : p.v_scale) = scale;
    }
  }

  as_paged_attention_params p{};

 private:
  static as_cache cache_of(std::vector<bf16_t>& pages, std::int64_t blocks) {
    as_cache cache{};
    auto* bytes = reinterpret_cast<std::uint8_t*>(pages.data());
    cache.data = make_tensor(bytes, {blocks, kRows * kKvHeads * kSize * 2});
    cache.data.reserved = static_cast<std::int32_t>(kKvHeads);
    cache.record = AS_RECORD_BF16;
    cache.rows_per_block = static_cast<std::int32_t>(kRows);
    cache.width = static_cast<std::int32_t>(kKvHeads * kSize);
    return cache;
  }

  std::vector<bf16_t> q_, k_, v_, o_;
  std::vector<std::uint8_t> codes_[2];
  float scale_ = 1.0f / 448;
  std::vector<float> lse_;
  std::vector<std::int32_t> table_, token_to_req_, seq_lens_;
  std::vector<std::int64_t> positions_;
};

void measure(const Shape& s, cpu::ThreadPool& pool) {
  Call call(s);
  as_call how{};
  how.struct_size = sizeof(how);
  how.threads = pool.handle();
  as_error error{};
  const auto ours = [&] {
    if (cpu::lane()->ops[AS_OP_PAGED_ATTENTION](&call.p, &how, &error) != AS_OK) {
      stop(error.message);
    }
  };
  reference::TorchFailure failure{};
  const auto theirs = [&](bool fp32) {
    if (!reference::torch_module().paged_sdpa(&call.p, fp32, &failure)) stop(failure.message);
  };
  double best[3] = {1e9, 1e9, 1e9}, spent = 0, difference = 0;
  std::vector<bf16_t> kept;
  for (int round = 0; round < 20 && (round < 3 || spent < 4.0); ++round) {
    best[1] = std::min(best[1], seconds([&] { theirs(false); }));
    const double fp32 = seconds([&] { theirs(true); });
    best[2] = std::min(best[2], fp32);
    kept = call.output();
    const double mine = seconds(ours);
    best[0] = std::min(best[0], mine);
    difference = call.difference(kept);
    spent += mine + fp32;
  }
  const double torch = std::min(best[1], best[2]);
  fmt::print("{:<8}{:>9}{:>9}{:>8}{:>12.3f}{:>12.3f}{:>12.3f}{:>9.2f}{:>12.1e}\n",
             s.new_tokens == 1 ? "decode" : "prefill", s.requests, s.context, s.new_tokens,
             1e3 * best[0], 1e3 * best[1], 1e3 * best[2], torch / best[0], difference);
  std::fflush(stdout);
}

// Decode over codes beside decode over bf16, in turn.
void measure_formats(const Shape& s, cpu::ThreadPool& pool) {
  constexpr std::int32_t kRecords[] = {AS_RECORD_BF16, AS_RECORD_FP8_TENSOR,
                                       AS_RECORD_FP8_TOKEN_HEAD, AS_RECORD_E5M2_TOKEN_HEAD,
                                       AS_RECORD_INT8_TOKEN_HEAD};
  std::vector<std::unique_ptr<Call>> calls;
  for (const std::int32_t record : kRecords) {
    calls.push_back(std::make_unique<Call>(s));
    if (record != AS_RECORD_BF16) calls.back()->store_as(record);
  }
  as_call how{};
  how.struct_size = sizeof(how);
  how.threads = pool.handle();
  as_error error{};
  std::vector<double> best(calls.size(), 1e9);
  double spent = 0;
  for (int round = 0; round < 40 && (round < 3 || spent < 8.0); ++round) {
    for (std::size_t i = 0; i < calls.size(); ++i) {
      const double took = seconds([&] {
        if (cpu::lane()->ops[AS_OP_PAGED_ATTENTION](&calls[i]->p, &how, &error) != AS_OK) {
          stop(error.message);
        }
      });
      best[i] = std::min(best[i], took);
      spent += took;
    }
  }
  for (std::size_t i = 0; i < calls.size(); ++i) {
    const as_row_format& format = *as_row_format_of(kRecords[i]);
    const std::int64_t row = as_row_layout_of(kRecords[i], kKvHeads * kSize, kKvHeads, 1).row;
    const double bytes = static_cast<double>(2 * row * s.requests * s.context);
    fmt::print("{:<18}{:>9}{:>9}{:>12.3f}{:>9.1f}{:>9.2f}{:>12.1e}\n", format.name, s.requests,
               s.context, 1e3 * best[i], bytes / best[i] * 1e-9, best[0] / best[i],
               calls[i]->difference(calls[0]->output()));
  }
  std::fflush(stdout);
}

}  // namespace
}  // namespace attnscope

int main(int argc, char** argv) {
  using namespace attnscope;
  const int threads = argc > 1 ? std::atoi(argv[1]) : 2;
  cpu::ThreadPool pool(threads);
  const auto formats = [&] {
    fmt::print("decode over rows of each format\n{:<18}{:>9}{:>9}{:>12}{:>9}{:>9}{:>12}\n",
               "format", "requests", "context", "ms", "GB/s", "faster", "difference");
    for (std::int64_t context : {4096, 32768}) measure_formats({4, context, 1}, pool);
  };
  if (argc > 2 && std::string_view(argv[2]) == "formats") {
    formats();
    return 0;
  }
  fmt::print(
      "{} heads over {} KV heads of {}, {} rows a block, bf16; {} threads, SIMD {}; fastest "
      "run in ms\n{:<8}{:>9}{:>9}{:>8}{:>12}{:>12}{:>12}{:>9}{:>12}\n",
      kHeads, kKvHeads, kSize, kRows, threads, cpu::simd_level(), "", "requests", "context", "new",
      "ours", "torch bf16", "torch fp32", "faster", "difference");
  for (std::int64_t context : {1024, 4096, 8192, 32768}) measure({4, context, 1}, pool);
  for (std::int64_t context : {1024, 4096}) measure({1, context, context}, pool);
  for (std::int64_t context : {8192, 32768}) measure({1, context, 512}, pool);
  formats();
  return 0;
}
