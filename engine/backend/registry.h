// The lanes a session can choose from, by name, and the choice per op.
//
//   LaneRegistry lanes;                       // knows the engine's host ops
//   lanes.add(*cpu::lane());
//   Result<LaneSelector> s = LaneSelector::make(lanes, {"cpu",
//   "indexer_topk=mutant:topk_one_short"});
#pragma once

#include <array>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/params/lane_table.h"
#include "kernels/params/result.h"

namespace attnscope {

struct BetweenOps;     // engine/session/step/between_ops.h
class SessionWitness;  // engine/session/verify/witness.h
struct Scenario;

// One for a session of a scenario.
using MakeWitness = std::function<Result<std::unique_ptr<SessionWitness>>(
    const Scenario& scenario, const as_threads* threads)>;

// Of all ops, in the order of their ids.
std::vector<std::string> op_names();
// "cpu", or "cpu, indexer_topk=mutant:topk_one_short". by_op: a lane for each op,
// empty for those that a recording does not know.
std::string describe_lanes(std::span<const std::string> by_op);

class LaneRegistry {
 public:
  // Copies the table. The host ops (schedule, block_tables) of lane "cpu" are the engine's. A lane
  // with no op at all cannot run here; its description says why. between: what the lane brings
  // besides ops, if anything; it must outlive the registry and the sessions.
  void add(const Lane& lane, const BetweenOps* between = nullptr);
  const Lane* find(std::string_view name) const;  // nullptr when unknown
  std::vector<std::string> names() const;         // of those that can run
  // Names of the lanes that implement an op, in order of registration.
  std::vector<std::string> lanes_of(as_op_id op) const;
  // In the order they were added, those that cannot run here included.
  const std::vector<Lane>& all() const { return lanes_; }
  // Of a lane of all(); nullptr = none.
  const BetweenOps* between(const Lane& lane) const;
  // Beside the lanes: who follows sessions. None until it is set.
  void set_witness(MakeWitness make) { witness_ = std::move(make); }
  const MakeWitness& witness() const { return witness_; }
  // Whether references compute elsewhere than on the host's processors.
  void set_references_beside(bool beside) { references_beside_ = beside; }
  bool references_beside() const { return references_beside_; }

 private:
  std::vector<Lane> lanes_;
  std::vector<const BetweenOps*> between_;  // by lane
  MakeWitness witness_;
  bool references_beside_ = false;
};

// Which lane runs each op.
class LaneSelector {
 public:
  // choices: "LANE" sets the lane of every op, "OP=LANE" of one. A mutant lane holds one op and a
  // plugin a few, all others stay with cpu; so do the host ops of a lane without them. A later one
  // wins over one of more ops; two that choose different lanes of an op else: AS_USAGE with both.
  // Unknown lane, unknown op, a lane without the op: AS_USAGE with the allowed values; so is a
  // lane of helper ops alone. A lane that cannot run here: AS_NO_ENVIRONMENT.
  static Result<LaneSelector> make(const LaneRegistry& registry,
                                   std::span<const std::string> choices);

  // The same choice with the ops of one lane as `other` has them.
  LaneSelector without(std::string_view lane, const LaneSelector& other) const;
  // The same choice with one op as `lane` has it; with a helper op, which has no place in a step,
  // the same choice.
  LaneSelector with(as_op_id op, const Lane& lane) const;

  as_op_fn function(as_op_id op) const { return functions_[op]; }
  const std::string& lane(as_op_id op) const { return names_[op]; }
  // merge_states of the lane that was chosen for every op, cpu where it has none.
  as_op_fn merge() const { return merge_; }
  const std::string& merge_lane() const { return merge_lane_; }
  // What the lane of schedule brings besides ops; nullptr = nothing, as all but planted bugs.
  const BetweenOps* between() const { return between_; }
  std::string description() const { return describe_lanes(names_); }

 private:
  std::array<as_op_fn, AS_OP_COUNT> functions_{};
  std::array<std::string, AS_OP_COUNT> names_;
  as_op_fn merge_ = nullptr;
  std::string merge_lane_;
  const BetweenOps* between_ = nullptr;
};

}  // namespace attnscope
