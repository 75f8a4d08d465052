// What one step knows before its layers run: who advances, where each token sits, and every table
// and index list. Arrays are outputs of the step's ops or plain inputs of them; shapes as in
// kernels/params/step_params.h.
//
// Letters: T tokens, R live requests, G groups, C table columns.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "engine/cache/cache_layout.h"
#include "engine/metadata/step_tensor.h"
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
  std::vector<std::int32_t> joins;         // [R] as ServingStep
  std::vector<std::int32_t> lost_to;       // [R] row it lost its blocks to, -1 = it did not
  std::vector<std::int32_t> matching;      // [R] tokens behind the blocks that a newcomer found
  std::vector<std::int32_t> num_computed;  // [R] position of the first token of this step
  std::vector<std::int32_t> num_scheduled_tokens;  // [R]
  // blocks
  std::vector<std::int32_t> groups;                 // [G,2] block tokens, GroupSpec::reach
  std::vector<std::int32_t> blocks;                 // [G,R,C] the manager's tables
  std::vector<std::int32_t> tables_before, tables;  // [G,R,C] those that the ops read
  std::vector<std::int32_t> counts_before, counts;  // [G,R]
  std::int64_t columns = 0;                         // C
  // tokens
  std::vector<std::int32_t> tokens;           // [T] ids
  std::vector<std::int64_t> positions;        // [T]
  std::vector<std::int32_t> token_to_req;     // [T] row of the tables
  std::vector<std::int32_t> query_start_loc;  // [R+1]
  std::vector<std::int32_t> seq_lens;         // [R] computed + num_scheduled_tokens
  std::vector<std::int32_t> source_lens;      // [R] Request::source_tokens
  std::vector<std::int64_t> sample_rows;      // [N] tokens whose logits are sampled, drafts too
  std::vector<std::int32_t> sample_request;   // [N] row of the request
  // slots and lists
  std::vector<std::int64_t> slots;  // [G,T]
  std::vector<StepTensor> own;      // those of the family, in its order (step_tensor.h)
  std::int64_t list_columns = 0;    // of lists that grow with the longest request

  std::int64_t num_live() const { return static_cast<std::int64_t>(live.size()); }
  std::int64_t num_tokens_in_step() const { return static_cast<std::int64_t>(positions.size()); }
  // Columns of the indexer logits: the most entries any token sees, at least 1.
  std::int64_t logits_width() const;
  // Of the family's own by name, nullptr = it has none.
  const StepTensor* tensor(std::string_view name) const { return find_tensor(own, name); }
  // Where entries of so many tokens go, and the lists of a cache's slots; nullptr = there are none.
  const StepTensor* entry_slots(std::int64_t tokens_per_row) const;
  const StepTensor* lists_of(CacheId cache) const;
  // Tables of one group: i32 [R,C].
  as_tensor group_table(int group) const;
};

// Requests part: rows, and the tables as the step before left them. last: what the step before had;
// the memory of its tables, megabytes with many requests, and of its lists is used again.
StepMetadata begin_step(const CacheLayout& layout, const Serving& serving,
                        const WorkerTables& tables, StepMetadata last);

// What the scheduler decided; once its schedule() has run.
void take_decisions(StepMetadata& step, const Serving& serving);

// Token part, once `num_scheduled_tokens` is known: positions, rows, query_start_loc, seq_lens,
// what to sample. Sizes the slots; the tokens of the longest request that runs.
std::int64_t plan_tokens(StepMetadata& step, const Serving& serving, const CacheLayout& layout);
// Sizes the family's own tensors. list_columns: of lists that grow.
void plan_lists(StepMetadata& step, std::int64_t list_columns);

// Once the step has sampled, for a layer that drafts: the token behind each of its tokens, which is
// known, or else what was sampled there. sampled: [N], of sample_rows.
void plan_next_tokens(StepMetadata& step, const Serving& serving, const std::int32_t* sampled);

// After the block_tables op: its tables for the steps to come.
void keep_tables(const StepMetadata& step, WorkerTables& tables);
// The same without the op, where steps are gone through again: after schedule().
void keep_tables(const Serving& serving, WorkerTables& tables);

}  // namespace attnscope
