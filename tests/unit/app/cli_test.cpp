// The command line as a user meets it: output, files, exit codes, bad input.
#include <fmt/format.h>

#include <cstdio>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "tests/unit/app/cli_fixture.h"

namespace attnscope {
namespace cli_test {

namespace fs = std::filesystem;
using nlohmann::json;

class Cli : public CliTest {
 protected:
  // A scenario that runs in a fraction of a second.
  std::string small(const std::string& extra_request = "", const std::string& extra = "") const {
    return write("small.json",
                 R"({"version": 1, "name": "small", "model": {"preset": "tiny"}, "pool_blocks": 200,
                     "token_budget": 32, "max_requests": 4, "decode_steps": 2, )" +
                     extra + R"("requests": [{"name": "a", "text": "some words to read",
                     "max_new_tokens": 4})" +
                     extra_request + "]}");
  }
};

TEST_F(Cli, RunPrintsTheTableAndWritesAReportWhoseCountsAddUp) {
  const Outcome pipe = run({"run", small(), "--report", "-"});
  EXPECT_EQ(pipe.code, 2);
  EXPECT_NE(pipe.err.find("--json prints the report"), std::string::npos) << pipe.err;
  const Outcome o = run({"run", small(), "--report", path("r.json")});
  EXPECT_EQ(o.code, 0) << o.err;
  for (const char* text : {"sparse_attention", "verdict: ok", "free-running", "sink mass"}) {
    EXPECT_NE(o.out.find(text), std::string::npos) << text;
  }
  const json report = json::parse(read(path("r.json")));
  EXPECT_EQ(report.at("format"), "attnscope-report");
  EXPECT_EQ(report.at("version"), 2);
  const json& s = report.at("summary");
  std::int64_t sum = 0;
  for (const char* verdict :
       {"equal", "rounding", "quantisation", "near_tie", "wrong", "not_compared"}) {
    sum += s.at(verdict).get<std::int64_t>();
  }
  EXPECT_EQ(sum, s.at("taps").get<std::int64_t>());
  EXPECT_EQ(s.at("wrong"), 0);
  EXPECT_EQ(s.at("not_compared"), 0);
  EXPECT_EQ(s.at("verdict"), "ok");
  EXPECT_TRUE(s.at("first_wrong").is_null());
  std::int64_t taps = 0;
  for (const json& step : report.at("steps"))
    taps += static_cast<std::int64_t>(step.at("taps").size());
  EXPECT_EQ(taps, s.at("taps").get<std::int64_t>());
  EXPECT_EQ(report.at("run").at("decode_steps"), 2);
  const json& tap = report.at("steps")[0].at("taps")[0];
  for (const char* key : {"layer", "op", "tap", "shape", "dtype", "introduced", "inherited",
                          "quantisation", "tolerance", "budget_used", "verdict"}) {
    EXPECT_TRUE(tap.contains(key)) << key;
  }
}

TEST_F(Cli, StepsCountIterationsAndDecodeStepsCountDecode) {
  const std::string file = small();
  const auto steps = [&](std::vector<std::string> flags) {
    std::vector<std::string> arguments = {"run", file, "--references", "none", "--json"};
    arguments.insert(arguments.end(), flags.begin(), flags.end());
    const Outcome o = run(arguments);
    EXPECT_EQ(o.code, 0) << o.err;
    return json::parse(o.out).at("run");
  };
  EXPECT_EQ(steps({"--steps", "1"}).at("steps"), 1);
  EXPECT_EQ(steps({"--steps", "0"}).at("steps"), 0);
  EXPECT_EQ(steps({"--decode-steps", "1"}).at("decode_steps"), 1);
  EXPECT_EQ(steps({"--decode-steps", "0"}).at("steps"), 1);  // the prefill alone
  EXPECT_EQ(steps({}).at("decode_steps"), 2);                // the scenario's own
}

