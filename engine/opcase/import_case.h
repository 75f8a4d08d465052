// Cases from the dumps of other engines, by a map (import_map.h).
#pragma once

#include <string>
#include <vector>

#include "engine/opcase/import_map.h"
#include "engine/opcase/op_case.h"
#include "engine/tensorfile/tensor_file.h"

namespace attnscope {

struct ImportedCase {
  OpCase kept;
  std::vector<std::string> notes;  // what was computed or left open
};

// Whether the files have every tensor that the map names as an input of the op.
bool has_inputs(const ImportOp& op, const std::vector<TensorFile>& files, int layer);

// One case. Inputs that the op must have and outputs are taken by name; types are converted where
// no value changes by it; an output tensor that is missing stays unknown. A cache that the op
// writes must be there. Without extra_* it is an attention over the window alone.
Result<ImportedCase> import_case(const ImportOp& op, const std::vector<TensorFile>& files,
                                 const std::string& engine, int layer);

// Integers that no op reads. `what` is named in errors. AS_BAD_INPUT where they are none.
Result<std::vector<std::int64_t>> import_integers(const ImportTensor& tensor, const char* what,
                                                  const std::vector<TensorFile>& files);
// Whether the files have it.
bool has_tensor(const ImportTensor& tensor, const std::vector<TensorFile>& files);

}  // namespace attnscope
