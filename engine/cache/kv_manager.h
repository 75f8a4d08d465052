// The block manager: per request and group a table of block ids, all groups drawing from one pool.
// Finds what a prompt shares with content still in the pool, tells whether a request can get its
// blocks, grows and drops tables, gives full blocks their keys.
//
//     lookup -> allocate(hit) -> step -> allocate -> step -> ... -> free
//
// A plain value: copying it is a checkpoint. Nothing is allocated per block; tables keep their
// memory when a slot is used again.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/cache/block_pool.h"
#include "engine/cache/kv_audit.h"
#include "engine/cache/kv_event.h"
#include "engine/cache/kv_options.h"
#include "engine/cache/kv_request.h"
#include "engine/cache/prefix_lookup.h"
#include "engine/cache/retention.h"

namespace attnscope {

// Table of one request in one group. Null entries, of what left the window, are a prefix.
struct GroupTable {
  std::vector<std::int32_t> blocks;
  std::int64_t first_real = 0;
  std::int64_t cached = -1;  // leading entries that have been through caching; -1 = none ever

  std::int64_t size() const { return static_cast<std::int64_t>(blocks.size()); }
  std::int64_t real() const { return size() - first_real; }
};

struct Allocation {
  std::int64_t new_tokens = 0;  // beyond those computed, hit and external
  const PrefixHit* hit = nullptr;
  std::int64_t external = 0;    // tokens whose rows come from outside
  std::int64_t lookahead = 0;   // room beyond the new tokens
  bool whole_sequence = false;  // all known tokens must fit, not only the new ones
  bool keep_watermark = false;
  bool delay_commit = false;  // no keys yet: the rows are still to come
  bool comes_back = false;    // the rows of its computed tokens come from host memory
};

enum class Allocated { kYes, kWholeSequenceTooLong, kTooFewFree, kNothingAsked };

class KvManager {
 public:
  // options: as check_options returned them.
  explicit KvManager(const KvOptions& options);

  const KvOptions& options() const { return options_; }
  const BlockPool& pool() const { return pool_; }
  BlockPool& pool() { return pool_; }
  std::size_t num_groups() const { return options_.groups.size(); }

  // A row of tables for a new request; hashes its full blocks.
  void add(KvRequest& request);
  // After tokens were appended.
  void extend_hashes(KvRequest& request) {
    if (options_.caching) request.chain.extend(request.tokens, options_.hash_block, request.extras);
  }
  // Gives the row back; its request's blocks were freed.
  void remove_slot(std::int32_t slot) { unused_slots_.push_back(slot); }

  // What of the request is in the pool; leaves all as it is but request.shared. The result holds
  // until the next call that changes anything.
  const PrefixHit& lookup(KvRequest& request);

  Allocated allocate(const KvRequest& request, const Allocation& a);
  // Gives all blocks back: groups in order, each table from its end.
  void free(const KvRequest& request, CacheReason reason);
  // Empties the tables; the blocks stay held until release() gets them: the last group's first,
  // each table from its end.
  std::vector<std::int32_t> take_tables(const KvRequest& request);
  void release(std::span<const std::int32_t> blocks, CacheReason reason);
  // Keys for content that has arrived since an allocation with delay_commit.
  void commit(const KvRequest& request, std::int64_t tokens);

  // Blocks that allocate() would take from the queue, hits that it would touch there included.
  // capped: as the admission of a whole sequence counts.
  std::int64_t need(const KvRequest& request, std::int64_t tokens, std::int64_t total,
                    const PrefixHit* hit, bool capped) const;
  std::int64_t group_need(const KvRequest& request, std::size_t group, std::int64_t tokens,
                          std::int64_t total, const PrefixHit* hit, bool capped) const;
  std::int64_t watermark_blocks() const { return watermark_blocks_; }
  std::int64_t cap(std::size_t group) const { return caps_[group]; }

  const GroupTable& table(std::int32_t slot, std::size_t group) const {
    return tables_[static_cast<std::size_t>(slot) * groups_ + group];
  }
  std::size_t num_slots() const { return quiet_.size(); }
  // Leading entries of a group's table whose blocks everybody holds who has a table there, also
  // who computes nothing in this step. 0 of a group with a window, and without caching.
  std::int64_t common_prefix(std::int32_t slot, std::size_t group) const;

  // Takes keys away; false for an id that the pool does not have.
  bool evict(std::span<const std::int32_t> blocks);
  bool reset_prefix_cache();

  void set_audit(KvAudit* audit) { audit_ = audit; }
  void keep_events(bool keep);
  std::vector<KvEvent> take_events();

 private:
  // While a request's tokens stay below all three, allocate() has nothing to do for it.
  struct Quiet {
    std::int64_t room = 0;       // tokens its tables hold
    std::int64_t drop_at = 0;    // computed tokens at which a window loses a block
    std::int64_t commit_at = 0;  // known tokens at which a block may get a key
  };

  GroupTable& at(std::int32_t slot, std::size_t group) {
    return tables_[static_cast<std::size_t>(slot) * groups_ + group];
  }
  const PrefixHit& find(KvRequest& request);
  Allocated place(const KvRequest& request, const Allocation& a);
  void commit_known(const KvRequest& request, std::int64_t tokens);
  void drop_windows(std::int32_t slot, std::int64_t total);
  void adopt(std::int32_t slot, std::size_t group, const PrefixHit& hit, std::int64_t total);
  void take_external(std::int32_t slot, std::size_t group, std::int64_t total,
                     std::int64_t external);
  // Entries of an empty table that are out of sight.
  void begin_tables(std::int32_t slot, std::int64_t total);
  void grow(std::int32_t slot, std::int64_t upto);
  void commit_group(const KvRequest& request, std::size_t group, std::int64_t limit);
  void commit_prompt_end(const KvRequest& request, std::size_t group, std::int64_t limit);
  // Blocks [from, to) of `block` tokens each.
  void store_event(const KvRequest& request, std::size_t group, std::int64_t from, std::int64_t to,
                   std::int64_t block, std::vector<std::string> hashes);
  void collect_reversed(GroupTable& table, std::vector<std::int32_t>& out) const;
  void flush_removed();
  // known: tokens up to which keys were given.
  void update_quiet(const KvRequest& request, std::int64_t known);
  std::int64_t commit_limit(std::size_t group, std::int64_t known) const;

  KvOptions options_;
  std::size_t groups_;
  BlockPool pool_;
  PrefixLookup lookup_;
  PrefixHit hit_;
  std::vector<bool> drafts_;  // by group: whether it keeps an extra block for a draft
  std::vector<std::int64_t> caps_;
  std::vector<Retention> retention_;
  std::int64_t watermark_blocks_ = 0;
  std::vector<GroupTable> tables_;  // by slot, then group
  std::vector<Quiet> quiet_;        // by slot
  std::vector<std::int32_t> unused_slots_;
  std::vector<std::int32_t> scratch_;
  KvAudit* audit_ = nullptr;
  bool events_on_ = false;
  std::vector<KvEvent> events_;
};

}  // namespace attnscope
