// Ops of the CPU lane that do little with what they read and write, each beside a copy of as many
// bytes that runs in turn with it, so that the ratio holds on a machine that others use too. The
// fastest run of each counts.
//
//   bench_rows [threads] [tokens]
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <numeric>
#include <random>
#include <utility>
#include <vector>

#include "kernels/cpu/codec.h"
#include "kernels/cpu/cpu_lane.h"
#include "kernels/cpu/thread_pool.h"
#include "kernels/layout/records.h"
#include "kernels/params/attention_params.h"
#include "kernels/params/compressor_params.h"
#include "kernels/params/dense_params.h"
#include "kernels/params/indexer_params.h"
#include "kernels/params/mla_params.h"
#include "kernels/params/tensor_view.h"
#include "tests/bench/bench_call.h"

namespace attnscope {
namespace {

constexpr std::int64_t kRows = 64;  // of a page

// Lines of the cache begin where those of the engine's buffers do.
class Bytes {
 public:
  explicit Bytes(std::int64_t bytes)
      : size_((bytes + 63) / 64 * 64),
        data_(static_cast<char*>(std::aligned_alloc(64, to_size(size_))), std::free) {
    if (data_ == nullptr) stop("no memory");
    std::memset(data_.get(), 0, to_size(size_));
  }
  char* data() const { return data_.get(); }

 private:
  std::int64_t size_;
  std::unique_ptr<char, void (*)(void*)> data_;
};

class Bench {
 public:
  Bench(int threads, std::int64_t tokens) : tokens_(tokens), pool_(threads) {
    how_.struct_size = sizeof(how_);
    how_.threads = pool_.handle();
    numbers_.resize(to_size(tokens));
    std::iota(numbers_.begin(), numbers_.end(), 0);
    positions_ = make_tensor(numbers_.data(), {tokens});
    rope_.table = tensor(AS_F32, {tokens, AS_ROPE_DIM});
  }

  // What heads of queries and of outputs go through.
  void heads(std::int64_t heads) {
    const as_tensor raw = tensor(AS_BF16, {tokens_, heads, AS_HEAD_DIM});
    const as_tensor to = tensor(AS_BF16, {tokens_, heads, AS_HEAD_DIM});
    const auto numbers = static_cast<double>(as_tensor_numel(&raw));
    auto q = params<as_q_rope_kv_insert_params>();
    q.q_raw = raw;
    q.kv = tensor(AS_BF16, {tokens_, AS_HEAD_DIM});
    q.positions = q.slots = positions_;
    q.rope = rope_;
    q.q = to;
    q.cache = cache(AS_RECORD_LATENT, AS_HEAD_DIM, kRows);
    q.eps = 1e-6;
    const auto latent = static_cast<double>(tokens_ * (2 * AS_HEAD_DIM + 584));
    line("q_rope_kv_insert", AS_OP_Q_ROPE_KV_INSERT, q, 4 * numbers + latent);
    q.q_norm = AS_Q_NORM_BF16;
    line("  norm in bf16", AS_OP_Q_ROPE_KV_INSERT, q, 4 * numbers + latent);
    auto o = params<as_inverse_rope_params>();
    o.o = raw;
    o.positions = positions_;
    o.rope = rope_;
    o.out = to;
    line("inverse_rope", AS_OP_INVERSE_ROPE, o, 4 * numbers);
    o.out = no_tensor();
    o.codes = tensor(AS_U8, {tokens_, heads, AS_HEAD_DIM});
    o.scales = tensor(AS_F32, {tokens_, heads, AS_HEAD_DIM / AS_PROJECTION_BLOCK});
    line("  into codes", AS_OP_INVERSE_ROPE, o, (3 + 1.0 / 32) * numbers);
  }

  void compressor(std::int32_t ratio, std::int32_t record) {
    const std::int64_t dim = record == AS_RECORD_LATENT ? AS_HEAD_DIM : AS_INDEX_DIM;
    const std::int64_t width = ratio == 4 ? 2 * dim : dim;
    auto s = params<as_compressor_state_params>();
    s.proj = tensor(AS_F32, {tokens_, 2 * width});
    s.ape = tensor(AS_F32, {ratio, width});
    s.positions = s.slots = positions_;
    s.state = cache(AS_RECORD_STATE, 2 * width, 8);
    s.ratio = ratio;
    const auto states = static_cast<double>(8 * tokens_ * width);
    line(fmt::format("compressor_state /{} {}", ratio, dim), AS_OP_COMPRESSOR_STATE, s, 2 * states);
    std::vector<std::int64_t> slots(to_size(tokens_), -1);
    std::int64_t entries = 0;
    for (std::int64_t t = ratio - 1; t < tokens_; t += ratio) slots[to_size(t)] = entries++;
    std::vector<std::int32_t> blocks(to_size(tokens_)), requests(to_size(tokens_));
    std::iota(blocks.begin(), blocks.end(), 0);
    auto c = params<as_compress_insert_params>();
    c.state = s.state;
    c.table = make_tensor(blocks.data(), {1, tokens_});
    c.token_to_req = make_tensor(requests.data(), {tokens_});
    c.positions = positions_;
    c.slots = make_tensor(slots.data(), {tokens_});
    c.weight = tensor(AS_BF16, {dim});
    c.rope = rope_;
    c.cache = cache(record, dim, kRows);
    c.eps = 1e-6;
    c.ratio = ratio;
    line(fmt::format("compress_insert /{} {}", ratio, dim), AS_OP_COMPRESS_INSERT, c,
         states + static_cast<double>(entries * as_row_bytes(record, dim)));
    if (record == AS_RECORD_LATENT) return;
    c.hadamard = AS_HADAMARD_ROUNDED;
    c.round_pooled = 1;
    line("  rounded, Hadamard", AS_OP_COMPRESS_INSERT, c,
         states + static_cast<double>(entries * as_row_bytes(record, dim)));
  }

