// What one step computed, kept after it ran: for every op the tensors it read and wrote, the rows
// it put into caches, ref.sim's forced values, results and time. Immutable and shared: readers on
// other threads hold it as long as they like. Replays are exact, so the trace of a step stays true
// when the session has gone back.
//
//   const OpTrace* topk = trace.find(2, AS_OP_INDEXER_TOPK);
//   const TapCopy* indices = topk ? topk->tap("indices") : nullptr;   // [kept,K]
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <memory_resource>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/cache/block_owner.h"
#include "engine/cache/cache_event.h"
#include "engine/metadata/step_metadata.h"
#include "engine/sched/request.h"
#include "engine/session/step/op_timing.h"
#include "engine/session/step/pool_counts.h"
#include "engine/session/step/step_coverage.h"
#include "engine/trace/tap_result.h"
#include "engine/trace/tap_stats.h"
#include "kernels/params/kernel_launch.h"
#include "kernels/params/op_table.h"
#include "kernels/params/tensor.h"

namespace attnscope {

// One op of one layer of one step. layer: published number, -1 outside the layers.
struct Place {
  std::int64_t step = 0;
  int layer = -1;
  as_op_id op = AS_OP_SCHEDULE;
  friend bool operator==(const Place&, const Place&) = default;
};

// A dense copy of one tensor tap. Where its axes name T, that axis holds StepTrace::kept alone; the
// ops after the layers have N rows instead, those of StepMetadata::sample_rows. Output elements
// that the op does not write (rows without a slot, columns beyond a length) are NaN.
struct TapCopy {
  std::string name;
  std::string axes;  // letters of the glossary: "T,H,D"
  std::string rule;  // tolerance class; empty for inputs
  bool output = false;
  as_tensor value{};      // points into value_bytes, or into what owner holds
  as_tensor reference{};  // ref.sim's forced value, F64 or the tap's dtype; absent = not compared
  // The reference has none of its own where they are those of the value.
  std::vector<std::uint8_t> value_bytes, reference_bytes;
  std::optional<TapStats> stats;  // instead of a value: kind and shape alone are in `value` then
  // Keeps alive what value points to where that is not value_bytes: the weights, or an earlier op
  // of the step whose output this input is, byte for byte.
  std::shared_ptr<const void> owner;
};

// Cache rows an op wrote, one per kept token with a slot: logical records (payload, then scales).
struct RowsCopy {
  std::string name;  // of the tap
  std::int32_t record = AS_RECORD_NONE;
  std::int32_t width = 0;               // values per row
  std::int64_t row_bytes = 0;           // of one record
  std::int32_t group = -1;              // cache group the slots belong to
  std::int32_t heads = 1;               // KV heads of a row
  std::int32_t rows_per_block = 0;      // slot = block * rows_per_block + row
  std::vector<std::int32_t> tokens;     // token row of the step, ascending
  std::vector<std::int64_t> slots;      // the slot each one was written to
  std::vector<std::uint8_t> bytes;      // [tokens, row_bytes] the engine's
  std::vector<std::uint8_t> reference;  // ref.sim's forced rows; empty = not compared
};

// Rows that the kept tokens of an op read from a cache, whoever wrote them and when.
struct RowsRead {
  std::vector<std::int64_t> slots;       // ascending, each once
  std::vector<std::int32_t> steps;       // that wrote each one; -1 = nobody did
  std::int64_t row_bytes = 0;            // of one record, payload and scales
  std::pmr::vector<std::uint8_t> bytes;  // [slots, row_bytes] as they were read

  // Index of a slot; -1 when nobody read it.
  std::int64_t find(std::int64_t slot) const;
};

// How attention distributed its weight, recomputed in fp32 from the op's own inputs and its LSE:
// weight(s) = e^(logit_s - m) / (sum e^(logit - m) + e^(sink - m)). Columns: the window list (W),
// then the compressed list. A column that was not read (-1 or beyond the length) has weight 0,
// logit NaN and slot -1.
struct AttentionCopy {
  std::int64_t heads = 0;
  std::int64_t window = 0;               // W columns
  std::int64_t extra = 0;                // columns of the compressed list, 0 in SWA-only layers
  std::vector<std::int64_t> slots;       // [kept, window + extra]
  std::vector<std::int32_t> window_len;  // [kept]
  std::vector<std::int32_t> extra_len;   // [kept]
  std::pmr::vector<float> logits;        // [kept, heads, window + extra]
  std::pmr::vector<float> weights;       // [kept, heads, window + extra]
  std::vector<float> sink_mass;          // [kept, heads]
  std::vector<float> sinks;              // [heads] the layer's sink logits
  RowsRead window_rows, extra_rows;      // empty in a capture
  float lse_error = 0;                   // worst |recomputed - op's| natural-log LSE over all

  // Of any head.
  bool has_sinks() const {
    return std::ranges::any_of(
        sinks, [](float logit) { return logit != -std::numeric_limits<float>::infinity(); });
  }
};

struct OpTrace {
  Place place;
  std::string lane;
  double microseconds = 0;
  OpLaunches launches;        // of a GPU's lane
  std::vector<TapCopy> taps;  // in the order of the op table; absent tensors left out
  std::vector<RowsCopy> rows;
  std::shared_ptr<const AttentionCopy> attention;  // sparse_attention alone
  std::vector<TapResult> results;                  // of its output taps
  Verdict worst = Verdict::kNotCompared;           // of results
  double budget_used = 0;                          // largest of results

