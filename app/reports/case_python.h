// A case as a Python script that runs it with a function of the user's.
#pragma once

#include <string>

#include "engine/opcase/op_case.h"
#include "engine/trace/tolerances.h"

namespace attnscope {

// The text of assets/python/case.py for this case. case_name: of its JSON file, beside the script.
Result<std::string> python_script(const OpCase& kept, const std::string& case_name,
                                  const Tolerances& tolerances);

// A second look at the rules that a script has: every output that is known has one, of its own
// class, which allows no more than that class does in the tolerance file, and a mask where it has
// one. Empty = that is so; else what is not.
std::string script_fault(const std::string& script, const OpCase& kept,
                         const Tolerances& tolerances);

}  // namespace attnscope
