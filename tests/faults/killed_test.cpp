// kill -9 at random times while something is saved: afterwards there is the old one, the new one,
// or (a recording) one that opens as incomplete. 200 times; ATTNSCOPE_KILLS=10000 for more.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <random>

#include "engine/capture/capture.h"
#include "engine/capture/capture_pack.h"
#include "engine/golden/golden_folder.h"
#include "engine/opcase/case_file.h"
#include "engine/session/persist/session_file.h"
#include "tests/faults/recorded_session.h"
#include "tests/fuzz/judge.h"
#include "tests/fuzz/small_golden.h"

namespace attnscope::faults {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

int rounds() {
  const char* wanted = std::getenv("ATTNSCOPE_KILLS");
  return wanted != nullptr ? std::max(1, std::atoi(wanted)) : 200;
}

class Killed : public RecordedSession {
 protected:
  bool record(const std::string& path, CaptureLevel level) const {
    CaptureOptions options;
    options.level = level;
    return static_cast<bool>(RecordedSession::record(path, options));
  }

  // `save` in processes of their own, four at a time, each killed at a moment of the time that it
  // takes; then `look` at what is there. Both get the number of one of four places.
  void everywhen(const std::function<bool(int place)>& save,
                 const std::function<void(int place)>& look) {
    constexpr int kAtOnce = 4;
    const auto begin = Clock::now();
    ASSERT_TRUE(save(0));
    const auto once = std::chrono::duration_cast<std::chrono::microseconds>(Clock::now() - begin);
    int killed = 0;
    for (int round = 0; round < rounds() && !HasFailure(); round += kAtOnce) {
      struct Victim {
        pid_t pid;
        std::int64_t after;  // microseconds
      };
      std::vector<Victim> victims;
      for (int place = 0; place < kAtOnce; ++place) {
        const pid_t pid = fork();
        if (pid == 0) _exit(save(place) ? 0 : 1);
        ASSERT_GT(pid, 0);
        // They share what there is of processors and of the disk.
        const auto longest = static_cast<std::uint64_t>(once.count()) * 3 + 1000;
        victims.push_back({pid, static_cast<std::int64_t>(random_() % longest)});
      }
      std::ranges::sort(victims, {}, &Victim::after);
      std::int64_t waited = 0;
      for (const Victim& victim : victims) {
        usleep(static_cast<useconds_t>(victim.after - waited));
        waited = victim.after;
        ::kill(victim.pid, SIGKILL);
        int status = 0;
        ASSERT_EQ(waitpid(victim.pid, &status, 0), victim.pid);
        if (WIFSIGNALED(status)) {
          ++killed;
        } else {
          ASSERT_EQ(WEXITSTATUS(status), 0) << "what was killed before keeps it from saving";
        }
      }
      for (int place = 0; place < kAtOnce; ++place) look(place);
    }
    EXPECT_GT(killed, 0);
  }

  std::string at(const char* name, int place) const {
    return (root_ / (name + std::to_string(place))).string();
  }

  // A recording that must be whole.
  void expect_complete(const std::string& path, CaptureLevel* level = nullptr) const {
    const auto capture = Capture::open(path);
    ASSERT_TRUE(capture) << capture.error().text();
    EXPECT_TRUE((*capture)->complete());
    const auto ok = (*capture)->verify();
    EXPECT_TRUE(ok) << ok.error().text();
    if (level != nullptr) *level = (*capture)->index().level;
  }

