// Goldens: what is kept, what counts as the same, and files that are not what they claim to be.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>
#include <limits>
#include <optional>
#include <random>
#include <set>

#include "engine/golden/golden_compare.h"
#include "engine/golden/golden_folder.h"
#include "engine/golden/op_inputs.h"
#include "kernels/cpu/cpu_lane.h"
#include "kernels/layout/records.h"
#include "kernels/params/attention_params.h"
#include "kernels/params/paged_params.h"
#include "kernels/params/tensor_view.h"

namespace attnscope {
namespace golden_test {

constexpr const char* kOpSpec = R"({"format": "attnscope-golden", "version": 1, "about": "a test",
  "op": "compress_insert", "cases": [{"name": "one", "lengths": [8], "new_tokens": 2}]})";

GoldenSpec spec_of(const std::string& text = kOpSpec) {
  auto spec = parse_golden_spec(text, "folder/small.golden.json");
  EXPECT_TRUE(spec) << spec.error().text();
  return spec ? *spec : GoldenSpec{};
}
std::string spec_error(const std::string& text) {
  auto spec = parse_golden_spec(text, "small.golden.json");
  return spec ? "no error" : spec.error().text();
}
std::string with(std::string text, const std::string& from, const std::string& to) {
  const std::size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return at == std::string::npos ? text : text.replace(at, from.size(), to);
}

GoldenValues computed(const GoldenSpec& spec, as_op_id op = AS_OP_COMPRESS_INSERT,
                      const std::function<void(void*)>& then = {}) {
  GoldenValues values;
  values.name = spec.name;
  values.definition = spec.digest;
  values.lanes = "cpu";
  OpInputs inputs(op, spec.cases[0]);
  as_call call{};
  call.struct_size = sizeof(call);
  as_error error{};
  EXPECT_EQ(cpu::lane()->ops[op](inputs.params().data(), &call, &error), AS_OK) << error.message;
  if (then) then(const_cast<void*>(inputs.params().data()));
  collect_taps(inputs.trace("cpu"), inputs.owners(), spec, "one", values.taps);
  return values;
}

const Tolerances& tolerances() {
  static const auto loaded = Tolerances::load(ATTNSCOPE_SOURCE_DIR "/assets/tolerances.json");
  return *loaded;
}
GoldenComparison compare(const GoldenSpec& spec, const GoldenValues& a, const GoldenValues& b) {
  auto out = compare_golden(spec, a, b, tolerances());
  EXPECT_TRUE(out) << out.error().text();
  return out ? *out : GoldenComparison{};
}
GoldenFinding finding(const GoldenComparison& c, const std::string& tap) {
  for (const GoldenFinding& f : c.findings) {
    if (f.tap == tap) return f;
  }
  ADD_FAILURE() << "no finding for " << tap;
  return {};
}

// A float tap of [rows, 8] with the given values.
GoldenTap float_tap(std::vector<float>& values, std::int64_t samples) {
  GoldenTap tap;
  tap.where = "0/0/wo_b";
  tap.op = AS_OP_WO_B;
  tap.tap = "y";
  tap.rule = "dense";
  tap.lane = "cpu";
  tap.dtype = AS_F32;
  const auto rows = static_cast<std::int64_t>(values.size()) / 8;
  tap.shape = {rows, 8};
  tap.requests.resize(static_cast<std::size_t>(rows));
  float_figures(make_tensor(values.data(), {rows, 8}), samples, tap);
  return tap;
}
GoldenValues holding(const GoldenTap& tap) {
  GoldenValues values;
  values.name = "small";
  values.taps.push_back(tap);
  return values;
}
std::vector<float> ramp(std::size_t n) {
  std::vector<float> values(n);
  for (std::size_t i = 0; i < n; ++i) values[i] = 0.25f + static_cast<float>(i % 17);
  return values;
}

