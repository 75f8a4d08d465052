// The parsers under random damage of valid files, in every test run (the libFuzzer target digs
// deeper). Seeded: a failure prints the seed and the input.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <random>
#include <sstream>

#include "tests/fuzz/parsers.h"

namespace attnscope::fuzz {
namespace parsers_random_test {

std::string read(const std::string& file) {
  std::ostringstream text;
  text << std::ifstream(file).rdbuf();
  return text.str();
}

const char* kModelConfig = R"({"model_type": "deepseek_v4", "hidden_size": 512,
  "num_hidden_layers": 4, "num_attention_heads": 8, "head_dim": 512, "qk_rope_head_dim": 64,
  "q_lora_rank": 128, "o_lora_rank": 64, "o_groups": 2, "sliding_window": 128,
  "compress_ratios": [0, 4, 128, 4], "index_n_heads": 8, "index_head_dim": 128, "index_topk": 512,
  "rope_theta": 10000, "compress_rope_theta": 160000, "rms_norm_eps": 1e-6,
  "rope_scaling": {"type": "yarn", "factor": 16, "original_max_position_embeddings": 65536,
  "beta_fast": 32, "beta_slow": 1}, "max_position_embeddings": 1048576})";

class Parsers : public testing::TestWithParam<Parser> {
 protected:
  static std::string kept(const std::string& name) {
    return read(std::string(ATTNSCOPE_SOURCE_DIR) + "/tests/fuzz/corpus/" + name);
  }
  // seed: of several texts that belong together, each in its turn.
  std::string valid(unsigned seed) const {
    const std::string assets = std::string(ATTNSCOPE_SOURCE_DIR) + "/assets/";
    switch (GetParam()) {
      case Parser::kScenario:
        return read(assets + "scenarios/early.json");
      case Parser::kModelConfig:
        return kModelConfig;
      case Parser::kTolerances:
        return read(assets + "tolerances.json");
      case Parser::kReplay:
        return kept("replay/calls");
      case Parser::kKvEvents:
        return kept("kv_events/objects");
      case Parser::kCheckpointIndex:
        return kept("checkpoint_index/good");
      case Parser::kSafetensors:
        return kept("safetensors/good");
      case Parser::kHiddenStates:
        return kept("hidden_states/good");
      case Parser::kGolden:
        return kept("golden/accepted");
      case Parser::kCase:
        return kept("case/numbers");
      case Parser::kImportMap:
        return kept("import_map/attention");
      case Parser::kMask:
        return kept("mask/window_and_sinks");
      case Parser::kCapture: {
        static const char* const kTexts[] = {"index", "step", "trace"};
        return kept(std::string("capture/") + kTexts[seed % 3]);
      }
      case Parser::kNpy:
        return kept("npy/f4");
      case Parser::kZip: {
        static const char* const kZips[] = {"npz", "torch", "deflated"};
        return kept(std::string("zip/") + kZips[seed % 3]);
      }
      case Parser::kPickle:
        return kept("pickle/all_types");
      case Parser::kSession:
        return kept("session/counts");
      default:
        break;
    }
    return "";
  }
};

// Bytes that matter to JSON, and numbers at the edges.
std::string piece(std::mt19937& random) {
  static const std::vector<std::string> kPieces = {"{",
                                                   "}",
                                                   "[",
                                                   "]",
                                                   ",",
                                                   ":",
                                                   "\"",
                                                   "\\",
                                                   "null",
                                                   "true",
                                                   "-1",
                                                   "0",
                                                   "1e999",
                                                   "-1e308",
                                                   "9223372036854775807",
                                                   "18446744073709551616",
                                                   "0.5",
                                                   "\"\"",
                                                   "//",
                                                   "/*",
                                                   "*/",
                                                   "\n",
                                                   std::string(1, '\0'),
                                                   "\xff",
                                                   "\xc3\x28",
                                                   "{}",
                                                   "[]",
                                                   "[[[[",
                                                   "\"version\": 1,"};
  return kPieces[random() % kPieces.size()];
}

TEST_P(Parsers, SurviveDamage) {
  const std::string file = (std::filesystem::temp_directory_path() /
                            ("attnscope-random-" + std::to_string(getpid()) + ".json"))
                               .string();
  setenv("ATTNSCOPE_ASSETS", ATTNSCOPE_SOURCE_DIR "/assets", 1);
  for (unsigned seed = 0; seed < 1500; ++seed) {
    const std::string original = valid(seed);
    if (seed < 3) {
      ASSERT_EQ(feed(GetParam(), original, file), "");
    }
    std::mt19937 random(seed);
    std::string text = original;
    for (unsigned edits = 1 + random() % 4; edits > 0; --edits) {
      const std::size_t at = random() % (text.size() + 1);
      switch (random() % 4) {
        case 0:
          text.insert(at, piece(random));
          break;
        case 1:
          text.erase(at, 1 + random() % 8);
          break;
        case 2:
          if (at < text.size()) text[at] = static_cast<char>(random());
          break;
        default:
          text.resize(at);  // cut off
          break;
      }
    }
    ASSERT_EQ(feed(GetParam(), text, file), "") << "seed " << seed << ":\n" << text;
  }
  // Beside some inputs the other files of their parser lie.
  for (const char* more : {"", ".acap", ".model", ".goldens", ".case", ".safetensors"}) {
    std::filesystem::remove_all(file + more);
  }
}

INSTANTIATE_TEST_SUITE_P(All, Parsers,
                         testing::Values(Parser::kScenario, Parser::kModelConfig,
                                         Parser::kTolerances, Parser::kReplay, Parser::kKvEvents,
                                         Parser::kCheckpointIndex, Parser::kSafetensors,
                                         Parser::kHiddenStates, Parser::kGolden, Parser::kCase,
                                         Parser::kImportMap, Parser::kCapture, Parser::kSession,
                                         Parser::kNpy, Parser::kZip, Parser::kPickle));

}  // namespace parsers_random_test
}  // namespace attnscope::fuzz