  std::mt19937_64 random_{7};
};

TEST_F(Killed, WhileRecordingAnew) {
  everywhen(
      [&](int place) {
        // Moved away first: half of an old one is not what this is about.
        fs::remove_all(at("gone", place));
        if (fs::exists(at("new", place))) fs::rename(at("new", place), at("gone", place));
        return record(at("new", place), CaptureLevel::kFull);
      },
      [&](int place) {
        const std::string path = at("new", place);
        const auto capture = Capture::open(path);
        if (!capture) {
          EXPECT_FALSE(fs::exists(path)) << capture.error().text();
          return;
        }
        const auto ok = (*capture)->verify();
        EXPECT_TRUE(ok) << ok.error().text();
      });
}

TEST_F(Killed, WhileRecordingOverAnother) {
  for (int place = 0; place < 4; ++place) {
    ASSERT_TRUE(record(at("old", place), CaptureLevel::kSummary));
  }
  int old = 0, fresh = 0;
  everywhen(
      [&](int place) {
        // What the next one finds is the last one's, so that each is once the old one.
        const auto before = Capture::open(at("old", place));
        const bool summary = before && (*before)->index().level == CaptureLevel::kSummary;
        return record(at("old", place), summary ? CaptureLevel::kTables : CaptureLevel::kSummary);
      },
      [&](int place) {
        CaptureLevel level = CaptureLevel::kFull;
        expect_complete(at("old", place), &level);
        ++(level == CaptureLevel::kSummary ? old : fresh);
      });
  EXPECT_GT(old, 0);
  EXPECT_GT(fresh, 0);
  // What the killed ones left is taken away by the next that records there.
  for (int place = 0; place < 4; ++place) {
    ASSERT_TRUE(record(at("old", place), CaptureLevel::kSummary));
  }
  for (const auto& entry : fs::directory_iterator(root_)) {
    EXPECT_EQ(entry.path().string().find(".recording-"), std::string::npos) << entry.path();
  }
}

TEST_F(Killed, WhileUnpackingOverAnother) {
  if (packing_libraries().empty()) GTEST_SKIP() << "this build packs nothing";
  const std::string packed = (root_ / "packed.tar.zst").string();
  ASSERT_TRUE(record(at("from", 0), CaptureLevel::kTables));
  ASSERT_TRUE(pack_capture(at("from", 0), packed, 1));
  for (int place = 0; place < 4; ++place) {
    ASSERT_TRUE(record(at("old", place), CaptureLevel::kSummary));
  }
  everywhen([&](int place) { return static_cast<bool>(unpack_capture(packed, at("old", place))); },
            [&](int place) { expect_complete(at("old", place)); });
}

TEST_F(Killed, WhileASessionIsKept) {
  for (int place = 0; place < 4; ++place) {
    ASSERT_TRUE(save_session(*session_, at("session", place), "key"));
  }
  everywhen(
      [&](int place) {
        return static_cast<bool>(save_session(*session_, at("session", place), "key"));
      },
      [&](int place) {
        const auto again = fuzz::small_session();
        const auto ok = load_session(*again, at("session", place), "key");
        EXPECT_TRUE(ok) << ok.error().text();
      });
}

// Two files: the numbers of one case never stand beside the tensors of the other.
TEST_F(Killed, WhileACaseIsSavedOverAnother) {
  const auto kept = keep_case(*find_case_op(session_->last_params().op()),
                              session_->last_params().data(), {"old", "cpu"});
  ASSERT_TRUE(kept) << kept.error().text();
  OpCase other = *kept;
  other.origin.from = "new";
  for (auto& [name, tensor] : other.tensors) tensor.bytes.back() ^= 1;
  const auto of = [&](const OpCase& one) { return one.origin.from == "old" ? *kept : other; };
  const auto file = [&](int place) { return at("case", place) + ".json"; };
  for (int place = 0; place < 4; ++place) ASSERT_TRUE(write_case(*kept, file(place)));
  int old = 0, fresh = 0;
  everywhen(
      [&](int place) {
        const auto before = read_case(file(place));
        return before && write_case(before->origin.from == "old" ? other : *kept, file(place));
      },
      [&](int place) {
        const auto now = read_case(file(place));
        ASSERT_TRUE(now) << now.error().text();
        for (const auto& [name, tensor] : of(*now).tensors) {
          EXPECT_EQ(now->tensors.at(name).bytes, tensor.bytes) << name;
        }
        ++(now->origin.from == "old" ? old : fresh);
      });
  EXPECT_GT(old, 0);
  EXPECT_GT(fresh, 0);
  // What the killed ones left is used or taken away by the next two that save there.
  for (int place = 0; place < 4; ++place) {
    for (int i = 0; i < 2; ++i) ASSERT_TRUE(write_case(*kept, file(place)));
  }
  int tensors = 0;
  for (const auto& entry : fs::directory_iterator(root_)) {
    tensors += entry.path().extension() == ".safetensors" ? 1 : 0;
  }
  EXPECT_EQ(tensors, 4);
}

TEST_F(Killed, WhileAGoldenIsAccepted) {
  setenv("ATTNSCOPE_ASSETS", ATTNSCOPE_SOURCE_DIR "/assets", 1);
  std::vector<fuzz::SmallGolden> small;
  for (int place = 0; place < 4; ++place) small.emplace_back(at("goldens", place));
  everywhen(
      [&](int place) {
        const auto& golden = small[static_cast<std::size_t>(place)];
        auto folder = GoldenFolder::open(golden.folder());
        auto values = parse_golden_values(golden.accepted(), golden.accepted_file());
        return folder && values && folder->write_received(*values) &&
               folder->accept(fuzz::kGoldenName, {"again", "", "", {}});
      },
      [&](int place) {
        const auto& golden = small[static_cast<std::size_t>(place)];
        EXPECT_EQ(golden.judge(), "");
        const auto folder = GoldenFolder::open(golden.folder());
        ASSERT_TRUE(folder);
        for (const char* suffix : {kAcceptedSuffix, kReceivedSuffix}) {
          if (!fs::exists(folder->file(fuzz::kGoldenName, suffix))) continue;
          const auto values = folder->values(fuzz::kGoldenName, suffix);
          EXPECT_TRUE(values) << values.error().text();
        }
        EXPECT_TRUE(fs::exists(golden.accepted_file()));
      });
}

}  // namespace
}  // namespace attnscope::faults
