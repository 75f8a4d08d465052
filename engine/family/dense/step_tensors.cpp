// The tensors of a step that layers with chunks have, the batch that local_batch makes of it, and
// those of encoder-decoders, the two kinds of tokens that cross_batch tells apart.
#include "engine/family/dense/dense.h"
#include "engine/family/dense/encoder_decoder.h"
#include "engine/model/numbers.h"

namespace attnscope {
namespace {

// In the order of dense_step_tensors.
enum LocalTensor {
  kTokenToSeq,
  kLocalPositions,
  kLocalStarts,
  kLocalSeqLens,
  kLocalTables,
  kSourceToReq,
  kTargetToReq,
  kSourceSlots,
  kTargetSlots
};

void cross_lists(const StepMetadata& step, LogicalMetadata& out) {
  for (std::size_t t = 0; t < step.positions.size(); ++t) {
    const std::int32_t request = step.token_to_req[t];
    const bool source = step.positions[t] < step.source_lens[to_size(request)];
    out.own[source ? kSourceToReq : kTargetToReq].numbers[t] = request;
    out.own[source ? kSourceSlots : kTargetSlots].slots[t] = out.rows_of(1)[t];
  }
}

}  // namespace

std::vector<StepTensor> dense_step_tensors(const ModelConfig& config, const CacheLayout& layout) {
  using Of = StepTensor::Kind;
  const int chunk = dense_chunk(config);
  const bool used = chunk > 0;
  std::vector<StepTensor> tensors;
  tensors.push_back({.name = "token_to_seq", .kind = Of::kRows, .used = used});
  tensors.push_back({.name = "local_positions", .kind = Of::kPlaces, .used = used});
  tensors.push_back({.name = "local_query_start_loc", .kind = Of::kStarts, .used = used});
  tensors.push_back({.name = "local_seq_lens", .kind = Of::kLengths, .used = used});
  tensors.push_back({.name = "local_tables",
                     .kind = Of::kTables,
                     .used = used,
                     .lists_by = StepTensor::ListsBy::kChunkGroup,
                     .lists = to_count(layout.chunk_groups.size()),
                     .columns = chunk / config.dense.block_tokens,
                     .cache = kKeyCache,
                     .lengths = kLocalSeqLens});
  const bool cross = is_encoder_decoder(config);
  tensors.push_back({.name = "source_to_req", .kind = Of::kRows, .used = cross});
  tensors.push_back({.name = "target_to_req", .kind = Of::kRows, .used = cross});
  for (const char* name : {"source_slots", "target_slots"}) {
    tensors.push_back({.name = name, .kind = Of::kSlots, .used = cross, .tokens_per_row = 1});
  }
  return tensors;
}

// References see requests as they are, at the positions that they have: what a chunk hides they
// find out themselves. A row is a request that computes something; there is one for every token, as
// in the engine's tensors.
void dense_logical_lists(const StepMetadata& step, const ModelConfig& config,
                         LogicalMetadata& out) {
  out.own = dense_step_tensors(config, CacheLayout());
  StepTensor& tables = out.own[kLocalTables];
  if (is_encoder_decoder(config)) {
    for (StepTensor& tensor : out.own) tensor.assign(step.num_tokens_in_step(), step.list_columns);
    cross_lists(step, out);
  }
  if (!tables.used) return;
  tables.lists_by = StepTensor::ListsBy::kAll;
  tables.lists = tables.columns = 1;
  const std::int64_t tokens = step.num_tokens_in_step();
  for (StepTensor& tensor : out.own) tensor.assign(tokens, step.list_columns);
  out.own[kLocalPositions].slots = step.positions;
  std::int32_t row = -1, last = -1;
  for (std::int64_t t = 0; t < tokens; ++t) {
    const std::int32_t request = step.token_to_req[to_size(t)];
    if (request != last) {
      last = request;
      out.own[kLocalStarts].numbers[to_size(++row)] = static_cast<std::int32_t>(t);
      out.own[kLocalSeqLens].numbers[to_size(row)] = step.seq_lens[to_size(request)];
      tables.numbers[to_size(row)] = out.table(1)[to_size(request)];
    }
    out.own[kTokenToSeq].numbers[to_size(t)] = row;
  }
}

}  // namespace attnscope
