#include "engine/cache/kv_snapshot.h"

namespace attnscope {

KvSnapshot take_snapshot(const KvManager& kv) {
  const BlockPool& pool = kv.pool();
  KvSnapshot s;
  const auto n = static_cast<std::int32_t>(pool.end_block());
  s.refs.reserve(static_cast<std::size_t>(n));
  s.keys.resize(static_cast<std::size_t>(n));
  for (std::int32_t b = 0; b < n; ++b) {
    s.refs.push_back(pool.refs(b));
    if (!pool.caching() || !pool.map().has_primary(b)) continue;
    std::vector<PrefixKey>& keys = s.keys[static_cast<std::size_t>(b)];
    keys.push_back(pool.map().primary(b));
    if (!pool.map().has_secondary(b)) continue;
    for (const PrefixKey& key : pool.map().secondaries(b)) keys.push_back(key);
  }
  // A broken queue may have a loop.
  const FreeQueue& queue = pool.queue();
  for (std::int32_t id = queue.front(); id != queue.sentinel() && id >= 0; id = queue.next(id)) {
    s.queue.push_back(id);
    if (s.queue.size() > static_cast<std::size_t>(n)) break;
  }
  for (std::size_t slot = 0; slot < kv.num_slots(); ++slot) {
    for (std::size_t g = 0; g < kv.num_groups(); ++g) {
      const GroupTable& table = kv.table(static_cast<std::int32_t>(slot), g);
      s.tables.push_back(table.blocks);
      s.cached.push_back(table.cached);
    }
  }
  s.free_count = pool.num_free();
  return s;
}

std::vector<bool> queued(const KvSnapshot& state) {
  std::vector<bool> in(state.refs.size(), false);
  for (const std::int32_t b : state.queue) in[static_cast<std::size_t>(b)] = true;
  return in;
}

}  // namespace attnscope
