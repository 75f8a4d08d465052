// What the split view of two captures shows of the op under the cursor: verdicts along the step,
// the values of one token, its tables, its window and selected entries.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "app/views/run_pair.h"
#include "app/views/tensor_view.h"

namespace attnscope {

// A verdict in words, and the verdict of a tap whose glyph and colour it has.
struct DiffLook {
  const char* word;
  Verdict like;
  bool caution = false;  // needs a look: the verdict's colour is too calm for it
};
DiffLook diff_look(DiffVerdict verdict);
// "beside b.acap: inherited" and the evidence of its worst output; empty where the step is not in
// both, or nothing is compared.
std::string compared_text(const RunPair* comparison, const Place& place);

struct ComparedOp {
  Place place;
  DiffVerdict verdict = DiffVerdict::kUnknown;
  std::string lane_a, lane_b;
  const TapDiff* worst = nullptr;  // of the outputs; null where all are equal
};
// The ops of the first's step, in causal order.
std::vector<ComparedOp> compared_ops(const RunPair& comparison, const ComparedToken& token);

// Of the op under the cursor.
std::string compare_sentence(const RunPair& comparison, const ComparedToken& token,
                             const Place& place);

// One token's values of a tap in both, the axes behind the token's as rows and columns (one axis
// is wrapped). rows 0: `why` says why there are none.
struct ComparedValues {
  std::int64_t rows = 0, columns = 0;
  std::string row_axis, column_axis = "+";  // "head", "dim"; of one axis the lines are rows
  std::function<double(std::int64_t, std::int64_t)> a, b;
  std::function<bool(std::int64_t, std::int64_t)> absent;  // behind the end of a wrapped axis
  std::int64_t differing = 0;
  double largest = 0;                              // |a - b|
  double low = 0, high = -1;                       // of the finite values of both
  std::int64_t worst_row = -1, worst_column = -1;  // where they are furthest apart
  bool floats = false;
  std::string why;
};
ComparedValues compared_values(const ComparedToken& token, const Place& place,
                               const std::string& tap);
// Where the values of an op are furthest apart, of the tokens that the first keeps of its step: the
// request and position in the first, the element along the other axes. Nothing: they are equal, or
// not in both.
struct WorstPlace {
  std::int32_t request = -1;
  std::int64_t position = -1;
  std::int64_t token_row = -1;
  TapIndex index;  // along all axes of the first's tap
  int token_axis = -1;
};
std::optional<WorstPlace> worst_place(const RunPair& comparison, const Place& place,
                                      const std::string& tap);
// Taps that both have of the op, outputs first.
std::vector<std::string> compared_taps(const ComparedToken& token, const Place& place);

// One entry of the request's block tables.
struct ComparedBlock {
  int group = -1;
  std::int64_t entry = 0;
  std::int64_t first = 0, last = 0;         // positions it stands for
  std::int32_t block_a = -1, block_b = -1;  // 0 = null, -1 = no such entry
  bool differs = false;                     // there in one of them alone
};
std::vector<ComparedBlock> compared_blocks(const RunPair& comparison, const ComparedToken& token);

// One row of the token's window or one of its compressed entries, by what it stands for.
struct ComparedEntry {
  bool window = true;
  std::int64_t row = 0;                   // position, or number of the entry
  std::int64_t slot_a = -1, slot_b = -1;  // -1 = not in this list
  // Where the first has it; -1: nowhere.
  int group = -1;
  std::int32_t block = -1, row_in_block = -1;
};
// "142 entries: 3 in one of them alone, 17 in other blocks, the rest agree."
std::string compared_blocks_sentence(const std::vector<ComparedBlock>& blocks);

struct ComparedLists {
  std::vector<ComparedEntry> entries;  // by list and row
  std::string sentence;
};
ComparedLists compared_lists(const RunPair& comparison, const ComparedToken& token, int layer);

}  // namespace attnscope
