// The same thing under its different names: token <-> slots, block <-> tokens, entry <-> tokens.
// Pure functions over a step's tables; every panel that links to another uses these.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "engine/session/snapshot.h"

namespace attnscope {

// Half-open range of token positions.
struct TokenRange {
  std::int64_t begin = 0, end = 0;
  bool contains(std::int64_t position) const { return position >= begin && position < end; }
  friend bool operator==(const TokenRange&, const TokenRange&) = default;
};

// Where a token's row (or the entry that pools it) lives in one group.
struct TokenSlot {
  int group = -1;
  int ratio = 1;            // 1: the token's own row; else tokens of the entry it falls into
  std::int64_t entry = -1;  // of ratio > 1
  std::int32_t index = -1;  // entry of the block table
  std::int32_t block = -1;  // physical id; 0 = null (left the window), -1 = not allocated yet
  std::int32_t row = -1;    // inside the block
  std::int64_t slot = -1;   // block * rows per block + row; -1 when null or not allocated
};

// A request of the step by its id; null when the step does not know it (yet).
const RequestView* find_request(const StepTrace& step, std::int32_t id);
// As the scenario names it; its number where it has no name.
std::string request_name(const SessionInfo& info, std::int32_t id);
// The same; "?" where it has no name.
std::string name_if_known(const SessionInfo& info, std::int64_t id);
// Tokens of a request whose rows exist once this step has run.
std::int64_t length_in_step(const StepTrace& step, const RequestView& request);

// One record per group and ratio that holds rows for this position, groups in order.
std::vector<TokenSlot> slots_of_token(const SessionInfo& info, const RequestView& request,
                                      std::int64_t position);

// Ids of the requests whose tables hold the block.
std::vector<std::int32_t> holders_of(const StepTrace& step, std::int32_t block);
// Who holds a block at a step, in the words of every panel: "free", "free, a lookup still finds
// it", "held by manual", "held by manual and inline, a lookup finds it", "the null block".
std::string block_state(const SessionInfo& info, const StepTrace& step, std::int32_t block);
// The same of a block whose holders are not known by name but for one, or none.
std::string owner_state(const SessionInfo& info, const BlockOwner& owner);

// What a block holds: owner and the positions its rows stand for; nullopt when free or null.
struct BlockContents {
  std::int32_t request = -1;
  std::int32_t group = -1;
  std::int32_t index = -1;  // entry of the owner's table
  TokenRange tokens;        // positions whose rows (or entries) lie here, cut at the known length
  bool fresh = false;       // taken in this step
};
std::optional<BlockContents> contents_of_block(const SessionInfo& info, const StepTrace& step,
                                               std::int32_t block);

// Tokens whose kept rows read the block in this step, as token rows: through a window list, through
// a compressed list, or, of state blocks, by pooling an entry from it.
std::vector<std::int32_t> readers_of_block(const SessionInfo& info, const StepTrace& step,
                                           std::int32_t block);

// Position whose own row a slot of a windowed group holds; -1 when nobody of this request owns it.
std::int64_t position_of_slot(const SessionInfo& info, const StepTrace& step, std::int32_t request,
                              int group, std::int64_t slot);

// Tokens that an entry of a running layer stands for; 0 = the layer has no entries.
int tokens_per_entry(const SessionInfo& info, int running_layer);
// Tokens pooled into an entry, cut at 0: where entries overlap, as those of DeepSeek-V4 for 4
// tokens do, [4e-4, 4e+4); else, for 128 tokens, [128e, 128e+128).
TokenRange tokens_of_entry(const CacheLayout& layout, int ratio, std::int64_t entry);
// Slot of an entry in the request's full group; row per block follows from the group's block size.
TokenSlot slot_of_entry(const SessionInfo& info, const RequestView& request, int ratio,
                        std::int64_t entry);

// Entries that pool a position in a layer of this ratio, ascending: two where they overlap.
std::vector<std::int64_t> entries_of_token(const CacheLayout& layout, int ratio,
                                           std::int64_t position);

// The newest step that computed a token, of those that are known; -1: none did.
std::int64_t step_that_computed(const Snapshot& snapshot, std::int32_t request,
                                std::int64_t position);

// Text of a range of tokens, escaped, cut to `limit` characters with an ellipsis.
std::string text_of(const Request& request, TokenRange range, std::size_t limit);

}  // namespace attnscope
