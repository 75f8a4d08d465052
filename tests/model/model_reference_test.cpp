// Two references that share no code: the free-running ref.exact, which goes through ops, params and
// rows like the engine, against ref.model, which is the model in one file. Both are float64 without
// any rounding, so that they agree to 1e-9 however long the text is, and select the same entries.
#include "app/wiring/deepseek_v4/model_reference.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <map>

#include "app/wiring/wiring.h"
#include "engine/checkpoint/export_checkpoint.h"
#include "engine/family/model_weights.h"
#include "engine/family/models.h"
#include "engine/model/numbers.h"
#include "engine/session/session.h"
#include "kernels/params/tensor_view.h"
#include "tests/blame/stored_otherwise.h"
#include "tests/unit/app/small_scenario.h"

namespace attnscope {
namespace model_reference_test {

constexpr double kBound = 1e-9;  // of the largest value of a row

Result<reference::ModelOutput> one_step(reference::ModelReference& model, std::int64_t request,
                                        std::span<const std::int32_t> tokens) {
  const reference::ModelRows rows = {request, tokens};
  return model.step({&rows, 1});
}

// What the free-running ref.exact gave in the step that ran last.
class Seen : public SessionObserver {
 public:
  void op_done(const Session& session) override {
    const OpParams* params = session.verifier().free_params(true);
    if (params == nullptr) return;
    const auto layer = to_size(session.cursor().layer);
    switch (params->op()) {
      case AS_OP_INDEXER_TOPK: {
        const auto& p = params->get<as_indexer_topk_params>();
        const std::int64_t width = p.logits.shape[1];
        std::vector<std::vector<std::int64_t>> chosen;
        for (std::int64_t t = 0; t < p.indices.shape[0]; ++t) {
          auto& list = chosen.emplace_back();
          for (std::int64_t k = 0; k < p.indices.shape[1]; ++k) {
            const auto entry = at<std::int32_t>(p.indices, t)[k];
            if (entry >= 0) list.push_back(entry);
          }
          std::ranges::sort(list);
        }
        selected[layer] = std::move(chosen);
        const auto* data = at<double>(p.logits);
        scores[layer] = {width, {data, data + p.logits.shape[0] * width}};
        break;
      }
      case AS_OP_RESIDUAL:
        hidden[layer] = values(params->get<as_residual_params>().out);
        step = session.metadata();
        break;
      case AS_OP_LM_HEAD:
        logits = values(params->get<as_linear_params>().y);
        break;
      default:
        break;
    }
  }
  void step_done(const Session&) override {}
  void went_back(const Session&) override {}

  std::map<std::size_t, std::vector<double>> hidden;
  std::map<std::size_t, std::vector<std::vector<std::int64_t>>> selected;
  std::map<std::size_t, std::pair<std::int64_t, std::vector<double>>> scores;
  std::vector<double> logits;
  StepMetadata step;

