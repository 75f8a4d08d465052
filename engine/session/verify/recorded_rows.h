// Rows that a session was told to feed its layers (`hidden_states`), held against the file, which
// is read a second time for it: engine and references take theirs from one reader, so that rows of
// another position, layer or request would be right by all of them.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/metadata/step_metadata.h"
#include "engine/tensorfile/tensor_file.h"
#include "engine/trace/tap_result.h"

namespace attnscope {

class RecordedRows {
 public:
  // requests: names, in the order of their ids; layers: published, those that run.
  static Result<std::unique_ptr<const RecordedRows>> open(const std::string& path,
                                                          std::vector<std::string> requests,
                                                          std::vector<int> layers);

  // fed: bf16 [T,hidden], what a running layer's attn_norm was made to give; nothing: all rows are
  // the file's, rounded to bf16 once.
  std::optional<TapResult> differing(int layer, const as_tensor& fed,
                                     const StepMetadata& step) const;

 private:
  explicit RecordedRows(TensorFile file) : file_(std::move(file)) {}

  TensorFile file_;
  std::vector<std::string> requests_;
  std::vector<int> layers_;
};

}  // namespace attnscope
