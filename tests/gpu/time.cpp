// Time of every kernel of the CUDA lane beside its floor. Prints a table.
//
// Each row: a captured graph of several calls on different inputs (so that caches larger than the
// L2 are read afresh), replayed; the median over replays, by CUDA events, divided by the calls.
// Floors: bytes that must move at 4.3 TB/s (a copy on an H200), bf16 products at 790 TFLOP/s, FP8
// products at twice that.
//
// Usage: gpu_time [FILTER]: rows whose name contains FILTER.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "engine/session/step/op_params.h"
#include "kernels/cuda/cuda_lane.h"
#include "kernels/cuda/device.h"
#include "kernels/layout/records.h"
#include "kernels/params/helper_params.h"
#include "kernels/params/paged_params.h"
#include "kernels/params/row_format.h"
#include "kernels/params/tensor_view.h"
#include "tests/gpu/need.h"

namespace attnscope {
namespace {

using cuda::Device;
using cuda::DeviceMemory;
using cuda::Event;
using cuda::Graph;
using cuda::Stream;

constexpr double kTensorTflops = 790;  // bf16, measured on an H200
constexpr double kFp8Tflops = 2 * kTensorTflops;
constexpr double kBandwidth = 4300;  // GB/s of a copy, read and written bytes counted
constexpr int kCalls = 8;            // in a graph, on inputs of their own
constexpr int kReplays = 15;

class Bench {
 public:
  explicit Bench(std::string filter) : filter_(std::move(filter)) {}

  const Stream& stream() const { return stream_; }

  // Device memory that lives until the row is done.
  as_tensor make(std::int32_t dtype, std::initializer_list<std::int64_t> shape) {
    as_tensor t = make_tensor(nullptr, dtype, shape);
    memory_.push_back(need(DeviceMemory::allocate(
        static_cast<std::size_t>(as_tensor_numel(&t) * as_dtype_size(dtype)) + 64)));
    t.data = memory_.back().data();
    t.device = 1;
    return t;
  }
  template <class T>
  as_tensor upload(const std::vector<T>& values, std::initializer_list<std::int64_t> shape) {
    as_tensor t = make(kDtypeOf<T>, shape);
    need(stream_.upload(t.data, values.data(), values.size() * sizeof(T)));
    need(stream_.synchronize());
    return t;
  }
  // Numbers near 1 of either sign, the same 64 Ki of them over and over.
  as_tensor numbers(std::int32_t dtype, std::initializer_list<std::int64_t> shape,
                    float scale = 1.0f) {
    as_tensor t = make(dtype, shape);
    std::vector<unsigned char> part(1 << 18);
    for (std::size_t i = 0; i < part.size(); i += 4) {
      const float v = scale * (static_cast<float>(random_() >> 40) * 0x1p-23f - 1.0f);
      std::uint32_t bits;
      std::memcpy(&bits, &v, 4);
      if (dtype == AS_BF16) bits = (bits & 0xffff0000u) | ((bits ^ 0x80000000u) >> 16);
      std::memcpy(part.data() + i, &bits, 4);
    }
    fill(t, part);
    return t;
  }
  // A cache of random rows: codes that are numbers, scales near 1/16.
  as_cache cache(std::int32_t record, std::int32_t width, std::int32_t rows, std::int64_t count) {
    const std::int64_t page = as_page_bytes(record, width, rows);
    const std::int64_t pages = (count + rows - 1) / rows;
    as_cache c{};
    c.record = record;
    c.rows_per_block = rows;
    c.width = width;
    c.data = make(AS_U8, {pages, page});
    std::vector<unsigned char> one(static_cast<std::size_t>(page));
    for (unsigned char& b : one) b = static_cast<unsigned char>(random_() & 0xb7);
    const std::int64_t scales = as_scale_bytes(record);
    for (std::int64_t r = 0; r < rows; ++r) {
      unsigned char* s = one.data() + as_scale_offset(record, width, rows, r);
      if (record == AS_RECORD_INDEX_FP8) {
        const float scale = 0.0625f;
        std::memcpy(s, &scale, 4);
      } else {
        std::memset(s, 121, static_cast<std::size_t>(scales));
      }
      if (record == AS_RECORD_LATENT) {
        auto* rope = reinterpret_cast<std::uint16_t*>(
            one.data() + as_payload_offset(record, width, r) + AS_NOPE_DIM);
        for (int i = 0; i < AS_ROPE_DIM; ++i) {
          rope[i] = static_cast<std::uint16_t>(0x3f00u | (random_() & 0x807fu));
        }
      }
      if (record == AS_RECORD_STATE) {
        auto* row = reinterpret_cast<float*>(one.data() + as_payload_offset(record, width, r));
        for (int i = 0; i < width; ++i) row[i] = static_cast<float>(random_() >> 40) * 0x1p-24f;
      }
    }
    // Larger pieces upload faster.
    std::vector<unsigned char> many;
    while (many.size() < (1u << 22)) many.insert(many.end(), one.begin(), one.end());
    fill(c.data, many);
    return c;
  }
  // Pages of K or V, G heads of D, all alike: bf16 numbers, or codes that are numbers with scales
  // of 1/16 and zero points of 0.
  as_cache kv_cache(std::int32_t record, std::int32_t heads, std::int32_t size, std::int32_t rows,
                    std::int64_t pages) {
    const as_row_layout layout = as_row_layout_of(record, heads * size, heads, rows);
    std::vector<unsigned char> page(static_cast<std::size_t>(layout.page));
    for (unsigned char& b : page) b = static_cast<unsigned char>(random_() & 0xb7);
    const auto codes = static_cast<std::size_t>(rows) * static_cast<std::size_t>(heads * size);
    for (std::size_t at = codes; record != AS_RECORD_BF16 && at + 4 <= page.size(); at += 4) {
      const bool zero = record == AS_RECORD_INT8_TOKEN_HEAD && (at - codes) % 8 == 4;
      const float value = zero ? 0.0f : 0.0625f;
      std::memcpy(page.data() + at, &value, 4);
    }
    as_cache c{};
    c.record = record;
    c.rows_per_block = rows;
    c.width = heads * size;
    c.data = make(AS_U8, {pages, layout.page});
    c.data.reserved = heads;
    std::vector<unsigned char> many;
    while (many.size() < (1u << 22)) many.insert(many.end(), page.begin(), page.end());
    fill(c.data, many);
    return c;
  }
  std::vector<std::int32_t> indices(std::int64_t count, std::int64_t limit) {
    std::vector<std::int32_t> v(static_cast<std::size_t>(count));
    for (std::int32_t& i : v) {
      i = static_cast<std::int32_t>(random_() % static_cast<std::uint64_t>(limit));
    }
    return v;
  }

