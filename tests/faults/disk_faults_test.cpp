// A disk that is full, read-only or broken at every single call of every save: the error names the
// file, what was there before is whole, nothing temporary is left, and the session goes on.
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <sstream>

#include "engine/capture/capture.h"
#include "engine/capture/capture_pack.h"
#include "engine/checkpoint/export_checkpoint.h"
#include "engine/family/model_weights.h"
#include "engine/family/models.h"
#include "engine/golden/golden_folder.h"
#include "engine/io/json_file.h"
#include "engine/opcase/case_file.h"
#include "engine/session/persist/session_file.h"
#include "engine/tensorfile/tensor_writer.h"
#include "tests/faults/disk.h"
#include "tests/faults/recorded_session.h"
#include "tests/fuzz/small_golden.h"

namespace attnscope::faults {
namespace {

namespace fs = std::filesystem;

class DiskFaults : public RecordedSession {
 protected:
  void TearDown() override {
    sound_again();
    RecordedSession::TearDown();
  }

  std::string path(const std::string& name) const { return (root_ / name).string(); }

  // All files below the folder with their bytes, and all folders.
  std::map<std::string, std::string> content() const {
    std::map<std::string, std::string> all;
    for (const auto& entry : fs::recursive_directory_iterator(root_)) {
      std::ostringstream bytes;
      if (entry.is_regular_file()) bytes << std::ifstream(entry.path(), std::ios::binary).rdbuf();
      all[entry.path().string()] = bytes.str();
    }
    return all;
  }

  Result<void> record(const std::string& name) const {
    CaptureOptions options;
    options.level = CaptureLevel::kFull;
    options.cache_steps = {1};
    return RecordedSession::record(path(name), options);
  }

