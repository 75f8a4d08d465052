// Formats of rows of K and V that options name, and files that a study is to be kept in: what is
// wrong with them is said of the option, before any work.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "engine/config/scenario.h"
#include "engine/family/dense/dense.h"
#include "engine/io/json_file.h"
#include "tests/unit/app/cli_fixture.h"

namespace attnscope {
namespace study_cli_test {

class StudyCli : public CliTest {
 protected:
  static void refused(const std::vector<std::string>& words, const std::string& what) {
    const Outcome bad = run(words);
    EXPECT_EQ(bad.code, 3);
    EXPECT_NE(bad.err.find(what), std::string::npos) << bad.err;
  }
};

TEST_F(StudyCli, BlamesTheOptionForAFormatThatIsNone) {
  const Outcome bad = run({"run", "tiny-llama", "--cache-dtype", "fp9"});
  EXPECT_EQ(bad.code, 3);
  EXPECT_NE(bad.err.find("--cache-dtype: \"fp9\" is no format"), std::string::npos) << bad.err;
  EXPECT_NE(bad.err.find("fp8_tensor"), std::string::npos) << bad.err;
  EXPECT_EQ(bad.err.find("tiny-llama.json"), std::string::npos) << bad.err;
  refused({"run", "default", "--cache-dtype", "fp9"}, "--cache-dtype: \"fp9\"");
}

// The lengths would stop the study: they are not looked at before the files are.
TEST_F(StudyCli, LooksAtItsFilesBeforeItStudies) {
  std::vector<std::string> words = {"study", "cache-dtype", "tiny-llama", "--lengths", "64,32"};
  const auto with = [&](const std::string& option, const std::string& file) {
    std::vector<std::string> all = words;
    all.insert(all.end(), {option, file});
    return all;
  };
  refused(with("--csv", path("none/errors.csv")), "--csv " + path("none/errors.csv"));
  refused(with("--svg", path("none/errors.svg")), "does not exist");
  refused(with("--png", path("none/errors.png")), "--png " + path("none/errors.png"));
  refused(with("--csv", folder_.string()), "is a folder");
  const Outcome studied = run(with("--csv", path("errors.csv")));
  EXPECT_EQ(studied.code, 3);
  EXPECT_EQ(studied.err.find("--csv"), std::string::npos) << studied.err;
}

// What a scenario says of its own model goes with it, and it is said; a stop that is none is found
// before anything is computed.
TEST_F(StudyCli, SaysWhatAnotherModelLeavesOut) {
  const auto scenario = [&](const char* keys) {
    std::string file = path("own.json");
    auto json = nlohmann::json::parse(load_scenario("tiny-llama")->text, nullptr, true, true);
    json.merge_patch(nlohmann::json::parse(keys));
    EXPECT_TRUE(write_text_file(file, json.dump()));
    return file;
  };
  const std::string file = scenario(R"({"model": {"cache_dtype": "fp8_head", "seed": 3}})");
  const std::vector<std::string> steps = {"--steps", "1", "--references", "none"};
  std::vector<std::string> words = {"run", file, "--model", "tiny-llama"};
  words.insert(words.end(), steps.begin(), steps.end());
  const Outcome left = run(words);
  EXPECT_EQ(left.code, 0) << left.err;
  EXPECT_NE(
      left.err.find("--model leaves out what " + file + " says of its own model: cache_dtype"),
      std::string::npos)
      << left.err;
  const Outcome compared =
      run({"backends", "compare", file, "--model", "tiny-llama", "--gpu", "cpu"});
  EXPECT_EQ(compared.code, 0) << compared.err;
  EXPECT_NE(compared.err.find("its own model: cache_dtype"), std::string::npos) << compared.err;
  words = {"run", file};
  words.insert(words.end(), steps.begin(), steps.end());
  EXPECT_EQ(run(words).err.find("leaves out"), std::string::npos);
  refused({"run", scenario(R"({"stops": [{"when": "wrong"}, {"when": "rubbish(("}]})")},
          "stops[1]");
}

TEST_F(StudyCli, TakesEachLengthOnce) {
  const Outcome twice = run({"study", "cache-dtype", "tiny-llama", "--lengths", "64,64"});
  EXPECT_EQ(twice.code, 3) << twice.out;
  EXPECT_NE(twice.err.find("lengths are ascending, each once"), std::string::npos) << twice.err;
}

TEST_F(StudyCli, SaysThatNoNameIsNoFormat) {
  refused({"run", "tiny-llama", "--cache-dtype", ""}, "--cache-dtype: \"\" is no format of rows");
  refused({"study", "cache-dtype", "no-such-scenario"}, "no-such-scenario");
}

// The same study as a table, as CSV and as JSON.
TEST_F(StudyCli, PrintsItsNumbersAsJson) {
  const Outcome out = run({"study", "cache-dtype", "tiny-llama", "--lengths", "24,40", "--tokens",
                           "4", "--json", "--csv", path("study.csv")});
  ASSERT_EQ(out.code, 0) << out.err;
  const auto json = nlohmann::json::parse(out.out);
  EXPECT_EQ(json["format"], "attnscope-cache-study");
  EXPECT_EQ(json["model"], "tiny-llama");
  EXPECT_EQ(json["tokens"], 4);
  ASSERT_EQ(json["formats"].size(), dense_cache_records().size() + 3);
  EXPECT_EQ(json["formats"][0]["name"], "bf16");
  std::string csv = "format,bytes_per_token,length,error,largest,carried,changed,tokens\n";
  for (const auto& format : json["formats"]) {
    ASSERT_EQ(format["points"].size(), 2u);
    EXPECT_EQ(format["points"][1]["length"], 40);
    const bool exact = format["name"] == "bf16" || format["name"] == "f16";
    const std::int64_t first = format["first_tokens"];
    EXPECT_EQ(first > 0, format["name"].get<std::string>().ends_with("+first32"));
    EXPECT_EQ(format["first_token_bytes"], first > 0 ? 1024 : 0);
    for (const auto& point : format["points"]) {
      // Of 24 tokens all are first ones.
      const bool all_first = point["length"].get<std::int64_t>() <= first;
      EXPECT_EQ(point["error"] == 0.0, exact || all_first) << format["name"];
      csv +=
          fmt::format("{},{:.8g},{},{:.6g},{:.6g},{:.6g},{},4\n", format["name"].get<std::string>(),
                      point["bytes_per_token"].get<double>(), point["length"].get<int>(),
                      point["error"].get<double>(), point["largest"].get<double>(),
                      point["carried"].get<double>(), point["changed"].get<int>());
    }
  }
  EXPECT_EQ(*read_text_file(path("study.csv")), csv);
}

TEST_F(StudyCli, SaysWhatMakingTokensAnewTakes) {
  const std::vector<std::string> words = {
      "study", "cache-dtype", "tiny-llama", "--lengths", "40", "--tokens", "4", "--again", "8"};
  const Outcome text = run(words);
  ASSERT_EQ(text.code, 0) << text.err;
  EXPECT_NE(text.out.find("fp8_tensor+again8: 2\u2009048 bytes of inputs kept a token"),
            std::string::npos)
      << text.out;
  std::vector<std::string> as_json = words;
  as_json.emplace_back("--json");
  const auto json = nlohmann::json::parse(run(as_json).out);
  const auto& last = json["formats"].back();
  EXPECT_EQ(last["name"], "int8_token_head+again8");
  EXPECT_EQ(last["kept_input_bytes"], 2048);
  EXPECT_EQ(last["points"][0]["made_anew"], 4 * 8 * 2);
  EXPECT_EQ(json["formats"][0]["kept_input_bytes"], 0);
  EXPECT_FALSE(json["formats"][0]["points"][0].contains("made_anew"));
  refused({"study", "cache-dtype", "tiny-alibi", "--lengths", "40", "--again", "8"}, "ALiBi");
}

// A picture without a display; where this build or machine draws none, that is said and no study
// is run for it.
TEST_F(StudyCli, MakesAPictureOrSaysWhyNot) {
  setenv("LIBGL_ALWAYS_SOFTWARE", "1", 1);
  const Outcome out = run({"study", "cache-dtype", "tiny-llama", "--lengths", "24", "--tokens", "4",
                           "--png", path("study.png")});
  if (out.code == AS_OK) {
    EXPECT_EQ(read(path("study.png")).substr(1, 3), "PNG");
    EXPECT_NE(out.out.find("fp8_tensor"), std::string::npos) << out.out;
  } else {
    EXPECT_EQ(out.code, AS_NO_ENVIRONMENT) << out.err;
    EXPECT_EQ(out.out, "");
    EXPECT_FALSE(std::filesystem::exists(path("study.png")));
  }
}

}  // namespace study_cli_test
}  // namespace attnscope