  void index_keys() {
    auto k = params<as_index_key_insert_params>();
    k.k = tensor(AS_BF16, {tokens_, AS_INDEX_DIM});
    k.weight = tensor(AS_BF16, {AS_INDEX_DIM});
    k.bias = tensor(AS_BF16, {AS_INDEX_DIM});
    k.positions = k.slots = positions_;
    k.rope = rope_;
    k.cache = cache(AS_RECORD_INDEX_FP8, AS_INDEX_DIM, kRows);
    k.eps = 1e-6;
    k.hadamard = 1;
    line("index_key_insert", AS_OP_INDEX_KEY_INSERT, k,
         static_cast<double>(tokens_ * (2 * AS_INDEX_DIM + 132)));
  }

 private:
  template <class P>
  static P params() {
    P p{};
    p.head = {sizeof(p), AS_PARAMS_VERSION};
    return p;
  }

  // Numbers from -1 to 1.
  as_tensor tensor(std::int32_t dtype, std::initializer_list<std::int64_t> shape) {
    as_tensor t = make_tensor(nullptr, dtype, shape);
    memory_.emplace_back(static_cast<std::int64_t>(tensor_bytes(t)));
    t.data = memory_.back().data();
    const std::int64_t count = as_tensor_numel(&t);
    for (std::int64_t i = 0; i < count && dtype != AS_U8; ++i) {
      const float value = static_cast<float>(random_() >> 40) * 0x1p-23f - 1;
      if (dtype == AS_BF16) {
        static_cast<bf16_t*>(t.data)[i].bits = cpu::float_to_bf16(value);
      } else {
        static_cast<float*>(t.data)[i] = value;
      }
    }
    return t;
  }
  as_cache cache(std::int32_t record, std::int64_t width, std::int64_t rows) {
    const std::int64_t blocks = (tokens_ + rows - 1) / rows;
    const std::int64_t bytes = as_page_bytes(record, width, rows);
    memory_.emplace_back(blocks * bytes);
    as_cache made{};
    made.data =
        make_tensor(reinterpret_cast<std::uint8_t*>(memory_.back().data()), {blocks, bytes});
    made.record = record;
    made.rows_per_block = static_cast<std::int32_t>(rows);
    made.width = static_cast<std::int32_t>(width);
    return made;
  }

  template <class P>
  void line(const std::string& name, int op, const P& p, double bytes) {
    const auto half = static_cast<std::int64_t>(bytes / 2);
    const Bytes from(half), to(half);
    std::pair<const char*, char*> both(from.data(), to.data());
    double copy = 1e9, mine = 1e9, spent = 0;
    for (int round = 0; round < 400 && (round < 8 || spent < 3.0); ++round) {
      const double copied = seconds([&] {
        const as_parallel_body body = [](void* ends, std::int64_t begin, std::int64_t end) {
          const auto& [source, target] = *static_cast<std::pair<const char*, char*>*>(ends);
          std::copy(source + begin, source + end, target + begin);
        };
        how_.threads->parallel_for(how_.threads->pool, half, 131072, body, &both);
      });
      const double took = seconds([&] { call(op, &p); });
      copy = std::min(copy, copied);
      mine = std::min(mine, took);
      spent += copied + took;
    }
    fmt::print("{:<24}{:>10.1f}{:>10.3f}{:>8.1f}{:>12.3f}{:>8.1f}{:>10.2f}\n", name, bytes * 1e-6,
               1e3 * mine, bytes / mine * 1e-9, 1e3 * copy, bytes / copy * 1e-9, mine / copy);
    std::fflush(stdout);
  }
  void call(int op, const void* p) {
    as_error error{};
    if (cpu::lane()->ops[op](p, &how_, &error) != AS_OK) stop(error.message);
  }

  std::int64_t tokens_;
  cpu::ThreadPool pool_;
  as_call how_{};
  std::mt19937_64 random_{1};
  std::vector<Bytes> memory_;
  std::vector<std::int64_t> numbers_;
  as_tensor positions_{};
  as_rope rope_{};
};

}  // namespace
}  // namespace attnscope

int main(int argc, char** argv) {
  using namespace attnscope;
  const int threads = argc > 1 ? std::atoi(argv[1]) : 2;
  const std::int64_t tokens = argc > 2 ? std::atoi(argv[2]) : 512;
  fmt::print("{} threads, SIMD {}, {} tokens\n", threads, cpu::simd_level(), tokens);
  fmt::print("{:<24}{:>10}{:>10}{:>8}{:>12}{:>8}{:>10}\n", "", "MB", "ms", "GB/s", "copy: ms",
             "GB/s", "times it");
  for (const std::int64_t heads : {64, 8}) {
    fmt::print("{} heads\n", heads);
    Bench(threads, tokens).heads(heads);
  }
  fmt::print("compressor\n");
  Bench bench(threads, tokens);
  bench.compressor(4, AS_RECORD_LATENT);
  bench.compressor(128, AS_RECORD_LATENT);
  bench.compressor(4, AS_RECORD_INDEX_FP8);
  bench.index_keys();
  return 0;
}
