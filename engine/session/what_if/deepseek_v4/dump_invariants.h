// What must hold of a step of DeepSeek-V4: positions, window lists, entries, rows, selections,
// masses.
#pragma once

#include "engine/session/what_if/dump_invariants.h"

namespace attnscope {

const FamilyInvariants& deepseek_v4_invariants();

}  // namespace attnscope
