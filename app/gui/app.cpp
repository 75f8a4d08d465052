#include <imgui.h>
#include <implot.h>

#include "app/gui/cell_texture.h"
#include "app/gui/gui.h"
#include "app/gui/input_queue.h"
#include "app/gui/theme.h"

namespace attnscope::gui {

App::App(const Options& options, const GuiParts& parts) {
  if (!options.state_folder.empty() && options.keep_settings) {
    LoadedSettings loaded = load_settings(options.state_folder + "/settings.json");
    settings_ = std::move(loaded.settings);
    problems_ = std::move(loaded.problems);
  }
  IMGUI_CHECKVERSION();
  ImGui::CreateContext();
  ImPlot::CreateContext();
  ImGuiIO& io = ImGui::GetIO();
  io.IniFilename = nullptr;
  io.LogFilename = nullptr;
  io.ConfigFlags |= ImGuiConfigFlags_DockingEnable;
  io.ConfigDockingWithShift = false;
  io.ConfigWindowsMoveFromTitleBarOnly = true;
  io.ConfigErrorRecoveryEnableAssert = false;
  for (std::string& problem : load_fonts().problems) problems_.push_back(std::move(problem));

  Workbench::Options bench;
  const std::string cache =
      options.cache_folder.empty() ? options.state_folder : options.cache_folder;
  if (!cache.empty()) bench.cache_folder = cache + "/sessions";
  bench.trace_budget_mb = settings_.trace_budget_mb;
  bench.rewind_budget_mb = settings_.rewind_budget_mb;
  bench.kept_events = settings_.kept_events;
  bench.threads = options.threads;
  bench.on_change = [this, tell = options.on_change] {
    changed_ = true;
    if (tell) tell();
  };
  bench_ = std::make_unique<Workbench>(std::move(bench));
  bench_->set_invariants(settings_.invariants);
  ShellOptions shell;
  if (options.keep_settings) shell.state_folder = options.state_folder;
  shell_ = std::make_unique<Shell>(Ui{*bench_, commands_, settings_}, parts.panels(),
                                   make_overlays(), shell);
  for (const std::string& problem : problems_) bench_->say(Message::Kind::kWarning, problem);
}

App::~App() {
  shell_.reset();
  bench_.reset();
  collect_textures(true);
  ImPlot::DestroyContext();
  ImGui::DestroyContext();
}

bool App::frame() {
  const bool changed = bench_->poll();
  collect_textures(false);
  shell_->before_frame();
  new_frame();
  shell_->frame(changed_.exchange(false) || changed);
  ImGui::Render();
  return changed;
}

}  // namespace attnscope::gui
