// A stream of cache events that another engine published, and the prefix map that it tells of after
// each batch.
//
//   auto stream = read_kv_stream("events.jsonl");
//   KvStreamMap map(*stream);
//   map.seek(41);               // after batches 0 to 41
//   map.entries();              // what the engine's cache holds then
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/config/kv_event_file.h"

namespace attnscope {

struct KvStream {
  std::string name;  // of the file
  std::vector<KvEventBatch> batches;
};

// Errors: AS_BAD_INPUT naming the line or batch and the event; nothing is half read.
Result<std::shared_ptr<const KvStream>> read_kv_stream(const std::string& path);

// Content that lookups find. Several blocks may hold the same.
struct KvStreamEntry {
  std::int64_t blocks = 0;
  std::int64_t batch = -1;   // that stored it last
  std::int64_t tokens = -1;  // of the prefix that it ends; -1 = its beginning was never stored
  std::string parent;        // hash of the prefix before it; empty: it starts a request
  std::string ends_with;     // its last token ids
  std::string adapter, kind;
};

struct KvStreamCounts {
  std::int64_t stored = 0, removed = 0, cleared = 0;  // events
  std::int64_t unknown = 0;  // removals that name content that was not stored
};

class KvStreamMap {
 public:
  // Each rank has a pool of its own, and so has each medium (GPU, CPU, disk).
  struct Key {
    std::string hash;
    std::int32_t group = -1;  // -1 = not said
    std::int64_t rank = -1;
    std::string medium;
    friend auto operator<=>(const Key&, const Key&) = default;
  };

  explicit KvStreamMap(std::shared_ptr<const KvStream> stream) : stream_(std::move(stream)) {}
  // To after a batch; -1 = before the first. Forward costs the batches between, back all of them.
  void seek(std::int64_t batch);
  std::int64_t batch() const { return batch_; }
  const std::map<Key, KvStreamEntry>& entries() const { return entries_; }
  const KvStreamCounts& counts() const { return counts_; }
  std::int64_t blocks() const { return blocks_; }

 private:
  void apply(const KvEvent& event, std::int64_t rank);
  void store(const KvEvent& event, std::int64_t rank);
  bool remove(const Key& key);  // false: it was not stored

  std::shared_ptr<const KvStream> stream_;
  std::map<Key, KvStreamEntry> entries_;
  KvStreamCounts counts_;
  std::int64_t batch_ = -1, blocks_ = 0;
};

}  // namespace attnscope
