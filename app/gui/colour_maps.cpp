// Magnitude and signed maps: tables of 256 colours between a few control points, mixed in Oklab so
// that lightness grows evenly.
#include <algorithm>
#include <array>
#include <cmath>

#include "app/gui/colour.h"
#include "app/gui/theme.h"

namespace attnscope::gui {
namespace {

using Table = std::array<ImU32, 256>;

// Points at even distances.
template <std::size_t N>
Table table(const std::array<ImU32, N>& points) {
  Table out{};
  for (std::size_t i = 0; i < out.size(); ++i) {
    const float at = static_cast<float>(i) / 255.0f * static_cast<float>(N - 1);
    const std::size_t left = std::min(static_cast<std::size_t>(at), N - 2);
    out[i] = mix(points[left], points[left + 1], at - static_cast<float>(left));
  }
  return out;
}

// From violet through blue, teal and green to yellow: lightness 0.25 to 0.94 in even steps.
Table colourful() {
  return table(std::array<ImU32, 6>{from_lch(0.250f, 0.115f, 306), from_lch(0.388f, 0.115f, 278),
                                    from_lch(0.526f, 0.085f, 229), from_lch(0.664f, 0.120f, 166),
                                    from_lch(0.802f, 0.170f, 134), from_lch(0.940f, 0.185f, 106)});
}

Table greys() { return table(std::array<ImU32, 2>{from_lch(0.20f, 0, 0), from_lch(0.98f, 0, 0)}); }

bool& grey() {
  static bool on = false;
  return on;
}

struct SignedMap {
  ImU32 negative = 0, surface = 0, positive = 0;
  Table colours{};
};

std::size_t cell(float unit) {  // NaN: 0
  return unit > 0 ? static_cast<std::size_t>(std::lround(std::min(unit, 1.0f) * 255)) : 0;
}

}  // namespace

void use_grey_magnitude(bool on) { grey() = on; }

ImU32 magnitude_colour(float unit) {
  static const Table kColours = colourful(), kGreys = greys();
  return (grey() ? kGreys : kColours)[cell(unit)];
}

ImU32 signed_colour(float unit) {
  static SignedMap map;
  const Theme& t = theme();
  if (map.negative != t.negative || map.surface != t.surface || map.positive != t.positive) {
    map = {t.negative, t.surface, t.positive,
           table(std::array<ImU32, 3>{t.negative, t.surface, t.positive})};
  }
  if (!(unit < 0) && !(unit > 0)) return t.surface;
  return map.colours[cell((unit + 1) / 2)];
}

}  // namespace attnscope::gui
