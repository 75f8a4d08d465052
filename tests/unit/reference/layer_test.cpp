// One C4A layer through the op functions, free-running on its own logical caches.
#include <cmath>

#include "tests/unit/reference/lane_test.h"
#include "tests/unit/reference/plain_codec.h"

namespace attnscope::reference {
namespace layer_test {

constexpr std::int64_t kTokens = 203;
constexpr std::int64_t kHidden = 48;
constexpr std::int64_t kQLora = 32;
constexpr std::int64_t kHeads = 4;
constexpr std::int64_t kGroups = 2;
constexpr std::int64_t kOLora = 16;
constexpr std::int64_t kIndexHeads = 2;
constexpr std::int64_t kWindow = 16;
constexpr std::int64_t kTopk = 20;
constexpr double kEps = 1e-6;

Doubles weights_of(std::int64_t out, std::int64_t in, unsigned seed) {
  Doubles w =
      normal(static_cast<std::size_t>(out * in), seed, 1 / std::sqrt(static_cast<double>(in)));
  round_to_bf16(w.data(), out * in);
  return w;
}

Doubles ones(std::int64_t n) { return Doubles(static_cast<std::size_t>(n), 1.0); }
Doubles space(std::int64_t n) { return Doubles(static_cast<std::size_t>(n), kNaN); }

class Layer {
 public:
  explicit Layer(const Lane* lane) : lane_(lane), exact_(lane == exact_lane()) {
    swa_ = cache(kTokens, AS_RECORD_LATENT, 512, 584, &swa_values_, &swa_records_);
    main_ = cache(kTokens / 4, AS_RECORD_LATENT, 512, 584, &main_values_, &main_records_);
    index_ = cache(kTokens / 4, AS_RECORD_INDEX_FP8, 128, 132, &index_values_, &index_records_);
    state_values_ = space(kTokens * 2048);
    state_ = logical(state_values_, AS_RECORD_STATE, 2048, 2048);
    index_state_values_ = space(kTokens * 512);
    index_state_ = logical(index_state_values_, AS_RECORD_STATE, 512, 512);
  }

