// The Index keys panel: energies of keys put into a trace by hand, and what it says where there is
// none.
#include "app/views/key_energy_view.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "engine/family/models.h"
#include "engine/model/numbers.h"
#include "kernels/params/op_table.h"
#include "tests/unit/app/trace_builder.h"

namespace attnscope {
namespace key_energy_view_test {

constexpr std::size_t kDims = 128;

SessionInfo info_of(bool hadamard) {
  SessionInfo info;
  info.config = *preset("tiny-v3.2");
  info.config.mla.hadamard = hadamard;
  return info;
}

// A step whose layer 1 stored these keys, in the form in which they are stored.
StepTrace step_with(const std::vector<float>& keys) {
  const auto tokens = to_count(keys.size() / kDims);
  StepTrace step = make_step(3, 40, tokens);
  add_tap(add_op(step, 1, AS_OP_INDEX_KEY_INSERT), as_op_row(AS_OP_INDEX_KEY_INSERT)->name, keys,
          tokens);
  return step;
}

// A key with one number spreads evenly: the transform of c e_0 is c / sqrt(128) in every dim.
TEST(KeyEnergyView, OneLargeDimIsSpreadOverAll) {
  const std::vector<float> stored(kDims, 3.0f);
  const StepTrace step = step_with(stored);
  const KeyEnergyView view = key_energy_view(info_of(true), step, 1);
  ASSERT_EQ(view.why_empty, "");
  EXPECT_TRUE(view.transformed);
  EXPECT_EQ(view.keys, 1);
  EXPECT_NEAR(view.before.energy[0], kDims, 1e-9);
  EXPECT_NEAR(view.before.largest, std::sqrt(128.0), 1e-9);
  for (std::size_t d = 0; d < kDims; ++d) {
    EXPECT_NEAR(view.after.energy[d], 1, 1e-9) << d;
    if (d > 0) {
      EXPECT_NEAR(view.before.energy[d], 0, 1e-9) << d;
    }
  }
  EXPECT_NEAR(view.after.largest, 1, 1e-9);
  EXPECT_NE(view.sentence.find("1 index keys of layer 1: the largest number of a key is 11.31"),
            std::string::npos)
      << view.sentence;
  EXPECT_TRUE(view.sentence.ends_with("Stored is the key after it")) << view.sentence;
}

// Numbers below half of FP8's smallest step of the key's scale are lost where one dim is large.
TEST(KeyEnergyView, SmallNumbersBesideALargeOneAreLostWithoutTheTransform) {
  std::vector<float> key(kDims, 0.0f);
  key[0] = 448;
  key[1] = 0x1p-11f;  // half of the smallest code is 2^-10
  const KeyEnergyView view = key_energy_view(info_of(false), step_with(key), 1);
  ASSERT_EQ(view.why_empty, "");
  EXPECT_FALSE(view.transformed);
  EXPECT_NEAR(view.before.fp8_error, 0x1p-11 / 448, 1e-12);
  EXPECT_TRUE(view.sentence.ends_with("Stored is the key before it")) << view.sentence;
}

TEST(KeyEnergyView, IsTheMeanOverFiniteKeys) {
  std::vector<float> keys(3 * kDims, 0.0f);
  keys[5] = 2;                                                // energy 4 in dim 5
  keys[kDims + 7] = -4;                                       // 16 in dim 7
  keys[2 * kDims] = std::numeric_limits<float>::quiet_NaN();  // of a row without a token
  const KeyEnergyView view = key_energy_view(info_of(false), step_with(keys), 1);
  EXPECT_EQ(view.keys, 2);
  EXPECT_NEAR(view.before.energy[5], 4 * kDims / 20.0, 1e-9);
  EXPECT_NEAR(view.before.energy[7], 16 * kDims / 20.0, 1e-9);
  EXPECT_NEAR(view.after.energy[64], 1, 1e-9);
}

TEST(KeyEnergyView, SaysWhyThereIsNone) {
  const StepTrace step = step_with(std::vector<float>(kDims, 1.0f));
  const auto says = [&](const SessionInfo& info, int layer, const StepTrace& of, const char* part) {
    const KeyEnergyView view = key_energy_view(info, of, layer);
    EXPECT_NE(view.why_empty.find(part), std::string::npos) << view.why_empty;
  };
  SessionInfo info = info_of(true);
  says(info, 0, step, "has not stored its index keys");
  says(info, -1, step, "outside of them.");
  says(info, 1, step_with(std::vector<float>(kDims, std::numeric_limits<float>::infinity())),
       "No token of this step");
  info.config.compress_ratios[1] = 0;
  says(info, 1, step, "Layer 1 is MLA: it selects nothing");
}

}  // namespace key_energy_view_test
}  // namespace attnscope
