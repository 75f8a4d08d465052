// The things that what_if.h changes in an op's inputs, one at a time.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/session/session.h"
#include "kernels/params/dtype.h"

namespace attnscope {

// Memory behind changed inputs, and what they are made from.
struct ChangedInputs {
  int layer = -1;                  // running index of the op's
  const OpParams* free = nullptr;  // the op in ref.sim's free run; null = it has none
  std::vector<float> floats;
  std::vector<std::int32_t> integers, more;
  std::vector<std::int64_t> longs;
  std::vector<bf16_t> halves;
};

struct Change {
  const char* name;
  const char* sentence;
  // Changes params, a copy of those of the op that ran last or runs next. False, and nothing
  // changed, where it does not apply.
  bool (*apply)(const Session& session, OpParams& params, ChangedInputs& memory);
};

inline constexpr const char* kAsItRan = "as it ran";
inline constexpr const char* kReferenceLists = "reference indices";

// Of one op; the first changes nothing.
std::vector<Change> changes_of(as_op_id op);

// Reads rows of a cache that keeps them quantised.
bool reads_quantised_rows(as_op_id op);

}  // namespace attnscope
