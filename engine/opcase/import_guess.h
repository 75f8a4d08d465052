// A map (import_map.h) that is found instead of written: the tensors of a dump are matched to the
// taps of ops by their names, types and shapes, and where several fit by what makes the op right.
//
//   auto guess = guess_map(files, options);
//   write(guess->map); for (const std::string& line : guess->reasons) say(line);
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "engine/opcase/import_map.h"
#include "engine/opcase/op_case.h"
#include "engine/tensorfile/tensor_file.h"

namespace attnscope {

struct GuessOptions {
  std::string engine = "guessed";
  // Its heads, rotary embeddings and types of layers; without it none of these is guessed.
  const ModelConfig* model = nullptr;
  // Whether the reference, on the inputs of a case, gets its outputs; an error where it cannot run.
  std::function<Result<bool>(const OpCase&)> right;
  int most_runs = 48;  // of `right` for an op in a layer
};

struct MapGuess {
  std::string map;                   // JSON
  std::vector<std::string> reasons;  // a line for each op that was found
  std::vector<std::string> open;     // and for what was not, taps and tensors
};

// AS_BAD_INPUT where no op was found.
Result<MapGuess> guess_map(const std::vector<TensorFile>& files, const GuessOptions& options);

}  // namespace attnscope
