// Rows of a cache that change while no op writes to it: the cache is named, and neither the op that
// writes beside them nor the one that reads them.
#include <fmt/format.h>

#include <algorithm>

#include "engine/session/trace_recorder.h"
#include "kernels/layout/records.h"
#include "kernels/params/tensor_view.h"
#include "tests/blame/planted_around.h"

namespace attnscope {
namespace changed_rows_test {

// The row that call number 2 of a writer (layer 1, step 0) wrote for its last token that has a
// slot; a bit of it is another one behind step 1.
as_op_id writer;
int calls, ends;
as_row_address row;
std::int64_t slot;

void spoil(const OpParams& params) {
  if (params.op() == writer && ++calls == (writer == AS_OP_COMPRESS_INSERT ? 1 : 2)) {
    const bool window = writer == AS_OP_Q_ROPE_KV_INSERT;
    const as_tensor& slots = window ? params.get<as_q_rope_kv_insert_params>().slots
                                    : params.get<as_compress_insert_params>().slots;
    const as_cache& cache = window ? params.get<as_q_rope_kv_insert_params>().cache
                                   : params.get<as_compress_insert_params>().cache;
    for (std::int64_t t = 0; t < slots.shape[0]; ++t) {
      if (*at<std::int64_t>(slots, t) >= 0) slot = *at<std::int64_t>(slots, t);
    }
    row = as_cache_row(&cache, slot);
  }
  if (params.op() == AS_OP_SAMPLE && ++ends == 1) row.payload[9] ^= 4;
}

TEST(ChangedRows, AccuseTheCache) {
  static const BetweenOps kBetween = {.ran = spoil};
  for (const as_op_id op : {AS_OP_Q_ROPE_KV_INSERT, AS_OP_COMPRESS_INSERT}) {
    SCOPED_TRACE(as_op_find(op)->name);
    writer = op;
    calls = ends = 0;
    const PlantedRun run = run_with(tiny_scenario(7, 150), kBetween);
    expect_blamed(run, 2, 1, op, "cache.between",
                  {"step 2, layer 1, the cache that ", fmt::format("slot {} (block ", slot),
                   "of request 0 in step 0", "while no op wrote to this cache"});
    EXPECT_TRUE(run.summary.blamed[0].cache);
  }
}

// What is found when a step's last op has run, and before its first layer, is kept as well.
TEST(ChangedRows, WhatIsFoundAroundOpsIsRecorded) {
  static const BetweenOps kBetween = {
      .embedded = [](const as_tensor& h) { at<bf16_t>(h)->bits ^= 1; },
      .appending =
          [](const StepMetadata&, std::vector<std::int32_t>& sampled, std::vector<std::int32_t>&) {
            if (sampled[0] >= 0) sampled[0] ^= 1;
          }};
  auto session = session_with(tiny_scenario(7, 150), kBetween);
  TraceRecorder recorder;
  session->set_observer(&recorder);
  for (int i = 0; i < 2; ++i) ASSERT_TRUE(session->step());
  session->set_observer(nullptr);
  const auto summary = recorder.summary(1);
  ASSERT_TRUE(summary);
  const auto& results = session->history()[1].results;
  ASSERT_EQ(summary->results.size(), results.size());
  for (const char* tap : {"embedding.metadata", "tokens.appended"}) {
    EXPECT_NE(std::ranges::find(summary->results, tap, &TapResult::tap), summary->results.end())
        << tap;
  }
}

// Goldens run without references, beside the witness.
TEST(ChangedRows, AccuseTheCacheWhereNoReferenceRuns) {
  static const BetweenOps kBetween = {.ran = spoil};
  writer = AS_OP_Q_ROPE_KV_INSERT;
  calls = ends = 0;
  SessionOptions options;
  options.references = References::kNone;
  options.witness = true;
  options.lanes = {"cpu", kPlantedLane};
  auto session = Session::create(tiny_scenario(7, 150), lanes_with(kBetween), options);
  ASSERT_TRUE(session) << session.error().text();
  std::vector<TapResult> all;
  for (int step = 0; step < 3; ++step) {
    ASSERT_TRUE((*session)->step());
    const auto& results = (*session)->history().back().results;
    all.insert(all.end(), results.begin(), results.end());
  }
  const std::vector<Blame> blamed = blame(all);
  ASSERT_EQ(blamed.size(), 1u);
  EXPECT_EQ(blamed[0].op, AS_OP_Q_ROPE_KV_INSERT);
  EXPECT_EQ(blamed[0].first.tap, "cache.between");
  EXPECT_EQ(blamed[0].first.step, 2);
  EXPECT_GT((*session)->verifier().weights()->seconds(), 0);
}

}  // namespace changed_rows_test
}  // namespace attnscope
