// What the references are to say of one op of the engine: what it was given and put out, as long as
// they look at it, and what they have found so far.
#pragma once

#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/session/step/frame.h"
#include "engine/session/step/op_params.h"
#include "engine/session/verify/mass_moved.h"
#include "engine/trace/tap_result.h"
#include "kernels/params/lane.h"
#include "kernels/params/result.h"

namespace attnscope {

// Of one tap, the engine against the references that run free.
struct FreeFigures {
  std::optional<ErrorFigures> inherited, quantisation;
  std::optional<SelectionDrift> selection;
};

// Copies of what an op was given and has put out, for those who look at it while the engine goes
// on.
class OpCopies {
 public:
  // Puts copies in the place of tensors that are not constant. False, with nothing changed, where
  // they are large.
  bool take(OpParams& params, const std::function<bool(const as_tensor&)>& is_constant);

 private:
  std::vector<Scratch> memory_;  // by tap
};

// Whether an op writes to memory of a tensor that another one read or wrote.
bool writes_to(const OpParams& op, const OpParams& other);

// What the weights and tables that an op reads are found to be, and where it belongs among the
// results of the step: before what is said of the op.
struct WeightLook {
  int layer = -1;  // running index, -1 outside
  std::size_t place = 0;
  std::vector<TapResult> found;
  std::exception_ptr thrown;
};

// Memory of a judging, for the next one.
struct JudgingMemory {
  OpCopies copies;
  std::vector<Scratch> gathered;  // by tap
};

struct ForcedRun;  // forced_run.h

struct Judging {
  int layer = -1;  // running index, -1 outside
  int peer = -1;   // whose op it is; -1 = the own rank's
  OpParams params;
  std::string lane;
  as_call call{};                  // of references
  bool bad_rows = false;           // the op gathers rows other than those that were written
  std::vector<bool> huge;          // by row: inputs that are too large to compare; empty = none
  std::vector<as_tensor> written;  // by tap: rows that it wrote to a cache

  // Forced.
  ForcedRun* run = nullptr;
  Result<void> forced, compared;
  bool requantised = false;
  OpParams requantised_params;
  std::vector<TapResult> results;
  std::vector<std::uint32_t> taps;       // by result
  std::optional<SwappedPlaces> swapped;  // of a selection that is another one than the reference's
  std::size_t swapped_result = 0;

  // Free-running: what they computed last is this op.
  Result<void> free;
  OpParams free_sim, free_exact;
  std::vector<FreeFigures> figures;  // by tap

  std::size_t place = 0;  // of the results among those of the step

  // Where it is judged while the engine goes on.
  bool copied = false;        // params are of copies
  int at_work = 0;            // threads, by the verifier's lock
  std::exception_ptr thrown;  // by one of them
  std::shared_ptr<WeightLook> look;
  std::unique_ptr<JudgingMemory> memory;
};

}  // namespace attnscope
