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

// Of an op before the layers: it computes nothing that a change would show.
Error nothing_to_change(as_op_id op);

inline constexpr const char* kAsItRan = "as it ran";
inline constexpr const char* kReferenceLists = "reference indices";
// Outputs of 0 agree whatever the op does wrong: no cure, but where they do not the op is wrong in
// what it does with a sink.
inline constexpr const char* kSinkTakesAll = "infinite sink";

// Changes that several ops take.
bool no_rotation(const Session& session, OpParams& params, ChangedInputs& memory);
bool yarn_turned(const Session& session, OpParams& params, ChangedInputs& memory);
bool unit_weights(const Session& session, OpParams& params, ChangedInputs& memory);
// Position 0 for every token rotates nothing.
inline constexpr Change kNoRotation = {"no rotation", "RoPE turns by 0", no_rotation};
// The layer's rotary embedding with YaRN where it was without, without where it had it.
inline constexpr Change kYarnTurned = {"YaRN turned over",
                                       "on where it was off, off where it was on", yarn_turned};
inline constexpr Change kUnitWeights = {"unit norm weights", "the norm's weights are 1",
                                        unit_weights};

// Of one op; the first changes nothing.
std::vector<Change> changes_of(as_op_id op);

// Reads rows of a cache that keeps them quantised.
bool reads_quantised_rows(as_op_id op);

}  // namespace attnscope