// Bytes follow from their row and from nothing else that the op writes; the row is kept with them.
TEST(GoldenValues, OtherBytesOfTheSameRowAreWrongWhateverElseChanged) {
  const std::string text = with(kOpSpec, "compress_insert", "q_rope_kv_insert");
  GoldenSpec spec = spec_of(text);
  spec.taps = {{AS_OP_Q_ROPE_KV_INSERT, {"cache"}, {}, {}}};
  const GoldenValues was = computed(spec, AS_OP_Q_ROPE_KV_INSERT);
  ASSERT_EQ(was.taps.size(), 2u);
  EXPECT_EQ(was.taps[0].tap, "kv_row");
  const auto bytes_and = [](bool row) {
    return [row](void* params) {
      auto& p = *static_cast<as_q_rope_kv_insert_params*>(params);
      static_cast<std::uint16_t*>(p.q.data)[0] ^= 1;
      as_cache_row(&p.cache, *at<std::int64_t>(p.slots, 0)).payload[3] ^= 1;
      if (row) static_cast<std::uint16_t*>(p.kv_row.data)[0] ^= 1;
    };
  };
  GoldenComparison c = compare(spec, was, computed(spec, AS_OP_Q_ROPE_KV_INSERT, bytes_and(false)));
  EXPECT_EQ(finding(c, "cache").verdict, GoldenVerdict::kWrong);
  c = compare(spec, was, computed(spec, AS_OP_Q_ROPE_KV_INSERT, bytes_and(true)));
  EXPECT_EQ(finding(c, "cache").verdict, GoldenVerdict::kFollows);
}

TEST(GoldenValues, AreReadBackAsTheyWereAndCompareEqual) {
  const GoldenSpec spec = spec_of();
  GoldenValues values = computed(spec);
  values.sampled.push_back({3, 1, 77, {}});
  values.origin = {"because", "0123", "attnscope", {{"SIMD", "generic"}, {"GPU", "none"}}};
  values.findings.push_back(
      {"one", "row", GoldenVerdict::kWrong, std::numeric_limits<double>::infinity(), "a \"note\""});
  auto back = parse_golden_values(golden_values_text(values), "small.received.json");
  ASSERT_TRUE(back) << back.error().text();
  EXPECT_EQ(golden_values_text(*back), golden_values_text(values));
  const GoldenComparison c = compare(spec, *back, [&] {
    GoldenValues again = computed(spec);
    again.sampled = values.sampled;
    return again;
  }());
  EXPECT_TRUE(c.passed()) << c.sentence();
  EXPECT_EQ(c.count(GoldenVerdict::kEqual), 2);
}

TEST(GoldenValues, ShortNumbersGiveBackEveryValueOfTheirDtype) {
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    const float v = std::bit_cast<float>(bits << 16);
    if (!std::isfinite(v)) continue;
    ASSERT_EQ(full_number(short_number(v, AS_BF16), AS_BF16), v) << bits;
  }
  for (const float v : {0.1f, 1e-38f, 3.4e38f, -1.0f / 3}) {
    EXPECT_EQ(full_number(short_number(v, AS_F32), AS_F32), v);
  }
}

TEST(GoldenValues, SetsAreWrittenAsRanges) {
  EXPECT_EQ(set_text({4, 1, 2, 3, 9}), "1-4,9");
  EXPECT_EQ(set_text({}), "");
  EXPECT_EQ(*parse_set("1-4,9"), (std::vector<std::int32_t>{1, 2, 3, 4, 9}));
  EXPECT_EQ(*parse_set(set_text({5, 5, 6})), (std::vector<std::int32_t>{5, 5, 6}));
  for (const char* bad : {"a", "3-1", "2,1", "1,", "-1", "1--2", "0-99999999999", "0-2000000"}) {
    EXPECT_FALSE(parse_set(bad)) << bad;
  }
}