  // Tokens first .. first + h.size() / kHidden; returns the layer's output.
  Doubles forward(Doubles h, std::int64_t first) {
    const auto t = static_cast<std::int64_t>(h.size()) / kHidden;
    Int64s positions, entry_slots;
    Int32s token_to_req(static_cast<std::size_t>(t), 0), lens, table = {0};
    for (std::int64_t p = first; p < first + t; ++p) {
      positions.push_back(p);
      entry_slots.push_back((p + 1) % 4 == 0 ? p / 4 : -1);
      lens.push_back(static_cast<std::int32_t>((p + 1) / 4));
    }
    const as_tensor pos = over(positions, {t});
    const as_tensor entries = over(entry_slots, {t});
    const as_tensor request = over(token_to_req, {t});
    const as_tensor tables = over(table, {1, 1});
    const as_tensor entry_lens = over(lens, {t});

    Doubles x = space(t * kHidden);
    auto norm = new_params<as_rms_norm_params>();
    Doubles norm_weight = ones(kHidden);
    norm.x = over(h, {t, kHidden});
    norm.weight = over(norm_weight, {kHidden});
    norm.y = over(x, {t, kHidden});
    norm.eps = kEps;
    run(lane_, AS_OP_ATTN_NORM, norm);

    Doubles qkv = linear(AS_OP_Q_KV_A_PROJ, x, kHidden, kQLora + 512, 1);
    Doubles qr = space(t * kQLora), kv = space(t * 512), q_weight = ones(kQLora),
            kv_weight = ones(512);
    auto split = new_params<as_q_kv_norm_params>();
    split.qkv = over(qkv, {t, kQLora + 512});
    split.q_weight = over(q_weight, {kQLora});
    split.kv_weight = over(kv_weight, {512});
    split.qr = over(qr, {t, kQLora});
    split.kv = over(kv, {t, 512});
    split.eps = kEps;
    run(lane_, AS_OP_Q_KV_NORM, split);

    Doubles q_raw = linear(AS_OP_Q_B_PROJ, qr, kQLora, kHeads * 512, 2);
    Doubles q = space(t * kHeads * 512);
    auto insert = new_params<as_q_rope_kv_insert_params>();
    insert.q_raw = over(q_raw, {t, kHeads, 512});
    insert.kv = split.kv;
    insert.positions = insert.slots = pos;
    insert.rope = compress_rope();
    insert.q = over(q, {t, kHeads, 512});
    insert.cache = swa_;
    insert.eps = kEps;
    run(lane_, AS_OP_Q_ROPE_KV_INSERT, insert);

    compress(AS_OP_COMPRESSOR_PROJ, x, 512, 3, state_, main_, pos, entries, request, tables);
    compress(AS_OP_INDEXER_COMPRESSOR_PROJ, x, 128, 4, index_state_, index_, pos, entries, request,
             tables);

    Doubles iq_raw = linear(AS_OP_INDEXER_Q_PROJ, qr, kQLora, kIndexHeads * 128, 5);
    Doubles iw_raw = linear(AS_OP_INDEXER_WEIGHTS_PROJ, x, kHidden, kIndexHeads, 6);
    Doubles iq_values = space(t * kIndexHeads * 128), iw = space(t * kIndexHeads);
    std::vector<Byte> iq_codes(iq_values.size());
    auto index_q = new_params<as_indexer_q_params>();
    index_q.q_raw = over(iq_raw, {t, kIndexHeads, 128});
    index_q.weights_raw = over(iw_raw, {t, kIndexHeads});
    index_q.positions = pos;
    index_q.rope = compress_rope();
    index_q.q =
        exact_ ? over(iq_values, {t, kIndexHeads, 128}) : over(iq_codes, {t, kIndexHeads, 128});
    index_q.weights = over(iw, {t, kIndexHeads});
    index_q.format = AS_RECORD_INDEX_FP8;
    run(lane_, AS_OP_INDEXER_Q, index_q);

    Doubles scores = space(t * (kTokens / 4));
    auto logits = new_params<as_indexer_logits_params>();
    logits.q = index_q.q;
    logits.weights = index_q.weights;
    logits.cache = index_;
    logits.table = tables;
    logits.token_to_req = request;
    logits.lens = entry_lens;
    logits.logits = over(scores, {t, kTokens / 4});
    run(lane_, AS_OP_INDEXER_LOGITS, logits);

    Int32s chosen(static_cast<std::size_t>(t * kTopk)), slots(chosen.size());
    Int32s num_chosen(static_cast<std::size_t>(t));
    auto topk = new_params<as_indexer_topk_params>();
    topk.logits = logits.logits;
    topk.lens = entry_lens;
    topk.indices = over(chosen, {t, kTopk});
    run(lane_, AS_OP_INDEXER_TOPK, topk);
    auto to_slots = new_params<as_topk_to_slots_params>();
    to_slots.indices = topk.indices;
    to_slots.table = tables;
    to_slots.token_to_req = request;
    to_slots.slots = over(slots, {t, kTopk});
    to_slots.lens = over(num_chosen, {t});
    run(lane_, AS_OP_TOPK_TO_SLOTS, to_slots);

    Int32s query_start_loc = {0, static_cast<std::int32_t>(t)};
    Int32s seq_lens = {static_cast<std::int32_t>(first + t)};
    Int32s window(static_cast<std::size_t>(t * kWindow)), window_lens(static_cast<std::size_t>(t));
    auto swa = new_params<as_swa_index_params>();
    swa.tables = over(table, {1, 1, 1});
    swa.query_start_loc = over(query_start_loc, {2});
    swa.seq_lens = over(seq_lens, {1});
    swa.token_to_req = request;
    swa.indices = over(window, {1, t, kWindow});
    swa.lens = over(window_lens, {t});
    swa.window = kWindow;
    run(lane_, AS_OP_SWA_INDEX, swa);

    Doubles o = space(t * kHeads * 512), lse = space(t * kHeads);
    std::vector<float> sinks(kHeads, 0.5F);
    auto attention = new_params<as_sparse_attention_params>();
    attention.q = insert.q;
    attention.cache = swa_;
    attention.indices = over(window, {t, kWindow});
    attention.topk_length = swa.lens;
    attention.extra_cache = main_;
    attention.extra_indices = to_slots.slots;
    attention.extra_topk_length = to_slots.lens;
    attention.sinks = over(sinks, {kHeads});
    attention.o = over(o, {t, kHeads, 512});
    attention.lse = over(lse, {t, kHeads});
    attention.scale = 1 / std::sqrt(512.0);
    run(lane_, AS_OP_SPARSE_ATTENTION, attention);

    auto inverse = new_params<as_inverse_rope_params>();
    inverse.o = inverse.out = attention.o;
    inverse.positions = pos;
    inverse.rope = compress_rope();
    run(lane_, AS_OP_INVERSE_ROPE, inverse);

    Doubles z = space(t * kGroups * kOLora);
    Doubles wo_a = weights_of(kGroups * kOLora, kHeads / kGroups * 512, 7);
    auto grouped = new_params<as_grouped_linear_params>();
    grouped.x = over(o, {t, kGroups, kHeads / kGroups * 512});
    grouped.weight = over(wo_a, {kGroups, kOLora, kHeads / kGroups * 512});
    grouped.y = over(z, {t, kGroups, kOLora});
    run(lane_, AS_OP_WO_A, grouped);
    Doubles y = linear(AS_OP_WO_B, z, kGroups * kOLora, kHidden, 8);

    auto residual = new_params<as_residual_params>();
    residual.h = residual.out = over(h, {t, kHidden});
    residual.y = over(y, {t, kHidden});
    run(lane_, AS_OP_RESIDUAL, residual);
    return h;
  }