  bool wants(const std::string& name) const { return name.find(filter_) != std::string::npos; }

  // One row: `calls[i]` are the params of the i-th call of the graph.
  void row(const std::string& name, const std::vector<OpParams>& calls, double bytes, double flops,
           double tflops = kTensorTflops) {
    const auto function = [](const OpParams& params, as_call* call, as_error* error) {
      return cuda::lane()->ops[params.op()](params.data(), call, error);
    };
    any_row(name, calls, bytes, flops, function, tflops);
  }
  // The same of a helper op.
  template <class Params>
  void row(const std::string& name, as_op_id id, const std::vector<Params>& calls, double bytes,
           double flops) {
    any_row(name, calls, bytes, flops, [id](const Params& p, as_call* call, as_error* error) {
      return cuda::lane()->ops[id](&p, call, error);
    });
  }

  void fill_bandwidth() {
    constexpr std::size_t kBytes = std::size_t{2} << 30;
    const auto memory = need(DeviceMemory::allocate(kBytes));
    const double us = time([&] { return stream_.fill(memory.data(), 0, kBytes); });
    fmt::print("fill of 2 GiB: {:.0f} GB/s\n", static_cast<double>(kBytes) / us * 1e-3);
  }

 private:
  template <class Params, class Function>
  void any_row(const std::string& name, const std::vector<Params>& calls, double bytes,
               double flops, const Function& function, double tflops = kTensorTflops) {
    const double us =
        time([&] {
          for (const Params& params : calls) {
            as_call call{};
            call.struct_size = sizeof(call);
            call.stream = stream_.handle();
            as_error error{};
            const std::int32_t status = function(params, &call, &error);
            if (status == AS_OK) continue;
            return Result<void>(Error{static_cast<as_status>(status), error.message, {}});
          }
          return Result<void>();
        }) /
        static_cast<double>(calls.size());
    const double floor = std::max(bytes / (kBandwidth * 1e3), flops / (tflops * 1e6));
    fmt::print("{:<44}{:>10.2f}{:>10.1f}{:>10.1f}{:>10.2f}{:>8.1f}\n", name, us, bytes / us * 1e-3,
               flops / us * 1e-6, floor, us / floor);
    memory_.clear();
  }

