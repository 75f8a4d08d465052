// Captures: what was recorded is read back the same; interrupted, damaged, newer and foreign
// folders are told apart.
#include "engine/capture/capture.h"

#include <gtest/gtest.h>
#include <malloc.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <random>
#include <set>
#include <sstream>

#include "app/reports/capture_record.h"
#include "app/workbench/workbench.h"
#include "engine/capture/capture_pack.h"
#include "tests/unit/app/trace_session.h"
#include "tests/unit/app/ustar.h"

namespace attnscope {
namespace capture_test {

namespace fs = std::filesystem;

std::string read(const fs::path& file) {
  std::ostringstream text;
  text << std::ifstream(file, std::ios::binary).rdbuf();
  return text.str();
}
void write(const fs::path& file, const std::string& text) {
  std::ofstream(file, std::ios::binary | std::ios::trunc) << text;
}

class CaptureTest : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::temp_directory_path() / ("attnscope-captures-" + std::to_string(getpid()));
    fs::create_directories(folder_);
    path_ = (folder_ / "a.acap").string();
  }
  void TearDown() override { fs::remove_all(folder_); }

  Result<RecordResult> record(const CaptureOptions& capture, std::int64_t steps,
                              const std::string& path, std::vector<std::string> requests = {},
                              References references = References::kNone) {
    RecordOptions options;
    options.run.session.references = references;
    options.run.session.threads = 2;
    options.run.steps = steps;
    options.capture = capture;
    options.requests = std::move(requests);
    return record_scenario(small_scenario(), all_lanes(), options, path, nullptr);
  }
  std::string error_of(const std::string& path) {
    auto capture = Capture::open(path);
    if (!capture) return capture.error().text();
    auto ok = (*capture)->verify();
    return ok ? "no error" : ok.error().text();
  }

  fs::path folder_;
  std::string path_;
};

CaptureOptions level(CaptureLevel l) {
  CaptureOptions options;
  options.level = l;
  return options;
}

// Memory of this process, its own and that of files it has mapped; what malloc keeps for later is
// given back first.
std::int64_t resident_bytes() {
  ::malloc_trim(0);
  std::istringstream status(read("/proc/self/status"));
  std::int64_t kib = 0;
  for (std::string word; status >> word;) {
    std::int64_t n = 0;
    if ((word == "RssAnon:" || word == "RssFile:") && status >> n) kib += n;
  }
  return kib << 10;
}

bool same_bytes(const as_tensor& a, const as_tensor& b) {
  const auto bytes = static_cast<std::size_t>(as_tensor_numel(&a) * as_dtype_size(a.dtype));
  return a.dtype == b.dtype && a.rank == b.rank && std::equal(a.shape, a.shape + a.rank, b.shape) &&
         std::memcmp(a.data, b.data, bytes) == 0;
}

void expect_same(const OpTrace& a, const OpTrace& b) {
  EXPECT_EQ(a.place, b.place);
  EXPECT_EQ(a.lane, b.lane);
  EXPECT_EQ(a.worst, b.worst);
  EXPECT_EQ(a.budget_used, b.budget_used);
  EXPECT_EQ(a.results.size(), b.results.size());
  for (const TapCopy& tap : a.taps) {
    const TapCopy* other = b.tap(tap.name);
    ASSERT_NE(other, nullptr) << tap.name;
    EXPECT_EQ(tap.axes, other->axes);
    EXPECT_TRUE(same_bytes(tap.value, other->value)) << tap.name;
    EXPECT_EQ(tap.reference.data == nullptr, other->reference.data == nullptr);
    if (tap.reference.data != nullptr) {
      EXPECT_TRUE(same_bytes(tap.reference, other->reference)) << tap.name;
    }
  }
  ASSERT_EQ(a.rows.size(), b.rows.size());
  for (std::size_t i = 0; i < a.rows.size(); ++i) {
    EXPECT_EQ(a.rows[i].slots, b.rows[i].slots);
    EXPECT_EQ(a.rows[i].bytes, b.rows[i].bytes);
    EXPECT_EQ(a.rows[i].reference, b.rows[i].reference);
  }
  ASSERT_EQ(a.attention == nullptr, b.attention == nullptr);
  if (a.attention) {
    EXPECT_EQ(a.attention->weights, b.attention->weights);
    EXPECT_EQ(a.attention->slots, b.attention->slots);
  }
}

