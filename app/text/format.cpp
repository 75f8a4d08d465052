#include "app/text/format.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdlib>

#include "app/text/text.h"
#include "engine/io/nearest.h"
#include "engine/io/plural.h"
#include "kernels/params/op_table.h"

namespace attnscope {
namespace {

const char* not_finite(double value) {
  if (std::isnan(value)) return "NaN";
  return value > 0 ? "inf" : "-inf";
}

void drop_trailing_zeros(std::string& text) {
  if (text.find('.') == std::string::npos) return;
  text.erase(text.find_last_not_of('0') + 1);
  if (text.back() == '.') text.pop_back();
}

// `digits` significant digits; plain for decimal exponents in [least, most], else as 1.2e-4.
std::string significant(double value, int digits, int least, int most) {
  if (!std::isfinite(value)) return not_finite(value);
  if (value == 0) return "0";
  const std::string text = fmt::format("{:.{}e}", value, digits - 1);  // "-1.235e-04"
  const std::size_t e = text.find('e');
  const int exponent = std::stoi(text.substr(e + 1));
  if (exponent >= least && exponent <= most) {
    std::string plain = fmt::format("{:.{}f}", value, std::max(0, digits - 1 - exponent));
    drop_trailing_zeros(plain);
    return plain;
  }
  std::string mantissa = text.substr(0, e);
  drop_trailing_zeros(mantissa);
  return fmt::format("{}e{}", mantissa, exponent);
}

// One unit of a scale and the size at which the next larger one takes over.
struct Unit {
  const char* name;
  double size;
};

// `digits` significant digits in the first unit whose successor the rounded value does not reach;
// digits before the point are never rounded away.
template <std::size_t N>
std::string with_unit(double value, const std::array<Unit, N>& units, int digits) {
  if (!std::isfinite(value)) return not_finite(value);
  std::string number;
  std::size_t i = 0;
  for (;; ++i) {
    const double scaled = value / units[i].size;
    number = significant(scaled, digits, -2, digits - 1);
    if (std::fabs(scaled) >= 1 && std::fabs(scaled) < 1e6 && number.find('e') != number.npos) {
      number = fmt::format("{:.0f}", scaled);
    }
    if (i + 1 == N) break;
    const double next = units[i + 1].size / units[i].size;
    if (std::fabs(std::strtod(number.c_str(), nullptr)) < next) break;
  }
  return fmt::format("{} {}", number, units[i].name);
}

constexpr std::array<Unit, 5> kBytes = {{{"B", 1},
                                         {"KiB", 1024.0},
                                         {"MiB", 1024.0 * 1024},
                                         {"GiB", 1024.0 * 1024 * 1024},
                                         {"TiB", 1024.0 * 1024 * 1024 * 1024}}};
constexpr std::array<Unit, 4> kTimes = {{{"ns", 1e-3}, {"µs", 1}, {"ms", 1e3}, {"s", 1e6}}};

template <class T>
bool whole_number(std::string_view text, T& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size() && value >= 0;
}

constexpr const char* kPlaceHint = "write STEP/LAYER/OP, such as 7/2/indexer_topk or 7/-/schedule";

Result<as_op_id> parse_op(std::string_view text) {
  const std::string name(text);
  const std::int32_t id = as_step_op_by_name(name.c_str());
  if (id >= 0) return static_cast<as_op_id>(id);
  std::vector<std::string> names;
  std::string all;
  for (std::int32_t i = 0; i < AS_OP_COUNT; ++i) {
    names.emplace_back(as_op_find(i)->name);
    all += (i > 0 ? ", " : "") + names.back();
  }
  const std::vector<std::string> near = nearest_names(name, names);
  return bad_input(fmt::format("there is no op \"{}\"", shortened(text)),
                   near.empty() ? fmt::format("ops: {}", all)
                                : fmt::format("did you mean {}?", fmt::join(near, ", ")));
}

}  // namespace

std::string format_number(double value) { return significant(value, 4, -3, 3); }

std::string format_exact(double value) {
  return std::isfinite(value) ? fmt::format("{}", value) : not_finite(value);
}

std::string format_error(double value) { return significant(value, 2, -2, 1); }

std::string format_bytes(double bytes) { return with_unit(bytes, kBytes, 3); }

std::string format_us(double microseconds) { return with_unit(microseconds, kTimes, 3); }

std::string format_count(std::int64_t count) {
  constexpr std::string_view kThinSpace = "\u2009";
  const std::string digits = std::to_string(count);
  const std::size_t sign = count < 0 ? 1 : 0;
  std::string out = digits.substr(0, sign);
  for (std::size_t i = sign; i < digits.size(); ++i) {
    if (i > sign && (digits.size() - i) % 3 == 0) out += kThinSpace;
    out += digits[i];
  }
  return out;
}

std::string plural(std::int64_t n, const char* one, const char* many) {
  return fmt::format("{} {}", format_count(n), agree(n, one, many));
}

std::string format_share(double share) {
  if (!std::isfinite(share)) return not_finite(share);
  const double percent = share * 100;
  if (percent == 0) return "0 %";
  const double size = std::fabs(percent);
  if (percent > 0 && percent < 0.1) return "< 0.1 %";
  if (percent > 99.9 && percent < 100) return "> 99.9 %";
  const bool fraction = size < 9.95 || (size >= 99 && size < 100);
  std::string text = fmt::format("{:.{}f}", percent, fraction ? 1 : 0);
  drop_trailing_zeros(text);
  return (text == "-0" ? "0" : text) + " %";
}

std::string format_token(std::int32_t token) {
  if (token < 0) return "none";
  if (token >= 0x20 && token < 0x7f) return fmt::format("'{}'", static_cast<char>(token));
  if (token > 0xff) return fmt::format("#{}", token);  // of another engine's vocabulary
  return fmt::format("0x{:02X}", token);
}

std::string format_place(const Place& place) {
  const as_op_info* op = as_op_find(place.op);
  const std::string name =
      op != nullptr ? op->name : fmt::format("op {}", static_cast<int>(place.op));
  if (place.layer < 0) return fmt::format("step {} · {}", place.step, name);
  return fmt::format("step {} · layer {} · {}", place.step, place.layer, name);
}

Result<Place> parse_place(std::string_view text) {
  const std::string_view whole = trimmed(text);
  const std::size_t first = whole.find('/');
  const std::size_t second = first == std::string_view::npos ? first : whole.find('/', first + 1);
  if (second == std::string_view::npos || whole.find('/', second + 1) != std::string_view::npos) {
    return bad_input(fmt::format("\"{}\" is no place", shortened(whole)), kPlaceHint);
  }
  const std::string_view step = trimmed(whole.substr(0, first));
  const std::string_view layer = trimmed(whole.substr(first + 1, second - first - 1));
  const std::string_view op = trimmed(whole.substr(second + 1));
  Place place;
  if (!whole_number(step, place.step)) {
    return bad_input(fmt::format("place \"{}\": step \"{}\" is no number from 0 up",
                                 shortened(whole), shortened(step)),
                     kPlaceHint);
  }
  if (layer != "-" && !whole_number(layer, place.layer)) {
    return bad_input(fmt::format("place \"{}\": layer \"{}\" is neither a number from 0 up nor - "
                                 "(outside the layers)",
                                 shortened(whole), shortened(layer)),
                     kPlaceHint);
  }
  const Result<as_op_id> id = parse_op(op);
  if (!id) {
    return bad_input(fmt::format("place \"{}\": {}", shortened(whole), id.error().message),
                     id.error().hint);
  }
  place.op = *id;
  const int phase = as_op_find(place.op)->phase;
  if (phase == AS_PHASE_LAYER && place.layer < 0) {
    return bad_input(fmt::format("place \"{}\": {} runs in layers", shortened(whole), op),
                     fmt::format("write {}/LAYER/{}", place.step, op));
  }
  // The ops of the head are those of a draft layer's too.
  if (phase == AS_PHASE_BEFORE && place.layer >= 0) {
    return bad_input(fmt::format("place \"{}\": {} runs outside the layers", shortened(whole), op),
                     fmt::format("write {}/-/{}", place.step, op));
  }
  return place;
}

}  // namespace attnscope
