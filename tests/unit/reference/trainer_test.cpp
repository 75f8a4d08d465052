// Training: gradients against finite differences, the forward pass against ref.model, which shares
// nothing with it, and the same bytes whenever the same is asked for.
#include "reference/trainer.h"

#include <gtest/gtest.h>

#include <cmath>

#include "reference/model_mla.h"
#include "tests/unit/reference/random_tensors.h"
#include "tests/unit/reference/trainer_checks.h"

namespace attnscope::reference {
namespace trainer_test {

MlaNumbers small_numbers() {
  MlaNumbers n;
  n.hidden = 12, n.heads = 2, n.q_lora = 8, n.kv_lora = 10;
  n.nope_dim = 4, n.rope_dim = 4, n.value_dim = 3;
  n.index_heads = 2, n.index_dim = 6, n.index_topk = 3;
  n.scale = 0.5;
  n.yarn_factor = 40;
  n.layers = {0, 1};
  n.selects = {true, true};
  return n;
}

// Of small_numbers().
RandomTensors some_weights() {
  const MlaNumbers n = small_numbers();
  RandomTensors w;
  w.add("model.embed_tokens.weight", {256, n.hidden}, 1);
  w.add("model.norm.weight", {n.hidden}, 1);
  w.add("lm_head.weight", {256, n.hidden}, 0.5);
  for (int layer = 0; layer < 2; ++layer) {
    const std::string at = "model.layers." + std::to_string(layer) + ".";
    const std::string p = at + "self_attn.", x = p + "indexer.";
    w.add(at + "input_layernorm.weight", {n.hidden}, 1);
    w.add(p + "q_a_proj.weight", {n.q_lora, n.hidden}, 0.4);
    w.add(p + "q_a_layernorm.weight", {n.q_lora}, 1);
    w.add(p + "q_b_proj.weight", {n.heads * 8, n.q_lora}, 0.6);
    w.add(p + "kv_a_proj_with_mqa.weight", {n.kv_lora + 4, n.hidden}, 0.4);
    w.add(p + "kv_a_layernorm.weight", {n.kv_lora}, 1);
    w.add(p + "kv_b_proj.weight", {n.heads * 7, n.kv_lora}, 0.6);
    w.add(p + "o_proj.weight", {n.hidden, n.heads * 3}, 0.6);
    w.add(x + "wq_b.weight", {n.index_heads * n.index_dim, n.q_lora}, 0.6);
    w.add(x + "wk.weight", {n.index_dim, n.hidden}, 0.6);
    w.add(x + "k_norm.weight", {n.index_dim}, 1);
    w.add(x + "k_norm.bias", {n.index_dim}, 0.3);
    w.add(x + "weights_proj.weight", {n.index_heads, n.hidden}, 1);
  }
  return w;
}

const RandomTensors& weights() {
  static const RandomTensors tensors = some_weights();
  return tensors;
}

constexpr std::int64_t kSequences = 2, kLength = 11;

std::vector<std::int32_t> some_tokens() {
  std::vector<std::int32_t> tokens;
  for (int i = 0; i < kSequences * (kLength + 1); ++i) tokens.push_back(i * 37 % 256);
  return tokens;
}
const std::vector<std::int32_t> kTokens = some_tokens();
const TrainBatch kBatch = {kTokens, kSequences, kLength};

std::unique_ptr<Trainer> small_trainer(bool float64) {
  auto made = Trainer::make(small_numbers(), weights().source(), {float64, 1});
  EXPECT_TRUE(made) << (made ? "" : made.error().text());
  return std::move(*made);
}

TEST(Trainer, GradientsAreThoseOfFiniteDifferences) {
  expect_finite_differences(*small_trainer(true), kBatch, 2);
}

TEST(Trainer, ForwardIsThatOfTheReferenceModel) {
  const auto model = make_mla_model(small_numbers(), weights().source());
  ASSERT_TRUE(model) << model.error().text();
  expect_logits_of(**model, *small_trainer(true), kBatch);
}

std::vector<TrainedTensor> after(Trainer& trainer, int from, int to) {
  for (int i = from; i < to; ++i) {
    const TrainStage stage = i < 2 ? TrainStage::kModel : TrainStage::kSparse;
    EXPECT_TRUE(trainer.step(stage, kBatch, 1e-2));
  }
  return trainer.tensors();
}

TEST(Trainer, TheSameStepsGiveTheSameBytesAlsoFromASavedState) {
  const auto once = small_trainer(false), again = small_trainer(false);
  const auto all = after(*once, 0, 5);
  const auto half = after(*again, 0, 3);
  const auto later = small_trainer(false);
  ASSERT_TRUE(later->restore(half, 3));
  const auto resumed = after(*later, 3, 5);
  ASSERT_EQ(all.size(), resumed.size());
  bool moved = false;
  for (std::size_t i = 0; i < all.size(); ++i) {
    EXPECT_EQ(all[i].value, resumed[i].value) << all[i].name;
    EXPECT_EQ(all[i].first, resumed[i].first) << all[i].name;
    EXPECT_EQ(all[i].second, resumed[i].second) << all[i].name;
    moved = moved || all[i].value != half[i].value;
  }
  EXPECT_TRUE(moved);
  EXPECT_FALSE(later->restore({}, 3));
  auto wrong = half;
  wrong[1].first.pop_back();
  const auto refused = later->restore(wrong, 3);
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message.find(wrong[1].name), std::string::npos);
}

TEST(Trainer, EachStageLowersWhatItMinimises) {
  const auto trainer = small_trainer(false);
  const auto lost = [&](TrainStage stage) { return *trainer->loss(stage, kBatch); };
  const TrainLoss first = lost(TrainStage::kModel);
  for (int i = 0; i < 20; ++i) ASSERT_TRUE(trainer->step(TrainStage::kModel, kBatch, 1e-2));
  EXPECT_LT(lost(TrainStage::kModel).language, 0.9 * first.language);
  const TrainLoss cold = lost(TrainStage::kWarmUp);
  for (int i = 0; i < 40; ++i) ASSERT_TRUE(trainer->step(TrainStage::kWarmUp, kBatch, 1e-2));
  EXPECT_LT(lost(TrainStage::kWarmUp).kl, 0.9 * cold.kl);
  EXPECT_EQ(lost(TrainStage::kWarmUp).language, cold.language);  // the model is frozen
}

TEST(Trainer, MeasuresOfSelections) {
  const auto trainer = small_trainer(false);
  const auto seen = trainer->measure(kBatch, 6);
  ASSERT_TRUE(seen) << seen.error().text();
  ASSERT_EQ(seen->layers.size(), 2u);
  double chance = 0;
  for (int sees = 6; sees <= kLength; ++sees) chance += 3.0 / sees / 6;
  for (const SelectionMeasure& m : seen->layers) {
    EXPECT_NEAR(m.random_mass, chance, 1e-12);
    EXPECT_NEAR(m.random_recall, chance, 1e-12);
    EXPECT_GE(m.best_mass, m.mass - 1e-6);
    EXPECT_GE(m.best_mass, m.last_mass - 1e-6);
    EXPECT_GT(m.best_mass, chance);
    for (const double share : {m.recall, m.last_recall, m.overlap, m.mass}) {
      EXPECT_GE(share, 0);
      EXPECT_LE(share, 1);
    }
  }
  EXPECT_EQ(seen->selected.size(), static_cast<std::size_t>(kSequences * 6 * 2 * 3));
  EXPECT_FALSE(trainer->measure(kBatch, 3));            // all that a token sees is selected
  EXPECT_FALSE(trainer->measure(kBatch, kLength + 1));  // no token sees so many
}

TEST(Trainer, SaysWhatIsWrong) {
  RandomTensors lacking = some_weights();
  lacking.entries().erase("model.layers.1.self_attn.indexer.wk.weight");
  const auto refused = Trainer::make(small_numbers(), lacking.source(), {});
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message.find("model.layers.1.self_attn.indexer.wk.weight"),
            std::string::npos);
  const auto trainer = small_trainer(false);
  EXPECT_FALSE(trainer->step(TrainStage::kModel, {kTokens, kSequences, kLength + 1}, 1e-2));
  ASSERT_TRUE(trainer->nudge("lm_head.weight", 0, std::nan("")));
  const auto before = trainer->tensors();
  const auto lost = trainer->step(TrainStage::kModel, kBatch, 1e-2);
  ASSERT_FALSE(lost);
  EXPECT_NE(lost.error().text().find("--rate"), std::string::npos);
  EXPECT_EQ(trainer->tensors().back().value, before.back().value);
  EXPECT_EQ(trainer->steps(), 0);
}

}  // namespace trainer_test
}  // namespace attnscope::reference
