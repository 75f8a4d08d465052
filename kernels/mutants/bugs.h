// The wrong ops. Each runs the CPU op, on spoiled inputs or with its outputs spoiled afterwards.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/params/lane.h"

namespace attnscope::mutants {

// One planted bug; it becomes the lane mutant:NAME.
struct Bug {
  const char* name;         // with the prefix "mutant:"
  const char* description;  // one sentence: what is wrong
  as_op_id op;              // the one op that is wrong
  as_op_fn function;
};

// One that only some traffic reaches.
struct RareBug {
  Bug bug;
  const char* scenario;  // of assets/scenarios, that does
};
std::vector<RareBug> rare_bugs();
std::vector<RareBug> plan_bugs();      // of the plan of attention, where a step has one
std::vector<RareBug> draft_bugs();     // of what a draft layer begins with
std::vector<RareBug> form_bugs();      // dense attention in two passes
std::vector<RareBug> exchange_bugs();  // between host memory and a pool of rows
std::vector<RareBug> swap_bugs();      // blocks to host memory and back
std::vector<RareBug> wide_bugs();      // first tokens in 16 bits beside rows of codes

// By what they spoil; a file each.
std::vector<Bug> list_bugs();        // slots, windows and lists of the step
std::vector<Bug> dense_bugs();       // norms, projections, residual, sampling
std::vector<Bug> row_bugs();         // queries, latent rows, inverse RoPE
std::vector<Bug> compressor_bugs();  // state rows and entries
std::vector<Bug> indexer_bugs();     // index queries, scores, selection
std::vector<Bug> attention_bugs();   // the attention itself
std::vector<Bug> read_bugs();        // which rows it reads, and how
std::vector<Bug> position_bugs();    // RoPE of the token beside, blocks of the column beside
std::vector<Bug> prefill_bugs();     // the same over gathered rows
std::vector<Bug> paged_bugs();       // dense attention: its insertion and itself
std::vector<Bug> alibi_bugs();       // its bias by distance
std::vector<Bug> varlen_bugs();      // dense attention without caches
std::vector<Bug> chunk_bugs();       // the batch of its chunks
std::vector<Bug> cross_bugs();       // encoder-decoders
std::vector<Bug> code_bugs();        // quantised rows of keys and values
std::vector<Bug> mask_bugs();        // masks and score functions of a user
std::vector<Bug> mla_bugs();         // absorbed MLA and the indexer that scores tokens
std::vector<Bug> batch_bugs();       // helper ops that make tables and lists of a batch
std::vector<Bug> convert_bugs();     // rows in another format, a helper op too

// The right op.
std::int32_t run_cpu(as_op_id op, const void* params, const as_call* call, as_error* error);

// Whether the params are fit to be copied and changed; if not, running the CPU op reports why.
template <class Params>
bool readable(const void* params) {
  return params != nullptr &&
         static_cast<const Params*>(params)->head.struct_size == sizeof(Params);
}

// Runs the right op, which refuses what must not be read, then spoil(p) on the params, whose
// outputs then hold the right answer. spoil returns a status.
template <class Params, class Spoil>
std::int32_t spoil_after(as_op_id op, const void* params, const as_call* call, as_error* error,
                         const Spoil& spoil) {
  const std::int32_t status = run_cpu(op, params, call, error);
  if (status != AS_OK) return status;
  Params p = *static_cast<const Params*>(params);
  return spoil(p);
}

}  // namespace attnscope::mutants
