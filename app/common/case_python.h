// A case as a Python script that runs it with a function of the user's.
#pragma once

#include <string>

#include "engine/opcase/op_case.h"
#include "engine/trace/tolerances.h"

namespace attnscope {

// The text of assets/python/case.py for this case. case_name: of its JSON file, beside the script.
Result<std::string> python_script(const OpCase& kept, const std::string& case_name,
                                  const Tolerances& tolerances);

}  // namespace attnscope
