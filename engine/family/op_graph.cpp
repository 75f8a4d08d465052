#include "engine/family/op_graph.h"

#include <algorithm>
#include <cassert>
#include <cstring>
#include <utility>

#include "kernels/params/row_access.h"

namespace attnscope {
namespace {

const as_tap_info* tap_named(as_op_id op, std::string_view name) {
  const as_op_info& info = *as_op_find(op);
  const as_tap_info* end = info.taps + info.num_taps;
  const as_tap_info* tap =
      std::find_if(info.taps, end, [&](const as_tap_info& t) { return name == t.name; });
  return tap != end ? tap : nullptr;
}

// "tables/swa" is a part of "tables".
std::string_view whole_name(std::string_view name) { return name.substr(0, name.find('/')); }

bool of_step(const Binding& b) {
  return b.to == BoundTo::kStep || b.to == BoundTo::kSlots || b.to == BoundTo::kTable;
}

}  // namespace

bool reads_from(const Binding& input, const Binding& output) {
  if (input.is_output() || !output.is_output()) return false;
  if (output.to == BoundTo::kStep) {
    return of_step(input) && whole_name(input.name) == whole_name(output.name);
  }
  if (input.to != output.to) return false;
  return input.to == BoundTo::kCache ? input.role == output.role : input.value == output.value;
}

Node::Node(as_op_id op, std::string id, int branch)
    : id_(id.empty() ? as_op_find(op)->name : std::move(id)), op_(op), branch_(branch) {}

Binding& Node::bind(const char* tap, BoundTo to) {
  Binding& binding = bindings_.emplace_back();
  binding.tap = tap_named(op_, tap);
  assert(binding.tap != nullptr);
  binding.to = to;
  return binding;
}

Node& Node::reads(const char* tap, ValueId value, Shape view) {
  Binding& b = bind(tap, BoundTo::kValue);
  b.value = value;
  b.view = std::move(view);
  return *this;
}

Node& Node::makes(const char* tap, ValueId value, std::int32_t dtype, Shape shape, Shape view) {
  Binding& b = bind(tap, BoundTo::kValue);
  b.value = value;
  b.dtype = dtype;
  b.shape = std::move(shape);
  b.view = std::move(view);
  return *this;
}

Node& Node::makes_codes(const char* tap, ValueId value, Shape shape, Shape values,
                        std::int32_t dtype) {
  makes(tap, value, dtype, std::move(shape));
  bindings_.back().codes = true;
  bindings_.back().values = std::move(values);
  return *this;
}

Node& Node::weight(const char* tap, std::string_view weight) {
  bind(tap, BoundTo::kWeight).weight = weight;
  const std::string scale = std::string(tap) + "_scale";
  if (const as_tap_info* found = tap_named(op_, scale)) {
    bind(found->name, BoundTo::kWeightScale).weight = weight;
  }
  return *this;
}

Node& Node::cache(const char* tap, CacheId role) {
  bind(tap, BoundTo::kCache).role = role;
  return *this;
}

Node& Node::slots(const char* tap, CacheId role, std::string_view name) {
  Binding& b = bind(tap, BoundTo::kSlots);
  b.role = role;
  b.name = name;
  return *this;
}

Node& Node::table(const char* tap, CacheId role, std::string_view name) {
  Binding& b = bind(tap, BoundTo::kTable);
  b.role = role;
  b.name = name;
  return *this;
}

Node& Node::step(const char* tap, std::string_view name) {
  bind(tap, BoundTo::kStep).name = name;
  return *this;
}

Node& Node::launched_before(as_op_id op) {
  before_ = op;
  return *this;
}

Node& Node::in_phase(int phase) {
  phase_ = phase;
  return *this;
}

const Binding* Node::find(std::string_view tap) const {
  const auto it =
      std::ranges::find_if(bindings_, [&](const Binding& b) { return tap == b.tap->name; });
  return it != bindings_.end() ? &*it : nullptr;
}

bool Node::read_instead(ValueId value, ValueId other) {
  bool any = false;
  for (Binding& b : bindings_) {
    if (b.to != BoundTo::kValue || b.is_output() || b.value != value) continue;
    b.value = other;
    any = true;
  }
  return any;
}

bool depends(const Node& reader, const Node& writer) {
  return std::ranges::any_of(reader.bindings(), [&](const Binding& input) {
    return std::ranges::any_of(writer.bindings(),
                               [&](const Binding& output) { return reads_from(input, output); });
  });
}

LayerGraph::LayerGraph(std::vector<Node> nodes) {
  while (!nodes.empty()) {
    auto next = std::ranges::find_if(nodes, [&](const Node& node) {
      return std::ranges::none_of(
          nodes, [&](const Node& other) { return &other != &node && depends(node, other); });
    });
    assert(next != nodes.end());  // ops that wait for one another
    ops_.push_back(next->op());
    nodes_.push_back(std::move(*next));
    nodes.erase(next);
  }
}

void Node::number_step_tensors(std::span<const StepTensor> own) {
  for (Binding& b : bindings_) {
    if (b.to == BoundTo::kStep) b.number = step_tensor_number(b.name, own);
  }
}

void LayerGraph::number_step_tensors(std::span<const StepTensor> own) {
  for (Node& node : nodes_) node.number_step_tensors(own);
}

const Node* LayerGraph::find(as_op_id op) const {
  const auto it = std::ranges::find(ops_, op);
  return it != ops_.end() ? &nodes_[static_cast<std::size_t>(it - ops_.begin())] : nullptr;
}

const Binding* LayerGraph::maker(ValueId value) const {
  for (const Node& node : nodes_) {
    for (const Binding& b : node.bindings()) {
      if (b.is_output() && b.to == BoundTo::kValue && b.value == value) return &b;
    }
  }
  return nullptr;
}

as_op_id LayerGraph::read_instead(ValueId value, ValueId other) {
  as_op_id reader = AS_OP_COUNT;
  for (Node& node : nodes_) {
    if (node.read_instead(value, other)) reader = node.op();
  }
  return reader;
}

const Node& ModelGraph::node(int layer_index, as_op_id op) const {
  if (layer_index >= 0) return *layer(layer_index).find(op);
  const Node* first = before.find(op);
  return first != nullptr ? *first : *after.find(op);
}

int ModelGraph::phase(as_op_id op) const {
  for (const LayerGraph& layer : layers) {
    if (const Node* node = layer.find(op)) return node->phase();
  }
  return -1;
}

ValueId ModelGraph::add_value(std::string name) {
  values.push_back(std::move(name));
  return static_cast<ValueId>(values.size()) - 1;
}

std::vector<OpRead> reads_within(const ModelGraph& graph, const LayerGraph& part) {
  std::vector<OpRead> reads;
  for (const Node& reader : part.nodes()) {
    for (Binding input : reader.bindings()) {
      if (input.to == BoundTo::kValue && !input.is_output() && input.value == graph.sum.total) {
        input.value = graph.sum.part;
      }
      for (const Node& writer : part.nodes()) {
        for (const Binding& output : writer.bindings()) {
          if (&writer == &reader || !reads_from(input, output)) continue;
          const bool same = output.to == BoundTo::kValue
                                ? output.tap->mask != AS_MASK_LENS
                                : output.to == BoundTo::kStep && input.name == output.name;
          reads.push_back({reader.op(), input.tap->name, writer.op(), output.tap->name, same});
        }
      }
    }
  }
  return reads;
}

namespace {

// Follows what says where rows lie: tensors of integers.
class RowMakers {
 public:
  RowMakers(const ModelGraph& graph, const LayerGraph& layer) : graph_(graph), layer_(layer) {}

