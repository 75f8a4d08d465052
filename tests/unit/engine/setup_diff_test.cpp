// What two captures were set up with: each key of a scenario that changes numbers is named.
#include "engine/capture/setup_diff.h"

#include <gtest/gtest.h>

namespace attnscope {
namespace setup_diff_test {

CaptureIndex index_of(const std::string& model, const std::string& more) {
  CaptureIndex index;
  index.origin.scenario = "s.json";
  index.origin.scenario_text =
      "{\"version\": 1, \"name\": \"s\", \"model\": {\"preset\": \"tiny\"" + model + "}" + more +
      "}";
  return index;
}

TEST(SetupDiff, NamesWhatScenariosSayOtherwise) {
  const CaptureIndex plain = index_of("", "");
  EXPECT_TRUE(compare_setups(plain, plain).empty());
  // What a scenario leaves out is what it may as well say.
  const CaptureIndex said =
      index_of(", \"logit_gain\": 1.0, \"twin_tokens\": false", ", \"lists\": \"plain\"");
  EXPECT_TRUE(compare_setups(plain, said).empty());
  const auto expect = [&](const char* model, const char* more, const std::string& text) {
    const auto diffs = compare_setups(plain, index_of(model, more));
    ASSERT_EQ(diffs.size(), 1u) << text;
    EXPECT_EQ(diffs[0].text, text);
    EXPECT_TRUE(diffs[0].numbers);
  };
  expect(", \"logit_gain\": 8.0", "",
         "logit_gain is 1.0 in the first capture and 8.0 in the second");
  expect(", \"twin_tokens\": true", "",
         "twin_tokens is false in the first capture and true in the second");
  expect("", ", \"lists\": \"adversarial\"",
         "lists is \"plain\" in the first capture and \"adversarial\" in the second");
  expect(", \"sink_shift\": -1.5", "",
         "sink_shift is 0.0 in the first capture and -1.5 in the second");
}

TEST(SetupDiff, NamesFormatsOfRows) {
  CaptureIndex plain, other;
  plain.model.family = other.model.family = "dense";
  other.model.dense.cache_record = AS_RECORD_FP8_TENSOR | AS_RECORD_HND;
  auto diffs = compare_setups(plain, other);
  ASSERT_EQ(diffs.size(), 1u);
  EXPECT_EQ(diffs[0].text,
            "dense.cache_record is \"bf16\" in the first capture and \"fp8_tensor_hnd\" in the "
            "second");
  plain.model.family = other.model.family = "mla";
  other.model.dense = plain.model.dense;
  other.model.mla.latent_record = AS_RECORD_BF16;
  diffs = compare_setups(plain, other);
  ASSERT_EQ(diffs.size(), 1u);
  EXPECT_TRUE(diffs[0].text.ends_with("in the first capture and \"bf16\" in the second"))
      << diffs[0].text;
}

}  // namespace setup_diff_test
}  // namespace attnscope