TEST_F(CaptureTest, FullIsWhatTheSessionHad) {
  auto session = small_session(References::kSim);
  TraceRecorder recorder;
  session->set_observer(&recorder);
  run_steps(*session, 5);
  CaptureOptions options = level(CaptureLevel::kFull);
  options.weights = true;
  options.cache_steps = {4};
  auto writer = CaptureWriter::create(path_, options, *session_info(*session), {"t", "small", {}});
  ASSERT_TRUE(writer) << writer.error().text();
  for (const auto& trace : recorder.traces()) {
    const bool now = trace->step == 4;
    const auto summaries = recorder.summaries();
    auto ok = (*writer)->add(*summaries[static_cast<std::size_t>(trace->step)], trace.get(),
                             now ? session.get() : nullptr);
    ASSERT_TRUE(ok) << ok.error().text();
  }
  ASSERT_TRUE((*writer)->finish());

  auto capture = Capture::open(path_);
  ASSERT_TRUE(capture) << capture.error().text();
  EXPECT_TRUE((*capture)->complete());
  const auto ok = (*capture)->verify();
  EXPECT_TRUE(ok) << ok.error().text();
  ASSERT_EQ((*capture)->summaries().size(), 5u);
  for (const auto& live : recorder.traces()) {
    auto read = (*capture)->trace(live->step);
    ASSERT_TRUE(read) << read.error().text();
    const StepTrace& kept = **read;
    EXPECT_EQ(kept.kept, live->kept);
    EXPECT_EQ(kept.metadata.tables, live->metadata.tables);
    EXPECT_EQ(kept.metadata.tensor("swa_indices")->numbers,
              live->metadata.tensor("swa_indices")->numbers);
    EXPECT_EQ(kept.free_list, live->free_list);
    EXPECT_EQ(kept.owners, live->owners);
    EXPECT_EQ(kept.sampled, live->sampled);
    ASSERT_EQ(kept.requests.size(), live->requests.size());
    for (std::size_t r = 0; r < kept.requests.size(); ++r) {
      EXPECT_EQ(kept.requests[r].request.tokens, live->requests[r].request.tokens);
      EXPECT_EQ(kept.requests[r].request.state, live->requests[r].request.state);
      EXPECT_EQ(kept.requests[r].tables, live->requests[r].tables);
    }
    ASSERT_EQ(kept.ops.size(), live->ops.size());
    for (std::size_t i = 0; i < kept.ops.size(); ++i) expect_same(*live->ops[i], *kept.ops[i]);
    const StepSummary& a = *(*capture)->summaries()[static_cast<std::size_t>(live->step)];
    const StepSummary& b = *recorder.summaries()[static_cast<std::size_t>(live->step)];
    EXPECT_EQ(a.events.size(), b.events.size());
    ASSERT_EQ(a.results.size(), b.results.size());
    for (std::size_t i = 0; i < a.results.size(); ++i) {
      EXPECT_EQ(a.results[i].budget_used, b.results[i].budget_used);
      EXPECT_EQ(a.results[i].verdict, b.results[i].verdict);
      EXPECT_EQ(a.results[i].step, b.results[i].step);
    }
  }
  const std::vector<BlockOwner> owners = session->serving().owners();
  for (std::int32_t id = 1; id < static_cast<std::int32_t>(owners.size()); ++id) {
    auto block = (*capture)->block(4, id);
    ASSERT_TRUE(block) << block.error().text();
    const BlockOwner& owner = owners[static_cast<std::size_t>(id)];
    const bool used = owner.request >= 0 || owner.keyed;
    if (used) {
      ASSERT_NE(*block, nullptr) << id;
      EXPECT_EQ(
          std::memcmp((*block)->bytes.data(), session->slab().block(id), (*block)->bytes.size()),
          0);
    }
  }
  EXPECT_EQ((*capture)->block_step(3), -1);
}

TEST_F(CaptureTest, SaysWhyPromptsMissedAndWhoWaits) {
  Scenario scenario = small_scenario();
  ASSERT_GT(scenario.requests.size(), 1u);
  scenario.limits.max_requests = 1;
  SessionOptions session_options;
  session_options.references = References::kNone;
  auto session = Session::create(scenario, all_lanes(), session_options);
  ASSERT_TRUE(session) << session.error().text();
  TraceRecorder recorder;
  (*session)->set_observer(&recorder);
  run_steps(**session, 3);
  auto writer = CaptureWriter::create(path_, level(CaptureLevel::kTables), *session_info(**session),
                                      {"t", "small", {}});
  ASSERT_TRUE(writer) << writer.error().text();
  for (const auto& trace : recorder.traces()) {
    const auto summary = recorder.summaries()[static_cast<std::size_t>(trace->step)];
    ASSERT_TRUE((*writer)->add(*summary, trace.get(), nullptr));
  }
  ASSERT_TRUE((*writer)->finish());
  auto capture = Capture::open(path_);
  ASSERT_TRUE(capture) << capture.error().text();
  std::size_t misses = 0, waiting = 0;
  for (const auto& live : recorder.traces()) {
    auto kept = (*capture)->trace(live->step);
    ASSERT_TRUE(kept) << kept.error().text();
    ASSERT_EQ((*kept)->misses.size(), live->misses.size());
    for (std::size_t i = 0; i < live->misses.size(); ++i) {
      EXPECT_EQ((*kept)->misses[i].request, live->misses[i].request);
      EXPECT_EQ((*kept)->misses[i].text, live->misses[i].text);
    }
    EXPECT_EQ((*kept)->waiting.request, live->waiting.request);
    EXPECT_EQ((*kept)->waiting.text, live->waiting.text);
    misses += live->misses.size();
    waiting += live->waiting.request >= 0 ? 1 : 0;
  }
  EXPECT_GT(misses, 0u);
  EXPECT_GT(waiting, 0u);
}

