// The definition of a golden, NAME.golden.json: what is run and which of its values a build must
// keep to. JSON with comments, written by people. Beside it stand the values that were accepted,
// NAME.accepted.json, and after a failure those that were received, NAME.received.json
// (golden_values.h).
//
//   {
//     "format": "attnscope-golden",
//     "version": 1,
//     "about": "what it guards, in one sentence",
//     "scenario": "default",          // a name from assets/scenarios, or a file beside the golden
//     "lanes": ["cpu"],               // optional: ["cpu"]; LANE or OP=LANE
//     "steps": 8,                     // scheduler iterations that run
//     "rows": 4,                      // optional: 4; token rows of a step that are kept
//     "samples": 24,                  // optional: 24; values of a float tap that are kept
//     "taps": [                       // outputs; every entry adds to what is kept
//       {"op": "sparse_attention", "taps": ["o"], "layers": [0, 2], "steps": "3,5-7"}],
//     "tolerances": [                 // optional: bounds in place of those of the class
//       {"class": "dense", "op": "wo_b", "tap": "y", "row_max": 0.01, "reason": "why it may"}]
//   }
//
// In place of scenario, steps and taps, an op alone on inputs made from a seed (op_inputs.h):
//
//     "op": "sparse_attention",
//     "cases": [{"name": "one token", "lengths": [5], "new_tokens": 1, "seed": 1}],
//
// or on the inputs of a case that was saved beside it (NAME.json, NAME.safetensors):
//
//     "case": "NAME",
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/capture/capture_options.h"
#include "engine/trace/tolerances.h"

namespace attnscope {

// Outputs of an op. Empty lists: all of them, everywhere.
struct GoldenTaps {
  as_op_id op = AS_OP_SCHEDULE;
  std::vector<std::string> taps;
  std::vector<int> layers;  // published; -1 = outside the layers
  std::vector<CaptureFilter::Range> steps;

  bool admits(const Place& place, std::string_view tap) const;
};

// Replaces bounds of the class for the taps it names. Empty texts: any.
struct GoldenTolerance {
  std::string rule, op, tap;  // rule: the class
  std::optional<double> abs, rel, bf16_ulp, row_max, score_rel;
  std::string reason;

  bool names(std::string_view a_rule, std::string_view an_op, std::string_view a_tap) const;
  // "class dense, op wo_b: row_max 0.01".
  std::string text() const;
};

// Inputs of one op: requests of `lengths` tokens, of which the last `new_tokens` each are computed.
struct GoldenCase {
  std::string name;
  std::vector<std::int64_t> lengths;
  std::int64_t new_tokens = 1;
  std::uint64_t seed = 1;
};

struct GoldenSpec {
  std::string name;  // the file's, without .golden.json
  std::string path;
  std::string about;
  std::string scenario;    // empty = an op alone
  std::string saved_case;  // of the op case; empty = none
  std::optional<as_op_id> op;
  std::vector<GoldenCase> cases;
  std::vector<std::string> lanes;
  std::int64_t steps = 0, rows = 0, samples = 0;
  std::vector<GoldenTaps> taps;
  std::vector<GoldenTolerance> tolerances;
  // Of all that decides which values are kept: another one makes accepted values stale.
  std::string digest;

  bool wants(const Place& place, std::string_view tap) const;
};

// `path` ends in NAME.golden.json. AS_BAD_INPUT names the place and the allowed values; a file of a
// newer program says so.
Result<GoldenSpec> parse_golden_spec(const std::string& text, const std::string& path);

// The bounds of a tap: the class with this golden's replacements, first match first. `loosened`:
// the replacements that allow more than the class.
struct GoldenBound {
  Tolerance tolerance;
  std::optional<GoldenTolerance> loosened;
};
Result<GoldenBound> golden_bound(const GoldenSpec& spec, const Tolerances& tolerances, as_op_id op,
                                 std::string_view tap, std::string_view lane, std::string_view rule,
                                 std::string_view dtype);

// A class that no tolerance file has would loosen nothing, in silence.
Result<void> check_classes(const GoldenSpec& spec, const Tolerances& tolerances);

// Replacements that allow more than the class they name (every class, where they name none).
std::vector<GoldenTolerance> loosened_tolerances(const GoldenSpec& spec,
                                                 const Tolerances& tolerances);

// Letters, digits, '_', '-' and inner dots: nothing that leaves the folder.
bool is_golden_name(std::string_view name);

}  // namespace attnscope
