#include "engine/session/layer_ops.h"

#include <array>

#include "engine/session/op_numbers.h"
#include "kernels/layout/records.h"

namespace attnscope {
namespace {

constexpr std::array kStepOps = {AS_OP_SCHEDULE, AS_OP_BLOCK_TABLES, AS_OP_SLOT_MAPPING,
                                 AS_OP_SWA_INDEX, AS_OP_C128_INDEX};

constexpr std::array kSwaOps = {AS_OP_ATTN_NORM,
                                AS_OP_Q_KV_A_PROJ,
                                AS_OP_Q_KV_NORM,
                                AS_OP_Q_B_PROJ,
                                AS_OP_Q_ROPE_KV_INSERT,
                                AS_OP_SPARSE_ATTENTION,
                                AS_OP_INVERSE_ROPE,
                                AS_OP_WO_A,
                                AS_OP_WO_B,
                                AS_OP_RESIDUAL};

constexpr std::array kC128Ops = {AS_OP_ATTN_NORM,
                                 AS_OP_Q_KV_A_PROJ,
                                 AS_OP_Q_KV_NORM,
                                 AS_OP_Q_B_PROJ,
                                 AS_OP_Q_ROPE_KV_INSERT,
                                 AS_OP_COMPRESSOR_PROJ,
                                 AS_OP_COMPRESSOR_STATE,
                                 AS_OP_COMPRESS_INSERT,
                                 AS_OP_SPARSE_ATTENTION,
                                 AS_OP_INVERSE_ROPE,
                                 AS_OP_WO_A,
                                 AS_OP_WO_B,
                                 AS_OP_RESIDUAL};

constexpr std::array kC4Ops = {AS_OP_ATTN_NORM,
                               AS_OP_Q_KV_A_PROJ,
                               AS_OP_Q_KV_NORM,
                               AS_OP_Q_B_PROJ,
                               AS_OP_Q_ROPE_KV_INSERT,
                               AS_OP_COMPRESSOR_PROJ,
                               AS_OP_COMPRESSOR_STATE,
                               AS_OP_COMPRESS_INSERT,
                               AS_OP_INDEXER_COMPRESSOR_PROJ,
                               AS_OP_INDEXER_COMPRESSOR_STATE,
                               AS_OP_INDEXER_COMPRESS_INSERT,
                               AS_OP_INDEXER_Q_PROJ,
                               AS_OP_INDEXER_WEIGHTS_PROJ,
                               AS_OP_INDEXER_Q,
                               AS_OP_INDEXER_LOGITS,
                               AS_OP_INDEXER_TOPK,
                               AS_OP_TOPK_TO_SLOTS,
                               AS_OP_SPARSE_ATTENTION,
                               AS_OP_INVERSE_ROPE,
                               AS_OP_WO_A,
                               AS_OP_WO_B,
                               AS_OP_RESIDUAL};

constexpr std::array kOutputOps = {AS_OP_FINAL_NORM, AS_OP_LM_HEAD, AS_OP_SAMPLE};

// One layer's ops, a method a family.
class ParamsBuilder {
 public:
  ParamsBuilder(as_op_id op, int layer, const OpContext& context, Frame& frame,
                const CacheSource& source)
      : op_(op),
        layer_(layer),
        context_(context),
        config_(*context.config),
        frame_(frame),
        source_(source) {
    tokens_ = context.positions.shape[0];
    if (layer >= 0) {
      weights_ = &context.weights->layers[static_cast<std::size_t>(layer)];
      ratio_ = config_.ratio(layer);
    }
  }

