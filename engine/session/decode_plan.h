// Decode steps of up to a number of tokens on the device: tensors of a padded size at fixed
// addresses, so that a step is a few copies and one recorded graph, replayed with other lengths.
// Padded tokens have no slot and no length: they write nothing and read nothing.
//
// The branches of a compressed layer (queries; compressor; indexer's compressor; index queries) lie
// on streams of their own until attention needs them.
//
// A plan computes the same bytes op by op and as a whole.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "engine/backend/registry.h"
#include "engine/metadata/step_metadata.h"
#include "engine/session/residency.h"

namespace attnscope {

// What a plan is made for; a step fits when it needs no more.
struct PlanShape {
  std::int64_t tokens = 0;   // padded
  std::int64_t live = 0;     // rows of the tables
  std::int64_t columns = 0;  // of the tables
  std::int64_t logits = 0;   // columns of the indexer's logits
  std::int64_t c128 = 0;     // columns of a C128A list, 0 without such layers
};

class DecodePlan {
 public:
  static Result<std::unique_ptr<DecodePlan>> make(const PlanShape& shape, const SessionParts& parts,
                                                  const Slab& slab, const LaneSelector& lanes,
                                                  Residency& residency);
  ~DecodePlan();

  const PlanShape& shape() const { return shape_; }

  // Takes over a step's metadata and its embedded tokens [T,hidden].
  Result<void> begin(const StepMetadata& step, const as_tensor& hidden);
  // Runs one op (layer -1: after the layers) on the main stream.
  Result<void> run(int layer, as_op_id op, bool poison);
  // Runs every op after begin(). The second time it is a graph.
  Result<void> run_all();
  // Copies the leading rows of an op's outputs into the tensors of `host`; with `inputs` also what
  // it read, which a faulty kernel may have changed.
  Result<void> fetch(int layer, const OpParams& host, bool inputs);

  struct Timed {
    as_op_id op;
    int layer;  // index, -1 after the layers
    double microseconds;
  };
  // Of the ops run since begin(), in order; waits for them.
  Result<std::vector<Timed>> times();

 private:
  struct Step {
    as_op_id op = AS_OP_ATTN_NORM;
    int layer = -1;
    int branch = 0;
    std::vector<int> starts;  // branches that go on from where this op begins
    std::vector<int> after;   // branches that must be done first
    OpParams params;          // addresses of the device
    as_op_fn function = nullptr;
  };
  DecodePlan(const PlanShape& shape, const SessionParts& parts, const Slab& slab,
             Residency& residency);

  Result<void> build(const LaneSelector& lanes);
  Result<void> add(as_op_id op, int layer, const LaneSelector& lanes);
  // Device addresses for params that point to the plan's own host tensors.
  Result<void> translate(OpParams& params);
  Result<void> translate(as_tensor& tensor);
  Result<void> call(const Step& step, int branch);
  Result<void> put_all();  // every op on its branch
  void pad(const StepMetadata& step);
  Result<void> last_hidden();  // the rows that the head reads

  PlanShape shape_;
  const SessionParts& parts_;
  const Slab& slab_;
  Residency& residency_;
  ComputeDevice& device_;
  Frame frame_{Frame::Kind::kEngine};  // host addresses that stand for device memory, never read
  StepMetadata metadata_;
  std::map<const void*, void*> memory_;  // by host address
  struct Piece {
    const void* host;
    std::size_t bytes, offset;
  };
  std::vector<Piece> pieces_;  // of the metadata, packed on the device
  unsigned char* packed_ = nullptr;
  std::vector<unsigned char> packing_;
  as_tensor hidden_in_{}, hidden_out_{}, last_{};  // on the device
  std::vector<Step> steps_;
  std::vector<std::size_t> timed_;  // steps run since begin()
  std::int64_t begun_ = 0;          // calls of begin()
  bool ran_ = false;
  std::optional<std::size_t> graph_;
};

}  // namespace attnscope
