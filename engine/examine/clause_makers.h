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

}  // namespace attnscope
