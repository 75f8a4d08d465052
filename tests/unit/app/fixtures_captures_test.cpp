// Captures that 83b8554 recorded (tests/fixtures/README.md) open, hold what they held, and compare
// with each other and with a run of today. Integers are compared exactly, what is computed again
// as diff does it: it may round otherwise at another SIMD level.
#include <fmt/format.h>

#include <fstream>

#include "engine/capture/capture.h"
#include "engine/io/old_names.h"
#include "tests/unit/app/fixtures.h"

namespace attnscope {
namespace {

using nlohmann::json;

constexpr const char* kCaptures[] = {"summary", "tables", "full", "short"};

std::string shown_step(const std::string& scenario) { return scenario == "short" ? "1" : "4"; }

// LAYER/OP.TAP DTYPE SHAPE CHECKSUM of all taps of the step that was shown, a tap by its first
// name.
json taps_of(const json& shown) {
  json taps = json::array();
  for (const json& op : shown.at("ops")) {
    for (const json& tap : op.at("taps")) {
      if (!tap.contains("stats")) continue;
      const auto name = op.at("op").get<std::string>(), now = tap.at("name").get<std::string>();
      const auto id = static_cast<as_op_id>(as_op_by_name(name.c_str()));
      taps.push_back(fmt::format("{}/{}.{} {} {} {}", op.at("layer").get<int>(), name,
                                 tap_name_at_first(id, now), tap.at("dtype").get<std::string>(),
                                 tap.at("shape").dump(),
                                 tap.at("stats").at("checksum").get<std::string>()));
    }
  }
  return taps;
}

// Those of them that follow from prompts and tables alone, whatever a machine computes.
json exact_taps(const json& taps) {
  json exact = json::array();
  for (const json& tap : taps) {
    const auto text = tap.get<std::string>();
    for (const char* op : {"schedule", "block_tables", "slot_mapping", "swa_index", "c128_index"}) {
      if (text.starts_with(fmt::format("-1/{}.", op))) exact.push_back(tap);
    }
  }
  return exact;
}

json capture_facts(const json& shown) {
  json facts = json::object();
  for (const char* key : {"level", "complete", "filter", "rows", "weights", "cache_steps", "lanes",
                          "requests", "scenario"}) {
    facts[key] = shown.at(key);
  }
  for (const json& step : shown.at("steps")) {
    json& line = facts["steps"].emplace_back();
    for (const char* key : {"step", "tokens", "decode", "verdicts"}) line[key] = step.at(key);
  }
  facts["kept"] = 0;
  for (const json& op : shown.at("shown").at("ops")) {
    for (const json& tap : op.at("taps")) {
      facts["kept"] = facts["kept"].get<int>() + (tap.at("kept").get<bool>() ? 1 : 0);
    }
  }
  return facts;
}

// Why two captures are not of the same run, as far as programs that round differently can agree;
// empty when they are.
std::string fault(const json& diff) {
  const json& counts = diff.at("counts");
  if (counts.at("equal").get<int>() == 0) return "nothing is equal";
  for (const char* verdict : {"origin", "differs"}) {
    if (counts.at(verdict) != 0) return diff.at("first").at("text");
  }
  if (!diff.at("states").empty()) return diff.at("states").dump();
  if (diff.at("setup") != "") return diff.at("setup");
  if (counts.at("unknown") != diff.at("by_their_tables")) return diff.at("open");
  return diff.at("same") == true || diff.at("blameless") == true ? "" : "not blameless";
}

TEST_F(FixturesTest, CapturesHoldWhatWasRecorded) {
  for (const std::string name : kCaptures) {
    SCOPED_TRACE(name);
    const json& recorded = facts_.at("captures").at(name);
    const std::string scenario = recorded.at("scenario");
    const Outcome out =
        run({"show", capture(name), "--verify", "--json", "--step", shown_step(scenario)});
    ASSERT_EQ(out.code, 0) << out.err;
    const json shown = parsed(out);
    EXPECT_EQ(capture_facts(shown), recorded);
    EXPECT_EQ(taps_of(shown.at("shown")), facts_.at("taps").at(scenario));
    // Old names stand in the files, and in nothing that was read of them.
    for (const json& op : shown.at("shown").at("ops")) {
      const int id = as_op_by_name(op.at("op").get<std::string>().c_str());
      for (const json& tap : op.at("taps")) {
        const auto now = tap.at("name").get<std::string>();
        EXPECT_EQ(tap_name_now(static_cast<as_op_id>(id), now), now);
      }
    }
  }
}

// They do not say how rotary frequencies were computed: in float64, as all were then.
TEST_F(FixturesTest, CapturesKeepTheMeaningOfTheirProfile) {
  auto kept = Capture::open(capture("short"));
  ASSERT_TRUE(kept) << kept.error().text();
  EXPECT_EQ((*kept)->index().model.switches.rope_frequencies, AS_ROPE_FP64);
  EXPECT_EQ((*kept)->index().model.switches.profile, "vllm,rope_frequencies=fp64");
  const std::string fresh = path("fresh.acap");
  EXPECT_EQ(run({"record", path("short.json"), "--steps", "1", "-o", fresh}).code, 0);
  auto now = Capture::open(fresh);
  ASSERT_TRUE(now) << now.error().text();
  EXPECT_EQ((*now)->index().model.switches.rope_frequencies, AS_ROPE_FP32);
  EXPECT_EQ((*now)->index().model.switches.profile, "vllm");
}

TEST_F(FixturesTest, DamagedCapturesAreTold) {
  const std::string folder = capture("short");
  flip("short.acap/payload/000001.safetensors", 100);
  expect(run({"show", folder, "--verify"}), 3, "000001.safetensors");
  flip("short.acap/payload/000001.safetensors", 100);
  flip("short.acap/cache/000001.safetensors", 100);
  expect(run({"show", folder, "--verify"}), 3, "000001.safetensors");
  flip("short.acap/cache/000001.safetensors", 100);
  expect(run({"show", folder, "--verify"}), 0, "");
  replace("short.acap/index.json", "\n \"version\": 1", "\n \"version\": 99");
  expect(run({"show", folder}), 3, "99");
  replace("short.acap/index.json", "\n \"version\": 99", "\n \"version\": 1");
  // What the traces say of a tap.
  replace("short.acap/traces.jsonl", "\"5d4bd7e79603deca\"", "\"5d4bd7e79603decb\"", true);
  expect(run({"show", folder, "--verify"}), 3, "damaged");
  flip("full.acap.tar.zst", 1000);
  EXPECT_EQ(run({"unpack", path("full.acap.tar.zst"), "-o", path("full.acap")}).code, 3);
}

TEST_F(FixturesTest, CapturesCompareWithEachOther) {
  const Outcome out = run({"diff", capture("tables"), capture("full"), "--json"});
  EXPECT_EQ(out.code, 0) << out.err;
  const json diff = parsed(out);
  EXPECT_EQ(fault(diff), "");
  EXPECT_EQ(diff.at("same"), true);
  EXPECT_EQ(diff.at("counts").at("equal"), 252);
  EXPECT_EQ(diff.at("by_their_tables"), 10);
  EXPECT_EQ(diff.at("tokens"), 105);
  // A summary does not say which tokens a step has.
  EXPECT_EQ(run({"diff", capture("summary"), capture("tables")}).code, 3);
}

TEST_F(FixturesTest, CapturesCompareWithARunOfToday) {
  const auto record = [&](const char* scenario, std::vector<std::string> options) {
    std::string fresh = path("fresh.acap");
    std::filesystem::remove_all(fresh);
    options.insert(options.begin(), {"record", path(scenario), "--references", "sim", "--level",
                                     "full", "-o", fresh});
    const Outcome out = run(options);
    EXPECT_EQ(out.code, 0) << out.out << out.err;
    return fresh;
  };
  const auto differs = [&](const std::string& name, const std::string& fresh) {
    return fault(parsed(run({"diff", capture(name), fresh, "--json"})));
  };
  // Of today's profile: rotary frequencies in fp32 are another setup, and are said to be, whether
  // or not this machine's instructions round as those of the recording did.
  std::string fresh = record("short.json", {"--steps", "2"});
  const std::string why = differs("short", fresh);
  EXPECT_NE(why.find("switch rope_frequencies is fp64 in the first capture and fp32 in the second"),
            std::string::npos)
      << why;
  // Of the profile as it was then.
  const std::string name = "\"profile\": \"vllm\"",
                    then = "\"profile\": \"vllm,rope_frequencies=fp64\"";
  replace("short.json", name, then);
  replace("golden/prefix_hit.json", name, then);
  // Level full kept at most 64 rows of a step.
  fresh = record("golden/prefix_hit.json", {"--steps", "5", "--at-steps", "4", "--rows", "64"});
  EXPECT_EQ(differs("tables", fresh), "");
  EXPECT_EQ(differs("full", fresh), "");
  const json shown = parsed(run({"show", fresh, "--json", "--step", "4"}));
  const json exact = exact_taps(taps_of(shown.at("shown")));
  EXPECT_GT(exact.size(), 30u);
  EXPECT_EQ(exact, exact_taps(facts_.at("taps").at("prefix_hit")));

  fresh = record("short.json", {"--steps", "2"});
  EXPECT_EQ(differs("short", fresh), "");
  replace("short.json", "KV?", "KV!");
  const std::string other = differs("short", record("short.json", {"--steps", "2"}));
  EXPECT_NE(other.find("\"what\":\"tokens\""), std::string::npos) << other;
  replace("short.json", "KV!", "KV?");
  fresh = path("wrong.acap");
  EXPECT_EQ(run({"record", path("short.json"), "--steps", "2", "--references", "sim", "--lane",
                 "mutant:lse_with_sink", "-o", fresh})
                .code,
            1);
  EXPECT_NE(differs("short", fresh).find("sparse_attention"), std::string::npos);
}

// The list of lanes has one an op: shorter where ops have come since, longer where the recording
// program had more.
TEST_F(FixturesTest, ACaptureOfFewerOrMoreOpsReads) {
  const std::string folder = capture("full"), index = folder + "/index.json";
  const json whole = json::parse(read(index));
  const json& recorded = facts_.at("captures").at("full");
  const auto shown = [&](const json& lanes) {
    json changed = whole;
    changed["lane_of"] = lanes;
    changed.erase("sum");  // as programs wrote it that had none
    std::ofstream(index) << changed.dump(1);
    return run({"show", folder, "--verify", "--json", "--step",
                shown_step(recorded.at("scenario").get<std::string>())});
  };
  json lanes = whole.at("lane_of");
  lanes.erase(lanes.size() - 1);
  const Outcome fewer = shown(lanes);
  ASSERT_EQ(fewer.code, 0) << fewer.err;
  EXPECT_EQ(capture_facts(parsed(fewer)), recorded);
  auto read_back = Capture::open(folder);
  ASSERT_TRUE(read_back) << read_back.error().text();
  const auto& info = *(*read_back)->info();
  ASSERT_EQ(info.lane_of.size(), static_cast<std::size_t>(AS_OP_COUNT));
  EXPECT_EQ(info.lane_of[AS_OP_LM_HEAD], "cpu");
  EXPECT_EQ(info.lanes, "cpu") << "an op without a lane is not named";
  lanes = whole.at("lane_of");
  while (lanes.size() < AS_OP_COUNT) lanes.push_back("");
  lanes.push_back("cuda");
  const Outcome more = shown(lanes);
  ASSERT_EQ(more.code, 0) << more.err;
  EXPECT_EQ(capture_facts(parsed(more)), recorded);
  expect(shown(json::array()), 3, "lane_of names no lane");
}

}  // namespace
}  // namespace attnscope
