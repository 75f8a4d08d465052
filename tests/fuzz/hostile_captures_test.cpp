// Thousands of broken captures, generated: cut off at every byte, bits flipped, fields of another
// kind or size behind checksums that fit, tensors that overlap, leave holes or overflow. Each is
// answered by a named error, or by a capture that is sound; none by a crash or a read outside of
// the file (run under sanitizers for the latter).
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <sstream>

#include "engine/capture/capture.h"
#include "engine/capture/capture_index.h"
#include "engine/capture/capture_pack.h"
#include "engine/model/numbers.h"
#include "engine/opcase/case_file.h"
#include "engine/tensorfile/tensor_writer.h"
#include "engine/trace/tap_stats.h"
#include "tests/fuzz/hostile_json.h"
#include "tests/fuzz/parsers.h"
#include "tests/fuzz/small_capture.h"

namespace attnscope::fuzz {
namespace hostile_captures_test {

namespace fs = std::filesystem;
using nlohmann::json;

class HostileCaptures : public testing::Test {
 protected:
  void SetUp() override {
    root_ = fs::temp_directory_path() / ("attnscope-hostile-" + std::to_string(getpid()));
    fs::create_directory(root_);
    folder_ = (root_ / "x.acap").string();
    record_small_capture(folder_);
    ASSERT_EQ(judge_capture(folder_), "");
    ASSERT_TRUE(sound());
  }
  void TearDown() override { fs::remove_all(root_); }

  std::string path(const std::string& file) const { return folder_ + "/" + file; }
  std::string read(const std::string& file) const {
    std::ostringstream text;
    text << std::ifstream(path(file), std::ios::binary).rdbuf();
    return text.str();
  }
  void write(const std::string& file, const std::string& bytes) const {
    std::ofstream(path(file), std::ios::binary) << bytes;
  }
  // Whether everything in it reads.
  bool sound() const {
    const auto capture = Capture::open(folder_);
    return capture && (*capture)->verify();
  }
  std::string error() const {
    const auto capture = Capture::open(folder_);
    if (!capture) return capture.error().text();
    const auto ok = (*capture)->verify();
    return ok ? "" : ok.error().text();
  }
  // One broken capture: answered well, and refused unless it may be sound.
  void expect_answer(const std::string& what, bool may_be_sound) {
    ++cases_;
    bool sound = false;
    EXPECT_EQ(judge_capture(folder_, &sound), "") << what;
    EXPECT_TRUE(may_be_sound || !sound) << what << ": accepted";
  }
  // The first line of steps.jsonl or traces.jsonl after `change`, with its checksum; where the
  // trace has become longer, the step says so.
  void change_step(const std::function<void(json&)>& change) {
    const std::string text = read("steps.jsonl");
    const std::size_t end = text.find('\n');
    json line = json::parse(text.substr(0, end));
    line.erase("sum");
    change(line);
    write("steps.jsonl", checked_line(line.dump()) + text.substr(end + 1));
  }
  void change_trace(const std::function<void(json&)>& change) {
    const std::string text = read("traces.jsonl");
    const std::size_t end = text.find('\n');
    json line = json::parse(text.substr(0, end));
    line.erase("sum");
    change(line);
    const std::string now = checked_line(line.dump());
    // At the end, where no other step's place changes.
    write("traces.jsonl", text + now);
    change_step([&](json& step) {
      step["trace"] = {{"at", text.size()}, {"bytes", now.size() - 1}};
    });
  }

  // An index behind a checksum that fits.
  void write_index(json index) const {
    index.erase("sum");
    index["sum"] = text_checksum(index.dump());
    write("index.json", index.dump());
  }