  OpParams build() {
    const std::int64_t hidden = config_.hidden;
    const std::int64_t heads = config_.heads;
    const std::int64_t dim = config_.head_dim;
    const std::int64_t coff = ratio_ == 4 ? 2 : 1;
    const std::int64_t index_heads = config_.index_heads;
    switch (op_) {
      case AS_OP_ATTN_NORM:
        norm(Act::kHidden, weights_->attn_norm, Act::kNormed);
        break;
      case AS_OP_Q_KV_A_PROJ:
        linear(Act::kNormed, weights_->wq_kv_a, weights_->fp8.wq_kv_a,
               frame_.make(Act::kQkv, AS_BF16, {tokens_, config_.q_lora + dim}));
        break;
      case AS_OP_Q_KV_NORM:
        q_kv_norm();
        break;
      case AS_OP_Q_B_PROJ:
        linear(Act::kQr, weights_->wq_b, weights_->fp8.wq_b, make3(Act::kQRaw, heads, dim));
        break;
      case AS_OP_Q_ROPE_KV_INSERT:
        q_rope_kv_insert();
        break;
      case AS_OP_COMPRESSOR_PROJ:
        linear(Act::kNormed, weights_->compressor.kv_gate, {},
               frame_.make(Act::kProj, AS_F32, {tokens_, 2 * coff * dim}));
        break;
      case AS_OP_COMPRESSOR_STATE:
        compressor_state(Act::kProj, weights_->compressor, CacheKind::kMainState);
        break;
      case AS_OP_COMPRESS_INSERT:
        compress_insert(weights_->compressor, CacheKind::kMainState, CacheKind::kMain, Act::kRow,
                        dim);
        break;
      case AS_OP_INDEXER_COMPRESSOR_PROJ:
        linear(Act::kNormed, weights_->indexer_compressor.kv_gate, {},
               frame_.make(Act::kIndexProj, AS_F32, {tokens_, 2 * coff * config_.index_dim}));
        break;
      case AS_OP_INDEXER_COMPRESSOR_STATE:
        compressor_state(Act::kIndexProj, weights_->indexer_compressor, CacheKind::kIndexState);
        break;
      case AS_OP_INDEXER_COMPRESS_INSERT:
        compress_insert(weights_->indexer_compressor, CacheKind::kIndexState, CacheKind::kIndex,
                        Act::kIndexRow, config_.index_dim);
        break;
      case AS_OP_INDEXER_Q_PROJ:
        linear(Act::kQr, weights_->indexer_wq_b, weights_->fp8.indexer_wq_b,
               make3(Act::kIndexQRaw, index_heads, config_.index_dim));
        break;
      case AS_OP_INDEXER_WEIGHTS_PROJ:
        linear(Act::kNormed, weights_->indexer_weights_proj, {},
               frame_.make(Act::kIndexWeightsRaw, AS_BF16, {tokens_, index_heads}));
        break;
      case AS_OP_INDEXER_Q:
        indexer_q();
        break;
      case AS_OP_INDEXER_LOGITS:
        indexer_logits();
        break;
      case AS_OP_INDEXER_TOPK:
        indexer_topk();
        break;
      case AS_OP_TOPK_TO_SLOTS:
        topk_to_slots();
        break;
      case AS_OP_SPARSE_ATTENTION:
        sparse_attention();
        break;
      case AS_OP_INVERSE_ROPE:
        inverse_rope();
        break;
      case AS_OP_WO_A:
        wo_a();
        break;
      case AS_OP_WO_B:
        linear(Act::kZ, weights_->wo_b, weights_->fp8.wo_b,
               frame_.make(Act::kY, AS_BF16, {tokens_, config_.hidden}));
        break;
      case AS_OP_RESIDUAL: {
        auto& p = params_.init<as_residual_params>(op_);
        p.h = frame_.get(Act::kHidden);
        p.y = frame_.get(config_.parallel.size > 1 ? Act::kYSum : Act::kY);
        p.out = frame_.make(Act::kHiddenOut, AS_BF16, {tokens_, hidden});
        break;
      }
      case AS_OP_FINAL_NORM:
        norm(Act::kLast, context_.weights->final_norm, Act::kLastNormed);
        break;
      case AS_OP_LM_HEAD:
        linear(
            Act::kLastNormed, context_.weights->embedding, {},
            frame_.make(Act::kHeadLogits, AS_F32, {frame_.get(Act::kLast).shape[0], kVocabulary}));
        break;
      case AS_OP_SAMPLE: {
        auto& p = params_.init<as_sample_params>(op_);
        p.logits = frame_.get(Act::kHeadLogits);
        p.tokens = frame_.make(Act::kSampled, AS_I32, {p.logits.shape[0]});
        break;
      }
      default:
        break;
    }
    const std::int32_t rows_per_block =
        op_ == AS_OP_TOPK_TO_SLOTS ? source_.cache(layer_, CacheKind::kMain).rows_per_block : 0;
    set_layer_numbers(op_, layer_, config_, rows_per_block, &params_.get<as_params_head>());
    return params_;
  }

 private:
  as_tensor make3(Act act, std::int64_t n, std::int64_t m) {
    return frame_.make(act, AS_BF16, {tokens_, n, m});
  }