TEST_F(CaptureTest, LevelsAndFilters) {
  ASSERT_TRUE(record(level(CaptureLevel::kSummary), 3, path_));
  auto summary = Capture::open(path_);
  ASSERT_TRUE(summary);
  auto none = (*summary)->trace(1);
  ASSERT_TRUE(none);
  EXPECT_EQ(*none, nullptr);
  auto entry = (*summary)->entry(1);
  ASSERT_TRUE(entry && *entry);
  int with_statistics = 0;
  for (const OpEntry& op : (*entry)->ops) {
    for (const TapEntry& tap : op.taps) {
      EXPECT_EQ(tap.value.name, "");
      EXPECT_NE(tap.weight, tap.stats.has_value()) << tap.name;
      with_statistics += tap.stats ? 1 : 0;
    }
  }
  EXPECT_GT(with_statistics, 200);

  // Replaces the old one; tables have whole numbers alone.
  ASSERT_TRUE(record(level(CaptureLevel::kTables), 3, path_));
  auto tables = Capture::open(path_);
  ASSERT_TRUE(tables);
  auto trace = (*tables)->trace(2);
  ASSERT_TRUE(trace && *trace);
  const OpTrace* topk = (*trace)->find(1, AS_OP_INDEXER_TOPK);
  ASSERT_NE(topk, nullptr);
  EXPECT_NE(topk->tap("indices"), nullptr);
  EXPECT_EQ(topk->tap("logits"), nullptr);
  EXPECT_NE((*tables)->why_missing(topk->place, "logits").find("--level full --op indexer_topk"),
            std::string::npos);

  CaptureOptions some = level(CaptureLevel::kFull);
  some.filter.layers = {1};
  some.filter.ops = {AS_OP_WO_B};
  some.filter.steps = {{1, 2}};
  ASSERT_TRUE(record(some, 3, path_, {"long"}));
  auto filtered = Capture::open(path_);
  ASSERT_TRUE(filtered);
  for (const std::int64_t step : {0, 1, 2}) {
    auto t = (*filtered)->trace(step);
    ASSERT_TRUE(t && *t);
    for (const std::int32_t row : (*t)->kept) EXPECT_EQ((*t)->request_of(row), 0);
    for (const auto& op : (*t)->ops) {
      const bool kept = step > 0 && op->place.layer == 1 && op->place.op == AS_OP_WO_B;
      EXPECT_EQ(op->tap("y") != nullptr && op->place.op == AS_OP_WO_B, kept);
    }
  }
  EXPECT_EQ(record(some, 3, path_, {"nobody"}).error().code, AS_USAGE);
}

TEST_F(CaptureTest, ForeignFoldersStay) {
  fs::create_directory(path_);
  write(path_ + "/letter.txt", "dear");
  const auto refused = record(level(CaptureLevel::kTables), 2, path_);
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().text().find("is no capture"), std::string::npos);
  EXPECT_EQ(read(path_ + "/letter.txt"), "dear");
  EXPECT_FALSE(record(level(CaptureLevel::kTables), 2, (folder_ / "no/such/b.acap").string()));
  write(folder_ / "file.acap", "x");
  EXPECT_FALSE(record(level(CaptureLevel::kTables), 2, (folder_ / "file.acap").string()));
  EXPECT_NE(error_of((folder_ / "file.acap").string()).find("captures are folders"),
            std::string::npos);
  EXPECT_NE(error_of(path_).find("no capture"), std::string::npos);
  EXPECT_NE(error_of((folder_ / "none").string()).find("no such capture"), std::string::npos);
}

