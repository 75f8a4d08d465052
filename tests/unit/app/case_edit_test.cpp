// A case with one thing changed, without a map.
#include "engine/opcase/case_edit.h"

#include <cmath>
#include <cstring>
#include <fstream>
#include <functional>

#include "engine/opcase/case_edit_check.h"
#include "engine/opcase/case_file.h"
#include "engine/tensorfile/tensor_writer.h"
#include "engine/trace/compare.h"
#include "tests/unit/app/cli_fixture.h"

namespace attnscope {
namespace case_edit_test {

class CaseEdit : public CliTest {
 protected:
  void SetUp() override {
    CliTest::SetUp();
    ASSERT_EQ(
        run({"case", "save", "early", "--at", "1/1/sparse_attention", "-o", path("a.json")}).code,
        0);
    kept_ = std::move(*read_case(path("a.json")));
  }
  Outcome edit(std::vector<std::string> words, const std::string& to = "b.json") const {
    std::vector<std::string> command = {"case", "edit", path("a.json"), "-o", path(to)};
    command.insert(command.end(), words.begin(), words.end());
    return run(command);
  }
  OpCase kept_;
};

TEST_F(CaseEdit, AnInputAndANumberAreOthersAndTheOutputsFollow) {
  const std::vector<float> sinks(static_cast<std::size_t>(kept_.tensors.at("sinks").shape[0]), 3);
  TensorWriter writer;
  writer.add("mine", ElementType::kF32, kept_.tensors.at("sinks").shape, sinks);
  ASSERT_TRUE(writer.write(path("mine.safetensors")));
  const Outcome done =
      edit({"--set", "sinks=" + path("mine.safetensors") + ":mine", "--set", "scale=0.05"});
  ASSERT_EQ(done.code, 0) << done.err;
  auto edited = read_case(path("b.json"));
  ASSERT_TRUE(edited) << edited.error().text();
  EXPECT_EQ(edited->reals.at("scale"), 0.05);
  const as_tensor now = stored_view(edited->tensors.at("sinks"));
  EXPECT_EQ(element(now, 0, 0), 3);
  EXPECT_NE(edited->tensors.at("o").bytes, kept_.tensors.at("o").bytes);
  EXPECT_EQ(edited->tensors.at("q").bytes, kept_.tensors.at("q").bytes);
  // What a kernel made of it is right, and a bug is seen.
  EXPECT_NE(
      done.out.find("judge them with: attnscope case run " + path("b.json") + " --lane ref.sim\n"),
      std::string::npos)
      << done.out;
  EXPECT_EQ(run({"case", "run", path("b.json"), "--lane", "ref.sim"}).code, 0);
  EXPECT_EQ(run({"case", "run", path("b.json"), "--lane", "mutant:sink_scaled"}).code, 1);
  const Outcome wrong = edit({"--set", "scale=0.06", "--lane", "mutant:sink_scaled"}, "c.json");
  ASSERT_EQ(wrong.code, 0) << wrong.err;
  EXPECT_EQ(run({"case", "run", path("c.json"), "--lane", "ref.sim"}).code, 1);
}

TEST_F(CaseEdit, NumbersOfAWiderTypeAreRounded) {
  const std::vector<std::int64_t>& shape = kept_.tensors.at("q").shape;
  std::vector<float> q(static_cast<std::size_t>(shape[0] * shape[1] * shape[2]), 0.1f);
  TensorWriter writer;
  writer.add("q", ElementType::kF32, shape, q);
  ASSERT_TRUE(writer.write(path("q.safetensors")));
  const Outcome done = edit({"--set", "q=" + path("q.safetensors")});
  ASSERT_EQ(done.code, 0) << done.err;
  EXPECT_NE(done.out.find("q: " + std::to_string(q.size()) + " values were rounded to bf16"),
            std::string::npos)
      << done.out;
  auto edited = read_case(path("b.json"));
  ASSERT_TRUE(edited);
  EXPECT_EQ(element(stored_view(edited->tensors.at("q")), 0, 0), 0.10009765625);
}

// A narrower window reads fewer rows: the case keeps those, and the others' values are as they
// were.
TEST_F(CaseEdit, ANarrowerWindowLeavesTheRowsThatItReads) {
  ASSERT_EQ(
      run({"case", "save", "tiny-gemma", "--at", "5/0/paged_attention", "-o", path("wide.json")})
          .code,
      0);
  const auto edit_wide = [&](const std::string& change) {
    return run(
        {"case", "edit", path("wide.json"), "--set", change, "-o", path("narrow.json"), "--force"});
  };
  const Outcome done = edit_wide("window=8");
  ASSERT_EQ(done.code, 0) << done.err;
  const auto wide = read_case(path("wide.json")), narrow = read_case(path("narrow.json"));
  ASSERT_TRUE(wide && narrow);
  EXPECT_EQ(narrow->integers.at("window"), 8);
  const StoredCache &before = wide->caches.at("v_cache"), &now = narrow->caches.at("v_cache");
  EXPECT_LT(now.slots.size(), before.slots.size());
  EXPECT_NE(narrow->tensors.at("o").bytes, wide->tensors.at("o").bytes);
  EXPECT_EQ(run({"case", "run", path("narrow.json"), "--lane", "ref.sim"}).code, 0);

  // Its second look still sees a row that is another, one that came, and one that went unasked.
  const std::vector<std::string> changes = {"window=8"};
  OpCase other = *narrow;
  EXPECT_EQ(*edit_fault(*wide, other, changes), "");
  other.caches.at("v_cache").rows.back() ^= 1;
  EXPECT_EQ(*edit_fault(*wide, other, changes), "v_cache.rows is another, and no change names it");
  other = *narrow;
  other.caches.at("v_cache").slots.back() = 900;
  EXPECT_EQ(*edit_fault(*wide, other, changes),
            "v_cache.rows has row 900, which the case did not hold");
  other = *narrow;
  other.integers["window"] = wide->integers.at("window");
  EXPECT_EQ(*edit_fault(*wide, other, {"scale=0.125"}), "v_cache.rows has other slots");

  // A wider one would read rows that the call had not.
  const Outcome wider = edit_wide("window=0");
  EXPECT_EQ(wider.code, 3);
  EXPECT_NE(wider.err.find(" of k_cache would be read, which the case does not hold"),
            std::string::npos)
      << wider.err;
  // The op says what it takes, and the file is not blamed, nor are rows that would be read if it
  // did.
  const Outcome negative = edit_wide("window=-3");
  EXPECT_EQ(negative.code, 3);
  EXPECT_NE(negative.err.find("window is -3; allowed: 0 to 2147483647; " + path("wide.json") +
                              " is as it was; choose another value in --set window=-3"),
            std::string::npos)
      << negative.err;
  const Outcome unknown = edit_wide("causal=7");
  EXPECT_EQ(unknown.code, 3);
  EXPECT_NE(unknown.err.find("causal is 7; allowed: 0 to 1; " + path("wide.json") +
                             " is as it was; choose another value in --set causal=7"),
            std::string::npos)
      << unknown.err;
}

// Of an edit that did something else.
TEST_F(CaseEdit, WhatIsNotAsItWasAskedForIsNamed) {
  const std::vector<std::int64_t>& shape = kept_.tensors.at("q").shape;
  std::vector<float> q(static_cast<std::size_t>(shape[0] * shape[1] * shape[2]));
  for (std::size_t i = 0; i < q.size(); ++i) q[i] = std::sin(static_cast<float>(i));
  TensorWriter writer;
  writer.add("q", ElementType::kF32, shape, q);
  ASSERT_TRUE(writer.write(path("mine.safetensors")));
  const std::vector<std::string> changes = {"scale=0.05", "q=" + path("mine.safetensors")};
  const auto made = edit_case(kept_, changes);
  ASSERT_TRUE(made) << made.error().text();
  const auto fault = [&](const std::function<void(OpCase&)>& change) {
    OpCase other = made->kept;
    change(other);
    const auto found = edit_fault(kept_, other, changes);
    EXPECT_TRUE(found) << found.error().text();
    return *found;
  };
  EXPECT_EQ(fault([](OpCase&) {}), "");
  EXPECT_EQ(fault([](OpCase& c) { c.reals["scale"] = 0.04; }), "scale was to be 0.05 and is 0.04");
  EXPECT_EQ(fault([](OpCase& c) { ++c.tensors.at("sinks").bytes[0]; }),
            "sinks is another, and no change names it");
  EXPECT_EQ(fault([](OpCase& c) { ++c.caches.at("cache").rows[7]; }),
            "cache.rows is another, and no change names it");
  // Cut off in place of rounded: a step of bf16 in about half of the elements.
  const auto cut = fault([&](OpCase& c) {
    for (std::size_t i = 0; i < q.size(); ++i) {
      std::memcpy(&c.tensors.at("q").bytes[2 * i], reinterpret_cast<const char*>(&q[i]) + 2, 2);
    }
  });
  EXPECT_NE(cut.find(" of q was to be "), std::string::npos) << cut;
}

TEST_F(CaseEdit, WhatDoesNotFitIsNamed) {
  const auto refused = [&](const std::string& change, int code, const char* text) {
    const Outcome out = edit({"--set", change});
    EXPECT_EQ(out.code, code) << change << out.out;
    EXPECT_NE(out.err.find(text), std::string::npos) << change << ": " << out.err;
    EXPECT_FALSE(std::filesystem::exists(path("b.json"))) << change;
  };
  const std::vector<std::int32_t> few = {1, 2};
  std::vector<std::uint8_t> indices = kept_.tensors.at("indices").bytes;
  const std::int32_t elsewhere = 399 * 64;
  std::memcpy(indices.data(), &elsewhere, sizeof(elsewhere));
  TensorWriter writer;
  writer.add("topk_length", ElementType::kI32, {2}, few);
  writer.add("indices", ElementType::kI32, kept_.tensors.at("indices").shape, indices.data(),
             indices.size());
  ASSERT_TRUE(writer.write(path("mine.safetensors")));
  refused("scale", 2, "NAME=VALUE");
  refused("scale=x", 2, "no number");
  refused("bias=1", 2, "numbers and inputs of this case: ");
  refused("o=" + path("mine.safetensors"), 2, "no number or input");
  refused("topk_length=" + path("mine.safetensors"), 3, "has [2], the case has [");
  refused("q=" + path("mine.safetensors"), 3, "q");
  refused("indices=" + path("mine.safetensors"), 3, "slot 25536 of cache would be read");
  refused("q=" + path("none.safetensors"), 3, "none.safetensors");
  const Outcome twice = edit({"--set", "scale=0.1", "--set", "scale=0.2"});
  EXPECT_EQ(twice.code, 2) << twice.out;
  EXPECT_NE(twice.err.find("scale: is set twice"), std::string::npos) << twice.err;
}

// Who edits the file of tensors by hand is told of the command.
TEST_F(CaseEdit, AChangedFileOfTensorsLeadsHere) {
  auto file = case_tensors(path("a.json"));
  ASSERT_TRUE(file);
  std::string bytes = read(*file);
  bytes.back() = static_cast<char>(bytes.back() ^ 1);
  std::ofstream(*file, std::ios::binary) << bytes;
  const Outcome out = run({"case", "run", path("a.json")});
  EXPECT_EQ(out.code, 3);
  EXPECT_NE(out.err.find("attnscope case edit"), std::string::npos) << out.err;
}

}  // namespace case_edit_test
}  // namespace attnscope
