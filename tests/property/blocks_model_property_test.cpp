// The pool against a model of it in a few lines, by RapidCheck: random sequences of calls, shrunk
// to the shortest that fails. RC_PARAMS sets seed and number of runs.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>
#include <rapidcheck/state.h>

#include <algorithm>
#include <deque>
#include <map>
#include <ostream>
#include <set>
#include <vector>

#include "engine/cache/block_pool.h"

namespace attnscope {
namespace blocks_model_property_test {

using Ids = std::vector<std::int32_t>;
constexpr std::int32_t kBlocks = 9;

// Blocks as lists and maps, one at a time.
struct Model {
  FreeOrder order = FreeOrder::kAppend;
  std::deque<std::int32_t> queue;
  std::map<std::int32_t, int> refs;
  std::map<std::int32_t, std::int32_t> key;               // block -> content
  std::map<std::int32_t, std::vector<std::int32_t>> map;  // content -> blocks, oldest first

  void forget(std::int32_t block) {
    if (!key.contains(block)) return;
    Ids& blocks = map[key[block]];
    std::erase(blocks, block);
    if (blocks.empty()) map.erase(key[block]);
    key.erase(block);
  }
  Ids held() const {
    Ids out;
    for (const auto& [block, n] : refs) {
      if (n > 0) out.push_back(block);
    }
    return out;
  }
};

BlockHash content(std::int32_t c) { return {static_cast<std::uint64_t>(c), 99}; }

void check(const Model& m, const BlockPool& pool) {
  RC_ASSERT(pool.queue().ids() == Ids(m.queue.begin(), m.queue.end()));
  RC_ASSERT(pool.queue().consistent());
  RC_ASSERT(pool.num_keys() == static_cast<std::int64_t>(m.map.size()));
  std::int64_t free_with_key = 0;
  for (const std::int32_t b : m.queue) free_with_key += m.key.contains(b) ? 1 : 0;
  RC_ASSERT(pool.free_with_key() == free_with_key);
  for (std::int32_t b = 1; b < kBlocks; ++b) {
    const auto it = m.refs.find(b);
    RC_ASSERT(pool.refs(b) == (it == m.refs.end() ? 0 : it->second));
    RC_ASSERT(pool.hashed(b) == m.key.contains(b));
  }
  for (std::int32_t c = 0; c < 4; ++c) {
    const auto it = m.map.find(c);
    RC_ASSERT(pool.map().blocks({content(c), 0}) == (it == m.map.end() ? Ids() : it->second));
    RC_ASSERT(pool.find(content(c), 0) == (it == m.map.end() ? -1 : it->second.front()));
  }
}

using Command = rc::state::Command<Model, BlockPool>;

struct Get : Command {
  std::int64_t n = *rc::gen::inRange<std::int64_t>(0, 5);
  void apply(Model& m) const override {
    if (n > static_cast<std::int64_t>(m.queue.size())) return;
    for (std::int64_t i = 0; i < n; ++i) {
      const std::int32_t b = m.queue.front();
      m.queue.pop_front();
      m.forget(b);
      m.refs[b] = 1;
    }
  }
  void run(const Model& m, BlockPool& pool) const override {
    Ids out;
    const bool enough = n <= static_cast<std::int64_t>(m.queue.size());
    RC_ASSERT(pool.get(n, out) == enough);
    RC_ASSERT(out == (enough ? Ids(m.queue.begin(), m.queue.begin() + n) : Ids()));
    check(nextState(m), pool);
  }
  void show(std::ostream& out) const override { out << "get " << n; }
};

struct Touch : Command {
  Ids blocks = *rc::gen::container<Ids>(rc::gen::inRange<std::int32_t>(0, kBlocks));
  void apply(Model& m) const override {
    for (const std::int32_t b : blocks) {
      if (b == 0) continue;
      if (m.refs[b]++ == 0) m.queue.erase(std::find(m.queue.begin(), m.queue.end(), b));
    }
  }
  void run(const Model& m, BlockPool& pool) const override {
    pool.touch(blocks);
    check(nextState(m), pool);
  }
  void show(std::ostream& out) const override { out << "touch " << rc::toString(blocks); }
};

struct Release : Command {
  Ids blocks;
  explicit Release(const Model& m) {
    const Ids held = m.held();
    if (held.empty()) return;
    const auto chosen = *rc::gen::container<std::set<std::int32_t>>(rc::gen::elementOf(held));
    blocks.assign(chosen.rbegin(), chosen.rend());
  }
  void checkPreconditions(const Model& m) const override {
    for (const std::int32_t b : blocks) {
      const auto it = m.refs.find(b);
      RC_PRE(it != m.refs.end() && it->second > 0);
    }
  }
  void apply(Model& m) const override {
    Ids front, back;
    for (const std::int32_t b : blocks) {
      if (--m.refs[b] > 0) continue;
      (m.order != FreeOrder::kAppend && !m.key.contains(b) ? front : back).push_back(b);
    }
    m.queue.insert(m.queue.begin(), front.begin(), front.end());
    m.queue.insert(m.queue.end(), back.begin(), back.end());
  }
  void run(const Model& m, BlockPool& pool) const override {
    pool.release(blocks);
    check(nextState(m), pool);
  }
  void show(std::ostream& out) const override { out << "release " << rc::toString(blocks); }
};

struct Cache : Command {
  std::int32_t block = 0;
  std::int32_t c = *rc::gen::inRange<std::int32_t>(0, 4);
  explicit Cache(const Model& m) {
    const Ids held = m.held();
    if (!held.empty()) block = *rc::gen::elementOf(held);
  }
  void checkPreconditions(const Model& m) const override {
    const auto it = m.refs.find(block);
    RC_PRE(it != m.refs.end() && it->second > 0 && !m.key.contains(block));
  }
  void apply(Model& m) const override {
    m.key[block] = c;
    m.map[c].push_back(block);
  }
  void run(const Model& m, BlockPool& pool) const override {
    pool.cache(block, content(c), 0);
    check(nextState(m), pool);
  }
  void show(std::ostream& out) const override { out << "cache " << block << " as " << c; }
};

struct Evict : Command {
  Ids blocks = *rc::gen::container<Ids>(rc::gen::inRange<std::int32_t>(1, kBlocks + 1));
  void apply(Model& m) const override {
    if (std::count(blocks.begin(), blocks.end(), kBlocks) > 0) return;
    for (const std::int32_t b : blocks) m.forget(b);
  }
  void run(const Model& m, BlockPool& pool) const override {
    RC_ASSERT(pool.evict(blocks) == (std::count(blocks.begin(), blocks.end(), kBlocks) == 0));
    check(nextState(m), pool);
  }
  void show(std::ostream& out) const override { out << "evict " << rc::toString(blocks); }
};

struct Reset : Command {
  void apply(Model& m) const override {
    if (!m.held().empty()) return;
    m.key.clear();
    m.map.clear();
  }
  void run(const Model& m, BlockPool& pool) const override {
    RC_ASSERT(pool.reset() == m.held().empty());
    check(nextState(m), pool);
  }
  void show(std::ostream& out) const override { out << "reset"; }
};

RC_GTEST_PROP(BlocksModel, PoolDoesWhatItsModelDoes, ()) {
  Model model;
  model.order = *rc::gen::element(FreeOrder::kAppend, FreeOrder::kSplitFront);
  for (std::int32_t b = 1; b < kBlocks; ++b) model.queue.push_back(b);
  BlockPool pool(kBlocks, true, model.order);
  rc::state::check(model, pool,
                   rc::state::gen::execOneOfWithArgs<Get, Touch, Release, Cache, Evict, Reset>());
}

}  // namespace blocks_model_property_test
}  // namespace attnscope
