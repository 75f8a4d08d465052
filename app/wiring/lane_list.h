// The lanes of a session as a list of texts, "LANE" for all ops and "OP=LANE" for one, and changes
// of a single entry.
#pragma once

#include <string>
#include <vector>

#include "kernels/params/op_table.h"

namespace attnscope {

// The lane all ops run on, and the one chosen for an op ("" = none of its own).
std::string base_lane(const std::vector<std::string>& lanes);
std::string lane_of(const std::vector<std::string>& lanes, as_op_id op);
// "" removes the op's own choice.
void set_base_lane(std::vector<std::string>& lanes, const std::string& lane);
void set_lane(std::vector<std::string>& lanes, as_op_id op, const std::string& lane);

// "cpu, sample=mutant:NAME", as sessions and captures describe their lanes, as such a list.
std::vector<std::string> lanes_of_description(const std::string& description);

}  // namespace attnscope
