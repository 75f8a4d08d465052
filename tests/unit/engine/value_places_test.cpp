// Values share memory only where none of them is needed while another is.
#include "engine/family/value_places.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "engine/family/family.h"
#include "engine/family/lifetimes.h"
#include "engine/family/models.h"

namespace attnscope {
namespace value_places_test {

constexpr StepSizes kSizes{7, 7, 40};

// The largest that each value is in any layer.
std::vector<std::size_t> sizes_of(const ModelGraph& graph) {
  std::vector<std::size_t> bytes(graph.values.size(), 0);
  const auto add = [&](const LayerGraph& part) {
    for (const ValueLife& life : value_lives(graph, part)) {
      auto& most = bytes[static_cast<std::size_t>(life.value)];
      most = std::max(most, static_cast<std::size_t>(bytes_of(life, kSizes)));
    }
  };
  for (const LayerGraph& layer : graph.layers) add(layer);
  add(graph.after);
  return bytes;
}

class PlacesOf : public testing::TestWithParam<const char*> {
 protected:
  PlacesOf() : graph_(model_graph(*preset(GetParam()))), bytes_(sizes_of(*graph_)) {}

  bool overlap(const ValuePlaces& places, ValueId a, ValueId b) const {
    const auto i = static_cast<std::size_t>(a), j = static_cast<std::size_t>(b);
    return places.offset[i] < places.offset[j] + bytes_[j] &&
           places.offset[j] < places.offset[i] + bytes_[i];
  }
  void expect_apart(const ValuePlaces& places, const LayerGraph& part, const OpOrder& order) {
    const std::vector<ValueLife> lives = value_lives(*graph_, part);
    for (int place = 0; place < static_cast<int>(part.nodes().size()); ++place) {
      for (const ValueLife& a : lives) {
        for (const ValueLife& b : lives) {
          if (a.value >= b.value || !lives_during(a, order, place) ||
              !lives_during(b, order, place)) {
            continue;
          }
          ++pairs_;
          EXPECT_FALSE(overlap(places, a.value, b.value))
              << graph_->values[static_cast<std::size_t>(a.value)] << " on "
              << graph_->values[static_cast<std::size_t>(b.value)];
        }
      }
    }
  }

  std::shared_ptr<const ModelGraph> graph_;
  std::vector<std::size_t> bytes_;
  int pairs_ = 0;
};

TEST_P(PlacesOf, ValuesThatAreNeededAtOnceLieApart) {
  const ValuePlaces places = place_values(*graph_, bytes_);
  const std::vector<Launch> launches = launch_order(*graph_, false);
  const auto check = [&](const LayerGraph& part, int layer) {
    expect_apart(places, part, OpOrder::one_by_one(part));
    expect_apart(places, part, OpOrder::on_streams(part, launches, layer));
  };
  for (std::size_t i = 0; i < graph_->layers.size(); ++i) {
    check(graph_->layers[i], static_cast<int>(i));
  }
  check(graph_->after, -1);
  EXPECT_GT(pairs_, 50);
  for (std::size_t v = 0; v < bytes_.size(); ++v) {
    EXPECT_EQ(places.offset[v] % 256, 0u);
    EXPECT_LE(places.offset[v] + bytes_[v], places.bytes);
    const auto value = static_cast<ValueId>(v);
    if (bytes_[v] == 0 || value == graph_->hidden || value == graph_->hidden_out) continue;
    EXPECT_FALSE(overlap(places, value, graph_->hidden));
    EXPECT_FALSE(overlap(places, value, graph_->hidden_out));
  }
  const LivePeak peak = live_peak(*graph_, kSizes, true);
  EXPECT_GE(places.bytes, static_cast<std::size_t>(peak.bytes));
  EXPECT_LT(places.bytes * 10, static_cast<std::size_t>(peak.bytes_apart) * 9);
}

TEST_P(PlacesOf, AValueWithoutBytesTakesNoRoom) {
  std::vector<std::size_t> one(bytes_.size(), 0);
  one.back() = 100;
  const ValuePlaces places = place_values(*graph_, one);
  EXPECT_EQ(places.offset.back(), 0u);
  EXPECT_EQ(places.bytes, 256u);
  EXPECT_EQ(place_values(*graph_, std::vector<std::size_t>(bytes_.size(), 0)).bytes, 0u);
}

INSTANTIATE_TEST_SUITE_P(Models, PlacesOf,
                         testing::Values("tiny", "tiny-llama", "tiny-gemma", "tiny-llama4"));

}  // namespace value_places_test
}  // namespace attnscope
