#include "engine/family/rank_split.h"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>
#include <set>

namespace attnscope {
namespace {

bool has_weight(const ModelGraph& graph, const Node& node, Shard shard) {
  return std::ranges::any_of(node.bindings(), [&](const Binding& b) {
    return b.to == BoundTo::kWeight && shard_of(graph, b.weight) == shard;
  });
}

std::vector<std::string_view> axes_of(const as_tap_info& tap) {
  std::vector<std::string_view> axes;
  std::string_view rest = tap.axes;
  while (true) {
    const std::size_t end = rest.find(',');
    axes.push_back(rest.substr(0, end));
    if (end == std::string_view::npos) return axes;
    rest.remove_prefix(end + 1);
  }
}

// The axes behind the first as the op has them; none of a value that another part makes.
Shape sizes_seen(const LayerGraph& part, const Binding& b) {
  if (!b.view.empty()) return b.view;
  const Binding* made = b.is_output() ? &b : part.maker(b.value);
  return made != nullptr ? Shape(made->shape.begin() + 1, made->shape.end()) : Shape();
}

// Axes of an op's values that are not the same in both parts, which have the same nodes.
std::set<std::string_view> axes_grown(const LayerGraph& part, const LayerGraph& twice,
                                      std::size_t node) {
  std::set<std::string_view> grown;
  const std::vector<Binding>& bindings = part.nodes()[node].bindings();
  for (std::size_t i = 0; i < bindings.size(); ++i) {
    if (bindings[i].to != BoundTo::kValue) continue;
    const auto axes = axes_of(*bindings[i].tap);
    const Shape sizes = sizes_seen(part, bindings[i]);
    const Shape other = sizes_seen(twice, twice.nodes()[node].bindings()[i]);
    assert(sizes.empty() || sizes.size() + 1 == axes.size());
    for (std::size_t k = 0; k < sizes.size(); ++k) {
      if (sizes[k] != other[k]) grown.insert(axes[k + 1]);
    }
  }
  return grown;
}

Shard shard_along(const as_tap_info& weight, const std::set<std::string_view>& grown) {
  const auto axes = axes_of(weight);
  const auto found =
      std::ranges::find_if(axes, [&](std::string_view a) { return grown.contains(a); });
  if (found == axes.end()) return Shard::kWhole;
  assert(found - axes.begin() < 2);
  return found == axes.begin() ? Shard::kRows : Shard::kColumns;
}

// What the rows of a cache are made of: the input that the op stores there, or its row before
// quantisation; the cache itself where its rows are values.
const as_tap_info& content_of(as_op_id op, const as_tap_info& cache) {
  const as_op_info& info = *as_op_find(op);
  for (std::uint32_t i = 0; cache.stores != 0 && i < info.num_taps; ++i) {
    if (info.taps[i].offset == cache.stores) return info.taps[i];
  }
  const as_tap_info* row = as_op_row(op);
  return cache.follows_row != 0 && row != nullptr ? *row : cache;
}

CacheSharding sharding_of(const Node& writer, const as_tap_info& cache,
                          const std::set<std::string_view>& grown) {
  const auto axes = axes_of(content_of(writer.op(), cache));
  const bool own =
      std::ranges::any_of(axes, [&](std::string_view axis) { return grown.contains(axis); });
  return own ? CacheSharding::kByHead : CacheSharding::kReplicated;
}

bool reads_any(const Node& node, const std::set<ValueId>& values) {
  return std::ranges::any_of(node.bindings(), [&](const Binding& b) {
    return b.to == BoundTo::kValue && !b.is_output() && values.contains(b.value);
  });
}

}  // namespace

void deal_out(ModelGraph& graph, const ModelGraph& twice) {
  const auto deal = [&](const LayerGraph& part, const LayerGraph& grown_part) {
    for (std::size_t n = 0; n < part.nodes().size(); ++n) {
      const Node& node = part.nodes()[n];
      const auto grown = axes_grown(part, grown_part, n);
      for (const Binding& b : node.bindings()) {
        if (b.to == BoundTo::kWeight) {
          graph.weights.insert_or_assign(std::string(b.weight), shard_along(*b.tap, grown));
        } else if (b.to == BoundTo::kCache && b.is_output()) {
          graph.caches.insert_or_assign(b.role, sharding_of(node, *b.tap, grown));
        }
      }
    }
  };
  for (std::size_t i = 0; i < graph.layers.size(); ++i) deal(graph.layers[i], twice.layers[i]);
  deal(graph.after, twice.after);
}

Result<void> deal_caches(const ModelGraph& graph, std::vector<CacheSpec>& specs,
                         std::span<const CacheSpec> twice) {
  const auto contradicts = [](const CacheSpec& spec, const char* what) {
    return internal_error(
        fmt::format("the {} cache of running layer {} {}: the caches of the "
                    "model's family and its graph contradict each other",
                    spec.name, spec.layer, what));
  };
  for (std::size_t i = 0; i < specs.size(); ++i) {
    CacheSpec& spec = specs[i];
    const auto written = graph.caches.find(spec.id);
    if (written == graph.caches.end()) return contradicts(spec, "is written by no op");
    spec.sharding = written->second;
    const bool grows =
        twice[i].num_kv_heads != spec.num_kv_heads || twice[i].head_dim != spec.head_dim;
    if (grows == (spec.sharding == CacheSharding::kByHead)) continue;
    return contradicts(spec, grows ? "has rows of a rank's heads, and what is written there is the "
                                     "same on every rank"
                                   : "has the same rows on every rank, and what is written there "
                                     "is of a rank's heads");
  }
  return {};
}

RankSplit rank_split(const ModelGraph& graph, const LayerGraph& layer) {
  RankSplit split;
  std::set<ValueId> dealt, made;
  for (const Node& node : layer.nodes()) {
    const bool sums = has_weight(graph, node, Shard::kColumns);
    if (!sums && !has_weight(graph, node, Shard::kRows) && !reads_any(node, dealt)) continue;
    split.ops.push_back(node.op());
    for (const Binding& b : node.bindings()) {
      if (b.to != BoundTo::kValue) continue;
      if (b.is_output()) {
        made.insert(b.value);
        if (!sums) dealt.insert(b.value);
      } else if (!made.contains(b.value) && std::ranges::count(split.shared, b.value) == 0) {
        split.shared.push_back(b.value);
      }
    }
  }
  return split;
}

std::vector<as_op_id> summing_ops(const ModelGraph& graph) {
  std::vector<as_op_id> ops;
  for (const LayerGraph& layer : graph.layers) {
    for (const Node& node : layer.nodes()) {
      if (!has_weight(graph, node, Shard::kColumns)) continue;
      if (std::ranges::find(ops, node.op()) == ops.end()) ops.push_back(node.op());
    }
  }
  return ops;
}

void add_sums(ModelGraph& graph) {
  assert(summing_ops(graph).size() <= 1);
  for (LayerGraph& layer : graph.layers) {
    for (const Node& node : std::vector(layer.nodes())) {
      if (!has_weight(graph, node, Shard::kColumns)) continue;
      const auto part = std::ranges::find_if(node.bindings(), &Binding::is_output);
      ModelGraph::Sum& sum = graph.sum;
      if (sum.part == kNoValue) {
        sum = {part->value,
               graph.add_value(graph.values[static_cast<std::size_t>(part->value)] + " over ranks"),
               node.op(), AS_OP_COUNT};
      }
      sum.read_by = layer.read_instead(sum.part, sum.total);
    }
  }
}

Shard shard_of(const ModelGraph& graph, std::string_view weight) {
  const auto it = graph.weights.find(weight);
  return it != graph.weights.end() ? it->second : Shard::kWhole;
}

}  // namespace attnscope
