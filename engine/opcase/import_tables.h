// The block tables of an imported step: as its ops' own tables have them, and where none was
// dumped, as slots and positions show them.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/opcase/op_case.h"
#include "engine/session/snapshot.h"

namespace attnscope {

struct PlacedCase {
  Place place;
  int index = -1;  // of the layer, among those that run
  std::shared_ptr<const OpCase> kept;
};

// Fills tables, slots and window lists of `trace`, whose tokens, requests (by row of the tables)
// and owners are there. What nobody shows stays the null block, or slot -1.
void fill_tables(const std::vector<PlacedCase>& ops, const SessionInfo& info, StepTrace& trace);

}  // namespace attnscope
