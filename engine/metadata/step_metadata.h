// What one step knows before its layers run: who advances, where each token sits, and every table
// and index list. Arrays are outputs of the step's ops or plain inputs of them; shapes as in
// kernels/params/step_params.h.
//
// Letters: T tokens, R live requests, G groups, C table columns, S SWA groups, W window.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/cache/cache_layout.h"
#include "engine/sched/serving.h"
#include "kernels/params/tensor.h"

namespace attnscope {

// The tables that the ops of a session read, by request and group. They keep what the manager has
// dropped since: only a request that starts anew gets a fresh one.
using WorkerTables = std::vector<std::vector<std::vector<std::int32_t>>>;

struct StepMetadata {
  // requests
  std::vector<std::int32_t> live;          // [R] request ids, row order of all tables
  std::vector<std::int32_t> num_tokens;    // [R] known tokens and drafts
  std::vector<std::int32_t> num_before;    // [R] computed before this step
  std::vector<std::int32_t> running;       // [R] 1 = admitted before this step
  std::vector<std::int32_t> joins;         // [R] 1 = admitted by this step
  std::vector<std::int32_t> lost_to;       // [R] row it lost its blocks to, -1 = it did not
  std::vector<std::int32_t> matching;      // [R] tokens behind the blocks that a newcomer found
  std::vector<std::int32_t> num_computed;  // [R] position of the first token of this step
  std::vector<std::int32_t> scheduled;     // [R]
  // blocks
  std::vector<std::int32_t> groups;                 // [G,2] block tokens, window
  std::vector<std::int32_t> blocks;                 // [G,R,C] the manager's tables
  std::vector<std::int32_t> tables_before, tables;  // [G,R,C] those that the ops read
  std::vector<std::int32_t> counts_before, counts;  // [G,R]
  std::int64_t columns = 0;                         // C
  // tokens
  std::vector<std::int32_t> tokens;          // [T] ids
  std::vector<std::int64_t> positions;       // [T]
  std::vector<std::int32_t> request_of;      // [T] row of the tables
  std::vector<std::int32_t> query_start;     // [R+1]
  std::vector<std::int32_t> seq_lens;        // [R] computed + scheduled
  std::vector<std::int64_t> sample_rows;     // [N] tokens whose logits are sampled, drafts too
  std::vector<std::int32_t> sample_request;  // [N] row of the request
  // slots and lists
  std::vector<std::int64_t> slots;                 // [G,T]
  std::vector<std::int64_t> c4_slots, c128_slots;  // [T]
  std::vector<std::int32_t> c4_lens;               // [T] visible C4 entries
  std::vector<std::int32_t> swa_indices;           // [S,T,W]
  std::vector<std::int32_t> swa_lens;              // [T]
  std::vector<std::int32_t> c128_indices;          // [T,A]
  std::vector<std::int32_t> c128_lens;             // [T]
  std::int64_t c128_width = 0;                     // A

  std::int64_t num_live() const { return static_cast<std::int64_t>(live.size()); }
  std::int64_t num_tokens_in_step() const { return static_cast<std::int64_t>(positions.size()); }
  // Columns of the indexer logits: the most entries any token sees, at least 1.
  std::int64_t logits_width() const;
  // Tables of one group: i32 [R,C].
  as_tensor group_table(int group) const;
};

// Requests part: rows, and the tables as the step before left them. last: what the step before had;
// the memory of its tables, megabytes with many requests, is used again.
StepMetadata begin_step(const CacheLayout& layout, const Serving& serving,
                        const WorkerTables& tables, StepMetadata last);

// What the scheduler decided; once its schedule() has run.
void take_decisions(StepMetadata& step, const Serving& serving);

// Token part, once `scheduled` is known: positions, rows, query_start, seq_lens, what to sample.
// Sizes slots and lists. has_c4 / has_c128: whether the model has such layers.
void plan_tokens(StepMetadata& step, const Serving& serving, const CacheLayout& layout, int window,
                 std::int64_t max_model_len, bool has_c4, bool has_c128);

// After the block_tables op: its tables for the steps to come.
void keep_tables(const StepMetadata& step, WorkerTables& tables);
// The same without the op, where steps are gone through again: after schedule().
void keep_tables(const Serving& serving, WorkerTables& tables);

}  // namespace attnscope
