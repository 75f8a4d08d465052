// Weights, sinks and rotary tables that change while a session runs: engine and references read the
// same memory, so that only their hashes tell.
#include <set>

#include "engine/io/content_hash.h"
#include "tests/blame/planted_around.h"

namespace attnscope {
namespace changed_weights_test {

// Call number `saved` of an op says where; behind call `spoiled` a bit is another one there.
struct Plant {
  as_op_id op;
  int saved, spoiled;
  char* (*where)(const OpParams&);
};
Plant plant;
int calls;
char* place;

void spoil(const OpParams& params) {
  if (params.op() != plant.op) return;
  ++calls;
  if (calls == plant.saved) place = plant.where(params);
  if (calls == plant.spoiled) *place ^= 1;
}

PlantedRun run_planted(const Plant& what) {
  static const BetweenOps kBetween = {.ran = spoil};
  plant = what;
  calls = 0;
  return run_with(tiny_scenario(7, 150), kBetween);
}

char* last_byte(const as_tensor& t) { return static_cast<char*>(t.data) + tensor_bytes(t) - 1; }

// Of pages that nothing else lies in: a write to them is noticed as such.
char* middle_byte(const as_tensor& t) {
  EXPECT_GE(tensor_bytes(t), 3 * 65536);
  return static_cast<char*>(t.data) + tensor_bytes(t) / 2;
}

TEST(ChangedWeights, AreNamedByLayerAndStep) {
  const struct {
    Plant plant;
    std::int64_t step;
    int layer;
    as_op_id op;
    const char* tap;
    const char* name;
  } cases[] = {
      {{AS_OP_SPARSE_ATTENTION, 2, 4,
        [](const OpParams& p) { return last_byte(p.get<as_sparse_attention_params>().sinks); }},
       1,
       1,
       AS_OP_SPARSE_ATTENTION,
       "sinks.weights",
       "layers.1.attn.attn_sink"},
      {{AS_OP_Q_KV_NORM, 3, 4,
        [](const OpParams& p) { return last_byte(p.get<as_q_kv_norm_params>().kv_weight); }},
       1,
       2,
       AS_OP_Q_KV_NORM,
       "kv_weight.weights",
       "layers.2.attn.kv_norm.weight"},
      {{AS_OP_Q_KV_A_PROJ, 1, 1,
        [](const OpParams& p) { return last_byte(p.get<as_linear_params>().weight); }},
       1,
       0,
       AS_OP_Q_KV_A_PROJ,
       "weight.weights",
       "layers.0.attn.wkv.weight"},
      {{AS_OP_WO_A, 3, 3,
        [](const OpParams& p) { return last_byte(p.get<as_grouped_linear_params>().weight); }},
       1,
       2,
       AS_OP_WO_A,
       "weight.weights",
       "layers.2.attn.wo_a.weight"},
      {{AS_OP_WO_A, 3, 3,
        [](const OpParams& p) { return middle_byte(p.get<as_grouped_linear_params>().weight); }},
       1,
       2,
       AS_OP_WO_A,
       "weight.weights",
       "layers.2.attn.wo_a.weight"},
      // Of a position that no step has come to.
      {{AS_OP_INVERSE_ROPE, 1, 1,
        [](const OpParams& p) { return last_byte(p.get<as_inverse_rope_params>().rope.table); }},
       1,
       0,
       AS_OP_Q_ROPE_KV_INSERT,
       "rope.weights",
       "the rotary table of layer 0"},
      {{AS_OP_LM_HEAD, 1, 1,
        [](const OpParams& p) { return last_byte(p.get<as_linear_params>().weight); }},
       2,
       -1,
       AS_OP_ATTN_NORM,
       "embedding.weights",
       "embed.weight"},
  };
  for (const auto& c : cases) {
    SCOPED_TRACE(c.name);
    expect_blamed(run_planted(c.plant), c.step, c.layer, c.op, c.tap, {c.name, "the weights that"});
  }
}

// The first reader of a changed row is named: the step whose token it is, else the head.
TEST(ChangedWeights, OfTheEmbeddingAreReadByParts) {
  constexpr std::int64_t kHidden = 512, kRows = 64;  // of a part
  for (const bool of_next_token : {true, false}) {
    SCOPED_TRACE(of_next_token);
    Scenario scenario = tiny_scenario(7, 150);
    scenario.model.hidden = kHidden;
    auto session = session_of(scenario);
    ASSERT_TRUE(session->step());
    ASSERT_TRUE(session->step());  // both requests are decoded from here on
    std::set<std::int64_t> read;
    for (const auto& request : session->serving().requests()) {
      read.insert(request.tokens.back() / kRows);
    }
    std::int64_t part = 0;
    while (read.contains(part) != of_next_token) ++part;
    session->parts().ranks[0]->around["embedding"].bf16.data()[part * kRows * kHidden].bits ^= 1;
    ASSERT_TRUE(session->step());
    const auto blamed = blame(session->history().back().results);
    ASSERT_FALSE(blamed.empty());
    EXPECT_EQ(blamed[0].first.op, of_next_token ? AS_OP_ATTN_NORM : AS_OP_LM_HEAD);
    EXPECT_NE(blamed[0].first.note.find("embed.weight is no longer"), std::string::npos)
        << blamed[0].first.note;
  }
}

// Slices of other ranks are read by ops that no verdict speaks of.
TEST(ChangedWeights, OfAnotherRankAreNamedToo) {
  Scenario scenario = tiny_scenario(7, 150);
  scenario.parallel = {2, 0};
  auto session = session_of(scenario);
  ASSERT_TRUE(session->step());
  session->parts().ranks[1]->layers[2]["sinks"].f32.data()[0] += 1;
  ASSERT_TRUE(session->step());
  const auto blamed = blame(session->history().back().results);
  ASSERT_EQ(blamed.size(), 1u);
  EXPECT_EQ(blamed[0].first.layer, 2);
  EXPECT_NE(blamed[0].first.note.find("layers.2.attn.attn_sink of rank 1"), std::string::npos)
      << blamed[0].first.note;
}

TEST(ChangedWeights, EveryByteIsWatched) {
  for (const char* profile : {"vllm", "vllm,projections=fp8"}) {
    auto session = session_of(tiny_scenario(7, 150, profile));
    const SessionParts& parts = session->parts();
    std::int64_t bytes = parts.weights->bytes();
    for (const as_rope& rope : parts.ropes) {
      bytes += static_cast<std::int64_t>(tensor_bytes(rope.table));
    }
    EXPECT_EQ(session->verifier().weights()->bytes(), bytes) << profile;
  }
}

void expect_every_bit_counts(std::uint64_t (*hash)(const void*, std::size_t)) {
  std::vector<std::uint8_t> bytes(200);
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::uint8_t>(i * 73);
  for (const std::size_t size : {std::size_t{1}, std::size_t{8}, std::size_t{33}, bytes.size()}) {
    std::set<std::uint64_t> seen = {hash(bytes.data(), size)};
    for (std::size_t bit = 0; bit < 8 * size; ++bit) {
      bytes[bit / 8] ^= static_cast<std::uint8_t>(1 << bit % 8);
      EXPECT_TRUE(seen.insert(hash(bytes.data(), size)).second) << size << " " << bit;
      bytes[bit / 8] ^= static_cast<std::uint8_t>(1 << bit % 8);
    }
  }
  // Signs of two values, and two words in each other's places: of one sum and of two.
  std::vector<double> values(32);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<double>(i) + 0.5;
  const std::uint64_t before = hash(values.data(), 256);
  for (const std::size_t other : {4U, 7U, 11U, 19U}) {
    std::swap(values[3], values[other]);
    EXPECT_NE(hash(values.data(), 256), before) << other;
    std::swap(values[3], values[other]);
    values[3] = -values[3];
    values[other] = -values[other];
    EXPECT_NE(hash(values.data(), 256), before) << other;
    values[3] = -values[3];
    values[other] = -values[other];
  }
  EXPECT_EQ(hash(values.data(), 256), before);
  const std::vector<double> none(32);
  EXPECT_NE(hash(none.data(), 128), hash(none.data(), 256));
}

TEST(ContentHash, EveryBitCounts) {
  expect_every_bit_counts([](const void* data, std::size_t n) { return content_hash(data, n); });
  EXPECT_NE(content_hash(nullptr, 0, 1), content_hash(nullptr, 0, 2));
}

TEST(MemoryHash, EveryBitCounts) { expect_every_bit_counts(memory_hash); }

}  // namespace changed_weights_test
}  // namespace attnscope
