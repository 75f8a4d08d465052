// What the ops of a step were given against what others of it put out: a step of ours has no
// contradiction, and one that is planted is named.
#include "engine/opcase/import_wires.h"

#include <gtest/gtest.h>

#include <cstring>

#include "engine/family/family.h"
#include "engine/family/mla/mla.h"
#include "engine/model/numbers.h"
#include "engine/session/place.h"
#include "tests/unit/app/trace_session.h"

namespace attnscope {
namespace import_wires_test {

constexpr std::int64_t kStep = 5;

class ImportWires : public ::testing::Test {
 protected:
  void SetUp() override { run(small_scenario()); }
  // Keeps all ops of a step.
  void run(const Scenario& s) {
    ops_.clear();
    auto session = small_session(References::kNone, s);
    graph_ = model_graph(s.model);
    const auto keep = [&](const LayerGraph& part, int index, int layer) {
      for (const as_op_id op : part.ops()) {
        const Place place = {kStep, layer, op};
        if (!go_to(*session, place)) continue;
        auto kept = keep_case(*find_case_op(op), session->last_params().data(), {});
        ASSERT_TRUE(kept) << kept.error().text();
        ops_.push_back({place, index, std::make_shared<const OpCase>(std::move(*kept))});
      }
    };
    keep(graph_->before, -1, -1);
    for (int i = 0; i < s.model.num_layers(); ++i) {
      if (i < s.model.main_layers()) keep(graph_->layer(i), i, s.model.layers[to_size(i)]);
    }
    keep(graph_->after, -1, -1);
  }

  // A copy of what was kept, to be changed.
  OpCase& change(as_op_id op, int layer) {
    for (PlacedCase& placed : ops_) {
      if (placed.place.op != op || placed.place.layer != layer) continue;
      auto copy = std::make_shared<OpCase>(*placed.kept);
      placed.kept = copy;
      return *copy;
    }
    ADD_FAILURE() << "no such op";
    return *std::make_shared<OpCase>();
  }
  template <class T>
  static T& number(OpCase& kept, const char* tap, std::int64_t row, std::int64_t place = 0) {
    StoredTensor& t = kept.tensors.at(tap);
    const std::int64_t width = t.shape.size() > 1 ? t.shape.back() : 1;
    return *reinterpret_cast<T*>(&t.bytes[to_size(row * width + place) * sizeof(T)]);
  }
  // As a tensor with so many more columns, of this number.
  static void widen(OpCase& kept, const char* tap, std::int64_t more, std::int32_t with) {
    StoredTensor& t = kept.tensors.at(tap);
    const std::int64_t width = t.shape.back(), rows = std::ssize(t.bytes) / 4 / width;
    std::vector<std::uint8_t> bytes;
    for (std::int64_t r = 0; r < rows; ++r) {
      const auto from = t.bytes.begin() + r * width * 4;
      bytes.insert(bytes.end(), from, from + width * 4);
      for (std::int64_t k = 0; k < more * 4; ++k) {
        bytes.push_back(reinterpret_cast<const std::uint8_t*>(&with)[k % 4]);
      }
    }
    t.shape.back() += more;
    t.bytes = std::move(bytes);
  }
  std::vector<std::string> found() const { return contradictions(*graph_, 0, ops_); }
  std::string one() const {
    const auto all = found();
    EXPECT_EQ(all.size(), 1u) << (all.empty() ? "" : all.back());
    return all.empty() ? "" : all.front();
  }

