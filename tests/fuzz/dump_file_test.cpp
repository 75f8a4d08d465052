// Dumps of torch and numpy: what they wrote is read, what no tensor needs is refused by its name.
#include "engine/tensorfile/dump_file.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <filesystem>

#include "engine/tensorfile/float_value.h"
#include "tests/fuzz/judge.h"
#include "tests/fuzz/small_zip.h"

namespace attnscope::fuzz {
namespace dump_file_test {

namespace fs = std::filesystem;

class DumpFiles : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::temp_directory_path() / ("attnscope-dumps-" + std::to_string(getpid()));
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }

  static TensorFile fixture(const std::string& name) {
    return must(open_dump(std::string(ATTNSCOPE_SOURCE_DIR) + "/tests/fixtures/dumps/" + name));
  }
  std::string error_of(const std::string& name, const std::string& bytes) const {
    const std::string file = folder_ / name;
    write_bytes(file, bytes);
    const auto opened = open_dump(file);
    if (opened) return "no error";
    EXPECT_EQ(judge_error(opened.error(), file), "");
    return opened.error().text();
  }
  std::string error_of_pickle(const std::string& pickle) const {
    return error_of("a.pt", zip_of({{"a/data.pkl", pickle}, {"a/data/0", std::string(64, 1)}}));
  }

  fs::path folder_;
};

std::vector<double> floats(const TensorFile& file, const std::string& name) {
  const TensorEntry& e = **file.get(name);
  std::vector<double> out;
  for (std::int64_t i = 0; i < e.elements; ++i) out.push_back(float_value(e, i));
  return out;
}

// A tensor of storage 0, in protocol 2 as torch writes it.
std::string tensor_pickle(const std::string& storage_type, int offset, int size, int stride) {
  const auto byte = [](int n) { return std::string("K") + static_cast<char>(n); };
  const auto text = [](const std::string& t) {
    return std::string("X") + static_cast<char>(t.size()) + std::string(3, '\0') + t;
  };
  return "\x80\x02"
         "ctorch._utils\n_rebuild_tensor_v2\n((" +
         text("storage") + "ctorch\n" + storage_type + "\n" + text("0") + text("cpu") + byte(16) +
         "tQ" + byte(offset) + byte(size) + "\x85" + byte(stride) + "\x85\x89" +
         "ccollections\nOrderedDict\n)RtR.";
}

TEST_F(DumpFiles, EveryTypeThatTorchSavedIsRead) {
  const TensorFile file = fixture("torch.pt");
  using Values = std::vector<double>;
  EXPECT_EQ(floats(file, "f32"), (Values{0, 1, 2, 6, 7, 8}));
  EXPECT_EQ(floats(file, "bf16"), (Values{1.5, -2.25}));
  EXPECT_EQ(floats(file, "f16"), (Values{0.5, 65504}));
  EXPECT_EQ(floats(file, "f64"), (Values{1.0 / 3}));
  EXPECT_EQ(entry_value<std::int64_t>(**file.get("i64"), 1), std::int64_t{1} << 40);
  EXPECT_EQ(entry_value<std::int32_t>(**file.get("i32"), 1), -8);
  EXPECT_EQ(entry_value<std::int16_t>(**file.get("i16"), 0), -300);
  EXPECT_EQ(entry_value<std::int8_t>(**file.get("i8"), 0), -3);
  EXPECT_EQ(entry_value<std::uint8_t>(**file.get("u8"), 0), 200);
  EXPECT_EQ((*file.get("bool"))->type, ElementType::kBool);
  EXPECT_EQ((*file.get("e4m3"))->type, ElementType::kF8E4m3);
  EXPECT_EQ(entry_value<std::uint8_t>(**file.get("e4m3"), 1), 0xfe);
  EXPECT_EQ((*file.get("e5m2"))->type, ElementType::kF8E5m2);
  EXPECT_EQ(entry_value<std::uint8_t>(**file.get("e5m2"), 1), 0x7b);
}

