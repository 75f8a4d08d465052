// Chunks of prefill whose length follows what is free of the pool.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "engine/decisions/decision_watch.h"
#include "engine/sched/explain.h"
#include "engine/sched/sched_invariants.h"
#include "engine/sched/workload_file.h"

namespace attnscope {
namespace adaptive_chunks_test {

// 40 blocks of 16 tokens.
SchedulerOptions options(AdaptiveChunks chunks) {
  SchedulerOptions o;
  o.kv.groups = {{GroupKind::kFull, 16, 0, false}};
  o.kv.num_blocks = 41;
  o.kv.max_model_len = 640;
  o.token_budget = 256;
  o.max_requests = 4;
  o.chunks = chunks;
  return o;
}

SchedRequest request(std::int64_t id, std::int64_t length) {
  SchedRequest r;
  r.id = id;
  r.stop.max_tokens = 8;
  for (std::int64_t t = 0; t < length; ++t) {
    r.tokens.push_back(static_cast<std::int32_t>(1000 * id + t));
  }
  return r;
}

TEST(AdaptiveChunks, FollowWhatIsFree) {
  BlockScheduler s = *BlockScheduler::make(options({16, 176}));
  ASSERT_TRUE(s.add(request(0, 500)));
  std::vector<std::int64_t> chunks, tokens;
  for (int step = 0; step < 5; ++step) {
    const StepPlan plan = s.schedule();
    EXPECT_FALSE(check_plan(s, plan));
    chunks.push_back(plan.chunk);
    tokens.push_back(plan.scheduled.at(0).tokens);
    if (step == 1) {
      EXPECT_EQ(chunk_text(s, plan),
                "at most 132 tokens of a prompt in this step, as 29 of 40 blocks are free: 16 + "
                "(176 - 16) x 29 / 40");
    }
    s.results(plan, std::vector<std::int32_t>(1, kNoToken));
  }
  // 16 + 160 * free / 40 of 40, 29, 20, 15 and 10 free blocks: 176 tokens take 11 blocks, 308 take
  // 20, 404 take 26, 480 take 30.
  EXPECT_EQ(chunks, (std::vector<std::int64_t>{176, 132, 96, 72, 56}));
  EXPECT_EQ(tokens, (std::vector<std::int64_t>{176, 132, 96, 72, 24}));
}

TEST(AdaptiveChunks, AreThoseOfThePlainModel) {
  for (const int number : {1, 4, 9, 15}) {
    Workload w = *load_workload("g" + std::to_string(number), CacheProfile::kA);
    w.options.chunks = {8, 96};
    std::shared_ptr<DecisionWatch> judge;
    WorkloadRun run;
    run.watch = [&](BlockScheduler& s) -> std::shared_ptr<SchedWatch> {
      return judge = std::make_shared<DecisionWatch>(s, output_token);
    };
    const Result<WorkloadResult> result = run_workload(w, run);
    ASSERT_TRUE(result) << result.error().text();
    ASSERT_FALSE(judge->wrong()) << "g" << number << ": " << judge->wrong()->note;
    EXPECT_LT(result->least_chunk, result->most_chunk) << number;
    EXPECT_GE(result->least_chunk, 8) << number;
    EXPECT_EQ(result->most_chunk, 96) << number;
  }
}

TEST(AdaptiveChunks, OfAnotherLengthAreNamed) {
  const SchedulerOptions is = *check_options(options({16, 176}));
  for (const AdaptiveChunks other : {AdaptiveChunks{8, 176}, AdaptiveChunks{16, 200}}) {
    BlockScheduler s = *BlockScheduler::make(is);
    DecisionJudge judge(*check_options(options(other)), false);
    SchedRequest r = request(0, 500);
    r.prompt_tokens = r.num_tokens();
    judge.model().add(plain_request(r));
    ASSERT_TRUE(s.add(r));
    for (int step = 0; step < 3 && !judge.wrong(); ++step) {
      const StepPlan plan = s.schedule();
      judge.planned(s, plan);
      s.results(plan, std::vector<std::int32_t>(1, kNoToken));
      judge.model().results({}, false);
    }
    ASSERT_TRUE(judge.wrong()) << other.least;
    EXPECT_EQ(judge.wrong()->decision, Decision::kTokens) << judge.wrong()->note;
  }
}

TEST(AdaptiveChunks, ALongerChunkBreaksAnInvariant) {
  BlockScheduler s = *BlockScheduler::make(options({16, 176}));
  ASSERT_TRUE(s.add(request(0, 500)));
  StepPlan plan = s.schedule();
  ASSERT_FALSE(check_plan(s, plan));
  StepPlan longer = plan;
  ++longer.scheduled[0].tokens;
  ASSERT_TRUE(check_plan(s, longer));
  EXPECT_NE(check_plan(s, longer)->what.find("chunks of this step have at most 176"),
            std::string::npos);
  plan.chunk = 177;
  EXPECT_TRUE(check_plan(s, plan));
}

TEST(AdaptiveChunks, WhatCannotBeIsRefused) {
  const auto refused = [](SchedulerOptions o) {
    const auto checked = check_options(std::move(o));
    return checked ? std::string() : checked.error().text();
  };
  EXPECT_EQ(refused(options({16, 16})), "");
  EXPECT_NE(refused(options({20, 16})).find("from 20 to 16"), std::string::npos);
  EXPECT_NE(refused(options({0, 16})).find("from 0 to 16"), std::string::npos);
  SchedulerOptions both = options({16, 32});
  both.prefill_threshold = 8;
  EXPECT_NE(refused(both).find("give one of them"), std::string::npos);
  SchedulerOptions whole = options({16, 32});
  whole.chunked_prefill = false;
  EXPECT_NE(refused(whole).find("computed whole"), std::string::npos);
}

}  // namespace adaptive_chunks_test
}  // namespace attnscope
