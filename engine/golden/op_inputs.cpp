#include "engine/golden/op_inputs.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <memory>
#include <numeric>
#include <string_view>

#include "engine/backend/call_op.h"
#include "engine/golden/deepseek_v4/inputs.h"
#include "engine/golden/golden_run.h"
#include "engine/golden/input_maker.h"
#include "engine/golden/mla/inputs.h"
#include "engine/golden/saved_case.h"
#include "engine/model/numbers.h"
#include "engine/session/tap_copies.h"
#include "kernels/params/op_table.h"
#include "kernels/params/paged_params.h"
#include "kernels/params/tensor_view.h"

namespace attnscope {
namespace {

// Ops that several families have, and those of dense attention.
class CommonInputs : public InputMaker {
 public:
  using InputMaker::InputMaker;

  // False where the op is none of these.
  bool fill();

 private:
  static constexpr std::int64_t kKvHeads = 2, kHeadSize = 96, kKvRows = 16;

  void norm() {
    auto& p = init<as_rms_norm_params>();
    p.x = normals(AS_BF16, {tokens, kHidden});
    p.weight = normals(AS_BF16, {kHidden}, 0x1p-3f, 1);
    p.y = make(AS_BF16, {tokens, kHidden});
    p.eps = kEps;
  }

  // K or V rows of bf16 heads, NaN where no request has any.
  as_cache make_kv_cache(const InputTable& table, std::int32_t record, std::int64_t size,
                         bool filled) {
    const as_row_layout l = as_row_layout_of(record, kKvHeads * size, kKvHeads, kKvRows);
    as_cache cache{};
    cache.data = make(AS_U8, {table.blocks, l.page});
    cache.data.reserved = static_cast<std::int32_t>(kKvHeads);
    cache.record = record;
    cache.addressing = AS_PAGED;
    cache.rows_per_block = static_cast<std::int32_t>(kKvRows);
    cache.width = static_cast<std::int32_t>(kKvHeads * size);
    std::vector<bf16_t> row(to_size(kKvHeads * size));
    for (std::int64_t s = kKvRows; filled && s < table.blocks * kKvRows; ++s) {
      for (bf16_t& v : row) v = rounded_to_bf16(random.normal());
      as_row_put(&cache, s, row.data());
    }
    return cache;
  }

  void rope_kv_insert() {
    auto& p = init<as_rope_kv_insert_params>();
    const InputTable table = make_table(shape.lengths, kKvRows);
    p.q = normals(AS_BF16, {tokens, kHeads, kHeadSize});
    p.k = normals(AS_BF16, {tokens, kKvHeads, kHeadSize});
    p.v = normals(AS_BF16, {tokens, kKvHeads, kHeadSize});
    p.q_weight = normals(AS_BF16, {kHeadSize});
    p.k_weight = normals(AS_BF16, {kHeadSize});
    p.positions = positions_tensor();
    p.rope = make_rope();
    p.slots = slots_of(table, kKvRows);
    p.q_out = make(AS_BF16, {tokens, kHeads, kHeadSize});
    p.k_row = make(AS_BF16, {tokens, kKvHeads, kHeadSize});
    p.k_cache = make_kv_cache(table, AS_RECORD_BF16, kHeadSize, false);
    p.v_cache = make_kv_cache(table, AS_RECORD_BF16, kHeadSize, false);
    p.eps = kEps;
  }

  void local_batch() {
    constexpr std::int64_t kChunk = 64;
    auto& p = init<as_local_batch_params>();
    const InputTable table = make_table(shape.lengths, kKvRows);
    p.tables = keep(table.ids, {1, requests, table.columns});
    p.query_start_loc = keep(starts, {requests + 1});
    p.seq_lens = keep(seq_lens, {requests});
    p.token_to_req = request_tensor();
    p.token_to_seq = make(AS_I32, {tokens});
    p.local_positions = make(AS_I64, {tokens});
    p.local_query_start_loc = make(AS_I32, {tokens + 1});
    p.local_seq_lens = make(AS_I32, {tokens});
    p.local_tables = make(AS_I32, {1, tokens, kChunk / kKvRows});
    p.chunk = static_cast<std::int32_t>(kChunk);
    p.block_size = static_cast<std::int32_t>(kKvRows);
  }

