#include "app/workbench/scenario_edit.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <random>
#include <tuple>

#include "app/reports/scenario_needs.h"
#include "engine/family/models.h"
#include "engine/io/json_file.h"
#include "tests/unit/app/small_scenario.h"

namespace attnscope {
namespace scenario_edit_test {

namespace fs = std::filesystem;

bool same(const Scenario& a, const Scenario& b) {
  const auto requests = [](const ScenarioRequest& x, const ScenarioRequest& y) {
    return x.name == y.name && x.tokens == y.tokens && x.max_new_tokens == y.max_new_tokens;
  };
  return a.name == b.name && a.model.name == b.model.name && a.model.layers == b.model.layers &&
         a.model.switches.profile == b.model.switches.profile && a.seed == b.seed &&
         a.parallel == b.parallel && a.pool_blocks == b.pool_blocks &&
         a.first_block == b.first_block && a.adversarial_lists == b.adversarial_lists &&
         a.model.sink_shift == b.model.sink_shift && a.model.sinks == b.model.sinks &&
         a.model.index_topk == b.model.index_topk && a.model.logit_gain == b.model.logit_gain &&
         a.model.twin_tokens == b.model.twin_tokens &&
         a.limits.token_budget == b.limits.token_budget &&
         a.limits.max_requests == b.limits.max_requests && a.decode_steps == b.decode_steps &&
         std::ranges::equal(a.requests, b.requests, requests);
}

RunSetup shipped(const char* name) {
  RunSetup setup;
  setup.scenario = *load_scenario(name);
  return setup;
}

class ScenarioFiles : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::temp_directory_path() / fmt::format("attnscope-drafts-{}", ::getpid());
    fs::remove_all(folder_);
    fs::create_directories(folder_ / "a");
    fs::create_directories(folder_ / "b");
  }
  void TearDown() override { fs::remove_all(folder_); }
  std::string path(const char* name) const { return (folder_ / name).string(); }

  fs::path folder_;
};

// What was saved is the same scenario, and gives the same draft again.
TEST_F(ScenarioFiles, ShippedScenariosSurviveSaving) {
  for (const char* name :
       {"default", "early", "flash", "large_scores", "high_blocks", "selective"}) {
    const RunSetup setup = shipped(name);
    const ScenarioDraft draft = draft_of(setup);
    const std::string file = path("saved.json");
    const auto written = save_draft(draft.file, setup.scenario.path, file);
    ASSERT_TRUE(written) << written.error().text();
    const auto again = load_scenario(file);
    ASSERT_TRUE(again) << again.error().text();
    EXPECT_TRUE(same(setup.scenario, *again)) << name;
    RunSetup reopened;
    reopened.scenario = *again;
    EXPECT_EQ(draft_of(reopened).file, *written) << name;
  }
}

TEST_F(ScenarioFiles, AScenarioMadeByCodeIsADraftToo) {
  RunSetup setup;
  setup.scenario = small_scenario();
  setup.lanes = {"cpu", "sample=ref.sim"};
  setup.references = References::kSim;
  const ScenarioDraft draft = draft_of(setup);
  EXPECT_EQ(draft.lanes, setup.lanes);
  EXPECT_EQ(draft.references, References::kSim);
  const DraftCheck check = check_draft(draft.file, path("s.json"));
  ASSERT_TRUE(check.scenario) << check.errors.begin()->second;
  EXPECT_TRUE(same(setup.scenario, *check.scenario));
}

std::string random_text(std::mt19937& random) {
  std::string text;
  const auto length = 1 + random() % 40;
  while (text.size() < length) {
    switch (random() % 7) {
      case 0:
        text += static_cast<char>(random() % 32);  // control characters, 0 among them
        break;
      case 1:
        text += "\"\\/\n\r\t\x7f";
        break;
      case 2:
        text += "\u00e4\u07ff";
        break;
      case 3:
        text += "\u2028\uffff\ud7ff";
        break;
      case 4:
        text += "\U0001f600\U0010ffff";
        break;
      case 5:
        text += "// { \"requests\": [";
        break;
      default:
        text += static_cast<char>(32 + random() % 95);
    }
  }
  return text;
}