  void follow(const Node& node, std::string_view tap) {
    const Binding* cache = node.find(tap);
    if (cache == nullptr || cache->to != BoundTo::kCache) return;
    follow_rows(node, *cache);
    if (cache->is_output()) return;
    for (const Node& writer : layer_.nodes()) {
      for (const Binding& b : writer.bindings()) {
        if (!reads_from(*cache, b)) continue;
        add(writer.op());
        follow_rows(writer, b);
      }
    }
  }

  std::vector<as_op_id> ops() && { return std::move(ops_); }

 private:
  void follow_rows(const Node& node, const Binding& cache) {
    for (const as_cache_access& access : RowAccess::of(node.op())) {
      if (access.cache != cache.tap->offset) continue;
      for (const Binding& b : node.bindings()) {
        const std::size_t at = b.tap->offset;
        if (at == access.rows || (access.lens != 0 && at == access.lens)) follow_integers(b);
      }
    }
  }

  void follow_integers(const Binding& input) {
    if (input.tap->dtype[0] != 'i') return;
    for (const LayerGraph* part : {&graph_.before, &layer_}) {
      for (const Node& writer : part->nodes()) {
        const bool writes = std::ranges::any_of(
            writer.bindings(), [&](const Binding& b) { return reads_from(input, b); });
        if (!writes || !add(writer.op())) continue;
        for (const Binding& b : writer.bindings()) {
          if (!b.is_output()) follow_integers(b);
        }
      }
    }
  }

  bool add(as_op_id op) {
    if (std::ranges::find(ops_, op) != ops_.end()) return false;
    ops_.push_back(op);
    return true;
  }

  const ModelGraph& graph_;
  const LayerGraph& layer_;
  std::vector<as_op_id> ops_;
};

}  // namespace

std::vector<as_op_id> makers_of_rows(const ModelGraph& graph, as_op_id op, std::string_view tap) {
  std::vector<as_op_id> makers;
  for (const LayerGraph& layer : graph.layers) {
    const Node* node = layer.find(op);
    if (node == nullptr) continue;
    RowMakers of(graph, layer);
    of.follow(*node, tap);
    for (const as_op_id maker : std::move(of).ops()) {
      if (std::ranges::find(makers, maker) == makers.end()) makers.push_back(maker);
    }
  }
  return makers;
}

}  // namespace attnscope
