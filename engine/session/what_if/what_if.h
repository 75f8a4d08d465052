// What if: the op that ran last once more with one thing changed, by its lane and by ref.sim alike.
// The change that makes the difference go away points to the part that is wrong.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "engine/session/session.h"
#include "engine/session/what_if/unquantised_rows.h"

namespace attnscope {

// One set of outputs held against another.
struct Held {
  std::string worst_tap;  // the figures are its
  double budget_used = 0;
  std::int64_t beyond = 0;  // elements beyond the tolerance
  std::int64_t elements = 0;
  std::int64_t worst_row = -1;  // first axis, mostly the token
  bool right() const { return budget_used <= 1; }
};

struct WhatIf {
  static constexpr const char* kDoesNotApply = "does not apply";
  std::string change;       // "as it ran", "no sink", "lane cpu"
  std::string sentence;     // what was changed
  std::string error;        // why it could not be run; empty = it ran
  bool other_code = false;  // the inputs are as they were, who computes is not
  // Against ref.sim with the same change. Absent where only a reference can carry it out.
  std::optional<Held> introduced;
  // Against ref.exact with the same change, reading rows that were never quantised: the op's own
  // error and that of the formats. Of ops that read quantised rows.
  std::optional<Held> from_exact;
  // 1-cos between the output and that of ref.sim on its own history; of changes after which both
  // should agree.
  std::optional<double> from_history;
  bool applies() const { return error != kDoesNotApply; }
  bool right() const { return error.empty() && (!introduced || introduced->right()); }
};

struct WhatIfOptions {
  std::vector<std::string> lanes;          // other lanes to try; those without the op are left out
  const Lane* fp32 = nullptr;              // a reference that sums in fp32; null = not tried
  UnquantisedRows* unquantised = nullptr;  // of the op's layer, kept from the start; may be null
};

// Every change that applies to the op. The first is "as it ran". Nothing in the session changes.
Result<std::vector<WhatIf>> what_if(const Session& session, const LaneRegistry& registry,
                                    const WhatIfOptions& options);

// Which change removes the error, in one sentence; then, where there are any, what the formats and
// the rows it attends to have to do with it.
std::string what_if_sentence(const std::vector<WhatIf>& results);

}  // namespace attnscope
