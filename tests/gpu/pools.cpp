// A decode step of a layer that selects rows of host memory, on the GPU alone: index scores, top-k,
// the missed rows' way into the pool, attention; by how these lie beside each other. A line per
// batch, context and share of missed rows.
//
//   none  one after the other
//   da    rows come beside attention over those in the pool, then attention over them, and merges
//   dba   two halves of the batch: rows of the first beside scores of the second, rows of the
//         second beside attention of the first
//
// Each is a captured graph with the calls that a session makes (engine/session/step/row_overlap.h),
// rows travel on a stream of their own; the median of replays, the L2 overwritten before each.
// Before the forms: what scores with top-k, rows and attention take alone.
//
// Usage: gpu_pools [FILTER]: lines whose name contains FILTER.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "engine/session/step/op_params.h"
#include "kernels/cuda/cuda_lane.h"
#include "kernels/cuda/device.h"
#include "kernels/layout/records.h"
#include "kernels/params/helper_params.h"
#include "kernels/params/offload_params.h"
#include "kernels/params/row_format.h"
#include "kernels/params/tensor_view.h"
#include "tests/gpu/need.h"

namespace attnscope {
namespace {

constexpr int kReplays = 15;
constexpr std::int64_t kPageRows = 64, kPages = 4096, kWindow = 128, kIndexHeads = 64;
constexpr std::size_t kFlushed = std::size_t{160} << 20;

using cuda::DeviceMemory;
using cuda::Event;
using cuda::Graph;
using cuda::PinnedMemory;
using cuda::Stream;

struct Load {
  const char* model;  // whose heads and selection
  std::int64_t heads, top_k, tokens_per_row, requests, context, missed;  // missed: percent
  std::int64_t rows() const { return context / tokens_per_row; }
  std::int64_t selected() const { return std::min(top_k, rows()); }
};

class Bench {
 public:
  explicit Bench(const Load& load) : load_(load) {
    fill_pages();
    index();
    lists();
    attention();
  }
  Bench(const Bench&) = delete;
  Bench& operator=(const Bench&) = delete;

  void print() {
    const Part all{0, load_.requests}, first{0, load_.requests / 2},
        second{load_.requests / 2, load_.requests};
    const double scores = time([&] { select(all); });
    const double rows = time([&] { exchange(main_, all); });
    const double attended = time([&] { attend(all_, all); });
    const double none = time([&] {
      select(all);
      exchange(main_, all);
      attend(all_, all);
    });
    const double dual = time([&] {
      select(all);
      beside([&] { exchange(side_, all); }, [&] { attend(resident_, all); });
      attend(missed_, all);
      merge();
    });
    const double halves = time([&] {
      select(first);
      beside([&] { exchange(side_, first); }, [&] { score(second); });
      top_k(second);
      beside([&] { exchange(side_, second); }, [&] { attend(all_, first); });
      attend(all_, second);
    });
    fmt::print("{:<9}{:>4}{:>8}{:>4} %{:>9.1f}{:>9.1f}{:>9.1f}{:>10.1f}{:>9.1f}{:>9.1f}\n",
               load_.model, load_.requests, load_.context, load_.missed, scores, rows, attended,
               none, dual, halves);
    std::fflush(stdout);
  }

 private:
  struct Part {
    std::int64_t begin, end;
  };

