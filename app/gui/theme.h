// Colours and fonts. A colour means one thing everywhere: owner, magnitude, signed error, verdict.
#pragma once

#include <imgui.h>

#include <cstdint>
#include <string>
#include <vector>

#include "engine/trace/tap_result.h"
#include "kernels/params/result.h"

namespace attnscope::gui {

struct Theme {
  std::string name;
  bool dark = true;
  ImU32 surface, panel, raised, border, grid;  // backgrounds, from back to front, and lines
  ImU32 text, text_dim, text_faint;
  ImU32 accent;                      // the selection, everywhere
  ImU32 accent_soft;                 // hover: what a click would select
  ImU32 good, warn, bad, tie, none;  // verdicts: green, amber, red, violet, grey
  ImU32 hatch;                       // lines of null entries
  ImU32 nan_cell, inf_positive, inf_negative, out_of_range;
  ImU32 window_part, compressed_part, sink_part;  // the three parts of attention
  ImU32 negative, positive;                       // ends of the signed map
  std::vector<ImU32> owners;                      // 8 categorical colours
};

// Built-in "dark" and "light", or a JSON file (assets/themes/NAME.json or a path) that changes some
// of dark's or light's colours. Errors name file, key and allowed values.
Result<Theme> load_theme(const std::string& name_or_path);
std::vector<std::string> theme_names();

// The theme in force. Never null; "dark" until set.
const Theme& theme();
// Applies colours and spacing to ImGui and ImPlot. scale: of text and spacing.
void apply_theme(const Theme& theme, float scale);
// Another number after each apply_theme(): whoever keeps colours compares it.
std::uint64_t theme_version();

ImU32 verdict_colour(Verdict verdict);
const char* verdict_glyph(Verdict verdict);  // icon font: check, approx, bell, cross, ..
ImU32 owner_colour(int index);               // 0..7 categorical, then by hue step; < 0 = none
ImU32 magnitude_colour(float unit);          // 0..1, Viridis-like (or grey, by setting)
ImU32 signed_colour(float unit);             // -1..1, diverging; 0 = the theme's surface grey
ImU32 with_alpha(ImU32 colour, float alpha);
void use_grey_magnitude(bool grey);

// ---- fonts: words in a proportional face, numbers in a monospaced one, icons merged into both
struct FontReport {
  std::vector<std::string> problems;  // "Inter not found in ..; the built-in font is used .."
};
std::string icon_font();  // the file that the build fetched
// Into the current ImGui context, before its first frame.
FontReport load_fonts(const std::string& icons_file = icon_font());
// The context's own font where load_fonts() was not called for it.
ImFont* words();
ImFont* numbers();
float ui_scale();  // what lengths in code are multiplied by
inline float px(float pixels) { return pixels * ui_scale(); }

}  // namespace attnscope::gui
