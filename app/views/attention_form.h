// In which passes attention went over the rows of a token, where there was more than one
// (as_paged_form): from the step's requests and tables, not from what a lane did.
#pragma once

#include <cstdint>
#include <string>

#include "engine/session/snapshot.h"

namespace attnscope {

struct AttentionCut {
  std::int64_t rows = 0;      // before the cut; 0 = one pass
  std::int64_t requests = 1;  // that read them together
};

// row: of the step's metadata. whole: the layer's tokens see all of their request before them.
AttentionCut attention_cut(const SessionInfo& info, const StepTrace& step, int group,
                           std::int64_t row, bool whole);
// " Rows 0-95, which 4 requests have in common, are attended once for all and merged by LSE."
// first: the row that the token's window begins with. Empty: one pass, or none of its rows before
// the cut.
std::string cut_sentence(const AttentionCut& cut, std::int64_t first = 0);

}  // namespace attnscope
