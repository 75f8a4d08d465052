// Sessions whose layers hide the rows that come from host memory: attention in two parts gives what
// it gives in one but for rounding, a batch in two halves the same bits; each part is judged, a bug
// between them is named, and the simulator counts the same misses.
#include <cmath>
#include <fstream>

#include "app/reports/ess_trace.h"
#include "app/reports/run.h"
#include "engine/mutants/part_mutants.h"
#include "engine/offload/simulate.h"
#include "engine/trace/tap_result.h"
#include "kernels/cpu/codec.h"
#include "kernels/params/tensor_view.h"
#include "tests/unit/app/cli_fixture.h"
#include "tests/unit/app/host_device.h"
#include "tests/unit/app/small_scenario.h"
#include "tests/unit/app/trace_session.h"

namespace attnscope {
namespace ess_overlap_test {

// Entries of DeepSeek-V4, or rows of V3.2, of which few are selected.
Scenario scenario_of(bool v4, const std::string& attend, double ratio) {
  Scenario s = small_scenario(v4 ? 230 : 150, v4 ? 12 : 10);
  if (!v4) s.model = *preset("tiny-v3.2", {});
  s.model.index_topk = 16;
  s.model.host_rows = true;
  s.ess.ratio = ratio;
  s.ess.attend = *overlap_choice(attend, s.model.layers);
  return s;
}
Scenario v4(const std::string& attend) { return scenario_of(true, attend, 0.7); }
Scenario v32(const std::string& attend) { return scenario_of(false, attend, 0.3); }

struct Ran {
  std::vector<std::vector<float>> attended;  // op by op
  std::vector<std::vector<std::int32_t>> tokens;
  std::vector<TapResult> results;
  std::int64_t misses = 0, travels = 0;
};

Ran run_all(const Scenario& scenario, References references = References::kNone,
            std::vector<std::string> lanes = {"cpu"}) {
  Ran ran;
  SessionOptions options;
  options.references = references;
  options.threads = 2;
  const bool on_device = lanes.front() == "cuda";
  options.lanes = std::move(lanes);
  if (on_device) options.device = std::make_shared<HostDevice>();
  auto session = Session::create(scenario, on_device ? host_device::lanes() : all_lanes(), options);
  EXPECT_TRUE(session) << session.error().text();
  if (!session) return ran;
  Session& s = **session;
  while (!s.finished()) {
    const auto ok = s.op();
    EXPECT_TRUE(ok) << ok.error().text();
    if (!ok) break;
    if (s.at_boundary()) {
      const StepRecord& record = s.history().back();
      ran.results.insert(ran.results.end(), record.results.begin(), record.results.end());
      for (const PoolCounts& c : record.pools) ran.misses += c.misses;
      for (const OpTiming& t : record.timings) ran.travels += t.stream == OpTiming::kExchange;
    }
    if (!s.ran_any()) continue;
    OpParams params = s.last_params();
    if (as_op_role(params.op()) != AS_ROLE_ATTENTION) continue;
    const as_tensor o = params.tensor_named("o");
    std::vector<float>& values = ran.attended.emplace_back();
    const auto* bits = static_cast<const bf16_t*>(o.data);
    for (std::int64_t i = 0; i < as_tensor_numel(&o); ++i)
      values.push_back(cpu::bf16_to_float(bits[i].bits));
  }
  EXPECT_FALSE(s.device_error()) << s.device_error()->text();
  for (const Request& r : s.serving().requests()) ran.tokens.push_back(r.tokens);
  return ran;
}

// Of the first attention that differs, the largest difference, of its largest value: later ones
// inherit it.
double first_difference(const Ran& a, const Ran& b) {
  for (std::size_t i = 0; i < std::min(a.attended.size(), b.attended.size()); ++i) {
    EXPECT_EQ(a.attended[i].size(), b.attended[i].size());
    double most = 0, beyond = 0;
    for (std::size_t k = 0; k < std::min(a.attended[i].size(), b.attended[i].size()); ++k) {
      const auto x = static_cast<double>(a.attended[i][k]);
      most = std::max(most, std::abs(x));
      const double off = std::abs(x - static_cast<double>(b.attended[i][k]));
      beyond = std::isfinite(off) ? std::max(beyond, off) : 1e9;
    }
    if (beyond > 0) return beyond / most;
  }
  return 0;
}

void expect_right(const Ran& ran) {
  int wrong = 0;
  for (const TapResult& r : ran.results) {
    if (r.verdict != Verdict::kWrong) continue;
    if (wrong++ < 3) ADD_FAILURE() << as_op_find(r.op)->name << " " << r.tap << " " << r.note;
  }
  EXPECT_GT(ran.results.size(), 100u);
}

TEST(EssOverlap, HalvesOfABatchGiveTheSameBits) {
  for (const auto& scenario : {v4, v32}) {
    const Ran plain = run_all(scenario("none")), halves = run_all(scenario("dba"));
    EXPECT_EQ(halves.attended, plain.attended);
    EXPECT_EQ(halves.tokens, plain.tokens);
    EXPECT_GT(halves.misses, 0);
    EXPECT_EQ(plain.travels, 0);
    EXPECT_GT(halves.travels, 0);
  }
}

TEST(EssOverlap, PartsGiveTheSameButForRounding) {
  for (const auto& scenario : {v4, v32}) {
    const Ran plain = run_all(scenario("none")), dual = run_all(scenario("da"));
    const double off = first_difference(plain, dual);
    EXPECT_GT(off, 0);  // there was something to merge
    EXPECT_LT(off, 0x1p-7);
    EXPECT_GT(dual.travels, 0);
  }
}

TEST(EssOverlap, ALayerDoesAsItIsTold) {
  const Ran all = run_all(v32("da")), halves = run_all(v32("dba"));
  const int first = v32("none").model.layers.front();
  const Ran one = run_all(v32(fmt::format("none,{}=da", first)));
  EXPECT_GT(one.travels, 0);
  EXPECT_LT(one.travels, all.travels);
  const Ran both = run_all(v32(fmt::format("da,{}=dba", first)));
  EXPECT_GT(both.travels, all.travels - one.travels);
  EXPECT_LT(both.travels, halves.travels);
}

TEST(EssOverlap, IsJudgedRight) {
  for (const char* attend : {"da", "dba"}) {
    SCOPED_TRACE(attend);
    expect_right(run_all(v4(attend), References::kSim));
    expect_right(run_all(v32(attend), References::kSim));
  }
}

TEST(EssOverlap, PlantedBugsAreNamedAlone) {
  EXPECT_EQ(part_mutants().size(), 2u);
  for (const PartMutant& mutant : part_mutants()) {
    for (const auto& scenario : {v4, v32}) {
      SCOPED_TRACE(mutant.name);
      SessionOptions options;
      options.references = References::kSim;
      options.threads = 2;
      options.lanes = {"cpu", fmt::format("schedule={}", mutant.name)};
      auto session = Session::create(scenario("da"), all_lanes(), options);
      ASSERT_TRUE(session) << session.error().text();
      std::vector<Blame> blamed;
      while (blamed.empty() && !(*session)->finished()) {
        ASSERT_TRUE((*session)->step());
        blamed = blame((*session)->history().back().results);
      }
      ASSERT_EQ(blamed.size(), 1u);
      EXPECT_EQ(as_op_role(blamed[0].op), AS_ROLE_ATTENTION) << blamed[0].sentence();
      EXPECT_EQ(blamed[0].first.tap, mutant.tap) << blamed[0].sentence();
      EXPECT_FALSE(blamed[0].cache) << blamed[0].sentence();
    }
  }
}

// Bugs of what moves rows, whichever call of it moves them.
TEST(EssOverlap, BugsOfRowsThatTravelAreNamed) {
  for (const char* attend : {"da", "dba"}) {
    for (const char* bug : {"stale_row", "miss_misplaced", "write_back_lost"}) {
      SCOPED_TRACE(fmt::format("{} {}", attend, bug));
      const Ran ran = run_all(v32(attend), References::kSim,
                              {"cpu", fmt::format("exchange_rows=mutant:{}", bug)});
      const auto blamed = blame(ran.results);
      ASSERT_FALSE(blamed.empty());
      EXPECT_EQ(blamed[0].op, AS_OP_EXCHANGE_ROWS) << blamed[0].sentence();
    }
  }
}

// Also where nothing is compared: rows are looked at once they have moved.
TEST(EssOverlap, BugsOfRowsThatTravelAreNamedWithoutReferences) {
  for (const auto& make : {v4, v32}) {
    for (const char* attend : {"none", "da", "dba"}) {
      for (const char* bug : {"", "stale_row", "miss_misplaced", "write_back_lost",
                              "row_end_left_behind", "reads_the_pages"}) {
        SCOPED_TRACE(fmt::format("{} {}", attend, bug));
        RunOptions options;
        options.session.references = References::kNone;
        options.session.threads = 2;
        if (*bug != '\0') {
          options.session.lanes = {"cpu", fmt::format("exchange_rows=mutant:{}", bug)};
        }
        const auto ran = run_scenario(make(attend), all_lanes(), options, {});
        ASSERT_TRUE(ran) << ran.error().text();
        const auto moved =
            std::ranges::find(ran->invariants, std::string("exchanged_rows"), &Invariant::name);
        ASSERT_NE(moved, ran->invariants.end());
        EXPECT_GT(moved->checked, 0);
        if (*bug == '\0') {
          EXPECT_EQ(moved->broken, 0) << moved->first;
          continue;
        }
        ASSERT_FALSE(ran->summary.blamed.empty()) << moved->checked;
        EXPECT_EQ(ran->summary.blamed[0].op, AS_OP_EXCHANGE_ROWS)
            << ran->summary.blamed[0].sentence();
      }
    }
  }
}

TEST(EssOverlap, OnADeviceTokensAndMissesAreThoseOfTheCpuLane) {
  for (const char* attend : {"none", "da", "dba"}) {
    for (const auto& scenario : {v4, v32}) {
      SCOPED_TRACE(attend);
      const Ran cpu = run_all(scenario(attend)),
                device = run_all(scenario(attend), References::kNone, {"cuda"});
      EXPECT_EQ(device.tokens, cpu.tokens);
      EXPECT_EQ(device.misses, cpu.misses);
      EXPECT_EQ(device.travels, cpu.travels);
    }
  }
}

TEST(EssOverlap, OnADeviceItIsJudgedRight) {
  for (const char* attend : {"da", "dba"}) {
    SCOPED_TRACE(attend);
    expect_right(run_all(v4(attend), References::kSim, {"cuda"}));
    expect_right(run_all(v32(attend), References::kSim, {"cuda"}));
  }
}

class EssOverlapCapture : public CliTest {};

TEST_F(EssOverlapCapture, AdversarialListsAreRefused) {
  const std::string from = ATTNSCOPE_SOURCE_DIR "/assets/scenarios/ess.json";
  std::ifstream in(from);
  std::string text{std::istreambuf_iterator<char>(in), {}};
  const std::size_t at = text.find("\"ess\":");
  ASSERT_NE(at, std::string::npos) << from;
  text.insert(at, "\"lists\": \"adversarial\", ");
  const std::string file = path("adversarial.json");
  std::ofstream(file) << text;
  const Outcome plain = run({"run", file, "--steps", "1", "--references", "none"});
  EXPECT_EQ(plain.code, 0) << plain.err;
  for (const char* attend : {"da", "dba"}) {
    const Outcome refused = run({"run", file, "--attend", attend});
    EXPECT_EQ(refused.code, AS_BAD_INPUT);
    EXPECT_NE(refused.err.find("adversarial lists"), std::string::npos) << refused.err;
  }
}

// Halves of a batch miss other rows than all of it at once; the simulator knows.
TEST_F(EssOverlapCapture, HasTheHitsAndMissesOfTheSimulator) {
  for (const char* attend : {"da", "dba"}) {
    SCOPED_TRACE(attend);
    const std::string capture = path(fmt::format("{}.acap", attend));
    const Outcome done = run({"record", "ess", "--attend", attend, "--rows", "all", "--references",
                              "none", "-o", capture});
    ASSERT_EQ(done.code, 0) << done.err;
    const auto opened = Capture::open(capture);
    ASSERT_TRUE(opened) << opened.error().text();
    const auto trace = selections_of(**opened);
    ASSERT_TRUE(trace) << trace.error().text();
    const auto simulated = simulate_offload(
        *trace, {.pool_rows = 252, .attend = *overlap_choice(attend, trace->layers)});
    ASSERT_TRUE(simulated) << simulated.error().text();
    std::int64_t compared = 0, in_halves = 0;
    for (std::size_t s = 0; s < trace->steps.size(); ++s) {
      const auto summary = std::ranges::find(
          (*opened)->summaries(), trace->steps[s].step,
          [](const std::shared_ptr<const StepSummary>& one) { return one->step; });
      ASSERT_NE(summary, (*opened)->summaries().end());
      ASSERT_EQ((*summary)->pools.size(), trace->layers.size());
      for (std::size_t i = 0; i < trace->layers.size(); ++i) {
        EXPECT_EQ((*summary)->pools[i].hits, simulated->layers[i].steps[s].hits);
        EXPECT_EQ((*summary)->pools[i].misses, simulated->layers[i].steps[s].misses);
        EXPECT_EQ((*summary)->pools[i].evictions, simulated->layers[i].steps[s].evictions);
        in_halves += trace->steps[s].layers[i].halves.empty() ? 0 : 1;
        ++compared;
      }
    }
    EXPECT_GT(compared, 20);
    EXPECT_GT(in_halves, 0);
  }
}

TEST(EssOverlap, AChoiceIsReadAndSaid) {
  const std::vector<int> layers{2, 4};
  const auto good = overlap_choice("da,4=dba", layers);
  ASSERT_TRUE(good) << good.error().text();
  EXPECT_EQ(good->of(2), Overlap::kDa);
  EXPECT_EQ(good->of(4), Overlap::kDba);
  EXPECT_EQ(good->text(), "da,4=dba");
  EXPECT_EQ(overlap_choice("4=da", layers)->of(2), Overlap::kNone);
  for (const auto& [text, said] : {std::pair{"", "says no way"},
                                   {"both", "says no way"},
                                   {"preattn", "says no way"},
                                   {"da,dba", "says no way"},
                                   {"x=da", "says no way"},
                                   {"3=da", "layer 3 selects no rows"},
                                   {"da,", "says no way"}}) {
    const auto bad = overlap_choice(text, layers);
    ASSERT_FALSE(bad) << text;
    EXPECT_NE(bad.error().text().find(said), std::string::npos) << bad.error().text();
  }
}

TEST(EssOverlap, ABatchIsCutBetweenRequests) {
  const auto cut = [](std::vector<std::int32_t> starts) { return second_half(starts); };
  EXPECT_EQ(cut({0, 1, 2, 3}), 2);
  EXPECT_EQ(cut({0, 1, 2}), 1);
  EXPECT_EQ(cut({0, 10, 12}), 10);
  EXPECT_EQ(cut({0, 2, 12}), 2);
  EXPECT_EQ(cut({0, 5}), 0);
  EXPECT_EQ(cut({}), 0);
}

}  // namespace ess_overlap_test
}  // namespace attnscope
