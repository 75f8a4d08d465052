// The plain model's block manager: which blocks a request gets, what it finds computed, which
// blocks are free in which order and which of them can still be found.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "engine/decisions/plain_prefixes.h"
#include "engine/decisions/plain_request.h"
#include "engine/decisions/plain_rules.h"

namespace attnscope::plain {

using Blocks = std::vector<std::int32_t>;  // ids; 0 = null

struct Key {
  std::int64_t prefix = 0;
  std::size_t group = 0;
  auto operator<=>(const Key&) const = default;
};

struct Hit {
  std::int64_t tokens = 0;
  std::vector<Blocks> blocks;           // by group
  std::optional<std::int64_t> longest;  // of one kind of group, where it had more
};

class Cache {
 public:
  explicit Cache(const Rules& rules);

  // Names the prefixes of the tokens that have come.
  void name_prefixes(Request& request);
  Hit lookup(const Request& request) const;
  // hit: of a request that is to be admitted; null = it runs. False where blocks are missing; what
  // left the windows is given back all the same.
  bool allocate(const Request& request, std::int64_t tokens, const Hit* hit, std::int64_t reserve);
  void free(std::int64_t request);
  // Keys that `request` gave to blocks since begin_step(): nobody finds them.
  void forget_new_keys(std::int64_t request);
  void begin_step() { new_keys_.clear(); }
  // Nobody finds anything any more. False, and nothing is done, while somebody holds a block.
  bool forget_all();

  // Leading tokens that the token behind `computed` ones does not see.
  std::int64_t skipped(const Group& group, std::int64_t computed) const;
  // Entries of a table that the first so many tokens of a request fill, from its head on.
  static std::int64_t entries(const Group& group, std::int64_t tokens);
  // Table of one request in one group; empty for who has none.
  const Blocks& table(std::int64_t request, std::size_t group) const;
  // By group: entries that are the same at the head of all tables; none where there is a window.
  std::vector<std::int64_t> common_prefix() const;
  Blocks free_blocks() const;  // front first
  // Calls visit(block) for each of them until it says false. Whether all were visited.
  template <class Visit>
  bool each_free(const Visit& visit) const {
    return std::all_of(queue_.begin(), queue_.end(),
                       [&](std::int32_t block) { return block == kGone || visit(block); });
  }
  std::int64_t keys_of(std::int32_t block) const {
    return static_cast<std::int64_t>(keys(block).size());
  }
  const std::vector<Key>& keys(std::int32_t block) const {
    return keys_[static_cast<std::size_t>(block)];
  }
  // Who held it last; -1 = nobody did.
  std::int64_t last_holder(std::int32_t block) const {
    return last_holder_[static_cast<std::size_t>(block)];
  }

 private:
  struct Table {
    Blocks blocks;
    std::optional<std::int64_t> cached;  // leading entries that were considered for a key
  };
  // Groups of one kind, which are looked up together.
  struct Batch {
    Group kind;
    std::vector<std::size_t> groups;
    bool flagged = false;
  };
  struct NewKey {
    std::int64_t request = -1;
    std::int32_t block = 0;
  };
  using Found = std::vector<Blocks>;  // by group of a batch

  std::optional<std::int64_t> cap(const Group& group) const;
  std::int64_t need(const Request& request, std::int64_t tokens, std::int64_t total, const Hit* hit,
                    bool capped) const;
  // The blocks of entry i in all groups of a batch; empty = not all have it.
  Blocks entry(const Batch& batch, const Request& request, std::int64_t i) const;
  Found find(const Batch& batch, const Request& request, std::int64_t most, bool drop,
             std::int64_t align) const;
  void commit(const Request& request, std::int64_t tokens);
  bool worth_a_key(const Request& request, std::size_t group, std::int64_t i) const;

  bool has_key(std::int32_t block, const Key& key) const;
  void give_key(std::int64_t request, std::int32_t block, const Key& key);
  void take_key(std::int32_t block, Key key);
  void take_all_keys(std::int32_t block);
  void take_new(std::int64_t request, std::int64_t count, Blocks& table);
  void touch(std::int64_t request, std::int32_t block);
  void release(const Blocks& blocks);
  void line_up(std::int32_t block, bool in_front);
  void leave_queue(std::int32_t block);

  Rules rules_;
  static constexpr std::int32_t kGone = -1;  // in the queue

  std::vector<Batch> batches_;
  std::vector<bool> keeps_more_;                       // by group
  std::shared_ptr<Prefixes> prefixes_;                 // names never change: copies share them
  std::map<std::int64_t, std::vector<Table>> tables_;  // by request, by group
  std::vector<std::int64_t> holders_, last_holder_;    // by block
  // The queue of free blocks by their tickets from first_ticket_ on, kGone where one has left; by
  // block its ticket.
  std::deque<std::int32_t> queue_;
  std::vector<std::int64_t> ticket_;
  std::int64_t first_ticket_ = 0, num_free_ = 0;
  std::map<Key, Blocks> found_under_;   // oldest first
  std::vector<std::vector<Key>> keys_;  // by block: a full block's key first
  std::vector<NewKey> new_keys_;
};

}  // namespace attnscope::plain