  // `save` under every fault at every call. before: what stands in the folder, which a failed save
  // leaves alone but for what `may_stay` names.
  void everywhere(const std::string& name, const std::function<Result<void>()>& save,
                  const std::function<bool(const std::string&)>& may_stay = {}) {
    const auto before = content();
    const std::uint64_t digest = session_->digest();
    const auto restore = [&] {
      for (const auto& [file, bytes] : content()) {
        if (!before.contains(file)) fs::remove_all(file);
      }
      for (const auto& [file, bytes] : before) {
        if (!fs::is_directory(file)) std::ofstream(file, std::ios::binary) << bytes;
      }
    };
    int tried = 0;
    for (const Call call : {Call::kWrite, Call::kCreate, Call::kSync, Call::kRename}) {
      fail_from(call, 0, Fault::kNone);
      const Result<void> sound = save();
      const int calls = sound_again();
      ASSERT_TRUE(sound) << sound.error().text();
      restore();
      constexpr std::array kFaults = {Fault::kFull, Fault::kReadOnly, Fault::kBroken};
      for (std::size_t f = 0; f < kFaults.size(); ++f) {
        for (int at = 0; at < calls; ++at) {
          // There are hundreds of writes: each has one of the faults.
          if (call == Call::kWrite && at > 6 && static_cast<std::size_t>(at) % 3 != f) continue;
          const Fault fault = kFaults[f];
          fail_from(call, at, fault);
          const Result<void> ok = save();
          sound_again();
          ++tried;
          const std::string what = name + ": call " + std::to_string(static_cast<int>(call)) +
                                   " number " + std::to_string(at);
          ASSERT_FALSE(ok) << what << " did not fail";
          const bool blames_the_disk =
              ok.error().code == AS_BAD_INPUT || ok.error().code == AS_NO_ENVIRONMENT;
          EXPECT_TRUE(blames_the_disk) << what << ": " << ok.error().text();
          EXPECT_NE(ok.error().text().find(root_.string()), std::string::npos)
              << what << " names no file: " << ok.error().text();
          for (const auto& [file, bytes] : content()) {
            const auto was = before.find(file);
            const bool known = was != before.end();
            // Once everything is written, a folder that cannot be synced takes nothing back.
            if (call == Call::kSync && file.find(".tmp") == std::string::npos) continue;
            if (known) {
              EXPECT_EQ(bytes, was->second) << what << " changed " << file;
            } else {
              EXPECT_TRUE(may_stay && may_stay(file)) << what << " left " << file;
            }
          }
          restore();
        }
      }
    }
    EXPECT_GT(tried, 3) << name;
    // Writes that take a few bytes at a time are no fault.
    shorten_writes(1000);
    const Result<void> slow = save();
    sound_again();
    EXPECT_TRUE(slow) << name << ": " << slow.error().text();
    restore();
    EXPECT_EQ(session_->digest(), digest) << name;
  }
};

TEST_F(DiskFaults, Recording) {
  // An interrupted recording of a whole step or more stays, and opens as incomplete.
  everywhere(
      "record", [&] { return record("a.acap"); },
      [&](const std::string& file) {
        if (file.find(".tmp") != std::string::npos) return false;
        const auto capture = Capture::open(path("a.acap"));
        return capture && !(*capture)->complete();
      });
  ASSERT_TRUE(record("old.acap"));
  everywhere(
      "record over another", [&] { return record("old.acap"); },
      [&](const std::string& file) {
        return file.find(".tmp") == std::string::npos &&
               file.find("old.acap.recording-") != std::string::npos;
      });
  EXPECT_TRUE(session_->step());  // the session goes on
}

TEST_F(DiskFaults, PackingAndUnpacking) {
  ASSERT_TRUE(record("a.acap"));
  const auto pack = [&]() -> Result<void> {
    auto totals = pack_capture(path("a.acap"), path("a.tar.zst"), 1);
    return totals ? Result<void>() : Result<void>(totals.error());
  };
  if (packing_libraries().empty()) GTEST_SKIP() << "this build packs nothing";
  everywhere("pack", pack);
  ASSERT_TRUE(pack());
  everywhere("pack over another", pack);
  everywhere("unpack", [&]() -> Result<void> {
    auto totals = unpack_capture(path("a.tar.zst"), path("b.acap"));
    return totals ? Result<void>() : Result<void>(totals.error());
  });
}

TEST_F(DiskFaults, SessionsTextsTensorsAndModels) {
  everywhere("session", [&] { return save_session(*session_, path("kept.session"), "key"); });
  everywhere("text", [&] { return write_text_file(path("x.json"), "{}\n"); });
  ASSERT_TRUE(write_text_file(path("x.json"), "{\"old\": 1}\n"));
  everywhere("text over another", [&] { return write_text_file(path("x.json"), "{}\n"); });
  const std::vector<float> values(1000, 1.0f);
  everywhere("tensors", [&]() -> Result<void> {
    TensorWriter writer;
    writer.add("a", ElementType::kF32, {1000}, values);
    writer.add("b", ElementType::kF32, {7}, values.data(), 28);
    auto size = writer.write(path("x.safetensors"));
    return size ? Result<void>() : Result<void>(size.error());
  });
  const ModelConfig config = *preset("tiny", {0});
  const Weights weights = synthetic_weights(config, 1, nullptr);
  everywhere("model", [&]() -> Result<void> {
    auto totals = export_checkpoint(weights, config, path("m"), ExportDtype::kBf16, nullptr);
    return totals ? Result<void>() : Result<void>(totals.error());
  });
}

TEST_F(DiskFaults, Cases) {
  const auto kept = keep_case(*find_case_op(session_->last_params().op()),
                              session_->last_params().data(), {"a session", "cpu"});
  ASSERT_TRUE(kept) << kept.error().text();
  const auto save = [&] { return write_case(*kept, path("one.json")); };
  everywhere("case", save);
  ASSERT_TRUE(save());
  everywhere("case over another", save);
}

TEST_F(DiskFaults, Goldens) {
  setenv("ATTNSCOPE_ASSETS", ATTNSCOPE_SOURCE_DIR "/assets", 1);
  const fuzz::SmallGolden small(path("goldens"));
  const auto opened = [&] { return *GoldenFolder::open(small.folder()); };
  auto received = parse_golden_values(small.accepted(), small.accepted_file());
  ASSERT_TRUE(received);
  everywhere("received", [&] { return opened().write_received(*received); });
  ASSERT_TRUE(opened().write_received(*received));
  everywhere("accepted", [&] {
    return opened().accept(fuzz::kGoldenName, {"another reason", "", "", {}});
  });
}

}  // namespace
}  // namespace attnscope::faults
