// attnscope backends: what it prints, in words and as JSON, and what it refuses.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "tests/unit/app/cli_fixture.h"

namespace attnscope {
namespace backends_cli_test {

using nlohmann::json;

class BackendsCli : public CliTest {
 protected:
  static json explained(std::vector<std::string> words) {
    words.insert(words.begin(), {"backends", "explain"});
    words.emplace_back("--json");
    const Outcome done = run(words);
    EXPECT_EQ(done.code, 0) << done.err;
    return json::parse(done.out, nullptr, false);
  }
  static json line_of(const json& explained, const std::string& backend) {
    for (const json& line : explained["backends"]) {
      if (line["backend"] == backend) return line;
    }
    return {};
  }
};

TEST_F(BackendsCli, ExplainMarksThePathTaken) {
  const Outcome done = run({"backends", "explain", "tiny-llama", "--gpu", "sm_80"});
  ASSERT_EQ(done.code, 0) << done.err;
  for (const char* part :
       {"tiny-llama on sm_80: FLASH_ATTN (FA2), number 1 of 5 that are tried; 3 of them accepted.",
        "asked: 8 heads, 2 KV heads with size 32, bfloat16, cache auto, decoder",
        "given: blocks of 16 tokens, layout NHD, block tables, CUDA graphs: uniform batch",
        "->  1  FLASH_ATTN ", "    2  FLASHINFER ", "head size: asked 32, allowed 64, 128, 256",
        "    -  ROCM_ATTN ", "platform: asked cuda, allowed rocm", "not tried unless named:",
        "    -  MAMBA2 ", "layer kind: asked attention, allowed mamba2"}) {
    EXPECT_NE(done.out.find(part), std::string::npos) << part << "\n" << done.out;
  }
}

TEST_F(BackendsCli, OccupancyIsOfEveryGpuOrOfOne) {
  const std::vector<std::string> words = {"backends",    "occupancy", "--threads", "256",
                                          "--registers", "128",       "--shared",  "114688"};
  const Outcome all = run(words);
  ASSERT_EQ(all.code, 0) << all.err;
  for (const char* part :
       {"sm_80   1 block of 8 warps at once, 12 % of 64 warps; shared memory lets no more run",
        "sm_89   refused: shared 114688 of a launch on sm_89",
        "sm_90   2 blocks of 8 warps at once, 25 % of 64 warps; registers and shared memory let",
        "blocks by limit: threads 8, blocks 32, registers 2, shared memory 2"}) {
    EXPECT_NE(all.out.find(part), std::string::npos) << part << "\n" << all.out;
  }
  // Two lines a GPU, one where it refuses.
  EXPECT_EQ(std::ranges::count(all.out, '\n'), 10) << all.out;
  std::vector<std::string> one = words;
  one.insert(one.end(), {"--gpu", "sm_90", "--json"});
  const json parsed = json::parse(run(one).out);
  EXPECT_EQ(parsed["format"], "attnscope-occupancy");
  ASSERT_EQ(parsed["gpus"].size(), 1u);
  EXPECT_EQ(parsed["gpus"][0]["blocks"], 2);
  EXPECT_EQ(parsed["gpus"][0]["limits"]["threads"], 8);
  EXPECT_EQ(run({"backends", "occupancy", "--threads", "2000"}).code, 3);
  EXPECT_EQ(run({"backends", "occupancy", "--threads", "64", "--gpu", "rocm"}).code, 3);
  EXPECT_EQ(run({"backends", "occupancy"}).code, 2);
}

TEST_F(BackendsCli, ExplainFollowsItsOptions) {
  EXPECT_EQ(explained({"tiny-gemma", "--gpu", "sm_100"})["taken"], "FLASHINFER");
  EXPECT_EQ(explained({"tiny-gemma", "--gpu", "sm_100"})["layout"], "HND");
  EXPECT_EQ(explained({"tiny-gemma", "--dtype", "float32"})["taken"], "TRITON_ATTN");
  EXPECT_EQ(explained({"tiny-gemma", "--cache-dtype", "turboquant_k8v4"})["taken"], "TURBOQUANT");
  EXPECT_EQ(explained({"tiny-gemma", "--backend", "triton_attn"})["taken"], "TRITON_ATTN");
  EXPECT_EQ(explained({"tiny-gemma", "--gpu", "cpu"})["taken"], "CPU_ATTN");
  EXPECT_EQ(explained({"tiny-gemma", "--type", "encoder", "--gpu", "sm_100"})["taken"],
            "FLASH_ATTN");
  EXPECT_EQ(explained({"tiny-gemma", "--with", "mm_prefix,non_causal"})["taken"], "FLEX_ATTENTION");
  EXPECT_EQ(explained({"tiny-gemma", "--gpu", "sm_80", "--with", "sinks"})["taken"], "TRITON_ATTN");
  const json blocks = explained({"tiny-gemma", "--block-size", "24"});
  EXPECT_EQ(blocks["block_size"], 24);
  EXPECT_EQ(blocks["notes"].size(), 1u);
}

TEST_F(BackendsCli, ExplainOfDeepSeekV4NamesItsOwn) {
  const json v4 = explained({"v4-flash"});
  EXPECT_EQ(v4["format"], "attnscope-backends");
  EXPECT_EQ(v4["taken"], "FLASHMLA_SPARSE_DSV4");
  EXPECT_EQ(v4["block_size"], 256);
  EXPECT_EQ(line_of(v4, "FLASHMLA_SPARSE_DSV4")["here"], "lanes cpu and cuda compute it");
  const json sparse = line_of(v4, "FLASHMLA_SPARSE");
  ASSERT_EQ(sparse["broken"].size(), 2u);
  EXPECT_EQ(sparse["broken"][0]["rule"], "head size");
  EXPECT_EQ(sparse["broken"][0]["asked"], "512");
  EXPECT_EQ(sparse["broken"][1]["rule"], "sinks");
}

TEST_F(BackendsCli, ExplainReadsConfigFilesOfOthers) {
  const std::string file = write("config.json", R"({"model_type": "gemma2",
    "num_hidden_layers": 2, "num_attention_heads": 8, "head_dim": 256,
    "attn_logit_softcapping": 50.0})");
  EXPECT_EQ(explained({file})["taken"], "FLASH_ATTN");
  write("config.json", R"({"model_type": "gemma2", "num_attention_heads": "eight"})");
  const Outcome broken = run({"backends", "explain", file});
  EXPECT_EQ(broken.code, 3);
  EXPECT_NE(broken.err.find("config.json: num_attention_heads"), std::string::npos) << broken.err;
}

// The tree is printed first: it is what explains the error.
TEST_F(BackendsCli, NoneOrARefusedNameIsAnErrorBehindTheTree) {
  Outcome none = run({"backends", "explain", "v4-flash", "--gpu", "sm_80"});
  EXPECT_EQ(none.code, 3);
  EXPECT_NE(none.out.find("none of 7 backends that are tried accepts it"), std::string::npos);
  EXPECT_NE(none.err.find("no attention backend accepts it"), std::string::npos) << none.err;
  none = run({"backends", "explain", "tiny-llama", "--backend", "FLASHMLA"});
  EXPECT_EQ(none.code, 3);
  EXPECT_NE(none.out.find("FLASHMLA was named and is refused"), std::string::npos);
  EXPECT_NE(none.err.find("MLA: asked keys and values a head"), std::string::npos) << none.err;
  none = run({"backends", "explain", "tiny-llama", "--with", "alibi", "--backend", "flashinfer"});
  EXPECT_EQ(none.code, 3);
  EXPECT_NE(none.out.find("(when the layer is made)"), std::string::npos) << none.out;
}

TEST_F(BackendsCli, WrongWordsAreUsage) {
  for (const std::vector<std::string>& words :
       std::vector<std::vector<std::string>>{{"--gpu", "h100"},
                                             {"--dtype", "bf16"},
                                             {"--cache-dtype", "fp9"},
                                             {"--backend", "NOBODY"},
                                             {"--type", "both"},
                                             {"--with", "luck"},
                                             {"--block-size", "0"}}) {
    std::vector<std::string> all{"backends", "explain", "tiny-llama"};
    all.insert(all.end(), words.begin(), words.end());
    EXPECT_EQ(run(all).code, 2) << words[0];
  }
  const Outcome nobody = run({"backends", "explain", "tiny-lama"});
  EXPECT_NE(nobody.code, 0);
  EXPECT_NE(nobody.err.find("tiny-lama"), std::string::npos);
  EXPECT_EQ(run({"backends"}).code, 2);
}

TEST_F(BackendsCli, ListHasEveryRow) {
  const Outcome done = run({"backends", "list"});
  ASSERT_EQ(done.code, 0) << done.err;
  EXPECT_NE(done.out.find("29 backends;"), std::string::npos);
  EXPECT_NE(done.out.find("cannot run here: there is no lane for AMD's GPUs"), std::string::npos);
  const json rows = json::parse(run({"backends", "list", "--json"}).out, nullptr, false);
  ASSERT_EQ(rows["backends"].size(), 29u);
  EXPECT_EQ(rows["backends"][0]["backend"], "FLASH_ATTN");
  EXPECT_EQ(rows["backends"][0]["versions"], json({"FA2", "FA3", "FA4", "XPU"}));
}

TEST_F(BackendsCli, WorkspaceSumsByNumbersOrModel) {
  const Outcome done = run({"backends", "workspace"});
  ASSERT_EQ(done.code, 0) << done.err;
  EXPECT_NE(done.out.find("32 GiB"), std::string::npos) << done.out;
  EXPECT_NE(done.out.find("256 x 8192 x 32 x 128 x 4"), std::string::npos);
  const auto bytes = [](std::vector<std::string> words, std::size_t sum) {
    words.insert(words.begin(), {"backends", "workspace"});
    words.emplace_back("--json");
    const json all = json::parse(run(words).out, nullptr, false);
    return all["sums"][sum]["bytes"].get<std::int64_t>();
  };
  EXPECT_EQ(bytes({"tiny-llama", "--batch", "4", "--max-seq", "1024"}, 0), 4 * 1024 * 8 * 32 * 4);
  EXPECT_EQ(bytes({"tiny-llama", "--heads", "16", "--batch", "4", "--splits", "2"}, 1),
            2 * 16 * 4 * 32 * 4);
  // One row of 512 for all heads.
  EXPECT_EQ(bytes({"v4-flash", "--gathered", "100"}, 5), 100 * 512 * 2);
  const Outcome uneven = run({"backends", "workspace", "--kv-heads", "100", "--heads", "8"});
  EXPECT_EQ(uneven.code, 3) << uneven.out;
  EXPECT_NE(uneven.err.find("8 heads do not share 100 KV heads evenly"), std::string::npos)
      << uneven.err;
  const Outcome none = run({"backends", "explain", "tiny-llama", "--gpu", "sm_99"});
  EXPECT_EQ(none.code, 3) << none.out;
  EXPECT_NE(none.err.find("no GPU has compute capability sm_99"), std::string::npos) << none.err;
  const Outcome wrong = run({"backends", "workspace", "--batch", "0"});
  EXPECT_EQ(wrong.code, 3);
  EXPECT_NE(wrong.err.find("batch 0 is out of range"), std::string::npos);
}

}  // namespace backends_cli_test
}  // namespace attnscope
