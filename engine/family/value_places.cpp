#include "engine/family/value_places.h"

#include <algorithm>
#include <numeric>

#include "engine/family/lifetimes.h"
#include "engine/model/numbers.h"

namespace attnscope {
namespace {

constexpr std::size_t kAlignment = 256;

std::size_t rounded(std::size_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

// Which values may be needed at the same time.
class Together {
 public:
  explicit Together(const ModelGraph& graph)
      : values_(graph.values.size()), pairs_(values_ * values_, false) {
    const std::vector<Launch> launches = launch_order(graph, false);
    for (std::size_t i = 0; i < graph.layers.size(); ++i) {
      look(graph, graph.layers[i], launches, static_cast<int>(i));
    }
    look(graph, graph.after, launches, -1);
    for (const ValueId always : {graph.hidden, graph.hidden_out}) {
      for (std::size_t v = 0; v < values_; ++v) add(always, static_cast<ValueId>(v));
    }
  }

  bool has(std::size_t a, std::size_t b) const { return pairs_[a * values_ + b]; }

 private:
  void add(ValueId a, ValueId b) {
    pairs_[to_size(a) * values_ + to_size(b)] = true;
    pairs_[to_size(b) * values_ + to_size(a)] = true;
  }

  void look(const ModelGraph& graph, const LayerGraph& part, const std::vector<Launch>& launches,
            int layer) {
    const std::vector<ValueLife> lives = value_lives(graph, part);
    const OpOrder orders[] = {OpOrder::one_by_one(part),
                              OpOrder::on_streams(part, launches, layer)};
    for (const OpOrder& order : orders) {
      for (std::size_t place = 0; place < part.nodes().size(); ++place) {
        std::vector<ValueId> live;
        for (const ValueLife& life : lives) {
          if (!lives_during(life, order, static_cast<int>(place))) continue;
          for (const ValueId other : live) add(life.value, other);
          live.push_back(life.value);
        }
      }
    }
  }

  std::size_t values_;
  std::vector<bool> pairs_;
};

}  // namespace

ValuePlaces place_values(const ModelGraph& graph, const std::vector<std::size_t>& bytes) {
  const Together together(graph);
  ValuePlaces places;
  places.offset.assign(bytes.size(), 0);
  std::vector<std::size_t> order(bytes.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  // The largest first: small ones then find room in the gaps.
  std::ranges::stable_sort(order, [&](auto a, auto b) { return bytes[a] > bytes[b]; });
  std::vector<std::size_t> placed;  // by offset
  for (const std::size_t value : order) {
    if (bytes[value] == 0) break;
    std::size_t at = 0;
    for (const std::size_t other : placed) {
      if (!together.has(value, other)) continue;
      if (at + bytes[value] <= places.offset[other]) break;
      at = std::max(at, places.offset[other] + rounded(bytes[other]));
    }
    places.offset[value] = at;
    places.bytes = std::max(places.bytes, at + rounded(bytes[value]));
    placed.insert(
        std::ranges::upper_bound(placed, at, {}, [&](std::size_t v) { return places.offset[v]; }),
        value);
  }
  return places;
}

}  // namespace attnscope