  void norm(Act in, const Buffer<bf16_t>& weight, Act out) {
    auto& p = params_.init<as_rms_norm_params>(op_);
    p.x = frame_.get(in);
    p.weight = weight.tensor();
    p.y = frame_.make(out, AS_BF16, {p.x.shape[0], config_.hidden});
  }

  // y may have more axes than [T, out]; the op sees it flat.
  void linear(Act in, const Buffer<bf16_t>& weight, const Fp8Matrix& fp8, as_tensor y) {
    auto& p = params_.init<as_linear_params>(op_);
    p.x = flat(frame_.get(in));
    p.weight = fp8.codes.size() > 0 ? fp8.codes.tensor() : weight.tensor();
    p.weight_scale = fp8.scales.tensor();
    p.y = flat(y);
  }

  static as_tensor flat(as_tensor t) {
    for (; t.rank > 2; --t.rank) {
      t.shape[t.rank - 2] *= t.shape[t.rank - 1];
      t.stride[t.rank - 2] = 1;
      t.shape[t.rank - 1] = t.stride[t.rank - 1] = 0;
    }
    return t;
  }

  const as_rope& rope() const { return (*context_.ropes)[static_cast<std::size_t>(layer_)]; }

  void q_kv_norm() {
    auto& p = params_.init<as_q_kv_norm_params>(op_);
    p.qkv = frame_.get(Act::kQkv);
    p.q_weight = weights_->q_norm.tensor();
    p.kv_weight = weights_->kv_norm.tensor();
    p.qr = frame_.make(Act::kQr, AS_BF16, {tokens_, config_.q_lora});
    p.kv = frame_.make(Act::kKv, AS_BF16, {tokens_, config_.head_dim});
  }

  void q_rope_kv_insert() {
    auto& p = params_.init<as_q_rope_kv_insert_params>(op_);
    p.q_raw = frame_.get(Act::kQRaw);
    p.kv = frame_.get(Act::kKv);
    p.positions = context_.positions;
    p.rope = rope();
    p.slots = source_.slots(layer_, CacheKind::kSwa);
    p.q = make3(Act::kQ, config_.heads, config_.head_dim);
    p.kv_row = frame_.make(Act::kKvRow, AS_BF16, {tokens_, config_.head_dim});
    p.cache = source_.cache(layer_, CacheKind::kSwa);
  }

  void compressor_state(Act proj, const CompressorWeights& weights, CacheKind kind) {
    auto& p = params_.init<as_compressor_state_params>(op_);
    p.proj = frame_.get(proj);
    p.ape = weights.ape.tensor();
    p.positions = context_.positions;
    p.slots = source_.slots(layer_, kind);
    p.state = source_.cache(layer_, kind);
  }

  void compress_insert(const CompressorWeights& weights, CacheKind state, CacheKind cache, Act row,
                       std::int64_t dim) {
    auto& p = params_.init<as_compress_insert_params>(op_);
    p.state = source_.cache(layer_, state);
    p.table = source_.table(layer_, state);
    p.request_of = context_.request_of;
    p.positions = context_.positions;
    p.slots = source_.slots(layer_, cache);
    p.weight = weights.norm.tensor();
    p.rope = rope();
    p.row = frame_.make(row, AS_BF16, {tokens_, dim});
    p.cache = source_.cache(layer_, cache);
  }

  void indexer_q() {
    const std::int64_t heads = config_.index_heads, dim = config_.index_dim;
    const bool fp4 = config_.switches.index_format == AS_RECORD_INDEX_MXFP4;
    const bool exact = frame_.kind() == Frame::Kind::kExact;
    auto& p = params_.init<as_indexer_q_params>(op_);
    p.q_raw = frame_.get(Act::kIndexQRaw);
    p.weights_raw = frame_.get(Act::kIndexWeightsRaw);
    p.positions = context_.positions;
    p.rope = rope();
    p.q_row = make3(Act::kIndexQRow, heads, dim);
    // ref.exact keeps values: F64 [T,J,128], made as a float tensor.
    p.q = frame_.make(Act::kIndexQ, exact ? AS_F32 : AS_U8,
                      {tokens_, heads, fp4 && !exact ? dim / 2 : dim});
    if (fp4 && !exact) p.q_scale = frame_.make(Act::kIndexQScale, AS_U8, {tokens_, heads, 4});
    p.weights = frame_.make(Act::kIndexWeights, AS_F32, {tokens_, heads});
  }

