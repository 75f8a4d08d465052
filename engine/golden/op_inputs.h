// Inputs of one op made from a seed alone: the same bits on every machine, whatever computes.
// Shapes follow from a few requests in one step of a small model (8 heads, hidden size 512; latent
// rows, index keys and state rows as they are); blocks of the paged caches are in random order.
// Values are what the ops meet: roughly normal bf16, quantised rows, slots through tables.
//
// schedule and block_tables are the engine's own and have no inputs apart from a session: goldens
// of theirs name a scenario.
#pragma once

#include <cstdint>
#include <memory>

#include "engine/backend/registry.h"
#include "engine/golden/golden_collect.h"
#include "engine/session/step/op_params.h"

namespace attnscope {

struct GoldenRunOptions;
struct InputMaker;

class OpInputs {
 public:
  OpInputs(as_op_id op, const GoldenCase& shape);
  ~OpInputs();
  OpInputs(const OpInputs&) = delete;

  // Outputs point to memory of their own: NaN as floats, -1 as integers until the op has run.
  OpParams& params();
  // What the op left there, as a step's trace holds it.
  OpTrace trace(const std::string& lane) const;
  RowOwners owners() const;

 private:
  std::unique_ptr<InputMaker> state_;
};

// Whether an op can run on inputs of its own.
bool has_own_inputs(as_op_id op);

// A choice of lanes for one op alone. AS_NO_ENVIRONMENT where the lane that is chosen for it holds
// other ops, so that cpu would stand in for it, or where the choices are of other ops.
Result<LaneSelector> lanes_with_op(const LaneRegistry& registry,
                                   const std::vector<std::string>& choices, as_op_id op);

// All cases of an op's golden, on the lane that it (or the options) names.
Result<void> run_op_cases(const GoldenSpec& spec, const LaneRegistry& registry,
                          const GoldenRunOptions& options, GoldenValues& out);

}  // namespace attnscope
