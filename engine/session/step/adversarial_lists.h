// The inputs of an op as it may meet them elsewhere, within its contract, and the engine itself
// never makes them: lists with holes (-1) inside their lengths, and behind their ends what an
// earlier step may have left there. The answer must be the same, so nobody but the lane sees these
// params: checks, references and recordings have the session's own.
//
//   sparse_attention  holes between the entries of each list; behind its end slots of the null
//                     block, whose rows are NaN in all bytes or in their codes alone
//   indexer_topk      behind the end of each row of logits the largest number there is
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "engine/session/step/op_params.h"
#include "engine/session/step/slab.h"
#include "kernels/params/lane.h"

namespace attnscope {

// Makes every other latent row of the null block one that has NaN in its codes alone: scales are 1,
// the rotary part is 1. The others stay NaN in all bytes.
void plant_nan_codes(const CacheLayout& layout, const Slab& slab);

class AdversarialLists {
 public:
  // Whether an op's params can be made so.
  static bool apply_to(as_op_id op) {
    return op == AS_OP_SPARSE_ATTENTION || as_op_role(op) == AS_ROLE_SELECT;
  }

  // The params for the lane, in memory of this object until its next call. positions: i64 [T] of
  // the tokens; what is put where follows from position and layer alone.
  const OpParams& dress(const OpParams& params, const std::int64_t* positions, int layer);

  // Calls sparse_attention for the step's last token over its own row and a row with NaN codes,
  // which plant_nan_codes() has made: o and lse must be NaN. An error is the lane's; the text says
  // where a number came out, none: nowhere.
  Result<std::optional<std::string>> read_nan_codes(const OpParams& params, as_op_fn lane,
                                                    const as_call& call);

 private:
  struct List {
    std::vector<std::int32_t> slots, lens;
    void make(as_tensor& indices, as_tensor& lengths, std::int64_t garbage_rows,
              const std::int64_t* positions, int layer);
  };

  OpParams params_;
  List window_, extra_;
  std::vector<float> logits_;
};

}  // namespace attnscope
