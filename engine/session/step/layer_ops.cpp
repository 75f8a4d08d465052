#include "engine/session/step/layer_ops.h"

#include <algorithm>

#include "engine/family/launch_order.h"
#include "kernels/params/row_access.h"
#include "kernels/params/tensor_view.h"

namespace attnscope {
namespace {

class ParamsBuilder {
 public:
  ParamsBuilder(const Node& node, int layer, const OpContext& context, Frame& frame,
                const CacheSource& source)
      : node_(node),
        layer_(layer),
        context_(context),
        frame_(frame),
        source_(source),
        params_(node.op()) {}

  OpParams build() {
    std::int32_t rows_per_block = 0;
    for (const Binding& b : node_.bindings()) {
      if (b.to == BoundTo::kCache) {
        params_.cache(b.tap->offset) = source_.cache(layer_, b.role, context_.peer);
      } else {
        params_.tensor(b.tap->offset) = b.is_output() ? made(b) : given(b);
      }
      if (b.to == BoundTo::kTable) {
        rows_per_block = source_.cache(layer_, b.role).rows_per_block;
      }
    }
    if (as_rope* rope = rope_of(params_)) {
      *rope = (*context_.ropes)[static_cast<std::size_t>(layer_)];
    }
    context_.graph->family->set_layer_numbers(node_.op(), layer_, *context_.config, rows_per_block,
                                              params_.data());
    for (const as_cache_access& access : RowAccess::of(node_.op())) {
      if (access.chunk == 0 || params_.cache(access.cache).record == AS_RECORD_NONE) continue;
      params_.integer(access.chunk) =
          source_.chunk(layer_, tap_cache(node_.op(), std::size_t{access.cache}));
    }
    return std::move(params_);
  }

 private:
  as_tensor given(const Binding& b) const {
    switch (b.to) {
      case BoundTo::kWeight:
        return weight(b.weight).tensor();
      case BoundTo::kWeightScale:
        return weight(b.weight).scale();
      case BoundTo::kSlots:
        return source_.slots(layer_, b.role);
      case BoundTo::kTable:
        return source_.table(layer_, b.role);
      case BoundTo::kStep:
        if (b.number == kPositionsTensor) return context_.positions;
        if (b.number == kTokenToReqTensor) return context_.token_to_req;
        if (b.number == kSeqLensTensor) return context_.seq_lens;
        if (b.number == kQueryStartTensor) return context_.query_start_loc;
        if (b.number == kSourceLensTensor) return context_.source_lens;
        return source_.list(layer_, own_number(b.number));
      default:
        return seen_as(frame_.get(b.value), b.view);
    }
  }

  // What is put out. In ref.exact values take the place of codes.
  as_tensor made(const Binding& b) {
    if (b.codes && frame_.kind() == Frame::Kind::kExact) {
      return b.values.empty() ? no_tensor() : frame_.make(b.value, AS_F32, sizes(b.values));
    }
    return seen_as(frame_.make(b.value, b.dtype, sizes(b.shape)), b.view);
  }

  Shape sizes(Shape shape) const {
    for (std::int64_t& n : shape) {
      if (n == kStepTokens) n = context_.positions.shape[0];
      if (n == kScoreColumns) n = context_.logits_width;
      if (n == kSampledRows) n = frame_.get(context_.graph->last).shape[0];
    }
    return shape;
  }

  static as_tensor seen_as(const as_tensor& value, const Shape& view) {
    if (view.empty() || !present(value)) return value;
    Shape shape = {value.shape[0]};
    shape.insert(shape.end(), view.begin(), view.end());
    return dense_tensor(value.data, value.dtype, shape);
  }

  const Weight& weight(std::string_view name) const { return context_.weights->find(layer_, name); }

  const Node& node_;
  const int layer_;
  const OpContext& context_;
  Frame& frame_;
  const CacheSource& source_;
  OpParams params_;
};

}  // namespace

OpParams layer_op_params(as_op_id op, int layer, const OpContext& context, Frame& frame,
                         const CacheSource& source) {
  return ParamsBuilder(context.graph->node(layer, op), layer, context, frame, source).build();
}

OpParams step_op_params(as_op_id op, const ModelGraph& graph, StepMetadata& step,
                        const ModelConfig& config, const CacheLayout& layout,
                        std::int64_t token_budget, std::int64_t alignment) {
  OpParams params(op);
  for (const Binding& b : graph.before.find(op)->bindings()) {
    params.tensor(b.tap->offset) = step_tensor(b.number, step, layout);
  }
  graph.family->set_step_numbers(op, config, layout, token_budget, alignment, params.data());
  return params;
}

std::vector<as_op_id> list_ops(const ModelGraph& graph) {
  std::vector<as_op_id> ops;
  std::ranges::copy_if(graph.before.ops(), std::back_inserter(ops), makes_list);
  return ops;
}

OpParams list_op_params(as_op_id op, const ModelGraph& graph, StepMetadata& step,
                        const ModelConfig& config, const CacheLayout& layout) {
  return step_op_params(op, graph, step, config, layout, 0, 0);
}

}  // namespace attnscope