TEST_F(CaptureTest, ErrorsSayWhatToDoNext) {
  ASSERT_TRUE(record(level(CaptureLevel::kFull), 3, path_));
  const auto capture = Capture::open(path_);
  ASSERT_TRUE(capture) << capture.error().text();
  for (const auto& error : {(*capture)->trace(99).error(), (*capture)->entry(-1).error()}) {
    EXPECT_NE(error.message.find("has no step"), std::string::npos);
    EXPECT_EQ(error.hint, "it has steps 0 to 2");
  }
  const auto nameless = Capture::open("");
  ASSERT_FALSE(nameless);
  EXPECT_NE(nameless.error().message.find("its name is empty"), std::string::npos);
  EXPECT_NE(nameless.error().hint, "");
  const auto no_place = record(level(CaptureLevel::kSummary), 1, "/proc/x.acap");
  ASSERT_FALSE(no_place);
  EXPECT_NE(no_place.error().message.find("/proc/x.acap"), std::string::npos);
  EXPECT_NE(no_place.error().hint, "") << no_place.error().text();
}

// In a container a program may have the number of one that was killed.
TEST_F(CaptureTest, WhatAKilledProgramOfThisNumberLeftIsNoObstacle) {
  const fs::path left = path_ + ".recording-" + std::to_string(getpid()) + ".0";
  fs::create_directory(left);
  write(left / "index.json", "{");
  ASSERT_TRUE(record(level(CaptureLevel::kFull), 2, path_));
  ASSERT_TRUE(record(level(CaptureLevel::kTables), 2, path_));
  EXPECT_EQ(error_of(path_), "no error");
  EXPECT_EQ(read(left / "index.json"), "{");  // nobody knows whose it is
}

// A link to a capture would become a folder.
TEST_F(CaptureTest, LinksAreNotReplaced) {
  ASSERT_TRUE(record(level(CaptureLevel::kSummary), 2, path_));
  const std::string link = (folder_ / "latest.acap").string();
  for (const std::string& target : {path_, (folder_ / "none.acap").string()}) {
    fs::create_directory_symlink(target, link);
    const auto refused = record(level(CaptureLevel::kTables), 2, link);
    ASSERT_FALSE(refused);
    EXPECT_NE(refused.error().message.find("is a link to " + target), std::string::npos)
        << refused.error().text();
    EXPECT_TRUE(fs::is_symlink(link));
    fs::remove(link);
  }
  EXPECT_EQ(error_of(path_), "no error");
}

TEST_F(CaptureTest, NewerDamagedAndIncompleteAreToldApart) {
  ASSERT_TRUE(record(level(CaptureLevel::kTables), 3, path_));
  const std::string index = read(path_ + "/index.json");
  const std::string steps = read(path_ + "/steps.jsonl");
  const auto with = [&](const std::string& from, const std::string& to) {
    std::string text = index;
    const auto at = text.find(from);
    EXPECT_NE(at, std::string::npos);
    write(path_ + "/index.json", text.replace(at, from.size(), to));
  };
  with("\"version\": 1", "\"version\": 2");
  EXPECT_NE(error_of(path_).find("too new"), std::string::npos) << error_of(path_);
  with("\"version\": 1", "\"version\": \"x\"");
  EXPECT_NE(error_of(path_).find("damaged"), std::string::npos);
  with("\"hidden\": 128", "\"hidden\": -5");
  EXPECT_NE(error_of(path_).find("damaged"), std::string::npos);
  with("\"steps\": 3", "\"steps\": 4");
  EXPECT_NE(error_of(path_).find("it has 3 steps, index.json says 4"), std::string::npos);
  with("\"format\": \"attnscope-capture\"", "\"format\": \"other\"");
  EXPECT_NE(error_of(path_).find("is no capture"), std::string::npos);

  // As a recording that was interrupted in the middle of its third step.
  nlohmann::json unfinished = nlohmann::json::parse(index);
  unfinished["complete"] = false;
  unfinished.erase("sum");
  unfinished["sum"] = text_checksum(unfinished.dump());
  write(path_ + "/index.json", unfinished.dump());
  write(path_ + "/steps.jsonl", steps.substr(0, steps.size() - 200));
  auto cut = Capture::open(path_);
  ASSERT_TRUE(cut) << cut.error().text();
  EXPECT_FALSE((*cut)->complete());
  EXPECT_EQ((*cut)->summaries().size(), 2u);
  EXPECT_TRUE((*cut)->verify());
  // The same in one that says it is complete is damage.
  write(path_ + "/index.json", index);
  EXPECT_NE(error_of(path_).find("line 3 of steps.jsonl"), std::string::npos);
  write(path_ + "/steps.jsonl", steps);
  EXPECT_EQ(error_of(path_), "no error");

  std::string payload = read(path_ + "/payload/000001.safetensors");
  payload.back() = static_cast<char>(payload.back() ^ 1);
  write(path_ + "/payload/000001.safetensors", payload);
  EXPECT_NE(error_of(path_).find("does not fit its digest"), std::string::npos);
  fs::remove(path_ + "/payload/000001.safetensors");
  EXPECT_NE(error_of(path_).find("cannot open"), std::string::npos);
}