  double time(const std::function<Result<void>()>& work) {
    need(work());  // workspaces get their size
    need(stream_.synchronize());
    const Graph graph = need(Graph::capture(stream_, work));
    for (int i = 0; i < 3; ++i) need(graph.launch(stream_));
    std::vector<double> times;
    for (int i = 0; i < kReplays; ++i) {
      need(begin_.record(stream_));
      need(graph.launch(stream_));
      need(end_.record(stream_));
      times.push_back(need(end_.since(begin_)));
    }
    std::sort(times.begin(), times.end());
    return times[times.size() / 2];
  }
  void fill(const as_tensor& t, const std::vector<unsigned char>& part) {
    const auto size = static_cast<std::size_t>(as_tensor_numel(&t) * as_dtype_size(t.dtype));
    for (std::size_t at = 0; at < size; at += part.size()) {
      need(stream_.upload(static_cast<unsigned char*>(t.data) + at, part.data(),
                          std::min(part.size(), size - at)));
    }
    need(stream_.synchronize());
  }

  std::string filter_;
  Stream stream_ = need(Stream::create());
  Event begin_ = need(Event::create()), end_ = need(Event::create());
  std::mt19937_64 random_{1};
  std::vector<DeviceMemory> memory_;
};

void attention(Bench& bench, std::int64_t tokens, std::int64_t heads, std::int64_t extra) {
  constexpr std::int64_t kRows = 1 << 19;  // about 300 MB in each cache
  const std::string name = fmt::format("sparse_attention h={} N=128+{} T={}", heads, extra, tokens);
  if (!bench.wants(name)) return;
  const as_cache window = bench.cache(AS_RECORD_LATENT, 512, 64, kRows);
  const as_cache selected = extra > 0 ? bench.cache(AS_RECORD_LATENT, 512, 64, kRows) : as_cache{};
  const int count = tokens > 1024 ? 2 : kCalls;
  std::vector<OpParams> calls;
  for (int i = 0; i < count; ++i) {
    OpParams params;
    auto& p = params.init<as_sparse_attention_params>(AS_OP_SPARSE_ATTENTION);
    p.q = bench.numbers(AS_BF16, {tokens, heads, 512});
    p.cache = window;
    p.indices = bench.upload(bench.indices(tokens * 128, kRows), {tokens, 128});
    p.topk_length =
        bench.upload(std::vector<std::int32_t>(static_cast<std::size_t>(tokens), 128), {tokens});
    if (extra > 0) {
      p.extra_cache = selected;
      p.extra_indices = bench.upload(bench.indices(tokens * extra, kRows), {tokens, extra});
      p.extra_topk_length =
          bench.upload(std::vector<std::int32_t>(static_cast<std::size_t>(tokens),
                                                 static_cast<std::int32_t>(extra)),
                       {tokens});
    }
    p.sinks = bench.numbers(AS_F32, {heads});
    p.o = bench.make(AS_BF16, {tokens, heads, 512});
    p.lse = bench.make(AS_F32, {tokens, heads});
    p.scale = 1 / std::sqrt(512.0);
    calls.push_back(params);
  }
  const auto n = static_cast<double>(128 + extra);
  const auto t = static_cast<double>(tokens), h = static_cast<double>(heads);
  bench.row(name, calls, t * (n * 588 + h * 2052), 2 * t * h * n * 1024);
}

void logits(Bench& bench, std::int32_t record, std::int64_t requests, std::int64_t entries,
            std::int32_t rule = AS_SCORES_FP32) {
  const bool fp4 = record == AS_RECORD_INDEX_MXFP4;
  const char* form = fp4 ? "mxfp4" : rule == AS_SCORES_E4M3 ? "e4m3 by e4m3" : "fp8";
  const std::string name = fmt::format("indexer_logits {} h=64 b={} T={}", form, requests, entries);
  if (!bench.wants(name)) return;
  const std::int64_t pages = entries / 64;
  const std::int64_t row_bytes = as_row_bytes(record, 128);
  // Caches beyond the L2, unless the whole is large anyway.
  const std::int64_t total = requests * entries;
  const int count = total * row_bytes > (std::int64_t{1} << 29) ? 1 : kCalls;
  const as_cache cache = bench.cache(record, 128, 64, total * count);
  std::vector<OpParams> calls;
  for (int i = 0; i < count; ++i) {
    OpParams params;
    auto& p = params.init<as_indexer_logits_params>(AS_OP_INDEXER_LOGITS);
    std::vector<std::uint8_t> codes(static_cast<std::size_t>(requests * 64 * (fp4 ? 64 : 128)));
    for (std::size_t k = 0; k < codes.size(); ++k) {
      codes[k] = static_cast<std::uint8_t>((k * 2654435761u >> 13) & 0xb7u);
    }
    p.q = bench.upload(codes, {requests, 64, fp4 ? 64 : 128});
    if (fp4) {
      p.q_scale =
          bench.upload(std::vector<std::uint8_t>(static_cast<std::size_t>(requests * 256), 121),
                       {requests, 64, 4});
    }
    p.weights = bench.numbers(AS_F32, {requests, 64});
    p.weights.reserved = rule;
    p.cache = cache;
    std::vector<std::int32_t> table(static_cast<std::size_t>(requests * pages));
    for (std::size_t k = 0; k < table.size(); ++k) {
      table[k] = static_cast<std::int32_t>(static_cast<std::size_t>(i) * table.size() + k);
    }
    std::mt19937_64 random(static_cast<std::uint64_t>(i));
    std::shuffle(table.begin(), table.end(), random);
    p.table = bench.upload(table, {requests, pages});
    std::vector<std::int32_t> token_to_req;
    for (std::int64_t r = 0; r < requests; ++r)
      token_to_req.push_back(static_cast<std::int32_t>(r));
    p.token_to_req = bench.upload(token_to_req, {requests});
    p.lens = bench.upload(std::vector<std::int32_t>(static_cast<std::size_t>(requests),
                                                    static_cast<std::int32_t>(entries)),
                          {requests});
    p.logits = bench.make(AS_F32, {requests, entries});
    calls.push_back(params);
  }
  const auto keys = static_cast<double>(total);
  bench.row(name, calls, keys * static_cast<double>(row_bytes + 4), 2 * keys * 64 * 128);
}

void topk(Bench& bench, std::int64_t rows, std::int64_t columns, std::int64_t k) {
  const std::string name = fmt::format("indexer_topk k={} rows={} T={}", k, rows, columns);
  if (!bench.wants(name)) return;
  std::vector<OpParams> calls;
  for (int i = 0; i < kCalls; ++i) {
    OpParams params;
    auto& p = params.init<as_indexer_topk_params>(AS_OP_INDEXER_TOPK);
    p.logits = bench.numbers(AS_F32, {rows, columns});
    p.lens = bench.upload(std::vector<std::int32_t>(static_cast<std::size_t>(rows),
                                                    static_cast<std::int32_t>(columns)),
                          {rows});
    p.indices = bench.make(AS_I32, {rows, k});
    calls.push_back(params);
  }
  bench.row(name, calls, static_cast<double>(rows * (columns + k) * 4), 0);
}

as_rope rope_of(Bench& bench) {
  as_rope rope{};
  rope.base = 160000;
  rope.factor = 16;
  rope.table = bench.numbers(AS_F32, {1 << 16, 64});
  return rope;
}

std::vector<std::int64_t> ramp(std::int64_t count, std::int64_t first, std::int64_t step) {
  std::vector<std::int64_t> v;
  for (std::int64_t i = 0; i < count; ++i) v.push_back(first + i * step);
  return v;
}

void insert(Bench& bench, std::int64_t tokens, std::int64_t heads) {
  const std::string name = fmt::format("q_rope_kv_insert h={} T={}", heads, tokens);
  if (!bench.wants(name)) return;
  const as_cache cache = bench.cache(AS_RECORD_LATENT, 512, 64, 1 << 16);
  std::vector<OpParams> calls;
  for (int i = 0; i < (tokens > 1024 ? 2 : kCalls); ++i) {
    OpParams params;
    auto& p = params.init<as_q_rope_kv_insert_params>(AS_OP_Q_ROPE_KV_INSERT);
    p.q_raw = bench.numbers(AS_BF16, {tokens, heads, 512});
    p.kv = bench.numbers(AS_BF16, {tokens, 512});
    p.positions = bench.upload(ramp(tokens, 1000, 1), {tokens});
    p.rope = rope_of(bench);
    p.slots = bench.upload(ramp(tokens, 64 + i * tokens, 1), {tokens});
    p.q = bench.make(AS_BF16, {tokens, heads, 512});
    p.kv_row = bench.make(AS_BF16, {tokens, 512});
    p.cache = cache;
    p.eps = 1e-6;
    calls.push_back(params);
  }
  bench.row(name, calls, static_cast<double>(tokens * (heads * 2048 + 2048 + 584)), 0);
}

void compress(Bench& bench, std::int64_t tokens, std::int32_t ratio) {
  const std::string name = fmt::format("compress_insert C{} T={}", ratio, tokens);
  if (!bench.wants(name)) return;
  const std::int32_t width = ratio == 4 ? 2048 : 1024;
  const std::int32_t rows = ratio == 4 ? 4 : 8;
  const as_cache cache = bench.cache(AS_RECORD_LATENT, 512, ratio == 4 ? 64 : 2, 1 << 14);
  const as_cache state = bench.cache(AS_RECORD_STATE, width, rows, tokens + 256);
  std::vector<OpParams> calls;
  OpParams params;
  auto& p = params.init<as_compress_insert_params>(AS_OP_COMPRESS_INSERT);
  p.state = state;
  std::vector<std::int32_t> table;
  for (std::int64_t c = 0; c < (tokens + 256) / rows; ++c) {
    table.push_back(static_cast<std::int32_t>(c));
  }
  p.table = bench.upload(table, {1, static_cast<std::int64_t>(table.size())});
  p.token_to_req =
      bench.upload(std::vector<std::int32_t>(static_cast<std::size_t>(tokens), 0), {tokens});
  // A single token stands at the end of a window; more of them start one.
  const std::int64_t first = tokens == 1 ? ratio - 1 : 0;
  p.positions = bench.upload(ramp(tokens, first, 1), {tokens});
  std::vector<std::int64_t> slots;
  for (std::int64_t t = 0; t < tokens; ++t) {
    slots.push_back((first + t + 1) % ratio == 0 ? (first + t) / ratio + 64 : -1);
  }
  p.slots = bench.upload(slots, {tokens});
  p.weight = bench.numbers(AS_BF16, {512});
  p.rope = rope_of(bench);
  p.row = bench.make(AS_BF16, {tokens, 512});
  p.cache = cache;
  p.eps = 1e-6;
  p.ratio = ratio;
  calls.assign(kCalls, params);
  bench.row(name, calls, static_cast<double>(tokens) * width * 4, 0);
}

void linear(Bench& bench, std::int64_t tokens, std::int64_t in, std::int64_t out) {
  const std::string name = fmt::format("linear in={} out={} T={}", in, out, tokens);
  if (!bench.wants(name)) return;
  std::vector<OpParams> calls;
  // Weights beyond the L2, where they are not huge.
  const int count = out * in < (1 << 24) ? 16 : 4;
  for (int i = 0; i < count; ++i) {
    OpParams params;
    auto& p = params.init<as_linear_params>(AS_OP_Q_B_PROJ);
    p.x = bench.numbers(AS_BF16, {tokens, in});
    p.weight = bench.numbers(AS_BF16, {out, in}, 0.05f);
    p.y = bench.make(AS_BF16, {tokens, out});
    calls.push_back(params);
  }
  bench.row(name, calls, 2.0 * static_cast<double>(out * in + tokens * (in + out)),
            2.0 * static_cast<double>(tokens * in * out));
}

// A projection in FP8: weights as codes, inputs in bf16.
void projection_fp8(Bench& bench, std::int64_t tokens, std::int64_t in, std::int64_t out) {
  const std::string name = fmt::format("projection_fp8 in={} out={} T={}", in, out, tokens);
  if (!bench.wants(name)) return;
  std::vector<OpParams> calls;
  for (int i = 0; i < 4; ++i) {
    OpParams params;
    auto& p = params.init<as_linear_params>(AS_OP_Q_B_PROJ);
    p.x = bench.numbers(AS_BF16, {tokens, in});
    p.weight = bench.numbers(AS_U8, {out, in});
    p.weight_scale = bench.numbers(AS_F32, {out / 128, in / 128});
    p.y = bench.make(AS_BF16, {tokens, out});
    calls.push_back(params);
  }
  bench.row(name, calls, static_cast<double>(out * in + 2 * tokens * (in + out)),
            2.0 * static_cast<double>(tokens * in * out), kFp8Tflops);
}

void norm(Bench& bench, std::int64_t tokens, std::int64_t hidden) {
  const std::string name = fmt::format("attn_norm hidden={} T={}", hidden, tokens);
  if (!bench.wants(name)) return;
  std::vector<OpParams> calls;
  for (int i = 0; i < kCalls; ++i) {
    OpParams params;
    auto& p = params.init<as_rms_norm_params>(AS_OP_ATTN_NORM);
    p.x = bench.numbers(AS_BF16, {tokens, hidden});
    p.weight = bench.numbers(AS_BF16, {hidden});
    p.y = bench.make(AS_BF16, {tokens, hidden});
    p.eps = 1e-6;
    calls.push_back(params);
  }
  bench.row(name, calls, 4.0 * static_cast<double>(tokens * hidden), 0);
}

void inverse_rope(Bench& bench, std::int64_t tokens, std::int64_t heads) {
  const std::string name = fmt::format("inverse_rope h={} T={}", heads, tokens);
  if (!bench.wants(name)) return;
  std::vector<OpParams> calls;
  for (int i = 0; i < (tokens > 1024 ? 2 : kCalls); ++i) {
    OpParams params;
    auto& p = params.init<as_inverse_rope_params>(AS_OP_INVERSE_ROPE);
    p.o = bench.numbers(AS_BF16, {tokens, heads, 512});
    p.positions = bench.upload(ramp(tokens, 1000, 1), {tokens});
    p.rope = rope_of(bench);
    p.out = bench.make(AS_BF16, {tokens, heads, 512});
    calls.push_back(params);
  }
  bench.row(name, calls, static_cast<double>(tokens * heads * 2048), 0);
}

template <class Params>
Params helper_params() {
  Params p{};
  p.head = {sizeof(Params), AS_PARAMS_VERSION};
  return p;
}

// As sparse prefill over rows gathered to bf16 before.
void workspace_attention(Bench& bench, std::int64_t tokens, std::int64_t heads, std::int64_t n) {
  const std::string name = fmt::format("workspace_attention h={} N={} T={}", heads, n, tokens);
  if (!bench.wants(name)) return;
  constexpr std::int64_t kRows = 1 << 18;
  std::vector<as_workspace_attention_params> calls;
  for (int i = 0; i < 2; ++i) {
    auto p = helper_params<as_workspace_attention_params>();
    p.q = bench.numbers(AS_BF16, {tokens, heads, 512});
    p.rows = bench.numbers(AS_BF16, {kRows, 512});
    p.indices = bench.upload(bench.indices(tokens * n, kRows), {tokens, n});
    p.topk_length = bench.upload(
        std::vector<std::int32_t>(static_cast<std::size_t>(tokens), static_cast<std::int32_t>(n)),
        {tokens});
    p.sinks = bench.numbers(AS_F32, {heads});
    p.o = bench.make(AS_BF16, {tokens, heads, 512});
    p.lse = bench.make(AS_F32, {tokens, heads});
    p.scale = 1 / std::sqrt(512.0);
    calls.push_back(p);
  }
  const auto t = static_cast<double>(tokens), h = static_cast<double>(heads);
  const double rows = std::min(t * static_cast<double>(n), static_cast<double>(kRows));
  bench.row(name, AS_OP_WORKSPACE_ATTENTION, calls, rows * 1024 + 2 * t * h * 1024,
            4 * t * h * static_cast<double>(n) * 512);
}

void merge_states(Bench& bench, std::int64_t tokens) {
  const std::string name = fmt::format("merge_states h=64 T={}", tokens);
  if (!bench.wants(name)) return;
  std::vector<as_merge_states_params> calls;
  for (int i = 0; i < kCalls; ++i) {
    auto p = helper_params<as_merge_states_params>();
    p.a = bench.numbers(AS_BF16, {tokens, 64, 512});
    p.b = bench.numbers(AS_BF16, {tokens, 64, 512});
    p.lse_a = bench.numbers(AS_F32, {tokens, 64});
    p.lse_b = bench.numbers(AS_F32, {tokens, 64});
    p.out = bench.make(AS_BF16, {tokens, 64, 512});
    p.lse = bench.make(AS_F32, {tokens, 64});
    calls.push_back(p);
  }
  bench.row(name, AS_OP_MERGE_STATES, calls, static_cast<double>(tokens) * 64 * 3 * 1028, 0);
}

void gather_rows(Bench& bench, std::int64_t rows) {
  const std::string name = fmt::format("gather_rows latent to bf16 N={}", rows);
  if (!bench.wants(name)) return;
  const as_cache cache = bench.cache(AS_RECORD_LATENT, 512, 64, 1 << 19);
  std::vector<as_gather_rows_params> calls;
  for (int i = 0; i < kCalls; ++i) {
    auto p = helper_params<as_gather_rows_params>();
    p.cache = cache;
    const std::vector<std::int32_t> narrow = bench.indices(rows, 1 << 19);
    p.slots = bench.upload(std::vector<std::int64_t>(narrow.begin(), narrow.end()), {rows});
    p.out = bench.make(AS_BF16, {rows, 512});
    calls.push_back(p);
  }
  bench.row(name, AS_OP_GATHER_ROWS, calls, static_cast<double>(rows) * (584 + 1024), 0);
}

void inverse_rope_quantise(Bench& bench, std::int64_t tokens) {
  const std::string name = fmt::format("inverse_rope_quantise h=64 T={}", tokens);
  if (!bench.wants(name)) return;
  as_rope rope{};
  rope.table = bench.numbers(AS_F32, {4096, AS_ROPE_DIM});
  std::vector<as_inverse_rope_quantise_params> calls;
  for (int i = 0; i < kCalls; ++i) {
    auto p = helper_params<as_inverse_rope_quantise_params>();
    p.o = bench.numbers(AS_BF16, {tokens, 64, 512});
    p.rope = rope;
    p.positions =
        bench.upload(std::vector<std::int64_t>(static_cast<std::size_t>(tokens), 7), {tokens});
    p.codes = bench.make(AS_U8, {tokens, 64, 512});
    p.scales = bench.make(AS_F32, {tokens, 64, 4});
    calls.push_back(p);
  }
  bench.row(name, AS_OP_INVERSE_ROPE_QUANTISE, calls,
            static_cast<double>(tokens) * 64 * (1024 + 512 + 16), 0);
}

void fp8_linear(Bench& bench, std::int64_t tokens, std::int64_t in, std::int64_t out) {
  const std::string name = fmt::format("fp8_linear in={} out={} T={}", in, out, tokens);
  if (!bench.wants(name)) return;
  std::vector<as_fp8_linear_params> calls;
  for (int i = 0; i < kCalls; ++i) {
    auto p = helper_params<as_fp8_linear_params>();
    p.x = bench.numbers(AS_U8, {tokens, in});
    p.weight = bench.numbers(AS_U8, {out, in});
    p.x_scale = bench.numbers(AS_F32, {tokens, in / 128});
    p.weight_scale = bench.numbers(AS_F32, {(out + 127) / 128, in / 128});
    p.y = bench.make(AS_BF16, {tokens, out});
    calls.push_back(p);
  }
  const auto t = static_cast<double>(tokens), i = static_cast<double>(in);
  const auto o = static_cast<double>(out);
  bench.row(name, AS_OP_FP8_LINEAR, calls, t * i + i * o + 2 * t * o, 2 * t * i * o);
}

// The last tokens of requests over pages of 16 rows, 32 heads over 8 KV heads of 128, keys and
// values as a format has them: bytes are those of the rows, of queries and of outputs, work that of
// what each token sees.
void paged(Bench& bench, std::int32_t record, std::int64_t requests, std::int64_t context,
           std::int64_t queries = 1) {
  constexpr std::int64_t kHeads = 32, kKvHeads = 8, kSize = 128, kRows = 16;
  const as_row_layout layout = as_row_layout_of(record, kKvHeads * kSize, kKvHeads, kRows);
  const std::string name = fmt::format("paged_attention {} b={} T={}{}", layout.format->name,
                                       requests, context, queries > 1 ? " prompt" : "");
  if (!bench.wants(name)) return;
  const std::int64_t tokens = requests * queries;
  const std::int64_t columns = context / kRows, blocks = requests * columns + 1;
  const bool beside = record == AS_RECORD_FP8_TENSOR || record == AS_RECORD_E5M2_TENSOR;
  const auto cache = [&] { return bench.kv_cache(record, kKvHeads, kSize, kRows, blocks); };
  std::vector<OpParams> calls;
  const int count = requests * context > (1 << 18) ? 2 : kCalls;
  for (int i = 0; i < count; ++i) {
    OpParams params;
    auto& p = params.init<as_paged_attention_params>(AS_OP_PAGED_ATTENTION);
    p.q = bench.numbers(AS_BF16, {tokens, kHeads, kSize});
    p.k_cache = cache();
    p.v_cache = cache();
    if (beside) p.k_scale = p.v_scale = bench.upload(std::vector<float>{1.0f / 448}, {1});
    std::vector<std::int32_t> table(static_cast<std::size_t>(blocks - 1)), of_token;
    std::vector<std::int64_t> positions;
    std::iota(table.begin(), table.end(), 1);
    std::shuffle(table.begin(), table.end(), std::mt19937(static_cast<unsigned>(i)));
    for (std::int64_t t = 0; t < tokens; ++t) {
      of_token.push_back(static_cast<std::int32_t>(t / queries));
      positions.push_back(context - queries + t % queries);
    }
    const auto n = static_cast<std::size_t>(requests);
    p.table = bench.upload(table, {requests, columns});
    p.token_to_req = bench.upload(of_token, {tokens});
    p.positions = bench.upload(positions, {tokens});
    p.seq_lens =
        bench.upload(std::vector<std::int32_t>(n, static_cast<std::int32_t>(context)), {requests});
    p.o = bench.make(AS_BF16, {tokens, kHeads, kSize});
    p.lse = bench.make(AS_F32, {tokens, kHeads});
    p.scale = 1 / std::sqrt(double{kSize});
    p.causal = 1;
    calls.push_back(params);
  }
  const auto b = static_cast<double>(requests), t = static_cast<double>(context);
  const auto q = static_cast<double>(queries);
  const double seen = b * q * (t - (q - 1) / 2);
  bench.row(name, calls, b * (2 * t * static_cast<double>(layout.row) + q * 4.0 * kHeads * kSize),
            seen * 4 * kHeads * kSize);
}

void run(Bench& bench) {
  for (std::int64_t b : {1, 4, 8, 16, 32, 64, 128, 256}) attention(bench, b, 64, 512);
  for (std::int64_t b : {1, 8, 32, 64, 128, 256}) attention(bench, b, 128, 1024);
  for (std::int64_t b : {1, 8, 64, 256}) attention(bench, b, 64, 0);
  for (std::int64_t b : {1, 8, 64}) attention(bench, b, 64, 8192);
  for (std::int64_t b : {1, 64}) attention(bench, b, 8, 512);
  attention(bench, 4096, 64, 512);
  attention(bench, 4096, 128, 1024);
  for (std::int64_t b : {1, 8, 64}) {
    for (std::int64_t t : {1 << 10, 1 << 12, 1 << 14, 1 << 16}) {
      logits(bench, AS_RECORD_INDEX_FP8, b, t);
    }
  }
  for (std::int64_t b : {1, 8, 64}) logits(bench, AS_RECORD_INDEX_FP8, b, 1 << 18);
  for (std::int64_t b : {1, 8, 64}) {
    for (std::int64_t t : {1 << 10, 1 << 14, 1 << 16, 1 << 18}) {
      logits(bench, AS_RECORD_INDEX_FP8, b, t, AS_SCORES_E4M3);
    }
  }
  logits(bench, AS_RECORD_INDEX_MXFP4, 64, 1 << 14);
  for (std::int64_t b : {1, 8, 64}) {
    for (std::int64_t t : {1 << 10, 1 << 14, 1 << 16, 1 << 18}) topk(bench, b, t, 512);
  }
  for (std::int64_t t : {1, 256, 4096}) insert(bench, t, 64);
  for (std::int64_t t : {1, 256, 4096}) inverse_rope(bench, t, 64);
  for (std::int64_t t : {1, 64, 1024, 4096}) compress(bench, t, 4);
  for (std::int64_t t : {128, 4096}) compress(bench, t, 128);
  for (std::int64_t t : {1, 8, 16, 64, 4096}) linear(bench, t, 1024, 32768);
  for (std::int64_t t : {1, 8}) {
    linear(bench, t, 4096, 1536);
    linear(bench, t, 4096, 2048);
    linear(bench, t, 4096, 512);
    linear(bench, t, 1024, 8192);
    linear(bench, t, 8192, 4096);
  }
  for (std::int64_t t : {1, 64, 4096}) projection_fp8(bench, t, 1024, 32768);
  for (std::int64_t t : {1, 64, 4096}) projection_fp8(bench, t, 4096, 1536);
  for (std::int64_t t : {1, 64, 4096}) projection_fp8(bench, t, 8192, 4096);
  for (std::int64_t t : {1, 4096}) norm(bench, t, 4096);
  workspace_attention(bench, 4096, 64, 640);
  for (std::int64_t t : {1, 4096}) merge_states(bench, t);
  for (std::int64_t n : {640, 1 << 17}) gather_rows(bench, n);
  for (std::int64_t t : {1, 4096}) inverse_rope_quantise(bench, t);
  for (std::int64_t t : {1, 64, 4096}) fp8_linear(bench, t, 4096, 1536);
  for (std::int64_t b : {8, 64, 128}) {
    for (std::int32_t record : {AS_RECORD_BF16, AS_RECORD_FP8_TENSOR, AS_RECORD_FP8_TOKEN_HEAD,
                                AS_RECORD_INT8_TOKEN_HEAD}) {
      paged(bench, record, b, 4096);
    }
  }
  for (std::int64_t t : {1024, 4096, 16384}) {
    for (std::int32_t record : {AS_RECORD_BF16, AS_RECORD_FP8_TENSOR, AS_RECORD_FP8_TOKEN_HEAD,
                                AS_RECORD_E5M2_TENSOR, AS_RECORD_INT8_TOKEN_HEAD}) {
      paged(bench, record, 1, t, t);
    }
  }
}

}  // namespace
}  // namespace attnscope

int main(int argc, char** argv) {
  using namespace attnscope;
  const auto& device = cuda::Device::get();
  if (!device) {
    fmt::print(stderr, "gpu_time: {}\n", device.error().text());
    return device.error().code;
  }
  const cuda::DeviceInfo& info = (*device)->info();
  fmt::print("{}: {} multiprocessors, {:.0f} GiB, driver CUDA {}.{}, runtime {}.{}\n", info.name,
             info.multiprocessors, static_cast<double>(info.memory) / (1 << 30), info.driver / 1000,
             info.driver % 1000 / 10, info.runtime / 1000, info.runtime % 1000 / 10);
  Bench bench(argc > 1 ? argv[1] : "");
  bench.fill_bandwidth();
  fmt::print("{:<44}{:>10}{:>10}{:>10}{:>10}{:>8}\n", "kernel", "us", "GB/s", "TFLOP/s", "floor us",
             "x floor");
  run(bench);
  return 0;
}