TEST(GoldenInputs, AreTheSameEveryTimeAndOtherWithAnotherSeed) {
  GoldenSpec spec = spec_of();
  const std::string first = golden_values_text(computed(spec));
  EXPECT_EQ(golden_values_text(computed(spec)), first);
  spec.cases[0].seed = 2;
  EXPECT_NE(golden_values_text(computed(spec)), first);
}

TEST(GoldenInputs, EveryOpOfTheTableHasThemSaveTheEnginesOwn) {
  for (int op = 0; op < AS_OP_COUNT; ++op) {
    const auto id = static_cast<as_op_id>(op);
    if (!has_own_inputs(id)) continue;
    GoldenSpec spec = spec_of();
    spec.op = id;
    spec.taps = {{id, {}, {}, {}}};
    spec.cases[0] = {"one", {260, 4}, 2, 1};
    std::set<std::string> outputs;
    for (const GoldenTap& t : computed(spec, id).taps) outputs.insert(t.tap);
    const as_op_info& info = *as_op_find(op);
    for (std::uint32_t i = 0; i < info.num_taps; ++i) {
      const as_tap_info& tap = info.taps[i];
      // The scales of MXFP4 alone have no place in FP8 queries, codes none beside a wo_a in bf16.
      if (tap.direction != AS_TAP_OUT || std::string_view(tap.name) == "q_scale") continue;
      if (id == AS_OP_INVERSE_ROPE && tap.optional != 0) continue;
      // Of models that select tokens: in the golden of a session.
      if (id == AS_OP_SLOT_MAPPING && std::string_view(tap.name) == "seen_lens") continue;
      // Of models that keep first tokens in 16 bits: likewise.
      if (std::string_view(tap.name).ends_with("_wide")) continue;
      EXPECT_TRUE(outputs.contains(tap.name)) << info.name << " " << tap.name;
    }
  }
}

TEST(GoldenCompare, AnElementBeyondItsBoundIsWrongAndNamed) {
  std::vector<float> values = ramp(64);
  const GoldenTap a = float_tap(values, 64);
  values[20] *= 1.01f;
  const GoldenFinding f =
      finding(compare(spec_of(), holding(a), holding(float_tap(values, 64))), "y");
  EXPECT_EQ(f.verdict, GoldenVerdict::kWrong);
  EXPECT_NE(f.note.find("element 20 was 3.25"), std::string::npos) << f.note;
  EXPECT_GT(f.budget_used, 10);
}

TEST(GoldenCompare, LastBitsAreWithinTheBound) {
  std::vector<float> values = ramp(64);
  const GoldenTap a = float_tap(values, 16);
  for (float& v : values) v = std::nextafter(v, 100.0f);
  const GoldenFinding f =
      finding(compare(spec_of(), holding(a), holding(float_tap(values, 16))), "y");
  EXPECT_EQ(f.verdict, GoldenVerdict::kWithin) << f.note;
  EXPECT_LT(f.budget_used, 0.1);
  EXPECT_GT(f.budget_used, 0);
}

TEST(GoldenCompare, WhatNoSampleSeesTheStatisticsSee) {
  std::vector<float> values = ramp(64 * 8);
  const GoldenTap a = float_tap(values, 4);
  std::size_t unseen = 0;
  while (std::ranges::find(a.at, static_cast<std::int64_t>(unseen)) != a.at.end()) ++unseen;
  values[unseen] += 0.5f;
  const GoldenFinding f =
      finding(compare(spec_of(), holding(a), holding(float_tap(values, 4))), "y");
  EXPECT_EQ(f.verdict, GoldenVerdict::kWrong);
  EXPECT_NE(f.note.find("range 1 of 16"), std::string::npos) << f.note;
}