// Whatever bytes change, the answer is a capture or a named error. Checksums are made to fit again
// in half of the cases, so that what lies behind them is reached.
TEST_F(CaptureTest, HostileFilesAreAnswered) {
  CaptureOptions options = level(CaptureLevel::kFull);
  options.filter.layers = {1};
  ASSERT_TRUE(record(options, 2, path_));
  int errors = 0;
  for (unsigned seed = 0; seed < 400; ++seed) {
    std::mt19937 random(seed);
    static const char* const kFiles[] = {"index.json", "steps.jsonl", "traces.jsonl",
                                         "payload/000001.safetensors"};
    const std::string file = path_ + "/" + kFiles[random() % 4];
    const std::string before = read(file);
    std::string text = before;
    const std::size_t reach = std::min<std::size_t>(text.size(), 20000);
    for (unsigned edits = 1 + random() % 3; edits > 0; --edits) {
      const std::size_t at = random() % std::min(reach, text.size());
      switch (random() % 4) {
        case 0:
          text[at] = static_cast<char>(random());
          break;
        case 1:
          if (text[at] >= '0' && text[at] <= '9') text[at] = "0123456789-"[random() % 11];
          break;
        case 2:
          text.insert(at, "99999999999");
          break;
        default:
          text.resize(text.size() - random() % (text.size() / 2));
          break;
      }
    }
    if (random() % 2 == 0 && file.ends_with(".jsonl")) {  // as someone would who means harm
      std::istringstream in(text);
      std::string fixed;
      for (std::string line; std::getline(in, line);) {
        if (line.size() > 27) fixed += checked_line("{" + line.substr(26));
      }
      text = fixed;
    }
    write(file, text);
    const std::string said = error_of(path_);
    if (said != "no error") {
      ++errors;
      EXPECT_NE(said.find("a.acap"), std::string::npos) << "seed " << seed << ": " << said;
      EXPECT_EQ(said.find('\n'), std::string::npos) << said;
    }
    write(file, before);
  }
  EXPECT_GT(errors, 200);
  EXPECT_EQ(error_of(path_), "no error");
}

// kill -9 at any time: the old one, the new one, or one that says it is incomplete.
TEST_F(CaptureTest, KilledRecordingsOpen) {
  ASSERT_TRUE(record(level(CaptureLevel::kSummary), 2, path_));
  int kept_old = 0;
  std::set<std::string> names;
  for (int round = 0; round < 12; ++round) {
    const bool fresh = round % 3 == 0;
    const std::string path = fresh ? (folder_ / ("n" + std::to_string(round))).string() : path_;
    names.insert(path);
    const pid_t child = fork();
    if (child == 0) {
      (void)record(level(CaptureLevel::kTables), 6, path);
      _exit(0);
    }
    ASSERT_GT(child, 0);
    usleep(static_cast<useconds_t>(20000 + round * 45000));
    kill(child, SIGKILL);
    int status = 0;
    waitpid(child, &status, 0);
    auto capture = Capture::open(path);
    if (fresh && !capture) {
      EXPECT_FALSE(fs::exists(path)) << capture.error().text();
      continue;
    }
    ASSERT_TRUE(capture) << capture.error().text();
    const auto ok = (*capture)->verify();
    EXPECT_TRUE(ok) << ok.error().text();
    if (!fresh) {
      EXPECT_TRUE((*capture)->complete());
      kept_old += (*capture)->index().level == CaptureLevel::kSummary ? 1 : 0;
    }
  }
  EXPECT_GT(kept_old, 0);
  // Who records under a name again takes away what others have left of it.
  names.insert(path_);
  for (const std::string& name : names) {
    ASSERT_TRUE(record(level(CaptureLevel::kSummary), 2, name)) << name;
  }
  for (const auto& entry : fs::directory_iterator(folder_)) {  // leftovers of the killed are gone
    EXPECT_EQ(entry.path().string().find(".recording-"), std::string::npos) << entry.path();
  }
}

