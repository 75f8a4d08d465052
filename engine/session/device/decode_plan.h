// Decode steps of up to a number of tokens on the device: tensors of a padded size at fixed
// addresses, so that a step is one recorded graph, replayed with other lengths. It begins with one
// copy of all that the host knows (tables, tokens, their hidden states) and ends with one of what
// the host wants to know (tokens, slots, lists). Padded tokens have no slot and no length: they
// write nothing and read nothing.
//
// Slots and lists are made by ops of the graph where their lanes are the device's, else on the host
// and taken there. Events around ops are in a graph of their own, for who asks for times.
//
// Branches of the model's graph lie on streams of their own (engine/family/launch_order.h).
//
// A plan computes the same bytes op by op and as a whole.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "engine/backend/registry.h"
#include "engine/family/launch_order.h"
#include "engine/metadata/step_metadata.h"
#include "engine/session/device/residency.h"
#include "engine/session/step/frame.h"

namespace attnscope {

// What a plan is made for; a step fits when it needs no more.
struct PlanShape {
  std::int64_t tokens = 0;        // padded
  std::int64_t live = 0;          // rows of the tables
  std::int64_t columns = 0;       // of the tables
  std::int64_t logits = 0;        // columns of the indexer's logits
  std::int64_t list_columns = 0;  // of lists that grow with the longest request
};

// How it runs.
struct PlanWays {
  bool lists = false;   // slots and lists are made on the device when a step runs as a whole
  bool serial = false;  // every op on the main stream
};

class DecodePlan {
 public:
  static Result<std::unique_ptr<DecodePlan>> make(const PlanShape& shape, const SessionParts& parts,
                                                  const Slab& slab, const LaneSelector& lanes,
                                                  Residency& residency, const PlanWays& ways);
  ~DecodePlan();

  const PlanShape& shape() const { return shape_; }

  // Takes over a step's metadata and its embedded tokens [T,hidden]. whole: for launch().
  Result<void> begin(const StepMetadata& step, const as_tensor& hidden, bool whole);
  // Runs one op (layer -1: after the layers) on the main stream.
  Result<void> run(int layer, as_op_id op, bool poison);
  // The kernels that run() of an op launches, once it has run.
  Result<OpLaunches> launches(int layer, as_op_id op);
  // Starts every op after begin(); the second time it is a graph. timed: times() will be asked for.
  Result<void> launch(bool timed);
  // Waits for them. The step gets its slots and lists, where they are made here; `sampled` the
  // first of the sampled tokens.
  Result<void> finish(StepMetadata& step, const as_tensor& sampled);
  // Copies the leading rows of an op's outputs into the tensors of `host`; with `inputs` also what
  // it read, which a faulty kernel may have changed.
  Result<void> fetch(int layer, const OpParams& host, bool inputs);

  struct Timed {
    as_op_id op;
    int layer;  // index, -1 after the layers
    double microseconds;
    double start = 0;  // microseconds behind the first of those timed
    int stream = 0;
  };
  // Of the ops that were timed since begin(), in order; waits for them.
  Result<std::vector<Timed>> times();

 private:
  struct Step {
    Launch launch;
    OpParams params;  // addresses of the device
    as_op_fn function = nullptr;
  };
  DecodePlan(const PlanShape& shape, const SessionParts& parts, const Slab& slab,
             Residency& residency, const PlanWays& ways);

  Result<void> build(const LaneSelector& lanes);
  Result<void> pack_pieces();
  void add(const Launch& launch, const LaneSelector& lanes);
  const Step& step_of(int layer, as_op_id op) const;
  bool is_packed(const as_tensor& tensor) const;
  // Memory on the device for the values; they share it where none needs its own (value_places.h).
  Result<void> place();
  // Device addresses for params that point to the plan's own host tensors.
  Result<void> translate(OpParams& params);
  Result<void> translate(as_tensor& tensor);
  Result<void> call(const Step& step, int branch, bool timed);
  Result<void> put_all(bool timed);  // copies, and every op on its branch
  // Where the host has what goes to the device, or comes from there, in the place of `host`.
  template <class T>
  T* packed(const T* host) const;
  void pack_inputs(const StepMetadata& step, const as_tensor& hidden);
  void pack_lists(const StepMetadata& step);
  void unpack_lists(StepMetadata& step) const;
  void wrote_blocks(const StepMetadata& step);

  PlanShape shape_;
  const SessionParts& parts_;
  const Slab& slab_;
  Residency& residency_;
  ComputeDevice& device_;
  const PlanWays ways_;
  Frame frame_{Frame::Kind::kEngine};    // host addresses that stand for device memory, never read
  StepMetadata metadata_;                // addresses and sizes; its values are never used
  unsigned char* memory_ = nullptr;      // of the values, on the device
  std::map<const void*, void*> places_;  // in it, by host address
  struct Piece {
    const void* host;
    std::size_t bytes, offset;
    bool has(const as_tensor& tensor) const {
      const auto *begin = static_cast<const char*>(host),
                 *at = static_cast<const char*>(tensor.data);
      return at >= begin && at < begin + bytes;
    }
  };
  // Inputs of a step, slots and lists, results: one behind the other on both sides.
  std::vector<Piece> pieces_;
  unsigned char* packed_ = nullptr;   // on the device
  unsigned char* packing_ = nullptr;  // on the host, of the device's making
  std::size_t lists_at_ = 0, results_at_ = 0, packed_bytes_ = 0;
  std::int64_t rows_packed_ = 0, columns_packed_ = 0;  // of tables, at most so far
  const bf16_t* hidden_in_ = nullptr;                  // host addresses
  const std::int32_t* sampled_ = nullptr;
  std::vector<Step> steps_;
  std::vector<std::size_t> timed_;  // steps timed since begin()
  std::int64_t begun_ = 0;          // calls of begin()
  bool ran_ = false;
  std::optional<std::size_t> graph_, timed_graph_;
};

}  // namespace attnscope
