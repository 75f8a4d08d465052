#include "app/gui/study_picture.h"

#include <fmt/format.h>
#include <implot.h>

#include "app/gui/theme.h"
#include "app/text/format.h"
#include "app/text/say.h"

namespace attnscope::gui {
namespace {

constexpr int kStudyWidth = 1800, kStudyHeight = 640;  // pixels: three plots beside each other

void setup_ticks(ImAxis axis, const std::vector<double>& ticks, bool whole) {
  if (ticks.empty()) return;
  std::vector<std::string> texts;
  std::vector<const char*> labels;
  texts.reserve(ticks.size());
  labels.reserve(ticks.size());
  for (const double tick : ticks) {
    texts.push_back(whole ? format_count(static_cast<std::int64_t>(tick))
                          : fmt::format("{:g}", tick));
    labels.push_back(texts.back().c_str());
  }
  ImPlot::SetupAxisTicks(axis, ticks.data(), static_cast<int>(ticks.size()), labels.data());
}

void draw_page(const CacheStudyView& view) {
  ImGui::SetNextWindowPos({0, 0});
  ImGui::SetNextWindowSize(ImGui::GetIO().DisplaySize);
  ImGui::Begin(
      "##study", nullptr,
      ImGuiWindowFlags_NoDecoration | ImGuiWindowFlags_NoMove | ImGuiWindowFlags_NoSavedSettings);
  ImGui::PushTextWrapPos(0);
  ImGui::TextUnformatted(view.sentence.data(), view.sentence.data() + view.sentence.size());
  ImGui::PopTextWrapPos();
  const ImVec2 room = ImGui::GetContentRegionAvail();
  const float gap = ImGui::GetStyle().ItemSpacing.x;
  const auto across = static_cast<float>(view.plots.size());
  for (std::size_t i = 0; i < view.plots.size(); ++i) {
    if (i > 0) ImGui::SameLine(0, gap);
    draw_study_plot(view.plots[i], {(room.x - gap * (across - 1)) / across, room.y});
  }
  ImGui::End();
}

}  // namespace

bool names_study_curves(ImVec2 size) { return size.x >= px(400); }

void draw_study_plot(const StudyPlot& plot, ImVec2 size) {
  const ImPlotFlags flags = ImPlotFlags_NoMenus | ImPlotFlags_NoMouseText |
                            (names_study_curves(size) ? 0 : ImPlotFlags_NoLegend);
  if (!ImPlot::BeginPlot(plot.title.c_str(), size, flags)) return;
  ImPlot::SetupAxis(ImAxis_X1, "tokens", ImPlotAxisFlags_AutoFit);
  ImPlot::SetupAxis(ImAxis_Y1, nullptr,
                    plot.y_ticks.size() > 1 ? ImPlotAxisFlags_None : ImPlotAxisFlags_AutoFit);
  ImPlot::SetupAxisScale(ImAxis_X1, ImPlotScale_Log10);
  if (plot.log_y) ImPlot::SetupAxisScale(ImAxis_Y1, ImPlotScale_Log10);
  setup_ticks(ImAxis_X1, plot.x_ticks, true);
  setup_ticks(ImAxis_Y1, plot.y_ticks, !plot.log_y);
  if (plot.y_ticks.size() > 1) {
    ImPlot::SetupAxisLimits(ImAxis_Y1, plot.y_ticks.front(), plot.y_ticks.back(),
                            ImPlotCond_Always);
  }
  ImPlot::SetupLegend(ImPlotLocation_East, ImPlotLegendFlags_Outside);
  for (const StudyCurve& curve : plot.curves) {
    ImPlotSpec line;
    line.LineColor = ImGui::ColorConvertU32ToFloat4(owner_colour(curve.place));
    line.Marker = ImPlotMarker_Circle;
    line.MarkerSize = px(2);
    line.MarkerFillColor = line.MarkerLineColor = line.LineColor;
    ImPlot::PlotLine(curve.name.c_str(), curve.x.data(), curve.y.data(),
                     static_cast<int>(curve.x.size()), line);
  }
  ImPlot::EndPlot();
}

StudyPicture::StudyPicture() {
  ImGui::CreateContext();
  ImPlot::CreateContext();
  ImGui::GetIO().IniFilename = nullptr;
  ImGui::GetIO().LogFilename = nullptr;
}

StudyPicture::~StudyPicture() {
  platform_.reset();  // its renderer lives in the contexts
  ImPlot::DestroyContext();
  ImGui::DestroyContext();
}

Result<std::unique_ptr<StudyPicture>> StudyPicture::open() {
  std::unique_ptr<StudyPicture> picture(new StudyPicture());
  auto platform = make_offscreen(kStudyWidth, kStudyHeight);
  if (!platform) return platform.error();
  picture->platform_ = std::move(*platform);
  for (const std::string& problem : load_fonts().problems) say(stderr, "attnscope: {}\n", problem);
  const auto light = load_theme("light");
  if (!light) return light.error();
  apply_theme(*light, 1);
  return picture;
}

Result<Image> StudyPicture::draw(const CacheStudyView& view) {
  constexpr int kFrames = 4;  // texts and axes need some to find their sizes
  for (int i = 0; i < kFrames; ++i) {
    platform_->begin_frame(0);
    ImGui::NewFrame();
    draw_page(view);
    ImGui::Render();
    if (auto ok = platform_->render(); !ok) return ok.error();
  }
  return platform_->read_pixels();
}

}  // namespace attnscope::gui
