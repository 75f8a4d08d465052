// attnscope train: what is held out is never learnt, a training that was stopped or killed gives
// the bytes of one that was not, and what it leaves is a checkpoint that sessions run: engine and
// ref.exact give the logits that the trainer gives.
#include <algorithm>
#include <cmath>

#include "app/reports/train_lock.h"
#include "app/reports/train_run.h"
#include "app/wiring/trainer.h"
#include "engine/config/scenario.h"
#include "engine/family/preset_name.h"
#include "engine/io/trained_models.h"
#include "engine/session/verify/verifier.h"
#include "engine/trace/compare.h"
#include "tests/unit/app/cli_fixture.h"
#include "tests/unit/app/small_scenario.h"
#include "tests/unit/app/trace_session.h"

namespace attnscope {
namespace train_test {

namespace fs = std::filesystem;

TEST(TrainText, WhatIsHeldOutIsNotLearnt) {
  TrainText text = cut_train_text(std::string(90'001, 'l'));
  EXPECT_EQ(text.learnt_bytes() + text.held_bytes(), 90'001);
  ASSERT_EQ(text.held.size(), 2u);
  for (const TextRun& run : text.held) {
    for (std::int64_t i = run.begin; i < run.end; ++i)
      text.bytes[static_cast<std::size_t>(i)] = 'h';
  }
  for (std::int64_t step = 0; step < 300; ++step) {
    const auto batch = learnt_batch(text, 5, step, 2, 1024);
    ASSERT_EQ(batch.size(), 2050u);
    ASSERT_EQ(std::ranges::count(batch, 'l'), 2050) << step;
  }
  EXPECT_EQ(std::ranges::count(held_batch(text, 99, 1024), 'h'), 2 * 4 * 1025);
  EXPECT_EQ(held_batch(text, 3, 1024).size(), 3u * 1025);
  EXPECT_NE(learnt_batch(cut_train_text(read_train_text({}, 512)->bytes), 1, 0, 1, 512),
            learnt_batch(*read_train_text({}, 512), 2, 0, 1, 512));
}

// The last token of a prompt, which leaves some of its tokens or entries out: logits of the engine,
// of the free-running ref.exact and of the trainer. engine: how far the engine's may be, of the
// largest one.
void same_logits(Scenario scenario, std::int64_t prompt, double engine) {
  const auto text = read_train_text({}, 512);
  ASSERT_TRUE(text);
  std::vector<std::int32_t> tokens = held_batch(*text, 1, prompt);
  const auto trainer = make_trainer(scenario.model, 1, scenario.checkpoint, 1, nullptr);
  ASSERT_TRUE(trainer) << trainer.error().text();
  const auto logits = (*trainer)->logits({tokens, 1, prompt}, true);
  ASSERT_TRUE(logits);
  const std::vector<double> expected(logits->end() - 256, logits->end());
  tokens.pop_back();
  scenario.requests.resize(1);
  scenario.requests[0].tokens = tokens;
  scenario.requests[0].arrival_step = 0;
  scenario.limits.token_budget = 512;
  auto session = small_session(References::kBoth, scenario);
  ASSERT_NE(session, nullptr);
  bool compared = false;
  while (!compared) {
    const auto ok = session->op();
    ASSERT_TRUE(ok) << ok.error().text();
    OpParams params = session->last_params();
    if (!session->ran_any() || params.op() != AS_OP_LM_HEAD) continue;
    const OpParams* exact = session->verifier().free_params(true);
    ASSERT_NE(exact, nullptr);
    OpParams reference = *exact;
    const as_tensor own = params.tensor_named("y"), right = reference.tensor_named("y");
    double largest = 0, of_exact = 0, of_engine = 0;
    for (std::int64_t i = 0; i < 256; ++i) {
      const double value = expected[static_cast<std::size_t>(i)];
      largest = std::max(largest, std::abs(value));
      of_exact = std::max(of_exact, std::abs(element(right, 0, i) - value));
      of_engine = std::max(of_engine, std::abs(element(own, 0, i) - value));
    }
    EXPECT_GT(largest, 0.5);
    EXPECT_LT(of_exact, 1e-4 * largest);
    EXPECT_LT(of_engine, engine * largest);  // FP8 rows, bf16 between ops
    EXPECT_GT(of_engine, of_exact);
    compared = true;
  }
  for (const StepRecord& record : session->history()) {
    for (const TapResult& r : record.results) {
      EXPECT_NE(r.verdict, Verdict::kWrong) << as_op_find(r.op)->name << " " << r.tap;
    }
  }
}

// Trainings of three steps of 512 bytes.
class TrainTest : public CliTest {
 protected:
  TrainPlan plan(const std::string& folder, const char* what = "model",
                 const char* model = "tiny-v3.2") const {
    TrainPlan p = default_plan(what, *trainable_model(model));
    p.folder = path(folder);
    p.steps = 3;
    p.sparse_steps = 0;
    p.interval = 2;
    p.sequences = p.held = p.threads = 1;
    if (std::string(model) == "tiny-v3.2") p.length = 512;
    return p;
  }
  static std::unique_ptr<TrainRun> open(const TrainPlan& p, bool again = false) {
    auto run = TrainRun::open(p, again, nullptr);
    EXPECT_TRUE(run) << (run ? "" : run.error().text());
    return run ? std::move(*run) : nullptr;
  }
  static std::string refused(const TrainPlan& p) {
    auto run = TrainRun::open(p, false, nullptr);
    return run ? std::string() : run.error().text();
  }
  static void walk(TrainRun& run, std::int64_t to) {
    while (run.steps_made() < to) ASSERT_TRUE(run.step());
  }
  static void complete(const TrainPlan& p) {
    const auto run = open(p);
    walk(*run, run->steps_in_all());
    const auto ok = run->finish();
    ASSERT_TRUE(ok) << ok.error().text();
  }
  void expect_same(const std::string& a, const std::string& b) const {
    const std::string bytes = read(path(a));
    EXPECT_FALSE(bytes.empty()) << a;
    EXPECT_TRUE(bytes == read(path(b))) << a << " differs";
  }
};

TEST_F(TrainTest, StoppedAndKilledTrainingsGiveTheSameBytes) {
  complete(plan("whole"));
  {  // Ctrl-C behind the first step, kill -9 in the third
    const auto stopped = open(plan("cut"));
    walk(*stopped, 1);
    ASSERT_TRUE(stopped->save());
    const auto killed = open(plan("cut"));
    EXPECT_EQ(killed->steps_made(), 1);
    walk(*killed, 2);  // the end of an interval
  }
  const auto last = open(plan("cut"));
  EXPECT_EQ(last->steps_made(), 2);
  walk(*last, 3);
  ASSERT_TRUE(last->finish());
  for (const char* file :
       {"/model.state", "/model.csv", "/model/config.json",
        "/model/model-00001-of-00003.safetensors", "/model/model-00002-of-00003.safetensors",
        "/model/model-00003-of-00003.safetensors"}) {
    expect_same(std::string("whole") + file, std::string("cut") + file);
  }
  const std::string csv = read(path("whole/model.csv"));
  EXPECT_EQ(std::ranges::count(csv, '\n'), 1 + 2 * 2) << csv;  // two measures of two layers
  EXPECT_TRUE(open(plan("whole"))->finished());

  // Then the indexer, and a session of what came out.
  TrainPlan indexer = plan("whole", "indexer");
  indexer.steps = indexer.sparse_steps = 1;
  complete(indexer);
  setenv("XDG_DATA_HOME", folder_.c_str(), 1);
  fs::create_directories(path("attnscope/trained"));
  fs::rename(path("whole"), path("attnscope/trained/tiny-v3.2"));
  EXPECT_TRUE(is_preset_name("tiny-v3.2-trained"));
  ModelChoice choice;
  choice.model = "tiny-v3.2-trained";
  const auto scenario = load_scenario("tiny-v3.2", choice);
  unsetenv("XDG_DATA_HOME");
  ASSERT_TRUE(scenario) << scenario.error().text();
  EXPECT_EQ(scenario->model.name, "tiny-v3.2-trained");
  EXPECT_EQ(scenario->checkpoint, path("attnscope/trained/tiny-v3.2/indexer"));
  same_logits(*scenario, 200, 0.05);
}

// DeepSeek-V4, whose checkpoint has tensors in float32 too: of its synthetic weights, as a step of
// training takes long.
TEST_F(TrainTest, AModelOfEntriesBecomesACheckpointThatSessionsRun) {
  for (const char* what : {kTrainedModel, kTrainedIndexer}) {
    const auto run = open(plan("attnscope/trained/tiny", what, "tiny"));
    ASSERT_NE(run, nullptr);
    const auto ok = run->finish();
    ASSERT_TRUE(ok) << ok.error().text();
  }
  setenv("XDG_DATA_HOME", folder_.c_str(), 1);
  ModelChoice choice;
  choice.model = "tiny-trained";
  const auto scenario = load_scenario("early", choice);
  unsetenv("XDG_DATA_HOME");
  ASSERT_TRUE(scenario) << scenario.error().text();
  EXPECT_EQ(scenario->model.index_topk, 64);  // of the preset's 512
  const auto config = trainable_model("tiny");
  const auto synthetic = make_trainer(*config, 1, "", 1, nullptr);
  const auto read_back = make_trainer(*config, 1, scenario->checkpoint, 1, nullptr);
  ASSERT_TRUE(synthetic && read_back);
  const auto own = (*synthetic)->tensors(), other = (*read_back)->tensors();
  ASSERT_EQ(own.size(), other.size());
  for (std::size_t i = 0; i < own.size(); ++i) {
    EXPECT_EQ(own[i].name, other[i].name);
    EXPECT_TRUE(own[i].value == other[i].value) << own[i].name;
  }
  same_logits(*scenario, 400, 0.2);  // a random indexer has near ties in every layer
}

TEST_F(TrainTest, OneAtATimeInAFolder) {
  {
    const auto first = TrainLock::take(path("locked"));
    ASSERT_TRUE(first) << first.error().text();
    const auto second = TrainLock::take(path("locked"));
    ASSERT_FALSE(second);
    EXPECT_NE(second.error().text().find("another training is at work in it"), std::string::npos);
    EXPECT_TRUE(TrainLock::take(path("beside it")));
  }
  EXPECT_TRUE(TrainLock::take(path("locked")));
  write("file", "");
  const auto no_folder = TrainLock::take(path("file"));
  ASSERT_FALSE(no_folder);
  EXPECT_NE(no_folder.error().text().find("-o FOLDER"), std::string::npos);
}

TEST_F(TrainTest, SaysWhatIsWrong) {
  EXPECT_NE(refused(plan("none", "indexer")).find("attnscope train model tiny-v3.2"),
            std::string::npos);
  const auto first = open(plan("some"));
  walk(*first, 1);
  ASSERT_TRUE(first->save());
  TrainPlan other = plan("some");
  other.rate = 0.5;
  EXPECT_NE(refused(other).find("--restart"), std::string::npos);
  const std::string state = read(path("some/model.state"));
  write("some/model.state", state.substr(0, state.size() / 2));
  EXPECT_NE(refused(plan("some")).find("--restart"), std::string::npos);
  const auto again = open(plan("some"), true);
  EXPECT_EQ(again->steps_made(), 0);
  fs::create_directories(path("some/model"));
  write("some/model/config.json", "{}");
  EXPECT_NE(refused(plan("some")).find("is there already"), std::string::npos);
  TrainPlan small = plan("x");
  small.length = 256;  // no token sees enough
  EXPECT_NE(refused(small).find("--length 512"), std::string::npos);
  TrainPlan little = plan("x");
  little.text = {write("little.txt", "too little")};
  EXPECT_NE(refused(little).find("10 bytes of text"), std::string::npos);
  write("file", "");
  EXPECT_NE(refused(plan("file/below")).find("-o FOLDER"), std::string::npos);

  TrainPlan entries = plan("x", "model", "tiny");
  entries.length = 1024;  // 256 entries
  EXPECT_NE(refused(entries).find("--length 2048"), std::string::npos);

  EXPECT_EQ(run({"train", "model", "tiny-llama", "-o", path("y")}).code, AS_USAGE);
  const Outcome elsewhere =
      run({"train", "model", "tiny-v3.2", "--device", "xpu:3", "-o", path("y")});
  EXPECT_EQ(elsewhere.code, AS_NO_ENVIRONMENT) << elsewhere.err;
  EXPECT_NE(elsewhere.err.find("leave --device out"), std::string::npos) << elsewhere.err;
  EXPECT_FALSE(fs::exists(path("y"))) << "nothing was begun";
  EXPECT_EQ(run({"train", "model", "tiny-v3.2", "--device", "nowhere"}).code, AS_USAGE);
  EXPECT_EQ(run({"train", "model", "nothing", "-o", path("y")}).code, AS_BAD_INPUT);
  const Outcome none = run({"train", "report", path("y")});
  EXPECT_EQ(none.code, AS_BAD_INPUT);
  EXPECT_NE(none.err.find("holds no trained model"), std::string::npos) << none.err;
  setenv("XDG_DATA_HOME", folder_.c_str(), 1);
  const Outcome missing = run({"run", "tiny-v3.2", "--model", "tiny-v3.2-trained"});
  unsetenv("XDG_DATA_HOME");
  EXPECT_EQ(missing.code, AS_BAD_INPUT);
  EXPECT_NE(missing.err.find("attnscope train model tiny-v3.2, then attnscope train indexer"),
            std::string::npos)
      << missing.err;
}

}  // namespace train_test
}  // namespace attnscope
