// Time of the block manager's pool a block, by how many blocks the pool has.
#include <algorithm>
#include <array>
#include <chrono>

#include "app/reports/scale.h"
#include "engine/cache/block_pool.h"

namespace attnscope {
namespace {

constexpr std::int64_t kLeastPool = 1 << 10;
constexpr std::int64_t kTaken = 256;     // blocks that a request takes at once
constexpr std::int64_t kTurns = 1 << 9;  // of a round
constexpr int kRounds = 7;

// A request that takes blocks and gives them back; with keys, each block gets another content.
class PoolUser {
 public:
  PoolUser(std::int64_t blocks, bool keys)
      : pool_(blocks + 1, keys, keys ? FreeOrder::kAppend : FreeOrder::kSplitFront), keys_(keys) {
    // Every block has been used, and has a key, before time counts.
    for (std::int64_t used = 0; used < blocks; used += kTaken) turn();
  }

  // Nanoseconds a block, the median of rounds.
  double measure() {
    using Clock = std::chrono::steady_clock;
    std::array<double, kRounds> times{};
    for (double& ns : times) {
      const Clock::time_point start = Clock::now();
      for (std::int64_t i = 0; i < kTurns; ++i) turn();
      const std::chrono::duration<double, std::nano> spent = Clock::now() - start;
      ns = spent.count() / static_cast<double>(kTurns * kTaken);
    }
    std::sort(times.begin(), times.end());
    return times[kRounds / 2];
  }
  const BlockPool& pool() const { return pool_; }

 private:
  void turn() {
    taken_.clear();
    pool_.get(kTaken, taken_);
    for (std::size_t i = 0; keys_ && i < taken_.size(); ++i) {
      ++content_;
      pool_.cache(taken_[i], {content_ * 0x9e3779b97f4a7c15u, content_}, 0);
    }
    pool_.release(taken_);
  }

  BlockPool pool_;
  bool keys_;
  std::uint64_t content_ = 0;
  std::vector<std::int32_t> taken_;
};

}  // namespace

std::vector<ScaleBlocks> measure_blocks(std::int64_t max_blocks) {
  std::vector<ScaleBlocks> out;
  for (std::int64_t blocks = kLeastPool; blocks <= max_blocks; blocks *= 4) {
    ScaleBlocks row;
    row.blocks = blocks;
    row.get_release_ns = PoolUser(blocks, false).measure();
    PoolUser user(blocks, true);
    const std::int64_t before = user.pool().evictions();
    row.evict_ns = user.measure();
    row.evicted = static_cast<double>(user.pool().evictions() - before) /
                  static_cast<double>(kRounds * kTurns * kTaken);
    out.push_back(row);
  }
  return out;
}

}  // namespace attnscope
