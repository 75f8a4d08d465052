#include "app/gui/theme.h"

#include <fmt/format.h>
#include <implot.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "app/gui/icons.h"
#include "engine/config/json_file.h"
#include "engine/config/scenario.h"

namespace attnscope::gui {
namespace {

constexpr ImU32 rgb(std::uint32_t hex, std::uint32_t alpha = 255) {
  return IM_COL32(hex >> 16 & 255, hex >> 8 & 255, hex & 255, alpha);
}

Theme dark_theme() {
  Theme t;
  t.name = "dark";
  t.dark = true;
  t.surface = rgb(0x16181c);
  t.panel = rgb(0x1d2025);
  t.raised = rgb(0x2a2e35);
  t.border = rgb(0x3a3f48);
  t.grid = rgb(0x2f343c);
  t.text = rgb(0xe6e6e6);
  t.text_dim = rgb(0xa4abb6);
  t.text_faint = rgb(0x767e8b);
  t.accent = rgb(0x4cc2ff);
  t.accent_soft = rgb(0x4cc2ff, 120);
  t.good = rgb(0x3fa66b);
  t.warn = rgb(0xe0a432);
  t.bad = rgb(0xe5484d);
  t.tie = rgb(0xa879e6);
  t.none = rgb(0x59616d);
  t.hatch = rgb(0x5b636f);
  t.nan_cell = rgb(0xff2fd0);
  t.inf_positive = rgb(0xffffff);
  t.inf_negative = rgb(0x000000);
  t.out_of_range = rgb(0xff7a2f);
  t.window_part = rgb(0x5b9bd5);
  t.compressed_part = rgb(0x57b99a);
  t.sink_part = rgb(0xd9a441);
  t.owners = {rgb(0x5b9bd5), rgb(0xe08a4f), rgb(0x57b99a), rgb(0xc678b5),
              rgb(0xd3b84a), rgb(0x8f8ae0), rgb(0xd96c75), rgb(0x7fa650)};
  return t;
}

Theme light_theme() {
  Theme t = dark_theme();
  t.name = "light";
  t.dark = false;
  t.surface = rgb(0xe9ebee);
  t.panel = rgb(0xf7f8f9);
  t.raised = rgb(0xffffff);
  t.border = rgb(0xc3c8d0);
  t.grid = rgb(0xdfe2e7);
  t.text = rgb(0x1c2026);
  t.text_dim = rgb(0x545c68);
  t.text_faint = rgb(0x7f8793);
  t.accent = rgb(0x0a76c4);
  t.accent_soft = rgb(0x0a76c4, 110);
  t.good = rgb(0x2b8a56);
  t.warn = rgb(0xb57a05);
  t.bad = rgb(0xcc2f37);
  t.tie = rgb(0x7d4cc0);
  t.none = rgb(0xb4bac3);
  t.hatch = rgb(0xa2a9b4);
  t.nan_cell = rgb(0xd613ab);
  t.out_of_range = rgb(0xd95f14);
  t.window_part = rgb(0x3b7fc0);
  t.compressed_part = rgb(0x2f9877);
  t.sink_part = rgb(0xc08a1c);
  t.owners = {rgb(0x3b7fc0), rgb(0xcf7030), rgb(0x2f9877), rgb(0xb05a9d),
              rgb(0xb3962a), rgb(0x6a64c8), rgb(0xc44d57), rgb(0x64893a)};
  return t;
}

struct NamedColour {
  const char* name;
  ImU32 Theme::*field;
};
constexpr std::array<NamedColour, 23> kColours = {{
    {"surface", &Theme::surface},
    {"panel", &Theme::panel},
    {"raised", &Theme::raised},
    {"border", &Theme::border},
    {"grid", &Theme::grid},
    {"text", &Theme::text},
    {"text_dim", &Theme::text_dim},
    {"text_faint", &Theme::text_faint},
    {"accent", &Theme::accent},
    {"accent_soft", &Theme::accent_soft},
    {"good", &Theme::good},
    {"warn", &Theme::warn},
    {"bad", &Theme::bad},
    {"tie", &Theme::tie},
    {"none", &Theme::none},
    {"hatch", &Theme::hatch},
    {"nan_cell", &Theme::nan_cell},
    {"inf_positive", &Theme::inf_positive},
    {"inf_negative", &Theme::inf_negative},
    {"out_of_range", &Theme::out_of_range},
    {"window_part", &Theme::window_part},
    {"compressed_part", &Theme::compressed_part},
    {"sink_part", &Theme::sink_part},
}};

// "#rrggbb" or "#rrggbbaa".
bool parse_colour(const nlohmann::json& value, ImU32& colour) {
  if (!value.is_string()) return false;
  const std::string text = value.get<std::string>();
  if ((text.size() != 7 && text.size() != 9) || text[0] != '#' ||
      text.find_first_not_of("0123456789abcdefABCDEF", 1) != std::string::npos) {
    return false;
  }
  const auto hex = static_cast<std::uint32_t>(std::stoul(text.substr(1, 6), nullptr, 16));
  const auto alpha =
      text.size() == 9 ? static_cast<std::uint32_t>(std::stoul(text.substr(7), nullptr, 16)) : 255u;
  colour = rgb(hex, alpha);
  return true;
}

std::string theme_path(const std::string& name) {
  if (name.find('/') != std::string::npos || name.find(".json") != std::string::npos) return name;
  auto assets = assets_folder();
  return assets ? *assets + "/themes/" + name + ".json" : name;
}

Result<Theme> read_theme(const std::string& name) {
  const std::string path = theme_path(name);
  auto text = read_text_file(path, std::size_t{1} << 20);
  if (!text) {
    std::string names;
    for (const std::string& known : theme_names()) names += (names.empty() ? "" : ", ") + known;
    return bad_input(fmt::format("theme {}: {}", name.substr(0, 200), text.error().message),
                     "themes: " + names + ", or a path");
  }
  auto json = parse_json(*text, path);
  if (!json) return json.error();
  const auto wrong = [&](const std::string& what, const std::string& hint) {
    return bad_input(fmt::format("{}: {}", path, what), hint);
  };
  if (!json->is_object()) return wrong("is no JSON object", "see assets/themes/high_contrast.json");
  for (const auto& [key, value] : json->items()) {
    if (key != "version" && key != "base" && key != "colours") {
      return wrong("unknown key " + key, "allowed: version, base, colours");
    }
  }
  if (json->value("version", nlohmann::json()) != 1) return wrong("version is not 1", "");
  const nlohmann::json base = json->value("base", nlohmann::json("dark"));
  if (base != "dark" && base != "light") return wrong("base is unknown", "allowed: dark, light");
  Theme theme = base == "dark" ? dark_theme() : light_theme();
  theme.name = name;
  const nlohmann::json colours = json->value("colours", nlohmann::json::object());
  if (!colours.is_object()) return wrong("colours is no object", "");
  for (const auto& [key, value] : colours.items()) {
    const auto* found = std::find_if(kColours.begin(), kColours.end(),
                                     [&](const NamedColour& c) { return key == c.name; });
    if (found == kColours.end()) {
      std::string names;
      for (const NamedColour& c : kColours)
        names += fmt::format("{}{}", names.empty() ? "" : ", ", c.name);
      return wrong("colours: unknown key " + key, "allowed: " + names);
    }
    if (!parse_colour(value, theme.*(found->field))) {
      return wrong(fmt::format("colours.{}: {} is no colour", key, value.dump().substr(0, 40)),
                   "write \"#rrggbb\" or \"#rrggbbaa\"");
    }
  }
  return theme;
}

Theme& current() {
  static Theme theme = dark_theme();
  return theme;
}
float& scale_in_force() {
  static float scale = 1;
  return scale;
}
bool& grey_map() {
  static bool grey = false;
  return grey;
}

ImU32 mix(ImU32 a, ImU32 b, float t) {
  const auto channel = [&](int shift) {
    const auto x = static_cast<float>(a >> shift & 255);
    const auto y = static_cast<float>(b >> shift & 255);
    return static_cast<ImU32>(std::lround(x + (y - x) * t)) << shift;
  };
  return channel(0) | channel(8) | channel(16) | channel(24);
}

template <std::size_t N>
ImU32 ramp(const std::array<ImU32, N>& stops, float unit) {
  const float at = std::clamp(unit, 0.0f, 1.0f) * static_cast<float>(N - 1);
  const auto i = std::min(static_cast<std::size_t>(at), N - 2);
  return mix(stops[i], stops[i + 1], at - static_cast<float>(i));
}

void apply_imgui_colours(const Theme& t) {
  ImVec4* c = ImGui::GetStyle().Colors;
  const auto set = [&](ImGuiCol at, ImU32 colour) {
    c[at] = ImGui::ColorConvertU32ToFloat4(colour);
  };
  if (t.dark) {
    ImGui::StyleColorsDark();
    ImPlot::StyleColorsDark();
  } else {
    ImGui::StyleColorsLight();
    ImPlot::StyleColorsLight();
  }
  set(ImGuiCol_Text, t.text);
  set(ImGuiCol_TextDisabled, t.text_faint);
  set(ImGuiCol_WindowBg, t.panel);
  set(ImGuiCol_ChildBg, 0);
  set(ImGuiCol_PopupBg, t.raised);
  set(ImGuiCol_Border, t.border);
  set(ImGuiCol_FrameBg, t.dark ? t.raised : t.surface);
  set(ImGuiCol_FrameBgHovered, mix(t.raised, t.accent, 0.25f));
  set(ImGuiCol_FrameBgActive, mix(t.raised, t.accent, 0.4f));
  set(ImGuiCol_TitleBg, t.surface);
  set(ImGuiCol_TitleBgActive, t.surface);
  set(ImGuiCol_TitleBgCollapsed, t.surface);
  set(ImGuiCol_MenuBarBg, t.surface);
  set(ImGuiCol_ScrollbarBg, 0);
  set(ImGuiCol_ScrollbarGrab, t.border);
  set(ImGuiCol_CheckMark, t.accent);
  set(ImGuiCol_SliderGrab, t.accent);
  set(ImGuiCol_SliderGrabActive, t.accent);
  set(ImGuiCol_Button, t.raised);
  set(ImGuiCol_ButtonHovered, mix(t.raised, t.accent, 0.3f));
  set(ImGuiCol_ButtonActive, mix(t.raised, t.accent, 0.5f));
  set(ImGuiCol_Header, mix(t.panel, t.accent, 0.22f));
  set(ImGuiCol_HeaderHovered, mix(t.panel, t.accent, 0.3f));
  set(ImGuiCol_HeaderActive, mix(t.panel, t.accent, 0.4f));
  set(ImGuiCol_Separator, t.border);
  set(ImGuiCol_SeparatorHovered, t.accent);
  set(ImGuiCol_SeparatorActive, t.accent);
  set(ImGuiCol_ResizeGrip, 0);
  set(ImGuiCol_Tab, t.surface);
  set(ImGuiCol_TabHovered, mix(t.panel, t.accent, 0.3f));
  set(ImGuiCol_TabSelected, t.panel);
  set(ImGuiCol_TabSelectedOverline, t.accent);
  set(ImGuiCol_TabDimmed, t.surface);
  set(ImGuiCol_TabDimmedSelected, t.panel);
  set(ImGuiCol_TabDimmedSelectedOverline, t.border);
  set(ImGuiCol_DockingPreview, with_alpha(t.accent, 0.5f));
  set(ImGuiCol_DockingEmptyBg, t.surface);
  set(ImGuiCol_TableHeaderBg, t.dark ? t.raised : t.surface);
  set(ImGuiCol_TableBorderStrong, t.border);
  set(ImGuiCol_TableBorderLight, t.grid);
  set(ImGuiCol_TableRowBg, 0);
  set(ImGuiCol_TableRowBgAlt, with_alpha(t.text, 0.025f));
  set(ImGuiCol_TextSelectedBg, with_alpha(t.accent, 0.35f));
  set(ImGuiCol_NavCursor, t.accent);
  set(ImGuiCol_PlotHistogram, t.accent);
  set(ImGuiCol_ModalWindowDimBg, IM_COL32(0, 0, 0, 110));
  ImVec4* p = ImPlot::GetStyle().Colors;
  const auto plot = [&](ImPlotCol at, ImU32 colour) {
    p[at] = ImGui::ColorConvertU32ToFloat4(colour);
  };
  plot(ImPlotCol_FrameBg, 0);
  plot(ImPlotCol_PlotBg, t.dark ? t.surface : t.raised);
  plot(ImPlotCol_PlotBorder, t.border);
  plot(ImPlotCol_AxisText, t.text_dim);
  plot(ImPlotCol_AxisGrid, t.grid);
  plot(ImPlotCol_LegendBg, t.raised);
}

}  // namespace

std::vector<std::string> theme_names() {
  std::vector<std::string> names;
  if (auto assets = assets_folder()) {
    std::error_code error;
    for (const auto& entry : std::filesystem::directory_iterator(*assets + "/themes", error)) {
      if (entry.path().extension() == ".json") names.push_back(entry.path().stem().string());
    }
  }
  std::sort(names.begin(), names.end());
  names.insert(names.begin(), {"dark", "light"});
  return names;
}

Result<Theme> load_theme(const std::string& name) {
  if (name == "dark") return dark_theme();
  if (name == "light") return light_theme();
  return read_theme(name);
}

const Theme& theme() { return current(); }

void apply_theme(const Theme& theme, float scale) {
  current() = theme;
  scale_in_force() = scale;
  ImGuiStyle style;  // from the start: scaling twice would add up
  style.FontSizeBase = 14;
  style.FontScaleMain = scale;
  style.WindowRounding = style.ChildRounding = style.FrameRounding = 4;
  style.PopupRounding = style.GrabRounding = style.TabRounding = 4;
  style.ScrollbarRounding = 6;
  style.WindowPadding = ImVec2(8, 6);
  style.FramePadding = ImVec2(7, 3);
  style.ItemSpacing = ImVec2(7, 5);
  style.CellPadding = ImVec2(5, 2);
  style.ScrollbarSize = 11;
  style.WindowBorderSize = style.ChildBorderSize = style.PopupBorderSize = 1;
  style.TabBarOverlineSize = 2;
  style.DockingSeparatorSize = 3;
  style.WindowMenuButtonPosition = ImGuiDir_None;
  style.SeparatorTextBorderSize = 1;
  style.ScaleAllSizes(scale);
  ImGui::GetStyle() = style;
  ImPlotStyle plot;
  plot.PlotPadding = ImVec2(6 * scale, 6 * scale);
  plot.LabelPadding = ImVec2(4 * scale, 3 * scale);
  plot.LegendPadding = ImVec2(6 * scale, 4 * scale);
  plot.PlotMinSize = ImVec2(60 * scale, 40 * scale);
  ImPlot::GetStyle() = plot;
  apply_imgui_colours(theme);
}

float ui_scale() { return scale_in_force(); }

ImU32 verdict_colour(Verdict verdict) {
  const Theme& t = theme();
  switch (verdict) {
    case Verdict::kEqual:
    case Verdict::kRounding:
      return t.good;
    case Verdict::kQuantisation:
      return t.warn;
    case Verdict::kNearTie:
      return t.tie;
    case Verdict::kWrong:
      return t.bad;
    default:
      return t.none;
  }
}

const char* verdict_glyph(Verdict verdict) {
  switch (verdict) {
    case Verdict::kEqual:
      return icon::kCheck;
    case Verdict::kRounding:
      return icon::kApprox;
    case Verdict::kQuantisation:
      return "q";
    case Verdict::kNearTie:
      return icon::kTie;
    case Verdict::kWrong:
      return icon::kCross;
    default:
      return "?";
  }
}

ImU32 owner_colour(int index) {
  if (index < 0) return theme().none;
  const auto& owners = theme().owners;
  const int known = static_cast<int>(owners.size());
  if (index < known) return owners[static_cast<std::size_t>(index)];
  // The golden angle keeps neighbours apart, however many there are.
  const float hue = std::fmod(static_cast<float>(index - known) * 0.381966f + 0.07f, 1.0f);
  float r = 0, g = 0, b = 0;
  ImGui::ColorConvertHSVtoRGB(hue, 0.55f, theme().dark ? 0.8f : 0.65f, r, g, b);
  return ImGui::ColorConvertFloat4ToU32(ImVec4(r, g, b, 1));
}

ImU32 magnitude_colour(float unit) {
  static constexpr std::array<ImU32, 6> kGrey = {rgb(0x101215), rgb(0x3d4045), rgb(0x6a6d72),
                                                 rgb(0x989b9f), rgb(0xc7c9cc), rgb(0xf4f5f6)};
  // Dark blue over teal to yellow, lightness rising evenly: readable without colour vision too.
  static constexpr std::array<ImU32, 7> kColour = {rgb(0x2b1055), rgb(0x3d3f8c), rgb(0x2f6d8f),
                                                   rgb(0x239089), rgb(0x45b370), rgb(0x9dce4a),
                                                   rgb(0xf4e43a)};
  return grey_map() ? ramp(kGrey, unit) : ramp(kColour, unit);
}

ImU32 signed_colour(float unit) {
  const ImU32 zero = theme().dark ? theme().raised : theme().surface;
  static constexpr std::array<ImU32, 3> kPositive = {rgb(0xb45a2c), rgb(0xe8873e), rgb(0xffd08a)};
  static constexpr std::array<ImU32, 3> kNegative = {rgb(0x2b62a8), rgb(0x3f93e0), rgb(0x9fd6ff)};
  const float size = std::clamp(std::fabs(unit), 0.0f, 1.0f);
  const auto& stops = unit < 0 ? kNegative : kPositive;
  return size < 0.34f ? mix(zero, stops[0], size / 0.34f) : ramp(stops, (size - 0.34f) / 0.66f);
}

ImU32 with_alpha(ImU32 colour, float alpha) {
  const auto a = static_cast<ImU32>(std::lround(std::clamp(alpha, 0.0f, 1.0f) * 255));
  return (colour & ~IM_COL32_A_MASK) | a << IM_COL32_A_SHIFT;
}

void use_grey_magnitude(bool grey) { grey_map() = grey; }

}  // namespace attnscope::gui