TEST_F(Cli, WithoutReferencesEverythingIsNotCompared) {
  const Outcome o = run({"run", small(), "--references", "none", "--json"});
  EXPECT_EQ(o.code, 0);
  const json s = json::parse(o.out).at("summary");
  EXPECT_EQ(s.at("taps"), s.at("not_compared"));
  EXPECT_EQ(s.at("verdict"), "not_compared");
}

TEST_F(Cli, DraftsAreVerifiedAndCounted) {
  const std::string file = small("", R"("serving": {"draft_tokens": 2, "draft_accept": [1, 0]}, )");
  const Outcome o = run({"run", file, "--report", path("r.json")});
  EXPECT_EQ(o.code, 0) << o.err;
  EXPECT_NE(o.out.find("drafts: 2 tokens verified, 1 held"), std::string::npos) << o.out;
  const json report = json::parse(read(path("r.json")));
  EXPECT_EQ(report.at("serving").at("drafted_tokens"), 2);
  EXPECT_EQ(report.at("serving").at("accepted_drafts"), 1);
  const json plain = json::parse(run({"run", small(), "--decode-steps", "9", "--json"}).out);
  std::vector<int> wanted, got;
  for (const json& step : plain.at("steps")) {
    if (step.at("sampled")[0] >= 0) wanted.push_back(step.at("sampled")[0]);
  }
  for (const json& step : report.at("steps")) {
    if (step.at("sampled")[0] >= 0) got.push_back(step.at("sampled")[0]);
  }
  ASSERT_EQ(wanted.size(), 4u);
  EXPECT_EQ(got, (std::vector<int>{wanted[0], wanted[2], wanted[3]}));
}

TEST_F(Cli, AMutantEndsWithOneAndNamesTheOp) {
  const std::string file =
      small(R"(, {"name": "b", "max_new_tokens": 2, "text": ")" + std::string(180, 'w') + "\"}");
  const Outcome o = run({"run", file, "--lane", "mutant:window_off_by_one"});
  EXPECT_EQ(o.code, 1);
  EXPECT_NE(o.out.find("first wrong: step"), std::string::npos) << o.out;
  EXPECT_NE(o.out.find("op swa_index"), std::string::npos);
}

// What was to be tried and never ran is not "ok".
TEST_F(Cli, ALaneThatRanNoOpIsSaidAndAnOpThatNoLayerHasIsRefused) {
  const std::string file = small();
  const std::string idle = "mutant:scale_missing";
  const Outcome o = run({"run", file, "--references", "none", "--lane", idle});
  EXPECT_EQ(o.code, 1) << o.err;
  EXPECT_NE(o.out.find("verdict: "), std::string::npos);
  EXPECT_NE(o.out.find(", but lane " + idle + " ran no op\n"), std::string::npos) << o.out;
  const Outcome as_json = run({"run", file, "--references", "none", "--lane", idle, "--json"});
  EXPECT_EQ(as_json.code, 1);
  const json summary = json::parse(as_json.out).at("summary");
  EXPECT_EQ(summary.at("idle_lanes"), json::array({idle}));
  EXPECT_FALSE(summary.at("cut_short"));
  // Its op may have come later.
  const Outcome cut = run({"run", file, "--references", "none", "--lane", idle, "--steps", "1"});
  EXPECT_EQ(cut.code, 0) << cut.err;
  EXPECT_NE(cut.out.find(idle + " ran no op"), std::string::npos) << cut.out;
  const Outcome kept =
      run({"record", file, "--references", "none", "--lane", idle, "-o", path("a")});
  EXPECT_EQ(kept.code, 1) << kept.err;
  EXPECT_NE(kept.out.find(idle + " ran no op"), std::string::npos) << kept.out;
  // Steps that were left can hold it; where the scenario ends within them, none was.
  for (const bool all : {false, true}) {
    const Outcome counted = run({"record", file, "--references", "none", "--lane", idle, "--steps",
                                 all ? "1000" : "1", "--json", "-o", path(all ? "all" : "one")});
    EXPECT_EQ(counted.code, all ? 1 : 0) << counted.err;
    EXPECT_EQ(json::parse(counted.out).at("cut_short"), !all);
  }
  // One of which a later choice left nothing was not asked for.
  EXPECT_EQ(run({"run", file, "--references", "none", "--lane", "mutant:sink_scaled", "--lane",
                 "sparse_attention=cpu"})
                .code,
            0);
  const Outcome twice = run({"run", file, "--lane", idle, "--lane", "cpu"});
  EXPECT_EQ(twice.code, 2);
  EXPECT_NE(twice.err.find("--lane " + idle + " and --lane cpu both choose the lane of"),
            std::string::npos)
      << twice.err;
  for (const char* command : {"run", "record"}) {
    std::vector<std::string> words = {command, file, "--lane", "paged_attention=cpu"};
    if (words[0] == "record") words.insert(words.end(), {"-o", path("b")});
    const Outcome refused = run(words);
    EXPECT_EQ(refused.code, 3) << refused.err;
    EXPECT_NE(refused.err.find("--lane paged_attention=cpu: this model runs no op paged_attention"),
              std::string::npos)
        << refused.err;
    EXPECT_NE(refused.err.find("its ops: schedule, block_tables, "), std::string::npos)
        << refused.err;
    EXPECT_NE(refused.err.find("sparse_attention"), std::string::npos);
  }
}

