// Checkpoints, recorded inputs and exported taps by the command line: what a run of them gives is
// what the run they were made from gave.
#include <bit>
#include <cmath>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>

#include "engine/tensorfile/tensor_file.h"
#include "engine/tensorfile/tensor_writer.h"
#include "tests/blame/stored_otherwise.h"
#include "tests/unit/app/cli_fixture.h"

namespace attnscope {
namespace real_models_test {

using nlohmann::json;

class RealModels : public CliTest {
 protected:
  void SetUp() override {
    CliTest::SetUp();
    scenario_ = write("s.json", R"({"version": 1, "model": {"preset": "tiny", "seed": 3},
      "pool_blocks": 200, "token_budget": 64, "decode_steps": 2, "requests": [
      {"name": "a", "text_file": "manual.md", "tokens": 150, "max_new_tokens": 3}]})");
  }
  TensorFile open(const std::string& name) const {
    auto file = TensorFile::open(path(name));
    EXPECT_TRUE(file) << file.error().text();
    return std::move(*file);
  }
  void must(std::vector<std::string> arguments) const {
    const Outcome outcome = run(std::move(arguments));
    ASSERT_EQ(outcome.code, 0) << outcome.err;
  }
  void fails(std::vector<std::string> arguments, int code, const std::vector<std::string>& parts) {
    const std::string command = arguments[0];
    const Outcome outcome = run(std::move(arguments));
    EXPECT_EQ(outcome.code, code) << command << ": " << outcome.err;
    for (const std::string& part : parts) {
      EXPECT_NE(outcome.err.find(part), std::string::npos) << part << " missing: " << outcome.err;
    }
  }
  // Names of tensors of `a` that `b` lacks or holds with other bytes.
  static std::vector<std::string> differences(const TensorFile& a, const TensorFile& b) {
    std::vector<std::string> names;
    for (const TensorEntry& x : a.tensors()) {
      const TensorEntry* y = b.find(x.name);
      const bool same = y != nullptr && y->type == x.type && y->shape == x.shape &&
                        std::memcmp(x.data, y->data, x.bytes) == 0;
      if (!same) names.push_back(x.name);
    }
    return names;
  }

