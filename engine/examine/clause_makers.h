// Calls made for single clauses (clause.h), of an ordinary one. None: the clause does not reach it.
#pragma once

#include <vector>

#include "engine/examine/clause.h"

namespace attnscope {

// Logits that are all 900 higher or lower, so that every LSE is.
std::vector<Variation> far_lse(const OpCase& ordinary);
// Rows that no list names any more, with NaN in their codes and scales that are sound.
std::vector<Variation> unlisted_nan(const OpCase& ordinary);
// Rows of nothing but subnormal numbers of e4m3.
std::vector<Variation> subnormal_codes(const OpCase& ordinary);
// Entries of block tables that no row of the call lies behind: the null block, and one of NaN rows.
std::vector<Variation> unread_pages(const OpCase& ordinary);
// The same rows in blocks that begin more than 2 GiB, and more than 4 GiB, behind the first one.
std::vector<Variation> high_blocks(const OpCase& ordinary);

// ---- what ops have in the place of lists of rows with lengths (list_clauses.cpp)

// -1, null blocks and padding inside lists.
std::vector<Variation> plain_holes(const OpCase& ordinary);
// Garbage behind what is listed.
std::vector<Variation> garbage_behind(const OpCase& ordinary);
// Ids and slots that stand in a list more than once.
std::vector<Variation> plain_duplicates(const OpCase& ordinary);
// Lists and sequences without anything in them.
std::vector<Variation> nothing_in_lists(const OpCase& ordinary);
// Rows that come from nowhere or go nowhere.
std::vector<Variation> no_row_moved(const OpCase& ordinary);
// Ids, slots and lengths close to what their integers hold.
std::vector<Variation> large_numbers(const OpCase& ordinary);
// Calls of helper ops without a row.
std::vector<Variation> no_rows(const OpCase& ordinary);
// The call as it is, where all of its outputs are written.
std::vector<Variation> all_written(const OpCase& ordinary);

// ---- codes of e4m3 in plain tensors, read or made (code_clauses.cpp)

std::vector<Variation> plain_codes(const OpCase& ordinary);
std::vector<Variation> plain_subnormals(const OpCase& ordinary);
std::vector<Variation> plain_scales(const OpCase& ordinary);

}  // namespace attnscope