// Blocks that come back are bytes: there to be written, and nothing that could be changed.
TEST_F(Cli, MovedBlocksAreExportedAndAreNoLists) {
  const std::string file = path("blocks.safetensors");
  const Outcome done =
      run({"tap-export", "swap", "--taps", "swap_in.blocks", "--steps", "20", "-o", file});
  EXPECT_EQ(done.code, 0) << done.err;
  EXPECT_NE(read(file).find("step.19.swap_in.blocks"), std::string::npos);
  const Outcome asked = run({"what-if", "swap", "19/-/swap_in"});
  EXPECT_EQ(asked.code, 3);
  EXPECT_NE(asked.err.find("swap_in moves bytes as they are"), std::string::npos) << asked.err;
  EXPECT_NE(run({"what-if", "swap", "19/-/slot_mapping"}).err.find("lists are integers"),
            std::string::npos);
}

TEST_F(Cli, ReuseShowsTheKeptReportUntilSomethingChanges) {
  const std::string file = small();
  const std::vector<std::string> again = {"run", file, "--report", path("r.json"), "--reuse"};
  const Outcome first = run(again);
  EXPECT_EQ(first.out.find("kept result"), std::string::npos);
  const Outcome second = run(again);
  EXPECT_EQ(second.code, 0);
  EXPECT_NE(second.out.find("kept result"), std::string::npos);
  EXPECT_EQ(second.out.substr(0, first.out.find("report: ")),
            first.out.substr(0, first.out.find("report: ")));
  small(R"(, {"name": "b", "text": "x", "max_new_tokens": 1})");
  EXPECT_EQ(run(again).out.find("kept result"), std::string::npos);
  write("r.json", "{broken");
  EXPECT_EQ(run(again).out.find("kept result"), std::string::npos);
}

TEST_F(Cli, OpsListsEveryOpWithLanesReferencesAndTests) {
  const Outcome o = run({"ops", "--json"});
  EXPECT_EQ(o.code, 0);
  const json ops = json::parse(o.out).at("ops");
  EXPECT_EQ(ops.size(), 68u);
  for (const json& op : ops) {
    EXPECT_FALSE(op.at("taps").empty());
    const bool helper = op.at("number") >= 1000;
    EXPECT_EQ(op.at("references"), helper ? json{"ref.sim"} : json({"ref.exact", "ref.sim"}))
        << op.at("id");
    EXPECT_NE(op.at("role"), "?") << op.at("id");
    EXPECT_EQ(op.at("lanes")[0], "cpu") << op.at("id");
    EXPECT_FALSE(op.at("tests").empty()) << op.at("id") << " has no test";
  }
  EXPECT_NE(run({"ops"}).out.find("q_rope_kv_insert"), std::string::npos);
}

