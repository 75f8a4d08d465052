// Lists with holes and garbage: a sound lane gives the same answers, and lanes that read what they
// must not are named. Outputs that a lane leaves alone do not pass for empty places.
#include "engine/session/step/adversarial_lists.h"

#include <algorithm>

#include "kernels/params/tensor_view.h"
#include "tests/blame/trial.h"

namespace attnscope {
namespace adversarial_lists_test {

Scenario scenario_with(bool adversarial) {
  Scenario scenario = tiny_scenario();
  scenario.adversarial_lists = adversarial;
  return scenario;
}

std::vector<Blame> blamed_for(const Lane& lane, as_op_id op, bool adversarial) {
  Trial trial(session_of(scenario_with(adversarial)));
  return trial.run({{lane.name, op, op}});
}

const mutants::RareMutant& rare(const std::string& name) {
  return *std::ranges::find_if(mutants::rare(), [&](const mutants::RareMutant& mutant) {
    return mutant.lane.name == "mutant:" + name;
  });
}

TEST(AdversarialLists, ASoundLaneGivesTheSameBytes) {
  auto plain = session_of(scenario_with(false)), other = session_of(scenario_with(true));
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(plain->step());
    ASSERT_TRUE(other->step());
    EXPECT_EQ(plain->digest(), other->digest());
    const auto blamed = blame(other->history().back().results);
    EXPECT_TRUE(blamed.empty()) << sentences(blamed);
  }
}

// The entries in their order, holes between them, and behind the end rows of the null block.
void expect_dressed(const as_tensor& list, const as_tensor& lens, const as_tensor& plain,
                    const as_tensor& plain_lens, std::int32_t rows_per_block, std::int64_t* holes) {
  ASSERT_GT(list.shape[1], plain.shape[1]);
  for (std::int64_t t = 0; t < list.shape[0]; ++t) {
    const std::int32_t len = *at<std::int32_t>(lens, t), was = *at<std::int32_t>(plain_lens, t);
    ASSERT_LT(len, list.shape[1]);
    std::vector<std::int32_t> entries;
    for (std::int32_t k = 0; k < len; ++k) {
      const std::int32_t slot = *at<std::int32_t>(list, t, k);
      if (slot >= 0) entries.push_back(slot);
      *holes += slot < 0 ? 1 : 0;
    }
    const auto* from = at<std::int32_t>(plain, t);
    EXPECT_EQ(entries, std::vector<std::int32_t>(from, from + was)) << "token " << t;
    for (std::int64_t k = len; k < list.shape[1]; ++k) {
      const std::int32_t garbage = *at<std::int32_t>(list, t, k);
      EXPECT_TRUE(garbage >= 0 && garbage < rows_per_block) << garbage;
    }
  }
}

TEST(AdversarialLists, LanesGetHolesAndGarbageAndNobodyElseDoes) {
  auto session = session_of(scenario_with(true));
  std::int64_t attentions = 0, selections = 0, holes = 0;
  while (session->cursor().step < 2) {
    ASSERT_TRUE(session->op());
    if (!session->ran_any()) continue;
    const OpParams& kept = session->last_params();
    const OpParams& called = session->last_called();
    if (kept.op() == AS_OP_SPARSE_ATTENTION) {
      ++attentions;
      const auto& p = kept.get<as_sparse_attention_params>();
      const auto& q = called.get<as_sparse_attention_params>();
      expect_dressed(q.indices, q.topk_length, p.indices, p.topk_length, p.cache.rows_per_block,
                     &holes);
      if (!present(p.extra_indices)) continue;
      expect_dressed(q.extra_indices, q.extra_topk_length, p.extra_indices, p.extra_topk_length,
                     p.extra_cache.rows_per_block, &holes);
    } else if (kept.op() == AS_OP_INDEXER_TOPK) {
      const auto& p = kept.get<as_indexer_topk_params>();
      const auto& q = called.get<as_indexer_topk_params>();
      for (std::int64_t t = 0; t < p.lens.shape[0]; ++t) {
        for (std::int64_t c = *at<std::int32_t>(p.lens, t); c < p.logits.shape[1]; ++c) {
          ++selections;
          EXPECT_EQ(*at<float>(q.logits, t, c), std::numeric_limits<float>::max());
        }
      }
    } else {
      EXPECT_EQ(called.data() == kept.data(), false);
      EXPECT_EQ(std::memcmp(called.data(), kept.data(), kept.info().params_size), 0);
    }
  }
  EXPECT_EQ(attentions, 6);
  EXPECT_GT(selections, 0);
  EXPECT_GT(holes, 100);
}

// Without such lists these pass: nothing that a lane must not read was in its reach.
TEST(AdversarialLists, NameWhoReadsWhatItMustNot) {
  Trial plain(session_of(scenario_with(false))), adversarial(session_of(scenario_with(true)));
  for (const char* name :
       {"extra_lens_ignored", "hole_as_slot_zero", "topk_beyond_lens", "nan_code_as_number"}) {
    SCOPED_TRACE(name);
    const mutants::RareMutant& mutant = rare(name);
    EXPECT_TRUE(plain.run({{mutant.lane.name, mutant.op, mutant.op}}).empty());
    const auto blamed = adversarial.run({{mutant.lane.name, mutant.op, mutant.op}});
    ASSERT_EQ(blamed.size(), 1u) << sentences(blamed);
    EXPECT_EQ(blamed[0].op, mutant.op);
    EXPECT_EQ(blamed[0].first.step, kStepUnderTest);
  }
}

TEST(AdversarialLists, ANumberForANaNCodeHasATapOfItsOwn) {
  const mutants::RareMutant& mutant = rare("nan_code_as_number");
  const auto blamed = blamed_for(mutant.lane, mutant.op, true);
  ASSERT_EQ(blamed.size(), 1u) << sentences(blamed);
  EXPECT_EQ(blamed[0].first.tap, "o.nan");
  EXPECT_NE(blamed[0].first.note.find("must be NaN"), std::string::npos) << blamed[0].first.note;
}

// -1 stands for an empty place: what is there before the op runs is another number.
TEST(OutputPoison, PlacesThatNobodyWritesAreNotTakenForEmpty) {
  const mutants::RareMutant& mutant = rare("topk_not_padded");
  const auto blamed = blamed_for(mutant.lane, mutant.op, false);
  ASSERT_EQ(blamed.size(), 1u) << sentences(blamed);
  EXPECT_EQ(blamed[0].op, AS_OP_INDEXER_TOPK);
}

// Of two steps one has NaN and one a large number before the op: a lane that keeps what it finds
// shows in either.
std::int32_t keeps_larger(const void* params, const as_call* call, as_error* error) {
  const auto& p = *static_cast<const as_rms_norm_params*>(params);
  const std::int64_t n = as_tensor_numel(&p.y);
  const auto* before = static_cast<const bf16_t*>(p.y.data);
  const std::vector<bf16_t> found(before, before + n);
  const auto lanes = all_lanes();
  const std::int32_t status = lanes.find("cpu")->ops[AS_OP_FINAL_NORM](params, call, error);
  for (std::int64_t i = 0; status == AS_OK && i < n; ++i) {
    const auto value = [](bf16_t v) {
      const std::uint32_t bits = std::uint32_t{v.bits} << 16;
      float out;
      std::memcpy(&out, &bits, sizeof(out));
      return out;
    };
    // A comparison with NaN is false: it is dropped.
    if (value(found[static_cast<std::size_t>(i)]) > value(at<bf16_t>(p.y)[i])) {
      at<bf16_t>(p.y)[i] = found[static_cast<std::size_t>(i)];
    }
  }
  return status;
}

TEST(OutputPoison, IsNoNaNTheSecondTime) {
  LaneRegistry registry = all_lanes();
  Lane lane{};
  lane.name = "keeps_larger";
  lane.description = "Keeps what it finds where that is larger.";
  lane.ops[AS_OP_FINAL_NORM] = keeps_larger;
  registry.add(lane);
  SessionOptions options;
  options.references = References::kSim;
  options.lanes = {"cpu", "final_norm=keeps_larger"};
  auto session = Session::create(tiny_scenario(), registry, options);
  ASSERT_TRUE(session) << session.error().text();
  std::set<bool> wrong;
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE((*session)->step());
    if ((*session)->history().back().sampled.empty()) continue;
    const auto blamed = blame((*session)->history().back().results);
    wrong.insert(!blamed.empty());
    for (const Blame& b : blamed) EXPECT_EQ(b.op, AS_OP_FINAL_NORM) << sentences(blamed);
  }
  EXPECT_EQ(wrong, (std::set<bool>{false, true}));
}

