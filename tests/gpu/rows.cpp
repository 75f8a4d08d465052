// How fast rows of a cache come from pinned host memory into the pool of a GPU, and go back: by
// exchange_rows, whose warps read and write host memory themselves, beside one copy a row, one call
// with all copies, and one copy of rows that the CPU has put together. Rows lie anywhere.
//
// Prints GB/s of row bytes, each the median of several runs, from the call to the end of it.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "kernels/cuda/cuda_lane.h"
#include "kernels/cuda/device.h"
#include "kernels/params/offload_params.h"
#include "kernels/params/row_format.h"
#include "kernels/params/tensor_view.h"
#include "tests/gpu/need.h"

namespace attnscope {
namespace {

constexpr int kRuns = 15;
constexpr std::int64_t kPageRows = 64;

using cuda::DeviceMemory;
using cuda::PinnedMemory;
using cuda::Stream;

double median_seconds(const Stream& stream, const std::function<void()>& work) {
  std::vector<double> seconds;
  for (int i = 0; i <= kRuns; ++i) {
    const auto start = std::chrono::steady_clock::now();
    work();
    need(stream.synchronize());
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    if (i > 0) seconds.push_back(took.count());  // the first one warms up
  }
  std::nth_element(seconds.begin(), seconds.begin() + kRuns / 2, seconds.end());
  return seconds[kRuns / 2];
}

struct RowKind {
  const char* name;
  std::int32_t record, width;
};
constexpr RowKind kKinds[] = {{"576 (bf16)", AS_RECORD_BF16, 288},
                              {"584 (latent, scales apart)", AS_RECORD_LATENT, 512},
                              {"656 (latent_656)", AS_RECORD_LATENT_656, 576}};

class Bench {
 public:
  Bench(const RowKind& kind, std::int64_t count) : count_(count) {
    const as_row_layout l = as_row_layout_of(kind.record, kind.width, 1, kPageRows);
    bytes_ = l.row;
    const std::int64_t host_pages = 2048, pool_pages = (count + kPageRows - 1) / kPageRows;
    page_ = l.page;
    host_ = need(PinnedMemory::allocate(static_cast<std::size_t>(host_pages * page_)));
    staged_ = need(PinnedMemory::allocate(static_cast<std::size_t>(count * bytes_)));
    pool_ = need(DeviceMemory::allocate(static_cast<std::size_t>(pool_pages * page_)));
    std::uint8_t* bytes = host_.data();
    std::mt19937_64 random(7);
    for (std::int64_t i = 0; i < host_pages * page_; ++i)
      bytes[i] = static_cast<std::uint8_t>(i * 7);
    std::vector<std::int64_t> all(static_cast<std::size_t>(host_pages * kPageRows));
    for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<std::int64_t>(i);
    std::shuffle(all.begin(), all.end(), random);
    slots_.assign(all.begin(), all.begin() + count);
    places_.resize(slots_.size());
    for (std::size_t i = 0; i < places_.size(); ++i) places_[i] = static_cast<std::int64_t>(i);
    const auto cache = [&](void* memory, std::int64_t pages) {
      as_cache c{};
      c.data = make_tensor(static_cast<std::uint8_t*>(memory), {pages, page_});
      c.data.device = 1;
      c.record = kind.record;
      c.addressing = AS_PAGED;
      c.rows_per_block = static_cast<std::int32_t>(kPageRows);
      c.width = kind.width;
      return c;
    };
    p_.head = {sizeof(p_), AS_PARAMS_VERSION};
    p_.pages = p_.missed = cache(host_.data(), host_pages);
    p_.fresh = p_.pool = cache(pool_.data(), pool_pages);
    none_ = on_gpu(std::vector<std::int64_t>{-1});
    slots_there_ = on_gpu(slots_);
    places_there_ = on_gpu(places_);
    const std::vector<std::int32_t> nothing(slots_.size(), -1);
    list_ = on_gpu(nothing);
    check();
  }
  Bench(const Bench&) = delete;
  Bench& operator=(const Bench&) = delete;

  double exchanged(bool back) {
    return speed([&] { exchange(back); });
  }
  // Rows without pages: the same bytes, each in one piece.
  double row_by_row(bool back) {
    return speed([&] {
      for (std::int64_t i = 0; i < count_; ++i) {
        const auto [to, from] = ends(i, back);
        need(back ? stream_.download(to, from, size()) : stream_.upload(to, from, size()));
      }
    });
  }
  double batched(bool back) {
    std::vector<const void*> from;
    std::vector<void*> to;
    for (std::int64_t i = 0; i < count_; ++i) {
      const auto pair = ends(i, back);
      to.push_back(pair.first);
      from.push_back(pair.second);
    }
    return speed([&] { need(stream_.copy_pieces(to, from, size())); });
  }
  double put_together(bool back) {
    const auto all = static_cast<std::size_t>(count_ * bytes_);
    return speed([&] {
      const auto each = [&](bool take) {
        for (std::int64_t i = 0; i < count_; ++i) {
          std::uint8_t* row = host_row(i);
          std::uint8_t* place = staged_.data() + i * bytes_;
          std::memcpy(take ? place : row, take ? row : place, static_cast<std::size_t>(bytes_));
        }
      };
      if (!back) each(true);
      need(back ? stream_.download(staged_.data(), pool_.data(), all)
                : stream_.upload(pool_.data(), staged_.data(), all));
      if (back) {
        need(stream_.synchronize());
        each(false);
      }
    });
  }