TEST_F(ScenarioFiles, OddTextsAndNumbersSurviveSaving) {
  std::mt19937 random(7);
  ASSERT_TRUE(write_text_file(path("prompt \"\u00e4\".txt"), std::string(500, 'x')));
  for (int round = 0; round < 300; ++round) {
    ScenarioFile file;
    file.name = random_text(random);
    file.preset = "tiny";
    if (random() % 2 != 0) file.layers = "0, 2,3";
    if (random() % 2 != 0) file.seed = random() % 2 != 0 ? "18446744073709551615" : "0";
    if (random() % 2 != 0) file.profile = "deepseek";
    if (random() % 2 != 0) {
      file.ranks = "2";
      if (random() % 2 != 0) file.rank = "1";
    }
    file.pool_blocks = std::to_string(400 + random() % 100000);
    if (random() % 2 != 0) file.token_budget = std::to_string(1 + random() % 65536);
    file.max_requests = random() % 2 != 0 ? "" : "4096";
    const auto count = 1 + random() % 4;
    for (std::size_t i = 0; i < count; ++i) {
      RequestDraft request;
      request.name = random_text(random) + std::to_string(i);
      request.from_file = random() % 3 == 0;
      if (request.from_file) {
        request.text_file = "prompt \"\u00e4\".txt";
        request.offset = std::to_string(random() % 400);
        request.tokens = std::to_string(1 + random() % 100);
      } else {
        request.text = random_text(random);
      }
      request.max_new_tokens = std::to_string(1 + random() % 20);
      file.requests.push_back(std::move(request));
    }
    const std::string at = path("odd.json");
    const DraftCheck check = check_draft(file, at);
    ASSERT_TRUE(check.scenario) << check.errors.begin()->first << check.errors.begin()->second;
    const auto written = save_draft(file, at, at);
    ASSERT_TRUE(written) << written.error().text();
    const auto again = load_scenario(at);
    ASSERT_TRUE(again) << again.error().text();
    EXPECT_TRUE(same(*check.scenario, *again));
    RunSetup setup;
    setup.scenario = *again;
    ScenarioFile read = draft_of(setup).file;
    if (!file.layers.empty()) file.layers = "0, 2, 3";
    EXPECT_EQ(read, file);
  }
}

TEST_F(ScenarioFiles, StopsAreKeptAndMakeNoOtherScenario) {
  const RunSetup setup = shipped("early");
  ScenarioFile file = draft_of(setup).file;
  const ScenarioFile before = file;
  file.stops.list = {{"wrong of wo_b", true}, {"evict block 3", false}};
  EXPECT_EQ(file, before);
  const auto written = save_draft(file, setup.scenario.path, path("stops.json"));
  ASSERT_TRUE(written) << written.error().text();
  const auto again = load_scenario(path("stops.json"));
  ASSERT_TRUE(again) << again.error().text();
  EXPECT_EQ(again->stops, file.stops.list);
  RunSetup reopened;
  reopened.scenario = *again;
  EXPECT_EQ(draft_of(reopened).file.stops.list, file.stops.list);
  EXPECT_EQ(draft_of(reopened).file.more, before.more) << "they are no key without a field";
}

TEST_F(ScenarioFiles, FilesAreFoundFromTheNewPlace) {
  ASSERT_TRUE(write_text_file(path("a/mine.txt"), "of a"));
  ScenarioFile file = draft_of(shipped("early")).file;
  file.requests.resize(1);
  file.requests[0].from_file = true;
  file.requests[0].text_file = "mine.txt";
  const auto far = save_draft(file, path("a/s.json"), path("b/s.json"));
  ASSERT_FALSE(far) << "a prompt lies beside its scenario, unless the user allowed others";
  EXPECT_NE(far.error().text().find("lies outside of the scenario's folder"), std::string::npos);
  allow_text_files_anywhere(true);
  const auto moved = save_draft(file, path("a/s.json"), path("b/s.json"));
  ASSERT_TRUE(moved) << moved.error().text();
  EXPECT_EQ(moved->requests[0].text_file, path("a/mine.txt"));
  // Another file of that name beside the new place does not take its part.
  ASSERT_TRUE(write_text_file(path("b/mine.txt"), "of b, longer"));
  const auto again = save_draft(file, path("a/s.json"), path("b/t.json"));
  ASSERT_TRUE(again);
  EXPECT_EQ(load_scenario(path("b/t.json"))->requests[0].tokens.size(), 4u);
  allow_text_files_anywhere(false);
  // Where it is the same file, its name stays short.
  EXPECT_EQ(save_draft(file, path("a/s.json"), path("a/t.json"))->requests[0].text_file,
            "mine.txt");
}

