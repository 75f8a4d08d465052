// Curves of a training from the table that it writes.
#include "app/views/training_view.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "app/reports/train_report.h"
#include "app/reports/train_run.h"

namespace attnscope {
namespace training_view_test {

std::string table(std::int64_t intervals) {
  std::vector<TrainRow> rows;
  for (std::int64_t i = 1; i <= intervals; ++i) {
    for (int layer = 0; layer < 2; ++layer) {
      TrainRow row;
      row.step = 10 * i;
      row.stage = i == 1 ? "warm-up" : "sparse";
      row.loss = 3 - 0.25 * static_cast<double>(i);
      row.held_loss = row.loss + 0.5;
      row.held_sparse = row.loss + 1;
      row.layer = layer;
      row.layer_kl = 1.0 / static_cast<double>(i + layer);
      row.recall = 0.25 * layer + 0.125 * static_cast<double>(i);
      row.mass = 0.5;
      row.overlap = 0.125;
      row.changed = 1;
      rows.push_back(row);
    }
  }
  return train_csv(rows);
}

TEST(TrainingViewTest, CurvesAreThoseOfTheTable) {
  const auto view = training_view(table(2), "indexer.csv");
  ASSERT_TRUE(view) << view.error().text();
  EXPECT_EQ(view->steps, 20);
  EXPECT_EQ(view->sentence,
            "20 steps, stage sparse: loss on held-out text 3.0000 nats a byte with all tokens, "
            "3.5000 with those that the indexer selects.");
  ASSERT_EQ(view->plots.size(), 6u);
  const TrainingPlot& loss = view->plots[0];
  ASSERT_EQ(loss.curves.size(), 3u);
  EXPECT_EQ(loss.curves[0].steps, (std::vector<double>{10, 20}));  // once for both layers
  EXPECT_EQ(loss.curves[0].values, (std::vector<double>{2.75, 2.5}));
  EXPECT_EQ(loss.curves[2].values, (std::vector<double>{3.75, 3.5}));
  EXPECT_FALSE(loss.share);
  for (const TrainingPlot& plot : view->plots) EXPECT_FALSE(plot.about.empty()) << plot.title;
  EXPECT_EQ(view->stages, (std::vector<std::pair<double, std::string>>{{10, "sparse"}}));
  // Before the first interval there was none whose selection could have changed.
  EXPECT_EQ(view->plots[5].curves[1].steps, (std::vector<double>{20}));
  const TrainingPlot& recall = view->plots[2];
  EXPECT_TRUE(recall.share);
  ASSERT_EQ(recall.curves.size(), 2u);
  EXPECT_EQ(recall.curves[1].name, "layer 1");
  EXPECT_EQ(recall.curves[1].values, (std::vector<double>{0.375, 0.5}));
}

TEST(TrainingViewTest, SaysWhatATableLacks) {
  const auto none = training_view(table(0), "model.csv");
  ASSERT_TRUE(none);
  EXPECT_EQ(none->sentence, "No interval has ended yet.");
  EXPECT_TRUE(none->plots.empty());
  for (const auto& [text, says] : std::vector<std::pair<std::string, std::string>>{
           {"", "line 1: not the head"},
           {"step,loss\n", "line 1: not the head"},
           {table(1) + "10,sparse,1\n", "line 4: not 13 numbers"},
           {table(1) + "10,sparse,1,2,3,4,5,x,7,8,9,10,11\n", "line 4: not 13 numbers"}}) {
    const auto view = training_view(text, "model.csv");
    ASSERT_FALSE(view) << text;
    EXPECT_NE(view.error().text().find("model.csv: " + says), std::string::npos)
        << view.error().text();
  }
}

TEST(TrainingViewTest, FindsTablesByName) {
  namespace fs = std::filesystem;
  const fs::path folder = fs::temp_directory_path() / "attnscope_training_view";
  fs::remove_all(folder);
  EXPECT_TRUE(training_tables(folder.string()).empty());
  for (const char* file : {"tiny-v3.2-seed-2/indexer.csv", "tiny-v3.2/model.csv", "other/x.csv"}) {
    fs::create_directories((folder / file).parent_path());
    std::ofstream(folder / file) << table(1);
  }
  const std::vector<TrainingTable> tables = training_tables(folder.string());
  ASSERT_EQ(tables.size(), 2u);
  EXPECT_EQ(tables[0].name, "tiny-v3.2 model");
  EXPECT_EQ(tables[1].name, "tiny-v3.2-seed-2 indexer");
  EXPECT_EQ(tables[1].path, (folder / "tiny-v3.2-seed-2/indexer.csv").string());
  fs::remove_all(folder);
}

// The sparse stage goes on training the model: what it gained is no gain of the selection.
TEST(TrainingViewTest, WhatASelectionCostsIsBesideTheSameWeightsWithAllTokens) {
  TrainReport report;
  TrainedSeed& seed = report.seeds.emplace_back();
  seed.before.dense.language = seed.before.dense_far = 3;
  seed.trained.dense.language = seed.trained.dense_far = 2;
  seed.trained.sparse = 2.5;
  seed.trained.sparse_far = 2.25;
  EXPECT_DOUBLE_EQ(report.worst_cost(), 1.25);
  EXPECT_FALSE(report.holds());
  const std::string text = train_report_text(report);
  EXPECT_NE(text.find("2.5000      0.0000    25.00%"), std::string::npos) << text;
  EXPECT_NE(text.find("cost: selected beside after: all, by the same weights"), std::string::npos);
  EXPECT_NE(
      text.find("DOES NOT HOLD: loss with what is selected at most 2 % above that of the same "
                "weights with all tokens (25.00 %)"),
      std::string::npos)
      << text;
  seed.trained.sparse = seed.trained.sparse_far = 2.02;
  EXPECT_NEAR(report.worst_cost(), 1.01, 1e-12);
}

}  // namespace training_view_test
}  // namespace attnscope