TEST_F(Cli, ModelDescribeTellsDimensionsGroupsAndBytes) {
  const Outcome o = run({"model", "describe", "v4-flash", "--layers", "0,2,3,4", "--json"});
  EXPECT_EQ(o.code, 0) << o.err;
  const json m = json::parse(o.out);
  EXPECT_EQ(m.at("hidden"), 4096);
  EXPECT_EQ(m.at("groups").size(), 5u);
  EXPECT_EQ(m.at("block_stride_bytes"), 93888);
  EXPECT_EQ(
      json::parse(run({"model", "describe", "v4-flash", "--json"}).out).at("block_stride_bytes"),
      1002240);
  EXPECT_NE(run({"model", "describe", "tiny"}).out.find("C128A"), std::string::npos);
}

TEST_F(Cli, DoctorNamesWhatItFound) {
  const Outcome o = run({"doctor"});
  EXPECT_EQ(o.code, 0);
  for (const char* what : {"compiler", "libtorch", "SIMD", "GPU", "display", "BLAS"}) {
    EXPECT_NE(o.out.find(what), std::string::npos) << what;
  }
  const json lines = json::parse(run({"doctor", "--json"}).out).at("lines");
  EXPECT_TRUE(lines.is_array() && lines.size() > 5) << lines;
}

// In a process of its own: libtorch may be loaded in this one.
TEST_F(Cli, MissingLibtorchEndsWithFour) {
  testing::GTEST_FLAG(death_test_style) = "threadsafe";
  const auto without_libtorch = [&](std::vector<std::string> arguments) {
    setenv("ATTNSCOPE_TORCH_MODULE", "/nowhere/module.so", 1);
    dup2(STDERR_FILENO, STDOUT_FILENO);  // which is what the expectation sees
    arguments.insert(arguments.begin(), "attnscope");
    const int code = run_cli(arguments);
    TearDown();
    std::fflush(nullptr);
    std::_Exit(code);
  };
  const std::string file = small();
  EXPECT_EXIT(without_libtorch({"run", file}), testing::ExitedWithCode(4),
              "libtorch does not load: /nowhere/module.so: .*; run ./attnscope");
  // Nothing was compared before it was needed.
  EXPECT_EXIT(without_libtorch({"run", file, "--references", "sim"}), testing::ExitedWithCode(4),
              "verdict: not_compared.*libtorch does not load: /nowhere/module.so: .*; run "
              "./attnscope");
  EXPECT_EXIT(without_libtorch({"run", file, "--references", "none"}), testing::ExitedWithCode(0),
              "not_compared");
  EXPECT_EXIT(without_libtorch({"doctor"}), testing::ExitedWithCode(0),
              "-- libtorch +does not load: /nowhere/module.so");
}

// Nothing is compared, and what must hold of every step does not.
TEST_F(Cli, ABrokenInvariantIsWrong) {
  const std::vector<std::string> bug = {"run",   small(),  "--references",
                                        "none",  "--lane", "swa_index=mutant:window_not_causal",
                                        "--json"};
  const Outcome o = run(bug);
  EXPECT_EQ(o.code, 1) << o.err;
  const json report = json::parse(o.out);
  const json& s = report.at("summary");
  EXPECT_EQ(s.at("verdict"), "wrong");
  std::int64_t wrong = 0;
  for (const json& step : report.at("steps")) {
    for (const json& tap : step.at("taps")) {
      if (tap.at("verdict") != "wrong") continue;
      ++wrong;
      EXPECT_EQ(tap.at("tap"), "window_rows.invariant");
      EXPECT_EQ(tap.at("op"), "swa_index");
    }
  }
  EXPECT_GT(wrong, 0);
  EXPECT_EQ(s.at("wrong"), wrong);
  EXPECT_EQ(s.at("blamed").at(0).at("op"), "swa_index");
  for (const json& i : report.at("invariants")) {
    EXPECT_EQ(i.at("broken").get<std::int64_t>() > 0, i.at("name") == "window_rows");
  }

  std::vector<std::string> off = bug;
  off.back() = "--invariants";
  off.emplace_back("off");
  const Outcome quiet = run(off);
  EXPECT_EQ(quiet.code, 0) << quiet.err;
  EXPECT_NE(quiet.out.find("verdict: not_compared"), std::string::npos);
  EXPECT_NE(quiet.out.find("invariants of block manager and scheduler: off"), std::string::npos);
  EXPECT_EQ(run({"run", small(), "--invariants", "sometimes"}).code, 2);
}

