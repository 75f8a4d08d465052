// The graph of a model: what follows from the bindings of its nodes. V4's by hand, as it was before
// it was derived, and a made-up family of two ops.
#include "engine/family/op_graph.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "engine/family/deepseek_v4/caches.h"
#include "engine/family/family.h"
#include "engine/family/launch_order.h"
#include "engine/family/model_weights.h"
#include "engine/family/models.h"
#include "engine/family/rank_split.h"
#include "engine/family/tensor_parallel.h"
#include "engine/session/step/layer_ops.h"
#include "kernels/params/tensor_view.h"

namespace attnscope {
namespace op_graph_test {

using Ops = std::vector<as_op_id>;

// h -> norm -> projection in two heads -> out, of 4 columns; ranks share the heads: rows of the
// first projection, columns of the second.
class MadeUp {
 public:
  explicit MadeUp(bool backwards, std::int64_t count = 2) {
    graph.hidden = graph.add_value("h");
    normed = graph.add_value("normed");
    heads = graph.add_value("heads");
    graph.hidden_out = graph.add_value("out");
    graph.weights = {{"up", Shard::kRows}, {"down", Shard::kColumns}};
    graph.branches = {"", "aside"};
    std::vector<Node> nodes = {Node(AS_OP_ATTN_NORM)
                                   .reads("x", graph.hidden)
                                   .weight("weight", "norm")
                                   .makes("y", normed, AS_BF16, {kStepTokens, 4}),
                               Node(AS_OP_Q_B_PROJ, "aside/up", 1)
                                   .reads("x", normed)
                                   .weight("weight", "up")
                                   .makes("y", heads, AS_F32, {kStepTokens, count, 3}, {count * 3}),
                               Node(AS_OP_WO_B)
                                   .reads("x", heads, {count * 3})
                                   .weight("weight", "down")
                                   .makes("y", graph.hidden_out, AS_BF16, {kStepTokens, 4})};
    if (backwards) std::ranges::reverse(nodes);
    graph.layers.emplace_back(std::move(nodes));
    weights.layers.resize(1);
    weights.layers[0]["norm"].bf16 = Buffer<bf16_t>({4});
    weights.layers[0]["up"].bf16 = Buffer<bf16_t>({6, 4});
  }