  fs::path root_;
  std::string folder_;
  int cases_ = 0;
};

// Whoever opens a capture multiplies them.
TEST_F(HostileCaptures, NumbersOfTheIndexThatNoRecordingHas) {
  // Four blocks: with a stride that is larger by 2^62 the bytes of all of them are the same number
  // modulo 2^64, and the second block would lie outside of the file.
  const json index = json::parse(read("index.json"));
  const auto stride = index["block_stride"].get<std::int64_t>();
  const std::vector<std::int32_t> ids = {1, 2, 3, 4};
  const std::vector<std::uint8_t> content(to_size(4 * stride));
  TensorWriter writer;
  writer.add("ids", ElementType::kI32, {4}, ids);
  writer.add("blocks", ElementType::kU8, {4, stride}, content);
  const auto size = writer.write(path("cache/000000.safetensors"));
  ASSERT_TRUE(size);
  change_step([&](json& step) {
    step["cache"] = {{"bytes", size->bytes}, {"digest", hex64(size->digest)}};
  });
  ASSERT_TRUE(sound());
  EXPECT_TRUE(*(*Capture::open(folder_))->block(0, 2));
  const std::vector<std::pair<const char*, json>> odd = {
      {"/block_stride", stride + (std::int64_t{1} << 62)},
      {"/block_stride", INT64_MAX},
      {"/block_stride", 0},
      {"/num_blocks", (std::int64_t{1} << 31) + 1},
      {"/num_blocks", 0},
      {"/token_budget", std::int64_t{1} << 31},
      {"/token_budget", -1},
      {"/max_requests", std::int64_t{1} << 40},
      {"/steps", -1},
      {"/cache_steps/0", -1},
      {"/cache_steps/0", INT64_MAX},
      {"/prompt_tokens/0", -1},
      {"/prompt_tokens/0", INT64_MAX},
      {"/drift_limit", "nan"},
      {"/drift_limit", 1e308},
      {"/bytes", -1},
      {"/model/parallel/size", 0},
      {"/model/parallel/size", INT32_MAX},
      {"/model/parallel/rank", -1},
      {"/model/max_position", INT32_MAX},
      {"/model/rms_eps", "nan"}};
  for (const auto& [key, value] : odd) {
    json changed = index;
    changed[json::json_pointer(key)] = value;
    write_index(changed);
    const auto refused = Capture::open(folder_);
    EXPECT_FALSE(refused) << key << " " << value;
    if (refused) (void)(*refused)->block(0, 2);
    expect_answer(std::string(key) + " = " + value.dump(), false);
  }
}

TEST_F(HostileCaptures, TimesOfOpsThatNoRecordingHas) {
  const std::string steps = read("steps.jsonl");
  const std::vector<std::pair<const char*, json>> odd = {
      {"stream", -1},    {"stream", INT32_MAX},   {"start", "inf"},
      {"start", "-inf"}, {"microseconds", "nan"}, {"layer", 1000}};
  for (const auto& [key, value] : odd) {
    change_step([&, k = key, v = value](json& step) {
      json& times = step["summary"]["timings"];
      const json& names = times["columns"];
      times["rows"][0][std::ranges::find(names, json(k)) - names.begin()] = v;
    });
    EXPECT_NE(error().find("an op's time"), std::string::npos) << key << ": " << error();
    expect_answer(std::string(key) + " = " + value.dump(), false);
    write("steps.jsonl", steps);
  }
  EXPECT_TRUE(sound()) << error();
}

TEST_F(HostileCaptures, TheIndexHasAChecksum) {
  const std::string text = read("index.json");
  json index = json::parse(text);
  write("index.json", index.dump());
  EXPECT_TRUE(sound()) << "white space is free";
  index["created"] = "2000-01-01T00:00:00Z";
  write("index.json", index.dump(1));
  EXPECT_NE(error().find("index.json does not fit its checksum"), std::string::npos) << error();
  index.erase("sum");
  write("index.json", index.dump(1));
  EXPECT_NE(error().find("index.json does not fit its checksum"), std::string::npos) << error();
  // Of a program that knew neither.
  index.erase("bytes");
  write("index.json", index.dump(1));
  EXPECT_TRUE(sound()) << error();
}

TEST_F(HostileCaptures, CutOffAnywhere) {
  for (const char* file : {"index.json", "steps.jsonl", "traces.jsonl",
                           "payload/000000.safetensors", "cache/000001.safetensors"}) {
    const std::string whole = read(file);
    const bool is_index = std::strcmp(file, "index.json") == 0;
    const bool is_traces = std::strcmp(file, "traces.jsonl") == 0;
    // Every byte of what is small, and of the headers of what is not.
    std::vector<std::size_t> ends;
    const std::size_t dense = is_index ? whole.size() : std::min<std::size_t>(whole.size(), 600);
    for (std::size_t n = 0; n < dense; ++n) ends.push_back(n);
    for (std::size_t n = dense; n < whole.size(); n += 1 + whole.size() / 97) ends.push_back(n);
    ends.push_back(whole.size() - 1);
    for (const std::size_t n : ends) {
      write(file, whole.substr(0, n));
      // White space at its end says nothing; what follows the last step's trace belongs to nobody.
      const bool all = (is_index || is_traces) && whole.find_last_not_of(" \n") < n;
      expect_answer(std::string(file) + " cut at " + std::to_string(n), all);
    }
    write(file, whole + "x");
    expect_answer(std::string(file) + " too long", is_traces);
    write(file, whole);
  }
  EXPECT_GE(cases_, 2000);
}

TEST_F(HostileCaptures, FlippedBits) {
  for (const char* file : {"index.json", "steps.jsonl", "traces.jsonl"}) {
    const std::string whole = read(file);
    const std::size_t step = 1 + whole.size() / 211;
    for (std::size_t at = 0; at < whole.size(); at += step) {
      std::string bytes = whole;
      bytes[at] = static_cast<char>(bytes[at] ^ (1 << at % 8));
      write(file, bytes);
      expect_answer(std::string(file) + " flipped at " + std::to_string(at), false);
    }
    write(file, whole);
  }
  for (const char* file : {"payload/000000.safetensors", "cache/000001.safetensors"}) {
    const std::string whole = read(file);
    std::vector<std::pair<std::size_t, std::size_t>> tensors;  // what lies between them is not read
    {
      auto opened = TensorFile::open(path(file));
      ASSERT_TRUE(opened);
      std::uint64_t header = 0;
      std::memcpy(&header, whole.data(), sizeof(header));
      tensors.emplace_back(0, 8 + header);
      for (const TensorEntry& t : opened->tensors()) {
        tensors.emplace_back(8 + header + t.offset, t.bytes);
      }
    }
    for (std::size_t i = 0; i < tensors.size(); i += 1 + tensors.size() / 60) {
      const auto [begin, bytes] = tensors[i];
      if (bytes == 0) continue;
      std::string changed = whole;
      changed[begin + i * 7919 % bytes] =
          static_cast<char>(changed[begin + i * 7919 % bytes] ^ 0x20);
      write(file, changed);
      expect_answer(std::string(file) + " flipped in tensor " + std::to_string(i), false);
    }
    write(file, whole);
  }
  EXPECT_GE(cases_, 600);
}

TEST_F(HostileCaptures, FieldsOfAnotherKindBehindGoodChecksums) {
  const std::string index = read("index.json"), steps = read("steps.jsonl"),
                    traces = read("traces.jsonl");
  for (int round = 0; round < 3; ++round) {
    json root = json::parse(index);
    if (round > 0) root.erase("created");  // another turn of values for each place
    if (round > 1) root.erase("filter");
    root.erase("sum");
    each_field(root, [&](const std::string& what) {
      write_index(root);
      expect_answer("index.json " + what, true);
    });
  }
  write("index.json", index);
  json line = json::parse(steps.substr(0, steps.find('\n')));
  line.erase("sum");
  each_field(line, [&](const std::string& what) {
    write("steps.jsonl", steps);
    change_step([&](json& step) { step = line; });
    expect_answer("steps.jsonl " + what, true);
  });
  write("steps.jsonl", steps);
  json trace = json::parse(traces.substr(0, traces.find('\n')));
  trace.erase("sum");
  each_field(trace, [&](const std::string& what) {
    write("steps.jsonl", steps);
    write("traces.jsonl", traces);
    change_trace([&](json& t) { t = trace; });
    expect_answer("traces.jsonl " + what, true);
  });
  EXPECT_GE(cases_, 500);
}

TEST_F(HostileCaptures, TensorsThatOverlapLeaveHolesOrOverflow) {
  const std::string file = "payload/000000.safetensors";
  const std::string whole = read(file);
  std::uint64_t length = 0;
  std::memcpy(&length, whole.data(), sizeof(length));
  const json header = json::parse(whole.substr(8, length));
  const std::string data = whole.substr(8 + length);
  const auto with_text = [&](const std::string& text, std::uint64_t says) {
    std::string out(8, '\0');
    std::memcpy(out.data(), &says, sizeof(says));
    write(file, out + text + data);
  };
  const auto with = [&](const json& changed) {
    const std::string text = changed.dump();
    with_text(text, text.size());
  };
  int tensors = 0;
  for (const auto& [name, entry] : header.items()) {
    if (name == "__metadata__" || ++tensors > 40) continue;
    const auto begin = entry["data_offsets"][0].get<std::uint64_t>();
    const auto end = entry["data_offsets"][1].get<std::uint64_t>();
    const std::vector<std::pair<std::uint64_t, std::uint64_t>> offsets = {
        {begin + 1, end + 1},
        {begin, end + 64},
        {begin, end - 1},
        {end, begin},
        {0, data.size()},
        {begin, UINT64_MAX},
        {UINT64_MAX - 7, UINT64_MAX},
        {0, end - begin + 1}};
    for (const auto& [first, last] : offsets) {
      json changed = header;
      changed[name]["data_offsets"] = {first, last};
      if (changed == header) continue;
      with(changed);
      expect_answer(name + " moved", false);
    }
    for (const json& shape :
         {json({std::uint64_t{1} << 63}), json({4294967296ULL, 4294967296ULL}), json({-1}),
          json({0}), json::array(), json({1, 1, 1, 1, 1, 1, 1}), json("x"), json({1.5})}) {
      json changed = header;
      changed[name]["shape"] = shape;
      with(changed);
      expect_answer(name + " shape " + shape.dump(), false);
    }
    for (const json& dtype : {json("F64"), json("F4"), json("Q8"), json(7)}) {
      json changed = header;
      changed[name]["dtype"] = dtype;
      with(changed);
      expect_answer(name + " dtype " + dtype.dump(), false);
    }
  }
  const std::string text = header.dump();
  for (const std::uint64_t says :
       {std::uint64_t{0}, std::uint64_t{1}, text.size() - 1, text.size() + data.size() + 1,
        std::uint64_t{1} << 62, UINT64_MAX, std::uint64_t{100'000'001}}) {
    with_text(text, says);
    expect_answer("header of " + std::to_string(says), false);
  }
  const std::string first = header.begin().key() == "__metadata__" ? std::next(header.begin()).key()
                                                                   : header.begin().key();
  const std::string twice =
      "{" + json(first).dump() + ":" + header[first].dump() + "," + text.substr(1);
  with_text(twice, twice.size());
  expect_answer("a name twice", false);
  with_text(std::string(1 << 20, '[') + text, (1 << 20) + text.size());
  expect_answer("deep nesting", false);
  EXPECT_GE(cases_, 500);
}

TEST_F(HostileCaptures, PayloadsOfAnotherStepBehindGoodDigests) {
  // Well-formed files with tensors missing, of another type or another shape.
  const std::string file = "payload/000000.safetensors";
  const std::string whole = read(file), steps = read("steps.jsonl");
  auto opened = TensorFile::open(path(file));
  ASSERT_TRUE(opened);
  const std::size_t tensors = opened->tensors().size();
  for (std::size_t i = 0; i < tensors; ++i) {
    for (int kind = 0; kind < 3; ++kind) {
      TensorWriter writer;
      for (std::size_t t = 0; t < tensors; ++t) {
        const TensorEntry& e = opened->tensors()[t];
        if (t != i) {
          writer.add(e.name, e.type, e.shape, e.data, e.bytes);
        } else if (kind == 1) {
          writer.add(e.name, ElementType::kU8, {static_cast<std::int64_t>(e.bytes)}, e.data,
                     e.bytes);
        } else if (kind == 2 && e.bytes > 0) {
          auto shape = e.shape;
          shape.insert(shape.begin(), 1);
          writer.add(e.name, e.type, shape, e.data, e.bytes);
        }
      }
      const std::string other = (root_ / "other.safetensors").string();
      const auto size = writer.write(other);
      ASSERT_TRUE(size);
      fs::rename(other, path(file));  // the mapping of the good one stays
      write("steps.jsonl", steps);
      change_step([&](json& step) {
        char digest[17];
        std::snprintf(digest, sizeof(digest), "%016llx",
                      static_cast<unsigned long long>(size->digest));
        step["payload"] = {{"bytes", size->bytes}, {"digest", digest}};
      });
      expect_answer(opened->tensors()[i].name + " kind " + std::to_string(kind), true);
    }
  }
  EXPECT_GE(cases_, 100);
}

// A pipe that nobody writes to would be waited for without end.
TEST_F(HostileCaptures, PipesInThePlaceOfFiles) {
  const std::string aside = (root_ / "aside").string();
  for (const char* file : {"index.json", "steps.jsonl", "traces.jsonl",
                           "payload/000000.safetensors", "cache/000001.safetensors"}) {
    fs::rename(path(file), aside);
    ASSERT_EQ(::mkfifo(path(file).c_str(), 0600), 0);
    EXPECT_NE(error().find("is not a plain file"), std::string::npos) << file << ": " << error();
    expect_answer(std::string(file) + " is a pipe", false);
    fs::remove(path(file));
    fs::rename(aside, path(file));
  }
  EXPECT_TRUE(sound());
  const std::string pipe = (root_ / "pipe.json").string();
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  const auto kept = read_case(pipe);
  ASSERT_FALSE(kept);
  EXPECT_NE(kept.error().message.find("is not a plain file"), std::string::npos);
}

// They lead to files of whoever opens the capture, not of whoever made it.
TEST_F(HostileCaptures, LinksOutOfTheFolder) {
  const std::string outside = (root_ / "outside").string();
  for (const char* file :
       {"index.json", "steps.jsonl", "traces.jsonl", "payload/000000.safetensors",
        "cache/000001.safetensors", "payload", "cache"}) {
    fs::rename(path(file), outside);
    fs::create_symlink(outside, path(file));
    EXPECT_NE(error().find("is a link"), std::string::npos) << file << ": " << error();
    if (!packing_libraries().empty()) {
      const auto packed = pack_capture(folder_, (root_ / "packed").string(), 1);
      ASSERT_FALSE(packed) << file;
      EXPECT_NE(packed.error().message.find("is a link"), std::string::npos);
    }
    fs::remove(path(file));
    fs::rename(outside, path(file));
  }
  EXPECT_TRUE(sound());
  fs::create_directory_symlink(folder_, root_ / "other.acap");
  EXPECT_TRUE(Capture::open((root_ / "other.acap").string())) << "the capture itself may be one";
}

TEST_F(HostileCaptures, OtherAnswersForOtherTroubles) {
  const std::string index = read("index.json");
  json changed = json::parse(index);
  changed["version"] = kCaptureVersion + 1;
  write("index.json", changed.dump());
  EXPECT_NE(error().find("newer"), std::string::npos) << error();
  changed = json::parse(index);
  changed["format"] = "something";
  write("index.json", changed.dump());
  EXPECT_NE(error(), "");
  write("index.json", index);
  const std::string steps = read("steps.jsonl");
  change_step([](json& step) { step["payload"]["digest"] = "0123456789abcdef"; });
  EXPECT_NE(error().find("digest"), std::string::npos) << error();
  write("steps.jsonl", steps);
  EXPECT_EQ(error(), "");
  fs::remove(path("payload/000000.safetensors"));
  EXPECT_NE(error().find("000000.safetensors"), std::string::npos) << error();
}

}  // namespace hostile_captures_test
}  // namespace attnscope::fuzz
