// Who follows a session by means that share nothing with it, and says at the end of each step what
// is wrong beyond single ops. The registry that brings the lanes brings the witness too
// (backend/registry.h), so that whoever makes a session has it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/session/step/op_params.h"
#include "engine/trace/tap_result.h"
#include "kernels/params/result.h"

namespace attnscope {

class Session;

// What a witness says of itself.
struct Witnessed {
  std::int64_t rows = 0;  // of layers and logits that were compared
  double worst = 0;       // largest difference of ref.exact, of the row's largest value
  double drift = 0;       // largest distance of a row of the engine's, of its length
  double sim_drift = 0;   // of ref.sim's
  double seconds = 0;     // of processor time, over all threads
  std::string left_out;   // why there is none; empty = there is one
  std::string hint;       // what to do to have one; may be empty
};

// "ref.model does not follow: an older program kept the session; start over ..": for people.
std::string unwitnessed_text(const Witnessed& witnessed);

class SessionWitness {
 public:
  virtual ~SessionWitness() = default;
  // A free-running reference computed an op of a layer (running index, -1 outside), perhaps on
  // another thread and behind the session; of all ops of a step before step_done().
  virtual void reference_done(int layer, const OpParams& params, bool exact) = 0;
  // An op ran and was compared; its params, results and the step's metadata are still in place.
  virtual void op_done(const Session& session) = 0;
  // Another rank's op ran in the layer where the session stands; its params are still in place.
  virtual void rank_op_done(const Session& session, const OpParams& params, int rank) = 0;
  // The step is the last one of the history, its tokens are appended. Gives what is wrong beyond
  // its results. changed: ops were computed otherwise on purpose (op_change.h).
  virtual Result<std::vector<TapResult>> step_done(const Session& session, bool changed) = 0;
  virtual Witnessed witnessed() const = 0;
};

}  // namespace attnscope
