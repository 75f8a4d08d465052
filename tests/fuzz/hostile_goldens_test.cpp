// Thousands of broken goldens, generated as those of captures are: cut off at every byte, bits
// flipped, fields of another kind or size, keys twice, names that lead elsewhere. Each is answered
// by a named error, or read as what it says and compared with a run.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "engine/golden/golden_folder.h"
#include "tests/fuzz/hostile_json.h"
#include "tests/fuzz/judge.h"
#include "tests/fuzz/small_golden.h"

namespace attnscope::fuzz {
namespace hostile_goldens_test {

namespace fs = std::filesystem;
using nlohmann::json;

class HostileGoldens : public testing::Test {
 protected:
  void SetUp() override {
    setenv("ATTNSCOPE_ASSETS", ATTNSCOPE_SOURCE_DIR "/assets", 1);
    root_ = fs::temp_directory_path() / ("attnscope-hostile-goldens-" + std::to_string(getpid()));
    small_ = std::make_unique<SmallGolden>((root_ / "goldens").string());
    ASSERT_EQ(small_->judge(), "");
    ASSERT_EQ(error(), "");
  }
  void TearDown() override { fs::remove_all(root_); }

  // Of the definition, else of the values.
  std::string error() const {
    const auto goldens = GoldenFolder::open(small_->folder());
    if (!goldens) return goldens.error().text();
    if (const auto spec = goldens->spec(kGoldenName); !spec) return spec.error().text();
    const auto values = goldens->values(kGoldenName, kAcceptedSuffix);
    return values ? "" : values.error().text();
  }
  void expect_answer(const std::string& what, bool may_be_sound) {
    ++cases_;
    EXPECT_EQ(small_->judge(), "") << what;
    if (!may_be_sound) {
      EXPECT_NE(error(), "") << what << ": accepted";
    }
  }
  struct File {
    std::string path, whole;
  };
  std::vector<File> files() const {
    return {{small_->definition_file(), small_->definition()},
            {small_->accepted_file(), small_->accepted()}};
  }

  fs::path root_;
  std::unique_ptr<SmallGolden> small_;
  int cases_ = 0;
};

TEST_F(HostileGoldens, CutOffAnywhere) {
  for (const auto& [path, whole] : files()) {
    const std::size_t last = whole.find_last_not_of(" \n");
    for (std::size_t n = 0; n < whole.size(); n += n < 1500 ? 1 : 13) {
      write_bytes(path, whole.substr(0, n));
      expect_answer(path + " cut at " + std::to_string(n), n > last);
    }
    write_bytes(path, whole + "x");
    expect_answer(path + " too long", false);
    write_bytes(path, whole);
  }
  EXPECT_GE(cases_, 2000);
}

TEST_F(HostileGoldens, FlippedBits) {
  for (const auto& [path, whole] : files()) {
    for (std::size_t at = 0; at < whole.size(); at += 1 + whole.size() / 500) {
      std::string bytes = whole;
      bytes[at] = static_cast<char>(bytes[at] ^ (1 << at % 8));
      write_bytes(path, bytes);
      expect_answer(path + " flipped at " + std::to_string(at), true);
    }
    write_bytes(path, whole);
  }
  EXPECT_GE(cases_, 900);
}

TEST_F(HostileGoldens, FieldsOfAnotherKind) {
  for (const auto& [path, whole] : files()) {
    json root = json::parse(whole);
    for (int turn = 0; turn < 3; ++turn) {
      each_field(root, [&, &path = path](const std::string& what) {
        write_bytes(path, root.dump());
        expect_answer(fmt::format("{} {}", path, what), true);
      });
      root["about"] = turn;  // another turn of values for each place
    }
    write_bytes(path, whole);
  }
  EXPECT_GE(cases_, 500);
}

// What a reader could be led to read beyond: counts and places that do not fit each other.
TEST_F(HostileGoldens, PlacesAndCountsThatDoNotFit) {
  const json whole = json::parse(small_->accepted());
  const auto with = [&](std::size_t tap, const char* pointer, const json& value) {
    json changed = whole;
    changed["taps"][tap][json::json_pointer(pointer)] = value;
    if (changed == whole) return;
    write_bytes(small_->accepted_file(), changed.dump());
    expect_answer("tap " + std::to_string(tap) + pointer + " = " + value.dump(), true);
  };
  const std::vector<json> shapes = {json::array(),
                                    json({0}),
                                    json({1}),
                                    json({1LL << 40, 1LL << 40}),
                                    json({std::uint64_t{1} << 63}),
                                    json({2, 2, 2, 2, 2, 2, 2, 2})};
  for (std::size_t tap = 0; tap < whole["taps"].size(); ++tap) {
    for (const json& shape : shapes) with(tap, "/shape", shape);
    for (const char* dtype : {"f64", "f32", "bf16", "u8", "i64", "f16"}) with(tap, "/dtype", dtype);
    for (const char* op : {"schedule", "indexer_topk", "merge_states", "no_op"})
      with(tap, "/op", op);
    with(tap, "/tap", "nothing");
    with(tap, "/rule", "nothing");
    if (whole["taps"][tap].contains("sets")) {
      for (const char* set :
           {"0-1048575", "0-2147483647", "2147483647", "-1", "5-3", "1,1,1", ","}) {
        with(tap, "/sets/0", set);
      }
    }
    if (whole["taps"][tap].contains("samples")) {
      for (const json& at : {json(-1), json(1LL << 40), json(std::uint64_t{1} << 63)}) {
        with(tap, "/samples/at/0", at);
      }
      for (const json& value : {json("nan"), json("inf"), json(1e300)}) {
        with(tap, "/samples/values/0", value);
        with(tap, "/ranges/rms/0", value);
      }
      with(tap, "/ranges/max", json::array());
    }
  }
  EXPECT_GE(cases_, 100);
}

TEST_F(HostileGoldens, OtherAnswersForOtherTroubles) {
  const auto with = [&](const std::string& path, const std::string& whole, const char* key,
                        const json& value) {
    json changed = json::parse(whole);
    changed[key] = value;
    write_bytes(path, changed.dump());
    std::string answer = error();
    write_bytes(path, whole);
    return answer;
  };
  for (const auto& [path, whole] : files()) {
    EXPECT_NE(with(path, whole, "version", kGoldenVersion + 1).find("newer"), std::string::npos);
    EXPECT_NE(with(path, whole, "format", "else").find("is no attnscope-golden"),
              std::string::npos);
    const std::string twice = R"({"format": "attnscope-golden", )" + whole.substr(1);
    write_bytes(path, twice);
    EXPECT_NE(error(), "") << "a key twice";
    write_bytes(path, std::string(1 << 20, '[') + whole);
    EXPECT_NE(error(), "") << "deep nesting";
    write_bytes(path, whole);
  }
  for (const char* name : {"../small", "/etc/passwd", "..", "", "a/b"}) {
    EXPECT_NE(with(small_->definition_file(), small_->definition(), "scenario", name), "") << name;
    EXPECT_NE(with(small_->accepted_file(), small_->accepted(), "name", name), "") << name;
  }
  // Well-formed, of somebody else.
  EXPECT_NE(with(small_->accepted_file(), small_->accepted(), "name", "other").find("other"),
            std::string::npos);
}

}  // namespace hostile_goldens_test
}  // namespace attnscope::fuzz