  as_tensor make(std::int32_t dtype, std::initializer_list<std::int64_t> shape) {
    as_tensor t = make_tensor(nullptr, dtype, shape);
    owned_.push_back(need(DeviceMemory::allocate(tensor_bytes(t) + 64)));
    t.data = owned_.back().data();
    t.device = 1;
    return t;
  }
  template <class T>
  as_tensor upload(const std::vector<T>& values, std::initializer_list<std::int64_t> shape) {
    as_tensor t = make(kDtypeOf<T>, shape);
    need(main_.upload(t.data, values.data(), values.size() * sizeof(T)));
    need(main_.synchronize());
    return t;
  }
  as_tensor numbers(std::int32_t dtype, std::initializer_list<std::int64_t> shape) {
    as_tensor t = make_tensor(nullptr, dtype, shape);
    std::vector<std::uint16_t> words(tensor_bytes(t) / 2);
    for (std::uint16_t& w : words) w = static_cast<std::uint16_t>(0x3f00u | (random_() & 0x807fu));
    t = make(dtype, shape);
    need(main_.upload(t.data, words.data(), words.size() * 2));
    need(main_.synchronize());
    return t;
  }
  static as_tensor rows_of(as_tensor t, Part part) {
    t.data = static_cast<char*>(t.data) + part.begin * t.stride[0] * as_dtype_size(t.dtype);
    t.shape[0] = part.end - part.begin;
    return t;
  }
  static as_cache cache_of(std::int32_t record, std::int32_t width, void* memory,
                           std::int64_t pages) {
    as_cache c{};
    c.data = make_tensor(static_cast<std::uint8_t*>(memory),
                         {pages, as_page_bytes(record, width, kPageRows)});
    c.data.device = 1;
    c.record = record;
    c.addressing = AS_PAGED;
    c.rows_per_block = static_cast<std::int32_t>(kPageRows);
    c.width = width;
    return c;
  }

  // Codes that are numbers, scales near 1/64.
  void fill_pages() {
    const std::int64_t page = as_page_bytes(AS_RECORD_LATENT, 512, kPageRows);
    const auto bytes = static_cast<std::size_t>(kPages * page);
    host_ = need(PinnedMemory::allocate(bytes));
    std::vector<unsigned char> one(static_cast<std::size_t>(page));
    for (unsigned char& b : one) b = static_cast<unsigned char>(random_() & 0xb7);
    for (std::int64_t r = 0; r < kPageRows; ++r) {
      std::memset(one.data() + as_scale_offset(AS_RECORD_LATENT, 512, kPageRows, r), 121,
                  static_cast<std::size_t>(as_scale_bytes(AS_RECORD_LATENT)));
      unsigned char* rope = one.data() + as_payload_offset(AS_RECORD_LATENT, 512, r) + AS_NOPE_DIM;
      for (int i = 0; i < AS_ROPE_DIM; ++i) {
        const auto word = static_cast<std::uint16_t>(0x3f00u | (random_() & 0x807fu));
        std::memcpy(rope + 2 * i, &word, 2);
      }
    }
    for (std::int64_t p = 0; p < kPages; ++p) {
      std::memcpy(host_.data() + p * page, one.data(), one.size());
    }
    owned_.push_back(need(DeviceMemory::allocate(bytes)));
    need(main_.upload(owned_.back().data(), host_.data(), bytes));
    need(main_.synchronize());
    pages_ = cache_of(AS_RECORD_LATENT, 512, host_.data(), kPages);
    pool_ = cache_of(AS_RECORD_LATENT, 512, owned_.back().data(), kPages);
  }