// What a build server would see of a viewer that loads the same file again and again.
TEST_F(CaptureTest, LoadingAgainAndAgainTakesNoMoreMemory) {
  ASSERT_TRUE(record(level(CaptureLevel::kFull), 3, path_, {}, References::kSim));
  const auto load = [&] {
    auto capture = Capture::open(path_);
    EXPECT_TRUE(capture) << capture.error().text();
    for (const auto& summary : (*capture)->summaries()) {
      const auto trace = (*capture)->trace(summary->step);
      EXPECT_TRUE(trace && *trace);
    }
    return *capture;
  };
  // As a share of the third load, the twentieth.
  const auto growth = [](const std::function<void()>& once) {
    std::int64_t third = 0;
    for (int i = 1; i <= 20; ++i) {
      once();
      if (i == 3) third = resident_bytes();
    }
    return static_cast<double>(resident_bytes()) / static_cast<double>(third);
  };
  EXPECT_LE(growth([&] { load(); }), 1.1);
  {
    Workbench bench({});
    EXPECT_LE(growth([&] {
                const auto ok = bench.open_capture(path_);
                ASSERT_TRUE(ok) << ok.error().text();
                for (int i = 0; i < 3; ++i) {
                  EXPECT_NE(bench.op(), nullptr);
                  bench.previous_step();
                }
              }),
              1.1);
  }
  // The measure sees a capture that is not let go of.
  std::vector<std::shared_ptr<const Capture>> kept;
  EXPECT_GT(growth([&] { kept.push_back(load()); }), 1.1);
}

TEST_F(CaptureTest, PacksAndUnpacks) {
  if (packing_libraries().empty()) GTEST_SKIP() << "this build packs nothing";
  ASSERT_TRUE(record(level(CaptureLevel::kTables), 3, path_));
  const std::string packed = (folder_ / "a.tar.zst").string();
  const std::string again = (folder_ / "b.acap").string();
  auto made = pack_capture(path_, packed, 3);
  ASSERT_TRUE(made) << made.error().text();
  EXPECT_LT(made->packed * 2, made->bytes);
  auto unpacked = unpack_capture(packed, again);
  ASSERT_TRUE(unpacked) << unpacked.error().text();
  EXPECT_EQ(error_of(again), "no error");
  for (const auto& entry : fs::recursive_directory_iterator(path_)) {
    if (!entry.is_regular_file()) continue;
    EXPECT_EQ(read(entry.path()), read(fs::path(again) / fs::relative(entry.path(), path_)));
  }
  // Damage of the file leaves what was there.
  const std::string whole = read(packed);
  std::mt19937 random(1);
  for (int round = 0; round < 60; ++round) {
    std::string text = whole;
    if (round % 2 == 0) {
      text.resize(random() % text.size());
    } else {
      text[random() % text.size()] ^= static_cast<char>(1 << random() % 8);
    }
    write(packed, text);
    const auto refused = unpack_capture(packed, again);
    if (!refused) {
      EXPECT_NE(refused.error().text().find("a.tar.zst"), std::string::npos);
    }
    EXPECT_EQ(error_of(again), "no error");
  }
  write(packed, whole);
  EXPECT_NE(Capture::open(packed).error().text().find("attnscope unpack"), std::string::npos);
  EXPECT_FALSE(unpack_capture((folder_ / "none.tar.zst").string(), again));
  write(folder_ / "letter", "dear");
  EXPECT_FALSE(unpack_capture(packed, (folder_ / "letter").string()));
  for (const auto& entry : fs::directory_iterator(folder_)) {
    EXPECT_EQ(entry.path().string().find(".unpacking-"), std::string::npos) << entry.path();
  }
}

// An archive may not write beside the capture, whatever names it holds.
TEST_F(CaptureTest, UnpackingStaysInItsFolder) {
  if (packing_libraries().empty()) GTEST_SKIP() << "this build packs nothing";
  ASSERT_EQ(std::system("zstd --version >/dev/null 2>&1"), 0) << "install the program zstd";
  const std::string packed = (folder_ / "evil.tar.zst").string();
  for (const std::string name :
       {"../escaped", "/tmp/escaped-attnscope", "payload/../../escaped", "payload/1.safetensors/x",
        "index.json/../../escaped", "other.txt"}) {
    write(folder_ / "evil.tar", ustar_file(name, "evil") + ustar_end());
    const std::string command =
        "zstd -q -f '" + (folder_ / "evil.tar").string() + "' -o '" + packed + "'";
    ASSERT_EQ(std::system(command.c_str()), 0);
    const auto refused = unpack_capture(packed, (folder_ / "into.acap").string());
    ASSERT_FALSE(refused) << name;
    EXPECT_NE(refused.error().text().find("is no file of a capture"), std::string::npos);
    EXPECT_FALSE(fs::exists(folder_ / "escaped"));
    EXPECT_FALSE(fs::exists("/tmp/escaped-attnscope"));
    EXPECT_FALSE(fs::exists(folder_ / "into.acap"));
  }
}

