// Colour arithmetic: sRGB bytes, linear light and Oklab, in which equal steps look equal.
#pragma once

#include <imgui.h>

#include <array>

namespace attnscope::gui {

// 0xRRGGBB, opaque.
constexpr ImU32 rgb(unsigned value) {
  return IM_COL32((value >> 16) & 0xff, (value >> 8) & 0xff, value & 0xff, 0xff);
}

struct Lab {
  float l = 0, a = 0, b = 0;
};

Lab to_lab(ImU32 colour);
ImU32 from_lab(const Lab& lab);  // opaque; clamped to what sRGB can show
// Lightness 0..1, chroma 0..about 0.3, hue in degrees.
ImU32 from_lch(float lightness, float chroma, float hue);
// At t = 0..1 between two colours, through Oklab.
ImU32 mix(ImU32 from, ImU32 to, float t);
// Relative luminance 0..1 and contrast ratio 1..21, as WCAG 2 defines them.
float luminance(ImU32 colour);
float contrast(ImU32 a, ImU32 b);
// As it looks on an opaque background.
ImU32 over(ImU32 colour, ImU32 background);
// Two layers as one colour, drawn where both would have been; either may be translucent.
ImU32 layered(ImU32 front, ImU32 back);

}  // namespace attnscope::gui
