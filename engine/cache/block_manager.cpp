#include "engine/cache/block_manager.h"

#include <algorithm>
#include <unordered_map>

#include "engine/cache/free_list.h"
#include "kernels/layout/records.h"

namespace attnscope {
namespace {

struct GroupRule {
  std::int64_t block_tokens = 0;
  std::int64_t window = 0;  // 0 = full
};

class PoolManager final : public BlockManager {
 public:
  PoolManager(const CacheLayout& layout, std::int64_t num_blocks)
      : free_(std::max<std::int64_t>(num_blocks, 1), AS_NULL_BLOCK + 1),
        owners_(static_cast<std::size_t>(std::max<std::int64_t>(num_blocks, 1))) {
    for (const CacheGroup& g : layout.groups) groups_.push_back({g.block_tokens, g.window});
  }

  bool allocate(std::int32_t request, std::int64_t computed, std::int64_t total) override {
    auto [it, inserted] = tables_.try_emplace(request, groups_.size());
    std::vector<Table>& tables = it->second;
    std::int64_t needed = 0;
    for (std::size_t g = 0; g < groups_.size(); ++g) {
      drop_window(tables[g], groups_[g], computed);
      needed += missing(tables[g], groups_[g], total);
    }
    if (needed > free_.size()) {
      if (inserted) tables_.erase(it);
      return false;
    }
    for (std::size_t g = 0; g < groups_.size(); ++g) {
      for (std::int64_t n = missing(tables[g], groups_[g], total); n > 0; --n) {
        const std::int32_t id = free_.pop_front();
        owners_[static_cast<std::size_t>(id)] = {request,
                                                 static_cast<std::int32_t>(g),
                                                 static_cast<std::int32_t>(tables[g].size()),
                                                 1,
                                                 request,
                                                 false};
        tables[g].push_back(id);
      }
    }
    return true;
  }

  void free(std::int32_t request) override {
    const auto it = tables_.find(request);
    if (it == tables_.end()) return;
    for (Table& table : it->second) {
      for (auto id = table.rbegin(); id != table.rend(); ++id) {
        if (*id != AS_NULL_BLOCK) give_back(*id);
      }
    }
    tables_.erase(it);
  }

  std::span<const std::int32_t> table(std::int32_t request, int group) const override {
    const auto it = tables_.find(request);
    if (it == tables_.end() || group < 0 || static_cast<std::size_t>(group) >= groups_.size()) {
      return {};
    }
    return it->second[static_cast<std::size_t>(group)];
  }

  std::vector<std::int32_t> free_list() const override { return free_.ids(); }
  std::int64_t num_blocks() const override { return static_cast<std::int64_t>(owners_.size()); }
  std::int64_t num_free() const override { return free_.size(); }
  const std::vector<BlockOwner>& owners() const override { return owners_; }

  bool restore(const std::vector<RequestTables>& tables,
               const std::vector<std::int32_t>& free_list) override {
    const std::int64_t pool = num_blocks();
    std::vector<BlockOwner> owners(owners_.size());
    std::vector<bool> seen(owners_.size(), false);
    std::int64_t known = AS_NULL_BLOCK + 1;
    const auto take = [&](std::int32_t id) {
      if (id <= AS_NULL_BLOCK || id >= pool || seen[static_cast<std::size_t>(id)]) return false;
      seen[static_cast<std::size_t>(id)] = true;
      ++known;
      return true;
    };
    std::unordered_map<std::int32_t, std::vector<Table>> by_request;
    for (const RequestTables& r : tables) {
      const bool fresh = by_request.emplace(r.request, r.tables).second;
      if (!fresh || r.request < 0 || r.tables.size() != groups_.size()) return false;
      for (std::size_t g = 0; g < r.tables.size(); ++g) {
        for (std::size_t i = 0; i < r.tables[g].size(); ++i) {
          const std::int32_t id = r.tables[g][i];
          if (id == AS_NULL_BLOCK) continue;
          if (!take(id)) return false;
          owners[static_cast<std::size_t>(id)] = {
              r.request, static_cast<std::int32_t>(g), static_cast<std::int32_t>(i), 1, r.request,
              false};
        }
      }
    }
    FreeList free(pool, static_cast<std::int32_t>(pool));
    for (const std::int32_t id : free_list) {
      if (!take(id)) return false;
      free.push_back(id);
    }
    if (known != pool) return false;
    tables_ = std::move(by_request);
    owners_ = std::move(owners);
    free_ = std::move(free);
    return true;
  }

  std::unique_ptr<BlockManager> clone() const override {
    return std::make_unique<PoolManager>(*this);
  }

 private:
  using Table = std::vector<std::int32_t>;

  static std::int64_t missing(const Table& table, const GroupRule& rule, std::int64_t total) {
    const std::int64_t wanted = (total + rule.block_tokens - 1) / rule.block_tokens;
    return std::max<std::int64_t>(wanted - static_cast<std::int64_t>(table.size()), 0);
  }

  // Blocks that lie wholly before the window of the token after `computed`. From the newest down
  // to the first null: what is older was dropped before.
  void drop_window(Table& table, const GroupRule& rule, std::int64_t computed) {
    if (rule.window == 0) return;
    const std::int64_t skipped = std::max<std::int64_t>(computed - rule.window + 1, 0);
    const std::int64_t end =
        std::min(skipped / rule.block_tokens, static_cast<std::int64_t>(table.size()));
    for (std::int64_t i = end - 1; i >= 0; --i) {
      std::int32_t& entry = table[static_cast<std::size_t>(i)];
      if (entry == AS_NULL_BLOCK) return;
      give_back(entry);
      entry = AS_NULL_BLOCK;
    }
  }

  void give_back(std::int32_t id) {
    owners_[static_cast<std::size_t>(id)] = {};
    free_.push_back(id);
  }

  std::vector<GroupRule> groups_;
  FreeList free_;
  std::vector<BlockOwner> owners_;
  std::unordered_map<std::int32_t, std::vector<Table>> tables_;  // request -> table per group
};

}  // namespace

std::unique_ptr<BlockManager> make_block_manager(const CacheLayout& layout,
                                                 std::int64_t num_blocks) {
  return std::make_unique<PoolManager>(layout, num_blocks);
}

}  // namespace attnscope