// A small file may hold a large capture: what it would write is known before it is written.
TEST_F(CaptureTest, UnpackingIsBoundBySizesKnownBefore) {
  if (packing_libraries().empty()) GTEST_SKIP() << "this build packs nothing";
  ASSERT_EQ(std::system("zstd --version >/dev/null 2>&1"), 0) << "install the program zstd";
  ASSERT_TRUE(record(level(CaptureLevel::kTables), 2, path_));
  const std::string packed = (folder_ / "bomb.tar.zst").string(),
                    into = (folder_ / "into.acap").string();
  const auto pack = [&](const std::string& index, std::size_t zeros) {
    write(
        folder_ / "bomb.tar",
        ustar_file("cache/000007.safetensors", std::string(zeros, '\0')) +
            ustar_file("index.json", index) +
            ustar_file("payload/000000.safetensors", read(path_ + "/payload/000000.safetensors")) +
            ustar_file("payload/000001.safetensors", read(path_ + "/payload/000001.safetensors")) +
            ustar_file("steps.jsonl", read(path_ + "/steps.jsonl")) +
            ustar_file("traces.jsonl", read(path_ + "/traces.jsonl")) + ustar_end());
    const std::string command =
        "zstd -q -f '" + (folder_ / "bomb.tar").string() + "' -o '" + packed + "'";
    ASSERT_EQ(std::system(command.c_str()), 0);
  };
  // Nothing of the capture, and nothing on the way to it.
  const auto nothing_written = [&] {
    for (const auto& entry : fs::directory_iterator(folder_)) {
      EXPECT_EQ(entry.path().filename().string().find("into.acap"), std::string::npos);
    }
  };
  // Of an older program, whose index states no sizes.
  auto index = nlohmann::json::parse(read(path_ + "/index.json"));
  ASSERT_GT(index["bytes"].get<std::uint64_t>(), 0u);
  const std::string stated = read(path_ + "/index.json");
  index.erase("bytes");
  index.erase("sum");
  const std::string old = index.dump();
  pack(old, kUnpackFree + 1);
  const auto large = unpack_capture(packed, into);
  ASSERT_FALSE(large);
  EXPECT_EQ(large.error().code, AS_BAD_INPUT);
  EXPECT_NE(large.error().text().find("bomb.tar.zst: a file of"), std::string::npos);
  EXPECT_NE(large.error().hint.find("--large"), std::string::npos);
  nothing_written();
  // Asked for.
  const auto asked = unpack_capture(packed, into, {true});
  ASSERT_TRUE(asked) << asked.error().text();
  EXPECT_EQ(fs::file_size(into + "/cache/000007.safetensors"), kUnpackFree + 1);
  fs::remove_all(into);
  // A stated size holds for whoever asks for a large one as well.
  pack(stated, 1 << 20);
  const auto beyond = unpack_capture(packed, into, {true});
  ASSERT_FALSE(beyond);
  EXPECT_NE(beyond.error().message.find("index.json says"), std::string::npos)
      << beyond.error().text();
  nothing_written();
  // An archive that stops where a file does, one with a name twice.
  const auto refused = [&](const std::string& tar, const char* what) {
    write(folder_ / "bomb.tar", tar);
    const std::string command =
        "zstd -q -f '" + (folder_ / "bomb.tar").string() + "' -o '" + packed + "'";
    ASSERT_EQ(std::system(command.c_str()), 0);
    const auto answer = unpack_capture(packed, into);
    ASSERT_FALSE(answer) << what;
    EXPECT_NE(answer.error().text().find(what), std::string::npos) << answer.error().text();
    nothing_written();
  };
  refused(ustar_file("index.json", stated), "it is cut off");
  refused(ustar_file("steps.jsonl", "") + ustar_file("steps.jsonl", "") + ustar_end(), "twice");
  pack(stated, 0);
  const auto good = unpack_capture(packed, into);
  EXPECT_TRUE(good) << good.error().text();
}

