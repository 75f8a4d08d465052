// A C4A layer over one request of 150 tokens, op after op through a lane: what every op wrote, for
// comparing lanes, thread counts and SIMD levels.
#pragma once

#include <algorithm>
#include <numeric>
#include <utility>

#include "tests/unit/kernels/support.h"

namespace attnscope::kernel_tests {

class C4aLayer {
 public:
  using Output = std::pair<as_op_id, std::vector<unsigned char>>;

  // Ops of `replacing` stand in for those of the CPU lane.
  explicit C4aLayer(const as_threads* threads = nullptr, const Lane* replacing = nullptr)
      : threads_(threads), replacing_(replacing) {
    Random random(61);
    for (Array<bf16_t>* a : {&x_, &q_weight_, &o_weight_, &index_weight_, &norm_}) {
      fill_normal(*a, random, 0.5f);
    }
    for (Array<float>* a : {&ape_, &sinks_}) fill_normal(*a, random);
    std::iota(table_.values.begin(), table_.values.end(), 1);
    std::iota(positions_.values.begin(), positions_.values.end(), 0);
    seq_lens_[0] = kTokens;
    run_all();
  }

  const std::vector<Output>& outputs() const { return outputs_; }

 private:
  static constexpr std::int64_t kTokens = 150, kHeads = 4, kIn = 96, kWindow = 128, kTopk = 16;

  template <class Params, class... Outs>
  void step(as_op_id op, const Params& p, const Outs&... outs) {
    const bool replaced = replacing_ != nullptr && replacing_->ops[op] != nullptr;
    EXPECT_OK(run(op, p, threads_, replaced ? replacing_ : cpu::lane()));
    outputs_.push_back({op, {}});
    (append(outs), ...);
  }
  template <class T>
  void append(const Array<T>& a) {
    const auto* bytes = reinterpret_cast<const unsigned char*>(a.values.data());
    outputs_.back().second.insert(outputs_.back().second.end(), bytes,
                                  bytes + a.values.size() * sizeof(T));
  }
  void append(const PagedCache& cache) {
    std::vector<unsigned char>& out = outputs_.back().second;
    out.insert(out.end(), cache.bytes().begin(), cache.bytes().end());
  }

  as_linear_params product(const as_tensor& weight, const as_tensor& y) {
    auto p = make_params<as_linear_params>();
    p.x = x_.tensor;
    p.weight = weight;
    p.y = y;
    p.y.rank = 2;
    p.y.shape[1] = weight.shape[0];
    p.y.stride[0] = weight.shape[0];
    p.y.stride[1] = 1;
    return p;
  }

  void run_all() {
    index_lists();
    step(AS_OP_Q_B_PROJ, product(q_weight_.tensor, q_raw_.tensor), q_raw_);
    insert();
    compress();
    select();
    attend();
  }

  void index_lists() {
    auto p = make_params<as_swa_index_params>();
    p.tables = make_tensor(table_.values.data(), {1, 1, kTokens});
    p.query_start_loc = query_start_loc_.tensor;
    p.seq_lens = seq_lens_.tensor;
    p.token_to_req = token_to_req_.tensor;
    p.indices = window_slots_.tensor;
    p.lens = window_lens_.tensor;
    p.block_size = 64;
    p.window = kWindow;
    step(AS_OP_SWA_INDEX, p, window_slots_, window_lens_);
    for (std::int64_t t = 0; t < kTokens; ++t) {
      slots_[t] = 64 + t;       // blocks 1, 2, 3 of 64 rows
      state_slots_[t] = 4 + t;  // blocks 1, 2, .. of 4 rows
      entry_slots_[t] = (t + 1) % 4 == 0 ? 64 + t / 4 : -1;
      visible_[t] = static_cast<std::int32_t>((t + 1) / 4);
    }
  }

  void insert() {
    auto p = make_params<as_q_rope_kv_insert_params>();
    p.q_raw = q_raw_.tensor;
    p.kv = make_tensor(q_raw_.values.data(), {kTokens, 512});
    p.positions = positions_.tensor;
    p.rope = rope_.view();
    p.slots = slots_.tensor;
    p.q = q_.tensor;
    p.cache = swa_.view();
    p.eps = 1e-6;
    step(AS_OP_Q_ROPE_KV_INSERT, p, q_, swa_);
  }

  void compress() {
    step(AS_OP_COMPRESSOR_PROJ, product(state_weight(2048), proj_.tensor), proj_);
    auto s = make_params<as_compressor_state_params>();
    s.proj = proj_.tensor;
    s.ape = ape_.tensor;
    s.positions = positions_.tensor;
    s.slots = state_slots_.tensor;
    s.state = state_.view();
    s.ratio = 4;
    step(AS_OP_COMPRESSOR_STATE, s, state_);
    auto p = make_params<as_compress_insert_params>();
    p.state = state_.view();
    p.table = table_.tensor;
    p.token_to_req = token_to_req_.tensor;
    p.positions = positions_.tensor;
    p.slots = entry_slots_.tensor;
    p.weight = norm_.tensor;
    p.rope = rope_.view();
    p.cache = main_.view();
    p.eps = 1e-6;
    p.ratio = 4;
    step(AS_OP_COMPRESS_INSERT, p, main_);
    // The index keys: the first 512 columns of the projection as a state of 128 channels.
    s.proj.shape[1] = 512;
    s.ape = make_tensor(ape_.values.data(), {4, 256});
    s.state = index_state_.view();
    step(AS_OP_INDEXER_COMPRESSOR_STATE, s, index_state_);
    p.state = index_state_.view();
    p.weight = make_tensor(norm_.values.data(), {128});
    p.cache = index_.view();
    step(AS_OP_INDEXER_COMPRESS_INSERT, p, index_);
  }

