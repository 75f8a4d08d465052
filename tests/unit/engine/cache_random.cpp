// Random traffic on the block manager against a plain model of it, with the invariants stated from
// their definitions.
#include <gtest/gtest.h>

#include <deque>
#include <map>
#include <random>

#include "engine/cache/block_manager.h"

namespace attnscope {
namespace {

using Table = std::vector<std::int32_t>;

// The rules once more, in the simplest data structures.
class PlainModel {
 public:
  PlainModel(const CacheLayout& layout, std::int32_t num_blocks) : layout_(layout) {
    for (std::int32_t id = 1; id < num_blocks; ++id) free_.push_back(id);
  }

  bool allocate(std::int32_t request, std::int64_t computed, std::int64_t total) {
    auto tables =
        tables_.count(request) ? tables_[request] : std::vector<Table>(layout_.groups.size());
    std::size_t needed = 0;
    for (std::size_t g = 0; g < tables.size(); ++g) {
      const CacheGroup& group = layout_.groups[g];
      std::vector<std::int32_t> gone;
      for (std::size_t i = 0; group.window > 0 && i < tables[g].size(); ++i) {
        const auto last = static_cast<std::int64_t>(i + 1) * group.block_tokens - 1;
        if (last > computed - group.window || tables[g][i] == 0) continue;
        gone.push_back(tables[g][i]);
        tables[g][i] = 0;
      }
      free_.insert(free_.end(), gone.rbegin(), gone.rend());
      needed += blocks(total, group) - std::min(blocks(total, group), tables[g].size());
    }
    const bool fits = needed <= free_.size();
    for (std::size_t g = 0; fits && g < tables.size(); ++g) {
      while (tables[g].size() < blocks(total, layout_.groups[g])) {
        tables[g].push_back(free_.front());
        free_.pop_front();
      }
    }
    if (fits || tables_.count(request)) tables_[request] = tables;
    return fits;
  }

  void free(std::int32_t request) {
    for (const Table& table : tables_[request]) {
      for (auto id = table.rbegin(); id != table.rend(); ++id) {
        if (*id != 0) free_.push_back(*id);
      }
    }
    tables_.erase(request);
  }

  const std::deque<std::int32_t>& free_list() const { return free_; }
  const std::map<std::int32_t, std::vector<Table>>& tables() const { return tables_; }

 private:
  static std::size_t blocks(std::int64_t tokens, const CacheGroup& g) {
    return static_cast<std::size_t>((tokens + g.block_tokens - 1) / g.block_tokens);
  }