  std::string scenario_;
};

TEST_F(RealModels, AnExportedModelRunsAsTheOneItWasMadeFrom) {
  must({"model", "export", scenario_, "-o", path("m")});
  must({"tap-export", scenario_, "--taps", "all", "-o", path("x.safetensors")});
  must({"tap-export", scenario_, "--model", path("m"), "--taps", "all", "-o",
        path("y.safetensors")});
  const TensorFile x = open("x.safetensors");
  EXPECT_GT(x.tensors().size(), 100u);
  EXPECT_TRUE(differences(x, open("y.safetensors")).empty());

  const Outcome report =
      run({"run", scenario_, "--model", path("m"), "--references", "sim", "--json"});
  ASSERT_EQ(report.code, 0) << report.err;
  const json weights = json::parse(report.out)["weights"];
  EXPECT_EQ(weights["folder"], path("m"));
  EXPECT_EQ(weights["rounded"], 0);
  EXPECT_EQ(weights["tensors"].size(), 62u);
  EXPECT_EQ(weights["tensors"][2]["name"], "layers.0.attn_norm.weight");

  // Part of it, as FP8; and written again from there.
  must({"model", "export", path("m"), "-o", path("part"), "--dtype", "fp8", "--layers", "1,2"});
  must({"model", "export", path("part"), "-o", path("again"), "--dtype", "fp8"});
  const Outcome tensors = run({"model", "tensors", path("again"), "--json"});
  ASSERT_EQ(tensors.code, 0) << tensors.err;
  const json listed = json::parse(tensors.out);
  EXPECT_EQ(listed["layers"], json({1, 2}));
  EXPECT_EQ(listed["unused"], 1);
  for (const char* model : {"part", "again"}) {
    must({"tap-export", scenario_, "--model", path(model), "--taps", "wo_b,lm_head", "-o",
          path(std::string(model) + ".safetensors")});
  }
  EXPECT_TRUE(differences(open("part.safetensors"), open("again.safetensors")).empty());
  const Outcome shown = run({"model", "tensors", path("part")});
  EXPECT_NE(shown.out.find("F8_E4M3 x F8_E8M0"), std::string::npos) << shown.out;
  const Outcome described = run({"model", "describe", path("part")});
  EXPECT_NE(described.out.find("2 of 4 published layers"), std::string::npos) << described.out;
}

TEST_F(RealModels, RecordedInputsGiveTheSameRunAgain) {
  must({"tap-export", scenario_, "--taps", "attn_norm.y", "-o", path("h.safetensors")});
  must({"tap-export", scenario_, "--taps", "all", "-o", path("x.safetensors")});
  // Another embedding, and so other inputs, but for those that are replayed.
  must({"model", "export", scenario_, "-o", path("m")});
  {
    const std::string shard = path("m/model-00001-of-00005.safetensors");
    std::string bytes = read(shard);
    for (std::size_t i = bytes.size() - 600000 % bytes.size(); i < bytes.size(); i += 2) {
      bytes[i] = static_cast<char>(bytes[i] ^ 0x15);
    }
    std::ofstream(shard, std::ios::binary) << bytes;
  }
  must({"tap-export", scenario_, "--model", path("m"), "--hidden-states", path("h.safetensors"),
        "--taps", "all", "-o", path("y.safetensors")});
  const TensorFile x = open("x.safetensors"), y = open("y.safetensors");
  for (const std::string& name : differences(x, y)) {
    // The residual stream begins with the embedding, and the head is it.
    // What is exported as y is what the layers were given.
    const bool follows = name.find("attn_norm.x") != std::string::npos ||
                         name.find("residual") != std::string::npos || name.find("layers.") != 0;
    EXPECT_TRUE(follows) << name;
  }
  EXPECT_FALSE(differences(x, y).empty());

  const Outcome outcome = run({"run", scenario_, "--hidden-states", path("h.safetensors")});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_NE(outcome.out.find("inputs of the layers: from"), std::string::npos);
  EXPECT_NE(outcome.out.find("ref.model does not follow: layers are fed recorded hidden states;"),
            std::string::npos);
  EXPECT_NE(outcome.out.find(" 0 wrong"), std::string::npos);
  EXPECT_NE(outcome.out.find("prefix caching off"), std::string::npos);
}

// In the types of references too: ref.sim keeps the engine's, ref.exact takes what bf16 has not.
TEST_F(RealModels, RecordedInputsAreExportedAsTheLayersTookThem) {
  must({"tap-export", scenario_, "--taps", "attn_norm.y", "-o", path("h.safetensors")});
  const TensorFile recorded = open("h.safetensors");
  TensorWriter writer;
  std::vector<std::vector<double>> values;
  for (const TensorEntry& e : recorded.tensors()) {
    std::vector<double>& wide = values.emplace_back();
    for (std::int64_t i = 0; i < e.elements; ++i) {
      const auto bits = static_cast<std::uint32_t>(entry_value<std::uint16_t>(e, i)) << 16;
      wide.push_back(static_cast<double>(std::bit_cast<float>(bits)) * (1 + 0x1p-12));
    }
    writer.add(e.name, ElementType::kF64, e.shape, wide);
  }
  ASSERT_TRUE(writer.write(path("wide.safetensors")));
  for (const char* lane : {"cpu", "ref.sim", "ref.exact"}) {
    SCOPED_TRACE(lane);
    must({"tap-export", scenario_, "--hidden-states", path("wide.safetensors"), "--lane", lane,
          "--taps", "attn_norm.y", "--layer", "1", "-o", path(lane + std::string(".safetensors"))});
    const TensorFile y = open(lane + std::string(".safetensors"));
    ASSERT_EQ(y.tensors().size(), 1u);
    const TensorEntry& e = y.tensors()[0];
    const TensorEntry* own = recorded.find(e.name);
    ASSERT_NE(own, nullptr);
    std::int64_t compared = 0;
    for (std::int64_t i = 0; i < 150 * 512; ++i, ++compared) {
      const auto bits = static_cast<std::uint32_t>(entry_value<std::uint16_t>(*own, i)) << 16;
      const auto narrow = static_cast<double>(std::bit_cast<float>(bits));
      if (std::string(lane) == "ref.exact") {
        ASSERT_EQ(entry_value<double>(e, i), narrow * (1 + 0x1p-12)) << i;
      } else {
        ASSERT_EQ(entry_value<std::uint16_t>(e, i), bits >> 16) << i;
      }
    }
    EXPECT_EQ(compared, 150 * 512);
  }
}

// A folder of a preset's name is not the preset; what a seed cannot change is refused.
TEST_F(RealModels, PresetsAndSeedsMeanWhatTheySay) {
  must({"model", "export", scenario_, "-o", path("tiny")});
  const std::filesystem::path before = std::filesystem::current_path();
  std::filesystem::current_path(folder_);
  must({"model", "export", "tiny", "-o", "preset", "--seed", "5"});
  must({"model", "export", "./tiny", "-o", "folder"});
  const Outcome seeded = run({"model", "export", "./tiny", "-o", "no", "--seed", "5"});
  const Outcome described = run({"model", "describe", "tiny", "--json"});
  const Outcome swept = run({"sweep", scenario_, "--model", "./tiny", "--vary", "seed=1,2"});
  std::filesystem::current_path(before);
  EXPECT_EQ(seeded.code, 2);
  EXPECT_NE(seeded.err.find("--seed 5 has no effect"), std::string::npos) << seeded.err;
  EXPECT_FALSE(std::filesystem::exists(path("no")));
  EXPECT_EQ(described.code, 0) << described.err;
  EXPECT_EQ(swept.code, 2);
  EXPECT_NE(swept.err.find("has no effect"), std::string::npos) << swept.err;
  const auto same = [&](const char* a, const char* b) {
    return read(path(std::string(a) + "/model-00001-of-00005.safetensors")) ==
           read(path(std::string(b) + "/model-00001-of-00005.safetensors"));
  };
  EXPECT_TRUE(same("tiny", "folder"));
  EXPECT_FALSE(same("tiny", "preset"));
}

// The call that the scenario makes with that model and those inputs.
TEST_F(RealModels, CasesAreSavedWithAModelAndItsInputs) {
  must({"model", "export", "tiny", "-o", path("m"), "--seed", "9"});
  must({"tap-export", scenario_, "--taps", "attn_norm.y", "-o", path("h.safetensors")});
  const auto save = [&](const std::string& name, std::vector<std::string> more) {
    more.insert(more.begin(),
                {"case", "save", scenario_, "--at", "0/1/q_kv_a_proj", "-o", path(name + ".json")});
    must(std::move(more));
    return open(name + ".safetensors");
  };
  const TensorFile plain = save("plain", {});
  const TensorFile model = save("model", {"--model", path("m")});
  const TensorFile inputs =
      save("inputs", {"--model", path("m"), "--hidden-states", path("h.safetensors")});
  const auto same = [](const TensorFile& a, const TensorFile& b, const char* name) {
    const TensorEntry *x = a.find(name), *y = b.find(name);
    return x != nullptr && y != nullptr && x->bytes == y->bytes &&
           std::memcmp(x->data, y->data, x->bytes) == 0;
  };
  EXPECT_FALSE(same(plain, model, "weight"));
  EXPECT_FALSE(same(plain, model, "x"));
  EXPECT_TRUE(same(model, inputs, "weight"));
  EXPECT_TRUE(same(plain, inputs, "x"));
  must({"case", "run", path("inputs.json"), "--lane", "ref.sim"});
  must({"record", scenario_, "--steps", "1", "--level", "full", "-o", path("r.acap")});
  fails({"case", "save", path("r.acap"), "--at", "0/1/q_kv_a_proj", "--model", path("m"), "-o",
         path("x.json")},
        2, {"is a capture", "--model"});
}

TEST_F(RealModels, SinksInBf16AreWarnedOf) {
  must({"model", "export", scenario_, "-o", path("m")});
  std::filesystem::create_directory(path("narrow"));
  std::filesystem::copy(path("m/config.json"), path("narrow/config.json"));
  std::vector<TensorFile> shards;
  for (int i = 1; i <= 5; ++i) {
    shards.push_back(open("m/model-0000" + std::to_string(i) + "-of-00005.safetensors"));
  }
  TensorWriter writer;
  std::vector<std::vector<std::uint8_t>> bytes;
  for (const TensorFile& shard : shards) {
    for (const TensorEntry& e : shard.tensors()) {
      std::vector<std::uint8_t>& own = bytes.emplace_back(e.data, e.data + e.bytes);
      const bool sink = e.name == "layers.1.attn.attn_sink";
      if (sink) {
        for (std::size_t i = 0; i < own.size() / 4; ++i) {
          own[2 * i] = own[4 * i + 2];
          own[2 * i + 1] = own[4 * i + 3];
        }
        own.resize(own.size() / 2);
      }
      writer.add(e.name, sink ? ElementType::kBf16 : e.type, e.shape, own);
    }
  }
  ASSERT_TRUE(writer.write(path("narrow/model.safetensors")));
  const std::string warning = "attn_sink is stored as bf16";
  EXPECT_NE(run({"model", "tensors", path("narrow")}).out.find(warning), std::string::npos);
  EXPECT_EQ(run({"model", "tensors", path("m")}).out.find(warning), std::string::npos);
  const Outcome ran =
      run({"run", scenario_, "--model", path("narrow"), "--steps", "1", "--references", "none"});
  EXPECT_EQ(ran.code, 0) << ran.err;
  EXPECT_NE(ran.out.find("warning: " + warning), std::string::npos) << ran.out;
  EXPECT_NE(ran.out.find("(tensors: 1)"), std::string::npos) << ran.out;
}

TEST_F(RealModels, OneMessageSaysHowManyTensorsAreInOtherFloats) {
  must({"model", "export", scenario_, "-o", path("m")});
  store_otherwise(path("m"), ElementType::kF64);
  const std::string warning = "warning: stored as F64, published in bf16 or F32: values were";
  for (const std::vector<std::string>& command :
       {std::vector<std::string>{"run", scenario_, "--model", path("m"), "--steps", "1"},
        std::vector<std::string>{"model", "tensors", path("m")}}) {
    const Outcome outcome = run(command);
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    const std::size_t at = outcome.out.find(warning);
    ASSERT_NE(at, std::string::npos) << outcome.out;
    EXPECT_EQ(outcome.out.find(warning, at + 1), std::string::npos) << outcome.out;
    const std::string line = outcome.out.substr(at, outcome.out.find('\n', at) - at);
    // All 63 that were written but head.weight, which the embedding stands for.
    EXPECT_TRUE(line.ends_with(" (tensors: 62)")) << line;
  }
}

TEST_F(RealModels, TapsOfReferencesHaveTheirOwnTypes) {
  must({"tap-export", scenario_, "--lane", "ref.exact", "--layer", "1", "--taps",
        "sparse_attention,compress_insert,indexer_q.q,indexer_logits,lm_head.y", "-o",
        path("e.safetensors")});
  const TensorFile e = open("e.safetensors");
  const auto entry = [&](const std::string& name) -> const TensorEntry& {
    const TensorEntry* found = e.find(name);
    EXPECT_NE(found, nullptr) << name;
    static const TensorEntry none;
    return found != nullptr ? *found : none;
  };
  using Shape = std::vector<std::int64_t>;
  EXPECT_EQ(e.tensors().size(), 7u);
  const TensorEntry& o = entry("layers.1.sparse_attention.o");
  EXPECT_EQ(o.type, ElementType::kF64);
  EXPECT_EQ(o.shape, (Shape{152, 8, 512}));
  EXPECT_EQ(entry("layers.1.compress_insert.cache").shape, (Shape{152, 512}));
  EXPECT_EQ(entry("layers.1.indexer_q.q").type, ElementType::kF64);
  const TensorEntry& scores = entry("layers.1.indexer_logits.logits");
  EXPECT_EQ(scores.shape, (Shape{152, 38}));
  // Token 2 sees no entry, token 8 sees two; the rest of the row is NaN.
  const auto* values = reinterpret_cast<const double*>(scores.data);
  EXPECT_TRUE(std::isnan(values[2 * 38]));
  EXPECT_FALSE(std::isnan(values[8 * 38 + 1]));
  EXPECT_TRUE(std::isnan(values[8 * 38 + 2]));
  // Rows of the head belong to the positions that are sampled from.
  const TensorEntry& head = entry("lm_head.y");
  const auto* logits = reinterpret_cast<const double*>(head.data);
  EXPECT_TRUE(std::isnan(logits[148 * 256]));
  EXPECT_FALSE(std::isnan(logits[149 * 256]));

  const json taps = json::parse(e.metadata().at("attnscope.taps"));
  EXPECT_EQ(taps["layers.1.sparse_attention.o"]["strides"], json({4096, 512, 1}));
  EXPECT_EQ(taps["layers.1.sparse_attention.o"]["axes"], "T,H,D");
  EXPECT_EQ(taps["lm_head.y"]["lane"], "ref.exact");

  must({"tap-export", scenario_, "--lane", "ref.sim", "--layer", "1", "--taps", "compress_insert",
        "-o", path("m.safetensors")});
  must({"tap-export", scenario_, "--layer", "1", "--taps", "compress_insert,block_tables.tables",
        "-o", path("c.safetensors")});
  const TensorFile sim = open("m.safetensors"), cpu = open("c.safetensors");
  const TensorEntry *a = sim.find("layers.1.compress_insert.cache"),
                    *b = cpu.find("layers.1.compress_insert.cache");
  ASSERT_NE(a, nullptr);
  ASSERT_NE(b, nullptr);
  EXPECT_EQ(a->type, ElementType::kU8);
  EXPECT_EQ(a->shape, b->shape);  // records: paged there, logical here
  std::size_t same = 0, all = 0;
  for (std::int64_t p = 3; p < 152; p += 4) {
    const auto row = static_cast<std::size_t>(p * a->shape[1]);
    for (std::size_t i = row; i < row + static_cast<std::size_t>(a->shape[1]); ++i, ++all) {
      same += a->data[i] == b->data[i] ? 1 : 0;
    }
  }
  EXPECT_GT(same, all * 9 / 10);  // the rest follows from roundings of the layer before
  EXPECT_NE(cpu.find("step.0.block_tables.tables"), nullptr);
}

TEST_F(RealModels, SeveralRequestsAreToldApart) {
  const std::string two = write("two.json", R"({"version": 1, "model": {"preset": "tiny",
    "layers": [0]}, "pool_blocks": 200, "decode_steps": 1, "requests": [
    {"name": "a", "text": "The window moves.", "max_new_tokens": 2},
    {"name": "b", "text": "It does.", "max_new_tokens": 2}]})");
  must({"tap-export", two, "--taps", "attn_norm.y,attn_norm.weight", "-o", path("h.safetensors")});
  const TensorFile h = open("h.safetensors");
  ASSERT_NE(h.find("a/layers.0.attn_norm.y"), nullptr);
  EXPECT_EQ(h.find("a/layers.0.attn_norm.y")->shape[0], 18);
  EXPECT_EQ(h.find("b/layers.0.attn_norm.y")->shape[0], 9);
  EXPECT_NE(h.find("layers.0.attn_norm.weight"), nullptr);
  must({"tap-export", two, "--hidden-states", path("h.safetensors"), "--taps", "wo_b.y", "-o",
        path("y.safetensors")});
  must({"tap-export", two, "--taps", "wo_b.y", "-o", path("x.safetensors")});
  EXPECT_TRUE(differences(open("x.safetensors"), open("y.safetensors")).empty());
}

