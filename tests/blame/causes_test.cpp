// How often the cause of an error is found: calls of whole sessions are spoiled by one planted bug
// after the other, with roundings of another implementation on top, and explained by all of them.
#include <gtest/gtest.h>

#include <random>

#include "app/reports/explain_call.h"
#include "app/wiring/case_lane.h"
#include "engine/session/place.h"
#include "kernels/cpu/codec.h"
#include "kernels/cpu/thread_pool.h"
#include "tests/blame/encoder_session.h"
#include "tests/blame/trial.h"

namespace attnscope {
namespace causes_test {

constexpr std::size_t kCasesOfAnOp = 6;

// Calls of the steps under test, by op.
class CaseKeeper : public SessionObserver {
 public:
  void op_done(const Session& session) override {
    const OpParams& params = session.last_called();
    const as_op_id op = params.op();
    if (session.cursor().step < kStepUnderTest || as_op_has(op, AS_BY_ENGINE) != 0) return;
    if (cases[op].size() >= kCasesOfAnOp) return;
    auto kept = keep_case(*find_case_op(op), params.data(), {"session", "cpu", 1, 0});
    ASSERT_TRUE(kept) << as_op_find(op)->name << ": " << kept.error().text();
    cases[op].push_back(std::move(*kept));
  }
  void step_done(const Session&) override {}
  void went_back(const Session&) override {}

  std::map<as_op_id, std::vector<OpCase>> cases;
};

// Some outputs in bf16 one step away, as another order of sums leaves them.
void round_otherwise(OpCase& kept) {
  std::mt19937_64 random(11);
  for (const as_tap_info& tap : kept.op.taps) {
    const auto it = kept.tensors.find(tap.name);
    if (tap.direction != AS_TAP_OUT || it == kept.tensors.end()) continue;
    if (it->second.dtype != AS_BF16) continue;
    auto* values = reinterpret_cast<std::uint16_t*>(it->second.bytes.data());
    for (std::size_t i = 0; i < it->second.bytes.size() / 2; ++i) {
      const std::uint16_t magnitude = values[i] & 0x7fff;
      if (random() % 16 == 0 && magnitude > 0x80 && magnitude < 0x7f00) {
        values[i] = static_cast<std::uint16_t>(values[i] + (random() % 2 == 0 ? 1 : -1));
      }
    }
  }
}

TEST(Causes, AreAmongTheFirstThree) {
  const LaneRegistry lanes = all_lanes();
  auto tolerances = Tolerances::load();
  ASSERT_TRUE(tolerances) << tolerances.error().text();
  const cpu::ThreadPool pool(2);
  std::map<as_op_id, std::vector<OpCase>> cases;
  const auto collect = [&](const Scenario& scenario) {
    auto session = session_of(scenario, References::kNone);
    ASSERT_NE(session, nullptr);
    CaseKeeper keeper;
    session->set_observer(&keeper);
    for (int i = 0; i < 3; ++i) ASSERT_TRUE(session->step());
    for (auto& [op, kept] : keeper.cases) {
      std::move(kept.begin(), kept.end(), std::back_inserter(cases[op]));
    }
  };
  for (const char* profile : {"vllm", "vllm,projections=fp8", "vllm,prefill=gathered"}) {
    collect(tiny_scenario(7, 396, profile));
  }
  for (const std::string& name : dense_names()) collect(dense_scenario(*preset(name)));
  collect(encoder_scenario(*preset("tiny-vit")));
  collect(encoder_scenario(biased_encoder()));
  for (const char* name : {"tiny-v3", "tiny-v3.2"}) collect(dense_scenario(*preset(name), 7, 131));
  collect(dense_scenario(*preset("tiny-t5")));
  for (const char* name : {"tiny-llama", "tiny-llama4", "tiny-t5"}) {
    collect(dense_scenario(masked_model(name)));
  }
  ModelConfig masked = *preset("tiny-bert");
  masked.dense.mask = "document(20) || kv_idx < 3";
  masked.dense.score = "score + 0.05 * kv_idx";
  collect(encoder_scenario(masked));

  int shown = 0, first = 0, among_three = 0;
  std::set<std::string> missed, unseen;
  for (const Lane& bug : mutants::lanes()) {
    bool shows = false;
    for (int id = 0; id < AS_OP_COUNT && !shows; ++id) {
      const auto op = static_cast<as_op_id>(id);
      if (bug.ops[op] == nullptr) continue;
      for (const OpCase& sound : cases[op]) {
        const CaseRunOptions options = case_options(lanes, sound.op, *tolerances, pool.handle());
        auto spoiled = rerun_case(sound, {bug.name, bug.ops[op], false}, options);
        if (!spoiled) continue;  // of formats that this call has not
        round_otherwise(*spoiled);
        const auto why = explain_call(*spoiled, lanes, *tolerances, pool.handle());
        ASSERT_TRUE(why) << bug.name << ": " << why.error().text();
        if (!why->wrong()) continue;
        shows = true;
        const auto& likely = why->hypotheses.likely;
        const auto at = std::ranges::find(likely, std::string(bug.name), &Hypothesis::lane);
        const auto rank = at - likely.begin();
        ++shown;
        first += at != likely.end() && rank == 0 ? 1 : 0;
        const bool among = at != likely.end() && rank < std::ssize(likely) &&
                           rank < static_cast<std::ptrdiff_t>(kShownHypotheses);
        among_three += among ? 1 : 0;
        if (!among) missed.insert(bug.name);
        // Nothing is called the cause: what gives the same output is said to do so.
        for (const std::string& line : why->lines()) {
          EXPECT_EQ(line.find("is the cause"), std::string::npos) << line;
        }
        break;
      }
    }
    if (!shows) unseen.insert(bug.name);
  }
  // Writes to an input, which a case holds as it was: nothing of its output tells it.
  EXPECT_EQ(missed, std::set<std::string>{"mutant:inverse_rope_in_place"});
  // Two want rows of the rotary table that a case does not keep, one a weight with two blocks in a
  // row, two a window, which no encoder has.
  EXPECT_EQ(unseen,
            (std::set<std::string>{"mutant:entry_rope_position", "mutant:fp8_scale_of_next_block",
                                   "mutant:key_rope_position", "mutant:varlen_window_mirrored",
                                   "mutant:varlen_window_short"}));
  RecordProperty("wrong", shown);
  RecordProperty("among_three", among_three);
  RecordProperty("first", first);
  EXPECT_GE(among_three, shown * 7 / 10) << among_three << " of " << shown;
  EXPECT_GE(first, shown * 9 / 10) << first << " of " << shown << " are named first";
}

}  // namespace causes_test
}  // namespace attnscope
