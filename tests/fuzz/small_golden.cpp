#include "tests/fuzz/small_golden.h"

#include <filesystem>

#include "engine/golden/golden_run.h"
#include "kernels/cpu/cpu_lane.h"
#include "tests/fuzz/judge.h"

namespace attnscope::fuzz {
namespace {

constexpr const char* kScenario = R"({"version": 1, "model": {"preset": "tiny", "layers": [0, 1]},
  "pool_blocks": 24, "requests": [{"name": "one", "text": "abcdefghi", "max_new_tokens": 2}]})";

// Every kind of value: floats, integers, bytes with what they came from, sets, sampled tokens.
constexpr const char* kDefinition = R"({"format": "attnscope-golden", "version": 1,
  "about": "a small one", "scenario": "prompt", "lanes": ["cpu"], "steps": 2, "rows": 2,
  "samples": 4, "taps": [{"op": "schedule"}, {"op": "slot_mapping", "steps": "0-1"},
  {"op": "q_rope_kv_insert", "layers": [0]}, {"op": "indexer_topk", "taps": ["indices"]},
  {"op": "sparse_attention", "taps": ["o", "lse"], "layers": [0, 1]}],
  "tolerances": [{"class": "dense", "op": "wo_b", "row_max": 0.01, "reason": "a test"}]})";

const Tolerances& tolerances() {
  static const Tolerances loaded = must(Tolerances::load(""));
  return loaded;
}

}  // namespace

SmallGolden::SmallGolden(const std::string& folder) : folder_(folder) {
  std::filesystem::create_directories(folder);
  write_bytes(folder + "/prompt.json", kScenario);
  definition_ = kDefinition;
  write_bytes(definition_file(), definition_);
  LaneRegistry lanes;
  lanes.add(*cpu::lane());
  GoldenRunOptions options;
  options.threads = 1;
  const GoldenFolder goldens = must(GoldenFolder::open(folder));
  received_ = must(compute_golden(must(goldens.spec(kGoldenName)), lanes, options));
  received_.origin.reason = "the first";
  received_.origin.machine = {{"processor", "any"}};
  accepted_ = golden_values_text(received_);
  write_bytes(accepted_file(), accepted_);
}

std::string SmallGolden::definition_file() const {
  return folder_ + "/" + kGoldenName + kSpecSuffix;
}
std::string SmallGolden::accepted_file() const {
  return folder_ + "/" + kGoldenName + kAcceptedSuffix;
}

std::string SmallGolden::judge() const {
  const auto goldens = GoldenFolder::open(folder_);
  if (!goldens) return goldens.error().text();
  goldens->orphans();
  const auto spec = goldens->spec(kGoldenName);
  if (!spec) return judge_error(spec.error(), definition_file());
  loosened_tolerances(*spec, tolerances());
  const auto values = goldens->values(kGoldenName, kAcceptedSuffix);
  if (!values) return judge_error(values.error(), accepted_file());
  const std::string text = golden_values_text(*values);
  const auto again = parse_golden_values(text, accepted_file());
  if (!again) return "what was read is refused when it is written: " + again.error().text();
  if (golden_values_text(*again) != text) return "what was read is written as something else";
  const auto compared = compare_golden(*spec, *values, received_, tolerances());
  if (!compared) return judge_error(compared.error(), kGoldenName);
  compared->sentence();
  for (const GoldenTap& a : values->taps) {
    for (const GoldenTap& b : received_.taps) {
      if (a.where != b.where || a.tap != b.tap) continue;
      golden_deltas(a, b, 8);
      golden_deltas(b, a, 8);  // a review reads both sides from files
    }
  }
  return "";
}

}  // namespace attnscope::fuzz
