// Training: gradients against finite differences, the forward pass against ref.model, which shares
// nothing with it, and the same bytes whenever the same is asked for.
#include "reference/trainer.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <map>
#include <random>

#include "reference/model_mla.h"

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

// Random weights of small_numbers() in bf16.
class Source {
 public:
  Source() {
    const MlaNumbers n = small_numbers();
    add("model.embed_tokens.weight", {256, n.hidden}, 1);
    add("model.norm.weight", {n.hidden}, 1);
    add("lm_head.weight", {256, n.hidden}, 0.5);
    for (int layer = 0; layer < 2; ++layer) {
      const std::string at = "model.layers." + std::to_string(layer) + ".";
      const std::string p = at + "self_attn.", x = p + "indexer.";
      add(at + "input_layernorm.weight", {n.hidden}, 1);
      add(p + "q_a_proj.weight", {n.q_lora, n.hidden}, 0.4);
      add(p + "q_a_layernorm.weight", {n.q_lora}, 1);
      add(p + "q_b_proj.weight", {n.heads * 8, n.q_lora}, 0.6);
      add(p + "kv_a_proj_with_mqa.weight", {n.kv_lora + 4, n.hidden}, 0.4);
      add(p + "kv_a_layernorm.weight", {n.kv_lora}, 1);
      add(p + "kv_b_proj.weight", {n.heads * 7, n.kv_lora}, 0.6);
      add(p + "o_proj.weight", {n.hidden, n.heads * 3}, 0.6);
      add(x + "wq_b.weight", {n.index_heads * n.index_dim, n.q_lora}, 0.6);
      add(x + "wk.weight", {n.index_dim, n.hidden}, 0.6);
      add(x + "k_norm.weight", {n.index_dim}, 1);
      add(x + "k_norm.bias", {n.index_dim}, 0.3);
      add(x + "weights_proj.weight", {n.index_heads, n.hidden}, 1);
    }
  }
  TensorSource source() const {
    return [this](const std::string& name) {
      const auto it = entries_.find(name);
      return it == entries_.end() ? nullptr : &it->second;
    };
  }
  std::map<std::string, TensorEntry>& entries() { return entries_; }

 private:
  void add(const std::string& name, std::vector<std::int64_t> shape, float spread) {
    TensorEntry& e = entries_[name];
    e.name = name;
    e.type = ElementType::kBf16;
    e.elements = 1;
    for (const std::int64_t n : shape) e.elements *= n;
    e.shape = std::move(shape);
    std::vector<std::uint16_t>& bits = values_[name];
    for (std::int64_t i = 0; i < e.elements; ++i) {
      const float value = spread * normal_(random_);
      std::uint32_t wide = 0;
      std::memcpy(&wide, &value, sizeof(wide));
      bits.push_back(static_cast<std::uint16_t>(wide >> 16));
    }
    e.bytes = bits.size() * 2;
    e.data = reinterpret_cast<const std::uint8_t*>(bits.data());
  }
  std::mt19937 random_{7};
  std::normal_distribution<float> normal_;
  std::map<std::string, std::vector<std::uint16_t>> values_;
  std::map<std::string, TensorEntry> entries_;
};

const Source& weights() {
  static const Source source;
  return source;
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

// What a weight learns by.
double learnt_loss(Trainer& trainer, TrainStage stage, bool indexer) {
  const auto loss = trainer.loss(stage, kBatch);
  EXPECT_TRUE(loss);
  return indexer ? loss->kl * 2 : loss->language;  // of two layers
}

TEST(Trainer, GradientsAreThoseOfFiniteDifferences) {
  const auto trainer = small_trainer(true);
  for (const TrainStage stage : {TrainStage::kModel, TrainStage::kWarmUp, TrainStage::kSparse}) {
    for (const TrainedTensor& t : trainer->tensors()) {
      const bool indexer = t.name.find(".indexer.") != std::string::npos;
      const auto gradient = trainer->gradient(stage, kBatch, t.name);
      ASSERT_TRUE(gradient) << gradient.error().text();
      const bool learns = stage == TrainStage::kSparse || indexer == (stage == TrainStage::kWarmUp);
      ASSERT_EQ(gradient->size(), learns ? t.value.size() : 0) << t.name;
      if (!learns) continue;
      // The largest, and two others.
      std::size_t largest = 0;
      for (std::size_t i = 0; i < gradient->size(); ++i) {
        if (std::abs((*gradient)[i]) > std::abs((*gradient)[largest])) largest = i;
      }
      EXPECT_NE((*gradient)[largest], 0) << t.name;
      for (const std::size_t i : {largest, gradient->size() / 3, gradient->size() - 1}) {
        constexpr double kStep = 1e-6;
        const auto at = static_cast<std::int64_t>(i);
        ASSERT_TRUE(trainer->nudge(t.name, at, kStep));
        const double above = learnt_loss(*trainer, stage, indexer);
        ASSERT_TRUE(trainer->nudge(t.name, at, -2 * kStep));
        const double below = learnt_loss(*trainer, stage, indexer);
        ASSERT_TRUE(trainer->nudge(t.name, at, kStep));
        EXPECT_NEAR((*gradient)[i], (above - below) / (2 * kStep),
                    1e-8 + 1e-5 * std::abs((*gradient)[i]))
            << t.name << " " << i << " stage " << static_cast<int>(stage);
      }
    }
  }
}

TEST(Trainer, ForwardIsThatOfTheReferenceModel) {
  const auto trainer = small_trainer(true);
  const auto model = make_mla_model(small_numbers(), weights().source());
  ASSERT_TRUE(model) << model.error().text();
  const auto logits = trainer->logits(kBatch, true), dense = trainer->logits(kBatch, false);
  ASSERT_TRUE(logits && dense);
  std::vector<double> expected;
  for (std::int64_t s = 0; s < kSequences; ++s) {
    const std::span<const std::int32_t> tokens(kTokens.data() + s * (kLength + 1),
                                               static_cast<std::size_t>(kLength));
    const std::vector<ModelRows> rows = {{s, tokens}};
    const auto out = (*model)->step(rows);
    ASSERT_TRUE(out) << out.error().text();
    expected.insert(expected.end(), out->logits.begin(), out->logits.end());
  }
  ASSERT_EQ(logits->size(), expected.size());
  double other = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    ASSERT_NEAR((*logits)[i], expected[i], 1e-11) << i;
    other = std::max(other, std::abs((*dense)[i] - expected[i]));
  }
  EXPECT_GT(other, 1e-3);  // what is left out counts
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
  Source lacking;
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
