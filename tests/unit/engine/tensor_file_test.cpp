// safetensors: what is written is read back, by us and by an independent reader; what is wrong in a
// file is said with file, tensor and expectation.
#include "engine/tensorfile/tensor_file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <span>
#include <sstream>

#include "engine/tensorfile/tensor_writer.h"
#include "kernels/params/tensor_view.h"

namespace attnscope {
namespace tensor_file_test {

namespace fs = std::filesystem;

class TensorFileTest : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::temp_directory_path() / ("attnscope-tensors-" + std::to_string(getpid()));
    fs::create_directories(folder_);
    path_ = folder_ / "a.safetensors";
  }
  void TearDown() override { fs::remove_all(folder_); }

  // A file of this header text and these bytes.
  void write_raw(const std::string& header, const std::string& data) {
    std::string bytes;
    for (int i = 0; i < 8; ++i) bytes += static_cast<char>(header.size() >> (8 * i) & 0xff);
    std::ofstream(path_, std::ios::binary) << bytes << header << data;
  }
  // The message of the error that opening gives.
  std::string error() {
    auto file = TensorFile::open(path_);
    if (file) return "no error";
    EXPECT_EQ(file.error().code, AS_BAD_INPUT);
    return file.error().text();
  }
  void expect_error(const std::string& header, const std::string& data, const std::string& what) {
    write_raw(header, data);
    const std::string said = error();
    EXPECT_NE(said.find(what), std::string::npos) << said;
    EXPECT_NE(said.find("a.safetensors"), std::string::npos) << said;
    EXPECT_EQ(said.find('\n'), std::string::npos) << said;
  }

  fs::path folder_;
  std::string path_;
};

TEST_F(TensorFileTest, WhatIsWrittenIsRead) {
  const std::vector<float> f = {1.5f, -2.0f, 3.25f, 0.0f, 7.0f, 8.0f};
  const std::vector<std::uint8_t> u = {1, 2, 3, 4, 5};
  const std::vector<std::int64_t> i = {-1, std::int64_t{1} << 62};
  const std::vector<std::uint16_t> b = {0x3f80, 0xc000, 0x4000};
  TensorWriter writer;
  writer.add("f", make_tensor(f.data(), {2, 3}));
  as_tensor turned = make_tensor(f.data(), {3, 2});
  turned.stride[0] = 1;
  turned.stride[1] = 3;
  writer.add("turned", turned);
  writer.add("codes", ElementType::kF8E4m3, {5}, u);
  writer.add("empty", ElementType::kF32, {0, 4}, nullptr, 0);
  writer.add("i", ElementType::kI64, {2}, i);
  writer.add("b", ElementType::kBf16, {3, 1, 1, 1, 1}, b);
  writer.metadata("step", "12 \"x\"\n");
  ASSERT_TRUE(writer.write(path_));

  auto file = TensorFile::open(path_);
  ASSERT_TRUE(file) << file.error().text();
  ASSERT_EQ(file->tensors().size(), 6u);
  EXPECT_EQ(file->metadata().at("step"), "12 \"x\"\n");
  for (const TensorEntry& t : file->tensors()) {
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(t.data) % kTensorAlignment, 0u) << t.name;
    EXPECT_TRUE(t.aligned());
  }
  const TensorEntry* t = file->find("turned");
  ASSERT_NE(t, nullptr);
  auto view = as_tensor_of(*file, *t);
  ASSERT_TRUE(view);
  EXPECT_EQ(*at<float>(*view, 0, 1), 0.0f);
  EXPECT_EQ(*at<float>(*view, 2, 0), 3.25f);
  EXPECT_EQ(file->find("codes")->type, ElementType::kF8E4m3);
  EXPECT_EQ(std::memcmp(file->find("codes")->data, u.data(), 5), 0);
  EXPECT_EQ(file->find("empty")->elements, 0);
  EXPECT_EQ(std::memcmp(file->find("i")->data, i.data(), 16), 0);
  EXPECT_EQ(file->find("nothing"), nullptr);
  const auto missing = file->get("nothing");
  ASSERT_FALSE(missing);
  EXPECT_NE(missing.error().text().find("nothing"), std::string::npos);
  const auto deep = as_tensor_of(*file, *file->find("b"));
  ASSERT_FALSE(deep);  // five dimensions
  EXPECT_NE(deep.error().text().find("5 dimensions"), std::string::npos);
}