TEST_F(DumpFiles, StridesOffsetsAndNestedNamesAreHonoured) {
  const TensorFile file = fixture("torch.pt");
  using Values = std::vector<double>;
  using Shape = std::vector<std::int64_t>;
  EXPECT_EQ((*file.get("turned"))->shape, (Shape{6, 4}));
  EXPECT_EQ(floats(file, "turned")[1], 6);
  EXPECT_EQ(floats(file, "turned")[23], 23);
  EXPECT_EQ(floats(file, "part"), (Values{8, 9, 14, 15, 20, 21}));
  EXPECT_EQ(floats(file, "repeated"), (Values{3, 3, 3, 3}));
  EXPECT_EQ((*file.get("scalar"))->shape, Shape{});
  EXPECT_EQ((*file.get("empty"))->elements, 0);
  EXPECT_EQ(floats(file, "parameter"), (Values{1, 1}));
  EXPECT_EQ(floats(file, "nested.step.1.q"), (Values{6, 7, 8, 9, 10, 11}));
  EXPECT_EQ(floats(file, "nested.step.1.scale"), Values{0.25});
  EXPECT_EQ(entry_value<std::int64_t>(**file.get("nested.step.1.layer"), 0), 3);
  EXPECT_EQ(entry_value<std::int64_t>(**file.get("nested.7.0"), 0), 9);
  EXPECT_EQ(floats(file, "state.weight"), (Values{1, 1}));
}

TEST_F(DumpFiles, NumpysOrdersAreTurned) {
  for (const char* name : {"plain.npz", "deflated.npz"}) {
    const TensorFile file = fixture(name);
    EXPECT_EQ(floats(file, "q")[5], 5) << name;
  }
  EXPECT_EQ(fixture("deflated.npz").find("a/b")->elements, 3);
  EXPECT_EQ(floats(fixture("deflated.npz"), "q")[599], 599);
  const TensorFile plain = fixture("plain.npz");
  EXPECT_EQ(entry_value<std::int32_t>(**plain.get("big"), 4), 4);
  const std::string kept = std::string(ATTNSCOPE_SOURCE_DIR) + "/tests/fuzz/corpus/npy/fortran";
  const TensorFile fortran = must(open_dump(kept));
  for (std::int16_t i = 0; i < 6; ++i) {
    EXPECT_EQ(entry_value<std::int16_t>(fortran.tensors()[0], i), i);
  }
  EXPECT_EQ(fortran.tensors()[0].name, "fortran");
}

TEST_F(DumpFiles, NothingOfAPickleIsRun) {
  const std::string proof = folder_ / "proof";
  const std::string word = "touch " + proof;
  const std::string length = std::string(1, static_cast<char>(word.size())) + std::string(3, '\0');
  const std::string said = error_of_pickle(
      "\x80\x02"
      "cposix\nsystem\nX" +
      length + word + "\x85R.");
  EXPECT_NE(said.find("posix.system"), std::string::npos) << said;
  EXPECT_NE(said.find("torch.save({"), std::string::npos) << said;
  EXPECT_FALSE(fs::exists(proof));
  EXPECT_NE(error_of_pickle("\x80\x04\x8c\x08"
                            "builtins\x8c\x04"
                            "eval\x93\x8c\x01"
                            "1\x85R.")
                .find("builtins.eval"),
            std::string::npos);
  EXPECT_NE(error_of_pickle("\x80\x02i").find("instruction 0x69"), std::string::npos);
}

