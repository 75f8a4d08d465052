// The whole screen without any window or graphics: ImGui with a renderer that only says yes.
#pragma once

#include <imgui.h>

#include <memory>
#include <string>

#include "app/gui/gui.h"
#include "app/panels/panels.h"
#include "tests/unit/app/small_scenario.h"

namespace attnscope::gui {

class HeadlessApp {
 public:
  // state_folder: where settings are kept; empty = nowhere.
  explicit HeadlessApp(References references = References::kSim,
                       const std::string& state_folder = {})
      : app_(options(state_folder), {make_panels}) {
    ImGuiIO& io = ImGui::GetIO();
    io.BackendFlags |= ImGuiBackendFlags_RendererHasTextures;
    io.DisplaySize = ImVec2(1600, 1000);
    app_.settings().tour_seen = true;
    RunSetup setup;
    setup.scenario = small_scenario();
    setup.references = references;
    app_.bench().open(std::move(setup), true);
    settle();
  }
  ~HeadlessApp() {
    for (ImTextureData* texture : ImGui::GetPlatformIO().Textures)
      texture->BackendUserData = nullptr;
  }

  App* operator->() { return &app_; }
  App& app() { return app_; }
  Workbench& bench() { return app_.bench(); }

  void frame() {
    ImGui::GetIO().DeltaTime = 1.0f / 60;
    app_.frame();
    serve_textures();
  }
  // What a renderer does with the textures of a frame.
  static void serve_textures() {
    for (ImTextureData* texture : ImGui::GetPlatformIO().Textures) {
      if (texture->Status == ImTextureStatus_WantCreate) {
        texture->SetTexID(1);
        texture->SetStatus(ImTextureStatus_OK);
      } else if (texture->Status == ImTextureStatus_WantUpdates) {
        texture->SetStatus(ImTextureStatus_OK);
      } else if (texture->Status == ImTextureStatus_WantDestroy) {
        texture->SetTexID(ImTextureID_Invalid);
        texture->SetStatus(ImTextureStatus_Destroyed);
      }
    }
  }
  // Until the session is idle and what it published has been drawn.
  void settle() {
    app_.bench().wait_idle();
    for (int i = 0; i < 3; ++i) frame();
  }

 private:
  static App::Options options(const std::string& state_folder) {
    App::Options options;
    options.keep_settings = !state_folder.empty();
    options.state_folder = state_folder;
    return options;
  }

  App app_;
};

}  // namespace attnscope::gui
