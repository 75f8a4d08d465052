#include "engine/mutants/given_mutants.h"

#include <algorithm>

#include "engine/backend/host_ops.h"
#include "kernels/params/dtype.h"
#include "kernels/params/tensor_view.h"

namespace attnscope {
namespace {

void last_token(StepMetadata& step) { step.tokens.back() ^= 1; }

void position_late(StepMetadata& step) { ++step.positions.back(); }

// The newest request's first token: another row of the tables.
void request_before(StepMetadata& step) {
  const std::int32_t newest = step.token_to_req.back();
  if (newest == 0) return;
  *std::ranges::find(step.token_to_req, newest) = newest - 1;
}

void start_early(StepMetadata& step) {
  if (step.query_start_loc.size() > 2) --step.query_start_loc[1];
}

void length_long(StepMetadata& step) { ++step.seq_lens.front(); }

void sampled_before(StepMetadata& step) {
  if (!step.sample_rows.empty() && step.sample_rows.front() > 0) --step.sample_rows.front();
}

void embedding_bit(const as_tensor& h) { at<bf16_t>(h, h.shape[0] - 1)->bits ^= 0x40; }

void rows_shifted(const as_tensor& table) {
  auto* rows = at<float>(table);
  std::copy(rows + table.shape[1], rows + table.shape[0] * table.shape[1], rows);
}

// Behind its first reader.
void normed_row(const OpParams& params) {
  if (params.op() != AS_OP_Q_KV_A_PROJ) return;
  const as_tensor& x = params.get<as_linear_params>().x;
  at<bf16_t>(x, x.shape[0] - 1)->bits ^= 0x40;
}

}  // namespace

const std::vector<GivenMutant>& given_mutants() {
  static const std::vector<GivenMutant> kMutants = {
      {.name = "mutant:token_misread",
       .description = "The last token of a step is another one.",
       .shows = AS_OP_SCHEDULE,
       .between = {.planned = last_token}},
      {.name = "mutant:position_late",
       .description = "The last token of a step is one position late.",
       .shows = AS_OP_SCHEDULE,
       .between = {.planned = position_late}},
      {.name = "mutant:token_of_other_request",
       .description = "The first token of a step's last request is counted to the one before.",
       .shows = AS_OP_SCHEDULE,
       .between = {.planned = request_before}},
      {.name = "mutant:query_start_early",
       .description = "The second request of a step begins one token early.",
       .shows = AS_OP_SCHEDULE,
       .between = {.planned = start_early}},
      {.name = "mutant:seq_len_long",
       .description = "The first request of a step is one token longer than it is.",
       .shows = AS_OP_SCHEDULE,
       .between = {.planned = length_long}},
      {.name = "mutant:sampled_from_row_before",
       .description = "The first token that is sampled comes from the row before.",
       .shows = AS_OP_SCHEDULE,
       .between = {.planned = sampled_before}},
      {.name = "mutant:embedding_bit",
       .description = "One bit of the last token's embedding is another one.",
       .shows = AS_OP_ATTN_NORM,
       .between = {.embedded = embedding_bit}},
      {.name = "mutant:rotary_table_shifted",
       .description = "Rotary tables hold at each position the angles of the next one.",
       .shows = AS_OP_Q_ROPE_KV_INSERT,
       .between = {.rope = rows_shifted}},
      {.name = "mutant:normed_row_overwritten",
       .description = "Somebody writes to the layer's normed input behind its first reader.",
       .shows = AS_OP_COMPRESSOR_PROJ,
       .between = {.ran = normed_row}},
  };
  return kMutants;
}

void add_given_mutants(LaneRegistry& registry) {
  for (const GivenMutant& mutant : given_mutants()) {
    Lane lane{};
    lane.name = mutant.name;
    lane.description = mutant.description;
    lane.ops[AS_OP_SCHEDULE] = host_schedule;
    registry.add(lane, &mutant.between);
  }
}

}  // namespace attnscope