// What a person reads first in the file: it is not there for show.
TEST(GoldenCompare, StatisticsThatAreNotThoseOfTheValuesAreWrong) {
  std::vector<float> values = ramp(64 * 8);
  const GoldenTap b = float_tap(values, 4);
  ASSERT_EQ(finding(compare(spec_of(), holding(b), holding(b)), "y").verdict,
            GoldenVerdict::kEqual);
  for (double TapStats::*of : {&TapStats::mean, &TapStats::min, &TapStats::max, &TapStats::l2}) {
    GoldenTap a = b;
    *a.stats.*of += 1;
    const GoldenFinding f = finding(compare(spec_of(), holding(a), holding(b)), "y");
    EXPECT_EQ(f.verdict, GoldenVerdict::kWrong);
    EXPECT_NE(f.note.find("of all elements"), std::string::npos) << f.note;
  }
}

TEST(GoldenCompare, OneMoreNaNIsWrong) {
  std::vector<float> values = ramp(64 * 8);
  const GoldenTap a = float_tap(values, 1);
  values[400] = std::numeric_limits<float>::quiet_NaN();
  const GoldenFinding f =
      finding(compare(spec_of(), holding(a), holding(float_tap(values, 1))), "y");
  EXPECT_EQ(f.verdict, GoldenVerdict::kWrong);
  EXPECT_NE(f.note.find("number of NaN was 0, is 1"), std::string::npos) << f.note;
}

TEST(GoldenCompare, OtherBytesOfTheSameRowAreWrongAndOfAnotherRowFollow) {
  const GoldenSpec spec = spec_of();
  const GoldenValues a = computed(spec);
  GoldenValues b = a;
  ASSERT_EQ(b.taps[1].tap, "cache");
  b.taps[1].parts[0].checksum = "0000000000000000";
  EXPECT_EQ(finding(compare(spec, a, b), "cache").verdict, GoldenVerdict::kWrong);
  b.taps[1].parts[0].given = "1111111111111111";
  const GoldenFinding f = finding(compare(spec, a, b), "cache");
  EXPECT_EQ(f.verdict, GoldenVerdict::kFollows);
  EXPECT_FALSE(is_failure(f.verdict));
}

// Keys follow from their row before insertion, values from the input that they are; queries excuse
// neither.
TEST(GoldenCompare, BytesOfKeysAndValuesFollowFromWhatTheyStore) {
  GoldenSpec spec = spec_of();
  spec.op = AS_OP_ROPE_KV_INSERT;
  spec.taps = {{AS_OP_ROPE_KV_INSERT, {}, {}, {}}};
  const auto given = [&](const std::function<void(void*)>& then, const std::string& cache) {
    for (const GoldenTap& tap : computed(spec, AS_OP_ROPE_KV_INSERT, then).taps) {
      if (tap.tap == cache) return tap.parts.at(0).given;
    }
    ADD_FAILURE() << cache;
    return std::string();
  };
  struct Change {
    const char* what;
    as_tensor as_rope_kv_insert_params::*tensor;
    bool keys, values;
  };
  for (const Change& change : {Change{"q_out", &as_rope_kv_insert_params::q_out, false, false},
                               Change{"k_row", &as_rope_kv_insert_params::k_row, true, false},
                               Change{"v", &as_rope_kv_insert_params::v, false, true}}) {
    SCOPED_TRACE(change.what);
    const auto last_head = [&](void* params) {
      const as_tensor& t = static_cast<as_rope_kv_insert_params*>(params)->*change.tensor;
      *at<std::uint16_t>(t, 0, t.shape[1] - 1, t.shape[2] - 1) ^= 1;
    };
    EXPECT_EQ(given(last_head, "k_cache") != given({}, "k_cache"), change.keys);
    EXPECT_EQ(given(last_head, "v_cache") != given({}, "v_cache"), change.values);
  }
}

