// Numbers as the screen and reports show them: at most 4 significant digits, units, no jargon.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "engine/session/step/step_trace.h"
#include "kernels/params/result.h"

namespace attnscope {

std::string format_number(double value);           // "0.3125", "1.2e-4", "-inf", "NaN"
std::string format_exact(double value);            // shortest text that reads back the same
std::string format_error(double value);            // "0", "1.2e-4"
std::string format_bytes(double bytes);            // "584 B", "36.6 KiB", "1.4 GiB"
std::string format_us(double microseconds);        // "8.1 µs", "3.3 ms", "1.04 s"
std::string format_count(std::int64_t count);      // "2 104" with thin grouping
std::string format_share(double share);            // 0..1 as "31 %", "0.4 %", "< 0.1 %"
std::string format_token(std::int32_t token);      // printable byte as "'a'", else "0x0A"
std::string format_place(const Place& place);      // "step 7 · layer 2 · indexer_topk"
Result<Place> parse_place(std::string_view text);  // "7/2/indexer_topk", layer "-" = none
// "1 tap", "2 104 taps"
std::string plural(std::int64_t n, const char* one, const char* many);

}  // namespace attnscope