  ModelGraph graph;
  ValueId normed, heads;
  Weights weights;
};

class NoCaches : public CacheSource {
 public:
  as_cache cache(int, CacheId, int) const override { return {}; }
  as_tensor slots(int, CacheId) const override { return no_tensor(); }
  as_tensor table(int, CacheId) const override { return no_tensor(); }
  as_tensor list(int, int) const override { return no_tensor(); }
  std::int32_t chunk(int, CacheId) const override { return 0; }
};

TEST(OpGraph, OpsRunAfterThoseThatTheyReadHoweverTheyAreListed) {
  const Ops right = {AS_OP_ATTN_NORM, AS_OP_Q_B_PROJ, AS_OP_WO_B};
  EXPECT_EQ(MadeUp(false).graph.layer(0).ops(), right);
  EXPECT_EQ(MadeUp(true).graph.layer(0).ops(), right);
}

TEST(OpGraph, ParamsAreWhatTapsAreBoundTo) {
  MadeUp family(true);
  family.graph.family = families().front();
  const ModelConfig config = *preset("tiny");
  const std::vector<std::int64_t> positions = {0, 1, 2};
  OpContext context;
  context.graph = &family.graph;
  context.config = &config;
  context.weights = &family.weights;
  context.positions = make_tensor(positions.data(), {3});
  Frame frame(Frame::Kind::kEngine), exact(Frame::Kind::kExact);
  const as_tensor h = frame.make(family.graph.hidden, AS_BF16, {3, 4});
  const OpParams norm = layer_op_params(AS_OP_ATTN_NORM, 0, context, frame, NoCaches());
  const auto& n = norm.get<as_rms_norm_params>();
  EXPECT_EQ(n.head.struct_size, sizeof(as_rms_norm_params));
  EXPECT_EQ(n.x.data, h.data);
  EXPECT_EQ(n.weight.data, family.weights.layers[0]["norm"].bf16.data());
  EXPECT_EQ(n.eps, config.rms_eps);
  const OpParams up = layer_op_params(AS_OP_Q_B_PROJ, 0, context, frame, NoCaches());
  const auto& u = up.get<as_linear_params>();
  EXPECT_EQ(u.x.data, n.y.data);
  EXPECT_FALSE(present(u.weight_scale));
  // The op sees two heads of three as six columns.
  EXPECT_EQ(u.y.rank, 2);
  EXPECT_EQ(u.y.shape[1], 6);
  EXPECT_EQ(u.y.stride[0], 6);
  const as_tensor heads = frame.get(family.heads);
  EXPECT_EQ(heads.data, u.y.data);
  EXPECT_EQ(heads.rank, 3);
  EXPECT_EQ(heads.shape[2], 3);
  // References have floats in float64.
  exact.make(family.graph.hidden, AS_BF16, {3, 4});
  const OpParams same = layer_op_params(AS_OP_ATTN_NORM, 0, context, exact, NoCaches());
  EXPECT_EQ(same.get<as_rms_norm_params>().y.dtype, AS_F64);
}

TEST(OpGraph, RanksShareWhatNoDealtOutWeightHasMade) {
  MadeUp family(false);
  const RankSplit split = rank_split(family.graph, family.graph.layer(0));
  EXPECT_EQ(split.ops, (Ops{AS_OP_Q_B_PROJ, AS_OP_WO_B}));
  EXPECT_EQ(split.shared, std::vector<ValueId>{family.normed});
  EXPECT_EQ(shard_of(family.graph, "down"), Shard::kColumns);
}

TEST(OpGraph, ABranchStartsWhenItCanAndIsWaitedFor) {
  const MadeUp family(true);
  const auto order = launch_order(family.graph, false);
  ASSERT_EQ(order.size(), 3u);
  EXPECT_EQ(order[1].stream, 1);
  EXPECT_EQ(order[1].starts, std::vector<int>{1});
  EXPECT_EQ(order[2].after, std::vector<int>{1});
}

const ModelGraph& tiny() { return example_graph(*families().front()); }

TEST(OpGraph, V4LayersRunInTheOrderOfTheModel) {
  EXPECT_EQ(tiny().layer(0).ops(),
            (Ops{AS_OP_ATTN_NORM, AS_OP_Q_KV_A_PROJ, AS_OP_Q_KV_NORM, AS_OP_Q_B_PROJ,
                 AS_OP_Q_ROPE_KV_INSERT, AS_OP_SPARSE_ATTENTION, AS_OP_INVERSE_ROPE, AS_OP_WO_A,
                 AS_OP_WO_B, AS_OP_RESIDUAL}));
  EXPECT_EQ(tiny().layer(1).ops(), (Ops{AS_OP_ATTN_NORM,
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
                                        AS_OP_RESIDUAL}));
  EXPECT_EQ(tiny().layer(2).ops(),
            (Ops{AS_OP_ATTN_NORM, AS_OP_Q_KV_A_PROJ, AS_OP_Q_KV_NORM, AS_OP_Q_B_PROJ,
                 AS_OP_Q_ROPE_KV_INSERT, AS_OP_COMPRESSOR_PROJ, AS_OP_COMPRESSOR_STATE,
                 AS_OP_COMPRESS_INSERT, AS_OP_SPARSE_ATTENTION, AS_OP_INVERSE_ROPE, AS_OP_WO_A,
                 AS_OP_WO_B, AS_OP_RESIDUAL}));
  EXPECT_EQ(tiny().before.ops(), (Ops{AS_OP_SCHEDULE, AS_OP_BLOCK_TABLES, AS_OP_SLOT_MAPPING,
                                      AS_OP_SWA_INDEX, AS_OP_C128_INDEX, AS_OP_ATTENTION_PLAN}));
  EXPECT_EQ(tiny().after.ops(), (Ops{AS_OP_FINAL_NORM, AS_OP_LM_HEAD, AS_OP_SAMPLE}));
  // The example has a plan of its attention, models have one where their profile says so.
  const auto without = model_graph(*preset("tiny"));
  EXPECT_EQ(without->before.find(AS_OP_ATTENTION_PLAN), nullptr);
  const Node& attention = without->node(1, AS_OP_SPARSE_ATTENTION);
  EXPECT_EQ(attention.find("plan_rows"), nullptr);
  EXPECT_EQ(attention.find("plan_splits"), nullptr);
}

// Every tensor and cache that the op table knows is bound, by all models or where switches ask for
// what else an op can do.
TEST(OpGraph, V4BindsEveryTap) {
  ModelConfig config = example_model(*families().front());
  config.switches = *profile_switches("deepseek,projections=fp8,prefill=gathered");
  const auto switched = model_graph(config);
  const auto parts = [](const ModelGraph& graph) {
    return std::vector<const LayerGraph*>{&graph.before, &graph.after, &graph.layers[1]};
  };
  for (std::size_t part = 0; part < 3; ++part) {
    for (const Node& node : parts(tiny())[part]->nodes()) {
      const Node* const other = parts(*switched)[part]->find(node.op());
      const as_op_info& info = *as_op_find(node.op());
      for (std::uint32_t i = 0; i < info.num_taps; ++i) {
        const char* const tap = info.taps[i].name;
        // Of models that select tokens, not entries.
        if (std::string_view(tap) == "seen_lens") continue;
        EXPECT_TRUE(node.find(tap) != nullptr || (other != nullptr && other->find(tap) != nullptr))
            << info.name << "." << tap;
      }
    }
  }
}

TEST(OpGraph, V4RanksRunWhatHasHeads) {
  for (const LayerGraph& layer : tiny().layers) {
    EXPECT_EQ(rank_split(tiny(), layer).ops,
              (Ops{AS_OP_Q_B_PROJ, AS_OP_Q_ROPE_KV_INSERT, AS_OP_SPARSE_ATTENTION,
                   AS_OP_INVERSE_ROPE, AS_OP_WO_A, AS_OP_WO_B}));
  }
  std::vector<std::string> names;
  for (const ValueId value : rank_split(tiny(), tiny().layer(1)).shared) {
    names.push_back(tiny().values[static_cast<std::size_t>(value)]);
  }
  EXPECT_EQ(names, (std::vector<std::string>{"qr", "kv", "top_k_slots", "top_k_lens"}));
  EXPECT_EQ(tiny().sum.read_by, AS_OP_COUNT);
  ModelConfig config = *preset("tiny");
  config.parallel = {2, 0};
  const auto graph = model_graph(config);
  EXPECT_EQ(graph->sum.made_by, AS_OP_WO_B);
  EXPECT_EQ(graph->sum.read_by, AS_OP_RESIDUAL);
  EXPECT_EQ(graph->node(0, AS_OP_RESIDUAL).find("y")->value, graph->sum.total);
}

TEST(OpGraph, OpsThatMakePartsOfSumsAreThoseWithColumnsOfWeights) {
  EXPECT_EQ(summing_ops(tiny()), (Ops{AS_OP_WO_B}));
  ModelGraph graph = MadeUp(false).graph;
  EXPECT_EQ(summing_ops(graph), (Ops{AS_OP_WO_B}));
  graph.weights["up"] = Shard::kColumns;
  EXPECT_EQ(summing_ops(graph), (Ops{AS_OP_Q_B_PROJ, AS_OP_WO_B}));
}

TEST(OpGraph, WeightsAreDealtOutAlongAxesThatGrowWithWhatRanksShare) {
  ModelGraph graph = MadeUp(false).graph;
  graph.weights = {{"norm", Shard::kColumns}, {"up", Shard::kWhole}, {"down", Shard::kWhole}};
  deal_out(graph, MadeUp(false, 4).graph);
  EXPECT_EQ(graph.weights,
            (decltype(graph.weights){
                {"norm", Shard::kWhole}, {"up", Shard::kRows}, {"down", Shard::kColumns}}));
  deal_out(graph, MadeUp(false).graph);
  EXPECT_EQ(shard_of(graph, "up"), Shard::kWhole) << "nothing grew";
}

// By hand, as each family's list of weights had it before it was derived.
TEST(OpGraph, WeightsOfTheFamiliesAreDealtOutByTheirHeadsAndGroups) {
  const std::map<std::string, Shard> v4 = {{"wq_b", Shard::kRows},
                                           {"sinks", Shard::kRows},
                                           {"wo_a", Shard::kRows},
                                           {"wo_b", Shard::kColumns}};
  const std::map<std::string, Shard> dense = {
      {"q_proj", Shard::kRows},          {"k_proj", Shard::kRows},
      {"v_proj", Shard::kRows},          {"sinks", Shard::kRows},
      {"alibi_slopes", Shard::kRows},    {"o_proj", Shard::kColumns},
      {"encoder_bias", Shard::kColumns}, {"decoder_bias", Shard::kColumns}};
  const std::map<std::string, Shard> mla = {
      {"q_b", Shard::kRows}, {"kv_b", Shard::kRows}, {"o_proj", Shard::kColumns}};
  for (const std::string& name : preset_names()) {
    const ModelConfig config = *preset(name);
    const auto& of_family = config.family == "dense" ? dense : config.family == "mla" ? mla : v4;
    const auto graph = model_graph(config);
    EXPECT_FALSE(graph->weights.empty()) << name;
    for (const auto& [weight, shard] : graph->weights) {
      const auto dealt = of_family.find(weight);
      EXPECT_EQ(shard, dealt != of_family.end() ? dealt->second : Shard::kWhole)
          << name << " " << weight;
    }
  }
}

// The second of two ranks of the small model: 8 heads of 512 in 2 groups of 64, 128 low-rank
// queries, a hidden state of 512.
TEST(OpGraph, ARankHasItsHalfOfWhatIsDealtOut) {
  const ModelConfig config = *preset("tiny");
  const Weights whole = synthetic_weights(config, 1, nullptr);
  const auto ranks = rank_weights(config, synthetic_weights(config, 1, nullptr), {2, 1});
  const auto shape = [&](std::size_t rank, const char* name) {
    const as_tensor t = ranks[rank]->find(1, name).tensor();
    return std::vector<std::int64_t>(t.shape, t.shape + t.rank);
  };
  const auto bf16 = [](const Weights& w, const char* name, std::int64_t i) {
    return w.find(1, name).bf16.data()[i].bits;
  };
  EXPECT_EQ(shape(1, "wq_b"), (Shape{2048, 128}));
  EXPECT_EQ(shape(1, "sinks"), (Shape{4}));
  EXPECT_EQ(shape(1, "wo_a"), (Shape{1, 64, 2048}));
  EXPECT_EQ(shape(1, "wo_b"), (Shape{512, 64}));
  EXPECT_EQ(shape(0, "wo_b"), (Shape{512, 64}));
  EXPECT_EQ(shape(1, "wq_kv_a"), (Shape{128 + 512, 512}));
  EXPECT_FALSE(present(ranks[0]->find(1, "wq_kv_a").tensor())) << "the own rank alone has it";
  EXPECT_EQ(bf16(*ranks[1], "wq_b", 0), bf16(whole, "wq_b", 2048 * 128));
  EXPECT_EQ(bf16(*ranks[1], "wo_a", 0), bf16(whole, "wo_a", 64 * 2048));
  EXPECT_EQ(bf16(*ranks[1], "wo_b", 64), bf16(whole, "wo_b", 128 + 64)) << "row 1";
  EXPECT_EQ(ranks[1]->find(1, "sinks").f32.data()[3], whole.find(1, "sinks").f32.data()[7]);
}

// Eight query heads and one KV head for two ranks: each has four heads, and all of the KV head.
TEST(OpGraph, RanksThatAreMoreThanKvHeadsHaveTheSameOnes) {
  ModelConfig config = *preset("tiny-mqa");
  config.dense.qk_norm = true;
  const Weights whole = synthetic_weights(config, 1, nullptr);
  const auto halves = rank_weights(config, synthetic_weights(config, 1, nullptr), {2, 0});
  const auto bf16 = [](const Weights& w, const char* name) {
    const Buffer<bf16_t>& b = w.find(1, name).bf16;
    std::vector<std::uint16_t> bits;
    for (std::int64_t i = 0; i < b.size(); ++i) bits.push_back(b.data()[i].bits);
    return bits;
  };
  for (const char* name : {"k_proj", "v_proj", "k_norm", "q_norm"}) {
    for (const auto& rank : halves) EXPECT_EQ(bf16(*rank, name), bf16(whole, name)) << name;
  }
  EXPECT_EQ(bf16(*halves[0], "q_proj").size(), bf16(whole, "q_proj").size() / 2);
  EXPECT_TRUE(bf16(*halves[1], "attn_norm").empty()) << "no op of a peer reads it";

  // Two KV heads for four ranks: the first two have the first one.
  config.kv_heads = 2;
  const Weights two = synthetic_weights(config, 1, nullptr);
  const auto quarters = rank_weights(config, synthetic_weights(config, 1, nullptr), {4, 0});
  const auto all = bf16(two, "v_proj");
  for (std::size_t rank = 0; rank < 4; ++rank) {
    const auto first = all.begin() + static_cast<std::ptrdiff_t>(rank / 2 * all.size() / 2);
    EXPECT_EQ(
        bf16(*quarters[rank], "v_proj"),
        std::vector<std::uint16_t>(first, first + static_cast<std::ptrdiff_t>(all.size() / 2)))
        << rank;
  }
}

// What ranks have of a cache follows from the op that writes it, in every model.
TEST(OpGraph, CachesAreDealtOutAsTheirWriterIs) {
  for (const std::string& name : preset_names()) {
    const ModelConfig config = *preset(name);
    const bool dense = config.family == "dense";
    for (const CacheSpec& spec : build_cache_layout(config).specs) {
      EXPECT_EQ(spec.sharding, dense ? CacheSharding::kByHead : CacheSharding::kReplicated)
          << name << ' ' << spec.name;
    }
  }
}

TEST(OpGraph, CachesThatContradictTheGraphAreRefused) {
  const ModelConfig config = *preset("tiny-llama"), twice = with_twice_dealt(config);
  EXPECT_EQ(twice.kv_heads, 2 * config.kv_heads);
  const Family& family = family_of(config);
  const auto graph = model_graph(config);
  const auto refused = [&](const ModelGraph& by, std::vector<CacheSpec> specs,
                           const std::vector<CacheSpec>& grown) {
    const auto dealt = deal_caches(by, specs, grown);
    return dealt ? std::string() : dealt.error().text();
  };
  const std::vector<CacheSpec> caches = family.caches(config), grown = family.caches(twice);
  EXPECT_EQ(refused(*graph, caches, grown), "");
  // Rows as wide on every rank, where k_proj makes those of its heads.
  EXPECT_NE(refused(*graph, caches, caches)
                .find("the k cache of running layer 0 has the same rows "
                      "on every rank"),
            std::string::npos);
  // Rows of the rank's heads, where what is written has none.
  ModelGraph whole = *graph;
  for (auto& [id, sharding] : whole.caches) sharding = CacheSharding::kReplicated;
  EXPECT_NE(refused(whole, caches, grown)
                .find("the k cache of running layer 0 has rows of a rank's "
                      "heads"),
            std::string::npos);
  whole.caches.erase(caches[1].id);
  EXPECT_NE(refused(whole, {caches[1]}, {grown[1]}).find("is written by no op"), std::string::npos);
  // A family says nothing of it: whatever its specs have there is set anew.
  std::vector<CacheSpec> said = caches;
  for (CacheSpec& spec : said) spec.sharding = CacheSharding::kReplicated;
  ASSERT_TRUE(deal_caches(*graph, said, grown));
  for (const CacheSpec& spec : said) EXPECT_EQ(spec.sharding, CacheSharding::kByHead);
}

// A weight that an op names is one that its family lists for that layer.
TEST(OpGraph, OpsReadWeightsThatTheFamilyLists) {
  for (const Family* family : families()) {
    const ModelConfig config = example_model(*family);
    const Weights weights = allocate_weights(config);
    const ModelGraph& graph = example_graph(*family);
    std::set<std::string_view> read;
    const auto look = [&](const LayerGraph& part, int layer) {
      for (const Node& node : part.nodes()) {
        for (const Binding& b : node.bindings()) {
          if (b.to != BoundTo::kWeight) continue;
          EXPECT_TRUE(present(weights.find(layer, b.weight).tensor())) << b.weight;
          read.insert(b.weight);
        }
      }
    };
    for (int i = 0; i < config.num_layers(); ++i) look(graph.layer(i), i);
    look(graph.after, -1);
    EXPECT_EQ(read.size(), graph.weights.size()) << family->name;
  }
}

Launch launch_of(const std::vector<Launch>& order, int layer, as_op_id op) {
  return *std::ranges::find_if(order,
                               [&](const Launch& l) { return l.layer == layer && l.op == op; });
}

TEST(OpGraph, V4BranchesStartBesideTheFirstProductAndMeetInAttention) {
  const auto order = launch_order(tiny(), false);
  for (const Launch& l : order) {
    // Layers with a window alone: the first one, and the one that drafts.
    const bool window = l.layer <= 0 || l.layer == tiny().draft_layer;
    const bool first_product = l.op == AS_OP_Q_KV_A_PROJ;
    const std::vector<int> starts = !first_product || window ? std::vector<int>{}
                                    : l.layer == 2           ? std::vector{1}
                                                             : std::vector{1, 2, 3};
    EXPECT_EQ(l.starts, starts) << as_op_find(l.op)->name << " of layer " << l.layer;
    std::vector<int> after;
    if (l.op == AS_OP_INDEXER_Q_PROJ) after = {0};
    if (l.op == AS_OP_INDEXER_LOGITS) after = {2};
    if (l.op == AS_OP_SPARSE_ATTENTION && !window) after = {1};
    if (l.op == AS_OP_SPARSE_ATTENTION && l.layer % 2 == 1) after = {1, 3};
    EXPECT_EQ(l.after, after) << as_op_find(l.op)->name << " of layer " << l.layer;
  }
  // What drafts goes behind what samples, and ends with a head of its own.
  const auto at = [&](int layer, as_op_id op) {
    return std::ranges::find_if(order,
                                [&](const Launch& l) { return l.layer == layer && l.op == op; });
  };
  EXPECT_EQ(at(-1, AS_OP_SAMPLE) + 1, at(tiny().draft_layer, AS_OP_DRAFT_NORM));
  EXPECT_EQ(at(tiny().draft_layer, AS_OP_SAMPLE) + 1, order.end());
  // Both index products go ahead of the product that fills the device.
  std::vector<as_op_id> second;
  for (const Launch& l : order) {
    if (l.layer == 1) second.push_back(l.op);
  }
  EXPECT_EQ((Ops{second.begin(), second.begin() + 6}),
            (Ops{AS_OP_ATTN_NORM, AS_OP_Q_KV_A_PROJ, AS_OP_Q_KV_NORM, AS_OP_INDEXER_WEIGHTS_PROJ,
                 AS_OP_INDEXER_Q_PROJ, AS_OP_Q_B_PROJ}));
}

TEST(OpGraph, V4ListsAreWaitedForByWhoReadsThemFirst) {
  const auto order = launch_order(tiny(), true);
  EXPECT_EQ(order.front().op, AS_OP_SLOT_MAPPING);
  EXPECT_EQ(order.front().starts, std::vector<int>{1});
  EXPECT_EQ(launch_of(order, 0, AS_OP_Q_ROPE_KV_INSERT).after, std::vector<int>{1});
  EXPECT_TRUE(launch_of(order, 0, AS_OP_SPARSE_ATTENTION).after.empty());
  EXPECT_TRUE(launch_of(order, 1, AS_OP_INDEXER_COMPRESSOR_STATE).after.empty());
  const auto compressed = model_graph(*preset("tiny", {1, 2}));
  const auto beside = launch_order(*compressed, true);
  EXPECT_EQ(launch_of(beside, 0, AS_OP_INDEXER_COMPRESSOR_STATE).after, std::vector<int>{1});
  EXPECT_EQ(launch_of(beside, 0, AS_OP_INDEXER_LOGITS).after, std::vector<int>{2});
}

TEST(OpGraph, V4RowsAreWhereTheseOpsPutThem) {
  const auto makers = [](as_op_id op, const char* tap) {
    Ops found = makers_of_rows(tiny(), op, tap);
    std::ranges::sort(found);
    return found;
  };
  const Ops base = {AS_OP_SCHEDULE, AS_OP_BLOCK_TABLES, AS_OP_SLOT_MAPPING};
  const auto with_base = [&](Ops more) {
    more.insert(more.begin(), base.begin(), base.end());
    return more;
  };
  EXPECT_EQ(makers(AS_OP_COMPRESS_INSERT, "state"), with_base({AS_OP_COMPRESSOR_STATE}));
  EXPECT_EQ(makers(AS_OP_COMPRESS_INSERT, "cache"), base);
  EXPECT_EQ(makers(AS_OP_INDEXER_COMPRESS_INSERT, "state"),
            with_base({AS_OP_INDEXER_COMPRESSOR_STATE}));
  EXPECT_EQ(makers(AS_OP_INDEXER_LOGITS, "cache"), with_base({AS_OP_INDEXER_COMPRESS_INSERT}));
  EXPECT_EQ(makers(AS_OP_SPARSE_ATTENTION, "cache"),
            with_base({AS_OP_SWA_INDEX, AS_OP_Q_ROPE_KV_INSERT}));
  EXPECT_EQ(makers(AS_OP_SPARSE_ATTENTION, "extra_cache"),
            with_base({AS_OP_C128_INDEX, AS_OP_COMPRESS_INSERT, AS_OP_INDEXER_TOPK,
                       AS_OP_TOPK_TO_SLOTS}));
  EXPECT_TRUE(makers(AS_OP_WO_B, "x").empty());
}

// What those ask that know no op by name.
TEST(OpGraph, OpsAreAskedForWhatTheyDo) {
  for (int op = 0; op < AS_OP_COUNT; ++op) {
    EXPECT_EQ(lists_selected(op), op == AS_OP_TOPK_TO_SLOTS) << as_op_find(op)->name;
  }
  EXPECT_EQ(table_cache(AS_OP_TOPK_TO_SLOTS), kMainCache);
  EXPECT_EQ(table_cache(AS_OP_INDEXER_LOGITS), kIndexCache);
  EXPECT_EQ(table_cache(AS_OP_ATTN_NORM), CacheId{});
  EXPECT_EQ(example_node(AS_OP_C128_INDEX)->find("indices")->name, "c128_indices");
  EXPECT_EQ(example_node(AS_OP_INDEXER_TOPK)->op(), AS_OP_INDEXER_TOPK);
  EXPECT_EQ(example_node(AS_OP_GATHER_ROWS), nullptr);
  const LayerGraph& selecting = tiny().layer(1);
  const Binding* slots = selecting.find(AS_OP_SPARSE_ATTENTION)->find("extra_indices");
  const Binding* made = selecting.maker(slots->value);
  ASSERT_NE(made, nullptr);
  EXPECT_EQ(made, selecting.find(AS_OP_TOPK_TO_SLOTS)->find("slots"));
  EXPECT_EQ(selecting.maker(tiny().hidden), nullptr);
}

}  // namespace op_graph_test
}  // namespace attnscope