TEST_F(Cli, DecisionsAndTheirInvariantsAreCounted) {
  const Outcome o = run({"run", small(), "--references", "none", "--invariants", "call"});
  EXPECT_EQ(o.code, 0) << o.err;
  EXPECT_NE(o.out.find("invariants of block manager and scheduler (call): checked in "),
            std::string::npos);
  const json report = json::parse(run({"run", small(), "--references", "none", "--json"}).out);
  const json& decisions = report.at("decisions");
  std::int64_t judged = 0;
  for (const json& kind : decisions.at("kinds")) judged += kind.at("judged").get<std::int64_t>();
  EXPECT_GT(judged, 30);
  EXPECT_EQ(decisions.at("judged"), judged);
  EXPECT_EQ(decisions.at("equal"), judged);
  EXPECT_TRUE(decisions.at("wrong").is_null());
  EXPECT_NE(o.out.find(fmt::format("decisions {0} = {0} equal + 0 wrong", judged)),
            std::string::npos)
      << o.out;
}

TEST_F(Cli, HelpIsNoError) {
  for (const std::vector<std::string>& arguments :
       std::vector<std::vector<std::string>>{{"--help"},
                                             {"run", "--help"},
                                             {"ops", "--help"},
                                             {"model", "describe", "--help"},
                                             {"doctor", "--help"},
                                             {"--version"}}) {
    const Outcome o = run(arguments);
    EXPECT_EQ(o.code, 0);
    EXPECT_FALSE(o.out.empty());
  }
}

TEST_F(Cli, WrongUsageEndsWithTwo) {
  const std::string file = small();
  for (const std::vector<std::string>& arguments :
       std::vector<std::vector<std::string>>{{"walk"},
                                             {"run"},
                                             {"run", file, "--steps", "-1"},
                                             {"run", file, "--decode-steps", "-3"},
                                             {"run", file, "--steps", "many"},
                                             {"run", file, "--steps", "1", "--decode-steps", "1"},
                                             {"run", file, "--references", "all"},
                                             {"run", file, "--profile", "sglang"},
                                             {"run", file, "--lane", "gpu"},
                                             {"run", file, "--lane", "topk=cpu"},
                                             {"run", file, "--threads", "-1"},
                                             {"run", file, "--unknown"},
                                             {"model"}}) {
    const Outcome o = run(arguments);
    EXPECT_EQ(o.code, 2) << arguments.back();
    EXPECT_EQ(o.err.rfind("attnscope: ", 0), 0u) << o.err;
    EXPECT_EQ(std::count(o.err.begin(), o.err.end(), '\n'), 1) << o.err;
  }
  EXPECT_NE(run({"rum"}).err.find("no command 'rum'; did you mean run"), std::string::npos);
  EXPECT_EQ(run({"early"}).err,
            "attnscope: there is no command 'early'; a scenario runs with 'attnscope run early'\n");
  EXPECT_NE(run({"zzzzz"}).err.find("commands: gui, run, record"), std::string::npos);
  EXPECT_NE(run({"run", file, "--unknown"}).err.find("attnscope run --help"), std::string::npos);
  // Options of the command and those of all commands are near ones; other words come in their
  // order.
  EXPECT_NE(
      run({"run", file, "--step", "2"}).err.find("there is no option --step; did you mean --steps"),
      std::string::npos);
  EXPECT_NE(run({"run", file, "--plugn=a"}).err.find("did you mean --plugin"), std::string::npos);
  EXPECT_NE(run({"run", file, "b", "c"}).err.find("not expected: b c; "), std::string::npos);
  // Where a command has commands of its own, the help is that of the last one.
  EXPECT_NE(
      run({"mask", "show", "causal", "--tokens", "99999"}).err.find("attnscope mask show --he"),
      std::string::npos);
  EXPECT_EQ(run({"golden", "rum"}).err,
            "attnscope: golden takes one of run, list, review, accept, prune; 'attnscope golden "
            "--help' lists what there is\n");
}