// What is started over is what was recorded, or nothing.
TEST_F(CaptureTest, KnowsItsScenario) {
  const auto record_text = [&](const std::string& text) {
    write(folder_ / "own.json", text);
    ModelChoice choice;
    choice.model = "tiny";
    choice.layers = {0};
    auto scenario = load_scenario((folder_ / "own.json").string(), choice);
    ASSERT_TRUE(scenario) << scenario.error().text();
    RecordOptions options;
    options.run.session.references = References::kNone;
    options.run.steps = 1;
    auto made = record_scenario(*scenario, all_lanes(), options, path_, nullptr);
    ASSERT_TRUE(made) << made.error().text();
    fs::remove(folder_ / "own.json");
  };
  write(folder_ / "words.txt", "abcdefg");
  record_text(R"({"version": 1, "model": {"preset": "v4-flash", "layers": [2]}, "pool_blocks": 24,
    "requests": [{"name": "one", "text_file": "words.txt", "max_new_tokens": 2}]})");
  Workbench bench({});
  ASSERT_TRUE(bench.open_capture(path_));
  EXPECT_FALSE(bench.no_scenario());
  EXPECT_EQ(bench.setup().scenario.model.layers, std::vector<int>({0}));
  EXPECT_EQ(bench.setup().scenario.name, "own");
  // Another prompt, then none at all.
  write(folder_ / "words.txt", "abc");
  ASSERT_TRUE(bench.open_capture(path_));
  ASSERT_TRUE(bench.no_scenario());
  EXPECT_NE(bench.no_scenario()->message.find("a request one of 3 tokens instead of one of 7"),
            std::string::npos)
      << bench.no_scenario()->text();
  EXPECT_TRUE(bench.setup().scenario.requests.empty());
  fs::remove(folder_ / "words.txt");
  ASSERT_TRUE(bench.open_capture(path_));
  ASSERT_TRUE(bench.no_scenario());
  EXPECT_NE(bench.no_scenario()->message.find("words.txt"), std::string::npos);
  const auto refused = bench.record((folder_ / "b.acap").string(), CaptureLevel::kFull);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().message, bench.no_scenario()->message);
  bench.open(RunSetup(), false);
  EXPECT_FALSE(bench.no_scenario());
}

// Of an older program: by its name, and only where that is the same model and the same prompts.
TEST_F(CaptureTest, OfAnOlderProgramIsFoundByItsName) {
  auto scenario = load_scenario("early", {});
  ASSERT_TRUE(scenario);
  RecordOptions options;
  options.run.session.references = References::kNone;
  options.run.steps = 1;
  ASSERT_TRUE(record_scenario(*scenario, all_lanes(), options, path_, nullptr));
  const auto change = [&](const std::function<void(nlohmann::json&)>& edit) {
    auto index = nlohmann::json::parse(read(path_ + "/index.json"));
    for (const char* key : {"scenario_file", "scenario_text", "checkpoint", "hidden_states"}) {
      index["origin"].erase(key);
    }
    edit(index);
    write(path_ + "/index.json", index.dump());
    auto capture = Capture::open(path_);
    EXPECT_TRUE(capture) << capture.error().text();
    return scenario_of(**capture);
  };
  EXPECT_TRUE(change([](auto&) {}));
  const auto other = change([](auto& index) { index["model"]["rope_theta"] = 20000.0; });
  ASSERT_FALSE(other);
  EXPECT_NE(other.error().message.find("has another model"), std::string::npos);
  const auto unknown = change([](auto& index) { index["origin"]["scenario"] = "nobody's"; });
  ASSERT_FALSE(unknown);
  EXPECT_EQ(unknown.error().code, AS_BAD_INPUT);
}

TEST_F(CaptureTest, TheWorkbenchShowsOne) {
  ASSERT_TRUE(record(level(CaptureLevel::kFull), 5, path_, {}, References::kSim));
  Workbench bench({});
  EXPECT_FALSE(bench.open_capture((folder_ / "none.acap").string()));
  auto ok = bench.open_capture(path_);
  ASSERT_TRUE(ok) << ok.error().text();
  EXPECT_EQ(bench.cursor().step, 4);
  ASSERT_NE(bench.op(), nullptr);
  EXPECT_EQ(bench.why_missing(), "");
  EXPECT_NE(bench.selected_tap(), nullptr);
  bench.previous_step();
  EXPECT_EQ(bench.cursor().step, 3);
  ASSERT_NE(bench.step_before(), nullptr);
  bench.first_step();
  EXPECT_EQ(bench.cursor().step, 0);
  bench.previous_op();
  EXPECT_EQ(bench.cursor().step, 0);
  bench.last_step();
  const Place last = bench.cursor();
  bench.next_step();
  EXPECT_EQ(bench.cursor(), last);
  ASSERT_TRUE(record(level(CaptureLevel::kSummary), 3, path_));
  ASSERT_TRUE(bench.open_scenario(path_));
  EXPECT_EQ(bench.op(), nullptr);
  EXPECT_NE(bench.why_missing().find("not recorded: this capture's level is summary"),
            std::string::npos);
  // Block tables are there from level tables on.
  EXPECT_NE(bench.why_missing(CaptureLevel::kTables).find("--level tables"), std::string::npos);
  ASSERT_TRUE(record(level(CaptureLevel::kTables), 3, path_));
  ASSERT_TRUE(bench.open_scenario(path_));
  EXPECT_EQ(bench.why_missing(CaptureLevel::kTables), "");
}

}  // namespace capture_test
}  // namespace attnscope
