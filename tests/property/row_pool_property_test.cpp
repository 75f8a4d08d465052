// The pool of rows against a model of it in a few lines: random steps, warm-ups and ends of
// requests; hits, misses, evictions and order, by both policies.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>
#include <vector>

#include "engine/offload/row_pool.h"
#include "tests/property/harness.h"

namespace attnscope {
namespace row_pool_property_test {

// A list, the next to be evicted first.
struct PlainPool {
  std::size_t room;
  bool lru;
  std::vector<HostRow> list;

  bool has(const HostRow& row) const { return std::ranges::find(list, row) != list.end(); }
  void use(const HostRow& row) {
    if (!lru) return;
    std::erase(list, row);
    list.push_back(row);
  }
  void enter(const HostRow& row, const std::set<HostRow>& needed, std::vector<HostRow>& gone) {
    if (list.size() == room) {
      const auto victim =
          std::ranges::find_if(list, [&](const HostRow& r) { return !needed.contains(r); });
      gone.push_back(*victim);
      list.erase(victim);
    }
    list.push_back(row);
  }
};

std::vector<HostRow> rows_of(const std::vector<RowMove>& moves) {
  std::vector<HostRow> out;
  for (const RowMove& m : moves) out.push_back(m.row);
  return out;
}

class RowPoolProperty : public testing::TestWithParam<PoolPolicy> {};

TEST_P(RowPoolProperty, DoesAsThePlainModel) {
  std::mt19937_64 random(properties::case_seed("row_pool"));
  const auto below = [&](std::int64_t n) {
    return static_cast<std::int32_t>(random() % static_cast<std::uint64_t>(n));
  };
  for (int run = 0; run < 200; ++run) {
    const int room = 4 + below(12);
    RowPool pool({.rows = room, .policy = GetParam()});
    PlainPool plain{static_cast<std::size_t>(room), GetParam() == PoolPolicy::kLru, {}};
    std::map<HostRow, std::int32_t> place;  // where bytes of a row are
    for (int s = 0; s < 60; ++s) {
      if (below(12) == 0) {
        const std::int32_t request = below(3);
        const HostRowRange gone{request, below(12), 1 + below(24)};
        pool.drop(gone);
        const auto leaves = [&](const HostRow& r) {
          return r.request == request && r.row >= gone.first && r.row < gone.first + gone.rows;
        };
        std::erase_if(plain.list, leaves);
        std::erase_if(place, [&](const auto& p) { return leaves(p.first); });
      }
      std::vector<HostRow> selected, written;
      for (int i = below(5); i > 0; --i) selected.push_back({below(3), below(20)});
      for (std::int32_t request = 0; request < 2; ++request) {
        if (below(3) == 0) written.push_back({request, below(24)});
      }
      std::set<HostRow> needed(selected.begin(), selected.end());
      needed.insert(written.begin(), written.end());
      const auto done = pool.step(written, selected);
      if (needed.size() > static_cast<std::size_t>(room)) {
        EXPECT_FALSE(done);
        continue;
      }
      ASSERT_TRUE(done) << done.error().text();
      std::vector<HostRow> hits, misses, gone;
      const std::set<HostRow> made(written.begin(), written.end());
      for (const HostRow& row : written) {
        if (plain.has(row)) plain.use(row);
      }
      for (const HostRow& row : written) {
        if (!plain.has(row)) plain.enter(row, made, gone);
      }
      for (const HostRow& row : selected) {
        if (made.contains(row)) continue;
        if (!plain.has(row) || std::ranges::find(hits, row) != hits.end()) continue;
        hits.push_back(row);
        plain.use(row);
      }
      for (const HostRow& row : selected) {
        if (plain.has(row)) continue;
        misses.push_back(row);
        plain.enter(row, needed, gone);
      }
      EXPECT_EQ(rows_of(done->hits), hits);
      EXPECT_EQ(rows_of(done->misses), misses);
      EXPECT_EQ(rows_of(done->evictions), gone);
      EXPECT_EQ(rows_of(pool.by_age()), plain.list);
      // Bytes moved as the answer says are where it says they are.
      for (const RowMove& m : done->evictions) {
        EXPECT_EQ(place.at(m.row), m.at);
        place.erase(m.row);
      }
      for (const RowMove& m : done->misses) place[m.row] = m.at;
      for (const RowMove& m : done->written) place[m.row] = m.at;
      ASSERT_EQ(done->at.size(), selected.size());
      std::set<std::int32_t> places;
      for (const auto& [row, at] : place) EXPECT_TRUE(places.insert(at).second) << at;
      for (std::size_t i = 0; i < selected.size(); ++i) {
        EXPECT_EQ(place.at(selected[i]), done->at[i]);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Policies, RowPoolProperty,
                         testing::Values(PoolPolicy::kLru, PoolPolicy::kFifo),
                         [](const auto& policy) { return pool_policy_name(policy.param); });

}  // namespace row_pool_property_test
}  // namespace attnscope