  std::shared_ptr<const ModelGraph> graph_;
  std::vector<PlacedCase> ops_;
};

TEST_F(ImportWires, AStepOfOursHasNone) {
  for (const Family* family : families()) {
    Scenario s = small_scenario();
    s.model = example_model(*family);
    for (const bool adversarial : {true, false}) {
      s.adversarial_lists = adversarial;
      run(s);
      EXPECT_GT(ops_.size(), 20u) << family->name;
      EXPECT_EQ(found(), std::vector<std::string>()) << family->name;
    }
  }
  run(small_scenario());
  // Nor one of which the outputs are unknown.
  number<std::int32_t>(change(AS_OP_SPARSE_ATTENTION, 1), "indices", 0) = 7;
  EXPECT_EQ(found().size(), 1u);
  change(AS_OP_SWA_INDEX, -1).unknown = {"indices", "lens"};
  EXPECT_EQ(found(), std::vector<std::string>());
}

TEST_F(ImportWires, AStaleSlotIsNamed) {
  OpCase& attention = change(AS_OP_SPARSE_ATTENTION, 1);
  const std::int32_t last = number<std::int32_t>(attention, "topk_length", 0) - 1;
  ASSERT_GT(last, 1);
  std::int32_t& slot = number<std::int32_t>(attention, "indices", 0, last);
  const std::int32_t due = slot;
  slot = number<std::int32_t>(attention, "indices", 0, 0);
  EXPECT_EQ(one(),
            "step 0, layer 1: sparse_attention was given other indices than swa_index put "
            "out: token 0, place " +
                std::to_string(last) + ": " + std::to_string(slot) + " instead of " +
                std::to_string(due));
  slot = due;
  number<std::int32_t>(attention, "topk_length", 0) = last;
  EXPECT_EQ(one(),
            "step 0, layer 1: sparse_attention was given other topk_length than swa_index "
            "put out as lens: token 0: " +
                std::to_string(last) + " instead of " + std::to_string(last + 1));
}

// Other widths and padding, another order, places without a row that are counted, and pages that
// are numbered otherwise: the same rows.
TEST_F(ImportWires, WhatEnginesConvertIsNone) {
  OpCase& attention = change(AS_OP_SPARSE_ATTENTION, 1);
  widen(attention, "extra_indices", 64, 3);
  widen(change(AS_OP_TOPK_TO_SLOTS, 1), "slots", 8, 9);
  widen(attention, "indices", 2, -1);
  number<std::int32_t>(attention, "topk_length", 0) += 1;
  const std::int32_t n = number<std::int32_t>(attention, "topk_length", 0) - 1;
  StoredTensor& list = attention.tensors.at("indices");
  ASSERT_LT(n, list.shape.back());
  number<std::int32_t>(attention, "indices", 0, n) = -1;
  std::swap(number<std::int32_t>(attention, "indices", 0, 0),
            number<std::int32_t>(attention, "indices", 0, 1));
  EXPECT_EQ(found(), std::vector<std::string>());
  OpCase& other = change(AS_OP_SPARSE_ATTENTION, 0);
  for (std::size_t i = 0; i < other.tensors.at("indices").bytes.size() / 4; ++i) {
    std::int32_t& slot = number<std::int32_t>(other, "indices", 0, to_count(i));
    if (slot >= 0) slot += 1000 * 64;
  }
  EXPECT_EQ(found(), std::vector<std::string>());
  // Counted by who made the list, while who reads it has anything behind its end.
  OpCase& window = change(AS_OP_SWA_INDEX, -1);
  widen(window, "indices", 2, -1);
  number<std::int32_t>(window, "lens", 1) += 1;
  for (const int layer : {0, 2}) widen(change(AS_OP_SPARSE_ATTENTION, layer), "indices", 2, 5);
  ASSERT_EQ(number<std::int32_t>(change(AS_OP_SPARSE_ATTENTION, 2), "topk_length", 1),
            number<std::int32_t>(window, "lens", 1) - 1);
  EXPECT_EQ(found(), std::vector<std::string>());
  // An output that was rounded to fewer bits before it was read.
  auto& o = number<std::uint16_t>(change(AS_OP_INVERSE_ROPE, 1), "o", 0);
  o ^= 1;
  EXPECT_EQ(found(), std::vector<std::string>());
  o ^= 0x8000;
  EXPECT_NE(one().find("inverse_rope was given other o than sparse_attention put out: token 0, "
                       "element [0,0]"),
            std::string::npos);
}

TEST_F(ImportWires, OtherIntegersAndCodesAreNamed) {
  number<std::int32_t>(change(AS_OP_TOPK_TO_SLOTS, 1), "indices", 0) = 4000;
  EXPECT_NE(one().find("topk_to_slots was given other indices than indexer_topk put out: token 0"),
            std::string::npos);
  ops_.erase(
      std::ranges::find(ops_, AS_OP_TOPK_TO_SLOTS, [](const PlacedCase& p) { return p.place.op; }));
  number<std::uint8_t>(change(AS_OP_INDEXER_LOGITS, 1), "q", 0) ^= 1;
  number<std::int64_t>(change(AS_OP_Q_ROPE_KV_INSERT, 2), "slots", 0) += 1;
  const auto all = found();
  ASSERT_EQ(all.size(), 2u);
  EXPECT_NE(all[0].find("indexer_logits was given other q than indexer_q"), std::string::npos);
  EXPECT_NE(all[1].find("q_rope_kv_insert was given other slots than slot_mapping"),
            std::string::npos);
}

TEST_F(ImportWires, OfOtherFamiliesTheGraphSaysWhatIsRead) {
  Scenario s = small_scenario();
  s.model = example_model(mla());
  run(s);
  const auto attention = std::ranges::find(ops_, AS_OP_SPARSE_MLA_ATTENTION,
                                           [](const PlacedCase& p) { return p.place.op; });
  ASSERT_NE(attention, ops_.end());
  const int layer = attention->place.layer;
  number<std::int32_t>(change(AS_OP_SPARSE_MLA_ATTENTION, layer), "indices", 0) += 1;
  EXPECT_NE(one().find("sparse_mla_attention was given other indices than topk_to_slots put out as "
                       "slots: token 0, place 0: "),
            std::string::npos);
}

TEST_F(ImportWires, PositionsEndWhereSequencesDo) {
  std::int32_t& tokens = number<std::int32_t>(change(AS_OP_SWA_INDEX, -1), "seq_lens", 0);
  tokens += 1;
  EXPECT_NE(one().find("the positions contradict seq_lens of swa_index: request 0 has " +
                       std::to_string(tokens) + " tokens, and its last one, token "),
            std::string::npos);
  // Bounds that are none.
  for (const std::int32_t start : {-1, -7, 1 << 30}) {
    number<std::int32_t>(change(AS_OP_SWA_INDEX, -1), "query_start_loc", 0) = start;
    number<std::int32_t>(change(AS_OP_SWA_INDEX, -1), "query_start_loc", 1) = 0;
    for (const std::string& text : found()) {
      EXPECT_EQ(text.find("request 0"), std::string::npos) << text;
    }
  }
}

}  // namespace import_wires_test
}  // namespace attnscope