TEST_F(TensorFileTest, BytesOutliveTheReader) {
  const std::vector<float> f(1000, 2.5f);
  TensorWriter writer;
  writer.add("f", make_tensor(f.data(), {1000}));
  ASSERT_TRUE(writer.write(path_));
  const std::uint8_t* data = nullptr;
  std::shared_ptr<const void> owner;
  {
    auto file = TensorFile::open(path_);
    ASSERT_TRUE(file);
    TensorFile moved = std::move(*file);
    ASSERT_NE(moved.find("f"), nullptr);
    data = moved.find("f")->data;
    owner = moved.owner();
  }
  fs::remove(path_);
  EXPECT_TRUE(
      std::ranges::equal(std::as_bytes(std::span(data, 4000)), std::as_bytes(std::span(f))));
}

TEST_F(TensorFileTest, WriterRefusesWhatDoesNotFit) {
  const std::vector<float> f(6);
  TensorWriter twice;
  twice.add("f", make_tensor(f.data(), {6}));
  twice.add("f", make_tensor(f.data(), {6}));
  auto ok = twice.write(path_);
  ASSERT_FALSE(ok);
  EXPECT_EQ(ok.error().code, AS_USAGE);
  TensorWriter small;
  small.add("f", ElementType::kF32, {7}, f);
  EXPECT_FALSE(small.write(path_));
  TensorWriter reserved;
  reserved.add("__pad_0", make_tensor(f.data(), {6}));
  EXPECT_FALSE(reserved.write(path_));
  EXPECT_TRUE(fs::is_empty(folder_)) << "a temporary file was left";
}

TEST_F(TensorFileTest, WriterNamesTheFolder) {
  TensorWriter writer;
  const std::vector<float> f(6);
  writer.add("f", make_tensor(f.data(), {6}));
  const auto ok = writer.write((folder_ / "missing" / "b.safetensors").string());
  ASSERT_FALSE(ok);
  EXPECT_EQ(ok.error().code, AS_BAD_INPUT);
  EXPECT_NE(ok.error().text().find("missing must exist"), std::string::npos) << ok.error().text();
}

// In a container a program may have the number of one that was killed while it wrote.
TEST_F(TensorFileTest, WhatAKilledWriterOfThisNumberLeftIsGoneRound) {
  const std::string path = (folder_ / "a.safetensors").string();
  for (int n = 0; n < 200; ++n) {
    std::ofstream(path + "." + std::to_string(getpid()) + "." + std::to_string(n) + ".tmp") << "x";
  }
  TensorWriter writer;
  const std::vector<float> f(6);
  writer.add("f", make_tensor(f.data(), {6}));
  for (int n = 0; n < 3; ++n) {
    const auto ok = writer.write(path);
    ASSERT_TRUE(ok) << ok.error().text();
  }
  EXPECT_TRUE(TensorFile::open(path));
}