// Options of a command that stand before it would be the app's, and its name a scenario.
TEST_F(Cli, OptionsBeforeTheirCommandAreSaidToBelongBehindIt) {
  for (const std::vector<std::string>& words :
       std::vector<std::vector<std::string>>{{"--lane", "cpu", "run", "early"},
                                             {"--threads", "1", "run", "early", "--json"},
                                             {"--json", "run", "early"},
                                             {"--report=r.json", "run", "early"}}) {
    const Outcome o = run(words);
    EXPECT_EQ(o.code, 2) << words[0];
    const std::string name = words[0].substr(0, words[0].find('='));
    EXPECT_EQ(o.err.rfind("attnscope: " + name +
                              " stands before the command: options of 'run' "
                              "stand behind it, as in 'attnscope run .. " +
                              words[0],
                          0),
              0)
        << o.err;
  }
  // Those of every command stand anywhere.
  EXPECT_EQ(run({"--plugin-timeout", "3", "lanes"}).code, 0);
}

TEST_F(Cli, WordsOfTheParserAreOurs) {
  const std::string file = small();
  const auto said = [&](const std::vector<std::string>& more) {
    std::vector<std::string> words = {"run", file};
    words.insert(words.end(), more.begin(), more.end());
    const Outcome o = run(words);
    EXPECT_EQ(o.code, 2) << o.err;
    return o.err;
  };
  EXPECT_EQ(said({"--steps", "1", "--steps", "2"}).rfind("attnscope: --steps is given 2 times", 0),
            0);
  EXPECT_EQ(said({"--layers", "x"}).rfind("attnscope: --layers: 'x' is no number", 0), 0);
  // A report that nobody named cannot be shown again.
  EXPECT_EQ(said({"--reuse"}).rfind("attnscope: --reuse requires --report", 0), 0);
  EXPECT_NE(said({"--lane", "sparse_atention=cpu"}).find("did you mean sparse_attention? ops:"),
            std::string::npos);
  EXPECT_NE(run({"run", "erly"}).err.find("did you mean early? allowed: "), std::string::npos);
  EXPECT_NE(
      run({"record", file, "-o", path("a.acap"), "--level", "full", "--op", "sparse_atention"})
          .err.find("did you mean sparse_attention? 'attnscope ops'"),
      std::string::npos);
}

// A number below 0 would stand for "none given", and the first row or no entry would be shown.
TEST_F(Cli, WhatIsLookedAtIsRefusedBeforeAnythingIsPrinted) {
  const std::string file = small(), at = "0/1/sparse_attention";
  for (const std::vector<std::string>& words :
       std::vector<std::vector<std::string>>{{"why", file, at, "--token", "-1"},
                                             {"why", file, at, "--entry", "-1"},
                                             {"why", file, at, "--slot", "-1"},
                                             {"what-if", file, at, "--token", "-1"},
                                             {"what-if", file, at, "--after", "--change", "sinks"},
                                             {"what-if", file, at, "--with", "mutant:sink_twce"}}) {
    const Outcome o = run(words);
    EXPECT_EQ(o.code, 2) << words.back() << o.err;
    EXPECT_EQ(o.out, "") << words.back();
  }
  EXPECT_NE(run({"what-if", file, at, "--with", "mutant:sink_twce"})
                .err.find("did you mean mutant:sink_twice? 'attnscope lanes' lists them"),
            std::string::npos);
  EXPECT_NE(run({"model", "describe", "tniy"}).err.find("did you mean tiny? allowed: "),
            std::string::npos);
  EXPECT_NE(run({"tap-export", file, "--taps", "", "-o", path("t.safetensors")})
                .err.find("--taps '': a name is missing; write OP.TAP"),
            std::string::npos);
  EXPECT_NE(run({"plugin", "check", path("")}).err.find(": is a folder; name the library in it"),
            std::string::npos);
}

