// Names that taps and the lists of a step had before, and those they have now. Files keep the names
// of the program that wrote them: whoever reads a name from a file or a command line maps it here,
// so that everything behind knows the names of the op table alone.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string_view>

#include "kernels/params/op_table.h"

namespace attnscope {

struct OldTapName {
  as_op_id op;
  const char *before, *now;
};
std::span<const OldTapName> old_tap_names();

// Of the lists that a capture keeps of every step.
struct OldStepName {
  const char *before, *now;
};
std::span<const OldStepName> old_step_names();

// The name that this tap of the op has now; what is no old name is given back as it is.
std::string_view tap_name_now(as_op_id op, std::string_view name);
// The same of a tap of any op, where none is said.
std::string_view tap_name_now(std::string_view name);
// The first name that a tap had, for checksums of names that older files hold.
std::string_view tap_name_at_first(as_op_id op, std::string_view name);
// Keys of a JSON object that are old names of taps of this op get the new ones. One that stands
// beside its new name stays, for the reader to complain of.
void rename_tap_keys(nlohmann::json& object, as_op_id op);

// The same of lists of a step.
void rename_step_keys(nlohmann::json& object);
// The key of StepMetadata::list_columns in captures, which have called it so from the first.
inline constexpr const char* kListColumnsKey = "c128_width";
// The name that a list of a step had before; empty = it has always had this one.
std::string_view step_name_before(std::string_view now);

}  // namespace attnscope
