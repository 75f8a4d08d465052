// What a golden keeps of a run. Floats as sampled values and statistics, which hold within
// tolerances on any SIMD level and library; integers, tables and quantised bytes as checksums, each
// beside a checksum of what it was computed from where that is floats: other bytes are a fault only
// where the row before quantisation was the same. Selected entries as sets.
//
// NAME.accepted.json and NAME.received.json hold one GoldenValues each, one line a tap.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "engine/capture/capture_index.h"
#include "engine/golden/golden_spec.h"
#include "engine/model/model_config.h"
#include "engine/trace/tap_stats.h"

namespace attnscope {

inline constexpr const char* kGoldenFormat = "attnscope-golden";
inline constexpr const char* kGoldenValuesFormat = "attnscope-golden-values";
inline constexpr int kGoldenVersion = 1;
inline constexpr const char* kSpecSuffix = ".golden.json";
inline constexpr const char* kAcceptedSuffix = ".accepted.json";
inline constexpr const char* kReceivedSuffix = ".received.json";
// The most that a golden in the repository may take.
inline constexpr std::size_t kSmallGolden = 64 << 10;

// A run of whole rows (last axis) of a float tap.
struct GoldenRange {
  double mean = 0, rms = 0, max = 0;  // max: of magnitudes; finite values alone
};

// One row of a tap that is compared by checksum, or all of it. given: of the values it was computed
// from, empty = integers alone.
struct GoldenPart {
  std::string checksum, given;
};

struct GoldenTap {
  std::string where;  // "4/2/sparse_attention", or the name of a case
  as_op_id op = AS_OP_SCHEDULE;
  std::int64_t step = 0;
  std::string tap, rule, lane;
  std::int32_t dtype = AS_F32;
  std::vector<std::int64_t> shape;
  std::vector<std::int32_t> requests;  // of each row of the first axis; empty = not by request
  // floats
  std::optional<TapStats> stats;  // its checksum is not kept
  std::vector<std::int64_t> at;   // flat elements
  std::vector<double> values;     // there
  std::vector<GoldenRange> ranges;
  // integers and bytes
  std::vector<GoldenPart> parts;
  std::vector<std::int64_t> numbers;  // all elements, of a small one
  // selected entries, by row: "0-99,104"
  std::vector<std::string> sets;

  // Of the run that received it, not of a file: the scores that a row's choice was made by.
  std::vector<std::vector<double>> scores;
  std::vector<std::int32_t> lens;  // visible ones of each row

  std::int64_t elements() const;
};

struct GoldenToken {
  std::int64_t step = 0;
  std::int32_t request = 0, token = 0;
  std::vector<double> scores;  // as in GoldenTap
};

enum class GoldenVerdict {
  kEqual,       // same values
  kWithin,      // within its tolerance
  kNearTie,     // another choice among scores that tie within the score tolerance
  kFollows,     // other bytes, of other (tolerated) values before quantisation or selection; other
                // values of another lane whose ops are all right on their own inputs
  kLeftOut,     // of a request that took another token after a near tie
  kWithheld,    // an optional inner result that this lane does not show
  kWrong,       // beyond its tolerance
  kMissing,     // accepted, and not received
  kUnexpected,  // received, and not among the accepted
};
inline constexpr int kGoldenVerdicts = 9;
const char* golden_verdict_name(GoldenVerdict verdict);
inline bool is_failure(GoldenVerdict v) { return v >= GoldenVerdict::kWrong; }

struct GoldenFinding {
  std::string where, tap;
  GoldenVerdict verdict = GoldenVerdict::kEqual;
  double budget_used = 0;  // worst, in units of its bound; infinite where the bound is equality
  std::string note;        // evidence; empty for equal ones
};

// Who accepted or received values, where and why.
struct GoldenOrigin {
  std::string reason;  // empty: not accepted
  std::string commit;
  std::string program;
  std::vector<CaptureProperty> machine;  // processor, SIMD, GPU, driver, ..
};

struct GoldenValues {
  std::string name;
  std::string definition;  // GoldenSpec::digest
  std::string inputs;      // of the scenario's model, limits and prompts; empty for an op alone
  std::string lanes;
  int profiles =
      kProfilesVersion;  // what the scenario's profile means; 1 where a file says nothing
  GoldenOrigin origin;
  std::vector<GoldenToken> sampled;
  std::vector<GoldenTap> taps;
  // Received ones alone: where they differ from the accepted ones, and how.
  std::vector<GoldenFinding> findings;
  // judged: of a run whose ops were held against ref.sim, each on its own inputs
  // (GoldenRunOptions::judged). fault: what the run found wrong of itself, such as the first of
  // these ops; or empty.
  bool judged = false;
  std::string fault;
};

std::string golden_values_text(const GoldenValues& values);
Result<GoldenValues> parse_golden_values(const std::string& text, const std::string& path);

// AS_BAD_INPUT unless `json` is an object of this format and of a version that is known: "no
// golden" and "too new" are different answers.
Result<void> check_golden_format(const nlohmann::json& json, const std::string& path,
                                 const char* format);

// Sorted entries as "0-99,104", and back; std::nullopt = not such a text.
std::string set_text(std::vector<std::int32_t> entries);
std::optional<std::vector<std::int32_t>> parse_set(const std::string& text);

// A number as the file keeps it: the fewest digits that give back the value of this dtype.
double short_number(double value, std::int32_t dtype);
// The value of the dtype that a file's number stands for.
double full_number(double value, std::int32_t dtype);

}  // namespace attnscope