TEST_F(Cli, BadInputEndsWithThreeAndSaysWhatWhereAndWhatIsAllowed) {
  struct Case {
    std::string file;
    std::vector<std::string> expected;
  };
  const auto scenario = [&](const std::string& name, const std::string& text) {
    return write(name, text);
  };
  const std::string head = R"({"version": 1, "name": "x", "pool_blocks": 40, "token_budget": 32,
                               "max_requests": 4, )";
  const auto with = [&](const char* fields) {
    return head + fields + R"(, "requests": [{"name": "a", "text": "abc", "max_new_tokens": 2}]})";
  };
  for (const Case& c : std::vector<Case>{
           {path("absent.json"), {"absent.json"}},
           {"no-such-scenario", {"no-such-scenario", "default"}},
           {scenario("m1.json", "{\n  \"version\": 1,\n  oops\n}"), {"m1.json", "line 3"}},
           {scenario("m2.json", with(R"("model": {"preset": "v5"})")), {"v5", "tiny", "v4-flash"}},
           {scenario("m3.json", with(R"("model": {"preset": "tiny", "layers": [9]})")),
            {"9", "layer"}},
           {scenario("m4.json", with(R"("model": {"preset": "tiny"}, "colour": "red")")),
            {"m4.json", "colour"}},
           {scenario("m5.json", head + R"("model": {"preset": "tiny"}, "requests": [{"name": "a",
                     "text": ")" + std::string(9000, 'q') +
                                    R"(", "max_new_tokens": 2}]})"),
            {"a", "pool"}},
           {scenario("m6.json", head + R"("model": {"preset": "tiny"}, "requests": [{"name": "a",
                     "text": "abc", "max_new_tokens": -2}]})"),
            {"max_new_tokens"}},
           {scenario("m7.json", with(R"("model": {"config": "nowhere.json"})")),
            {"nowhere.json"}}}) {
    const Outcome o = run({"run", c.file});
    EXPECT_EQ(o.code, 3) << c.file << o.err;
    for (const std::string& text : c.expected) {
      EXPECT_NE(o.err.find(text), std::string::npos) << c.file << ": " << o.err;
    }
    EXPECT_EQ(std::count(o.err.begin(), o.err.end(), '\n'), 1) << "one message: " << o.err;
  }
  EXPECT_EQ(run({"model", "describe", "v5"}).code, 3);
  EXPECT_EQ(run({"model", "describe", "tiny", "--layers", "0,7"}).code, 3);
}

TEST_F(Cli, AnUnwritableReportIsSaidBeforeTheRunAndNothingIsLost) {
  const std::string file = small();
  const Outcome no_folder = run({"run", file, "--report", path("none/r.json")});
  EXPECT_EQ(no_folder.code, 3);
  EXPECT_NE(no_folder.err.find("does not exist"), std::string::npos);
  EXPECT_TRUE(no_folder.out.empty());
  const Outcome below_a_file = run({"run", file, "--report", file + "/none/r.json"});
  EXPECT_EQ(below_a_file.code, 3);
  EXPECT_NE(below_a_file.err.find(file + " is a file, not a folder; name another file"),
            std::string::npos)
      << below_a_file.err;
  EXPECT_EQ(run({"run", file, "--report", folder_.string()}).code, 3);
  EXPECT_EQ(run({"run", file, "--report", ""}).code, 2);
  EXPECT_EQ(run({"run", file, "--tolerances", ""}).code, 2);
  // A run that fails leaves the report that was there.
  write("r.json", "precious");
  EXPECT_EQ(run({"run", path("absent.json"), "--report", path("r.json")}).code, 3);
  EXPECT_EQ(run({"run", file, "--lane", "gpu", "--report", path("r.json")}).code, 2);
  EXPECT_EQ(read(path("r.json")), "precious");
}

