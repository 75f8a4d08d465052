// What the plain model of scheduler and block manager is told: limits, groups of caches, and the
// places where two published states of the serving engine differ.
//
// The model is the reference of what engine/sched and engine/cache decide. It is written as the
// rules read, without regard to time, and includes nothing of theirs: a mistake must not be on both
// sides of a comparison.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace attnscope::plain {

struct Group {
  enum class Kind {
    kFull,     // a token sees all before it
    kSliding,  // a token sees `window` tokens, itself included
    kChunked,  // a token sees its own chunk of `window` tokens up to itself
    kFirst,    // there are rows of the first `window` tokens of a request alone
  };
  Kind kind = Kind::kFull;
  std::int64_t block = 16;  // tokens
  std::int64_t window = 0;
  bool flagged = false;  // a draft model's layer is in it

  bool same_kind(const Group& other) const {
    return kind == other.kind && block == other.block && window == other.window;
  }
};

struct Rules {
  std::vector<Group> groups;
  std::int64_t blocks = 0;       // ids are below: null block included, and ids below the first
  std::int64_t first_block = 1;  // the lowest id but the null block's
  std::int64_t alignment = 0;    // tokens at whose multiples hits of several groups end
  std::int64_t hash_block = 0;   // tokens that a prefix grows by
  std::int64_t max_len = 0;      // tokens of a request, sampled ones included
  std::int64_t budget = 0;       // tokens of a step
  std::int64_t max_running = 0;
  std::int64_t steps_in_flight = 1;  // that may be decided before the first one's results
  std::int64_t lookahead = 0;        // tokens of room beyond those computed
  std::int64_t longest_chunk = 0;    // of one request in a step; 0 = the budget
  // In its place: a chunk is so long where no block is free, and so long where all are, in between
  // on the line through both; 0 = no such line.
  std::int64_t chunk_of_full = 0, chunk_of_empty = 0;
  std::int64_t host_blocks = 0;        // for the rows of who is preempted
  std::int64_t watermark = 0;          // blocks that an admission beside others leaves free
  std::optional<std::int64_t> retain;  // tokens from one kept end to the next; nullopt = all ends
  bool caching = true;
  bool by_priority = false;
  bool whole_sequence = true;  // admit only what fits with all its known tokens
  bool chunked_prefill = true;
  // Of blocks that nobody holds any more: those without a key go to the front of the queue.
  bool keyless_first = false;
  bool uncached_first = false;     // the same for all where caching is off
  bool drafts_keep_more = false;   // flagged groups keep one more block behind an aligned end
  bool prompt_ends = false;        // a prompt's end inside a block gets a key too
  bool cursor_by_place = false;    // a victim before the cursor moves it, scheduled or not
  bool trim_to_stored = false;     // a full group looked up again is cut to what it had
  bool window_of_results = false;  // tokens of steps in flight still see what they see
  bool cap_of_in_flight = false;   // an admission has room for the chunks of all steps in flight
  bool forget_uncomputed = false;  // keys that a step gave to what it then did not compute go
};

}  // namespace attnscope::plain
