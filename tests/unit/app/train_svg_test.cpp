// The drawing of trainings' curves: a line for each training and curve, in the place that its
// numbers say.
#include "app/reports/train_svg.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

namespace attnscope {
namespace train_svg_test {

namespace fs = std::filesystem;

constexpr const char* kHead =
    "step,stage,rate,loss,kl,held_loss,held_sparse,layer,layer_kl,recall,mass,overlap,changed\n";

std::int64_t count_of(const std::string& text, const std::string& what) {
  std::int64_t n = 0;
  for (auto at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) ++n;
  return n;
}

class TrainSvg : public testing::Test {
 protected:
  void SetUp() override { fs::remove_all(folder_); }
  void TearDown() override { fs::remove_all(folder_); }
  // A training of two layers.
  std::string training(const std::string& name, const std::string& model,
                       const std::string& indexer) const {
    fs::create_directories(folder_ / name);
    std::ofstream(folder_ / name / "model.csv") << kHead << model;
    std::ofstream(folder_ / name / "indexer.csv") << kHead << indexer;
    return (folder_ / name).string();
  }
  static std::string rows(int step, const char* recall) {
    std::string out;
    for (const char* layer : {"0", "1"}) {
      out += std::to_string(step) + ",sparse,0.001,2.5,0.5,2.75,3," + layer + ",0.25," + recall +
             ",0.5,0.125,1\n";
    }
    return out;
  }
  fs::path folder_ = fs::temp_directory_path() / "attnscope_train_svg";
};

TEST_F(TrainSvg, HasALineForEachTrainingAndCurve) {
  const std::string both = rows(10, "0.25") + rows(20, "0.75");
  const std::string a = training("a", both, both), b = training("b", both, rows(10, "0.5"));
  const auto one = train_svg("tiny <v3.2>", {a}), two = train_svg("tiny", {a, b});
  ASSERT_TRUE(one && two);
  // Losses have three curves, the five other figures one of each layer; of either part.
  EXPECT_EQ(count_of(*one, "<polyline "), 2 * (3 + 5 * 2));
  EXPECT_EQ(count_of(*two, "<polyline "), 2 * 2 * (3 + 5 * 2));
  EXPECT_EQ(count_of(*two, ">recall@k<"), 2);
  EXPECT_NE(one->find("tiny &lt;v3.2&gt;, trained"), std::string::npos);
  // recall@k of the model is the third chart: 20 + 2 * 320 + 46 to 300 across, and half of 0 to 1
  // of its height from a quarter to three quarters.
  EXPECT_NE(one->find("points=\"706.0,263.5 960.0,186.5\""), std::string::npos) << *one;
}

TEST_F(TrainSvg, SaysWhatATableLacks) {
  const std::string whole = training("whole", rows(10, "0.5"), rows(10, "0.5"));
  const std::string empty = training("empty", rows(10, "0.5"), "");
  const std::string wrong = training("wrong", "something\n", "");
  for (const auto& [folder, says] :
       std::vector<std::pair<std::string, std::string>>{{empty, "indexer.csv: holds no interval"},
                                                        {wrong, "model.csv: line 2"},
                                                        {whole + "x", "model.csv"}}) {
    const auto drawing = train_svg("tiny", {whole, folder});
    ASSERT_FALSE(drawing) << folder;
    EXPECT_NE(drawing.error().text().find(says), std::string::npos) << drawing.error().text();
  }
}

}  // namespace train_svg_test
}  // namespace attnscope
