#include "engine/family/lifetimes.h"

#include <algorithm>
#include <map>

#include "engine/model/numbers.h"

namespace attnscope {
namespace {

// The output that a value is, in whichever part makes it.
const Binding* maker_anywhere(const ModelGraph& graph, ValueId value) {
  for (const LayerGraph& layer : graph.layers) {
    if (const Binding* made = layer.maker(value)) return made;
  }
  return graph.after.maker(value);
}

// Every layer begins with what the one before it has made; the rows to sample from are rows of it.
ValueId made_as(const ModelGraph& graph, ValueId value) {
  if (value == graph.hidden || value == graph.last) return graph.hidden_out;
  if (value == graph.draft_last) return graph.draft_out;
  return value == graph.sum.total ? graph.sum.part : value;
}

ValueLife& life_of(std::vector<ValueLife>& lives, ValueId value) {
  const auto it = std::ranges::find(lives, value, &ValueLife::value);
  if (it != lives.end()) return *it;
  ValueLife& life = lives.emplace_back();
  life.value = value;
  return life;
}

void learn(std::vector<bool>& known, const std::vector<bool>& other) {
  for (std::size_t i = 0; i < other.size(); ++i) known[i] = known[i] || other[i];
}

}  // namespace

std::vector<ValueLife> value_lives(const ModelGraph& graph, const LayerGraph& part) {
  std::vector<ValueLife> lives;
  for (std::size_t i = 0; i < part.nodes().size(); ++i) {
    const int place = static_cast<int>(i);
    for (const Binding& b : part.nodes()[i].bindings()) {
      if (b.to != BoundTo::kValue) continue;
      ValueLife& life = life_of(lives, b.value);
      if (b.is_output()) {
        life.maker = place;
      } else if (life.readers.empty() || life.readers.back() != place) {
        life.readers.push_back(place);
      }
      if (b.is_output() && b.value == graph.sum.part) {
        life_of(lives, graph.sum.total).maker = place;
      }
    }
  }
  for (ValueLife& life : lives) {
    life.lives_on = life.value == graph.hidden_out || life.value == graph.sampled ||
                    life.value == graph.drafted;
    const Binding* made = maker_anywhere(graph, made_as(graph, life.value));
    if (made == nullptr) continue;
    life.dtype = made->dtype;
    life.shape = made->shape;
    if (life.value == graph.last || life.value == graph.draft_last) {
      life.shape.front() = kSampledRows;
    }
  }
  return lives;
}

OpOrder OpOrder::one_by_one(const LayerGraph& part) {
  OpOrder order(part.nodes().size());
  for (std::size_t b = 0; b < order.done_.size(); ++b) {
    std::fill_n(order.done_[b].begin(), b, true);
  }
  return order;
}

OpOrder OpOrder::on_streams(const LayerGraph& part, const std::vector<Launch>& launches,
                            int layer) {
  OpOrder order(part.nodes().size());
  // By stream: what is done when all is that has been put on it.
  std::map<int, std::vector<bool>> known;
  const auto of_stream = [&](int stream) -> std::vector<bool>& {
    return known.try_emplace(stream, part.nodes().size(), false).first->second;
  };
  for (const Launch& launch : launches) {
    const auto op = std::ranges::find(part.ops(), launch.op);
    if (launch.layer != layer || op == part.ops().end()) continue;
    const auto place = static_cast<std::size_t>(op - part.ops().begin());
    for (const int started : launch.starts) learn(of_stream(started), of_stream(0));
    for (const int other : launch.after) learn(of_stream(launch.stream), of_stream(other));
    order.done_[place] = of_stream(launch.stream);
    of_stream(launch.stream)[place] = true;
  }
  return order;
}

bool lives_during(const ValueLife& life, const OpOrder& order, int place) {
  if (life.maker >= 0 && order.before(place, life.maker)) return false;
  if (life.lives_on || (life.maker >= 0 && !order.before(life.maker, place))) return true;
  return std::ranges::any_of(life.readers, [&](int r) { return !order.before(r, place); });
}

std::int64_t bytes_of(const ValueLife& life, const StepSizes& sizes) {
  std::int64_t bytes = as_dtype_size(life.dtype);
  for (const std::int64_t n : life.shape) {
    bytes *= n == kStepTokens     ? sizes.tokens
             : n == kSampledRows  ? sizes.sampled_rows
             : n == kScoreColumns ? sizes.score_columns
                                  : n;
  }
  return bytes;
}

LivePeak live_peak(const ModelGraph& graph, const StepSizes& sizes, bool streams) {
  LivePeak peak;
  const std::vector<Launch> launches = streams ? launch_order(graph, false) : std::vector<Launch>();
  std::map<ValueId, std::int64_t> apart;
  const auto look = [&](const LayerGraph& part, int layer) {
    const std::vector<ValueLife> lives = value_lives(graph, part);
    const OpOrder order =
        streams ? OpOrder::on_streams(part, launches, layer) : OpOrder::one_by_one(part);
    for (const ValueLife& life : lives) {
      std::int64_t& bytes = apart[life.value];
      bytes = std::max(bytes, bytes_of(life, sizes));
    }
    for (std::size_t i = 0; i < part.nodes().size(); ++i) {
      std::int64_t bytes = 0;
      for (const ValueLife& life : lives) {
        if (lives_during(life, order, static_cast<int>(i))) bytes += bytes_of(life, sizes);
      }
      if (bytes <= peak.bytes) continue;
      peak.bytes = bytes;
      peak.layer = layer;
      peak.op = part.ops()[i];
    }
  };
  for (std::size_t i = 0; i < graph.layers.size(); ++i) {
    look(graph.layers[i], static_cast<int>(i));
  }
  look(graph.after, -1);
  for (const auto& [value, bytes] : apart) peak.bytes_apart += bytes;
  return peak;
}

}  // namespace attnscope
