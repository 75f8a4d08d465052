// Training of DeepSeek-V4, whose indexer selects compressed entries: gradients against finite
// differences, the forward pass against ref.model, and what is measured of entries.
#include <gtest/gtest.h>

#include "reference/trainer.h"
#include "tests/unit/reference/random_tensors.h"
#include "tests/unit/reference/trainer_checks.h"

namespace attnscope::reference {
namespace trainer_v4_test {

ModelNumbers small_numbers() {
  ModelNumbers n;
  n.hidden = 12, n.heads = 4, n.q_lora = 8, n.o_lora = 3, n.o_groups = 2;
  n.head_dim = 8, n.rope_dim = 4, n.window = 5;
  n.index_heads = 2, n.index_dim = 6, n.index_topk = 3;
  n.compress_ratios = {0, 4, 128, 4};
  n.layers = {0, 1, 2, 3};
  return n;
}

// Of small_numbers().
RandomTensors some_weights() {
  const ModelNumbers n = small_numbers();
  RandomTensors w;
  const auto compressor = [&](const std::string& p, std::int64_t r, std::int64_t d) {
    const std::int64_t across = r == 4 ? 2 * d : d;
    w.add(p + "wkv.weight", {across, n.hidden}, 0.4F);
    w.add(p + "wgate.weight", {across, n.hidden}, 0.3F);
    w.add(p + "ape", {r, across}, 0.5F);
    w.add(p + "norm.weight", {d}, 1);
  };
  w.add("embed.weight", {256, n.hidden}, 0.5F);
  w.add("norm.weight", {n.hidden}, 1);
  for (const int layer : n.layers) {
    const std::string at = "layers." + std::to_string(layer) + ".", p = at + "attn.";
    const int ratio = n.compress_ratios[static_cast<std::size_t>(layer)];
    w.add(at + "attn_norm.weight", {n.hidden}, 1);
    w.add(p + "wq_a.weight", {n.q_lora, n.hidden}, 0.4F);
    w.add(p + "q_norm.weight", {n.q_lora}, 1);
    w.add(p + "wq_b.weight", {n.heads * n.head_dim, n.q_lora}, 0.6F);
    w.add(p + "wkv.weight", {n.head_dim, n.hidden}, 0.6F);
    w.add(p + "kv_norm.weight", {n.head_dim}, 2);
    w.add(p + "attn_sink", {n.heads}, 1);
    w.add(p + "wo_a.weight", {n.o_groups * n.o_lora, n.heads / n.o_groups * n.head_dim}, 0.6F);
    w.add(p + "wo_b.weight", {n.hidden, n.o_groups * n.o_lora}, 0.6F);
    if (ratio > 0) compressor(p + "compressor.", ratio, n.head_dim);
    if (ratio != 4) continue;
    compressor(p + "indexer.compressor.", 4, n.index_dim);
    w.add(p + "indexer.wq_b.weight", {n.index_heads * n.index_dim, n.q_lora}, 0.6F);
    w.add(p + "indexer.weights_proj.weight", {n.index_heads, n.hidden}, 1);
  }
  return w;
}

const RandomTensors& weights() {
  static const RandomTensors tensors = some_weights();
  return tensors;
}

// Long enough for an entry of 128 tokens and for a second block of tokens.
std::vector<std::int32_t> some_tokens(std::int64_t sequences, std::int64_t length) {
  std::vector<std::int32_t> tokens;
  for (int i = 0; i < sequences * (length + 1); ++i) tokens.push_back(i * i * 37 % 251);
  return tokens;
}

std::unique_ptr<Trainer> small_trainer(bool float64,
                                       const std::vector<int>& layers = {0, 1, 2, 3}) {
  ModelNumbers numbers = small_numbers();
  numbers.layers = layers;
  auto made = Trainer::make(numbers, weights().source(), {float64, 1});
  EXPECT_TRUE(made) << (made ? "" : made.error().text());
  return std::move(*made);
}

TEST(TrainerV4, GradientsAreThoseOfFiniteDifferences) {
  const auto tokens = some_tokens(1, 134);
  expect_finite_differences(*small_trainer(true, {1, 2}), {tokens, 1, 134}, 1);
}

TEST(TrainerV4, ForwardIsThatOfTheReferenceModel) {
  for (const std::int64_t length : {std::int64_t{3}, std::int64_t{19}, std::int64_t{261}}) {
    const auto tokens = some_tokens(2, length);
    const auto model = ModelReference::make(small_numbers(), weights().source());
    ASSERT_TRUE(model) << model.error().text();
    const auto trainer = small_trainer(true);
    if (length > 3) {
      expect_logits_of(**model, *trainer, {tokens, 2, length});
      continue;
    }
    const auto loss = trainer->loss(TrainStage::kSparse, {tokens, 2, length});  // no entry yet
    ASSERT_TRUE(loss) << loss.error().text();
    EXPECT_EQ(loss->kl, 0);
    EXPECT_GT(loss->language, 0);
  }
}

TEST(TrainerV4, MeasuresOfEntries) {
  const auto tokens = some_tokens(2, 61);
  const auto trainer = small_trainer(false);
  const auto seen = trainer->measure({tokens, 2, 61}, 12);
  ASSERT_TRUE(seen) << seen.error().text();
  ASSERT_EQ(seen->layers.size(), 2u);
  // Tokens 47 to 60 see 12, 12, 12, 12, 13, .. of them.
  double chance = 0;
  for (int t = 47; t < 61; ++t) {
    const int entries = (t + 1) / 4;
    chance += 3.0 / entries / 14;
  }
  for (const SelectionMeasure& m : seen->layers) {
    EXPECT_NEAR(m.random_mass, chance, 1e-12);
    EXPECT_NEAR(m.random_recall, chance, 1e-12);
    EXPECT_GE(m.best_mass, m.mass - 1e-6);
    EXPECT_GE(m.best_mass, m.last_mass - 1e-6);
    EXPECT_GT(m.best_mass, chance);
    EXPECT_LT(m.best_mass, 1);
  }
  ASSERT_EQ(seen->selected.size(), static_cast<std::size_t>(2 * 14 * 2 * 3));
  EXPECT_LT(*std::ranges::max_element(seen->selected), 15);
  EXPECT_FALSE(trainer->measure({tokens, 2, 61}, 3));   // all that a token sees is selected
  EXPECT_FALSE(trainer->measure({tokens, 2, 61}, 16));  // no token sees so many
}

TEST(TrainerV4, EachStageLowersWhatItMinimises) {
  const auto tokens = some_tokens(1, 60);
  const TrainBatch batch{tokens, 1, 60};
  const auto trainer = small_trainer(false);
  const auto lost = [&](TrainStage stage) { return *trainer->loss(stage, batch); };
  const TrainLoss first = lost(TrainStage::kModel);
  for (int i = 0; i < 20; ++i) ASSERT_TRUE(trainer->step(TrainStage::kModel, batch, 1e-2));
  EXPECT_LT(lost(TrainStage::kModel).language, 0.9 * first.language);
  const TrainLoss cold = lost(TrainStage::kWarmUp);
  for (int i = 0; i < 40; ++i) ASSERT_TRUE(trainer->step(TrainStage::kWarmUp, batch, 1e-2));
  EXPECT_LT(lost(TrainStage::kWarmUp).kl, 0.9 * cold.kl);
  EXPECT_EQ(lost(TrainStage::kWarmUp).language, cold.language);  // the model is frozen
  const TrainLoss warm = lost(TrainStage::kSparse);
  for (int i = 0; i < 20; ++i) ASSERT_TRUE(trainer->step(TrainStage::kSparse, batch, 1e-2));
  EXPECT_LT(lost(TrainStage::kSparse).language, warm.language);
}

TEST(TrainerV4, SaysWhatIsWrong) {
  RandomTensors lacking = some_weights();
  lacking.entries().erase("layers.3.attn.indexer.compressor.ape");
  const auto refused = Trainer::make(small_numbers(), lacking.source(), {});
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message.find("layers.3.attn.indexer.compressor.ape"),
            std::string::npos);
  ModelNumbers drafts = small_numbers();
  drafts.draft_layers = 1;
  EXPECT_FALSE(Trainer::make(drafts, weights().source(), {}));
}

}  // namespace trainer_v4_test
}  // namespace attnscope::reference