TEST_F(TensorFileTest, SaysWhatIsWrongInAHeader) {
  const std::string four(4, 'x');
  expect_error(R"({"t":{"dtype":"F32","shape":[1],"data_offsets":[0,5]}})", four,
               "tensor \"t\": data_offsets end at 5, but the file holds 4");
  expect_error(R"({"t":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}})", four,
               "F32 [2] does not take the 4 bytes that data_offsets [0, 4] hold");
  expect_error(R"({"t":{"dtype":"F32","shape":[1],"data_offsets":[4,0]}})", four, "run backwards");
  expect_error(R"({"t":{"dtype":"F33","shape":[1],"data_offsets":[0,4]}})", four,
               "dtype \"F33\" is unknown, expected one of F64, F32");
  expect_error(R"({"t":{"dtype":"F32","data_offsets":[0,4]}})", four, "shape is missing");
  expect_error(R"({"t":{"dtype":"F32","shape":[1],"data_offsets":[0,4],"more":1}})", four,
               "unknown key \"more\"");
  expect_error(R"({"t":{"dtype":"F32","shape":[1],"shape":[1],"data_offsets":[0,4]}})", four,
               "shape appears twice");
  expect_error(R"({"t":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},
                   "t":{"dtype":"F32","shape":[0],"data_offsets":[4,4]}})",
               four, "tensor \"t\" appears twice");
  expect_error(R"({"__metadata__":{"a":"1","a":"2"}})", "", "\"a\" appears twice");
  expect_error(R"({"__metadata__":{"a":1}})", "", "\"a\" is 1, expected a text");
  expect_error(R"({"__metadata__":{},"__metadata__":{}})", "", "__metadata__ appears twice");
  expect_error(R"({"t":[]})", "", "tensor \"t\": is a list, expected an object");
  expect_error(R"({"t":{"dtype":"F32","shape":{},"data_offsets":[0,4]}})", four, "shape holds");
  expect_error(R"({"t":{"dtype":"F32","shape":[1],"data_offsets":[0]}})", four,
               "data_offsets has 1 numbers");
  expect_error(R"({"t":{"dtype":"F32","shape":[1],"data_offsets":[0,4,4]}})", four,
               "more than two numbers");
  expect_error(R"({"t":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}})", four,
               "shape holds -1, expected whole numbers");
  expect_error(R"({"t":{"dtype":"F32","shape":[1.5],"data_offsets":[0,4]}})", four, "holds 1.5");
  expect_error(R"({"t":{"dtype":"F4","shape":[3],"data_offsets":[0,2]}})", "xx",
               "does not take the");
}

TEST_F(TensorFileTest, SaysWhatOverflows) {
  const std::string four(4, 'x');
  expect_error(R"({"t":{"dtype":"U8","shape":[9223372036854775808],"data_offsets":[0,4]}})", four,
               "more than 2^63 - 1 elements");
  expect_error(R"({"t":{"dtype":"U8","shape":[4294967296,4294967296],"data_offsets":[0,4]}})", four,
               "more than 2^63 - 1 elements");
  expect_error(R"({"t":{"dtype":"F64","shape":[9223372036854775807],"data_offsets":[0,4]}})", four,
               "does not take the");
  expect_error(R"({"t":{"dtype":"U8","shape":[99999999999999999999],"data_offsets":[0,4]}})", four,
               "expected whole numbers");
  expect_error(R"({"t":{"dtype":"F32","shape":[1],
                   "data_offsets":[18446744073709551612,18446744073709551615]}})",
               four, "data_offsets end at 18446744073709551615");
  // A zero among them does not hide the others.
  expect_error(R"({"t":{"dtype":"U8","shape":[0,9223372036854775808],"data_offsets":[0,0]}})", "",
               "more than 2^63 - 1 elements");
  std::string deep = "[1";
  for (int i = 0; i < 40; ++i) deep += ",1";
  expect_error(R"({"t":{"dtype":"U8","shape":)" + deep + R"(],"data_offsets":[0,1]}})", "x",
               "more than 32 dimensions");
}

TEST_F(TensorFileTest, SaysWhatOverlapsAndWhatIsMissing) {
  const std::string eight(8, 'x');
  expect_error(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},
                   "b":{"dtype":"F32","shape":[1],"data_offsets":[2,6]}})",
               eight.substr(2), "tensor \"b\": begins at 2, inside tensor \"a\", which ends at 4");
  expect_error(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})", eight,
               "begins at 4, expected 0: a hole of 4 bytes");
  expect_error(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})", eight,
               "4 bytes after the last tensor belong to none");
}

