// What every trainer has to do: checks that take a trainer and what it learns from.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "reference/trainer.h"

namespace attnscope::reference {

// Gradients by every tensor in each stage, against finite differences, in float64. layers: that
// select.
inline void expect_finite_differences(Trainer& trainer, const TrainBatch& batch, int layers) {
  const auto lost = [&](TrainStage stage, bool indexer) {  // what a weight learns by
    const auto loss = trainer.loss(stage, batch);
    EXPECT_TRUE(loss);
    return indexer ? loss->kl * layers : loss->language;
  };
  for (const TrainStage stage : {TrainStage::kModel, TrainStage::kWarmUp, TrainStage::kSparse}) {
    for (const TrainedTensor& t : trainer.tensors()) {
      const bool indexer = t.name.find(".indexer.") != std::string::npos;
      const auto gradient = trainer.gradient(stage, batch, t.name);
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
        ASSERT_TRUE(trainer.nudge(t.name, at, kStep));
        const double above = lost(stage, indexer);
        ASSERT_TRUE(trainer.nudge(t.name, at, -2 * kStep));
        const double below = lost(stage, indexer);
        ASSERT_TRUE(trainer.nudge(t.name, at, kStep));
        EXPECT_NEAR((*gradient)[i], (above - below) / (2 * kStep),
                    1e-8 + 1e-5 * std::abs((*gradient)[i]))
            << t.name << " " << i << " stage " << static_cast<int>(stage);
      }
    }
  }
}

// Logits of the selecting model are those of ref.model; what is left out counts.
inline void expect_logits_of(ModelReference& model, const Trainer& trainer,
                             const TrainBatch& batch) {
  const auto logits = trainer.logits(batch, true), dense = trainer.logits(batch, false);
  ASSERT_TRUE(logits && dense);
  std::vector<double> expected;
  for (std::int64_t s = 0; s < batch.sequences; ++s) {
    const auto tokens = batch.tokens.subspan(static_cast<std::size_t>(s * (batch.length + 1)),
                                             static_cast<std::size_t>(batch.length));
    const std::vector<ModelRows> rows = {{s, tokens}};
    const auto out = model.step(rows);
    ASSERT_TRUE(out) << out.error().text();
    expected.insert(expected.end(), out->logits.begin(), out->logits.end());
  }
  ASSERT_EQ(logits->size(), expected.size());
  double other = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    ASSERT_NEAR((*logits)[i], expected[i], 1e-11) << i;
    other = std::max(other, std::abs((*dense)[i] - expected[i]));
  }
  EXPECT_GT(other, 1e-3);
}

}  // namespace attnscope::reference
