// Recorded rows that a session feeds its layers: of another position, request or layer they are
// found, whoever read them.
#include "engine/session/verify/recorded_rows.h"

#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cstring>
#include <filesystem>

#include "engine/tensorfile/tensor_writer.h"
#include "kernels/params/tensor_view.h"

namespace attnscope {
namespace recorded_rows_test {

constexpr std::int64_t kHidden = 8;

// Between two bf16 numbers, and another one for every layer, owner, row and column.
float recorded(int layer, int owner, std::int64_t row, std::int64_t column) {
  return static_cast<float>(1000 * layer + 300 * owner + 10 * row + column) + 1.7f;
}

bf16_t rounded(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  return {static_cast<std::uint16_t>((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16)};
}

class RecordedRowsTest : public ::testing::Test {
 protected:
  RecordedRowsTest() {
    TensorWriter writer;
    const auto add = [&](const std::string& name, int layer, int owner) {
      std::vector<float> values;
      for (std::int64_t i = 0; i < 5 * kHidden; ++i) {
        values.push_back(recorded(layer, owner, i / kHidden, i % kHidden));
      }
      std::vector<std::uint8_t> bytes(values.size() * 4);
      std::memcpy(bytes.data(), values.data(), bytes.size());
      writer.add_owned(name, ElementType::kF32, {1, 5, kHidden}, std::move(bytes));
    };
    for (const int layer : {2, 3}) {
      const std::string name = "layers." + std::to_string(layer) + ".attn_norm.y";
      add(name, layer, 0);
      add("b/" + name, layer, 1);
    }
    EXPECT_TRUE(writer.write(path_));
    auto rows = RecordedRows::open(path_, {"a", "b"}, {2, 3});
    EXPECT_TRUE(rows) << rows.error().text();
    rows_ = std::move(*rows);
    step_.live = {1, 0};  // b comes first
    step_.tokens = {7, 7, 7};
    step_.token_to_req = {0, 1, 1};
    step_.positions = {4, 1, 2};
  }
  ~RecordedRowsTest() override { std::filesystem::remove(path_); }

  // What is said of these rows, of the second running layer.
  std::optional<TapResult> differing(const std::vector<std::array<int, 3>>& fed) {
    std::vector<bf16_t> values;
    for (const auto& [layer, owner, row] : fed) {
      for (std::int64_t i = 0; i < kHidden; ++i) {
        values.push_back(rounded(recorded(layer, owner, row, i)));
      }
    }
    return rows_->differing(1, make_tensor(values.data(), {3, kHidden}), step_);
  }

  const std::string path_ = ::testing::TempDir() + "attnscope_recorded_rows.safetensors";
  std::unique_ptr<const RecordedRows> rows_;
  StepMetadata step_;
};

TEST_F(RecordedRowsTest, TakesWhatTheFileHas) {
  const auto found = differing({{3, 1, 4}, {3, 0, 1}, {3, 0, 2}});
  EXPECT_FALSE(found) << found->note;
}

TEST_F(RecordedRowsTest, NamesTheRowThatIsAnother) {
  // Of another position, request and layer.
  for (const auto& other : {std::array{3, 0, 3}, std::array{3, 1, 2}, std::array{2, 0, 2}}) {
    const auto found = differing({{3, 1, 4}, {3, 0, 1}, other});
    ASSERT_TRUE(found);
    EXPECT_EQ(found->op, AS_OP_ATTN_NORM);
    EXPECT_EQ(found->tap, "y.recorded");
    EXPECT_EQ(found->verdict, Verdict::kWrong);
    EXPECT_EQ(found->introduced->beyond, 1);
    EXPECT_NE(found->note.find("token 2 (request 0, position 2): the row that the layer is fed is "
                               "not row 2 of layers.3.attn_norm.y in "),
              std::string::npos)
        << found->note;
    EXPECT_NE(blame({*found}).front().sentence().find("reading the recorded hidden states"),
              std::string::npos);
  }
}

TEST_F(RecordedRowsTest, SaysSoWhereThereIsNoSuchRow) {
  step_.positions[2] = 5;
  const auto found = differing({{3, 1, 4}, {3, 0, 1}, {3, 0, 4}});
  ASSERT_TRUE(found);
  EXPECT_NE(found->note.find("is not row 5 of"), std::string::npos) << found->note;
}

}  // namespace recorded_rows_test
}  // namespace attnscope