// What a person reads in the file is what the checksums are of.
TEST(GoldenCompare, NumbersThatAreNotThoseOfTheChecksumsAreWrong) {
  GoldenSpec spec = spec_of();
  spec.op = AS_OP_SLOT_MAPPING;
  spec.taps = {{AS_OP_SLOT_MAPPING, {}, {}, {}}};
  const GoldenValues b = computed(spec, AS_OP_SLOT_MAPPING);
  ASSERT_EQ(finding(compare(spec, b, b), "slots").verdict, GoldenVerdict::kEqual);
  GoldenValues a = b;
  a.taps[0].numbers[1] += 1;
  EXPECT_EQ(finding(compare(spec, a, b), "slots").verdict, GoldenVerdict::kWrong);
  a.taps[0].numbers = b.taps[0].numbers;
  a.taps[0].numbers.pop_back();
  EXPECT_EQ(finding(compare(spec, a, b), "slots").verdict, GoldenVerdict::kWrong);
  a.taps[0].numbers.clear();  // not shown
  EXPECT_EQ(finding(compare(spec, a, b), "slots").verdict, GoldenVerdict::kEqual);
}

TEST(GoldenCompare, IntegersAreOwedWhateverTheirInputs) {
  GoldenSpec spec = spec_of();
  spec.op = AS_OP_SLOT_MAPPING;
  spec.taps = {{AS_OP_SLOT_MAPPING, {}, {}, {}}};
  const GoldenValues a = computed(spec, AS_OP_SLOT_MAPPING);
  for (const GoldenTap& t : a.taps) {
    for (const GoldenPart& p : t.parts) EXPECT_TRUE(p.given.empty()) << t.tap;
  }
  GoldenValues b = a;
  b.taps[0].parts[0].checksum = "0000000000000000";
  b.taps[0].numbers[1] += 1;
  const GoldenFinding f = finding(compare(spec, a, b), "slots");
  EXPECT_EQ(f.verdict, GoldenVerdict::kWrong);
  EXPECT_NE(f.note.find("element 1 was"), std::string::npos) << f.note;
}

TEST(GoldenCompare, SetsMayTieAndMayNotBeWorse) {
  GoldenTap tap;
  tap.where = "0/1/indexer_topk";
  tap.op = AS_OP_INDEXER_TOPK;
  tap.tap = "indices";
  tap.rule = "topk";
  tap.lane = "cpu";
  tap.dtype = AS_I32;
  tap.shape = {1, 2};
  tap.requests = {0};
  tap.sets = {"0-1"};
  GoldenTap now = tap;
  now.sets = {"0,2"};
  now.lens = {3};
  now.scores = {{5, 1, 1 + 1e-6}};
  EXPECT_EQ(finding(compare(spec_of(), holding(tap), holding(now)), "indices").verdict,
            GoldenVerdict::kNearTie);
  // The scores moved: the accepted choice is far from the best by these, whichever is right.
  now.scores = {{5, 1, 2}};
  EXPECT_EQ(finding(compare(spec_of(), holding(tap), holding(now)), "indices").verdict,
            GoldenVerdict::kWrong);
  // By the run's own scores the received choice is not the best.
  now.scores = {{5, 2, 1}};
  EXPECT_EQ(finding(compare(spec_of(), holding(tap), holding(now)), "indices").verdict,
            GoldenVerdict::kWrong);
  now.sets = {"0,0"};
  EXPECT_EQ(finding(compare(spec_of(), holding(tap), holding(now)), "indices").verdict,
            GoldenVerdict::kWrong);
}

TEST(GoldenCompare, BehindATiedTokenARequestIsLeftOut) {
  std::vector<float> values = ramp(16);
  GoldenTap tap = float_tap(values, 16);
  tap.requests = {0, 1};
  tap.step = 4;
  GoldenValues a = holding(tap);
  a.sampled = {{3, 0, 7, {}}, {3, 1, 8, {}}};
  for (std::size_t i = 0; i < 8; ++i) values[i] = -values[i];  // request 0
  tap = float_tap(values, 16);
  tap.requests = {0, 1};
  tap.step = 4;
  GoldenValues b = holding(tap);
  b.sampled = {{3, 0, 6, {0, 0, 0, 0, 0, 0, 1, 1, 0}}, {3, 1, 8, {}}};
  GoldenComparison c = compare(spec_of(), a, b);
  EXPECT_TRUE(c.passed()) << c.sentence();
  EXPECT_EQ(finding(c, "token").verdict, GoldenVerdict::kNearTie);
  EXPECT_EQ(finding(c, "y").verdict, GoldenVerdict::kEqual) << "the other request's row";
  // No tie: the token is wrong, and so are its rows.
  b.sampled[0].scores[7] = 0.5;
  c = compare(spec_of(), a, b);
  EXPECT_EQ(finding(c, "token").verdict, GoldenVerdict::kWrong);
  EXPECT_EQ(finding(c, "y").verdict, GoldenVerdict::kWrong);
}