  // Rows of the q weight, again.
  as_tensor state_weight(std::int64_t outs) {
    return make_tensor(q_weight_.values.data(), {outs, kIn});
  }

  void select() {
    auto q = make_params<as_indexer_q_params>();
    q.q_raw = make_tensor(q_raw_.values.data(), {kTokens, 16, 128});
    q.weights_raw = index_weight_.tensor;
    q.positions = positions_.tensor;
    q.rope = rope_.view();
    q.q = index_q_.tensor;
    q.weights = index_weights_.tensor;
    q.format = AS_RECORD_INDEX_FP8;
    step(AS_OP_INDEXER_Q, q, index_q_, index_weights_);
    auto p = make_params<as_indexer_logits_params>();
    p.q = index_q_.tensor;
    p.weights = index_weights_.tensor;
    p.cache = index_.view();
    p.table = table_.tensor;
    p.token_to_req = token_to_req_.tensor;
    p.lens = visible_.tensor;
    p.logits = logits_.tensor;
    step(AS_OP_INDEXER_LOGITS, p, logits_);
    auto k = make_params<as_indexer_topk_params>();
    k.logits = logits_.tensor;
    k.lens = visible_.tensor;
    k.indices = chosen_.tensor;
    step(AS_OP_INDEXER_TOPK, k, chosen_);
    auto s = make_params<as_topk_to_slots_params>();
    s.indices = chosen_.tensor;
    s.table = table_.tensor;
    s.token_to_req = token_to_req_.tensor;
    s.slots = chosen_slots_.tensor;
    s.lens = chosen_lens_.tensor;
    s.rows_per_block = 64;
    step(AS_OP_TOPK_TO_SLOTS, s, chosen_slots_, chosen_lens_);
  }

  void attend() {
    auto p = make_params<as_sparse_attention_params>();
    p.q = q_.tensor;
    p.cache = swa_.view();
    p.indices = make_tensor(window_slots_.values.data(), {kTokens, kWindow});
    p.topk_length = window_lens_.tensor;
    p.extra_cache = main_.view();
    p.extra_indices = chosen_slots_.tensor;
    p.extra_topk_length = chosen_lens_.tensor;
    p.sinks = sinks_.tensor;
    p.o = o_.tensor;
    p.lse = lse_.tensor;
    p.scale = 1.0 / std::sqrt(512.0);
    step(AS_OP_SPARSE_ATTENTION, p, o_, lse_);
    auto r = make_params<as_inverse_rope_params>();
    r.o = o_.tensor;
    r.positions = positions_.tensor;
    r.rope = rope_.view();
    r.out = turned_.tensor;
    step(AS_OP_INVERSE_ROPE, r, turned_);
    auto g = make_params<as_grouped_linear_params>();
    g.x = make_tensor(turned_.values.data(), {kTokens, 2, kHeads / 2 * 512});
    g.weight = o_weight_.tensor;
    g.y = z_.tensor;
    step(AS_OP_WO_A, g, z_);
    auto n = make_params<as_rms_norm_params>();
    n.x = make_tensor(z_.values.data(), {kTokens, 20});
    n.weight = make_tensor(norm_.values.data(), {20});
    n.y = y_.tensor;
    n.eps = 1e-6;
    step(AS_OP_ATTN_NORM, n, y_);
  }

  const as_threads* threads_;
  const Lane* replacing_;
  std::vector<Output> outputs_;
  Rope rope_{kTokens};
  Array<bf16_t> x_{{kTokens, kIn}}, q_weight_{{kHeads * 512, kIn}};
  Array<bf16_t> o_weight_{{2, 10, kHeads / 2 * 512}}, index_weight_{{kTokens, 16}}, norm_{{512}};
  Array<float> ape_{{4, 1024}}, sinks_{{kHeads}};
  Array<std::int32_t> table_{{1, kTokens}}, query_start_loc_{{2}, {0, kTokens}};
  Array<std::int32_t> seq_lens_{{1}}, token_to_req_{{kTokens}}, visible_{{kTokens}};
  Array<std::int64_t> positions_{{kTokens}}, slots_{{kTokens}}, state_slots_{{kTokens}};
  Array<std::int64_t> entry_slots_{{kTokens}};
  Array<std::int32_t> window_slots_{{1, kTokens, kWindow}}, window_lens_{{kTokens}};
  Array<bf16_t> q_raw_{{kTokens, kHeads, 512}}, q_{{kTokens, kHeads, 512}};
  Array<bf16_t> o_{{kTokens, kHeads, 512}}, turned_{{kTokens, kHeads, 512}};
  Array<bf16_t> z_{{kTokens, 2, 10}}, y_{{kTokens, 20}};
  Array<float> proj_{{kTokens, 2048}}, index_weights_{{kTokens, 16}}, logits_{{kTokens, 40}};
  Array<float> lse_{{kTokens, kHeads}};
  Array<std::uint8_t> index_q_{{kTokens, 16, 128}};
  Array<std::int32_t> chosen_{{kTokens, kTopk}}, chosen_slots_{{kTokens, kTopk}};
  Array<std::int32_t> chosen_lens_{{kTokens}};
  PagedCache swa_{AS_RECORD_LATENT, 512, 64, 4}, main_{AS_RECORD_LATENT, 512, 64, 2};
  PagedCache index_{AS_RECORD_INDEX_FP8, 128, 64, 2};
  PagedCache state_{AS_RECORD_STATE, 2048, 4, 40}, index_state_{AS_RECORD_STATE, 512, 4, 40};
};

}  // namespace attnscope::kernel_tests