 private:
  static std::vector<double> values(const as_tensor& t) {
    return {at<double>(t), at<double>(t) + as_tensor_numel(&t)};
  }
};

struct Agreement {
  double hidden = 0, scores = 0, logits = 0;  // largest difference, of the largest value of its row
  std::int64_t selections = 0, other_selections = 0;  // rows where something was left out
  std::int64_t compressed = 0;                        // largest number of entries of 128
  std::int64_t decoded = 0;
  double model_seconds = 0, wall_seconds = 0;
};

double off(const double* a, const double* b, std::int64_t n) {
  double difference = 0, largest = 0;
  for (std::int64_t i = 0; i < n; ++i) {
    difference = std::max(difference, std::fabs(a[i] - b[i]));
    largest = std::max(largest, std::fabs(b[i]));
  }
  return std::isfinite(difference) ? difference / std::max(largest, 1e-300) : kInfinity;
}

// Of the one request that ref.model was given.
void compare_layers(const Seen& seen, const reference::ModelOutput& model, std::int64_t first,
                    std::int64_t n, std::int64_t hidden, Agreement& found) {
  const std::int64_t first_position = seen.step.positions[to_size(first)];
  for (std::size_t layer = 0; layer < model.layers.size(); ++layer) {
    const auto& of = model.layers[layer];
    for (std::int64_t t = 0; t < n; ++t) {
      const double* row = seen.hidden.at(layer).data() + (first + t) * hidden;
      found.hidden = std::max(found.hidden, off(of.hidden.data() + t * hidden, row, hidden));
      if (of.choices.empty() || of.choices[0].entries == 0) continue;
      const reference::ModelChoice& choice = of.choices[0];
      const auto& [width, exact] = seen.scores.at(layer);
      const std::int64_t entries = choice.entries, visible = (first_position + t + 1) / 4;
      found.scores = std::max(found.scores, off(choice.scores.data() + t * entries,
                                                exact.data() + (first + t) * width, visible));
      if (!std::isfinite(choice.margin[to_size(t)])) continue;
      ++found.selections;
      std::vector<std::int64_t> chosen;
      for (std::int64_t c = 0; c < entries; ++c) {
        if (choice.selected[to_size(t * entries + c)]) chosen.push_back(c);
      }
      found.other_selections += chosen == seen.selected.at(layer)[to_size(first + t)] ? 0 : 1;
    }
  }
}

// Runs a scenario beside the references and gives ref.model the same tokens.
Agreement agreement(const Scenario& scenario, std::int64_t decode_steps) {
  Agreement found;
  SessionOptions options;
  options.threads = 2;
  auto session = Session::create(scenario, all_lanes(), options);
  auto model = model_reference(scenario, nullptr);
  EXPECT_TRUE(session) << session.error().text();
  EXPECT_TRUE(model) << model.error().text();
  if (!session || !model) return found;
  Seen seen;
  (*session)->set_observer(&seen);
  const std::int64_t hidden = scenario.model.hidden;
  const auto seconds = [] {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch())
        .count();
  };
  while (!(*session)->finished() && found.decoded < decode_steps) {
    const bool decoding = (*session)->decoding();
    const double begun = seconds();
    const auto ok = (*session)->step();
    EXPECT_TRUE(ok) << ok.error().text();
    if (!ok) return found;
    const StepMetadata& step = seen.step;
    const double ran = seconds();
    std::size_t sample = 0;
    for (std::size_t r = 0; r < step.live.size(); ++r) {
      const std::int64_t first = step.query_start_loc[r], end = step.query_start_loc[r + 1];
      if (first == end) continue;
      EXPECT_EQ((*model)->length(step.live[r]), step.positions[to_size(first)]);
      const auto out =
          one_step(**model, step.live[r],
                   std::span(step.tokens).subspan(to_size(first), to_size(end - first)));
      EXPECT_TRUE(out) << out.error().text();
      if (!out) return found;
      compare_layers(seen, *out, first, end - first, hidden, found);
      while (sample < step.sample_rows.size() && step.sample_rows[sample] < end) {
        const std::int64_t row = step.sample_rows[sample] - first;
        found.logits = std::max(
            found.logits,
            off(out->logits.data() + row * reference::kModelTokens,
                seen.logits.data() + static_cast<std::int64_t>(sample) * reference::kModelTokens,
                reference::kModelTokens));
        const double* logits = out->logits.data() + row * reference::kModelTokens;
        EXPECT_EQ(out->next[to_size(row)],
                  std::max_element(logits, logits + reference::kModelTokens) - logits);
        ++sample;
      }
      found.compressed = std::max(found.compressed, (*model)->length(step.live[r]) / 128);
    }
    EXPECT_EQ(sample, step.sample_rows.size());
    found.model_seconds += seconds() - ran;
    found.wall_seconds += ran - begun;
    found.decoded += decoding ? 1 : 0;
  }
  fmt::print(
      "hidden {:.2g}, scores {:.2g}, logits {:.2g}; {} selections; {:.2f} s of ref.model beside "
      "{:.2f} s\n",
      found.hidden, found.scores, found.logits, found.selections, found.model_seconds,
      found.wall_seconds);
  EXPECT_LT(found.hidden, kBound);
  EXPECT_LT(found.scores, kBound);
  EXPECT_LT(found.logits, kBound);
  EXPECT_EQ(found.other_selections, 0);
  return found;
}

ScenarioRequest request(const std::string& name, std::int64_t length, std::int64_t new_tokens) {
  ScenarioRequest r;
  r.name = name;
  for (std::int64_t i = 0; i < length; ++i) {
    r.tokens.push_back(static_cast<std::int32_t>((i * i * 7 + i * 13 + length) % 251));
  }
  r.max_new_tokens = new_tokens;
  return r;
}

Scenario scenario_of(ModelConfig model, std::vector<ScenarioRequest> requests,
                     std::int64_t budget = 512) {
  Scenario s;
  s.name = "witness";
  s.model = std::move(model);
  s.seed = 7;
  s.pool_blocks = 640;
  s.limits = {budget, 8};
  s.requests = std::move(requests);
  return s;
}

// More entries than are selected, several of 128 tokens, and steps of one token behind them.
void expect_agreement_over(ModelConfig model, std::int64_t length, std::int64_t index_topk,
                           std::int64_t decodes) {
  model.index_topk = index_topk;
  const auto found = agreement(
      scenario_of(model, {request("long", length, decodes + 2), request("short", 9, decodes + 2)}),
      decodes);
  EXPECT_GT(found.selections, 2 * 140);
  EXPECT_GE(found.compressed, length / 128);
  EXPECT_EQ(found.decoded, decodes);
}
TEST(ModelReference, IsTheFreeRunningExactReferenceOverLongTexts) {
  expect_agreement_over(narrow_model(), 660, 128, 4);
}
TEST(ModelReferenceSoak, IsTheFreeRunningExactReferenceOverLongTexts) {
  expect_agreement_over(*preset("tiny"), 2200, 512, 10);
}

// Real widths: weights too large to be kept in float64, 64 heads, 64 index heads.
TEST(ModelReferenceSoak, IsTheFreeRunningExactReferenceAtPublishedDimensions) {
  const auto found =
      agreement(scenario_of(*preset("v4-flash", {0, 2, 3, 4}), {request("short", 131, 3)}), 2);
  EXPECT_EQ(found.compressed, 1);
  EXPECT_EQ(found.decoded, 2);
}

// Whatever changes a value changes it on both sides; what only rounds changes neither.
TEST(ModelReference, FollowsSwitchesOfValuesAndRanks) {
  const auto run = [](const char* switches, double sink_shift, int ranks) {
    SCOPED_TRACE(switches);
    ModelConfig model = narrow_model();
    model.switches = *profile_switches(switches);
    model.sink_shift = sink_shift;
    model.index_topk = 16;  // so that short texts leave entries out
    Scenario scenario = scenario_of(model, {request("a", 150, 2), request("b", 20, 2)}, 64);
    if (ranks > 1) scenario.parallel = {ranks, 1};
    EXPECT_GT(agreement(scenario, 1).selections, 100);
  };
  run("deepseek", 0, 1);
  run("vllm,ratio0_yarn=on,hadamard=on", 0.3, 1);
  run("vllm,projections=fp8", -1, 1);
  run("vllm,projections=fp8_but_wo_a", 0, 1);
  run("vllm", 0, 2);
  run("vllm,rope_frequencies=fp64", 0, 1);
}

// A checkpoint is read by each of the two on its own.
TEST(ModelReference, ReadsCheckpointsInBf16AndFp8) {
  const std::string folder = ::testing::TempDir() + "attnscope_model_reference";
  for (const ExportDtype dtype : {ExportDtype::kBf16, ExportDtype::kFp8}) {
    std::filesystem::remove_all(folder);
    Scenario scenario = scenario_of(narrow_model(), {request("a", 150, 3)}, 64);
    const Weights weights = synthetic_weights(scenario.model, 5, nullptr);
    const auto written = export_checkpoint(weights, scenario.model, folder, dtype, nullptr);
    ASSERT_TRUE(written) << written.error().text();
    scenario.checkpoint = folder;
    EXPECT_EQ(agreement(scenario, 2).decoded, 2);
  }
  std::filesystem::remove_all(folder);
}

TEST(ModelReference, RoundsFloat64AndFloat16Once) {
  const std::string folder = ::testing::TempDir() + "attnscope_model_reference_floats";
  for (const ElementType type : {ElementType::kF64, ElementType::kF16}) {
    std::filesystem::remove_all(folder);
    Scenario scenario = scenario_of(narrow_model(), {request("a", 150, 3)}, 64);
    const Weights weights = synthetic_weights(scenario.model, 5, nullptr);
    const auto written =
        export_checkpoint(weights, scenario.model, folder, ExportDtype::kBf16, nullptr);
    ASSERT_TRUE(written) << written.error().text();
    store_otherwise(folder, type);
    scenario.checkpoint = folder;
    EXPECT_EQ(agreement(scenario, 2).decoded, 2);
  }
  std::filesystem::remove_all(folder);
}

TEST(ModelReference, NamesATensorThatIsMissing) {
  const auto none = [](const std::string&) { return static_cast<const TensorEntry*>(nullptr); };
  const auto model = reference::ModelReference::make({}, none);
  ASSERT_FALSE(model);
  EXPECT_EQ(model.error().code, AS_BAD_INPUT);
  EXPECT_NE(model.error().message.find("embed.weight"), std::string::npos);
}

TEST(ModelReference, GoesOnBehindACutAsIfNothingHadBeenThere) {
  Scenario scenario = scenario_of(*preset("tiny"), {});
  scenario.model.index_topk = 16;
  auto model = model_reference(scenario, nullptr);
  ASSERT_TRUE(model) << model.error().text();
  const std::vector<std::int32_t> text = request("", 300, 0).tokens;
  const auto whole = one_step(**model, 0, text);
  ASSERT_TRUE(whole) << whole.error().text();
  EXPECT_EQ((*model)->length(0), 300);
  const std::int64_t hidden = scenario.model.hidden;
  std::int64_t rows = 0;
  const auto hold = [&](std::int64_t first, std::int64_t n) {
    const auto part = one_step(**model, 1, std::span(text).subspan(to_size(first), to_size(n)));
    ASSERT_TRUE(part) << part.error().text();
    for (std::size_t i = 0; i < part->layers.size(); ++i) {
      for (std::int64_t t = 0; t < n; ++t, ++rows) {
        EXPECT_LT(off(part->layers[i].hidden.data() + t * hidden,
                      whole->layers[i].hidden.data() + (first + t) * hidden, hidden),
                  1e-11);
      }
    }
  };
  hold(0, 137);
  hold(137, 1);
  const std::vector<std::int32_t> other(80, 7);
  for (const std::int64_t kept : {138, 131, 128, 127, 3, 0}) {
    ASSERT_TRUE(one_step(**model, 1, other));
    (*model)->cut(1, kept);
    EXPECT_EQ((*model)->length(1), kept);
    hold(kept, 140 - kept);
  }
  hold(140, 160);
  EXPECT_GT(rows, 4 * 300);
  // A token that does not exist leaves nothing behind.
  const std::vector<std::int32_t> bad = {1, 2, reference::kModelTokens};
  EXPECT_FALSE(one_step(**model, 1, bad));
  EXPECT_EQ((*model)->length(1), 300);
  (*model)->cut(1, 290);
  hold(290, 10);
}

TEST(ModelReference, BeginsAnewWhereACutGoesFurtherBackThanItKeepsRows) {
  const Scenario scenario = scenario_of(*preset("tiny"), {});
  auto model = model_reference(scenario, nullptr);
  ASSERT_TRUE(model) << model.error().text();
  const std::vector<std::int32_t> text = request("", 900, 0).tokens;
  const auto whole = one_step(**model, 0, text);
  ASSERT_TRUE(whole) << whole.error().text();
  (*model)->cut(0, 890);
  EXPECT_EQ((*model)->length(0), 890);
  (*model)->cut(0, 300);
  EXPECT_EQ((*model)->length(0), 0) << "what token 300 reads is gone";
  const auto begun = one_step(**model, 0, std::span(text).first(700));
  ASSERT_TRUE(begun) << begun.error().text();
  (*model)->cut(0, 0);
  EXPECT_EQ((*model)->length(0), 0);
  const auto again = one_step(**model, 0, std::span(text).first(301));
  ASSERT_TRUE(again) << again.error().text();
  const std::int64_t hidden = scenario.model.hidden;
  for (std::size_t i = 0; i < again->layers.size(); ++i) {
    EXPECT_LT(off(again->layers[i].hidden.data() + 300 * hidden,
                  whole->layers[i].hidden.data() + 300 * hidden, hidden),
              1e-11);
  }
}

}  // namespace model_reference_test
}  // namespace attnscope