  const CacheLayout& layout_;
  std::deque<std::int32_t> free_;
  std::map<std::int32_t, std::vector<Table>> tables_;
};

// Every position that the tokens computed..total-1 can see has a real block; every block that none
// of them can see is null; full groups have no null.
void check_window(const BlockManager& m, const CacheLayout& layout, std::int32_t request,
                  std::int64_t computed, std::int64_t total) {
  for (std::size_t g = 0; g < layout.groups.size(); ++g) {
    const CacheGroup& group = layout.groups[g];
    const auto table = m.table(request, static_cast<int>(g));
    for (std::size_t i = 0; i < table.size(); ++i) {
      const auto last = static_cast<std::int64_t>(i + 1) * group.block_tokens - 1;
      const bool visible = group.window == 0 || last > computed - group.window;
      ASSERT_EQ(table[i] != 0, visible) << group.name << " entry " << i;
    }
    ASSERT_GE(static_cast<std::int64_t>(table.size()) * group.block_tokens, total);
  }
}

// Ids are conserved, nobody shares one, owners and tables agree, the null block belongs to nobody.
void check_all(const BlockManager& m, const PlainModel& plain, std::size_t num_groups) {
  const auto list = m.free_list();
  ASSERT_TRUE(
      std::equal(list.begin(), list.end(), plain.free_list().begin(), plain.free_list().end()));
  ASSERT_EQ(static_cast<std::int64_t>(list.size()), m.num_free());
  std::vector<int> seen(static_cast<std::size_t>(m.num_blocks()), 0);
  for (std::int32_t id : list) {
    ++seen[static_cast<std::size_t>(id)];
    ASSERT_EQ(m.owners()[static_cast<std::size_t>(id)].request, -1);
  }
  ASSERT_EQ(seen[0], 0);
  for (const auto& [request, tables] : plain.tables()) {
    for (std::size_t g = 0; g < num_groups; ++g) {
      const auto table = m.table(request, static_cast<int>(g));
      for (std::size_t i = 0; i < table.size(); ++i) {
        if (table[i] == 0) continue;
        ++seen[static_cast<std::size_t>(table[i])];
        const BlockOwner& owner = m.owners()[static_cast<std::size_t>(table[i])];
        ASSERT_EQ(owner.request, request);
        ASSERT_EQ(owner.group, static_cast<std::int32_t>(g));
        ASSERT_EQ(owner.index, static_cast<std::int32_t>(i));
      }
    }
  }
  for (std::size_t id = 1; id < seen.size(); ++id) ASSERT_EQ(seen[id], 1) << "block " << id;
  ASSERT_EQ(m.owners()[0].request, -1);
}

void simulate(const CacheLayout& layout, std::int32_t num_blocks, int operations, unsigned seed) {
  struct Live {
    std::int64_t computed = 0;
    std::int64_t length = 0;
  };
  auto m = make_block_manager(layout, num_blocks);
  PlainModel plain(layout, num_blocks);
  std::map<std::int32_t, Live> live;
  std::mt19937 random(seed);
  std::int32_t next_id = 0;
  int refused = 0;
  for (int op = 0; op < operations; ++op) {
    if (live.size() < 10 && random() % 8 == 0) {
      live[next_id++].length = 1 + static_cast<std::int64_t>(random() % 900);
    }
    if (live.empty()) continue;
    auto it = std::next(live.begin(), static_cast<std::ptrdiff_t>(random() % live.size()));
    Live& r = it->second;
    const auto chunk = random() % 3 == 0 ? 1 + static_cast<std::int64_t>(random() % 200) : 1;
    const std::int64_t total = std::min(r.computed + chunk, r.length);
    const bool fits = m->allocate(it->first, r.computed, total);
    ASSERT_EQ(fits, plain.allocate(it->first, r.computed, total));
    ASSERT_EQ(m->num_free(), static_cast<std::int64_t>(plain.free_list().size()));
    if (fits) {
      check_window(*m, layout, it->first, r.computed, total);
      r.computed = total;
    }
    refused += !fits;
    if (!fits || r.computed == r.length || random() % 400 == 0) {
      m->free(it->first);
      plain.free(it->first);
      live.erase(it);
    } else {
      for (std::size_t g = 0; g < layout.groups.size(); ++g) {
        const auto table = m->table(it->first, static_cast<int>(g));
        const Table& expected = plain.tables().at(it->first)[g];
        ASSERT_TRUE(std::equal(table.begin(), table.end(), expected.begin(), expected.end()));
      }
    }
    if (op % 200 == 0) check_all(*m, plain, layout.groups.size());
    if (::testing::Test::HasFatalFailure()) FAIL() << "operation " << op;
  }
  EXPECT_GT(refused, 0) << "the pool was never short: the test is too easy";
  for (const auto& [request, r] : live) m->free(request);
  EXPECT_EQ(m->num_free(), m->num_blocks() - 1);
}

TEST(BlockManagerRandom, FiveGroups) {
  simulate(build_cache_layout(*preset("v4-flash")), 420, 150000, 1);
}

TEST(BlockManagerRandom, WindowOnly) {
  simulate(build_cache_layout(*preset("v4-flash", {0, 1})), 24, 60000, 2);
}

TEST(BlockManagerRandom, ManySwaGroups) {
  simulate(build_cache_layout(*preset("v4-flash", {0, 1, 3})), 160, 40000, 3);
}

}  // namespace
}  // namespace attnscope
