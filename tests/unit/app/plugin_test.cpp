// Kernels of shared libraries: the example is right, every fault is named and the session goes on,
// a bug planted through a plugin is found by comparing two captures.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <thread>

#include "app/wiring/plugins.h"
#include "app/workbench/workbench.h"
#include "engine/capture/capture.h"
#include "engine/opcase/case_file.h"
#include "engine/opcase/op_case.h"
#include "engine/session/lanes_ran.h"
#include "tests/unit/app/cli_fixture.h"
#include "tests/unit/app/small_scenario.h"

namespace attnscope {
namespace plugin_test {

std::string library(const std::string& name) {
  return ATTNSCOPE_TEST_PLUGINS "/libplugin_" + name + ".so";
}

struct Fault {
  const char* name;
  const char* op;
  const char* text;  // of the message
};

class PluginTest : public CliTest {
 protected:
  void TearDown() override {
    EXPECT_TRUE(open_plugins({}));
    CliTest::TearDown();
  }
  std::string saved(const std::string& op) const { return early_case("1/1/" + op, op); }
};

TEST_F(PluginTest, TheExampleIsRight) {
  const std::string residual = saved("residual"), attention = saved("sparse_attention");
  const Outcome out = run({"case", "run", residual, attention, "--plugin", library("example"),
                           "--lane", "plugin:mine", "--repeat", "1"});
  EXPECT_EQ(out.code, 0) << out.out << out.err;
  EXPECT_NE(out.err.find("plugin:mine: sparse_attention, 1 call; of 1 with "), std::string::npos)
      << out.err;
  EXPECT_NE(out.err.find(", one of them on both "), std::string::npos);
  EXPECT_NE(out.err.find(" and on lane cpu "), std::string::npos);
  const Outcome inside = run({"case", "run", attention, "--plugin", library("example"), "--lane",
                              "plugin:mine", "--repeat", "1", "--in-process"});
  EXPECT_EQ(inside.code, 0) << inside.out << inside.err;
  const Outcome session = run(
      {"run", "early", "--steps", "3", "--plugin", library("example"), "--lane", "plugin:mine"});
  EXPECT_EQ(session.code, 0) << session.out << session.err;
}

TEST_F(PluginTest, OnePluginForOneOpBesideAnother) {
  const Outcome lanes =
      run({"lanes", "--plugin", library("example"), "--plugin", library("plain")});
  EXPECT_NE(lanes.out.find("plugin:mine"), std::string::npos);
  EXPECT_NE(lanes.out.find("plugin:plain"), std::string::npos);
  const Outcome both =
      run({"run", "early", "--steps", "1", "--plugin", library("example"), "--plugin",
           library("plain"), "--lane", "plugin:mine", "--lane", "residual=plugin:plain"});
  EXPECT_EQ(both.code, 1) << both.err;  // its residual loses y
  EXPECT_NE(both.err.find("plugin:plain: residual"), std::string::npos);
  EXPECT_EQ(both.err.find("plugin:mine: residual"), std::string::npos);
  const Outcome twice = run({"lanes", "--plugin", library("plain"), "--plugin", library("plain")});
  EXPECT_EQ(twice.code, 2);
  EXPECT_EQ(run({"run", "early", "--lane", "wo_b=plugin:plain", "--plugin", library("plain")}).code,
            2);
}

TEST_F(PluginTest, TheExampleForDenseAttentionIsRight) {
  for (const char* model :
       {"tiny-llama", "tiny-gemma", "tiny-mha", "tiny-mqa", "tiny-llama4", "tiny-alibi"}) {
    SCOPED_TRACE(model);
    const Outcome session = run(
        {"run", model, "--steps", "2", "--plugin", library("dense"), "--lane", "plugin:mydense"});
    EXPECT_EQ(session.code, 0) << session.out << session.err;
    for (const char* op : {"rope_kv_insert", "paged_attention"}) {
      EXPECT_NE(session.err.find(std::string("plugin:mydense: ") + op), std::string::npos)
          << session.err;
    }
  }
  const std::string kept = path("paged.json");
  ASSERT_EQ(run({"case", "save", "tiny-llama", "--at", "1/1/paged_attention", "-o", kept}).code, 0);
  const Outcome alone =
      run({"case", "run", kept, "--plugin", library("dense"), "--lane", "plugin:mydense"});
  EXPECT_EQ(alone.code, 0) << alone.out << alone.err;
}

TEST_F(PluginTest, AFaultyKernelOfDenseAttentionIsBlamed) {
  struct Blamed {
    const char *fault, *model, *text;
  };
  for (const Blamed& one :
       {Blamed{"DENSE_WINDOW_INCLUSIVE", "tiny-gemma", "blamed: paged_attention"},
        Blamed{"DENSE_VALUES_OF_KEYS", "tiny-llama", "blamed: paged_attention"},
        Blamed{"DENSE_OTHER_PAIRS", "tiny-llama", "blamed: rope_kv_insert"},
        Blamed{"DENSE_WRITES_PAGE", "tiny-llama",
               "paged_attention crashed (SIGSEGV): it wrote to its input k_cache"}}) {
    SCOPED_TRACE(one.fault);
    const Outcome out = run({"run", one.model, "--steps", "1", "--references", "sim", "--plugin",
                             library(one.fault), "--lane", "plugin:faulty"});
    EXPECT_EQ(out.code, 1);
    EXPECT_NE((out.out + out.err).find(one.text), std::string::npos) << out.out << out.err;
  }
}

TEST_F(PluginTest, EveryFaultIsNamedAndTheSessionGoesOn) {
  const std::string residual = saved("residual"), state = saved("compressor_state");
  for (const Fault& fault :
       std::vector<Fault>{{"CRASH", "residual", "crashed (SIGSEGV)"},
                          {"LOOP", "residual", "did not return within 2 s"},
                          {"WRITE_BEHIND", "residual", "beyond the end of out"},
                          {"WRITE_FAR_BEHIND", "residual", "wrote beyond the end of out"},
                          {"CRASH_THREADS", "residual", "wrote beyond the end of out"},
                          {"CLOSE_ALL", "residual", "did not return within 2 s"},
                          {"READ_BEHIND", "residual", "read beyond the end of h"},
                          {"WRITE_BEFORE", "residual", "before out"},
                          {"WRITE_INPUT", "residual", "wrote to its input h (byte 6)"},
                          {"RETURN_ERROR", "residual", "returned status 3: I would rather not"},
                          {"EXIT", "residual", "ended its process with exit code 7"},
                          {"ABORT", "residual", "crashed (SIGABRT)"},
                          {"STRAY_ROW", "compressor_state", "beside the rows it was given"}}) {
    SCOPED_TRACE(fault.name);
    const std::vector<std::string> plugin = {"--plugin",      library(fault.name), "--lane",
                                             "plugin:faulty", "--plugin-timeout",  "2"};
    std::vector<std::string> arguments = {"case", "run",
                                          fault.op == std::string("residual") ? residual : state};
    arguments.insert(arguments.end(), plugin.begin(), plugin.end());
    const Outcome alone = run(arguments);
    EXPECT_EQ(alone.code, 1);
    EXPECT_NE(alone.err.find(fault.text), std::string::npos) << alone.err;
    EXPECT_NE(alone.err.find(fault.op), std::string::npos) << alone.err;

    arguments = {"run", "early",        "--layers", "0,1",   "--steps",
                 "1",   "--references", "sim",      "--json"};
    arguments.insert(arguments.end(), plugin.begin(), plugin.end());
    const Outcome session = run(arguments);
    EXPECT_EQ(session.code, 1);
    EXPECT_NE(session.err.find(std::string("plugin:faulty: ") + fault.op + " "), std::string::npos)
        << session.err;
    EXPECT_NE(session.err.find(fault.text), std::string::npos) << session.err;
    EXPECT_NE(session.err.find("lane cpu carries out"), std::string::npos) << session.err;
    // Nothing of what the plugin did got into the session, whose verdict is no "ok" all the same.
    const auto summary = nlohmann::json::parse(session.out)["summary"];
    EXPECT_EQ(summary["wrong"], 0) << session.out;
    EXPECT_EQ(summary["verdict"], "failed") << session.out;
  }
}

TEST_F(PluginTest, ACaseSaysWhoseFaultItIs) {
  const std::string residual = saved("residual");
  std::string text = read(saved("compressor_state"));
  const std::size_t at = text.find("\"ratio\": 4");
  ASSERT_NE(at, std::string::npos);
  text.replace(at, 10, "\"ratio\": 0");
  const std::string damaged = write("damaged.json", text);
  const std::vector<std::string> crash = {"--plugin", library("CRASH"), "--lane", "plugin:faulty"};
  std::vector<std::string> arguments = {"case", "run", residual, "--json"};
  arguments.insert(arguments.end(), crash.begin(), crash.end());
  const Outcome failed = run(arguments);
  EXPECT_EQ(failed.code, 1);
  const auto json = nlohmann::json::parse(failed.out);
  EXPECT_EQ(json["right"], false);
  EXPECT_EQ(json["lane"], "plugin:faulty");
  EXPECT_NE(json["error"].get<std::string>().find("crashed"), std::string::npos);
  arguments = {"case", "run", damaged};
  const Outcome ours = run(arguments);
  EXPECT_EQ(ours.code, 3) << ours.out << ours.err;
  arguments.insert(arguments.end(), {"--plugin", library("STRAY_ROW"), "--lane", "plugin:faulty"});
  EXPECT_EQ(run(arguments).code, 3) << "the plugin was not even called";
}

TEST_F(PluginTest, ResultsOfARebuiltOrFailedPluginAreNotReused) {
  namespace fs = std::filesystem;
  const std::string mine = path("mine.so");
  const std::vector<std::string> arguments = {
      "run",      "early",        "--steps", "1",      "--references",
      "sim",      "--plugin",     mine,      "--lane", "residual=plugin:faulty",
      "--report", path("r.json"), "--reuse"};
  const auto build = [&](const char* which) {
    fs::remove(mine);
    fs::copy_file(library(which), mine);
  };
  const auto kept = [](const Outcome& o) {
    return o.out.find("kept result of an unchanged run") != std::string::npos;
  };
  build("NONE");
  Outcome out = run(arguments);
  EXPECT_EQ(out.code, 0) << out.err;
  EXPECT_FALSE(kept(out));
  out = run(arguments);
  EXPECT_EQ(out.code, 0) << out.err;
  EXPECT_TRUE(kept(out));
  build("CRASH");
  for (int i = 0; i < 2; ++i) {
    out = run(arguments);
    EXPECT_EQ(out.code, 1) << out.out;
  }
  const auto report = nlohmann::json::parse(read(path("r.json")));
  ASSERT_EQ(report["plugin_faults"].size(), 1u);
  EXPECT_NE(report["plugin_faults"][0].get<std::string>().find("residual crashed"),
            std::string::npos);
}

TEST_F(PluginTest, OutlivesTheThreadThatStartedIt) {
  const std::string residual = saved("residual");
  auto kept = read_case(residual);
  ASSERT_TRUE(kept);
  std::thread([] { EXPECT_TRUE(open_plugins({{library("NONE")}})); }).join();
  PluginLane* plugin = find_plugin("plugin:faulty");
  ASSERT_NE(plugin, nullptr);
  for (int i = 0; i < 3; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    auto call = CaseCall::make(*kept);
    ASSERT_TRUE(call);
    as_call context{};
    context.struct_size = sizeof(context);
    as_error error{};
    EXPECT_EQ(plugin->lane().ops[AS_OP_RESIDUAL](call->params(), &context, &error), AS_OK)
        << error.message;
  }
  EXPECT_EQ(plugin->failures(), 0);
}

TEST_F(PluginTest, TheAppSaysWhatFailed) {
  PluginChoice choice;
  choice.libraries = {library("RETURN_ERROR")};
  ASSERT_TRUE(open_plugins(choice));
  (void)take_plugin_faults();  // of the tests before
  {
    Workbench bench({});
    RunSetup setup;
    setup.scenario = small_scenario();
    setup.references = References::kNone;
    setup.lanes = {"plugin:faulty"};
    bench.open(std::move(setup), false);
    bench.wait_idle();
    bench.next_step();
    bench.wait_idle();
    const auto said = std::ranges::count_if(bench.messages(), [](const Message& m) {
      return m.kind == Message::Kind::kError &&
             m.text.find("plugin:faulty: residual") != std::string::npos &&
             m.text.find("lane cpu carries out residual from here on") != std::string::npos;
    });
    EXPECT_EQ(said, 1) << "once, not in every layer";
    // The lane box and the timeline say it as long as the session is open.
    ASSERT_EQ(bench.lane_faults().size(), 1u);
    EXPECT_NE(bench.lane_faults()[0].find("plugin:faulty: residual"), std::string::npos);
    const StepSummary& step = *bench.snapshot()->steps.front();
    EXPECT_TRUE(step.complete);
    EXPECT_EQ(std::ranges::count(step.events, EventKind::kError, &Event::kind), 1);
    EXPECT_EQ(bench.snapshot()->info->lanes, "cpu") << "nothing is the plugin's any more";
  }
  EXPECT_TRUE(take_plugin_faults().empty());
}

// What the stand-in computes is right, and no result of the plugin.
TEST_F(PluginTest, AGoldenOfAPluginThatFailsDoesNotPass) {
  write("session.golden.json", R"({"format": "attnscope-golden", "version": 1, "about": "a step",
    "scenario": "early", "steps": 1, "taps": [{"op": "residual"}]})");
  const std::string goldens = ATTNSCOPE_SOURCE_DIR "/tests/goldens";
  for (const auto& [name, folder] : std::vector<std::pair<std::string, std::string>>{
           {"op_residual", goldens}, {"session", path("")}}) {
    const Outcome ran = run({"golden", "run", name, "--goldens", folder, "--plugin",
                             library("RETURN_ERROR"), "--lane", "residual=plugin:faulty"});
    EXPECT_EQ(ran.code, 3) << ran.out;
    EXPECT_NE(ran.out.find("1 broken"), std::string::npos) << ran.out;
    EXPECT_NE(ran.out.find("nothing is known of the golden's values"), std::string::npos)
        << ran.out;
  }
}

// A recording names who computed its values, and what happened on the way.
TEST_F(PluginTest, ARecordingSaysThatAnotherStoodIn) {
  const std::string good = path("good.acap"), bad = path("bad.acap");
  const std::string said =
      "plugin:faulty: residual returned status 3: I would rather not; lane cpu carries out "
      "residual from here on";
  ASSERT_EQ(
      run({"record", "early", "--layers", "0,1", "-o", good, "--level", "full", "--steps", "2"})
          .code,
      0);
  for (const char* level : {"summary", "full"}) {
    std::filesystem::remove_all(bad);
    const Outcome recorded =
        run({"record", "early", "--layers", "0,1", "-o", bad, "--level", level, "--steps", "2",
             "--plugin", library("RETURN_ERROR"), "--lane", "residual=plugin:faulty"});
    EXPECT_EQ(recorded.code, 1) << recorded.err;
    EXPECT_NE(recorded.out.find("; a lane failed, and another one stood in\n"), std::string::npos)
        << recorded.out;
    const Outcome shown = run({"show", bad});
    EXPECT_EQ(shown.code, 0) << shown.err;
    EXPECT_NE(shown.out.find("lanes cpu\n"), std::string::npos) << shown.out;
    EXPECT_NE(shown.out.find("fault in step 0, layer 0: " + said), std::string::npos) << shown.out;
    EXPECT_EQ(shown.out.find("fault in step 1"), std::string::npos) << shown.out;
    const auto json = nlohmann::json::parse(run({"show", bad, "--json", "--step", "0"}).out);
    ASSERT_EQ(json["steps"][0]["faults"].size(), 1u);
    EXPECT_EQ(json["steps"][0]["faults"][0]["op"], "residual");
    for (const auto& op : json["shown"]["ops"]) EXPECT_EQ(op["lane"], "cpu") << op["op"];
    auto capture = Capture::open(bad);
    ASSERT_TRUE(capture) << capture.error().text();
    EXPECT_EQ((*capture)->info()->lane_of[AS_OP_RESIDUAL], "cpu");
    for (const auto& summary : (*capture)->summaries()) {
      for (const TapResult& r : summary->results) {
        EXPECT_NE(r.lane, "plugin:faulty") << as_op_find(r.op)->name << '.' << r.tap;
      }
    }
  }
  const Outcome diff = run({"diff", good, bad});
  EXPECT_NE(diff.out.find("I would rather not"), std::string::npos) << diff.out;
}

TEST_F(PluginTest, AReportSaysThatAnotherStoodIn) {
  const Outcome out = run({"run", "early", "--steps", "2", "--json", "--plugin",
                           library("RETURN_ERROR"), "--lane", "residual=plugin:faulty"});
  EXPECT_EQ(out.code, 1) << out.err;
  const auto report = nlohmann::json::parse(out.out);
  EXPECT_EQ(report["lanes"], "cpu");
  EXPECT_EQ(report["plugin_faults"].size(), 1u);
  EXPECT_EQ(report["summary"]["verdict"], "failed");
  const Outcome text = run({"run", "early", "--steps", "2", "--plugin", library("CRASH"), "--lane",
                            "residual=plugin:faulty"});
  EXPECT_EQ(text.code, 1);
  EXPECT_EQ(text.out.find("verdict: ok"), std::string::npos) << text.out;
  EXPECT_NE(text.out.find("verdict: failed\nfailed: plugin:faulty: residual crashed"),
            std::string::npos)
      << text.out;
  const Outcome right = run({"run", "early", "--steps", "1", "--json", "--plugin", library("NONE"),
                             "--lane", "residual=plugin:faulty"});
  EXPECT_EQ(nlohmann::json::parse(right.out)["lanes"], "cpu, residual=plugin:faulty");
}

TEST(LanesRan, ThoseOfOneOpStandInTheirOrder) {
  LanesRan ran(std::vector<std::string>(AS_OP_COUNT, "cpu"));
  EXPECT_EQ(ran.description(), "cpu");
  std::vector<TapResult> results(3);
  for (TapResult& r : results) r.op = AS_OP_RESIDUAL;
  results[0].lane = "plugin:mine";
  results[2].lane = "cpu";  // [1] is of no lane: what the op was given
  ran.add(results);
  EXPECT_EQ(ran.description(), "cpu, residual=plugin:mine then cpu");
  EXPECT_EQ(ran.last()[AS_OP_RESIDUAL], "cpu");
}

TEST(LanesRan, BugsWhoseOpDidNotRunAreSaid) {
  std::vector<std::string> chosen(AS_OP_COUNT, "cpu");
  chosen[AS_OP_INDEXER_TOPK] = "mutant:topk_one_short";
  LanesRan ran(chosen);
  EXPECT_EQ(ran.description(), "cpu, indexer_topk=mutant:topk_one_short (did not run)");
}

TEST_F(PluginTest, OptionsOfEveryCommandStandBeforeItToo) {
  const std::string plain = library("plain");
  for (const std::vector<std::string>& before : std::vector<std::vector<std::string>>{
           {"--plugin", plain},
           {"--plugin=" + plain},
           {"--plugin-timeout", "5", "--plugin", plain},
           {"--in-process", "--plugin-timeout=5", "--plugin=" + plain}}) {
    std::vector<std::string> arguments = before;
    arguments.emplace_back("lanes");
    const Outcome lanes = run(arguments);
    EXPECT_EQ(lanes.code, 0) << before.front() << ": " << lanes.err;
    EXPECT_NE(lanes.out.find("plugin:plain"), std::string::npos) << lanes.out;
  }
  const Outcome ran = run(
      {"--plugin", library("example"), "run", "early", "--steps", "1", "--lane", "plugin:mine"});
  EXPECT_EQ(ran.code, 0) << ran.err;
  const Outcome unknown = run({"--plugin", plain, "lnes"});
  EXPECT_EQ(unknown.code, 2);
  EXPECT_NE(unknown.err.find("no command 'lnes'; did you mean lanes"), std::string::npos)
      << unknown.err;
}

TEST_F(PluginTest, ALaneThatIsNotThereIsSaidWithoutAllOthers) {
  const Outcome none = run({"run", "early", "--lane", "plugin:mine"});
  EXPECT_EQ(none.code, 2);
  EXPECT_NE(none.err.find("load it with --plugin LIBRARY; loaded: none"), std::string::npos)
      << none.err;
  const Outcome other =
      run({"run", "early", "--lane", "residual=plugin:mine", "--plugin", library("plain")});
  EXPECT_EQ(other.code, 2);
  EXPECT_NE(other.err.find("loaded: plugin:plain"), std::string::npos) << other.err;
  for (const auto& [typed, nearest] : std::vector<std::pair<std::string, std::string>>{
           {"cpo", "did you mean cpu"},
           {"topk_one_short", "did you mean mutant:topk_one_short"},
           {"mutant:topk_one_shrt", "did you mean mutant:topk_one_short"},
           {"xyzzyxyzzy", "lanes: cpu"}}) {
    const Outcome o = run({"run", "early", "--lane", typed});
    EXPECT_EQ(o.code, 2);
    EXPECT_NE(o.err.find(nearest), std::string::npos) << o.err;
    EXPECT_NE(o.err.find("'attnscope lanes' lists all"), std::string::npos) << o.err;
    EXPECT_LE(std::ranges::count(o.err, ','), 6) << o.err;
  }
}

TEST_F(PluginTest, WhatCannotBeLoadedIsRefusedByName) {
  for (const Fault& fault :
       std::vector<Fault>{{"NO_SYMBOL", "", "exports no attnscope_lane()"},
                          {"OTHER_VERSION", "", "built for version 42 of the lane interface"},
                          {"NO_NAME", "", "has no name that is a word"},
                          {"NO_OPS", "", "its lane has no op"},
                          {"HOST_OP", "", "schedule is carried out by the engine"},
                          {"UNRESOLVED", "", "nobody_has_this"},
                          {"CRASH_WHILE_LOADED", "", "crashed (SIGSEGV) while it was loaded"},
                          {"not_there", "", "no such file"}}) {
    const Outcome out = run({"lanes", "--plugin", library(fault.name)});
    EXPECT_EQ(out.code, 3) << fault.name;
    EXPECT_NE(out.err.find(fault.text), std::string::npos) << out.err;
  }
  const std::string text = write("text.so", "no library");
  EXPECT_NE(run({"lanes", "--plugin", text}).err.find("cannot be loaded"), std::string::npos);
}

TEST_F(PluginTest, ABugPlantedThroughAPluginIsFoundInTwoCaptures) {
  const std::string good = path("good.acap"), bad = path("bad.acap");
  const Outcome first =
      run({"record", "early", "--layers", "0,1", "-o", good, "--level", "full", "--steps", "2"});
  ASSERT_EQ(first.code, 0) << first.err;
  const Outcome second =
      run({"record", "early", "--layers", "0,1", "-o", bad, "--level", "full", "--steps", "2",
           "--plugin", library("PLANTED"), "--lane", "residual=plugin:faulty"});
  ASSERT_LE(second.code, 1) << second.err;
  const Outcome diff = run({"diff", good, bad, "--json"});
  EXPECT_EQ(diff.code, 1) << diff.err;
  const auto found = nlohmann::json::parse(diff.out);
  EXPECT_EQ(found["first"]["op"], "residual");
  EXPECT_EQ(found["first"]["layer"], 0);
  EXPECT_EQ(found["first"]["lane_b"], "plugin:faulty");
}

}  // namespace plugin_test
}  // namespace attnscope