  const TapCopy* tap(std::string_view name) const;
  const RowsCopy* cache_rows(std::string_view name) const;
  const TapResult* result(std::string_view tap) const;
};

struct RequestView {
  Request request;
  std::vector<std::vector<std::int32_t>> tables;  // by group; 0 = null
};

// Answers to "why", in words.
struct StepWhy {
  std::int32_t request = -1;
  std::string text;
};

struct StepTrace {
  std::int64_t step = 0;
  bool complete = false;
  StepMetadata metadata;
  // Token rows that taps hold, ascending: all of the step, or the last ones of every request.
  std::vector<std::int32_t> kept;
  // Once block_tables ran: as it left them. Tokens include those of this step, not the sampled one.
  std::vector<RequestView> requests;
  std::vector<BlockOwner> owners;           // by block id
  std::vector<std::int32_t> free_list;      // front first
  std::vector<std::int32_t> fresh, freed;   // block ids this step took and gave back
  std::vector<CacheEvent> cache_events;     // what happened to blocks in this step, in order
  std::vector<BlockKey> keys;               // in the order of blocks
  std::vector<StepWhy> misses;              // of newcomers: what they did not find, and why
  std::vector<std::int64_t> common_prefix;  // StepPlan's; empty: of a file of before
  StepWhy waiting;                    // why the head is not admitted; request -1: nobody waits
  std::vector<std::int32_t> sampled;  // by row of metadata.live, -1 = none; once complete
  std::vector<PoolPicture> pools;     // by layer, where rows lie in host memory; captures have none
  std::vector<std::shared_ptr<const OpTrace>> ops;  // that ran, in causal order
  std::int64_t bytes = 0;                           // memory of the copies

  const OpTrace* find(int layer, as_op_id op) const;
  // The first op of a layer that is for this; nullptr = none ran.
  const OpTrace* find_role(int layer, as_role role) const;
  // Index into `kept` (= row of every T axis) of a token row; -1 when it was not kept.
  std::int64_t kept_index(std::int64_t token_row) const;
  // Token row of (request id, position) in this step; -1 when it is not computed here.
  std::int64_t token_row(std::int32_t request, std::int64_t position) const;
  // Request id of a token row.
  std::int32_t request_of(std::int64_t token_row) const;
};

// Something that happened, for the log; text is one sentence.
enum class EventKind {
  kAdmit,
  kFinish,
  kAllocate,
  kFree,
  kSample,
  kWrong,
  kNearTie,
  kBack,
  kError,
  kHit,      // an admitted request found rows computed
  kPreempt,  // a running request lost its blocks
  kAbort,
  kShare,  // one more holder of a block
  kEvict,  // a block lost its key
  kChunk   // how long chunks of prefill may be in a step
};
inline constexpr int kEventKinds = 15;
const char* event_kind_name(EventKind kind);  // "admit", "finish", ..

struct Event {
  EventKind kind = EventKind::kAdmit;
  Place place;
  std::int32_t request = -1;  // id, -1 = none
  std::int32_t group = -1;
  std::int32_t block = -1;
  std::string text;
};

// One cell of the timeline.
struct LayerCell {
  int layer = -1;  // published; -1 = the ops before and after the layers
  Verdict worst = Verdict::kNotCompared;
  double budget_used = 0;
  double microseconds = 0;  // OpTiming::kNotMeasured where an op of it was not
  std::int64_t counts[kVerdicts] = {};
};

// Where the tokens of a step went: the slots that each cache was told to write them to.
struct StepWrites {
  std::vector<std::int32_t> requests;            // id, by token
  std::vector<std::int64_t> positions;           // by token
  std::vector<std::vector<std::int64_t>> slots;  // by group; -1 = none
  // Of entries that a token completes, by the tokens that one stands for; -1 = none.
  std::map<std::int64_t, std::vector<std::int64_t>> entries;
};

// What stays of every step that ran, however long ago.
struct StepSummary {
  std::int64_t step = 0;
  std::int64_t tokens = 0;
  bool decode_only = false;
  bool complete = false;
  double seconds = 0;             // ops alone
  double wall_seconds = 0;        // with references
  std::vector<LayerCell> layers;  // outside first (-1), then the running layers in order
  std::vector<OpTiming> timings;  // of its ops in order; empty in captures that lack them
  std::vector<TapResult> results;
  std::vector<Event> events;
  bool selective = false;       // some token saw more entries than the indexer may select
  PoolUsage usage;              // once the step's blocks were taken
  std::int64_t hit_tokens = 0;  // that requests admitted in this step found computed
  std::int64_t preemptions = 0;
  std::int64_t decisions = 0;                // of scheduler and block manager, that were judged
  std::vector<PoolCounts> pools;             // by layer, where rows lie in host memory
  std::shared_ptr<const StepWrites> writes;  // null: not known
  // What happened to blocks, in order; null: older than what is kept of it, or never known.
  std::shared_ptr<const std::vector<CacheEvent>> cache_events;
  std::optional<StepCoverage> coverage;  // none: the step ran before anybody watched
  bool resumed = false;                  // it ran before the session was read from a file
};

}  // namespace attnscope
