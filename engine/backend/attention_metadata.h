// What a step hands to an attention backend: who decodes and who prefills (batch_plan.h), and where
// rows lie, in the form that the backend reads. Views into buffers that are allocated once: a
// recorded graph reads the same addresses in every step.
//
//   Result<MetadataBuilder> builder = MetadataBuilder::make(
//       MetadataForm::kPagedIndices, {.requests = 256, .tokens = 8192, .columns = 512, .pages =
//       n});
//   Result<AttentionMetadata> m = builder->build(step, group, rules);
//   const PagedIndices& pages = std::get<PagedIndices>(m->form);
//
// Letters: R requests and T tokens with padding, C columns.
#pragma once

#include <cstdint>
#include <span>
#include <variant>
#include <vector>

#include "engine/backend/attention_backend.h"
#include "engine/metadata/batch_plan.h"

namespace attnscope {

// The same for all backends. Decodes stand first, prefills behind them, padding last.
struct CommonMetadata {
  std::int64_t requests = 0, tokens = 0;  // without padding
  std::int64_t decodes = 0, decode_tokens = 0;
  std::int64_t max_query_len = 0, max_seq_len = 0;
  bool causal = true;
  std::span<const std::int32_t> rows;             // [R] of the step's metadata, -1 = padding
  std::span<const std::int32_t> query_start_loc;  // [R+1] first token; padding repeats the end
  std::span<const std::int32_t> seq_lens;         // [R] with the step's tokens, 0 = padding
  std::span<const std::int64_t> token_rows;       // [T] token of the step, -1 = padding
  std::span<const std::int32_t> token_to_req;     // [T] place in `rows`, -1 = padding
  std::span<const std::int64_t> positions;        // [T] 0 = padding
  std::span<const std::int64_t> slots;            // [T] -1 = padding; empty without a cache

  std::int64_t padded_requests() const { return static_cast<std::int64_t>(rows.size()); }
  std::int64_t padded_tokens() const { return static_cast<std::int64_t>(positions.size()); }
  std::int64_t prefills() const { return requests - decodes; }
  std::int64_t prefill_tokens() const { return tokens - decode_tokens; }
};

// As FlashAttention reads it.
struct BlockTables {
  std::span<const std::int32_t> tables;  // [R,C] blocks of a request, -1 behind them
  std::int64_t columns = 0;
};

// As FlashInfer does: the blocks of all requests one after another.
struct PagedIndices {
  std::span<const std::int32_t> indptr;         // [R+1] first of a request's in `indices`
  std::span<const std::int32_t> indices;        // blocks
  std::span<const std::int32_t> last_page_len;  // [R] tokens in the last one, 0 = padding
};

// Without a cache: the tokens of the step are the keys too.
struct PrefillOnly {
  std::span<const std::int32_t> cu_seqlens;  // [R+1] of queries and keys
};

struct AttentionMetadata {
  CommonMetadata common;
  std::variant<BlockTables, PagedIndices, PrefillOnly> form;
};

// What buffers hold at most.
struct MetadataLimits {
  std::int64_t requests = 0, tokens = 0;
  std::int64_t columns = 0;  // blocks of a request
  std::int64_t pages = 0;    // of all requests together; 0 = requests x columns
};

// What one step asks of them, at least 1 each.
MetadataLimits limits_of(const StepMetadata& step, const BatchRules& rules);

class MetadataBuilder {
 public:
  // AS_BAD_INPUT: a limit below 1, or a form that no buffers here are of.
  // type: decoders alone are causal.
  static Result<MetadataBuilder> make(MetadataForm form, const MetadataLimits& limits,
                                      AttentionType type = AttentionType::kDecoder);

  // Of a step whose lists are planned: the blocks and slots of a group of caches, -1 where the form
  // is without a cache. What it gives lasts until the next call. AS_BAD_INPUT: more than the
  // buffers hold, or what the form cannot say.
  Result<AttentionMetadata> build(const StepMetadata& step, int group, const BatchRules& rules);

  MetadataForm form() const { return form_; }
  std::int64_t bytes() const;  // of all buffers

 private:
  MetadataBuilder(MetadataForm form, const MetadataLimits& limits, AttentionType type);

  Result<void> check(const StepMetadata& step, int group, const BatchPlan& plan) const;
  void fill_requests(const StepMetadata& step, const BatchPlan& plan, CommonMetadata& common);
  void fill_tokens(const StepMetadata& step, int group, CommonMetadata& common);
  Result<BlockTables> block_tables(const StepMetadata& step, int group,
                                   const CommonMetadata& common);
  Result<PagedIndices> paged_indices(const StepMetadata& step, int group,
                                     const CommonMetadata& common);

  MetadataForm form_;
  MetadataLimits limits_;
  AttentionType type_;
  // [requests] or one more; [tokens]; of the form: tables or indices.
  std::vector<std::int32_t> rows_, query_start_loc_, seq_lens_, token_to_req_, blocks_, indptr_,
      last_page_len_;
  std::vector<std::int64_t> token_rows_, positions_, slots_;
};

// Requests of a batch that a graph of so many tokens replays: those of the plan, and as many more
// as fit behind them.
std::int64_t padded_requests(const BatchPlan& plan);

}  // namespace attnscope