  // The first third of each request is its source.
  void cross_batch() {
    auto& p = init<as_cross_batch_params>();
    std::vector<std::int32_t> lens;
    lens.reserve(seq_lens.size());
    for (const std::int32_t n : seq_lens) lens.push_back((n + 2) / 3);
    p.positions = positions_tensor();
    p.token_to_req = request_tensor();
    p.source_lens = keep(lens, {requests});
    as_tensor slots = slots_of(make_table(shape.lengths, kKvRows), kKvRows);
    p.slots = make_tensor(static_cast<std::int64_t*>(slots.data), {1, tokens});
    p.source_to_req = make(AS_I32, {tokens});
    p.target_to_req = make(AS_I32, {tokens});
    p.source_slots = make(AS_I64, {tokens});
    p.target_slots = make(AS_I64, {tokens});
  }

  static constexpr std::int64_t kBlockBytes = 1171, kPageBytes = 1203;

  // Blocks of bytes: one for each token, and three more.
  as_cache make_blocks() {
    as_cache blocks{};
    blocks.data = make(AS_U8, {tokens + 3, kPageBytes});
    blocks.data.shape[1] = kBlockBytes;
    blocks.record = AS_BLOCK_RECORD;
    blocks.addressing = AS_PAGED;
    blocks.rows_per_block = 1;
    blocks.width = static_cast<std::int32_t>(kBlockBytes);
    return blocks;
  }

  void fill_bytes(const as_tensor& rows) {
    for (std::int64_t i = 0; i < rows.shape[0]; ++i) {
      auto* row = at<std::uint8_t>(rows, i);
      for (std::int64_t b = 0; b < kBlockBytes; ++b)
        row[b] = static_cast<std::uint8_t>(random.next());
    }
  }

  // One of them a token, in any order; none for the third.
  as_tensor block_ids() {
    std::vector<std::int64_t> ids(to_size(tokens + 3));
    std::iota(ids.begin(), ids.end(), 0);
    for (std::int64_t i = tokens + 2; i > 0; --i) {
      std::swap(ids[to_size(i)], ids[to_size(random.below(i + 1))]);
    }
    if (tokens > 2) ids[2] = -1;
    ids.resize(to_size(tokens));
    return keep(ids, {tokens});
  }

  void swap_out() {
    auto& p = init<as_swap_out_params>();
    p.blocks = make_blocks();
    fill_bytes(p.blocks.data);
    p.from = block_ids();
    p.staged = make(AS_U8, {tokens, kBlockBytes});
  }

  void swap_in() {
    auto& p = init<as_swap_in_params>();
    p.staged = make(AS_U8, {tokens, kBlockBytes});
    fill_bytes(p.staged);
    p.to = block_ids();
    p.blocks = make_blocks();
  }

  // Of ALiBi: others than any number of heads has.
  as_tensor slopes() {
    const as_tensor all = make(AS_F32, {kHeads});
    for (std::int64_t h = 0; h < kHeads; ++h) {
      *at<float>(all, h) = 3.0f / static_cast<float>(std::int64_t{8} << h);
    }
    return all;
  }

  // The tokens of each request over all of it, both ways within a window.
  void varlen_attention() {
    auto& p = init<as_varlen_attention_params>();
    std::vector<std::int32_t> ends = {0};
    for (const std::int32_t n : seq_lens) ends.push_back(ends.back() + n);
    const std::int64_t rows = ends.back();
    p.q = normals(AS_BF16, {tokens, kHeads, kHeadSize});
    p.k = normals(AS_BF16, {rows, kKvHeads, kHeadSize});
    p.v = normals(AS_BF16, {rows, kKvHeads, kHeadSize});
    p.cu_seqlens = keep(starts, {requests + 1});
    p.cu_seqlens_k = keep(ends, {requests + 1});
    p.alibi_slopes = slopes();
    p.o = make(AS_BF16, {tokens, kHeads, kHeadSize});
    p.lse = make(AS_F32, {tokens, kHeads});
    p.scale = 0x1p-3f;
    p.soft_cap = 20;
    p.window_left = static_cast<std::int32_t>(kWindow);
    p.window_right = static_cast<std::int32_t>(kWindow) / 2;
  }

