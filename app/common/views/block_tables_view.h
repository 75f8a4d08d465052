// Block tables of a step as strips: runs of null entries collapsed, the current slot found.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/session/snapshot.h"

namespace attnscope {

// One cell of a strip: an entry of a table, or a run of null entries.
struct TableStripCell {
  std::int32_t block = 0;  // 0 = null
  std::int32_t index = 0;  // entry of the table (first of a run)
  std::int32_t count = 1;  // entries this cell stands for; > 1 only for null
  bool fresh = false;      // taken in this step
  bool in_window = false;  // the selected token's window (or visible entries) reach into it
  std::int32_t row = -1;   // row of the selected token's slot, -1 = elsewhere
};

struct TableStrip {
  int group = 0;
  std::string title;                // "SWA-a: 64 tokens a block, window 128"
  std::int32_t rows_per_block = 1;  // of its finest rows, for the slot mark
  std::vector<TableStripCell> cells;
};

struct TablesOfRequest {
  std::int32_t request = -1;
  std::string title;  // "0 manual  running  2 104 prompt + 8 sampled, 2 111 computed"
  std::string text;   // a piece of its text around the selected token
  std::vector<TableStrip> strips;
};

struct BlockTablesView {
  std::string sentence;
  std::vector<TablesOfRequest> requests;
};

// request, position: the selected token; position -1 = none.
BlockTablesView block_tables_view(const SessionInfo& info, const StepTrace& step,
                                  std::int32_t request, std::int64_t position);

}  // namespace attnscope
