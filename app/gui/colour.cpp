#include "app/gui/colour.h"

#include <algorithm>
#include <cmath>

namespace attnscope::gui {
namespace {

float channel(ImU32 colour, int shift) {
  return static_cast<float>((colour >> shift) & 0xff) / 255.0f;
}

float to_linear(float c) {
  return c <= 0.04045f ? c / 12.92f : std::pow((c + 0.055f) / 1.055f, 2.4f);
}

ImU32 to_byte(float linear) {
  const float c = std::clamp(linear, 0.0f, 1.0f);
  const float s = c <= 0.0031308f ? c * 12.92f : 1.055f * std::pow(c, 1 / 2.4f) - 0.055f;
  return static_cast<ImU32>(std::lround(s * 255));
}

std::array<float, 3> linear(ImU32 colour) {
  return {to_linear(channel(colour, IM_COL32_R_SHIFT)),
          to_linear(channel(colour, IM_COL32_G_SHIFT)),
          to_linear(channel(colour, IM_COL32_B_SHIFT))};
}

}  // namespace

// Oklab: Björn Ottosson, "A perceptual color space for image processing", 2020.
Lab to_lab(ImU32 colour) {
  const auto [r, g, b] = linear(colour);
  const float l = std::cbrt(0.4122214708f * r + 0.5363325363f * g + 0.0514459929f * b);
  const float m = std::cbrt(0.2119034982f * r + 0.6806995451f * g + 0.1073969566f * b);
  const float s = std::cbrt(0.0883024619f * r + 0.2817188376f * g + 0.6299787005f * b);
  return {0.2104542553f * l + 0.7936177850f * m - 0.0040720468f * s,
          1.9779984951f * l - 2.4285922050f * m + 0.4505937099f * s,
          0.0259040371f * l + 0.7827717662f * m - 0.8086757660f * s};
}

ImU32 from_lab(const Lab& lab) {
  const auto cube = [](float x) { return x * x * x; };
  const float l = cube(lab.l + 0.3963377774f * lab.a + 0.2158037573f * lab.b);
  const float m = cube(lab.l - 0.1055613458f * lab.a - 0.0638541728f * lab.b);
  const float s = cube(lab.l - 0.0894841775f * lab.a - 1.2914855480f * lab.b);
  return IM_COL32(to_byte(4.0767416621f * l - 3.3077115913f * m + 0.2309699292f * s),
                  to_byte(-1.2684380046f * l + 2.6097574011f * m - 0.3413193965f * s),
                  to_byte(-0.0041960863f * l - 0.7034186147f * m + 1.7076147010f * s), 0xff);
}

ImU32 from_lch(float lightness, float chroma, float hue) {
  const float angle = hue * 3.14159265f / 180;
  return from_lab({lightness, chroma * std::cos(angle), chroma * std::sin(angle)});
}

ImU32 mix(ImU32 from, ImU32 to, float t) {
  const Lab a = to_lab(from), b = to_lab(to);
  return from_lab({a.l + (b.l - a.l) * t, a.a + (b.a - a.a) * t, a.b + (b.b - a.b) * t});
}

float luminance(ImU32 colour) {
  const auto [r, g, b] = linear(colour);
  return 0.2126f * r + 0.7152f * g + 0.0722f * b;
}

float contrast(ImU32 a, ImU32 b) {
  const float x = luminance(a), y = luminance(b);
  return (std::max(x, y) + 0.05f) / (std::min(x, y) + 0.05f);
}

ImU32 over(ImU32 colour, ImU32 background) {
  const float alpha = channel(colour, IM_COL32_A_SHIFT);
  const auto blend = [&](int shift) {
    const float c = channel(colour, shift) * alpha + channel(background, shift) * (1 - alpha);
    return static_cast<ImU32>(std::lround(c * 255)) << shift;
  };
  return blend(IM_COL32_R_SHIFT) | blend(IM_COL32_G_SHIFT) | blend(IM_COL32_B_SHIFT) |
         IM_COL32_A_MASK;
}

ImU32 layered(ImU32 front, ImU32 back) {
  const float near = channel(front, IM_COL32_A_SHIFT);
  const float far = channel(back, IM_COL32_A_SHIFT) * (1 - near);
  const float alpha = near + far;
  if (!(alpha > 0)) return 0;
  const auto blend = [&](int shift) {
    const float c = (channel(front, shift) * near + channel(back, shift) * far) / alpha;
    return static_cast<ImU32>(std::lround(c * 255)) << shift;
  };
  return blend(IM_COL32_R_SHIFT) | blend(IM_COL32_G_SHIFT) | blend(IM_COL32_B_SHIFT) |
         static_cast<ImU32>(std::lround(alpha * 255)) << IM_COL32_A_SHIFT;
}

}  // namespace attnscope::gui