  void paged_attention() {
    auto& p = init<as_paged_attention_params>();
    const InputTable table = make_table(shape.lengths, kKvRows);
    p.q = normals(AS_BF16, {tokens, kHeads, kHeadSize});
    p.k_cache = make_kv_cache(table, AS_RECORD_BF16 | AS_RECORD_HND, kHeadSize, true);
    p.v_cache = make_kv_cache(table, AS_RECORD_BF16 | AS_RECORD_HND, kHeadSize, true);
    p.table = table_tensor(table);
    p.token_to_req = request_tensor();
    p.positions = positions_tensor();
    p.seq_lens = keep(seq_lens, {requests});
    p.sinks = normals(AS_F32, {kHeads});
    p.alibi_slopes = slopes();
    p.o = make(AS_BF16, {tokens, kHeads, kHeadSize});
    p.lse = make(AS_F32, {tokens, kHeads});
    p.scale = 0x1p-3f;  // as sparse_attention: logits of a few units
    p.soft_cap = 20;
    p.causal = 1;
    p.window = static_cast<std::int32_t>(kWindow);
    p.num_splits = 2;
  }
};

bool CommonInputs::fill() {
  switch (op) {
    case AS_OP_ATTN_NORM:
    case AS_OP_MEMORY_NORM:
    case AS_OP_FINAL_NORM:
      norm();
      return true;
    case AS_OP_RESIDUAL: {
      auto& p = init<as_residual_params>();
      p.h = normals(AS_BF16, {tokens, kHidden});
      p.y = normals(AS_BF16, {tokens, kHidden});
      p.out = make(AS_BF16, {tokens, kHidden});
      return true;
    }
    case AS_OP_Q_PROJ:
      linear(kHidden, kHeads * kHeadSize);
      return true;
    case AS_OP_K_PROJ:
    case AS_OP_V_PROJ:
      linear(kHidden, kKvHeads * kHeadSize);
      return true;
    case AS_OP_O_PROJ:
      linear(kHeads * kHeadSize, kHidden);
      return true;
    case AS_OP_LM_HEAD:
      linear(kHidden, kVocab, AS_F32);
      return true;
    case AS_OP_SAMPLE: {
      auto& p = init<as_sample_params>();
      p.logits = normals(AS_F32, {tokens, kVocab});
      p.tokens = make(AS_I32, {tokens});
      return true;
    }
    case AS_OP_ROPE_KV_INSERT:
      rope_kv_insert();
      return true;
    case AS_OP_LOCAL_BATCH:
      local_batch();
      return true;
    case AS_OP_CROSS_BATCH:
      cross_batch();
      return true;
    case AS_OP_SWAP_OUT:
      swap_out();
      return true;
    case AS_OP_SWAP_IN:
      swap_in();
      return true;
    case AS_OP_PAGED_ATTENTION:
      paged_attention();
      return true;
    case AS_OP_VARLEN_ATTENTION:
      varlen_attention();
      return true;
    default:
      return false;
  }
}

std::unique_ptr<InputMaker> common_inputs(as_op_id op, const GoldenCase& shape) {
  auto inputs = std::make_unique<CommonInputs>(op, shape);
  return inputs->fill() ? std::move(inputs) : nullptr;
}

// An op of the engine's own has none (has_own_inputs).
std::unique_ptr<InputMaker> make_inputs(as_op_id op, const GoldenCase& shape) {
  for (const MakeInputs make : {common_inputs, deepseek_v4_inputs, mla_inputs}) {
    if (auto inputs = make(op, shape)) return inputs;
  }
  return std::make_unique<InputMaker>(op, shape);
}

}  // namespace

OpInputs::OpInputs(as_op_id op, const GoldenCase& shape) : state_(make_inputs(op, shape)) {}
OpInputs::~OpInputs() = default;

OpParams& OpInputs::params() { return state_->params; }

RowOwners OpInputs::owners() const {
  RowOwners owners;
  owners.requests = owners.sampled = state_->token_to_req;
  owners.tokens.resize(owners.requests.size());
  std::iota(owners.tokens.begin(), owners.tokens.end(), 0);
  return owners;
}

OpTrace OpInputs::trace(const std::string& lane) const {
  const OpParams& params = state_->params;
  OpTrace trace;
  trace.place = {0, -1, state_->op};
  trace.lane = lane;
  for (std::uint32_t i = 0; i < params.info().num_taps; ++i) {
    const as_tap_info& tap = params.info().taps[i];
    if (tap.kind == AS_TAP_TENSOR) {
      const as_tensor& tensor = params.tensor(tap.offset);
      if (!present(tensor) || as_tensor_numel(&tensor) == 0) continue;
      TapCopy copy = described_copy(tap);
      copy.value = tensor;
      trace.taps.push_back(std::move(copy));
    } else if (tap.direction == AS_TAP_OUT && params.has_cache(tap)) {
      trace.rows.push_back(written_rows(params, tap, owners().tokens));
    }
  }
  return trace;
}

bool has_own_inputs(as_op_id op) { return as_op_has(op, AS_BY_ENGINE) == 0; }

Result<LaneSelector> lanes_with_op(const LaneRegistry& registry,
                                   const std::vector<std::string>& choices, as_op_id op) {
  auto lanes = LaneSelector::make(registry, choices);
  if (!lanes) return lanes;
  const std::string name = as_op_find(op)->name;
  std::string wanted = lanes->lane(op);
  bool chosen = choices.empty();
  for (const std::string& choice : choices) {
    const std::size_t equals = choice.find('=');
    const bool of_all = equals == std::string::npos;
    if (!of_all && choice.substr(0, equals) != name) continue;
    wanted = of_all ? choice : choice.substr(equals + 1);
    chosen = true;
  }
  if (!chosen) {
    return Error{AS_NO_ENVIRONMENT,
                 fmt::format("--lane {}: this golden runs {} alone: nothing of it was tested",
                             fmt::join(choices, ", "), name),
                 fmt::format("choose a lane of {}, or a golden of another op", name)};
  }
  if (wanted == lanes->lane(op)) return lanes;
  return Error{AS_NO_ENVIRONMENT,
               fmt::format("lane {} has no {}: nothing of it was tested", wanted, name),
               fmt::format("lanes with it: {}", fmt::join(registry.lanes_of(op), ", "))};
}

Result<void> run_op_cases(const GoldenSpec& spec, const LaneRegistry& registry,
                          const GoldenRunOptions& options, GoldenValues& out) {
  auto lanes =
      lanes_with_op(registry, options.lanes.empty() ? spec.lanes : options.lanes, *spec.op);
  if (!lanes) return lanes.error();
  out.lanes = lanes->lane(*spec.op);
  for (const GoldenCase& one : spec.cases) {
    OpInputs inputs(*spec.op, one);
    const as_op_fn function = lanes->function(*spec.op);
    if (auto ran = call_op(function, inputs.params().data(), host_call(nullptr)); !ran) {
      return Error{ran.error().code,
                   fmt::format("{}: case '{}': {}", spec.path, one.name, ran.error().message),
                   {}};
    }
    collect_taps(inputs.trace(out.lanes), inputs.owners(), spec, one.name, out.taps);
    if (!options.judged) continue;
    auto kept = keep_case(*find_case_op(*spec.op), inputs.params().data(), {});
    if (!kept) return kept.error();
    if (auto ok = judge_case(*kept, registry, options, one.name, out); !ok) return ok;
  }
  return {};
}

}  // namespace attnscope
