// A tensor of a step that a family of models has beside the common ones (step_metadata.h): slots of
// rows that not every token writes, lists of slots that tokens read, and their lengths. The family
// says which there are, in an order that is the same for all its models (Family::step_tensors).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "engine/cache/cache_spec.h"
#include "kernels/params/tensor.h"

namespace attnscope {

// Columns of a list that grows with the longest request of a step: StepMetadata::list_columns.
inline constexpr std::int64_t kGrows = -1;

struct CacheLayout;

struct StepTensor {
  enum class Kind {
    kSlots,    // i64 [T]: where the row goes that a token completes, -1 = none
    kLists,    // i32 [lists,T,columns]: slots that a token reads, -1 = none
    kLengths,  // i32 [T]: how many, of a token or of a row of kTables
    // i32 [T]: the row of kTables, or without these of the tables of caches, by which a token finds
    // what it reads, -1 = none
    kRows,
    kPlaces,  // i64 [T]: its position there
    kStarts,  // i32 [T+1]: the first token of each row of kTables
    kTables,  // i32 [lists,T,columns]: blocks by row, of which there are up to T; -1 = none
    kNext,    // i32 [T]: the token behind it, once the step has sampled; -1 = there is none
    kParts,   // i32 [T,2]: chunk and part of it whose gathered rows a token reads; -1 = none
    // A plan of attention (attention_plan), a list for each type of layers.
    kPlanRows,    // i32 [lists,T,2]: the first split of a token, and how many it has
    kPlanSplits,  // i32 [lists,T+more_rows,5]: the splits; -1 = none
    kPlanCounts   // i32 [lists,2]: how many splits, how many rows to combine
  };

  const char* name = "";
  Kind kind = Kind::kLengths;
  // Whether the model has layers that need it; it stays empty where not.
  bool used = true;
  // Whether every model of the family has it.
  bool always = false;
  // Slots, and lists for all layers: of the caches that have one row for so many tokens.
  std::int64_t tokens_per_row = 0;
  // Lists and tables: one for each group with a window, in the order of CacheLayout::swa_groups, or
  // for each with chunks (chunk_groups), or for each type of layers (entry_tokens), or one for all.
  enum class ListsBy { kAll, kWindowGroup, kChunkGroup, kLayerType };
  ListsBy lists_by = ListsBy::kAll;
  // By list: tokens that a row of `cache` stands for in layers of this type, 0 = they have no such
  // cache.
  std::span<const std::int64_t> entry_tokens = {};
  std::int64_t more_rows = 0;  // of kPlanSplits, beside those for tokens
  std::int64_t lists = 1, columns = 0;
  // Lists and tables: the cache whose slots or blocks they are, and which of the family's tensors
  // has their lengths.
  CacheId cache{};
  int lengths = -1;
  // Lengths: whether they are the entries that a layer selects from.
  bool selected_from = false;

  // What it holds, by its kind; the other one is empty.
  std::vector<std::int32_t> numbers = {};
  std::vector<std::int64_t> slots = {};

  bool empty() const { return numbers.empty() && slots.empty(); }
  // Of entries that nobody has filled.
  int nothing() const {
    const bool numbers_of = kind == Kind::kLengths || kind == Kind::kPlaces ||
                            kind == Kind::kStarts || kind == Kind::kPlanRows ||
                            kind == Kind::kPlanCounts;
    return numbers_of ? 0 : -1;
  }
  bool of_plan() const {
    return kind == Kind::kPlanRows || kind == Kind::kPlanSplits || kind == Kind::kPlanCounts;
  }
  bool wide() const {
    return kind == Kind::kLists || kind == Kind::kTables || kind == Kind::kParts || of_plan();
  }
  bool of_64_bits() const { return kind == Kind::kSlots || kind == Kind::kPlaces; }
  // Numbers a token has in each list.
  std::int64_t width(std::int64_t list_columns) const {
    return !wide() ? 1 : columns == kGrows ? list_columns : columns;
  }
  // Of each list, for so many tokens.
  std::int64_t rows(std::int64_t tokens) const {
    if (kind == Kind::kPlanCounts) return 1;
    return kind == Kind::kStarts ? tokens + 1 : tokens + more_rows;
  }
  std::int64_t size(std::int64_t tokens, std::int64_t list_columns) const {
    return (wide() ? lists : 1) * rows(tokens) * width(list_columns);
  }
  // As the kind has it, with `nothing` in every place; the memory is used again.
  void assign(std::int64_t tokens, std::int64_t list_columns);
  void clear() {
    numbers.clear();
    slots.clear();
  }
  // Its vector, as visit(vector).
  template <class Visit>
  void values(Visit&& visit) {
    of_64_bits() ? visit(slots) : visit(numbers);
  }
  template <class Visit>
  void values(Visit&& visit) const {
    of_64_bits() ? visit(slots) : visit(numbers);
  }
  // Which of the lists the caches of a group have.
  std::ptrdiff_t list_of(const CacheLayout& layout, int group) const;
  // Which of them a layer reads.
  std::ptrdiff_t list_of_layer(const CacheLayout& layout, int layer) const;
  // All of it; absent where the model does not use it.
  as_tensor tensor(std::int64_t tokens, std::int64_t list_columns) const;
  // Of one of the lists: [rows,columns].
  as_tensor list(std::int64_t which, std::int64_t tokens, std::int64_t list_columns) const;
};

// By its name, nullptr = none.
const StepTensor* find_tensor(std::span<const StepTensor> tensors, std::string_view name);

struct StepMetadata;

// Tensors of a step by number: the common ones, behind them a family's own in its order. -1 = there
// is none of this name.
int step_tensor_number(std::string_view name, std::span<const StepTensor> own);
inline constexpr int kPositionsTensor = 0, kTokenToReqTensor = 1, kSeqLensTensor = 2;
inline constexpr int kQueryStartTensor = 3, kSourceLensTensor = 4;
// Its place among the family's own; negative = a common one.
int own_number(int number);
// Absent where the step has none.
as_tensor step_tensor(int number, StepMetadata& step, const CacheLayout& layout);

}  // namespace attnscope
