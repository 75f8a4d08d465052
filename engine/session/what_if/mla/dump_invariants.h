// What must hold of a step of absorbed MLA: positions, slots, selections, rows, masses.
#pragma once

#include "engine/session/what_if/dump_invariants.h"

namespace attnscope {

const FamilyInvariants& mla_invariants();

}  // namespace attnscope