TEST(GoldenCompare, MissingAndUnexpectedValuesFail) {
  const GoldenSpec spec = spec_of();
  const GoldenValues a = computed(spec);
  GoldenValues b = a;
  b.taps.erase(b.taps.begin());
  EXPECT_EQ(finding(compare(spec, a, b), "row").verdict, GoldenVerdict::kMissing);
  EXPECT_EQ(finding(compare(spec, b, a), "row").verdict, GoldenVerdict::kUnexpected);
  // Another lane need not show the row before quantisation.
  b.lanes = "cuda";
  EXPECT_EQ(finding(compare(spec, a, b), "row").verdict, GoldenVerdict::kWithheld);
}

TEST(GoldenSpec, LoosenedBoundsHoldAndAreListed) {
  const std::string bound = R"("tolerances": [
    {"class": "dense", "op": "wo_b", "rel": 0.02, "reason": "a test"},
    {"class": "row", "bf16_ulp": 0.5, "reason": "tighter"}], "op": "compress_insert")";
  const GoldenSpec spec = spec_of(with(kOpSpec, "\"op\": \"compress_insert\"", bound));
  const auto loosened = loosened_tolerances(spec, tolerances());
  ASSERT_EQ(loosened.size(), 1u);
  EXPECT_EQ(loosened[0].text(), "class dense, op wo_b: rel 0.02");
  std::vector<float> values = ramp(64);
  const GoldenTap a = float_tap(values, 64);
  values[20] *= 1.01f;
  const GoldenComparison c = compare(spec, holding(a), holding(float_tap(values, 64)));
  EXPECT_EQ(finding(c, "y").verdict, GoldenVerdict::kWithin);
  ASSERT_EQ(c.loosened.size(), 1u);
  EXPECT_EQ(c.loosened[0].reason, "a test");
  // Bounds change no value that is kept, so nothing becomes stale.
  EXPECT_NE(spec.digest, "");
  EXPECT_EQ(spec.digest, spec_of().digest);
}

