// What is told of ranks that share requests: the time of their exchange, memory and messages by
// ranks, and the report of the scenario that ships.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "app/reports/chrome_trace.h"
#include "app/reports/report.h"
#include "app/reports/run.h"
#include "app/reports/storage_report.h"
#include "app/views/op_time_view.h"
#include "engine/config/scenario.h"
#include "engine/model/numbers.h"
#include "tests/blame/dense_session.h"

namespace attnscope {
namespace context_reports_test {

TEST(ContextReports, TheExchangeHasALaneOfItsOwnInTime) {
  Scenario scenario = dense_scenario(*preset("tiny-llama"));
  scenario.context = {2, 1};
  const auto session = session_of(scenario, References::kNone);
  ASSERT_TRUE(session->step());
  const StepRecord& record = session->history().back();
  std::int64_t exchanges = 0;
  for (std::size_t i = 0; i < record.timings.size(); ++i) {
    const OpTiming& t = record.timings[i];
    if (t.stream != OpTiming::kExchange) continue;
    ++exchanges;
    ASSERT_LT(i + 1, record.timings.size());
    const OpTiming& whole = record.timings[i + 1];  // it is part of it
    EXPECT_EQ(whole.op, t.op);
    EXPECT_EQ(whole.layer, t.layer);
    EXPECT_GE(t.start, whole.start - 1e-3);
    EXPECT_LE(t.start + t.microseconds, whole.start + whole.microseconds + 1e-3);
  }
  EXPECT_EQ(exchanges, session->parts().config.num_layers());

  StepSummary summary;
  summary.timings = record.timings;
  const ModelGraph& graph = *session->parts().graph;
  const OpTimeView view = op_time_view(summary, graph, session->parts().config.layers, {});
  ASSERT_EQ(view.rows.size(), 2u);
  EXPECT_EQ(view.rows[1].name, "exchange");
  EXPECT_EQ(view.rows[1].spans[0].label, "exchange of paged_attention");
  EXPECT_EQ(to_count(view.rows[1].spans.size()), exchanges);
  EXPECT_NE(view.sentence.find("between ranks"), std::string::npos) << view.sentence;
  double sum = 0;
  for (const TimeSpan& span : view.rows[0].spans) sum += span.microseconds;
  EXPECT_DOUBLE_EQ(view.sum, sum) << "the exchange is part of its op";
  const auto trace = chrome_trace({{0, record.tokens, &record.timings}}, graph, "ranks");
  ASSERT_TRUE(trace);
  EXPECT_NE(trace->find("exchange of paged_attention [0]"), std::string::npos);
}

TEST(ContextReports, TheLayoutTellsOfMemoryAndMessagesByRanks) {
  StorageQuestion question;
  question.bytes = std::int64_t{1} << 30;
  question.max_model_len = 1024;
  question.token_budget = 64;
  const ModelConfig model = *preset("tiny-llama");
  const auto report = storage_report(model, question);
  const auto& rows = report.at("context_parallel").at("ranks");
  ASSERT_EQ(rows.size(), 4u);
  EXPECT_TRUE(report.at("context_parallel").at("refused").is_null());
  int ranks = 1;
  for (const auto& row : rows) {
    EXPECT_EQ(row.at("ranks"), ranks);
    EXPECT_EQ(row.at("block_bytes").get<std::int64_t>() * ranks, report.at("block_stride_bytes"));
    EXPECT_EQ(row.at("request_bytes").get<std::int64_t>() * ranks, report.at("request_bytes"));
    ExchangeCount sum;
    for (const ExchangeCount& part :
         planned_exchange(ranks, model.heads, model.head_dim, model.head_dim, 64)) {
      sum += part;
    }
    EXPECT_EQ(row.at("chunk").at("messages"), sum.messages * model.num_layers());
    EXPECT_EQ(row.at("chunk").at("bytes"), sum.bytes * model.num_layers());
    ranks *= 2;
  }
  EXPECT_NE(storage_text(report).find("ranks that share each request"), std::string::npos);
  const auto refused = storage_report(*preset("tiny-alibi"), question);
  EXPECT_EQ(refused.at("context_parallel").at("ranks").size(), 1u);
  EXPECT_NE(storage_text(refused).find("ALiBi"), std::string::npos);
}

// Index keys and states are whole on every rank: a block grows by keys of more tokens, and a long
// request's bytes fall all the same.
TEST(ContextReports, TheLayoutTellsOfRanksOfDeepSeekV4) {
  StorageQuestion question;
  question.bytes = std::int64_t{16} << 30;
  question.max_model_len = 1 << 17;
  question.token_budget = 64;
  const ModelConfig model = *preset("tiny");
  const auto report = storage_report(model, question);
  const auto& rows = report.at("context_parallel").at("ranks");
  ASSERT_EQ(rows.size(), 4u);
  for (std::size_t i = 1; i < rows.size(); ++i) {
    EXPECT_LT(rows[i].at("request_bytes"), rows[i - 1].at("request_bytes"));
    EXPECT_GT(rows[i].at("block_bytes"), rows[i - 1].at("block_bytes"));
  }
  EXPECT_EQ(rows[0].at("block_bytes"), report.at("block_stride_bytes"));
  EXPECT_NE(storage_text(report).find(
                "whole on every rank: compressor states, index keys, indexer states"),
            std::string::npos)
      << storage_text(report);
  const ExchangeCounts layer = planned_exchange(8, model.heads, 512, 512, 1);
  EXPECT_EQ(rows[3].at("decode").at("bytes"),
            (layer[0].bytes + layer[1].bytes) * model.num_layers());
}

TEST(ContextReports, TheLayoutTellsOfRanksThatDivideHeads) {
  StorageQuestion question;
  question.bytes = std::int64_t{1} << 30;
  question.max_model_len = 1024;
  question.token_budget = 64;
  const ModelConfig model = *preset("tiny-llama");
  const auto report = storage_report(model, question);
  const auto& rows = report.at("tensor_parallel").at("ranks");
  ASSERT_EQ(rows.size(), 4u);
  int ranks = 1;
  for (const auto& row : rows) {
    EXPECT_EQ(row.at("ranks"), ranks);
    // From as many ranks on as there are KV heads, each has one, neighbours the same.
    EXPECT_EQ(row.at("block_bytes").get<std::int64_t>() * std::min(ranks, model.kv_heads),
              report.at("block_stride_bytes").get<std::int64_t>());
    ranks *= 2;
  }
  EXPECT_LT(rows.back().at("block_bytes"), rows.front().at("block_bytes"));
  EXPECT_EQ(storage_text(report).find("no row of a cache belongs to a head"), std::string::npos);

  question.parallel.size = 2;
  const auto one = storage_report(model, question);
  EXPECT_EQ(one.at("block_stride_bytes"), rows[1].at("block_bytes"));
  EXPECT_EQ(one.at("num_blocks"), rows[1].at("num_blocks"));
  EXPECT_EQ(one.at("tensor_parallel"), report.at("tensor_parallel"));
  EXPECT_EQ(one.at("model"), "tiny-llama, rank 0 of 2");
  // Its tokens dealt out over two more.
  EXPECT_EQ(one.at("context_parallel").at("ranks")[1].at("block_bytes").get<std::int64_t>() * 2,
            one.at("block_stride_bytes").get<std::int64_t>());
}

TEST(ContextReports, LatentRowsAreKeptByEveryRank) {
  StorageQuestion question;
  question.bytes = std::int64_t{1} << 30;
  question.max_model_len = 1024;
  question.token_budget = 64;
  const auto report = storage_report(*preset("tiny"), question);
  const auto& rows = report.at("tensor_parallel").at("ranks");
  ASSERT_GT(rows.size(), 1u);
  for (const auto& row : rows) EXPECT_EQ(row.at("block_bytes"), report.at("block_stride_bytes"));
  EXPECT_NE(storage_text(report).find("no row of a cache belongs to a head"), std::string::npos);

  ModelConfig scaled = *preset("tiny-llama");
  scaled.dense.cache_record = AS_RECORD_FP8_HEAD;
  const auto refused = storage_report(scaled, question);
  EXPECT_EQ(refused.at("tensor_parallel").at("ranks").size(), 1u);
  EXPECT_NE(storage_text(refused).find("a scale a KV head"), std::string::npos);
}

TEST(ContextReports, AModelWithoutCachesSaysSo) {
  StorageQuestion question;
  question.bytes = std::int64_t{1} << 30;
  question.max_model_len = 1024;
  question.token_budget = 64;
  const std::string text = storage_text(storage_report(*preset("tiny-bert"), question));
  EXPECT_NE(text.find("no layer keeps keys and values"), std::string::npos) << text;
  EXPECT_EQ(text.find("hold 0 blocks"), std::string::npos) << text;
  EXPECT_NE(text.find("values between ops"), std::string::npos) << text;
}

RunOptions beside_sim() {
  RunOptions options;
  options.session.threads = 2;
  options.session.references = References::kSim;
  return options;
}

// Chunks beside decodes, a preempted request, common prefixes, windows, sinks.
TEST(ContextReports, TheScenarioThatShipsHasNothingWrong) {
  if (all_lanes().find("ref.sim") == nullptr) GTEST_SKIP() << "skipped: no references";
  const auto scenario = load_scenario("context_ranks");
  ASSERT_TRUE(scenario) << scenario.error().text();
  EXPECT_EQ(scenario->context, (ContextSplit{4, 2}));
  const RunOptions options = beside_sim();
  const auto result = run_scenario(*scenario, all_lanes(), options, {});
  ASSERT_TRUE(result) << result.error().text();
  EXPECT_EQ(result->summary.verdict(), "ok") << result->summary.blamed.size();
  EXPECT_GT(result->serving.preemptions, 0);
  EXPECT_GT(result->serving.hit_tokens, 0);
  const auto report = make_report(*scenario, options, *result, "");
  EXPECT_EQ(report.at("context_parallel").at("ranks"), 4);
  ExchangeCount sum;
  for (const StepRecord& step : result->steps) sum += step.exchanged[1];
  EXPECT_GT(sum.messages, 0);
  EXPECT_EQ(report.at("context_parallel").at("parts").at("messages"), sum.messages);
  EXPECT_EQ(report.at("context_parallel").at("parts").at("bytes"), sum.bytes);
  EXPECT_NE(format_report(report, false).find("4 ranks share requests"), std::string::npos);
}

// Windows that move, selected entries and all of them, a hit of a block of entries.
TEST(ContextReports, TheScenarioOfDeepSeekV4HasNothingWrong) {
  if (all_lanes().find("ref.sim") == nullptr) GTEST_SKIP() << "skipped: no references";
  const auto scenario = load_scenario("context_lists");
  ASSERT_TRUE(scenario) << scenario.error().text();
  EXPECT_EQ(scenario->context, (ContextSplit{2, 1}));
  EXPECT_EQ(scenario->model.context_ranks, 2);
  const RunOptions options = beside_sim();
  const auto result = run_scenario(*scenario, all_lanes(), options, {});
  ASSERT_TRUE(result) << result.error().text();
  EXPECT_EQ(result->summary.verdict(), "ok") << result->summary.blamed.size();
  EXPECT_EQ(result->serving.hit_tokens, 512);
  EXPECT_EQ(make_report(*scenario, options, *result, "").at("context_parallel").at("ranks"), 2);
}

}  // namespace context_reports_test
}  // namespace attnscope
