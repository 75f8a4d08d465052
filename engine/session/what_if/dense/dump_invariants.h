// What must hold of a step of dense attention: positions, slots, rows that are read, masses.
#pragma once

#include "engine/session/what_if/dump_invariants.h"

namespace attnscope {

const FamilyInvariants& dense_invariants();

}  // namespace attnscope