  void indexer_logits() {
    auto& p = params_.init<as_indexer_logits_params>(op_);
    p.q = frame_.get(Act::kIndexQ);
    p.q_scale = frame_.get(Act::kIndexQScale);
    p.weights = frame_.get(Act::kIndexWeights);
    p.cache = source_.cache(layer_, CacheKind::kIndex);
    p.table = source_.table(layer_, CacheKind::kIndex);
    p.request_of = context_.request_of;
    p.lens = source_.c4_lens();
    p.logits = frame_.make(Act::kLogits, AS_F32, {tokens_, context_.logits_width});
  }

  void indexer_topk() {
    auto& p = params_.init<as_indexer_topk_params>(op_);
    p.logits = frame_.get(Act::kLogits);
    p.lens = source_.c4_lens();
    p.indices = frame_.make(Act::kTopK, AS_I32, {tokens_, config_.index_topk});
  }

  void topk_to_slots() {
    auto& p = params_.init<as_topk_to_slots_params>(op_);
    p.indices = frame_.get(Act::kTopK);
    p.table = source_.table(layer_, CacheKind::kMain);
    p.request_of = context_.request_of;
    p.slots = frame_.make(Act::kTopKSlots, AS_I32, {tokens_, config_.index_topk});
    p.lens = frame_.make(Act::kTopKLens, AS_I32, {tokens_});
  }

  void sparse_attention() {
    auto& p = params_.init<as_sparse_attention_params>(op_);
    p.q = frame_.get(Act::kQ);
    p.cache = source_.cache(layer_, CacheKind::kSwa);
    p.indices = source_.swa_indices(layer_);
    p.lens = source_.swa_lens();
    if (ratio_ == 4) {
      p.extra_indices = frame_.get(Act::kTopKSlots);
      p.extra_lens = frame_.get(Act::kTopKLens);
    } else if (ratio_ == 128) {
      p.extra_indices = source_.c128_indices();
      p.extra_lens = source_.c128_lens();
    }
    if (ratio_ != 0) p.extra_cache = source_.cache(layer_, CacheKind::kMain);
    p.sinks = weights_->sinks.tensor();
    p.o = make3(Act::kO, config_.heads, config_.head_dim);
    p.lse = frame_.make(Act::kLse, AS_F32, {tokens_, config_.heads});
  }

  void inverse_rope() {
    auto& p = params_.init<as_inverse_rope_params>(op_);
    p.o = frame_.get(Act::kO);
    p.positions = context_.positions;
    p.rope = rope();
    p.out = make3(Act::kORotated, config_.heads, config_.head_dim);
  }

  void wo_a() {
    auto& p = params_.init<as_grouped_linear_params>(op_);
    const std::int64_t groups = config_.o_groups;
    const std::int64_t in = config_.heads_per_group() * config_.head_dim;
    p.x = frame_.get(Act::kORotated);
    p.x.shape[1] = groups;
    p.x.shape[2] = in;
    p.x.stride[1] = in;
    p.weight = weights_->wo_a.tensor();
    p.y = make3(Act::kZ, groups, config_.o_lora);
  }

  as_op_id op_;
  int layer_;
  const OpContext& context_;
  const ModelConfig& config_;
  Frame& frame_;
  const CacheSource& source_;
  const LayerWeights* weights_ = nullptr;
  int ratio_ = 0;
  std::int64_t tokens_ = 0;
  OpParams params_;
};

}  // namespace

std::span<const as_op_id> step_ops(const ModelConfig& config) {
  const std::span<const as_op_id> all = kStepOps;
  return has_type(config, LayerType::kC128A) ? all : all.first(all.size() - 1);
}

bool has_type(const ModelConfig& config, LayerType type) {
  for (int i = 0; i < config.num_layers(); ++i) {
    if (config.type(i) == type) return true;
  }
  return false;
}

std::span<const as_op_id> layer_ops(LayerType type) {
  switch (type) {
    case LayerType::kC4A:
      return kC4Ops;
    case LayerType::kC128A:
      return kC128Ops;
    case LayerType::kSwa:
      break;
  }
  return kSwaOps;
}

std::span<const as_op_id> head_ops() { return kOutputOps; }

OpParams layer_op_params(as_op_id op, int layer, const OpContext& context, Frame& frame,
                         const CacheSource& source) {
  return ParamsBuilder(op, layer, context, frame, source).build();
}

}  // namespace attnscope