TEST_F(ScenarioFiles, WhatTheLoaderRefusesIsNotWritten) {
  ScenarioFile file = draft_of(shipped("early")).file;
  file.pool_blocks = "3";
  const auto written = save_draft(file, "", path("bad.json"));
  ASSERT_FALSE(written);
  EXPECT_NE(written.error().message.find("requests["), std::string::npos)
      << written.error().message;
  EXPECT_FALSE(fs::exists(path("bad.json")));
  EXPECT_FALSE(save_draft(draft_of(shipped("early")).file, "", ""));
  EXPECT_FALSE(save_draft(draft_of(shipped("early")).file, "", path("no/such/folder/s.json")));
  EXPECT_FALSE(save_draft(draft_of(shipped("early")).file, "", folder_.string()));
}

class DraftErrorsTest : public ::testing::Test {
 protected:
  // Place of the only error.
  std::string place() const {
    const DraftCheck check = check_draft(file_, "s.json");
    EXPECT_FALSE(check.scenario);
    EXPECT_EQ(check.errors.size(), 1u);
    return check.errors.empty() ? "none" : check.errors.begin()->first;
  }
  ScenarioFile file_ = draft_of(shipped("default")).file;
};

TEST_F(DraftErrorsTest, StandAtTheirField) {
  const ScenarioFile good = file_;
  const auto wrong = [&](auto edit) {
    file_ = good;
    edit(file_);
    return place();
  };
  EXPECT_EQ(wrong([](ScenarioFile& f) { f.pool_blocks = "many"; }), "pool_blocks");
  EXPECT_EQ(wrong([](ScenarioFile& f) { f.pool_blocks = "1"; }), "pool_blocks");
  EXPECT_EQ(wrong([](ScenarioFile& f) { f.pool_blocks = ""; }), "pool_blocks");
  EXPECT_EQ(wrong([](ScenarioFile& f) { f.token_budget = "1.5"; }), "token_budget");
  EXPECT_EQ(wrong([](ScenarioFile& f) { f.token_budget = std::string(100000, '9'); }),
            "token_budget");
  EXPECT_EQ(wrong([](ScenarioFile& f) { f.max_requests = "-1"; }), "max_requests");
  EXPECT_EQ(wrong([](ScenarioFile& f) { f.decode_steps = "1e9"; }), "decode_steps");
  EXPECT_EQ(wrong([](ScenarioFile& f) { f.seed = "0x10"; }), "model.seed");
  for (const char* sinks : {"3", "3: none", "a: 1", "99: -inf", "3: 1e9", "3: -inf 4: inf"}) {
    EXPECT_EQ(wrong([&](ScenarioFile& f) { f.sinks = sinks; }), "model.sinks") << sinks;
  }
  EXPECT_EQ(wrong([](ScenarioFile& f) { f.seed = "18446744073709551616"; }), "model.seed");
  EXPECT_EQ(wrong([](ScenarioFile& f) { f.layers = "0, 99"; }), "model.layers");
  EXPECT_EQ(wrong([](ScenarioFile& f) { f.layers = "0, -1"; }), "model.layers");
  EXPECT_EQ(wrong([](ScenarioFile& f) { f.layers = "0 to 3"; }), "model.layers");
  EXPECT_EQ(wrong([](ScenarioFile& f) { f.layers = "99999999999999999999"; }), "model.layers");
  EXPECT_EQ(wrong([](ScenarioFile& f) { f.preset = "huge"; }), "model.preset");
  EXPECT_EQ(wrong([](ScenarioFile& f) { f.from_config = true; }), "model.config");
  EXPECT_EQ(wrong([](ScenarioFile& f) { f.profile = "other"; }), "profile");
  EXPECT_EQ(wrong([](ScenarioFile& f) { f.ranks = "3"; }), "tensor_parallel.size");
  EXPECT_EQ(wrong([](ScenarioFile& f) { f.ranks = "two"; }), "tensor_parallel.size");
  EXPECT_EQ(wrong([](ScenarioFile& f) { f.rank = "1"; }), "tensor_parallel.size");
  EXPECT_EQ(wrong([](ScenarioFile& f) { std::tie(f.ranks, f.rank) = std::tuple("2", "2"); }),
            "tensor_parallel.rank");
  EXPECT_EQ(wrong([](ScenarioFile& f) { f.requests.clear(); }), "requests");
  EXPECT_EQ(wrong([](ScenarioFile& f) { f.requests[2].text = {}; }), "requests[2].text");
  EXPECT_EQ(wrong([](ScenarioFile& f) { f.requests[2].text = "a\xff"; }), "requests[2].text");
  EXPECT_EQ(wrong([](ScenarioFile& f) { f.requests[1].name = f.requests[0].name; }),
            "requests[1].name");
  EXPECT_EQ(wrong([](ScenarioFile& f) { f.requests[0].text_file = "gone.md"; }),
            "requests[0].text_file");
  EXPECT_EQ(wrong([](ScenarioFile& f) { f.requests[0].offset = "999999999"; }),
            "requests[0].offset");
  EXPECT_EQ(wrong([](ScenarioFile& f) { f.requests[0].tokens = "0"; }), "requests[0].tokens");
  EXPECT_EQ(wrong([](ScenarioFile& f) { f.requests[0].max_new_tokens = ""; }),
            "requests[0].max_new_tokens");
}