 private:
  template <class T>
  as_tensor on_gpu(const std::vector<T>& values) {
    const std::size_t bytes = values.size() * sizeof(T);
    owned_.push_back(need(DeviceMemory::allocate(bytes)));
    unsigned char* memory = owned_.back().data();
    need(stream_.upload(memory, values.data(), bytes));
    need(stream_.synchronize());
    as_tensor t =
        make_tensor(reinterpret_cast<T*>(memory), {static_cast<std::int64_t>(values.size())});
    t.device = 1;
    return t;
  }
  std::size_t size() const { return static_cast<std::size_t>(bytes_); }
  double speed(const std::function<void()>& work) const {
    return static_cast<double>(count_ * bytes_) / median_seconds(stream_, work) * 1e-9;
  }
  std::uint8_t* host_row(std::int64_t i) const {
    return host_.data() + slots_[static_cast<std::size_t>(i)] * bytes_;
  }
  std::pair<void*, const void*> ends(std::int64_t i, bool back) const {
    void* there = pool_.data() + i * bytes_;
    return back ? std::pair<void*, const void*>(host_row(i), there)
                : std::pair<void*, const void*>(there, host_row(i));
  }
  void exchange(bool back) {
    as_exchange_rows_params p = p_;
    as_tensor list = list_, one = list_;
    const std::int64_t tokens = back ? count_ : 1;
    for (as_tensor* t : {&list, &one}) {
      t->rank = 2;
      t->shape[0] = tokens;
      t->shape[1] = 1;
      t->stride[0] = t->stride[1] = 1;
    }
    p.selected = p.places = p.slots = list;
    p.fresh_from = back ? places_there_ : none_;
    p.pages_to = back ? slots_there_ : none_;
    p.missed_from = back ? none_ : slots_there_;
    p.pool_to = back ? none_ : places_there_;
    as_call call{};
    call.struct_size = sizeof(call);
    call.stream = stream_.handle();
    as_error error{};
    if (cuda::lane()->ops[AS_OP_EXCHANGE_ROWS](&p, &call, &error) != AS_OK) {
      fmt::print(stderr, "{}\n", error.message);
      std::exit(3);
    }
  }
  // What came in is what lay there, and goes back the same.
  void check() {
    exchange(false);
    need(stream_.synchronize());
    as_cache host = p_.pages, pool = p_.pool;
    std::vector<std::uint8_t> copy(static_cast<std::size_t>(p_.pool.data.shape[0] * page_));
    need(stream_.download(copy.data(), pool_.data(), copy.size()));
    need(stream_.synchronize());
    pool.data.data = copy.data();
    std::vector<std::uint8_t> a(static_cast<std::size_t>(bytes_)), b(a.size());
    for (std::int64_t i = 0; i < count_; ++i) {
      as_row_get(&host, slots_[static_cast<std::size_t>(i)], a.data());
      as_row_get(&pool, i, b.data());
      if (a == b) continue;
      fmt::print(stderr, "row {} came in wrong\n", i);
      std::exit(1);
    }
    std::memset(host_.data(), 0, static_cast<std::size_t>(p_.pages.data.shape[0] * page_));
    exchange(true);
    need(stream_.synchronize());
    for (std::int64_t i = 0; i < count_; ++i) {
      as_row_get(&host, slots_[static_cast<std::size_t>(i)], a.data());
      as_row_get(&pool, i, b.data());
      if (a == b) continue;
      fmt::print(stderr, "row {} went back wrong\n", i);
      std::exit(1);
    }
  }

  std::int64_t count_, bytes_ = 0, page_ = 0;
  Stream stream_ = need(Stream::create());
  PinnedMemory host_, staged_;
  DeviceMemory pool_;
  std::vector<std::int64_t> slots_, places_;
  std::vector<DeviceMemory> owned_;
  as_exchange_rows_params p_{};
  as_tensor none_{}, slots_there_{}, places_there_{}, list_{};
};

int bench_rows() {
  const std::string gpu = need(cuda::Device::get())->info().name;
  fmt::print("{}; GB/s of row bytes, median of {} runs, call to end\n", gpu, kRuns);
  for (const bool back : {false, true}) {
    fmt::print("\n{}\n{:<28}{:>7}{:>15}{:>13}{:>11}{:>14}\n",
               back ? "pool to host (write-back)" : "host to pool (misses)", "row", "rows",
               "exchange_rows", "copy a row", "one batch", "put together");
    for (const RowKind& kind : kKinds) {
      for (const std::int64_t count : {64, 256, 1024, 4096, 16384}) {
        Bench bench(kind, count);
        fmt::print("{:<28}{:>7}{:>15.2f}{:>13.2f}{:>11.2f}{:>14.2f}\n", kind.name, count,
                   bench.exchanged(back), bench.row_by_row(back), bench.batched(back),
                   bench.put_together(back));
        std::fflush(stdout);
      }
    }
  }
  return 0;
}

}  // namespace
}  // namespace attnscope

int main() { return attnscope::bench_rows(); }
