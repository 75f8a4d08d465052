// The built-in themes, the theme in force, and what its colours stand for.
#include "app/gui/theme.h"

#include <array>
#include <cmath>

#include "app/gui/colour.h"
#include "app/gui/icons.h"
#include "app/gui/themes.h"

namespace attnscope::gui {
namespace {

// Of the colour for what a format rounds: healthy is calm, and amber is for what needs a look.
constexpr float kQuantisedGrey = 0.55f;

Theme& current() {
  static Theme theme = dark_theme();
  return theme;
}

std::uint64_t& version() {
  static std::uint64_t count = 1;
  return count;
}

}  // namespace

// Verdicts, accent and owners stay apart for colour-blind readers: by lightness where the hues
// meet.
Theme dark_theme() {
  Theme t;
  t.name = "dark";
  t.dark = true;
  t.surface = rgb(0x14161a);
  t.panel = rgb(0x1b1e23);
  t.raised = rgb(0x282c33);
  t.border = rgb(0x373d47);
  t.grid = rgb(0x2a2f37);
  t.text = rgb(0xe6e6e6);
  t.text_dim = rgb(0xa3aab4);
  t.text_faint = rgb(0x8b939f);
  t.accent = rgb(0x7cc7ff);
  t.accent_soft = rgb(0x4f86ad);
  t.good = rgb(0x57d08f);
  t.warn = rgb(0xf3a81c);
  t.bad = rgb(0xfa6538);
  t.tie = rgb(0xb780f6);
  t.none = rgb(0x8f969f);
  t.hatch = rgb(0x4a515c);
  t.nan_cell = rgb(0xff2fd6);
  t.inf_positive = rgb(0xffffff);
  t.inf_negative = rgb(0x000000);
  t.out_of_range = rgb(0xff9a6b);
  t.window_part = rgb(0x3f74e0);
  t.compressed_part = rgb(0xd9cf4a);
  t.sink_part = rgb(0xe56aa8);
  t.negative = rgb(0x5aa2ff);
  t.positive = rgb(0xff8c3a);
  t.owners = {rgb(0x3f74e0), rgb(0xf08a24), rgb(0x2a8a72), rgb(0xe56aa8),
              rgb(0xd9cf4a), rgb(0xb49df2), rgb(0xb0482c), rgb(0x93dcc0)};
  return t;
}

Theme light_theme() {
  Theme t;
  t.name = "light";
  t.dark = false;
  t.surface = rgb(0xe6e8ec);
  t.panel = rgb(0xf7f8fa);
  t.raised = rgb(0xffffff);
  t.border = rgb(0xc6cbd3);
  t.grid = rgb(0xdfe2e7);
  t.text = rgb(0x1c1f24);
  t.text_dim = rgb(0x515863);
  t.text_faint = rgb(0x69707c);
  t.accent = rgb(0x0b57b0);
  t.accent_soft = rgb(0x6fa3dc);
  t.good = rgb(0x176f38);
  t.warn = rgb(0x8c5500);
  t.bad = rgb(0x920b18);
  t.tie = rgb(0x7636dc);
  t.none = rgb(0x5a626e);
  t.hatch = rgb(0xb4bac4);
  t.nan_cell = rgb(0xe000b8);
  t.inf_positive = rgb(0xffffff);
  t.inf_negative = rgb(0x000000);
  t.out_of_range = rgb(0xc2410c);
  t.window_part = rgb(0x3a68e0);
  t.compressed_part = rgb(0xa58a10);
  t.sink_part = rgb(0xd65a9c);
  t.negative = rgb(0x1552c4);
  t.positive = rgb(0xc24a00);
  t.owners = {rgb(0x3a68e0), rgb(0xef9a30), rgb(0x0b6f5e), rgb(0xd65a9c),
              rgb(0xa58a10), rgb(0xb198f5), rgb(0xa03a16), rgb(0x66c2aa)};
  return t;
}

const Theme& theme() { return current(); }

std::uint64_t theme_version() { return version(); }

void set_current_theme(const Theme& theme) {
  current() = theme;
  ++version();
}

ImU32 verdict_colour(Verdict verdict) {
  const Theme& t = theme();
  switch (verdict) {
    case Verdict::kEqual:
    case Verdict::kRounding:
      return t.good;
    case Verdict::kQuantisation:
      return mix(t.good, t.none, kQuantisedGrey);
    case Verdict::kNearTie:
      return t.tie;
    case Verdict::kWrong:
      return t.bad;
    case Verdict::kNotCompared:
      break;
  }
  return t.none;
}

const char* verdict_glyph(Verdict verdict) {
  switch (verdict) {
    case Verdict::kEqual:
      return icon::kCheck;
    case Verdict::kRounding:
      return icon::kApprox;
    case Verdict::kQuantisation:
      return icon::kStairs;
    case Verdict::kNearTie:
      return icon::kTie;
    case Verdict::kWrong:
      return icon::kCross;
    case Verdict::kNotCompared:
      break;
  }
  return icon::kMinus;
}

ImU32 owner_colour(int index) {
  const Theme& t = theme();
  if (index < 0) return t.none;
  const int count = static_cast<int>(t.owners.size());
  if (index < count) return t.owners[static_cast<std::size_t>(index)];
  // By the golden angle, which never comes back to where it was; lightness in three steps besides.
  constexpr float kGoldenAngle = 137.508f;
  const int step = index - count;
  const float lightness = (t.dark ? 0.62f : 0.50f) + 0.09f * static_cast<float>(step % 3);
  return from_lch(lightness, 0.12f, std::fmod(kGoldenAngle * static_cast<float>(step), 360.0f));
}

ImU32 with_alpha(ImU32 colour, float alpha) {
  alpha = alpha > 0 ? std::min(alpha, 1.0f) : 0;  // NaN: 0
  const auto byte = static_cast<ImU32>(std::lround(alpha * 255));
  return (colour & ~IM_COL32_A_MASK) | (byte << IM_COL32_A_SHIFT);
}

}  // namespace attnscope::gui
