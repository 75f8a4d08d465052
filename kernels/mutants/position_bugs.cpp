// Positions and columns of block tables that are one off.
#include <algorithm>
#include <vector>

#include "kernels/cpu/rope_table.h"
#include "kernels/mutants/latent_insert.h"
#include "kernels/params/indexer_params.h"
#include "kernels/params/step_params.h"

namespace attnscope::mutants {
namespace {

// ---- RoPE ---------------------------------------------------------------------------------------

// The op, whose rotary table has at each position the angles of the one `shift` behind it. Before
// position 0 there is none: its own are taken.
template <as_op_id kTurning, class Turning>
std::int32_t turned_at(const void* params, const as_call* call, as_error* error, int shift) {
  return spoil_after<Turning>(kTurning, params, call, error, [&](Turning p) -> std::int32_t {
    if (p.rows_given != 0) return AS_OK;
    const std::int64_t rows = positions_end(p.positions) + 1;
    std::vector<float> table(static_cast<std::size_t>(rows) * AS_ROPE_DIM);
    cpu::build_rope_table(p.rope, rows, table.data(), nullptr);
    if (shift > 0) {
      table.erase(table.begin(), table.begin() + AS_ROPE_DIM);
    } else {
      table.insert(table.begin(), table.begin(), table.begin() + AS_ROPE_DIM);
    }
    p.rope.table = make_tensor(table.data(), {rows - 1, AS_ROPE_DIM});
    return run_cpu(kTurning, &p, call, error);
  });
}

std::int32_t rope_of_token_before(const void* params, const as_call* call, as_error* error) {
  return turned_at<AS_OP_Q_ROPE_KV_INSERT, Insert>(params, call, error, -1);
}

std::int32_t rope_of_token_behind(const void* params, const as_call* call, as_error* error) {
  return turned_at<AS_OP_Q_ROPE_KV_INSERT, Insert>(params, call, error, 1);
}

// The queries' own angles are right.
std::int32_t key_rope_of_token_before(const void* params, const as_call* call, as_error* error) {
  const auto spoil = [&](Insert p) -> std::int32_t {
    if (p.rows_given != 0) return AS_OK;
    std::vector<bf16_t> turned;
    turned.resize(static_cast<std::size_t>(p.q.shape[0] * p.q.shape[1] * p.q.shape[2]));
    p.q = make_tensor(turned.data(), {p.q.shape[0], p.q.shape[1], p.q.shape[2]});
    return rope_of_token_before(&p, call, error);
  };
  return spoil_after<Insert>(AS_OP_Q_ROPE_KV_INSERT, params, call, error, spoil);
}

std::int32_t inverse_rope_of_token_before(const void* params, const as_call* call,
                                          as_error* error) {
  return turned_at<AS_OP_INVERSE_ROPE, as_inverse_rope_params>(params, call, error, -1);
}

std::int32_t index_query_rope_before(const void* params, const as_call* call, as_error* error) {
  return turned_at<AS_OP_INDEXER_Q, as_indexer_q_params>(params, call, error, -1);
}

// ---- block tables -------------------------------------------------------------------------------

// Rows of block tables moved one column on, so that each block is found where the next one is due.
class MovedTables {
 public:
  explicit MovedTables(const as_tensor& tables) : moved_(tables) {
    const std::int64_t columns = tables.shape[tables.rank - 1];
    const std::int64_t rows = tables.rank > 2 ? tables.shape[0] * tables.shape[1] : tables.shape[0];
    for (std::int64_t r = 0; r < rows; ++r) {
      const std::int32_t* row =
          tables.rank > 2 ? at<std::int32_t>(tables, r / tables.shape[1], r % tables.shape[1])
                          : at<std::int32_t>(tables, r);
      for (std::int64_t c = 0; c < columns; ++c) {
        memory_.push_back(row[std::max<std::int64_t>(c - 1, 0)]);
      }
    }
    moved_ = tables.rank > 2
                 ? make_tensor(memory_.data(), {tables.shape[0], tables.shape[1], columns})
                 : make_tensor(memory_.data(), {rows, columns});
  }
  const as_tensor& tables() const { return moved_; }

 private:
  std::vector<std::int32_t> memory_;
  as_tensor moved_;
};

std::int32_t window_block_before(const void* params, const as_call* call, as_error* error) {
  using Window = as_swa_index_params;
  return spoil_after<Window>(AS_OP_SWA_INDEX, params, call, error, [&](Window p) {
    const MovedTables moved(p.tables);
    p.tables = moved.tables();
    return run_cpu(AS_OP_SWA_INDEX, &p, call, error);
  });
}

std::int32_t topk_block_before(const void* params, const as_call* call, as_error* error) {
  using Slots = as_topk_to_slots_params;
  return spoil_after<Slots>(AS_OP_TOPK_TO_SLOTS, params, call, error, [&](Slots p) {
    const MovedTables moved(p.table);
    p.table = moved.tables();
    return run_cpu(AS_OP_TOPK_TO_SLOTS, &p, call, error);
  });
}

}  // namespace

std::vector<Bug> position_bugs() {
  return {
      {"mutant:rope_of_token_before",
       "Queries and latent rows are turned by the position of the token before.",
       AS_OP_Q_ROPE_KV_INSERT, rope_of_token_before},
      {"mutant:rope_of_token_behind",
       "Queries and latent rows are turned by the position of the token behind.",
       AS_OP_Q_ROPE_KV_INSERT, rope_of_token_behind},
      {"mutant:key_rope_of_token_before",
       "Latent rows are turned by the position of the token before, queries by their own.",
       AS_OP_Q_ROPE_KV_INSERT, key_rope_of_token_before},
      {"mutant:inverse_rope_of_token_before",
       "The output is rotated back by the position of the token before.", AS_OP_INVERSE_ROPE,
       inverse_rope_of_token_before},
      {"mutant:index_query_rope_before",
       "Index queries are turned by the position of the token before.", AS_OP_INDEXER_Q,
       index_query_rope_before},
      {"mutant:window_block_before",
       "Blocks of a window are looked up one column of the block table too early.", AS_OP_SWA_INDEX,
       window_block_before},
      {"mutant:topk_block_before",
       "Blocks of selected entries are looked up one column of the block table too early.",
       AS_OP_TOPK_TO_SLOTS, topk_block_before},
  };
}

}  // namespace attnscope::mutants
