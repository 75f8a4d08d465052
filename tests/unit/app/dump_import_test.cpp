// Dumps as they are: a file that transformers' own model left by assets/python/dump_hf.py, and what
// maps say of tensors that lie in pieces or are of the model's size.
#include <fmt/format.h>

#include <algorithm>

#include "engine/opcase/case_file.h"
#include "engine/tensorfile/dump_file.h"
#include "engine/tensorfile/tensor_writer.h"
#include "tests/unit/app/cli_fixture.h"

namespace attnscope {
namespace dump_import_test {

class DumpImport : public CliTest {
 protected:
  static std::string fixture(const std::string& name) {
    return ATTNSCOPE_SOURCE_DIR "/tests/fixtures/dumps/" + name;
  }
  // A norm of 3 tokens: y = x * rsqrt(mean(x^2)) with weights of 1.
  void write_norm(std::int64_t hidden) {
    const auto width = static_cast<std::size_t>(hidden);
    const std::vector<float> minus(width, -2), plus(2 * width, 2), ones(width, 1);
    // The result in columns 8 and on of wider rows, [1, 3, 8 + hidden].
    std::vector<float> wide(3 * (8 + width), 1);
    for (std::size_t i = 0; i < wide.size(); ++i) {
      if (i % (8 + width) < 8) wide[i] = 77;
    }
    std::fill_n(wide.begin() + 8, width, -1.0f);
    TensorWriter writer;
    writer.add("first", ElementType::kF32, {1, hidden}, minus);
    writer.add("others", ElementType::kF32, {2, hidden}, plus);
    writer.add("weight", ElementType::kF32, {hidden}, ones);
    writer.add("wide", ElementType::kF32, {1, 3, 8 + hidden}, wide);
    ASSERT_TRUE(writer.write(path("dump.safetensors")));
  }
  Outcome import_norm(const std::string& x, const std::string& y, const std::string& more = "") {
    const std::string map = write(
        "map.json", R"({"format": "attnscope-import-map", "version": 1, "engine": "other", "ops": )"
                    R"({"attn_norm": {"tensors": {"x": )" +
                        x + R"(, "weight": {"name": "weight", "shape": ["hidden"]}, "y": )" + y +
                        R"(}, "numbers": {"eps": "rms_eps"}}}})");
    return run(fmt::format("case import {} {} -o {} --op attn_norm --force{}", map,
                           path("dump.safetensors"), path("norm.json"), more));
  }
  using CliTest::run;
  Outcome run(const std::string& words) {
    std::vector<std::string> list;
    std::size_t at = 0;
    while (at < words.size()) {
      const std::size_t end = std::min(words.find(' ', at), words.size());
      list.push_back(words.substr(at, end - at));
      at = end + 1;
    }
    return CliTest::run(list);
  }
};

TEST_F(DumpImport, EveryOpOfTransformersOwnModelIsJudgedAndNoneAccused) {
  const Outcome out = run(fmt::format("case import hf {} -o {} --model {}", fixture("hf.pt"),
                                      path("hf.acap"), fixture("hf.config.json")));
  EXPECT_EQ(out.code, 0) << out.out << out.err;
  EXPECT_NE(out.out.find("14 ops"), std::string::npos) << out.out;
  EXPECT_NE(out.out.find("15 taps, 0 wrong; 1 ops left out of the capture: 1 taps, 0 wrong"),
            std::string::npos)
      << out.out;
  EXPECT_EQ(run("show " + path("hf.acap")).code, 0);
}

TEST_F(DumpImport, AMistakeInThatModelIsNamed) {
  std::string map = read(ATTNSCOPE_SOURCE_DIR "/assets/maps/hf.json");
  const std::string scale = R"("scale": "scale")";
  map.replace(map.find(scale), scale.size(), R"("scale": 0.05)");
  const Outcome out =
      run(fmt::format("case import {} {} -o {} --model {}", write("scale.json", map),
                      fixture("hf.pt"), path("hf.acap"), fixture("hf.config.json")));
  EXPECT_EQ(out.code, 1) << out.out << out.err;
  EXPECT_NE(out.out.find("workspace_attention of layer 0 of step 0: o is wrong"), std::string::npos)
      << out.out;
}

TEST_F(DumpImport, AMapOfThatModelIsFoundAndTaken) {
  const std::string dump = fixture("hf.pt"), model = " --model " + fixture("hf.config.json");
  const Outcome out = run("case import --guess " + dump + " -o " + path("g.acap") + model);
  EXPECT_EQ(out.code, 0) << out.out << out.err;
  // By names, by the axes that heads have, by the numbers of an embedding; and what is left over.
  for (const char* part :
       {"q_b_proj of layer 0 (C4A): x = ", "workspace_attention of layer 0 (C4A): q = ",
        "heads first", "inverse_rope of layer 0 (C4A): ", "rope of base 160000 from",
        "the reference is right with it", "not found: of no op: ", "kv_proj.weight", " 0 wrong"}) {
    EXPECT_NE(out.out.find(part), std::string::npos) << part << ": " << out.out;
  }
  EXPECT_EQ(out.out.find("by names alone"), std::string::npos) << out.out;
  const Outcome again =
      run("case import " + path("g.map.json") + " " + dump + " -o " + path("again.acap") + model);
  EXPECT_EQ(again.code, 0) << again.out << again.err;
}

TEST_F(DumpImport, AWrongOpIsTakenByItsNamesAndAccused) {
  const auto dump = open_dump(fixture("hf.pt"));
  ASSERT_TRUE(dump) << dump.error().text();
  const std::vector<float> zeros(12 * 64, 0);
  TensorWriter writer;
  for (const TensorEntry& e : dump->tensors()) {
    const bool wrong = e.name == "model.layers.0.self_attn.o_b_proj.output";
    ASSERT_TRUE(!wrong || e.elements == 12 * 64);
    if (wrong) {
      writer.add(e.name, ElementType::kF32, e.shape, zeros);
    } else {
      writer.add(e.name, e.type, e.shape, e.data, e.bytes);
    }
  }
  ASSERT_TRUE(writer.write(path("wrong.safetensors")));
  const Outcome out = run("case import --guess " + path("wrong.safetensors") + " -o " +
                          path("w.acap") + " --model " + fixture("hf.config.json"));
  EXPECT_EQ(out.code, 1) << out.out << out.err;
  EXPECT_NE(out.out.find("by names alone"), std::string::npos) << out.out;
  EXPECT_NE(out.out.find("blamed: wo_b"), std::string::npos) << out.out;
}

TEST_F(DumpImport, WhereNamesSayNothingTheValuesDo) {
  // y = x w; the other square matrix and the other rows fit as well.
  const auto filled = [](std::size_t count, unsigned seed) {
    std::vector<float> out(count);
    for (float& value : out) {
      seed = seed * 1664525 + 1013904223;
      value = static_cast<float>(static_cast<int>(seed >> 24) - 128) / 64;
    }
    return out;
  };
  constexpr std::size_t kTokens = 5, kWidth = 64;
  const auto x = filled(kTokens * kWidth, 1), other = filled(kTokens * kWidth, 2);
  const auto weight = filled(kWidth * kWidth, 3), wrong = filled(kWidth * kWidth, 4);
  std::vector<float> y(kTokens * kWidth);
  for (std::size_t i = 0; i < y.size(); ++i) {
    for (std::size_t k = 0; k < kWidth; ++k) {
      y[i] += x[i / kWidth * kWidth + k] * weight[i % kWidth * kWidth + k];
    }
  }
  TensorWriter writer;
  const std::int64_t tokens = kTokens, width = kWidth;
  writer.add("a", ElementType::kF32, {tokens, width}, other);
  writer.add("b", ElementType::kF32, {width, width}, wrong);
  writer.add("c", ElementType::kF32, {tokens, width}, y);
  writer.add("d", ElementType::kF32, {width, width}, weight);
  writer.add("e", ElementType::kF32, {tokens, width}, x);
  ASSERT_TRUE(writer.write(path("plain.safetensors")));
  const Outcome out =
      run("case import --guess " + path("plain.safetensors") + " -o " + path("p.json"));
  EXPECT_EQ(out.code, 0) << out.out << out.err;
  EXPECT_NE(out.out.find("x = \"e\" (by shape), weight = \"d\" (by shape), y = \"c\" (by shape)"),
            std::string::npos)
      << out.out;
  EXPECT_NE(out.out.find("not found: of no op: \"a\", \"b\""), std::string::npos) << out.out;
}

TEST_F(DumpImport, PiecesAreJoinedSlicedAndOfTheModelsSize) {
  write_norm(512);  // the hidden size of tiny
  const std::string x = R"({"concat": ["first", "others"]})";
  const Outcome out = import_norm(x, R"({"name": "wide", "axes": 2, "slice": [1, 8, "hidden+8"]})",
                                  " --model tiny");
  ASSERT_EQ(out.code, 0) << out.out << out.err;
  EXPECT_EQ(run("case run " + path("norm.json") + " --lane ref.sim").code, 0);
  const OpCase kept = *read_case(path("norm.json"));
  EXPECT_EQ(kept.tensors.at("x").shape, (std::vector<std::int64_t>{3, 512}));
  EXPECT_EQ(kept.tensors.at("y").shape, (std::vector<std::int64_t>{3, 512}));
  // The other end of the rows is another result.
  ASSERT_EQ(
      import_norm(x, R"({"name": "wide", "axes": 2, "slice": [1, 0, "hidden"]})", " --model tiny")
          .code,
      0);
  EXPECT_EQ(run("case run " + path("norm.json") + " --lane ref.sim").code, 1);
}

TEST_F(DumpImport, WhatDoesNotFitTogetherIsSaid) {
  write_norm(512);
  const std::string y = R"({"name": "wide", "axes": 2, "slice": [1, 8, 520]})";
  const auto expect = [&](const Outcome& out, const char* part) {
    EXPECT_EQ(out.code, 3) << out.out;
    EXPECT_NE(out.err.find(part), std::string::npos) << out.err;
  };
  expect(import_norm(R"({"concat": ["first", "weight"]})", y, " --model tiny"),
         "does not continue");
  expect(import_norm(R"({"concat": ["first", "others"], "axis": 2})", y, " --model tiny"),
         "has no axis 2");
  const std::string x = R"({"concat": ["first", "others"]})";
  expect(import_norm(x, R"({"name": "wide", "axes": 2, "slice": [1, 8, 521]})", " --model tiny"),
         "slice [1,8,521] is not inside");
  expect(import_norm(x, y), "none is named");
  expect(import_norm(x, R"({"name": "wide", "shape": [-1, "hiden"]})", " --model tiny"),
         "\"hiden\" is no dimension of a model");
}

// A dump that is itself the tensors of a case, a map, a file of the capture that is written.
TEST_F(DumpImport, WhatIsReadIsNotReplaced) {
  write_norm(512);
  ASSERT_EQ(import_norm(R"({"concat": ["first", "others"]})",
                        R"({"name": "wide", "axes": 2, "slice": [1, 8, 520]})", " --model tiny")
                .code,
            0);
  const std::string tensors = path("norm.safetensors"), before = read(tensors);
  ASSERT_FALSE(before.empty());
  const std::string own = write("own.json", R"({"format": "attnscope-import-map", "version": 1,
      "engine": "case", "ops": {"attn_norm": {"tensors": {"x": {"name": "x"},
      "weight": {"name": "weight"}, "y": {"name": "y"}}, "numbers": {"eps": 1e-6}}}})");
  const Outcome out =
      run(fmt::format("case import {} {} -o {} --force", own, tensors, path("norm.json")));
  EXPECT_EQ(out.code, 3) << out.out;
  EXPECT_NE(out.err.find("holds the tensors of the case"), std::string::npos) << out.err;
  EXPECT_EQ(read(tensors), before);
  EXPECT_EQ(run(fmt::format("case import {} {} -o {}", own, tensors, path("other.json"))).code, 0);
  EXPECT_EQ(run(fmt::format("case run {} --lane cpu", path("other.json"))).code, 0);
  const Outcome map = run(fmt::format("case import {} {} -o {} --force", own, tensors, own));
  EXPECT_EQ(map.code, 3) << map.out;
  EXPECT_NE(map.err.find("is read, and would be replaced"), std::string::npos) << map.err;
  std::filesystem::create_directories(path("a.acap"));
  std::filesystem::copy_file(tensors, path("a.acap/d.safetensors"));
  const Outcome inside = run(fmt::format("case import {} {} -o {}/ --force --model tiny", own,
                                         path("a.acap/d.safetensors"), path("a.acap")));
  EXPECT_EQ(inside.code, 3) << inside.out;
  EXPECT_TRUE(std::filesystem::exists(path("a.acap/d.safetensors")));
}

}  // namespace dump_import_test
}  // namespace attnscope
