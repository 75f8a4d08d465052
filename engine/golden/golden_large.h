// A golden that takes more than a repository's may. Its accepted values lie in a folder of the
// machine; NAME.accepted.json holds a record of them, with a checksum of their integers:
//
//   {"format": "attnscope-golden-large", "version": 1,
//    "bytes": 181223, "digest": "..",               of the text of all values
//    "integers": "..", "integer_taps": 14,          checksum over those that are exact everywhere
//    "values": {"format": "attnscope-golden-values", .., "taps": []}}
//
// Where the folder has them not, a run makes them anew from the scenario, provided that its
// integers are the accepted ones.
#pragma once

#include <cstdint>
#include <string>

#include "engine/golden/golden_values.h"

namespace attnscope {

inline constexpr const char* kLargeGoldenFormat = "attnscope-golden-large";

struct LargeGolden {
  GoldenValues values;  // who accepted what, sampled tokens; no taps
  std::int64_t bytes = 0;
  std::string digest;
  std::string integers;
  std::int64_t integer_taps = 0;

  // Names of the files with the values: the accepted ones, or those that a run made.
  std::string accepted_file() const;
  std::string made_file() const;
  // Whether values are of the same definition and inputs, with the same integers.
  bool is_of(const GoldenValues& all) const;
};

// text: golden_values_text(all).
LargeGolden make_large_golden(const GoldenValues& all, const std::string& text);
std::string large_golden_text(const LargeGolden& large);
// Whether a file of accepted values is a record of large ones.
bool is_large_golden(const std::string& text);
Result<LargeGolden> parse_large_golden(const std::string& text, const std::string& path);

}  // namespace attnscope
