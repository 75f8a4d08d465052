// Block tables of a step as strips: runs of null entries collapsed, the current slot found.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/session/snapshot.h"

namespace attnscope {

// One cell of a strip: an entry of a table, or a run of null entries.
struct TableStripCell {
  std::int32_t block = 0;    // 0 = null
  std::int32_t index = 0;    // entry of the table (first of a run)
  std::int32_t count = 1;    // entries this cell stands for; > 1 only for null
  std::int32_t was = 0;      // block of a null entry until this step (of the last one of a run)
  bool fresh = false;        // taken in this step
  bool in_window = false;    // holds rows that the token may read
  std::int32_t row = -1;     // row the token's own slot has in the block, -1 = it lies elsewhere
  std::int32_t picked = -1;  // row of the position that is picked, where that is another one
};

// A piece of a request that is one chunk, as attention is given it in this step: a row of the
// tables that local_batch makes.
struct LocalSequence {
  std::int64_t sequence = 0;         // its row
  std::int64_t begin = 0;            // position that its rows are counted from
  std::int64_t first = 0, last = 0;  // positions of its tokens in the step
  std::int64_t rows = 0;             // from `begin` on
  std::vector<std::int32_t> blocks;  // -1 = none
  std::string text() const;          // "chunk 1, positions 32-47 of 32-63: 16 rows"
  std::int64_t chunk = 0;            // tokens of a chunk
};

struct TableStrip {
  int group = 0;
  std::string name;               // "SWA-a"
  std::string note;               // "64 · last 128": tokens a block, window
  std::int32_t block_tokens = 1;  // for the marks inside a cell
  std::int64_t blocks = 0, nulls = 0;
  std::vector<TableStripCell> cells;
  std::vector<LocalSequence> local;  // of a group with chunks, in the step
};

struct TablesOfRequest {
  std::int32_t request = -1;
  std::string name;
  std::string state;        // "running · 2 104 prompt + 9 sampled · 2 112 computed, 1 now"
  std::string text;         // a piece of its text around the token
  std::string none;         // what stands in the place of a strip without blocks
  std::int64_t token = -1;  // computed in this step: its slot is marked; -1 = none
  std::vector<TableStrip> strips;
};

struct BlockTablesView {
  std::string sentence;  // of the selected request
  std::vector<TablesOfRequest> requests;
};

struct BlockTablesInput {
  const SessionInfo& info;
  const StepTrace& step;
  int layer = -1;              // published; its window group is the one that is spoken of
  std::int32_t request = -1;   // selected
  std::int64_t position = -1;  // selected in it; -1 = its last one of the step
};
BlockTablesView block_tables_view(const BlockTablesInput& input);

// The sequences that a request is cut into in a step, as a lane has listed them, perhaps wrongly;
// empty where the group has no chunks or the step has not come to it.
std::vector<LocalSequence> local_sequences(const SessionInfo& info, const StepMetadata& m,
                                           std::int32_t request, int group);

// What a group is: its block size, its window, what lies in its blocks and for which layers.
std::string group_text(const SessionInfo& info, int group);
// What a null cell says: which entries, which positions they held, since when.
std::string null_text(const SessionInfo& info, int group, const TableStripCell& cell);

// The block of a request's table `by` real entries on from `block` in the same table; of a free or
// unknown block, the one that holds `position` in the first group that has one. -1 = none.
std::int32_t next_block(const SessionInfo& info, const StepTrace& step, std::int32_t request,
                        std::int64_t position, std::int32_t block, int by);
// The block that holds `position` in the next group after `group` that has one; -1 = none.
std::int32_t block_in_next_group(const SessionInfo& info, const StepTrace& step,
                                 std::int32_t request, std::int64_t position, int group);

}  // namespace attnscope
