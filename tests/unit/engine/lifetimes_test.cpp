// How long values live: by hand for two layers, and for every family and random graphs against what
// follows from the definition, one op after another and on streams that run as fast as they like.
#include "engine/family/lifetimes.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>

#include "engine/family/family.h"
#include "engine/family/models.h"

namespace attnscope {
namespace lifetimes_test {

const ValueLife& life_named(const ModelGraph& graph, const std::vector<ValueLife>& lives,
                            std::string_view name) {
  return *std::ranges::find_if(lives, [&](const ValueLife& life) {
    return graph.values[static_cast<std::size_t>(life.value)] == name;
  });
}

const char* op_at(const LayerGraph& part, int place) {
  return place < 0 ? "" : as_op_find(part.ops()[static_cast<std::size_t>(place)])->name;
}

TEST(Lifetimes, V4ValuesLiveFromTheirMakerToTheirLastReader) {
  const auto graph = model_graph(*preset("tiny"));
  const LayerGraph& c4a = graph->layer(1);
  const auto lives = value_lives(*graph, c4a);
  struct Row {
    const char *value, *maker, *last;
    bool lives_on;
  };
  for (const Row& row : {Row{"hidden", "", "residual", false},
                         {"normed", "attn_norm", "indexer_weights_proj", false},
                         {"qr", "q_kv_norm", "indexer_q_proj", false},
                         {"q", "q_rope_kv_insert", "sparse_attention", false},
                         {"kv_row", "q_rope_kv_insert", "q_rope_kv_insert", false},
                         {"logits", "indexer_logits", "indexer_topk", false},
                         {"top_k_slots", "topk_to_slots", "sparse_attention", false},
                         {"o", "sparse_attention", "inverse_rope", false},
                         {"y", "wo_b", "residual", false},
                         {"hidden_out", "residual", "residual", true}}) {
    const ValueLife& life = life_named(*graph, lives, row.value);
    EXPECT_STREQ(op_at(c4a, life.maker), row.maker) << row.value;
    EXPECT_STREQ(op_at(c4a, life.last()), row.last) << row.value;
    EXPECT_EQ(life.lives_on, row.lives_on) << row.value;
  }
  const auto after = value_lives(*graph, graph->after);
  EXPECT_EQ(life_named(*graph, after, "last").maker, -1);
  EXPECT_TRUE(life_named(*graph, after, "sampled").lives_on);
  // 7 tokens of a hidden state of 512, 3 sampled rows of it, 7 x 20 scores.
  const StepSizes sizes{7, 3, 20};
  EXPECT_EQ(bytes_of(life_named(*graph, lives, "hidden"), sizes), 7 * 512 * 2);
  EXPECT_EQ(bytes_of(life_named(*graph, after, "last"), sizes), 3 * 512 * 2);
  EXPECT_EQ(bytes_of(life_named(*graph, lives, "logits"), sizes), 7 * 20 * 4);
}

TEST(Lifetimes, ASumOverRanksTakesThePlaceOfItsParts) {
  ModelConfig config = *preset("tiny");
  config.parallel = {2, 0};
  const auto graph = model_graph(config);
  const LayerGraph& layer = graph->layer(0);
  const auto lives = value_lives(*graph, layer);
  const ValueLife& part = life_named(*graph, lives, "y");
  const ValueLife& total = life_named(*graph, lives, "y over ranks");
  EXPECT_TRUE(part.readers.empty());
  EXPECT_EQ(total.maker, part.maker);
  EXPECT_STREQ(op_at(layer, total.last()), "residual");
  EXPECT_EQ(total.shape, part.shape);
}

// One token of the small model's first layer: q_rope_kv_insert needs the hidden state of 512,
// queries of 8 heads of 512 twice and the latent row twice, in bf16. Nothing else needs as much.
TEST(Lifetimes, ThePeakIsWhereMostBytesAreNeeded) {
  const auto graph = model_graph(*preset("tiny", {0}));
  const LivePeak peak = live_peak(*graph, {1, 1, 1}, false);
  EXPECT_EQ(peak.bytes, 2 * (512 + 2 * 8 * 512 + 2 * 512));
  EXPECT_EQ(peak.layer, 0);
  EXPECT_EQ(peak.op, AS_OP_Q_ROPE_KV_INSERT);
  EXPECT_EQ(peak.bytes_apart, 43812) << "the sum over all values of the layer and behind it";
  EXPECT_EQ(live_peak(*graph, {4, 4, 1}, false).bytes, 4 * peak.bytes);
  EXPECT_EQ(live_peak(*graph, {1, 1, 1}, true).bytes, peak.bytes) << "it has one stream";
  const auto branches = model_graph(*preset("tiny"));
  const LivePeak streams = live_peak(*branches, {1, 1, 1}, true);
  EXPECT_GT(streams.bytes, live_peak(*branches, {1, 1, 1}, false).bytes);
  EXPECT_LT(streams.bytes, streams.bytes_apart);
}

// Ops of all kinds at random, on streams at random; each reads what others have made before.
ModelGraph random_graph(std::mt19937& random) {
  const auto below = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
  ModelGraph graph;
  graph.branches = {"", "a", "b"};
  graph.hidden = graph.add_value("hidden");
  std::vector<as_op_id> ops;
  for (int op = 0; op < AS_OP_COUNT; ++op) {
    if (as_op_find(op)->phase == AS_PHASE_LAYER) ops.push_back(static_cast<as_op_id>(op));
  }
  std::ranges::shuffle(ops, random);
  ops.resize(3 + static_cast<std::size_t>(below(14)));
  std::vector<ValueId> made = {graph.hidden};
  std::vector<Node> nodes;
  for (const as_op_id op : ops) {
    Node node(op, {}, op == ops.back() ? 0 : below(3));
    const as_op_info& info = *as_op_find(op);
    std::vector<ValueId> results;
    for (std::uint32_t i = 0; i < info.num_taps; ++i) {
      const as_tap_info& tap = info.taps[i];
      if (tap.kind == AS_TAP_CACHE) continue;
      if (tap.direction == AS_TAP_IN && below(2) == 0) {
        // More often of late than of long ago.
        const int count = static_cast<int>(made.size());
        node.reads(tap.name, made[static_cast<std::size_t>(std::max(below(count), below(count)))]);
      } else if (tap.direction == AS_TAP_OUT) {
        results.push_back(graph.add_value(std::to_string(graph.values.size())));
        node.makes(tap.name, results.back(), AS_U8, {1 + below(50)});
      }
    }
    made.insert(made.end(), results.begin(), results.end());
    nodes.push_back(std::move(node));
  }
  graph.hidden_out = made.back();
  graph.layers.emplace_back(std::move(nodes));
  return graph;
}

// Values that an op which begins or runs needs, or one that has not begun yet, or who comes later.
// state: by place, 0 = not begun, 1 = runs, 2 = done.
std::set<ValueId> needed(const ModelGraph& graph, const LayerGraph& part,
                         const std::vector<int>& state) {
  std::set<ValueId> values;
  const auto made = [&](ValueId value) {
    for (std::size_t i = 0; i < part.nodes().size(); ++i) {
      for (const Binding& b : part.nodes()[i].bindings()) {
        if (b.to == BoundTo::kValue && b.is_output() && b.value == value) return state[i] > 0;
      }
    }
    return true;
  };
  for (std::size_t i = 0; i < part.nodes().size(); ++i) {
    for (const Binding& b : part.nodes()[i].bindings()) {
      if (b.to != BoundTo::kValue) continue;
      if (b.is_output() ? state[i] == 1 : state[i] < 2 && made(b.value)) values.insert(b.value);
      const bool kept = b.value == graph.hidden_out || b.value == graph.sampled;
      if (b.is_output() && kept && state[i] > 0) values.insert(b.value);
    }
  }
  return values;
}

std::set<ValueId> live_at(const std::vector<ValueLife>& lives, const OpOrder& order, int place) {
  std::set<ValueId> values;
  for (const ValueLife& life : lives) {
    if (lives_during(life, order, place)) values.insert(life.value);
  }
  return values;
}

void expect_true_one_by_one(const ModelGraph& graph, const LayerGraph& part) {
  const auto lives = value_lives(graph, part);
  const OpOrder order = OpOrder::one_by_one(part);
  std::vector<int> state(part.nodes().size(), 0);
  for (std::size_t i = 0; i < state.size(); ++i) {
    state[i] = 1;
    EXPECT_EQ(live_at(lives, order, static_cast<int>(i)), needed(graph, part, state))
        << as_op_find(part.ops()[i])->name;
    state[i] = 2;
  }
}

// A layer on streams, each as fast as it likes: what waits for what is done as a device does it.
class Streams {
 public:
  Streams(const LayerGraph& part, const std::vector<Launch>& launches, int layer) {
    for (const Launch& launch : launches) {
      if (launch.layer != layer || part.find(launch.op) == nullptr) continue;
      // How many ops have been put on a stream when an op, or what starts here, waits for it.
      for (const int started : launch.starts) waits_[started].push_back({put(started), 0, put(0)});
      for (const int other : launch.after) {
        waits_[launch.stream].push_back({put(launch.stream), other, put(other)});
      }
      const auto op = std::ranges::find(part.ops(), launch.op) - part.ops().begin();
      queue_[launch.stream].push_back(static_cast<std::size_t>(op));
    }
  }