TEST(GoldenSpec, MistakesAreNamedWithWhatIsAllowed) {
  const auto says = [](const std::string& text, const char* what) {
    EXPECT_NE(spec_error(text).find(what), std::string::npos) << spec_error(text) << "\n" << what;
  };
  says("", "small.golden.json: line 1");
  says("[]", "is no attnscope-golden file");
  says(R"({"format": "attnscope-capture", "version": 1})", "'attnscope-capture'");
  says(with(kOpSpec, "\"version\": 1", "\"version\": 2"), "made by a newer program: version 2");
  says(with(kOpSpec, "\"version\": 1", "\"version\": \"1\""), "version");
  says(with(kOpSpec, "\"about\"", "\"abuot\""), "about");
  says(with(kOpSpec, "\"about\"", "\"colour\": 1, \"about\""), "colour: unknown key");
  says(with(kOpSpec, "compress_insert", "compress"), "there is no op 'compress'");
  says(with(kOpSpec, "compress_insert", "schedule"), "carried out by the engine");
  says(with(kOpSpec, "[8]", "[0]"), "cases[0].lengths");
  says(with(kOpSpec, "[8]", "[]"), "names no request");
  says(with(kOpSpec, "\"op\"", "\"scenario\": \"x\", \"op\""), "not several");
  const std::string scenario = R"({"format": "attnscope-golden", "version": 1, "about": "a",
    "scenario": "default", "steps": 1, "taps": [{"op": "wo_b", "taps": ["y"]}]})";
  EXPECT_EQ(spec_error(scenario), "no error");
  says(with(scenario, "\"default\"", "\"../../etc/passwd\""), "is no name");
  says(with(scenario, "\"default\"", "\"/etc/passwd\""), "is no name");
  says(with(scenario, "[\"y\"]", "[\"z\"]"), "wo_b has no output 'z'; outputs: y");
  says(with(scenario, "\"steps\": 1", "\"steps\": 0"), "steps");
  says(with(scenario, "[\"y\"]", "[\"y\"], \"steps\": \"x\""), "steps");
  const auto loose = [&](const char* tolerance) {
    return with(scenario, "\"steps\": 1",
                std::string("\"steps\": 1, \"tolerances\": [") + tolerance + "]");
  };
  says(loose(R"({"class": "dense", "rel": 0.1})"), "reason: required key is missing");
  says(loose(R"({"class": "dense", "rel": 0.1, "reason": " "})"), "reason: is empty");
  says(loose(R"({"class": "dense", "reason": "x"})"), "no bound");
  says(loose(R"({"tap": "z", "rel": 0.1, "reason": "x"})"), "no op has a tap \"z\"");
  says(loose(R"({"op": "wo_b", "tap": "cache", "rel": 0.1, "reason": "x"})"),
       "no op has a tap \"cache\"");
  const auto unknown = parse_golden_spec(loose(R"({"class": "dnse", "rel": 0.1, "reason": "x"})"),
                                         "small.golden.json");
  ASSERT_TRUE(unknown);
  const auto checked = check_classes(*unknown, tolerances());
  ASSERT_FALSE(checked) << "it would loosen nothing, and nobody would hear of it";
  EXPECT_NE(checked.error().text().find("tolerances[0].class: there is no class \"dnse\""),
            std::string::npos)
      << checked.error().text();
}

TEST(GoldenFiles, OfNoTruncationOrFlippedBitDoesMoreThanAnError) {
  const std::string text = golden_values_text(computed(spec_of()));
  int errors = 0;
  for (std::size_t n = 0; n + 2 < text.size(); ++n) {  // the last bytes are a newline and a brace
    auto values = parse_golden_values(text.substr(0, n), "cut.accepted.json");
    ASSERT_FALSE(values) << n;
    ASSERT_NE(values.error().message.find("cut.accepted.json"), std::string::npos);
    ASSERT_EQ(values.error().code, AS_BAD_INPUT);
  }
  for (std::size_t i = 0; i < text.size(); ++i) {
    std::string flipped = text;
    flipped[i] = static_cast<char>(flipped[i] ^ (1 << (i % 8)));
    if (!parse_golden_values(flipped, "flipped.accepted.json")) ++errors;
  }
  EXPECT_GT(errors, static_cast<int>(text.size()) / 4);
}

