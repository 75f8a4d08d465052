// What is said of first tokens in 16 bits: groups, pages and bytes of a model, blocks of a group.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "app/reports/report.h"
#include "app/reports/storage_report.h"
#include "app/views/block_tables_view.h"
#include "engine/family/models.h"
#include "tests/unit/app/cli_fixture.h"

namespace attnscope {
namespace first_tokens_report_test {

class FirstTokensReport : public CliTest {};

TEST_F(FirstTokensReport, LayoutSaysWhatTheyCost) {
  const Outcome out = run({"blocks", "layout", "tiny-llama", "--cache-dtype", "fp8_tensor",
                           "--first-tokens-16bit", "32", "--max-model-len", "1000", "--json"});
  ASSERT_EQ(out.code, 0) << out.err;
  const auto json = nlohmann::json::parse(out.out);
  ASSERT_EQ(json["groups"].size(), 2u);
  const auto& first = json["groups"][1];
  EXPECT_EQ(first["kind"], "first");
  EXPECT_EQ(first["window"], 32);
  EXPECT_EQ(first["block_tokens"], 8);
  EXPECT_EQ(first["request_blocks"], 4);
  EXPECT_EQ(first["bytes"], json["groups"][0]["bytes"]);
  EXPECT_EQ(json["request_blocks"], 63 + 4);
  EXPECT_EQ(json["kept_bytes_per_token"], 512);
  EXPECT_EQ(json["decode_blocks_per_token"], 1.0 / 16);
  const Outcome text = run({"blocks", "layout", "tiny-llama-fp8", "--first-tokens-16bit", "32"});
  EXPECT_NE(text.out.find("first 32"), std::string::npos) << text.out;
  const Outcome wrong = run({"blocks", "layout", "tiny-llama", "--first-tokens-16bit", "32"});
  EXPECT_EQ(wrong.code, 3);
  EXPECT_NE(wrong.err.find("all rows have 16 bits"), std::string::npos) << wrong.err;
}

TEST_F(FirstTokensReport, ModelsSayThemToo) {
  ModelConfig config = *preset("tiny-llama-fp8");
  ASSERT_TRUE(set_first_tokens(config, 32));
  const auto model = describe_model(config);
  EXPECT_EQ(model["groups"][1]["first_tokens"], 32);
  EXPECT_TRUE(model["groups"][1]["window"].is_null());
  EXPECT_TRUE(model["groups"][0]["first_tokens"].is_null());
  SessionInfo info;
  info.config = config;
  info.layout = build_cache_layout(config);
  const std::string text = group_text(info, 1);
  EXPECT_NE(text.find("the first 32 tokens of a request, in 16 bits"), std::string::npos) << text;
  EXPECT_NE(text.find("keys of first tokens of layers 0, 1, 2, 3"), std::string::npos) << text;
}

// A capture holds rows of both kinds: calls of it are the same again, rotary tables as narrow as
// the model's.
TEST_F(FirstTokensReport, CapturesKeepBothKindsOfRows) {
  const std::string file = path("first.acap");
  const Outcome recorded = run({"record", "tiny-llama-first16", "--steps", "3", "--level", "full",
                                "--rows", "all", "--weights", "-o", file});
  ASSERT_EQ(recorded.code, 0) << recorded.err;
  for (const char* at : {"1/0/paged_attention", "0/1/rope_kv_insert"}) {
    const Outcome saved = run({"case", "save", file, "--at", at, "-o", path("c.json"), "--force"});
    ASSERT_EQ(saved.code, 0) << saved.err;
    const Outcome again = run({"case", "run", path("c.json")});
    EXPECT_EQ(again.code, 0) << again.out << again.err;
    const Outcome kept = run({"case", "show", path("c.json")});
    EXPECT_NE(kept.out.find("k_wide"), std::string::npos) << kept.out;
  }
  const Outcome same = run({"diff", file, file});
  EXPECT_EQ(same.code, 0) << same.err << same.out;
  const Outcome shown = run({"show", file});
  EXPECT_EQ(shown.code, 0) << shown.err;
}

TEST_F(FirstTokensReport, SessionsOfTheCommandLineTakeTheNumber) {
  const Outcome ok = run({"run", "tiny-llama-fp8", "--first-tokens-16bit", "16", "--steps", "2"});
  EXPECT_EQ(ok.code, 0) << ok.err << ok.out;
  const Outcome wrong = run({"run", "tiny-llama", "--first-tokens-16bit", "16", "--steps", "2"});
  EXPECT_EQ(wrong.code, 3);
  EXPECT_NE(wrong.err.find("first_tokens_16bit"), std::string::npos) << wrong.err;
}

}  // namespace first_tokens_report_test
}  // namespace attnscope
