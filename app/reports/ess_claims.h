// What a write-up of sparse caches in host memory says, beside what comes out here: of recorded
// selections, of generated ones, of the sizes of rows. Each line names its source; times are of the
// model of engine/offload/overlap_model.h, whose constants are assumed unless set.
#pragma once

#include <string>
#include <vector>

#include "engine/offload/overlap_model.h"
#include "engine/offload/selection_trace.h"

namespace attnscope {

enum class Agreement { kAgrees, kDiffers, kOpen };
const char* agreement_name(Agreement agreement);  // "agrees", "differs", "open"

struct EssClaim {
  std::string claim = {};   // a sentence
  std::string found = {};   // numbers
  std::string source = {};  // what they are of
  Agreement agreement = Agreement::kOpen;
};

// recorded: of captures; may be empty, then what only these can tell stays open.
Result<std::vector<EssClaim>> ess_claims(const std::vector<SelectionTrace>& recorded,
                                         const OverlapConstants& constants);

}  // namespace attnscope
