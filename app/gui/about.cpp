#include "app/gui/about.h"

#include <fmt/format.h>
#include <implot.h>

#include <nlohmann/json.hpp>

#include "app/gui/widgets.h"
#include "kernels/cpu/cpu_lane.h"

namespace attnscope::gui {
namespace {

std::string compiler() {
#if defined(__clang__)
  return fmt::format("clang {}.{}", __clang_major__, __clang_minor__);
#else
  return fmt::format("g++ {}.{}", __GNUC__, __GNUC_MINOR__);
#endif
}

void row(const char* name, const std::string& value) {
  ImGui::TableNextRow();
  ImGui::TableNextColumn();
  coloured(theme().text_dim, name);
  ImGui::TableNextColumn();
  ImGui::TextWrapped("%s", value.c_str());
}

}  // namespace

void About::register_commands(Ui& ui) {
  ui.commands.add({.id = "help.about",
                   .title = "About attnscope",
                   .group = "Help",
                   .help = "Version, libraries, licence, and what the model leaves out.",
                   .run = [this](std::string_view) -> Result<void> {
                     dialog_.open();
                     return {};
                   }});
}

void About::draw(Ui& ui) {
  if (!dialog_.begin("About attnscope", {600, 0})) return;
  ImGui::TextWrapped(
      "Runs the attention of a DeepSeek-V4 model the way a serving engine runs it, stops anywhere, "
      "shows what went in and what came out, and names the first op that is wrong.");
  ImGui::Spacing();
  if (ImGui::BeginTable("##facts", 2)) {
    ImGui::TableSetupColumn("name", ImGuiTableColumnFlags_WidthFixed, px(120));
    ImGui::TableSetupColumn("value", ImGuiTableColumnFlags_WidthStretch);
    row("version",
        fmt::format("{} ({} build, {})", ATTNSCOPE_VERSION, ATTNSCOPE_BUILD_TYPE, compiler()));
    row("licence", "MIT");
    row("CPU lane", cpu::simd_level());
    row("lanes", fmt::format("{}", fmt::join(ui.bench.lane_names(), ", ")));
    row("libraries",
        fmt::format("Dear ImGui {} (docking), ImPlot {}, GLFW, nlohmann::json {}.{}.{}, fmt {}.{}, "
                    "libtorch (references), Font Awesome 6 Free",
                    IMGUI_VERSION, IMPLOT_VERSION, NLOHMANN_JSON_VERSION_MAJOR,
                    NLOHMANN_JSON_VERSION_MINOR, NLOHMANN_JSON_VERSION_PATCH, FMT_VERSION / 10000,
                    FMT_VERSION / 100 % 100));
    row("left out",
        "The model around attention is only what closes the loop: norm, attention, residual, "
        "final norm, tied head over 256 byte tokens. There are no experts (MoE) and no "
        "hyper-connections, and weights are made from a seed: its answers mean nothing, its "
        "bytes and arithmetic do.");
    ImGui::EndTable();
  }
  dialog_.end();
}

std::unique_ptr<Overlay> make_about() { return std::make_unique<About>(); }

}  // namespace attnscope::gui