  void index() {
    const std::int64_t b = load_.requests, pages = (load_.rows() + kPageRows - 1) / kPageRows;
    const std::int64_t page = as_page_bytes(AS_RECORD_INDEX_FP8, 128, kPageRows);
    auto& p = scores_.init<as_indexer_logits_params>(AS_OP_INDEXER_LOGITS);
    p.cache = cache_of(AS_RECORD_INDEX_FP8, 128, make(AS_U8, {b * pages * page}).data, b * pages);
    std::vector<unsigned char> one(static_cast<std::size_t>(page));
    for (unsigned char& byte : one) byte = static_cast<unsigned char>(random_() & 0xb7);
    const float scale = 0.0625f;
    for (std::int64_t r = 0; r < kPageRows; ++r) {
      std::memcpy(one.data() + as_scale_offset(AS_RECORD_INDEX_FP8, 128, kPageRows, r), &scale, 4);
    }
    std::vector<unsigned char> many;  // larger pieces upload faster
    while (many.size() < (1u << 22)) many.insert(many.end(), one.begin(), one.end());
    const std::size_t bytes = tensor_bytes(p.cache.data);
    for (std::size_t at = 0; at < bytes; at += many.size()) {
      need(main_.upload(static_cast<unsigned char*>(p.cache.data.data) + at, many.data(),
                        std::min(many.size(), bytes - at)));
    }
    need(main_.synchronize());
    std::vector<std::uint8_t> codes(static_cast<std::size_t>(b * kIndexHeads * 128));
    for (std::uint8_t& code : codes) code = static_cast<std::uint8_t>(random_() & 0xb7);
    p.q = upload(codes, {b, kIndexHeads, 128});
    p.weights = numbers(AS_F32, {b, kIndexHeads});
    std::vector<std::int32_t> table(static_cast<std::size_t>(b * pages)), request;
    std::iota(table.begin(), table.end(), 0);
    std::shuffle(table.begin(), table.end(), random_);
    for (std::int32_t r = 0; r < b; ++r) request.push_back(r);
    p.table = upload(table, {b, pages});
    p.token_to_req = upload(request, {b});
    p.lens = upload(
        std::vector<std::int32_t>(request.size(), static_cast<std::int32_t>(load_.rows())), {b});
    p.logits = make(AS_F32, {b, pages * kPageRows});
    auto& q = chosen_.init<as_indexer_topk_params>(AS_OP_INDEXER_TOPK);
    q.logits = p.logits;
    q.lens = p.lens;
    q.indices = make(AS_I32, {b, load_.top_k});
  }

  // Different places of the pool for all that a step selects; some of them are filled by misses.
  void lists() {
    const std::int64_t b = load_.requests, k = load_.selected(), slots = kPages * kPageRows;
    const std::int64_t came = k * load_.missed / 100;
    std::vector<std::int64_t> order(static_cast<std::size_t>(slots));
    std::iota(order.begin(), order.end(), std::int64_t{0});
    std::shuffle(order.begin(), order.end(), random_);
    std::vector<std::int32_t> list, resident, missed;
    std::vector<std::int64_t> from, to;
    for (std::int64_t t = 0; t < b; ++t) {
      for (std::int64_t i = 0; i < load_.top_k; ++i) {
        const std::int64_t at = i < k ? order[static_cast<std::size_t>(t * k + i)] : -1;
        // Spread over the list.
        const bool comes = i < k && i * came / k != (i + 1) * came / k;
        list.push_back(static_cast<std::int32_t>(at));
        resident.push_back(static_cast<std::int32_t>(comes ? -1 : at));
        missed.push_back(static_cast<std::int32_t>(comes ? at : -1));
        if (!comes) continue;
        to.push_back(at);
        from.push_back(order[order.size() - to.size()]);
      }
    }
    came_ = came;
    const std::initializer_list<std::int64_t> shape = {b, load_.top_k};
    lists_[0] = upload(list, shape);
    lists_[1] = upload(resident, shape);
    lists_[2] = upload(missed, shape);
    auto& p = rows_.init<as_exchange_rows_params>(AS_OP_EXCHANGE_ROWS);
    p.selected = p.places = lists_[0];
    p.slots = make(AS_I32, shape);
    p.fresh = p.pool = pool_;
    p.pages = p.missed = pages_;
    p.fresh_from = p.pages_to =
        upload(std::vector<std::int64_t>(static_cast<std::size_t>(b), -1), {b});
    p.missed_from = upload(from, {static_cast<std::int64_t>(from.size())});
    p.pool_to = upload(to, {static_cast<std::int64_t>(to.size())});
  }

