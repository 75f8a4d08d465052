// Why a call came out wrong (engine/explain), with the planted bugs of this build as the known
// mistakes.
#pragma once

#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <utility>

#include "engine/backend/registry.h"
#include "engine/explain/explain_case.h"
#include "engine/session/session.h"

namespace attnscope {

// AS_USAGE for an op that has no ref.sim. seconds, before: see explain_case.
Result<Explanation> explain_call(const OpCase& kept, const LaneRegistry& lanes,
                                 const Tolerances& tolerances, const as_threads* threads,
                                 double seconds = kInfinity, const TablesBefore& before = {});

// Block tables that the ops of a session were given, in the step that runs and in the one before.
class TablesWatch {
 public:
  // After every op.
  void op_done(const Session& session);
  // Those of an op of this layer in the step before; empty: it had none.
  TablesBefore before(as_op_id op, int layer) const;

 private:
  using ByOp = std::map<std::pair<as_op_id, int>, TablesBefore>;
  std::int64_t step_ = -1;
  ByOp own_, before_;
};

nlohmann::json explanation_json(const Explanation& why);

}  // namespace attnscope