 private:
  as_cache cache(std::int64_t rows, std::int32_t record, std::int32_t width, std::int64_t bytes,
                 Doubles* values, std::vector<Byte>* records) {
    values->assign(static_cast<std::size_t>(rows * width), kNaN);
    records->assign(static_cast<std::size_t>(rows * bytes), 0xFF);
    return exact_ ? logical(*values, record, width, width)
                  : logical(*records, record, width, bytes);
  }

  Doubles linear(as_op_id id, Doubles& x, std::int64_t in, std::int64_t out, unsigned seed) {
    const auto t = static_cast<std::int64_t>(x.size()) / in;
    Doubles weight = weights_of(out, in, seed);
    Doubles y = space(t * out);
    auto p = new_params<as_linear_params>();
    p.x = over(x, {t, in});
    p.weight = over(weight, {out, in});
    p.y = over(y, {t, out});
    run(lane_, id, p);
    return y;
  }

  // A compressor's three ops, whose ids follow each other.
  void compress(as_op_id proj_id, Doubles& x, std::int64_t dim, unsigned seed,
                const as_cache& state, const as_cache& entries, const as_tensor& positions,
                const as_tensor& entry_slots, const as_tensor& token_to_req,
                const as_tensor& table) {
    Doubles proj = linear(proj_id, x, kHidden, 4 * dim, seed);
    Doubles ape = weights_of(4, 2 * dim, seed + 100);
    Doubles norm_weight = ones(dim);
    auto save = new_params<as_compressor_state_params>();
    save.proj = over(proj, {positions.shape[0], 4 * dim});
    save.ape = over(ape, {4, 2 * dim});
    save.positions = save.slots = positions;
    save.state = state;
    save.ratio = 4;
    run(lane_, static_cast<as_op_id>(proj_id + 1), save);
    auto pool = new_params<as_compress_insert_params>();
    pool.state = state;
    pool.table = table;
    pool.token_to_req = token_to_req;
    pool.positions = positions;
    pool.slots = entry_slots;
    pool.weight = over(norm_weight, {dim});
    pool.rope = compress_rope();
    pool.cache = entries;
    pool.eps = kEps;
    pool.ratio = 4;
    run(lane_, static_cast<as_op_id>(proj_id + 2), pool);
  }

  const Lane* lane_;
  bool exact_;
  Doubles swa_values_, main_values_, index_values_, state_values_, index_state_values_;
  std::vector<Byte> swa_records_, main_records_, index_records_;
  as_cache swa_, main_, index_, state_, index_state_;
};

Doubles hidden_states() {
  Doubles h = normal(kTokens * kHidden, 42);
  round_to_bf16(h.data(), kTokens * kHidden);
  return h;
}

Doubles in_chunks(const Lane* lane, const std::vector<std::int64_t>& chunks) {
  const Doubles h = hidden_states();
  Layer layer(lane);
  Doubles out;
  std::int64_t first = 0;
  for (std::size_t i = 0; first < kTokens; ++i) {
    const std::int64_t n = std::min(chunks[i % chunks.size()], kTokens - first);
    const Doubles part = layer.forward(
        Doubles(h.begin() + first * kHidden, h.begin() + (first + n) * kHidden), first);
    out.insert(out.end(), part.begin(), part.end());
    first += n;
  }
  return out;
}

// ||a - b|| / ||b - input||: relative to what the layer added.
double relative_difference(const Doubles& a, const Doubles& b) {
  const Doubles h = hidden_states();
  double difference = 0;
  double size = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    difference += std::pow(a[i] - b[i], 2);
    size += std::pow(b[i] - h[i], 2);
  }
  return std::sqrt(difference / size);
}

TEST(Layer, ChunksGiveTheSameAsTheWholePrompt) {
  const Doubles exact = in_chunks(exact_lane(), {kTokens});
  EXPECT_LT(relative_difference(in_chunks(exact_lane(), {1, 2, 5, 64, 3}), exact), 1e-12);
  EXPECT_LT(relative_difference(in_chunks(exact_lane(), {1}), exact), 1e-12);
  // In ref.sim a last bit of a float64 sum may turn a rounding over, very rarely.
  const Doubles sim = in_chunks(sim_lane(), {kTokens});
  EXPECT_LT(relative_difference(in_chunks(sim_lane(), {7, 1, 50}), sim), 1e-3);
}

TEST(Layer, SimStaysNearExact) {
  const double difference =
      relative_difference(in_chunks(sim_lane(), {64}), in_chunks(exact_lane(), {64}));
  EXPECT_LT(difference, 0.1);
  EXPECT_GT(difference, 1e-4);  // it does round
}

}  // namespace layer_test
}  // namespace attnscope::reference