  void attention() {
    const std::int64_t b = load_.requests, h = load_.heads;
    const auto lens = [&](std::int64_t n) {
      return upload(
          std::vector<std::int32_t>(static_cast<std::size_t>(b), static_cast<std::int32_t>(n)),
          {b});
    };
    std::vector<std::int32_t> window;
    for (std::int64_t i = 0; i < b * kWindow; ++i) {
      window.push_back(static_cast<std::int32_t>(random_() % (kPages * kPageRows)));
    }
    auto& p = all_.init<as_sparse_attention_params>(AS_OP_SPARSE_ATTENTION);
    p.q = numbers(AS_BF16, {b, h, 512});
    p.cache = p.extra_cache = pool_;
    p.indices = upload(window, {b, kWindow});
    p.topk_length = lens(kWindow);
    p.extra_indices = lists_[0];
    p.extra_topk_length = lens(load_.selected());
    p.sinks = numbers(AS_F32, {h});
    p.o = make(AS_BF16, {b, h, 512});
    p.lse = make(AS_F32, {b, h});
    p.scale = 1 / std::sqrt(512.0);
    resident_ = missed_ = all_;
    const float none = -std::numeric_limits<float>::infinity();
    for (OpParams* part : {&resident_, &missed_}) {
      auto& q = part->get<as_sparse_attention_params>();
      q.extra_indices = lists_[part == &missed_ ? 2 : 1];
      q.o = make(AS_BF16, {b, h, 512});
      q.lse = make(AS_F32, {b, h});
      if (part == &resident_) continue;
      q.topk_length = lens(0);
      q.sinks = upload(std::vector<float>(static_cast<std::size_t>(h), none), {h});
    }
    nothing_ = make(AS_F32, {b, h, 1});
    need(main_.fill(nothing_.data, 0, tensor_bytes(nothing_)));
    values_ = make(AS_F32, {b, h, 1});
    sinks_ = numbers(AS_F32, {b, h});
    weight_ = make(AS_F32, {b, h});
    with_sinks_ = make(AS_F32, {b, h});
  }

  void call(const Stream& stream, as_op_id op, const void* params) {
    as_call how{};
    how.struct_size = sizeof(how);
    how.stream = stream.handle();
    as_error error{};
    const std::int32_t status = cuda::lane()->ops[op](params, &how, &error);
    if (status != AS_OK) {
      need(Result<void>(Error{static_cast<as_status>(status), error.message, {}}));
    }
  }
  void score(Part part) {
    auto p = scores_.get<as_indexer_logits_params>();
    for (as_tensor* t : {&p.q, &p.weights, &p.lens, &p.logits}) *t = rows_of(*t, part);
    // Requests of a part are numbered from its own first one.
    p.table = rows_of(p.table, part);
    p.token_to_req = rows_of(p.token_to_req, {0, part.end - part.begin});
    call(main_, AS_OP_INDEXER_LOGITS, &p);
  }
  void top_k(Part part) {
    auto p = chosen_.get<as_indexer_topk_params>();
    for (as_tensor* t : {&p.logits, &p.lens, &p.indices}) *t = rows_of(*t, part);
    call(main_, AS_OP_INDEXER_TOPK, &p);
  }
  void select(Part part) {
    score(part);
    top_k(part);
  }
  void exchange(const Stream& stream, Part part) {
    auto p = rows_.get<as_exchange_rows_params>();
    for (as_tensor* t : {&p.selected, &p.places, &p.slots, &p.fresh_from, &p.pages_to}) {
      *t = rows_of(*t, part);
    }
    const Part moves{part.begin * came_, part.end * came_};
    p.missed_from = rows_of(p.missed_from, moves);
    p.pool_to = rows_of(p.pool_to, moves);
    call(stream, AS_OP_EXCHANGE_ROWS, &p);
  }
  void attend(const OpParams& params, Part part) {
    auto p = params.get<as_sparse_attention_params>();
    for (as_tensor* t :
         {&p.q, &p.indices, &p.topk_length, &p.extra_indices, &p.extra_topk_length, &p.o, &p.lse}) {
      *t = rows_of(*t, part);
    }
    call(main_, AS_OP_SPARSE_ATTENTION, &p);
  }
  void merge(const as_tensor& a, const as_tensor& of_a, const as_tensor& b, const as_tensor& of_b,
             const as_tensor& out, const as_tensor& lse) {
    OpParams params;
    auto& p = params.init<as_merge_states_params>(AS_OP_MERGE_STATES);
    p.a = a, p.lse_a = of_a, p.b = b, p.lse_b = of_b, p.out = out, p.lse = lse;
    call(main_, AS_OP_MERGE_STATES, params.data());
  }
  void merge() {
    const auto& a = resident_.get<as_sparse_attention_params>();
    const auto& b = missed_.get<as_sparse_attention_params>();
    const auto& whole = all_.get<as_sparse_attention_params>();
    merge(nothing_, a.lse, nothing_, sinks_, values_, weight_);
    merge(a.o, weight_, b.o, b.lse, whole.o, with_sinks_);
    merge(nothing_, a.lse, nothing_, b.lse, values_, whole.lse);
  }
  // Rows that travel on the other stream, and what the main one does meanwhile.
  void beside(const std::function<void()>& travel, const std::function<void()>& meanwhile) {
    need(fork_.record(main_));
    need(side_.wait(fork_));
    travel();
    need(join_.record(side_));
    meanwhile();
    need(main_.wait(join_));
  }