  // Begins and ends ops at random; begun(place, state) as each begins.
  template <class Begun>
  void run(std::mt19937& random, std::size_t ops, const Begun& begun) {
    std::vector<int> state(ops, 0);
    std::map<int, std::size_t> done;
    std::size_t left = ops;
    while (left > 0) {
      std::vector<int> ready;
      for (const auto& [stream, queue] : queue_) {
        if (done[stream] < queue.size() && may_begin(stream, done)) ready.push_back(stream);
      }
      ASSERT_FALSE(ready.empty());
      const int stream = ready[random() % ready.size()];
      const std::size_t place = queue_[stream][done[stream]];
      if (state[place] == 0) {
        state[place] = 1;
        begun(static_cast<int>(place), state);
      } else {
        state[place] = 2;
        ++done[stream];
        --left;
      }
    }
  }

 private:
  struct Wait {
    std::size_t at;  // before the op that is so far down the stream
    int stream;
    std::size_t count;  // of its ops
  };
  std::size_t put(int stream) { return queue_[stream].size(); }
  bool may_begin(int stream, std::map<int, std::size_t>& done) {
    return std::ranges::all_of(waits_[stream], [&](const Wait& w) {
      return w.at > done[stream] || done[w.stream] >= w.count;
    });
  }

  std::map<int, std::vector<std::size_t>> queue_;
  std::map<int, std::vector<Wait>> waits_;
};

// Whatever is needed as an op begins is among what may live then, and what is done for certain is.
void expect_enough_on_streams(const ModelGraph& graph, const LayerGraph& part, int layer,
                              std::mt19937& random) {
  const auto launches = launch_order(graph, false);
  const auto lives = value_lives(graph, part);
  const OpOrder order = OpOrder::on_streams(part, launches, layer);
  for (int run = 0; run < 40; ++run) {
    Streams streams(part, launches, layer);
    streams.run(random, part.nodes().size(), [&](int place, const std::vector<int>& state) {
      const auto live = live_at(lives, order, place);
      const auto now = needed(graph, part, state);
      EXPECT_TRUE(std::ranges::includes(live, now))
          << as_op_find(part.ops()[static_cast<std::size_t>(place)])->name;
      for (std::size_t i = 0; i < state.size(); ++i) {
        if (order.before(static_cast<int>(i), place)) {
          EXPECT_EQ(state[i], 2) << as_op_find(part.ops()[i])->name;
        }
      }
    });
  }
}

TEST(Lifetimes, AtEveryOpOfAFamilyTheLiveValuesAreThoseThatAreNeeded) {
  std::mt19937 random(1);
  for (const std::string name :
       {"tiny", "tiny-llama", "tiny-gemma", "tiny-mqa", "tiny-llama4", "tiny-alibi"}) {
    const auto graph = model_graph(*preset(name));
    for (std::size_t i = 0; i < graph->layers.size(); ++i) {
      SCOPED_TRACE(name + " layer " + std::to_string(i));
      expect_true_one_by_one(*graph, graph->layers[i]);
      expect_enough_on_streams(*graph, graph->layers[i], static_cast<int>(i), random);
    }
    expect_true_one_by_one(*graph, graph->after);
    expect_enough_on_streams(*graph, graph->after, -1, random);
  }
}

TEST(Lifetimes, AtEveryOpOfARandomGraphTheLiveValuesAreThoseThatAreNeeded) {
  for (unsigned seed = 1; seed <= 60; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937 random(seed);
    const ModelGraph graph = random_graph(random);
    expect_true_one_by_one(graph, graph.layer(0));
    expect_enough_on_streams(graph, graph.layer(0), 0, random);
  }
}

}  // namespace lifetimes_test
}  // namespace attnscope