// Cut off, bytes lost, changed and put in: a value, or an error of one line that names the file.
TEST(GoldenFiles, SurviveDamage) {
  static const std::vector<std::string> kPieces = {
      "{",    "}",  "[",  "]",       ",",     "\"",   "\\",
      "null", "-1", "{}", "\"nan\"", "1e999", "[[[[", "9223372036854775808",
      "\xff", "\n"};
  const std::string values = golden_values_text(computed(spec_of())), spec = kOpSpec;
  int refused = 0;
  for (unsigned seed = 0; seed < 3000; ++seed) {
    std::mt19937 random(seed);
    const bool of_spec = seed % 2 == 0;
    std::string text = of_spec ? spec : values;
    for (unsigned edits = 1 + random() % 4; edits > 0; --edits) {
      const std::size_t at = random() % (text.size() + 1);
      const unsigned kind = random() % 4;
      if (kind == 0) text.insert(at, kPieces[random() % kPieces.size()]);
      if (kind == 1) text.erase(at, 1 + random() % 8);
      if (kind == 2 && at < text.size()) text[at] = static_cast<char>(random());
      if (kind == 3) text.resize(at);
    }
    std::optional<Error> error;
    if (of_spec) {
      auto parsed = parse_golden_spec(text, "damaged.golden.json");
      if (!parsed) error = parsed.error();
    } else {
      auto parsed = parse_golden_values(text, "damaged.received.json");
      if (!parsed) error = parsed.error();
    }
    if (!error) continue;
    ++refused;
    ASSERT_EQ(error->code, AS_BAD_INPUT) << "seed " << seed << ": " << error->text();
    ASSERT_EQ(error->message.rfind("damaged.", 0), 0u) << "seed " << seed << ": " << error->text();
    ASSERT_EQ(error->text().find('\n'), std::string::npos) << "seed " << seed;
  }
  EXPECT_GT(refused, 2000);
}

TEST(GoldenFiles, HostileValuesAreRefusedByName) {
  const std::string text = golden_values_text(computed(spec_of()));
  const auto refused = [&](const char* from, const char* to, const char* says) {
    auto values = parse_golden_values(with(text, from, to), "x.accepted.json");
    ASSERT_FALSE(values) << from;
    EXPECT_NE(values.error().text().find(says), std::string::npos) << values.error().text();
  };
  refused("\"version\": 1", "\"version\": 99", "newer program: version 99");
  refused("\"name\": \"small\"", "\"name\": \"../small\"", "name");
  refused("\"shape\":[2,512]", "\"shape\":[9223372036854775807,512]", "shape");
  refused("\"shape\":[2,512]", "\"shape\":[1099511627776,1099511627776]", "shape");
  refused("\"shape\":[2,512]", "\"shape\":[1,1]", "requests");
  refused("\"checksums\":[\"", "\"checksums\":[\"x", "no checksum");
  refused("\"dtype\":\"bf16\"", "\"dtype\":\"fp7\"", "dtype");
  refused("\"op\":\"compress_insert\"", "\"op\":\"none\"", "there is no op");
  refused("\"tap\":\"row\"", "\"tap\":7", "tap");
  refused("\"tap\":\"row\"", "\"tap\":\"row\",\"tip\":1", "unknown key");
  refused("\"sampled\": []", "\"sampled\": [[1,2]]", "sampled");
  refused("\"machine\":{}", "\"machine\":{\"SIMD\":3}", "machine.SIMD");
  refused("\"taps\": [", "\"taps\": {\"a\":[", "line");
}

TEST(GoldenNames, LeaveNoFolder) {
  for (const char* good : {"a", "op_wo_b", "v4-flash.layer2"}) EXPECT_TRUE(is_golden_name(good));
  for (const char* bad : {"", ".", "..", "../a", "a/b", "a\\b", ".hidden", "a..b", "a b", "a\n"}) {
    EXPECT_FALSE(is_golden_name(bad)) << bad;
  }
}

// As a model or a scenario is called, with '-' in the place of '_'.
TEST(GoldenNames, AreFoundAsModelsAreCalled) {
  auto folder = GoldenFolder::open(ATTNSCOPE_SOURCE_DIR "/tests/goldens");
  ASSERT_TRUE(folder) << folder.error().text();
  auto names = folder->select({"tiny-llama", "op_wo_b", "tiny_gemma"});
  ASSERT_TRUE(names) << names.error().text();
  EXPECT_EQ(*names, (std::vector<std::string>{"tiny_llama", "op_wo_b", "tiny_gemma"}));
  auto none = folder->select({"tiny-lama"});
  ASSERT_FALSE(none);
  EXPECT_NE(none.error().text().find("did you mean tiny_llama?"), std::string::npos)
      << none.error().text();
}

}  // namespace golden_test
}  // namespace attnscope