  double time(const std::function<void()>& work) {
    work();  // workspaces get their size
    need(main_.synchronize());
    const Graph graph = need(Graph::capture(main_, [&] {
      work();
      return Result<void>();
    }));
    std::vector<double> times;
    for (int i = 0; i < kReplays + 3; ++i) {
      need(main_.fill(flushed_.data(), i, kFlushed));
      need(begin_.record(main_));
      need(graph.launch(main_));
      need(end_.record(main_));
      if (i >= 3)
        times.push_back(need(end_.since(begin_)));
      else
        need(main_.synchronize());
    }
    std::ranges::sort(times);
    return times[times.size() / 2];
  }

  Load load_;
  Stream main_ = need(Stream::create()), side_ = need(Stream::create(true));
  Event begin_ = need(Event::create()), end_ = need(Event::create());
  Event fork_ = need(Event::create()), join_ = need(Event::create());
  DeviceMemory flushed_ = need(DeviceMemory::allocate(kFlushed));
  std::mt19937_64 random_{3};
  PinnedMemory host_;
  std::vector<DeviceMemory> owned_;
  as_cache pages_{}, pool_{};
  as_tensor lists_[3] = {};  // all, resident, missed
  std::int64_t came_ = 0;    // rows that a request misses
  OpParams scores_, chosen_, rows_, all_, resident_, missed_;
  as_tensor nothing_{}, values_{}, sinks_{}, weight_{}, with_sinks_{};
};

}  // namespace
}  // namespace attnscope

int main(int argc, char** argv) {
  using namespace attnscope;
  const auto& found = cuda::Device::get();
  if (!found) {
    fmt::print(stderr, "gpu_pools: {}\n", found.error().text());
    return found.error().code;
  }
  const std::string filter = argc > 1 ? argv[1] : "";
  fmt::print("{}; us, median of {} replays\n{:<9}{:>4}{:>8}{:>6}{:>9}{:>9}{:>9}{:>10}{:>9}{:>9}\n",
             (*found)->info().name, kReplays, "model", "b", "context", "miss", "scores", "rows",
             "attend", "none", "da", "dba");
  struct Model {
    const char* name;
    std::int64_t heads, top_k, tokens_per_row;
  };
  // Selections of either model; both over V4's rows and a window.
  for (const Model& m : {Model{"v4-flash", 64, 512, 4}, Model{"v3.2", 128, 2048, 1}}) {
    if (std::string(m.name).find(filter) == std::string::npos) continue;
    for (const std::int64_t requests : {8, 64}) {
      for (const std::int64_t context : {4096, 16384, 65536, 131072}) {
        for (const std::int64_t missed : {5, 20}) {
          Bench({m.name, m.heads, m.top_k, m.tokens_per_row, requests, context, missed}).print();
        }
      }
    }
  }
  return 0;
}
