// The theme as ImGui's and ImPlot's styles.
#include <fmt/format.h>
#include <imgui.h>
#include <implot.h>

#include <algorithm>
#include <string>
#include <vector>

#include "app/gui/colour.h"
#include "app/gui/themes.h"

namespace attnscope::gui {
namespace {

constexpr float kTextSize = 14;  // pixels at scale 1

float& scale_in_force() {
  static float scale = 1;
  return scale;
}

ImVec4 vec(ImU32 colour, float alpha = 1) {
  return ImGui::ColorConvertU32ToFloat4(with_alpha(colour, alpha));
}

void set_sizes(ImGuiStyle& s) {
  s.WindowPadding = {8, 7};
  s.FramePadding = {7, 3};
  s.CellPadding = {6, 2};
  s.ItemSpacing = {7, 4};
  s.ItemInnerSpacing = {5, 4};
  s.IndentSpacing = 16;
  s.ScrollbarSize = 11;
  s.GrabMinSize = 10;
  s.WindowBorderSize = s.ChildBorderSize = s.PopupBorderSize = 1;
  s.FrameBorderSize = 0;
  s.TabBorderSize = 0;
  s.TabBarBorderSize = 1;
  s.TabBarOverlineSize = 2;
  s.WindowRounding = s.ChildRounding = s.FrameRounding = s.PopupRounding = 4;
  s.ScrollbarRounding = s.GrabRounding = s.TabRounding = 4;
  s.WindowMinSize = {60, 40};
  s.WindowTitleAlign = {0, 0.5f};
  s.WindowMenuButtonPosition = ImGuiDir_None;
  s.SeparatorTextBorderSize = 1;
  s.SeparatorTextPadding = {0, 4};
  s.DockingSeparatorSize = 3;
  s.HoverDelayShort = 0.12f;
  s.HoverDelayNormal = 0.35f;
}

void set_colours(ImGuiStyle& s, const Theme& t) {
  const ImU32 clear = with_alpha(t.panel, 0);
  const ImU32 field = t.dark ? mix(t.panel, t.raised, 0.6f) : mix(t.panel, t.border, 0.28f);
  const ImU32 button = t.dark ? t.raised : mix(t.panel, t.border, 0.48f);
  const ImU32 hovered = mix(button, t.accent, 0.22f);
  const ImU32 active = mix(button, t.accent, 0.40f);
  const ImU32 bar = t.dark ? t.surface : mix(t.surface, t.panel, 0.4f);
  ImVec4* c = s.Colors;
  c[ImGuiCol_Text] = vec(t.text);
  c[ImGuiCol_TextDisabled] = vec(t.text_dim);
  c[ImGuiCol_WindowBg] = c[ImGuiCol_TabSelected] = c[ImGuiCol_TabDimmedSelected] = vec(t.panel);
  c[ImGuiCol_ChildBg] = c[ImGuiCol_BorderShadow] = vec(clear, 0);
  c[ImGuiCol_PopupBg] = vec(t.dark ? mix(t.panel, t.raised, 0.5f) : t.raised);
  c[ImGuiCol_Border] = vec(t.border);
  c[ImGuiCol_FrameBg] = vec(field);
  c[ImGuiCol_FrameBgHovered] = vec(mix(field, t.accent, 0.12f));
  c[ImGuiCol_FrameBgActive] = vec(mix(field, t.accent, 0.22f));
  c[ImGuiCol_TitleBg] = c[ImGuiCol_TitleBgActive] = c[ImGuiCol_TitleBgCollapsed] = vec(bar);
  c[ImGuiCol_MenuBarBg] = c[ImGuiCol_DockingEmptyBg] = vec(bar);
  c[ImGuiCol_ScrollbarBg] = vec(clear, 0);
  c[ImGuiCol_ScrollbarGrab] = vec(t.border);
  c[ImGuiCol_ScrollbarGrabHovered] = vec(mix(t.border, t.text_faint, 0.5f));
  c[ImGuiCol_ScrollbarGrabActive] = vec(t.text_faint);
  c[ImGuiCol_CheckMark] = c[ImGuiCol_TextLink] = vec(t.accent);
  c[ImGuiCol_SliderGrab] = vec(mix(field, t.accent, 0.5f));
  c[ImGuiCol_CheckboxSelectedBg] = vec(mix(field, t.accent, 0.25f));
  c[ImGuiCol_SliderGrabActive] = vec(mix(field, t.accent, 0.75f));
  c[ImGuiCol_Button] = vec(button);
  c[ImGuiCol_ButtonHovered] = vec(hovered);
  c[ImGuiCol_ButtonActive] = vec(active);
  // Verdicts are read on them: no stronger than their words bear.
  c[ImGuiCol_Header] = vec(t.accent, 0.15f);
  c[ImGuiCol_HeaderHovered] = vec(t.accent, 0.10f);
  c[ImGuiCol_HeaderActive] = vec(t.accent, 0.24f);
  c[ImGuiCol_Separator] = vec(t.border);
  c[ImGuiCol_SeparatorHovered] = vec(t.accent_soft);
  c[ImGuiCol_SeparatorActive] = c[ImGuiCol_DockingPreview] = vec(t.accent);
  c[ImGuiCol_DockingPreview].w = 0.4f;
  c[ImGuiCol_ResizeGrip] = vec(t.border, 0.5f);
  c[ImGuiCol_ResizeGripHovered] = vec(t.accent_soft);
  c[ImGuiCol_ResizeGripActive] = vec(t.accent);
  c[ImGuiCol_InputTextCursor] = vec(t.text);
  c[ImGuiCol_Tab] = c[ImGuiCol_TabDimmed] = vec(bar);
  c[ImGuiCol_TabHovered] = vec(mix(t.panel, t.accent, 0.20f));
  c[ImGuiCol_TabSelectedOverline] = vec(t.accent);
  c[ImGuiCol_TabDimmedSelectedOverline] = vec(t.border);
  c[ImGuiCol_PlotLines] = c[ImGuiCol_PlotHistogram] = vec(t.accent);
  c[ImGuiCol_PlotLinesHovered] = c[ImGuiCol_PlotHistogramHovered] = vec(t.text);
  c[ImGuiCol_TableHeaderBg] = vec(mix(t.panel, t.raised, t.dark ? 0.45f : 0.9f));
  c[ImGuiCol_TableBorderStrong] = vec(t.border);
  c[ImGuiCol_TableBorderLight] = vec(t.grid);
  c[ImGuiCol_TableRowBg] = vec(clear, 0);
  c[ImGuiCol_TableRowBgAlt] = vec(t.text, 0.025f);
  c[ImGuiCol_TextSelectedBg] = vec(t.accent, 0.35f);
  c[ImGuiCol_TreeLines] = vec(t.grid);
  c[ImGuiCol_DragDropTarget] = c[ImGuiCol_NavCursor] = vec(t.accent);
  c[ImGuiCol_DragDropTargetBg] = vec(t.accent, 0.12f);
  c[ImGuiCol_UnsavedMarker] = vec(t.text);
  c[ImGuiCol_NavWindowingHighlight] = vec(t.accent, 0.7f);
  c[ImGuiCol_NavWindowingDimBg] = c[ImGuiCol_ModalWindowDimBg] = vec(t.surface, 0.6f);
}

// ImPlot keeps colour maps by name for good: one for every set of owners that was in force.
ImPlotColormap owner_colormap(const Theme& t) {
  std::string name = "owners";
  std::vector<ImVec4> colours;
  for (const ImU32 owner : t.owners) {
    name += fmt::format(" {:08x}", owner);
    colours.push_back(vec(owner));
  }
  const ImPlotColormap known = ImPlot::GetColormapIndex(name.c_str());
  if (known >= 0) return known;
  return ImPlot::AddColormap(name.c_str(), colours.data(), static_cast<int>(colours.size()));
}

void set_plots(const Theme& t, float scale) {
  ImPlotStyle s;
  s.Colormap = owner_colormap(t);
  s.PlotDefaultSize = {300 * scale, 180 * scale};
  s.PlotMinSize = {80 * scale, 50 * scale};
  s.PlotBorderSize = 1;
  s.MinorAlpha = 0.4f;
  s.MajorTickLen = {4 * scale, 4 * scale};
  s.MinorTickLen = {2 * scale, 2 * scale};
  s.PlotPadding = {6 * scale, 6 * scale};
  s.LabelPadding = {4 * scale, 3 * scale};
  s.LegendPadding = {6 * scale, 6 * scale};
  s.LegendInnerPadding = {5 * scale, 3 * scale};
  s.LegendSpacing = {6 * scale, 1 * scale};
  s.MousePosPadding = {6 * scale, 6 * scale};
  s.FitPadding = {0.02f, 0.06f};
  ImVec4* c = s.Colors;
  c[ImPlotCol_FrameBg] = vec(t.panel, 0);
  c[ImPlotCol_PlotBg] = vec(t.surface, t.dark ? 0.6f : 0.35f);
  c[ImPlotCol_PlotBorder] = c[ImPlotCol_LegendBorder] = vec(t.border);
  c[ImPlotCol_LegendBg] = vec(t.raised, 0.9f);
  c[ImPlotCol_LegendText] = c[ImPlotCol_TitleText] = c[ImPlotCol_InlayText] = vec(t.text);
  c[ImPlotCol_AxisText] = vec(t.text_dim);
  c[ImPlotCol_AxisGrid] = vec(t.grid);
  c[ImPlotCol_AxisTick] = vec(t.border);
  c[ImPlotCol_AxisBg] = vec(t.panel, 0);
  c[ImPlotCol_AxisBgHovered] = vec(t.accent, 0.12f);
  c[ImPlotCol_AxisBgActive] = vec(t.accent, 0.22f);
  c[ImPlotCol_Selection] = c[ImPlotCol_Crosshairs] = vec(t.accent);
  ImPlot::GetStyle() = s;
}

}  // namespace

float ui_scale() { return scale_in_force(); }

void apply_theme(const Theme& theme, float scale) {
  constexpr float kLeast = 0.5f, kMost = 6;
  scale = scale > 0 ? std::clamp(scale, kLeast, kMost) : 1;  // NaN: 1
  set_current_theme(theme);
  scale_in_force() = scale;
  if (ImGui::GetCurrentContext() == nullptr) return;
  ImGuiStyle style;
  set_sizes(style);
  set_colours(style, theme);
  style.ScaleAllSizes(scale);
  style.FontSizeBase = kTextSize;
  style.FontScaleMain = scale;
  style.FontScaleDpi = ImGui::GetStyle().FontScaleDpi;
  ImGui::GetStyle() = style;
  if (ImPlot::GetCurrentContext() != nullptr) set_plots(theme, scale);
}

}  // namespace attnscope::gui
