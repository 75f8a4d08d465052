// What is said of wrong bytes in the rows of a cache.
#include "engine/explain/row_places.h"

#include <gtest/gtest.h>

#include <numeric>
#include <vector>

#include "engine/model/numbers.h"
#include "kernels/params/tensor_view.h"

namespace attnscope {
namespace row_places_test {

// Rows of a page of 64, one a token, at rows 60, 61, ..
struct Rows {
  explicit Rows(std::int32_t record, std::int64_t width)
      : layout(as_row_layout_of(record, width, 1, 1)),
        right(to_size(kTokens * layout.row), 7),
        value(right),
        slots(to_size(kTokens)) {
    std::iota(slots.begin(), slots.end(), 64 * 5 + 60);
  }
  std::string text() const {
    Tolerance exact;
    exact.exact = true;
    const auto view = [&](const std::vector<std::uint8_t>& bytes) {
      return make_tensor(bytes.data(), {kTokens, layout.row});
    };
    return row_places(wrong_elements(view(value), view(right), {}, exact), layout, slots, 64, {})
        .sentence;
  }
  std::uint8_t& at(std::int64_t token, std::int64_t byte) {
    return value[to_size(token * layout.row + byte)];
  }

  static constexpr std::int64_t kTokens = 6;
  as_row_layout layout;
  std::vector<std::uint8_t> right, value;
  std::vector<std::int64_t> slots;
};

TEST(RowPlaces, ARowThatNobodyWroteIsSaid) {
  Rows rows(AS_RECORD_LATENT, 512);
  for (std::int64_t b = 0; b < rows.layout.row; ++b) rows.at(3, b) = 255;
  EXPECT_EQ(rows.text(),
            "584 of 3504 bytes are wrong: token 3, at row 63 of pages of 64; every byte of the row "
            "is 255, as where nobody has written");
}

TEST(RowPlaces, PartsOfARowAreNamed) {
  Rows block(AS_RECORD_LATENT, 512);
  for (std::int64_t t = 0; t < Rows::kTokens; ++t) {
    block.at(t, 6 * 64 + 5) = 8;
    block.at(t, 576 + 6) = 8;
  }
  EXPECT_EQ(block.text(),
            "12 of 3504 bytes are wrong: tokens all 6; codes of block 6, scale 6 too "
            "large by 1");

  // Exponents that are wrong by one number tell of a bias; by several, of nothing.
  Rows bias(AS_RECORD_LATENT, 512);
  for (std::int64_t b = 576; b < 583; ++b) bias.at(1, b) = bias.at(2, b) = 6;
  EXPECT_EQ(bias.text(), "14 of 3504 bytes are wrong: tokens 1 to 2; all scales too small by 1");
  bias.at(2, 578) = 9;
  EXPECT_EQ(bias.text(), "14 of 3504 bytes are wrong: tokens 1 to 2; all scales");

  Rows codes(AS_RECORD_LATENT, 512);
  for (std::int64_t b = 0; b < 448; b += 32) codes.at(1, b) = 8;
  EXPECT_EQ(codes.text(), "14 of 3504 bytes are wrong: token 1; codes of all blocks, no scale");

  Rows turned(AS_RECORD_LATENT, 512);
  turned.at(0, 450) = turned.at(2, 460) = 8;
  turned.at(2, 583) = 1;
  EXPECT_EQ(turned.text(), "3 of 3504 bytes are wrong: tokens 2 of 6; RoPE dims, padding");

  Rows keys(AS_RECORD_INDEX_FP8, 128);
  keys.at(4, 130) = 8;
  EXPECT_EQ(keys.text(), "1 of 792 bytes are wrong: token 4, at row 0 of pages of 64; scale");
}

}  // namespace row_places_test
}  // namespace attnscope