TEST_F(Cli, AFullDiskIsSaidWithWhatToDo) {
  const Outcome full = run({"blocks", "simulate", "g1", "--events", "/dev/full"});
  EXPECT_EQ(full.code, 3);
  EXPECT_EQ(full.err,
            "attnscope: /dev/full: cannot write: No space left on device; make room on the disk, "
            "or choose another place\n");
}

TEST_F(Cli, ToleranceFilesAreChecked) {
  const std::string file = small();
  const Outcome o = run({"run", file, "--tolerances", write("t.json", "{\"version\": 1}")});
  EXPECT_EQ(o.code, 3);
  EXPECT_NE(o.err.find("classes"), std::string::npos) << o.err;
}

// What dense layers do not have is refused, wherever it is asked for.
TEST_F(Cli, SwitchesAndSizesThatAModelHasNotAreRefused) {
  const auto refused = [&](std::vector<std::string> words, const char* text) {
    const Outcome o = run(std::move(words));
    EXPECT_TRUE(o.code == 2 || o.code == 3) << o.code << o.out;
    EXPECT_NE(o.err.find(text), std::string::npos) << o.err;
    EXPECT_EQ(o.out, "");
  };
  const char* const no_switch =
      "has no switch projections; switches of this family: attention_form";
  refused({"run", "tiny-llama", "--profile", "vllm,projections=fp8"}, no_switch);
  refused({"model", "describe", "tiny-llama", "--profile", "vllm,projections=fp8"}, no_switch);
  refused({"run", small("", R"("profile": "vllm,q_norm=bf16", )"), "--model", "tiny-llama"},
          "has no switch q_norm");
  refused({"profiles", "tiny-v3"}, "model tiny-v3 of family mla has no switches");
  refused({"run", "tiny-v3", "--profile", "vllm,index_scores=e4m3"},
          "has no switch index_scores; switches of this family: none");
  refused({"run", "tiny-v3.2", "--profile", "vllm,hadamard=on"},
          "has no switch hadamard; switches of this family: index_scores");
  refused({"sweep", "tiny-llama", "--vary", "switch=hadamard"},
          "has no such switch; switches of this family: attention_form");
  refused({"sweep", "tiny-llama", "--vary", "topk=4,8"},
          "no layer of tiny-llama that runs selects");
  refused({"sweep", "tiny-llama", "--vary", "window=4,8"},
          "no layer of tiny-llama that runs has a window");
  refused({"sweep", "tiny-llama", "--vary", "sink=1"}, "model tiny-llama has no sinks");
  // Numbers that nothing can be are refused as they were written.
  refused({"sweep", "early", "--vary", "sink=nan"}, "sink=nan: no number from -10000 to 10000");
  refused({"sweep", "early", "--vary", "topk=4294967360"}, "topk=4294967360: out of range");
}

// A window of dense layers is one that a sweep changes.
TEST_F(Cli, AWindowOfDenseLayersIsSwept) {
  const Outcome o =
      run({"sweep", "tiny-gemma", "--vary", "window=4,32", "--decode-steps", "0", "--json"});
  ASSERT_EQ(o.code, 0) << o.err;
  const json rows = json::parse(o.out).at("rows");
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_NE(rows[0].at("changed"), rows[1].at("changed"));
}

}  // namespace cli_test
}  // namespace attnscope
