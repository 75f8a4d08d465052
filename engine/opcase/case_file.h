// A case as files: NAME.json with the numbers of the call, and beside it the file of tensors that
// it names, NAME.safetensors, with what the op read and wrote. Tensors have the names of their
// taps; a cache is CACHE.slots [rows] and CACHE.rows [rows, bytes or width], a rotary embedding
// ROPE.positions and ROPE.rows.
#pragma once

#include <string>

#include "engine/opcase/op_case.h"

namespace attnscope {

inline constexpr const char* kCaseFormat = "attnscope-case";
inline constexpr int kCaseVersion = 1;

// path: of the JSON file, must end in .json. An older case of the name is replaced at once,
// whenever this is interrupted: its tensors stay until the new JSON is there, so that the new ones
// take turns between NAME.safetensors and NAME.json.safetensors. A file of one of these names that
// is no case's stays, and the other name is taken; AS_BAD_INPUT where neither can be.
Result<void> write_case(const OpCase& kept, const std::string& path);

// The file with the tensors of the case at `path`.
Result<std::string> case_tensors(const std::string& path);

// AS_BAD_INPUT: no case, too new, damaged, or of an op with other tensors.
Result<OpCase> read_case(const std::string& path);

}  // namespace attnscope