TEST_F(RealModels, WhatIsWrongIsNamed) {
  const std::string out = path("o.safetensors");
  fails({"run", scenario_, "--model", path("absent")}, 3, {"--model", "no such folder"});
  fails({"run", scenario_, "--hidden-states", path("absent")}, 3, {"--hidden-states", "no such"});
  fails({"run", scenario_, "--model", folder_.string()}, 3, {"config.json", "cannot open"});
  fails({"model", "tensors", folder_.string()}, 3, {"no folder with a config.json"});
  fails({"model", "export", "absent", "-o", path("m")}, 3, {"absent"});
  fails({"model", "export", "tiny", "-o", path("x/y")}, 3, {"does not exist"});
  fails({"model", "export", "tiny", "-o", path("m"), "--dtype", "fp4"}, 2, {"fp4"});
  fails({"model", "export", "tiny", "-o", path("m"), "--layers", "4"}, 3, {"layer 4", "0 to 3"});
  fails({"tap-export", scenario_, "--taps", "sparse_atention", "-o", out}, 2,
        {"did you mean sparse_attention"});
  fails({"tap-export", scenario_, "--taps", "wo_b.z", "-o", out}, 2, {"there is no z"});
  fails({"tap-export", scenario_, "--taps", "sample", "--lane", "ref.sim", "-o", out}, 2,
        {"references do not run this op"});
  fails({"tap-export", scenario_, "--taps", "wo_b", "--layer", "7", "-o", out}, 2,
        {"layers that run: 0, 1, 2, 3"});
  fails({"tap-export", scenario_, "--taps", "wo_b", "--lane", "ref.none", "-o", out}, 2,
        {"ref.none"});
  fails({"tap-export", scenario_, "--taps", "wo_b", "-o", path("x/y.safetensors")}, 3,
        {"must exist"});
  // Recorded from a model of another width; too few rows; a folder in the place of a file.
  must({"tap-export", scenario_, "--taps", "attn_norm.y", "--layer", "0,1,2,3", "--steps", "1",
        "-o", path("h.safetensors")});
  const std::string longer = write("long.json", R"({"version": 1, "model": {"preset": "tiny"},
    "pool_blocks": 400, "requests": [{"text_file": "manual.md", "tokens": 400,
    "max_new_tokens": 1}]})");
  fails({"run", longer, "--hidden-states", path("h.safetensors")}, 3,
        {"layers.0.attn_norm.y", "400 tokens", "at most 150"});
  fails({"run", scenario_, "--hidden-states", folder_.string()}, 3, {"not a plain file"});
  EXPECT_FALSE(std::filesystem::exists(out));
}

}  // namespace real_models_test
}  // namespace attnscope
