// Which rules a backend breaks for a request; their list is backend_rules() (attention_selector.h).
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "engine/backend/attention_selector.h"

namespace attnscope {

struct RuleBreak {
  std::string asked, allowed;
};

// Of the variant that answers the request. Empty: it would do.
std::vector<BrokenRule> broken_rules(const AttentionBackend& backend,
                                     const AttentionRequest& request);

}  // namespace attnscope