// Texts that are no numbers are all told at once.
TEST_F(DraftErrorsTest, AllFieldsThatAreNoNumbersAreTold) {
  file_.pool_blocks = "a";
  file_.seed = "b";
  file_.requests[1].tokens = "c";
  file_.name = "\xc0\x80";
  const DraftCheck check = check_draft(file_, "s.json");
  EXPECT_EQ(check.errors.size(), 4u);
  for (const char* at : {"pool_blocks", "model.seed", "requests[1].tokens", "name"}) {
    EXPECT_TRUE(check.errors.contains(at)) << at;
  }
}

TEST_F(DraftErrorsTest, NothingThatIsTypedBreaksTheCheck) {
  std::mt19937 random(11);
  const auto garbage = [&] {
    std::string text;
    const auto length = random() % 12;
    for (std::size_t i = 0; i < length; ++i) text += static_cast<char>(random());
    return text;
  };
  const ScenarioFile good = file_;
  for (int round = 0; round < 500; ++round) {
    file_ = good;
    std::string prompt = good.requests[2].text.str();
    std::string* const fields[] = {&file_.name,
                                   &file_.preset,
                                   &file_.layers,
                                   &file_.seed,
                                   &file_.profile,
                                   &file_.ranks,
                                   &file_.rank,
                                   &file_.caching,
                                   &file_.policy,
                                   &file_.serving,
                                   &file_.pool_blocks,
                                   &file_.decode_steps,
                                   &file_.requests[0].text_file,
                                   &file_.requests[0].offset,
                                   &prompt,
                                   &file_.requests[2].name,
                                   &file_.requests[1].max_new_tokens};
    *fields[random() % std::size(fields)] = garbage();
    file_.requests[2].text = prompt;
    const DraftCheck check = check_draft(file_, "s.json");
    EXPECT_EQ(check.errors.empty(), check.scenario.has_value());
  }
  file_ = good;
  file_.requests[2].text = std::string(500'000, 'a');
  EXPECT_EQ(place(), "requests[2].tokens") << "the pool cannot hold so many";
}

TEST(ScenarioEdit, ServingHasFieldsAndARest) {
  ScenarioFile file = draft_of(shipped("mixed")).file;
  EXPECT_EQ(file.policy, "priority");
  EXPECT_EQ(file.manager_profile, "A");
  EXPECT_EQ(file.caching, "");
  EXPECT_EQ(file.serving, "");
  EXPECT_EQ(file.requests[1].arrival_step, "3");
  EXPECT_EQ(file.requests[1].priority, "5");
  file.caching = "off";
  file.serving = R"( {"watermark": 0.25, "hash_block_size": 4} )";
  const DraftCheck check = check_draft(file, "s.json");
  ASSERT_TRUE(check.scenario) << check.errors.begin()->first << check.errors.begin()->second;
  EXPECT_FALSE(check.scenario->serving.kv.caching);
  EXPECT_EQ(check.scenario->serving.kv.watermark, 0.25);
  RunSetup again;
  again.scenario = *check.scenario;
  const ScenarioFile read = draft_of(again).file;
  EXPECT_EQ(read.caching, "off");
  EXPECT_EQ(read.policy, "priority");
  EXPECT_EQ(read.serving, R"({"hash_block_size":4,"watermark":0.25})");

  const auto error = [&](const char* serving) {
    file.serving = serving;
    const DraftCheck bad = check_draft(file, "s.json");
    EXPECT_FALSE(bad.scenario);
    return bad.errors.empty() ? std::string() : bad.errors.begin()->first;
  };
  EXPECT_EQ(error("[1]"), "serving");
  EXPECT_EQ(error("{"), "serving");
  EXPECT_EQ(error("\"\xff\""), "serving");
  EXPECT_EQ(error(R"({"profile": "M"})"), "serving") << "has a field of its own";
  EXPECT_EQ(error(R"({"watermark": "much"})"), "serving.watermark");
  EXPECT_EQ(error(R"({"water_mark": 1})"), "serving.water_mark");
}

TEST(ScenarioEditor, AFieldIsOneStepOfUndo) {
  ScenarioEditor editor;
  editor.load(shipped("default"));
  EXPECT_TRUE(editor.applied());
  EXPECT_TRUE(editor.saved());
  EXPECT_FALSE(editor.can_undo());
  editor.begin();
  for (const char* text : {"6", "64", "641"}) {
    editor.type([&](ScenarioDraft& d) { d.file.pool_blocks = text; });
  }
  editor.end();
  editor.change([](ScenarioDraft& d) { d.file.requests.pop_back(); });
  editor.change([](ScenarioDraft&) {});  // nothing
  EXPECT_FALSE(editor.applied());
  EXPECT_FALSE(editor.saved());
  editor.undo();
  EXPECT_EQ(editor.draft().file.requests.size(), 3u);
  EXPECT_EQ(editor.draft().file.pool_blocks, "641");
  editor.undo();
  EXPECT_EQ(editor.draft().file.pool_blocks, "640");
  EXPECT_TRUE(editor.applied());
  EXPECT_FALSE(editor.can_undo());
  editor.redo();
  editor.redo();
  EXPECT_EQ(editor.draft().file.requests.size(), 2u);
  editor.redo();
  editor.revert();
  EXPECT_TRUE(editor.applied());
  editor.undo();
  EXPECT_EQ(editor.draft().file.requests.size(), 2u);
}

TEST(ScenarioEditor, EditsOutliveOtherLanesAndCanBeBroughtBack) {
  ScenarioEditor editor;
  RunSetup setup = shipped("default");
  editor.load(setup);
  editor.change([](ScenarioDraft& d) { d.file.pool_blocks = "700"; });
  setup.references = References::kNone;  // chosen in the tool bar
  editor.load(setup);
  EXPECT_EQ(editor.draft().file.pool_blocks, "700");
  EXPECT_EQ(editor.draft().references, References::kNone);
  EXPECT_FALSE(editor.applied());
  editor.load(shipped("early"));
  EXPECT_EQ(editor.draft().file.name, "early");
  EXPECT_TRUE(editor.applied());
  editor.undo();
  EXPECT_EQ(editor.draft().file.pool_blocks, "700");
}

TEST(ScenarioEditor, SavingKeepsWhatIsApplied) {
  ScenarioEditor editor;
  editor.load(shipped("default"));
  ScenarioFile written = editor.draft().file;
  written.requests[0].text_file = "/elsewhere/manual.md";
  editor.mark_saved(written, "/tmp/x.json");
  EXPECT_TRUE(editor.saved());
  EXPECT_TRUE(editor.applied());
  EXPECT_EQ(editor.path(), "/tmp/x.json");
  editor.change([](ScenarioDraft& d) { d.lanes = {"ref.sim"}; });
  EXPECT_TRUE(editor.saved()) << "a file holds no lanes";
  EXPECT_FALSE(editor.applied());
}

// Edits of one file never reach another one, whichever way undo goes.
TEST_F(ScenarioFiles, UndoLeadsBackToTheOwnFile) {
  ASSERT_TRUE(write_text_file(path("a/mine.txt"), std::string(20, 'a')));
  ASSERT_TRUE(write_text_file(path("b/mine.txt"), std::string(30, 'b')));
  ScenarioFile file = draft_of(shipped("early")).file;
  file.requests.resize(1);
  file.requests[0].from_file = true;
  file.requests[0].text_file = "mine.txt";
  file.requests[0].offset = file.requests[0].tokens = "";
  RunSetup setup[2];
  for (int i = 0; i < 2; ++i) {
    const std::string at = path(i == 0 ? "a/s.json" : "b/s.json");
    file.name = i == 0 ? "of a" : "of b";
    ASSERT_TRUE(save_draft(file, at, at));
    setup[i].scenario = *load_scenario(at);
  }
  ScenarioEditor editor;
  editor.load(setup[0]);
  editor.change([](ScenarioDraft& d) { d.file.pool_blocks = "700"; });
  editor.load(setup[1]);
  EXPECT_EQ(editor.path(), path("b/s.json"));
  EXPECT_TRUE(editor.applied());
  editor.undo();
  EXPECT_EQ(editor.draft().file.name, "of a");
  EXPECT_EQ(editor.path(), path("a/s.json"));
  EXPECT_FALSE(editor.saved());
  EXPECT_FALSE(editor.applied()) << "the session runs b";
  const DraftCheck check = check_draft(editor.draft().file, editor.path());
  ASSERT_TRUE(check.scenario);
  EXPECT_EQ(check.scenario->requests[0].tokens.size(), 20u) << "the prompt beside a";
  editor.undo();
  EXPECT_TRUE(editor.saved()) << "as a stands in its file";
  editor.redo();
  editor.redo();
  EXPECT_EQ(editor.path(), path("b/s.json"));
  EXPECT_EQ(editor.draft().file.name, "of b");
  EXPECT_TRUE(editor.applied());
  // Reverting leads from a to what the session runs, and its file.
  editor.undo();
  editor.revert();
  EXPECT_EQ(editor.path(), path("b/s.json"));
  EXPECT_TRUE(editor.applied());
  EXPECT_TRUE(editor.saved());
}

TEST_F(ScenarioFiles, AfterSavingElsewhereTheOldFileIsLeftAlone) {
  allow_text_files_anywhere(true);  // its prompt stays where it was
  ASSERT_TRUE(write_text_file(path("a/mine.txt"), std::string(20, 'a')));
  ScenarioFile file = draft_of(shipped("early")).file;
  file.requests.resize(1);
  file.requests[0].from_file = true;
  file.requests[0].text_file = "mine.txt";
  file.requests[0].offset = file.requests[0].tokens = "";
  ASSERT_TRUE(save_draft(file, path("a/s.json"), path("a/s.json")));
  RunSetup setup;
  setup.scenario = *load_scenario(path("a/s.json"));
  ScenarioEditor editor;
  editor.load(setup);
  editor.change([](ScenarioDraft& d) { d.file.pool_blocks = "700"; });
  auto written = save_draft(editor.draft().file, editor.path(), path("b/t.json"));
  ASSERT_TRUE(written) << written.error().text();
  editor.mark_saved(std::move(*written), path("b/t.json"));
  editor.change([](ScenarioDraft& d) { d.file.pool_blocks = "800"; });
  setup.references = References::kNone;  // the session still runs the old file
  editor.load(setup);
  EXPECT_EQ(editor.path(), path("b/t.json"));
  EXPECT_EQ(editor.draft().file.pool_blocks, "800") << "what is not applied is kept";
  EXPECT_EQ(editor.draft().references, References::kNone);
  // Earlier states belong to the new file too, and find their prompts from there.
  editor.undo();
  EXPECT_EQ(editor.draft().file.pool_blocks, "700");
  EXPECT_TRUE(editor.saved());
  editor.undo();
  EXPECT_EQ(editor.path(), path("b/t.json"));
  EXPECT_FALSE(editor.saved());
  const DraftCheck check = check_draft(editor.draft().file, editor.path());
  ASSERT_TRUE(check.scenario) << check.errors.begin()->second;
  EXPECT_EQ(check.scenario->requests[0].tokens.size(), 20u);
  allow_text_files_anywhere(false);
}

// The loader's reading of a draft differs from what was typed: "0,2" is "0, 2", no name the file's.
TEST(ScenarioEditor, WhatWasAppliedIsKnownAgain) {
  ScenarioEditor editor;
  editor.load(shipped("default"));
  editor.change([](ScenarioDraft& d) {
    d.file.layers = "0,2";
    d.file.name = "";
  });
  DraftCheck check = check_draft(editor.draft().file, editor.path());
  ASSERT_TRUE(check.scenario) << check.errors.begin()->second;
  RunSetup setup = editor.setup(std::move(*check.scenario));
  editor.mark_applied(setup);
  EXPECT_TRUE(editor.applied());
  editor.change([](ScenarioDraft& d) { d.file.pool_blocks = "800"; });
  setup.references = References::kSim;
  editor.load(setup);
  EXPECT_EQ(editor.draft().file.pool_blocks, "800");
  EXPECT_EQ(editor.draft().file.layers, "0,2");
}

std::string sentence_of(const Scenario& scenario) {
  return scenario_sentence(scenario, scenario_needs(scenario));
}

TEST(ScenarioNeeds, SayWhatTheDefaultAsksFor) {
  const Scenario scenario = *load_scenario("default");
  const std::string text = sentence_of(scenario);
  const ScenarioNeeds needs = scenario_needs(scenario);
  EXPECT_EQ(needs.at_once, 3);
  EXPECT_EQ(needs.blocks, 546);
  EXPECT_EQ(text,
            "default: tiny, 4 layers (SWA, C4A, C128A, C4A), 3 requests, 2\u2009935 prompt tokens; "
            "the pool of 640 blocks holds all at once (546 needed).");
  EXPECT_NE(memory_sentence(scenario, needs).find("640 blocks"), std::string::npos);
}

TEST(ScenarioNeeds, RequestsWaitForThePoolInOrder) {
  Scenario scenario = *load_scenario("default");
  const ScenarioNeeds all = scenario_needs(scenario);
  scenario.pool_blocks = all.requests[0].blocks + all.requests[2].blocks + 1;
  // The third one would fit, but the second one is before it.
  EXPECT_EQ(scenario_needs(scenario).at_once, 1);
  EXPECT_NE(sentence_of(scenario).find("holds 1 at once, the others wait"), std::string::npos);
  scenario.pool_blocks = 640;
  scenario.limits.max_requests = 2;
  EXPECT_EQ(scenario_needs(scenario).at_once, 2);
  EXPECT_NE(sentence_of(scenario).find("at most 2 run at once"), std::string::npos);
  scenario.requests.resize(1);
  EXPECT_NE(sentence_of(scenario).find("1 request, "), std::string::npos);
  scenario.model = *preset("v4-flash");
  EXPECT_NE(sentence_of(scenario).find("43 layers (2 SWA, 21 C4A, 20 C128A)"), std::string::npos)
      << sentence_of(scenario);
}

TEST(ScenarioNeeds, ProfilesDiffer) {
  ModelConfig model = *preset("tiny");
  const auto vllm = profile_lines(model);
  ASSERT_TRUE(set_profile(model, "deepseek"));
  EXPECT_NE(profile_lines(model), vllm);
  EXPECT_EQ(profile_lines(*preset("tiny-v3")),
            std::vector<std::string>{"Nothing: this model has no switches."});
  ModelConfig selects = *preset("tiny-v3.2");
  ASSERT_TRUE(set_profile(selects, "vllm,index_scores=e4m3"));
  EXPECT_EQ(profile_lines(selects),
            std::vector<std::string>{"index scores: sums of e4m3 products"});
  ASSERT_TRUE(set_profile(model, "vllm,index_scores=bf16"));
  EXPECT_EQ(profile_lines(model).front(), "index scores: bf16 at every step");
  ModelConfig dense = *preset("tiny-llama");
  EXPECT_EQ(profile_lines(dense),
            std::vector<std::string>{"passes of attention: one over all rows"});
  dense.switches = *profile_switches("vllm,attention_form=cascade");
  EXPECT_EQ(profile_lines(dense),
            std::vector<std::string>{"passes of attention: a common prefix once for all, merged"});
}

}  // namespace scenario_edit_test
}  // namespace attnscope
