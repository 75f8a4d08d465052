// A model that drafts by a layer of its own: what it drafts is verified in the next step, and the
// outcome is that of the same model without the layer.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>

#include "app/wiring/wiring.h"
#include "engine/checkpoint/export_checkpoint.h"
#include "engine/family/model_weights.h"
#include "engine/family/models.h"
#include "engine/io/json_file.h"
#include "engine/session/persist/session_file.h"
#include "engine/session/place.h"
#include "engine/session/session.h"
#include "engine/session/step/between_ops.h"
#include "engine/session/verify/input_checks.h"
#include "engine/tensorfile/tensor_file.h"
#include "kernels/cpu/codec.h"
#include "tests/unit/app/host_device.h"
#include "tests/unit/app/small_scenario.h"
#include "tests/unit/app/trace_session.h"

namespace attnscope {
namespace mtp_test {

namespace fs = std::filesystem;

Scenario drafting(Scenario scenario) {
  EXPECT_TRUE(add_draft_layer(scenario.model));
  scenario.serving.drafts.tokens = 1;
  scenario.serving.drafts.by_model = true;
  return scenario;
}

std::unique_ptr<Session> make(const Scenario& scenario, References references = References::kNone,
                              const LaneRegistry& registry = all_lanes(),
                              std::vector<std::string> lanes = {"cpu"}, bool witness = true) {
  SessionOptions options;
  options.references = references;
  options.lanes = std::move(lanes);
  options.threads = 2;
  options.rewind_every = 3;
  options.invariants = Invariants::kCall;
  LaneRegistry own = registry;
  if (!witness) own.set_witness({});
  auto session = Session::create(scenario, own, options);
  EXPECT_TRUE(session) << session.error().text();
  return std::move(*session);
}

void expect_nothing_wrong(const Session& session) {
  for (const StepRecord& step : session.history()) {
    for (const TapResult& r : step.results) {
      EXPECT_NE(r.verdict, Verdict::kWrong)
          << r.step << " layer " << r.layer << " " << as_op_find(r.op)->name << "." << r.tap << ": "
          << r.note;
    }
  }
}

// A model whose every layer passes its input on and whose draft layer says what it is told: it
// repeats the last token, and so do its drafts.
void make_parrot(Weights& weights) {
  const auto zero = [](Weight& w) {
    std::memset(w.bf16.data(), 0, static_cast<std::size_t>(w.bf16.size()) * sizeof(bf16_t));
  };
  for (WeightList& layer : weights.layers) zero(layer["wo_b"]);
  WeightList& draft = weights.layers.back();
  zero(draft["draft.h_proj"]);
  zero(draft["draft.e_proj"]);
  const std::int64_t n = draft["draft.e_proj"].bf16.shape()[0];
  for (std::int64_t i = 0; i < n; ++i) {
    draft["draft.e_proj"].bf16.data()[i * n + i] = {cpu::float_to_bf16(1)};
  }
}

// The next tokens of a step, each one place late.
void late(StepMetadata& step) {
  auto& next = std::ranges::find(step.own, StepTensor::Kind::kNext, &StepTensor::kind)->numbers;
  if (next.size() > 1) std::rotate(next.begin(), next.end() - 1, next.end());
}

LaneRegistry with(const BetweenOps& between) {
  LaneRegistry registry = all_lanes();
  Lane lane{};
  lane.name = "given";
  lane.description = "The engine's own, with something between two ops.";
  lane.ops[AS_OP_SCHEDULE] = host_schedule;
  registry.add(lane, &between);
  return registry;
}

TEST(Mtp, TheOutcomeIsThatOfTheModelWithoutDrafts) {
  for (const auto& [longest, tokens] : {std::pair{120, 22}, {300, 9}}) {
    const Scenario plain_scenario = small_scenario(longest, tokens);
    auto plain = make(plain_scenario);
    auto drafted = make(drafting(plain_scenario));
    ASSERT_NO_FATAL_FAILURE(finish(*plain));
    ASSERT_NO_FATAL_FAILURE(finish(*drafted));
    for (std::size_t i = 0; i < plain->serving().requests().size(); ++i) {
      EXPECT_EQ(plain->serving().requests()[i].tokens, drafted->serving().requests()[i].tokens);
    }
    EXPECT_GT(drafted->serving().totals().drafted, 3 * (tokens - 3));
    EXPECT_EQ(drafted->serving().num_free(), drafted->serving().num_blocks() - 1);
  }
}

TEST(Mtp, WhatIsDraftedIsWhatTheNextStepVerifies) {
  auto session = make(drafting(small_scenario(70, 12)));
  std::map<std::int32_t, std::int32_t> proposed;
  std::int64_t verified = 0;
  while (!session->finished()) {
    ASSERT_TRUE(session->step());
    const StepRecord& record = session->history().back();
    for (std::size_t r = 0; r < record.live.size(); ++r) {
      const auto& drafts = session->serving().drafts()[r];
      if (!drafts.empty()) {
        ASSERT_EQ(drafts, std::vector{proposed.at(record.live[r])});
        ++verified;
      }
      proposed[record.live[r]] = record.proposed[r];
      EXPECT_EQ(record.proposed[r] >= 0, record.sampled[r] >= 0);
    }
  }
  EXPECT_GT(verified, 20);
}

TEST(Mtp, DraftsThatHoldSaveSteps) {
  static const BetweenOps kParrot = {.loaded = make_parrot};
  const Scenario scenario = drafting(small_scenario(40, 20));
  auto session = make(scenario, References::kNone, with(kParrot), {"cpu", "schedule=given"});
  ASSERT_NO_FATAL_FAILURE(finish(*session));
  const ServingTotals totals = session->serving().totals();
  EXPECT_GT(totals.drafted, 20);
  EXPECT_EQ(totals.accepted, totals.drafted);
  for (const Request& request : session->serving().requests()) {
    ASSERT_EQ(request.num_tokens(), request.max_len());
    for (std::int64_t i = request.prompt_tokens; i < request.num_tokens(); ++i) {
      EXPECT_EQ(request.tokens[static_cast<std::size_t>(i)],
                request.tokens[static_cast<std::size_t>(request.prompt_tokens - 1)]);
    }
  }
  auto plain = make(small_scenario(40, 20));
  ASSERT_NO_FATAL_FAILURE(finish(*plain));
  EXPECT_LT(session->history().size() + 7, plain->history().size());
}

TEST(Mtp, EveryTapIsRightBesideAllReferences) {
  if (all_lanes().find("ref.sim") == nullptr) GTEST_SKIP() << "skipped: no references";
  static const BetweenOps kParrot = {.loaded = make_parrot};
  for (const bool parrot : {false, true}) {
    // The parrot's weights are others than ref.model knows.
    auto session =
        make(drafting(small_scenario(100, 8)), parrot ? References::kSim : References::kBoth,
             with(kParrot), {"cpu", parrot ? "schedule=given" : "schedule=cpu"}, !parrot);
    ASSERT_NO_FATAL_FAILURE(finish(*session));
    expect_nothing_wrong(*session);
    std::set<as_op_id> drafting_ops;
    for (const TapResult& r : session->history().back().results) {
      if (r.layer == session->parts().config.layers.back()) drafting_ops.insert(r.op);
    }
    for (const as_op_id op : {AS_OP_DRAFT_NORM, AS_OP_DRAFT_H_PROJ, AS_OP_DRAFT_E_PROJ,
                              AS_OP_DRAFT_SUM, AS_OP_SPARSE_ATTENTION, AS_OP_SAMPLE}) {
      EXPECT_TRUE(drafting_ops.contains(op)) << as_op_find(op)->name;
    }
    EXPECT_EQ(session->witnessed().rows > 500, !parrot);
  }
}

TEST(Mtp, TokensBehindThatAreOthersAreNamed) {
  if (all_lanes().find("ref.sim") == nullptr) GTEST_SKIP() << "skipped: no references";
  static const BetweenOps kLate = {.followed = late};
  auto session = make(drafting(small_scenario(60, 4)), References::kSim, with(kLate),
                      {"cpu", "schedule=given"});
  ASSERT_TRUE(session->step());
  const auto blamed = blame(session->history().back().results);
  ASSERT_EQ(blamed.size(), 1u);
  EXPECT_EQ(blamed[0].first.tap, "next_tokens.metadata") << blamed[0].sentence();
  EXPECT_TRUE(blamed[0].first.note.starts_with("token 0 (request 0, position 0)"))
      << blamed[0].first.note;
}

TEST(Mtp, ADraftThatTheModelDidNotMakeIsNamed) {
  static const auto kOther = [](StepMetadata& step) {
    for (std::size_t t = 1; t < step.tokens.size(); ++t) {
      // The second row of a verification.
      if (step.token_to_req[t] == step.token_to_req[t - 1] && step.tokens.size() < 8) {
        step.tokens[t] ^= 1;
      }
    }
  };
  static const BetweenOps kBetween = {.planned = kOther};
  auto session = make(drafting(small_scenario(20, 9)), References::kNone, with(kBetween),
                      {"cpu", "schedule=given"});
  std::string note;
  session->set_observer(nullptr);
  while (!session->finished() && note.empty()) {
    // Op by op, so that somebody has seen what was drafted.
    ASSERT_TRUE(session->op());
    for (const TapResult& r : session->current_results()) {
      if (r.tap == "tokens.appended" && note.empty()) note = r.note;
    }
  }
  EXPECT_NE(note.find("where the model drafted"), std::string::npos) << note;
}

TEST(Mtp, ItsGroupAloneIsFlagged) {
  const ModelConfig model = drafting(small_scenario()).model;
  const CacheLayout layout = build_cache_layout(model);
  std::int64_t flagged = 0;
  for (const CacheGroup& group : layout.groups) {
    bool drafts = false;
    for (const int s : group.specs) {
      drafts = drafts || model.is_draft(layout.specs[static_cast<std::size_t>(s)].layer);
    }
    EXPECT_EQ(group.flagged, drafts) << group.name;
    flagged += group.flagged ? 1 : 0;
  }
  EXPECT_EQ(flagged, 1);
  EXPECT_STREQ(layer_type_name(model, model.main_layers()), "MTP");
  EXPECT_FALSE(layer_selects(model, model.main_layers()));
  const as_rope rope = layer_rope(model, model.main_layers());
  EXPECT_EQ(rope.base, 10000);
  EXPECT_EQ(rope.factor, 1);
}

// Requests that begin alike: hits of a group that is not flagged take over a row that was made of
// another token behind it.
TEST(Mtp, AHitOfAGroupThatIsNotFlaggedIsNamed) {
  Scenario scenario = drafting(small_scenario());
  scenario.limits = {600, 4};
  scenario.serving.kv.switches.mask = RetentionMask::kTailDraftShift;
  const CacheLayout layout = build_cache_layout(scenario.model);
  for (const bool flagged : {true, false}) {
    SchedulerOptions options = serving_options(scenario, layout);
    if (!flagged) {
      for (GroupSpec& group : options.kv.groups) group.flagged = false;
    }
    std::vector<Request> requests(2);
    for (int r = 0; r < 2; ++r) {
      Request& request = requests[static_cast<std::size_t>(r)];
      request.tokens.assign(520, 7);
      request.tokens[512] = r;
      request.max_new_tokens = 3;
      request.arrival_step = r;
    }
    auto serving = Serving::make(options, requests);
    ASSERT_TRUE(serving) << serving.error().text();
    std::optional<TapResult> wrong;
    for (int step = 0; step < 2; ++step) {
      serving->begin_step(step);
      serving->schedule();
      wrong = check_drafted_hits(scenario.model, layout, *serving);
      if (step == 0) {
        EXPECT_FALSE(wrong);
        serving->finish_step(std::vector<std::int32_t>{5});
      }
    }
    EXPECT_EQ(serving->requests()[1].hit_tokens, flagged ? 256 : 512);
    ASSERT_EQ(wrong.has_value(), !flagged);
    if (wrong) {
      EXPECT_NE(wrong->note.find("request 1 takes over 512 tokens"), std::string::npos)
          << wrong->note;
    }
  }
}

TEST(Mtp, GoingBackAndKeptSessionsGoOnTheSameWay) {
  const Scenario scenario = drafting(small_scenario(70, 12));
  auto session = make(scenario);
  const std::string path =
      (fs::temp_directory_path() / ("attnscope-mtp-" + std::to_string(getpid()))).string();
  std::vector<std::uint64_t> digests;
  while (!session->finished()) {
    digests.push_back(session->digest());
    if (digests.size() == 7) {
      ASSERT_TRUE(save_session(*session, path, "key"));
    }
    ASSERT_TRUE(session->step());
  }
  digests.push_back(session->digest());
  for (const std::size_t to : {std::size_t{6}, std::size_t{2}, digests.size() - 1}) {
    ASSERT_TRUE(session->seek({static_cast<std::int64_t>(to), -1, 0, false}));
    EXPECT_EQ(session->digest(), digests[to]) << to;
  }
  auto kept = make(scenario);
  const auto loaded = load_session(*kept, path, "key");
  fs::remove(path);
  ASSERT_TRUE(loaded) << loaded.error().text();
  EXPECT_EQ(kept->digest(), digests[6]);
  ASSERT_NO_FATAL_FAILURE(finish(*kept));
  EXPECT_EQ(kept->digest(), digests.back());
}

// Op by op over a step that samples nothing and over one that does, and back again the same way.
TEST(Mtp, OpsGoForwardAndBackThroughTheLayer) {
  auto session = make(drafting(small_scenario(80, 3)));
  std::vector<Cursor> cursors = {session->cursor()};
  const int draft = session->parts().graph->draft_layer;
  while (session->cursor().step < 3) {
    ASSERT_TRUE(session->op());
    cursors.push_back(session->cursor());
  }
  std::set<std::int64_t> with_head;
  for (const Cursor& c : cursors) {
    if (c.layer == draft) {
      EXPECT_TRUE(c.after_layers);
    }
    if (c.layer < 0 && c.after_layers) with_head.insert(c.step);
  }
  EXPECT_EQ(with_head, (std::set<std::int64_t>{1, 2}));  // step 0 ends inside the first prompt
  for (std::size_t i = cursors.size() - 1; i > 0; --i) {
    ASSERT_TRUE(session->op_back());
    ASSERT_EQ(session->cursor(), cursors[i - 1]) << i;
  }
  const int published = session->parts().config.layers.back();
  ASSERT_TRUE(go_to(*session, {1, published, AS_OP_DRAFT_SUM}));
  EXPECT_EQ(session->last_params().op(), AS_OP_DRAFT_SUM);
  const auto nowhere = go_to(*session, {0, published, AS_OP_SAMPLE});
  EXPECT_FALSE(nowhere);
}

TEST(Mtp, ADeviceComputesTheSame) {
  const Scenario scenario = drafting(small_scenario(60, 10));
  const auto on = [&](const char* lane, std::shared_ptr<HostDevice> device) {
    SessionOptions options;
    options.references = References::kNone;
    options.lanes = {lane};
    options.threads = 2;
    options.device = std::move(device);
    auto session = Session::create(scenario, host_device::lanes(), options);
    EXPECT_TRUE(session) << session.error().text();
    return std::move(*session);
  };
  auto cpu = on("cpu", nullptr), gpu = on("cuda", std::make_shared<HostDevice>());
  while (!cpu->finished()) {
    ASSERT_TRUE(cpu->step());
    ASSERT_TRUE(gpu->step());
    ASSERT_EQ(cpu->history().back().proposed, gpu->history().back().proposed);
    ASSERT_EQ(cpu->digest(), gpu->digest()) << cpu->cursor().step;
  }
  EXPECT_GT(cpu->serving().totals().drafted, 10);
}

TEST(Mtp, ItsWeightsGoToACheckpointAndBack) {
  Scenario scenario = drafting(small_scenario(50, 6));
  const fs::path folder =
      fs::temp_directory_path() / ("attnscope-mtp-weights-" + std::to_string(getpid()));
  const Weights weights = synthetic_weights(scenario.model, scenario.seed, nullptr);
  for (const ExportDtype dtype : {ExportDtype::kBf16, ExportDtype::kFp8}) {
    fs::remove_all(folder);
    const auto totals = export_checkpoint(weights, scenario.model, folder.string(), dtype, nullptr);
    ASSERT_TRUE(totals) << totals.error().text();
    const auto index =
        nlohmann::json::parse(*read_text_file((folder / "model.safetensors.index.json").string()));
    for (const char* name : {"mtp.0.enorm.weight", "mtp.0.hnorm.weight", "mtp.0.e_proj.weight",
                             "mtp.0.h_proj.weight", "mtp.0.norm.weight", "mtp.0.attn_norm.weight",
                             "mtp.0.attn.wq_a.weight", "mtp.0.attn.attn_sink"}) {
      EXPECT_TRUE(index.at("weight_map").contains(name)) << name;
    }
    EXPECT_FALSE(index.at("weight_map").contains("layers.4.attn.wq_a.weight"));
    const auto read = read_hf_config(folder.string());
    ASSERT_TRUE(read) << read.error().text();
    EXPECT_EQ(read->draft_ratios, std::vector{0});
    EXPECT_EQ(read->num_layers(), 4);  // it runs where the scenario says so
    Scenario loaded = scenario;
    loaded.checkpoint = folder.string();
    auto session = make(loaded, References::kSim);
    ASSERT_NO_FATAL_FAILURE(finish(*session));
    expect_nothing_wrong(*session);
    if (dtype == ExportDtype::kFp8) continue;
    auto made = make(scenario);
    ASSERT_NO_FATAL_FAILURE(finish(*made));
    for (std::size_t i = 0; i < made->history().size(); ++i) {
      EXPECT_EQ(made->history()[i].proposed, session->history()[i].proposed) << i;
    }
  }
  // Without the layer the same folder is the model without it.
  Scenario plain = small_scenario(50, 6);
  plain.checkpoint = folder.string();
  ASSERT_NO_FATAL_FAILURE(finish(*make(plain)));
  fs::remove_all(folder);
}

TEST(Mtp, RanksShareTheLayer) {
  if (all_lanes().find("ref.sim") == nullptr) GTEST_SKIP() << "skipped: no references";
  Scenario scenario = drafting(small_scenario(40, 5));
  scenario.parallel.size = 2;
  auto session = make(scenario, References::kSim);
  ASSERT_NO_FATAL_FAILURE(finish(*session));
  expect_nothing_wrong(*session);
  EXPECT_GT(session->serving().totals().drafted, 5);
}

TEST(Mtp, OnlyModelsWithADraftLayerTakeOne) {
  ModelConfig dense = *preset("tiny-llama");
  const auto none = add_draft_layer(dense);
  ASSERT_FALSE(none);
  EXPECT_NE(none.error().text().find("has no draft layer"), std::string::npos);
  ModelConfig other = *preset("tiny");
  other.draft_ratios = {4};
  const auto compressed = add_draft_layer(other);
  ASSERT_FALSE(compressed);
  EXPECT_NE(compressed.error().text().find("compress ratio 4"), std::string::npos);
}

}  // namespace mtp_test
}  // namespace attnscope