// ---- ids of blocks ------------------------------------------------------------------------------

TEST(FirstBlock, HighIdsChangeNothingButThemselves) {
  Scenario scenario = tiny_scenario();
  auto low = session_of(scenario);
  scenario.first_block = 70000;
  auto high = session_of(scenario);
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(low->step());
    ASSERT_TRUE(high->step());
    const auto blamed = blame(high->history().back().results);
    EXPECT_TRUE(blamed.empty()) << sentences(blamed);
    EXPECT_EQ(low->history().back().sampled, high->history().back().sampled);
    const StepMetadata &a = low->metadata(), &b = high->metadata();
    ASSERT_EQ(a.tables.size(), b.tables.size());
    for (std::size_t k = 0; k < a.tables.size(); ++k) {
      EXPECT_EQ(b.tables[k], a.tables[k] == 0 ? 0 : a.tables[k] + 69999);
    }
  }
}

TEST(FirstBlock, GoingBackGivesTheSameBytes) {
  Scenario scenario = tiny_scenario();
  scenario.first_block = 70000;
  auto session = session_of(scenario);
  for (int i = 0; i < 2; ++i) ASSERT_TRUE(session->step());
  const std::uint64_t before = session->digest();
  ASSERT_TRUE(session->step());
  ASSERT_TRUE(session->seek({1, -1, 0, false}));
  ASSERT_TRUE(session->step());
  EXPECT_EQ(session->digest(), before);
}

}  // namespace adversarial_lists_test
}  // namespace attnscope