// A header of 640, 896, .. bytes begins with the bytes of a pickle.
TEST_F(DumpFiles, AHeaderWhoseLengthLooksLikeAPickleIsRead) {
  for (const std::size_t length : {640u, 896u, 1152u, 1408u, 648u}) {
    std::string header = R"({"x":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})";
    header.resize(length, ' ');
    std::string bytes(8, '\0');
    bytes[0] = static_cast<char>(length & 0xff);
    bytes[1] = static_cast<char>(length >> 8);
    const std::string file = folder_ / "x.safetensors";
    write_bytes(file, bytes + header + std::string(4, '\0'));
    EXPECT_EQ(must(open_dump(file)).tensors()[0].elements, 1) << length;
  }
  EXPECT_NE(error_of("bare.pt", "\x80\x02\x8a\nl\xfc\x9c\x46\xf9 j\xa8P\x19.").find("bare pickle"),
            std::string::npos);
}

TEST_F(DumpFiles, ContainersThatHoldThemselvesEnd) {
  EXPECT_NE(error_of_pickle(std::string("\x80\x02]q\x00h\x00"
                                        "a.",
                                        9))
                .find("hold themselves"),
            std::string::npos);
  std::string doubling(
      "\x80\x02(]q\x00K\x01"
      "a",
      9);
  for (char i = 1; i < 30; ++i) {
    const char before = static_cast<char>(i - 1);
    doubling += std::string("h") + before + "h" + before + "\x86q" + i;
  }
  EXPECT_NE(error_of_pickle(doubling + "t.").find("hold themselves"), std::string::npos);
}

TEST_F(DumpFiles, ATensorStaysInsideItsStorage) {
  // 16 floats lie there.
  const std::string file = folder_ / "good.pt";
  write_bytes(file, zip_of({{"a/data.pkl", tensor_pickle("FloatStorage", 4, 3, 4)},
                            {"a/data/0", std::string(64, 1)}}));
  EXPECT_EQ(must(open_dump(file)).tensors()[0].elements, 3);
  for (const auto& [offset, size, stride] :
       {std::array{4, 4, 4}, std::array{16, 1, 1}, std::array{0, 17, 1}, std::array{0, 2, 127}}) {
    const std::string said = error_of_pickle(tensor_pickle("FloatStorage", offset, size, stride));
    EXPECT_NE(said.find("beyond its storage"), std::string::npos) << said;
  }
  EXPECT_NE(error_of_pickle(tensor_pickle("DoubleStorage", 8, 1, 1)).find("beyond its storage"),
            std::string::npos);
}

TEST_F(DumpFiles, WhatCannotBeReadSaysWhatToDo) {
  const std::string fixtures = std::string(ATTNSCOPE_SOURCE_DIR) + "/tests/fixtures/dumps/";
  EXPECT_NE(error_of("legacy.pt", read_bytes(fixtures + "legacy.pt")).find("before version 1.6"),
            std::string::npos);
  const std::string objects =
      read_bytes(std::string(ATTNSCOPE_SOURCE_DIR) + "/tests/fuzz/corpus/npy/objects");
  EXPECT_NE(error_of("objects.npy", objects).find("Python objects"), std::string::npos);
  const std::string pickle = tensor_pickle("FloatStorage", 0, 1, 1);
  EXPECT_NE(error_of("big.pt", zip_of({{"a/data.pkl", pickle}, {"a/byteorder", "big"}}))
                .find("little-endian"),
            std::string::npos);
  EXPECT_NE(error_of("no.pt", zip_of({{"a/data.pkl", pickle}})).find("storage is not"),
            std::string::npos);
  EXPECT_NE(error_of("x.zip", zip_of({{"notes.txt", "text"}})).find("notes.txt"),
            std::string::npos);
  EXPECT_NE(error_of("twice.zip", zip_of({{"q.npy", ""}, {"q.npy", ""}})).find("there twice"),
            std::string::npos);
  const std::string whole = read_bytes(fixtures + "torch.pt");
  EXPECT_NE(error_of("cut.pt", whole.substr(0, whole.size() / 2)).find("cut off"),
            std::string::npos);
}

}  // namespace dump_file_test
}  // namespace attnscope::fuzz
