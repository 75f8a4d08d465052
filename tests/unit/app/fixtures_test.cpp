// The case, the golden, the session and the plugin that 83b8554 left (tests/fixtures/README.md) run
// in the program of today and say what they said then. Integers are compared exactly, what was
// computed within tolerances: it may round otherwise at another SIMD level.
#include "tests/unit/app/fixtures.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <map>

#include "app/reports/report.h"
#include "app/wiring/plugins.h"
#include "app/wiring/wiring.h"
#include "app/workbench/workbench.h"
#include "engine/io/byte_stream.h"
#include "engine/opcase/case_file.h"
#include "engine/opcase/import_map.h"
#include "engine/session/persist/session_file.h"
#include "engine/session/session.h"

namespace attnscope {
namespace {

using nlohmann::json;

TEST_F(FixturesTest, TheCaseRunsInEveryLane) {
  const std::string file = path("sparse_attention.json");
  const Outcome out = run({"case", "run", file, "--lane", "cpu", "--lane", "ref.sim", "--lane",
                           "ref.exact", "--repeat", "1", "--json"});
  EXPECT_EQ(out.code, 0) << out.out << out.err;
  const json runs = parsed(out).at("runs");
  ASSERT_EQ(runs.size(), 3u);
  for (const json& one : runs) {
    EXPECT_EQ(one.at("op"), "sparse_attention");
    EXPECT_EQ(one.at("stored_lane"), "cpu");
    EXPECT_EQ(one.at("right"), true) << one.dump(1);
    ASSERT_EQ(one.at("taps").size(), 2u);
    EXPECT_EQ(one.at("taps")[0].at("tap"), "o");
    EXPECT_EQ(one.at("taps")[0].at("shape"), json({2, 8, 512}));
    EXPECT_EQ(one.at("taps")[1].at("tap"), "lse");
    EXPECT_EQ(one.at("taps")[1].at("shape"), json({2, 8}));
  }
  EXPECT_EQ(run({"case", "run", file, "--lane", "mutant:lse_with_sink"}).code, 1);
  flip("sparse_attention.safetensors", 100);
  EXPECT_EQ(run({"case", "run", file}).code, 3);
  flip("sparse_attention.safetensors", 100);
  EXPECT_EQ(run({"case", "run", file}).code, 0);
  replace("sparse_attention.json", "\n \"version\": 1", "\n \"version\": 99");
  expect(run({"case", "run", file}), 3, "99");
}

// Names of taps that were others then, in a case, a map and on the command line.
TEST_F(FixturesTest, OldNamesOfTapsAreUnderstood) {
  const std::string file = path("sparse_attention.json");
  const auto kept = read_case(file);
  ASSERT_TRUE(kept) << kept.error().text();
  EXPECT_TRUE(kept->tensors.contains("topk_length"));
  EXPECT_TRUE(kept->tensors.contains("extra_topk_length"));
  EXPECT_FALSE(kept->tensors.contains("lens"));
  const std::string tensors = path("sparse_attention.safetensors");
  for (const std::string name : {"lens", "topk_length"}) {
    std::string set = name;
    set.append("=").append(tensors);
    const Outcome out =
        run({"case", "edit", file, "--set", set, "-o", path(name + "_edited.json")});
    EXPECT_EQ(out.code, 0) << out.out << out.err;
  }
  EXPECT_EQ(run({"case", "run", path("lens_edited.json"), "--lane", "cpu"}).code, 0);
  const auto map = read_import_map(
      write("map.json", R"({"format": "attnscope-import-map", "version": 1, "engine": "other",
          "request_of": {"name": "whose"}, "ops": {
          "swa_index": {"tensors": {"query_start": {"name": "starts"}}},
          "sparse_attention": [{"tensors": {"lens": {"name": "window"}}}]}})"));
  ASSERT_TRUE(map) << map.error().text();
  EXPECT_EQ(map->token_to_req->name, "whose");
  ASSERT_EQ(map->ops.size(), 2u);
  EXPECT_EQ(map->ops[0].tensors.at("query_start_loc").name, "starts");
  EXPECT_EQ(map->ops[1].tensors.at("topk_length").name, "window");
  const Outcome taps =
      run({"tap-export", path("short.json"), "--steps", "1", "--taps",
           "schedule.scheduled,slot_mapping.request_of", "-o", path("taps.safetensors")});
  EXPECT_EQ(taps.code, 0) << taps.out << taps.err;
}

TEST_F(FixturesTest, TheGoldenHolds) {
  const auto golden = [&](std::vector<std::string> more = {}) {
    more.insert(more.begin(), {"golden", "run", "--ci", "--json", "--goldens", path("golden")});
    return run(more);
  };
  const Outcome out = golden();
  EXPECT_EQ(out.code, 0) << out.out << out.err;
  const json report = parsed(out);
  EXPECT_EQ(report.at("counts").at("passed"), 1);
  EXPECT_TRUE(report.at("orphans").empty());
  const json& counts = report.at("goldens").at(0).at("counts");
  int values = 0;
  for (const char* verdict : {"equal", "within", "follows", "near_tie"}) {
    values += counts.at(verdict).get<int>();
  }
  EXPECT_EQ(values, 80) << counts;

  expect(golden({"--lane", "mutant:lse_with_sink"}), 1, "lse of ");
  replace("golden/prefix_hit.accepted.json", "[1,3,3,3,40,20]", "[1,3,3,3,40,21]");
  EXPECT_EQ(golden().code, 1);
  replace("golden/prefix_hit.accepted.json", "[1,3,3,3,40,21]", "[1,3,3,3,40,20]");
  replace("golden/prefix_hit.json", "Why?", "Who?");
  expect(golden(), 1, "\"stale\"");
  replace("golden/prefix_hit.json", "Who?", "Why?");
  replace("golden/prefix_hit.accepted.json", "\"version\": 1", "\"version\": 99");
  expect(golden(), 3, "99");
}

// Values without a version of profiles mean those of then; values accepted today mean today's.
TEST_F(FixturesTest, AGoldenKeepsTheMeaningOfItsProfile) {
  const std::string accepted = "golden/prefix_hit.accepted.json";
  const auto golden = [&](const std::vector<std::string>& more) {
    std::vector<std::string> all = {"golden"};
    all.insert(all.end(), more.begin(), more.end());
    all.insert(all.end(), {"--goldens", path("golden")});
    return run(all);
  };
  EXPECT_EQ(read(path(accepted)).find("\"profiles\""), std::string::npos);
  EXPECT_EQ(golden({"run"}).code, 0);
  std::filesystem::remove(path(accepted));
  EXPECT_EQ(golden({"run"}).code, 1);
  EXPECT_EQ(golden({"accept", "prefix_hit", "--reason", "today"}).code, 0);
  const auto profiles = [](int version) { return fmt::format("\"profiles\": {}", version); };
  EXPECT_NE(read(path(accepted)).find(profiles(kProfilesVersion)), std::string::npos);
  EXPECT_EQ(golden({"run", "--ci"}).code, 0);
  replace(accepted, profiles(kProfilesVersion), profiles(kProfilesVersion + 1));
  EXPECT_EQ(golden({"run", "--ci"}).code, 3);
}

class KeptSession : public FixturesTest {
 protected:
  std::unique_ptr<Session> fresh() const {
    auto scenario = load_scenario(path("short.json"));
    EXPECT_TRUE(scenario) << scenario.error().text();
    auto session = Session::create(*scenario, all_lanes(), {});
    EXPECT_TRUE(session) << session.error().text();
    return std::move(*session);
  }
  Result<void> load(Session& session, const std::string& key = "") const {
    const auto own = facts_.at("session").at("key").get<std::string>();
    return load_session(session, path("short.session"), key.empty() ? own : key);
  }
  static std::vector<std::int32_t> tokens(const Session& session) {
    std::vector<std::int32_t> sampled;
    for (const StepRecord& step : session.history()) sampled.push_back(step.sampled.at(0));
    return sampled;
  }
};

TEST_F(KeptSession, GoesOnWhereItWas) {
  const auto session = fresh();
  const auto ok = load(*session);
  ASSERT_TRUE(ok) << ok.error().text();
  const json& recorded = facts_.at("session");
  EXPECT_EQ(session->parts().config.switches.rope_frequencies, AS_ROPE_FP64);
  EXPECT_EQ(session->parts().ropes.at(0).table.reserved, AS_ROPE_FP64);
  EXPECT_EQ(session->cursor().step, recorded.at("step"));
  EXPECT_EQ(fmt::format("{:016x}", session->digest()), recorded.at("digest").get<std::string>());
  while (!session->finished()) ASSERT_TRUE(session->step());
  EXPECT_EQ(json(tokens(*session)), recorded.at("tokens"));
  std::size_t results = 0;
  for (const StepRecord& step : session->history()) {
    for (const TapResult& result : step.results) {
      EXPECT_NE(result.verdict, Verdict::kWrong) << as_op_find(result.op)->name;
      EXPECT_NE(result.verdict, Verdict::kNotCompared) << as_op_find(result.op)->name;
      ++results;
    }
  }
  EXPECT_EQ(results, recorded.at("results"));
  // Back among the steps that were read, and forward again.
  const std::uint64_t end = session->digest();
  ASSERT_TRUE(session->seek({recorded.at("step"), -1, 0, false}));
  while (!session->finished()) ASSERT_TRUE(session->step());
  EXPECT_EQ(session->digest(), end);
}

// Its references' histories are there, the tokens' path through ref.model is not.
TEST_F(KeptSession, TheScreenSaysThatRefModelDoesNotFollow) {
  RunSetup setup;
  setup.scenario = *load_scenario(path("short.json"));
  RunOptions options;
  options.session.lanes = setup.lanes;
  options.session.references = setup.references;
  const std::string key = run_key(setup.scenario, options);
  const auto was = facts_.at("session").at("key").get<std::string>();
  ASSERT_EQ(key.size(), was.size());
  // As if this program had kept it: its key, and a checksum that fits.
  std::string bytes = read(path("short.session"));
  bytes.replace(bytes.find(was), was.size(), key);
  constexpr std::size_t kHeader = 24;
  const std::uint64_t sum = checksum(reinterpret_cast<const std::uint8_t*>(bytes.data()) + kHeader,
                                     bytes.size() - kHeader);
  std::memcpy(bytes.data() + kHeader - sizeof(sum), &sum, sizeof(sum));
  write(key + ".session", bytes);
  Workbench::Options bench_options;
  bench_options.cache_folder = folder_.string();
  Workbench bench(bench_options);
  bench.open(setup, true);
  bench.wait_idle();
  const auto said = [&] {
    return std::ranges::count_if(bench.messages(), [](const Message& m) {
      return m.kind == Message::Kind::kWarning &&
             m.text.find(
                 "ref.model does not follow: an older program kept the session; start "
                 "over") != std::string::npos;
    });
  };
  EXPECT_EQ(said(), 1);
}

TEST_F(KeptSession, IsRefusedWhereItIsNotWhole) {
  const auto refused = [&](const std::string& key = "") {
    const auto session = fresh();
    const auto ok = load(*session, key);
    EXPECT_EQ(session->cursor().step, ok ? facts_.at("session").at("step").get<int>() : 0);
    return ok ? std::string() : ok.error().text();
  };
  EXPECT_EQ(refused(), "");
  EXPECT_NE(refused("another").find("of another program"), std::string::npos);
  flip("short.session", 1000);
  EXPECT_NE(refused().find("damaged"), std::string::npos);
  flip("short.session", 1000);
  replace("short.session", "ASKEPT03", "ASKEPT02");
  EXPECT_NE(refused().find("not a kept session"), std::string::npos);
  replace("short.session", "ASKEPT02", "ASKEPT03");
  // Another prompt under the same key: it is read, and is another session.
  replace("short.json", "KV?", "KV!");
  const auto other = fresh();
  ASSERT_TRUE(load(*other));
  EXPECT_NE(fmt::format("{:016x}", other->digest()),
            facts_.at("session").at("digest").get<std::string>());
}

class KeptPlugin : public FixturesTest {
 protected:
  void SetUp() override {
    FixturesTest::SetUp();
#if !defined(__x86_64__) || !defined(__linux__)
    GTEST_SKIP() << "the library that is kept is for x86-64 Linux";
#endif
  }
  void TearDown() override {
    EXPECT_TRUE(open_plugins({}));
    FixturesTest::TearDown();
  }
  Outcome run_beside(const std::string& scenario, const std::string& steps) const {
    return run({"run", path(scenario), "--steps", steps, "--references", "sim", "--json",
                "--plugin", path("plugin_x86_64.so"), "--lane", "plugin:kept"});
  }
};

TEST_F(KeptPlugin, ComputesWhatItComputedThen) {
  const Outcome out = run_beside("golden/prefix_hit.json", "5");
  ASSERT_EQ(out.code, 0) << out.err;
  const json report = parsed(out), &recorded = facts_.at("plugin");
  EXPECT_TRUE(report.at("plugin_faults").empty()) << report.at("plugin_faults");
  EXPECT_EQ(report.at("summary").at("verdict"), "ok");
  EXPECT_EQ(report.at("summary").at("taps"), recorded.at("taps"));
  std::map<std::string, int> right, exact;
  for (const json& step : report.at("steps")) {
    for (const json& tap : step.at("taps")) {
      if (tap.at("lane") != "plugin:kept") continue;
      const std::string name =
          fmt::format("{}.{}", tap.at("op").get<std::string>(), tap.at("tap").get<std::string>());
      const std::string verdict = tap.at("verdict");
      exact[name] += verdict == "equal" ? 1 : 0;
      right[name] += verdict == "equal" || verdict == "rounding" ? 1 : 0;
    }
  }
  ASSERT_EQ(right.size(), recorded.at("verdicts").size());
  for (const auto& [name, verdicts] : recorded.at("verdicts").items()) {
    EXPECT_EQ(right[name], verdicts.value("equal", 0) + verdicts.value("rounding", 0)) << name;
  }
  EXPECT_EQ(exact["residual.out"], recorded.at("verdicts").at("residual.out").at("equal"));
}

TEST_F(KeptPlugin, IsRefusedOrFoundWrongWhereItIsAnother) {
  using namespace std::string_literals;
  const std::string whole = read(path("plugin_x86_64.so"));
  // struct_size and version of its lane.
  replace("plugin_x86_64.so", "\x08\x01\0\0\x01\0\0\0"s, "\x08\x01\0\0\x03\0\0\0"s);
  expect(run_beside("short.json", "3"), 3, "built for version 3 of the lane interface");
  // lea 0x7fff(..): what it adds before it cuts a float down to bf16.
  write("plugin_x86_64.so", whole);
  replace("plugin_x86_64.so", "\x8d\x94\x10\xff\x7f\0\0"s, "\x8d\x94\x10\0\0\0\0"s, true);
  const Outcome out = run_beside("short.json", "3");
  EXPECT_EQ(out.code, 1);
  const json report = parsed(out);
  EXPECT_TRUE(report.at("plugin_faults").empty()) << report.at("plugin_faults");
  EXPECT_GT(report.at("summary").at("wrong"), 0);
  EXPECT_NE(report.at("summary").at("first_wrong").dump().find("sparse_attention"),
            std::string::npos);
  write("plugin_x86_64.so", whole.substr(0, whole.size() / 2));
  EXPECT_EQ(run_beside("short.json", "3").code, 3);
}

}  // namespace
}  // namespace attnscope
