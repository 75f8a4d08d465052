#include "engine/golden/mla/inputs.h"

#include "kernels/params/mla_params.h"

namespace attnscope {
namespace {

class InputsOfMla : public InputMaker {
 public:
  using InputMaker::InputMaker;

  // False where the op is none of these.
  bool fill();

 private:
  static constexpr std::int64_t kPlain = 32, kValues = 48;  // dims of a head
  static constexpr std::int64_t kMlaIndexHeads = 4, kMlaPage = 64, kMlaQLora = 128;
  static constexpr std::int64_t kMlaTopK = 24;

  as_tensor up() { return normals(AS_BF16, {kHeads, kPlain + kValues, AS_MLA_LATENT}, 0x1p-4f); }

  void absorb() {
    auto& p = init<as_mla_q_absorb_params>();
    p.q_raw = normals(AS_BF16, {tokens, kHeads, kPlain + AS_MLA_ROPE});
    p.kv_b = up();
    p.positions = positions_tensor();
    p.rope = make_rope();
    p.q = make(AS_BF16, {tokens, kHeads, AS_MLA_WIDTH});
  }

  void latent_row() {
    auto& p = init<as_mla_kv_insert_params>();
    const InputTable table = make_table(shape.lengths, kMlaPage);
    p.kv = normals(AS_BF16, {tokens, AS_MLA_LATENT});
    p.qkv = normals(AS_BF16, {tokens, kMlaQLora + AS_MLA_WIDTH});
    p.positions = positions_tensor();
    p.rope = make_rope();
    p.slots = slots_of(table, kMlaPage);
    p.kv_row = make(AS_BF16, {tokens, AS_MLA_WIDTH});
    p.cache = make_cache(table, AS_RECORD_LATENT_656, AS_MLA_WIDTH, kMlaPage, false);
  }

  void index_query() {
    auto& p = init<as_index_query_params>();
    p.q_raw = normals(AS_BF16, {tokens, kMlaIndexHeads, AS_INDEX_DIM});
    p.weights_raw = normals(AS_F32, {tokens, kMlaIndexHeads});
    p.positions = positions_tensor();
    p.rope = make_rope();
    p.q_row = make(AS_BF16, {tokens, kMlaIndexHeads, AS_INDEX_DIM});
    p.q = make(AS_U8, {tokens, kMlaIndexHeads, AS_INDEX_DIM});
    p.weights = make(AS_F32, {tokens, kMlaIndexHeads});
    p.hadamard = 1;
    p.scale_rule = AS_SCALE_POWER_OF_TWO;
  }

  void index_key() {
    auto& p = init<as_index_key_insert_params>();
    const InputTable table = make_table(shape.lengths, kMlaPage);
    p.k = normals(AS_BF16, {tokens, AS_INDEX_DIM});
    p.weight = normals(AS_BF16, {AS_INDEX_DIM}, 0x1p-3f, 1);
    p.bias = normals(AS_BF16, {AS_INDEX_DIM}, 0x1p-3f);
    p.positions = positions_tensor();
    p.rope = make_rope();
    p.slots = slots_of(table, kMlaPage);
    p.row = make(AS_BF16, {tokens, AS_INDEX_DIM});
    p.cache = make_cache(table, AS_RECORD_INDEX_FP8, AS_INDEX_DIM, kMlaPage, false);
    p.eps = kEps;
    p.hadamard = 1;
    p.scale_rule = AS_SCALE_FLOAT;
  }

  void whole_context() {
    auto& p = init<as_mla_attention_params>();
    const InputTable table = make_table(shape.lengths, kMlaPage);
    p.q = normals(AS_BF16, {tokens, kHeads, AS_MLA_WIDTH});
    p.cache = make_cache(table, AS_RECORD_LATENT_656, AS_MLA_WIDTH, kMlaPage, true);
    p.table = table_tensor(table);
    p.token_to_req = request_tensor();
    p.positions = positions_tensor();
    p.seq_lens = keep(seq_lens, {requests});
    p.o = make(AS_BF16, {tokens, kHeads, AS_MLA_LATENT});
    p.lse = make(AS_F32, {tokens, kHeads});
    p.scale = 0x1p-6;  // as sparse_attention: logits of a few units
  }

  // The newest tokens, and every third of those before.
  void selected() {
    auto& p = init<as_sparse_mla_attention_params>();
    const InputTable table = make_table(shape.lengths, kMlaPage);
    std::vector<std::int32_t> slots, lens;
    for (std::int64_t t = 0; t < tokens; ++t) {
      const std::int64_t last = positions[to_size(t)], request = token_to_req[to_size(t)];
      std::int32_t n = 0;
      for (std::int64_t k = 0; k < kMlaTopK; ++k) {
        const std::int64_t row = last - (k < kMlaTopK / 2 ? k : kMlaTopK / 2 + 3 * k);
        const bool there = row >= 0 && k == n;
        if (there) ++n;
        slots.push_back(there ? static_cast<std::int32_t>(table.slot(request, row, kMlaPage)) : -1);
      }
      lens.push_back(n);
    }
    p.q = normals(AS_BF16, {tokens, kHeads, AS_MLA_WIDTH});
    p.cache = make_cache(table, AS_RECORD_LATENT_656, AS_MLA_WIDTH, kMlaPage, true);
    p.indices = keep(slots, {tokens, kMlaTopK});
    p.topk_length = keep(lens, {tokens});
    p.o = make(AS_BF16, {tokens, kHeads, AS_MLA_LATENT});
    p.lse = make(AS_F32, {tokens, kHeads});
    p.scale = 0x1p-6;
  }
};

bool InputsOfMla::fill() {
  switch (op) {
    case AS_OP_INDEX_K_PROJ:
      linear(kHidden, AS_INDEX_DIM);
      return true;
    case AS_OP_INDEX_WEIGHTS_PROJ:
      linear(kHidden, kMlaIndexHeads, AS_F32);
      return true;
    case AS_OP_MLA_Q_ABSORB:
      absorb();
      return true;
    case AS_OP_MLA_KV_INSERT:
      latent_row();
      return true;
    case AS_OP_INDEX_QUERY:
      index_query();
      return true;
    case AS_OP_INDEX_KEY_INSERT:
      index_key();
      return true;
    case AS_OP_MLA_ATTENTION:
      whole_context();
      return true;
    case AS_OP_SPARSE_MLA_ATTENTION:
      selected();
      return true;
    case AS_OP_MLA_V_UP: {
      auto& p = init<as_mla_v_up_params>();
      p.o = normals(AS_BF16, {tokens, kHeads, AS_MLA_LATENT});
      p.kv_b = up();
      p.y = make(AS_BF16, {tokens, kHeads, kValues});
      return true;
    }
    default:
      return false;
  }
}

}  // namespace

std::unique_ptr<InputMaker> mla_inputs(as_op_id op, const GoldenCase& shape) {
  auto inputs = std::make_unique<InputsOfMla>(op, shape);
  return inputs->fill() ? std::move(inputs) : nullptr;
}

}  // namespace attnscope
