// exchange_rows on every lane against ref.sim: rows of each format, byte for byte, with holes in
// every list; rows that nobody names stay what they were; bad slots are refused.
#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <string>
#include <vector>

#include "kernels/params/offload_params.h"
#include "kernels/params/row_format.h"
#include "tests/property/checks.h"

namespace attnscope {
namespace exchange_rows_property_test {

struct Format {
  std::int32_t record, width;
};
constexpr Format kFormats[] = {
    {AS_RECORD_LATENT, 512}, {AS_RECORD_LATENT_656, 576}, {AS_RECORD_BF16, 576}};
constexpr std::int64_t kRows = 8, kBlocks = 9;  // of a page; of the cache

// What is read lies apart from what is written, so that inputs can be seen to stay what they were.
struct Call {
  std::vector<std::uint8_t> read, pages;
  std::vector<std::int32_t> selected, places, slots;
  std::vector<std::int64_t> fresh_from, pages_to, missed_from, pool_to;
  as_cache cache{}, from{};
  OpParams params;
};

// Pages are slots 0 to 47, the pool's 48 to 71.
void make_call(Call& call, const Format& format, properties::Random& random) {
  const auto below = [&](std::int64_t n) {
    return static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(n));
  };
  const as_row_layout layout = as_row_layout_of(format.record, format.width, 1, kRows);
  const std::int64_t page = layout.page;
  call.pages.resize(static_cast<std::size_t>(kBlocks * page));
  for (std::uint8_t& byte : call.pages) byte = static_cast<std::uint8_t>(random());
  call.read.resize(call.pages.size());
  for (std::uint8_t& byte : call.read) byte = static_cast<std::uint8_t>(random());
  call.cache.data = make_tensor(call.pages.data(), {kBlocks, page});
  call.cache.record = format.record;
  call.cache.addressing = AS_PAGED;
  call.cache.rows_per_block = kRows;
  call.cache.width = format.width;
  const std::int64_t tokens = 1 + below(6), listed = 1 + below(9), moves = 1 + below(12);
  std::vector<std::int64_t> pool(24), host(48);
  std::iota(pool.begin(), pool.end(), 48);
  std::iota(host.begin(), host.end(), 0);
  std::shuffle(pool.begin(), pool.end(), random);
  std::shuffle(host.begin(), host.end(), random);
  std::size_t next_pool = 0, next_host = 0;
  for (std::int64_t t = 0; t < tokens; ++t) {
    const bool some = below(3) != 0;
    call.fresh_from.push_back(some ? pool[next_pool++] : -1);
    call.pages_to.push_back(some ? host[next_host++] : -1);
    for (std::int64_t k = 0; k < listed; ++k) {
      call.selected.push_back(static_cast<std::int32_t>(below(49) - 1));
      call.places.push_back(static_cast<std::int32_t>(below(3) == 0 ? -1 : 48 + below(24)));
    }
  }
  for (std::int64_t m = 0; m < moves; ++m) {
    const bool some = below(5) != 0;
    call.missed_from.push_back(some ? host[next_host++] : -1);
    call.pool_to.push_back(some ? pool[next_pool++] : -1);
  }
  call.slots.assign(call.selected.size(), -7);
  auto& p = call.params.init<as_exchange_rows_params>(AS_OP_EXCHANGE_ROWS);
  p.selected = make_tensor(call.selected.data(), {tokens, listed});
  p.places = make_tensor(call.places.data(), {tokens, listed});
  p.slots = make_tensor(call.slots.data(), {tokens, listed});
  call.from = call.cache;
  call.from.data.data = call.read.data();
  p.fresh = p.missed = call.from;
  p.pages = p.pool = call.cache;
  p.fresh_from = make_tensor(call.fresh_from.data(), {tokens});
  p.pages_to = make_tensor(call.pages_to.data(), {tokens});
  p.missed_from = make_tensor(call.missed_from.data(), {moves});
  p.pool_to = make_tensor(call.pool_to.data(), {moves});
}

// The rows of all slots one after another, as references see them.
std::vector<std::uint8_t> rows_of(const as_cache& cache) {
  const auto bytes = static_cast<std::size_t>(as_cache_row_bytes(&cache));
  std::vector<std::uint8_t> rows(bytes * kRows * kBlocks);
  for (std::int64_t slot = 0; slot < kRows * kBlocks; ++slot) {
    as_row_get(&cache, slot, rows.data() + static_cast<std::size_t>(slot) * bytes);
  }
  return rows;
}

}  // namespace exchange_rows_property_test

namespace properties {

Report check_exchange_rows(const Lane& lane, int which) {
  using namespace exchange_rows_property_test;
  const Format& format = kFormats[which % static_cast<int>(std::size(kFormats))];
  Report report(case_seed(fmt::format("exchange_rows {}", which)));
  Random random(report.seed());
  Call call;
  make_call(call, format, random);
  std::vector<std::uint8_t> due = rows_of(call.cache);
  if (!run(lane, call.params, &report)) return report;

  OpParams logical = call.params;
  auto& p = logical.get<as_exchange_rows_params>();
  std::vector<std::int32_t> slots(call.slots.size(), -7);
  as_cache rows = call.cache;
  rows.addressing = AS_LOGICAL;
  rows.rows_per_block = 0;
  rows.data = make_tensor(due.data(), {kRows * kBlocks, as_cache_row_bytes(&call.cache)});
  p.pages = p.pool = rows;
  std::vector<std::uint8_t> read = rows_of(call.from);
  rows.data.data = read.data();
  p.fresh = p.missed = rows;
  p.slots = make_tensor(slots.data(), {p.slots.shape[0], p.slots.shape[1]});
  if (!run(*reference::sim_lane(), logical, &report)) return report;
  if (rows_of(call.cache) != due) report.fail("pool", "other rows than ref.sim moves");
  if (call.slots != slots) report.fail("slots", "others than ref.sim's");
  return report;
}

}  // namespace properties

namespace exchange_rows_property_test {

TEST(ExchangeRows, MovesWhatTheReferenceMovesAndNothingElse) {
  for (int which = 0; which < 60; ++which) {
    const properties::Report report = properties::check_exchange_rows(*cpu::lane(), which);
    EXPECT_TRUE(report.ok()) << report;
  }
}

TEST(ExchangeRows, RefusesSlotsThatAreNotThere) {
  properties::Random random(5);
  for (int what = 0; what < 4; ++what) {
    Call call;
    make_call(call, kFormats[0], random);
    call.pool_to[0] = call.missed_from[0] = 3;
    if (what == 0) call.pool_to[0] = kRows * kBlocks;
    if (what == 1) call.missed_from[0] = -2;
    if (what == 2) call.places[0] = kRows * kBlocks;
    if (what == 3) call.params.get<as_exchange_rows_params>().pool.width = 576;
    const std::vector<std::uint8_t> before = call.pages;
    as_error error{};
    ASSERT_NE(cpu::lane()->ops[AS_OP_EXCHANGE_ROWS](call.params.data(), nullptr, &error), AS_OK);
    constexpr const char* kSaid[] = {"pool_to[0] is slot 72", "missed_from[0] is slot -2",
                                     "places[0,0] is slot 72", "all four are one cache"};
    EXPECT_NE(std::string(error.message).find(kSaid[what]), std::string::npos) << error.message;
    EXPECT_EQ(call.pages, before);
  }
}

}  // namespace exchange_rows_property_test
}  // namespace attnscope