TEST_F(TensorFileTest, SaysWhatIsNoSafetensorsFile) {
  std::ofstream(path_) << "abc";
  EXPECT_NE(error().find("3 bytes long"), std::string::npos);
  std::ofstream(path_, std::ios::trunc) << "";
  EXPECT_NE(error().find("0 bytes long"), std::string::npos);
  std::ofstream(path_, std::ios::trunc) << "#!/bin/sh\necho hello, world\n";
  EXPECT_NE(error().find("at most 100000000 are read"), std::string::npos) << error();
  expect_error("[]", "", "does not begin with {");
  expect_error(" {}", "", "does not begin with {");
  expect_error("{", "", "not JSON");
  expect_error("{}x", "", "not JSON");
  expect_error(R"({"t": /* comment */ {}})", "", "not JSON");
  expect_error("{\"\xff\":{}}", "", "not JSON");
  write_raw("{}  ", "");
  EXPECT_EQ(error(), "no error");
  fs::resize_file(path_, 10);
  EXPECT_NE(error().find("4 bytes long, but 2 bytes follow"), std::string::npos) << error();
  fs::remove(path_);
  EXPECT_NE(error().find("cannot open"), std::string::npos);
  fs::create_directory(path_);
  EXPECT_NE(error().find("not a plain file"), std::string::npos);
}

TEST_F(TensorFileTest, NamesAreShownSafely) {
  expect_error("{\"a\\nb\\u0007\":{\"dtype\":\"F33\"}}", "", "tensor \"a\\nb\\u0007\"");
  expect_error("{\"" + std::string(5000, 'n') + "\":{}}", "", "nnn\"..");
}

// Every cut of a small file, and every byte of its header changed to every value, is an answer.
TEST_F(TensorFileTest, DamageIsAnAnswer) {
  const std::vector<float> f(20, 1.0f);
  TensorWriter writer;
  writer.add("a", make_tensor(f.data(), {4, 5}));
  writer.add("b", make_tensor(f.data(), {3}));
  writer.metadata("k", "v");
  ASSERT_TRUE(writer.write(path_));
  std::ostringstream text;
  text << std::ifstream(path_, std::ios::binary).rdbuf();
  const std::string whole = text.str();
  for (std::size_t n = 0; n < whole.size(); ++n) {
    std::ofstream(path_, std::ios::binary | std::ios::trunc) << whole.substr(0, n);
    EXPECT_NE(error(), "no error") << "cut at " << n;
  }
  std::size_t read = 0;
  for (std::size_t n = 0; n < 340 && n < whole.size(); ++n) {
    for (const int bit : {0, 3, 5, 7}) {
      std::string other = whole;
      other[n] = static_cast<char>(other[n] ^ (1 << bit));
      std::ofstream(path_, std::ios::binary | std::ios::trunc) << other;
      auto file = TensorFile::open(path_);
      if (!file) continue;
      ++read;
      for (const TensorEntry& t : file->tensors()) {  // whatever it says lies within the file
        const auto all = static_cast<std::size_t>(t.offset) + t.bytes;
        EXPECT_LE(all, whole.size());
      }
    }
  }
  EXPECT_GT(read, 0u);  // a changed name or metadata text is still a file
}

// A reader of its own making, in another language, finds the same tensors.
TEST_F(TensorFileTest, PythonReadsIt) {
  ASSERT_EQ(std::system("python3 -c pass >/dev/null 2>&1"), 0) << "no python3";
  const std::vector<float> f = {1.5f, -2.0f, 3.25f};
  const std::vector<std::int32_t> i = {7, -9};
  TensorWriter writer;
  writer.add("f", make_tensor(f.data(), {3}));
  writer.add("i", make_tensor(i.data(), {1, 2}));
  writer.metadata("who", "w\xc3\xb6rld");
  ASSERT_TRUE(writer.write(path_));
  const std::string script = std::string(ATTNSCOPE_SOURCE_DIR) +
                             "/tests/unit/engine/read_safetensors.py '" + path_ + "' > '" +
                             (folder_ / "out").string() + "'";
  ASSERT_EQ(std::system(("python3 " + script).c_str()), 0);
  std::ostringstream text;
  text << std::ifstream(folder_ / "out").rdbuf();
  EXPECT_EQ(text.str(), "f F32 [3] (1.5, -2.0, 3.25)\ni I32 [1, 2] (7, -9)\nwho = w\xc3\xb6rld\n");
}

}  // namespace tensor_file_test
}  // namespace attnscope
