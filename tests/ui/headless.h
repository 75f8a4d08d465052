// An ImGui context without a window and with a renderer that only says yes: for tests of what is
// drawn, not of how it looks.
#pragma once

#include <gtest/gtest.h>
#include <imgui.h>
#include <implot.h>

#include <functional>
#include <string>
#include <utility>

#include "app/gui/cell_texture.h"
#include "app/gui/theme.h"

namespace attnscope::gui {

class Headless {
 public:
  Headless() {
    ImGui::CreateContext();
    ImPlot::CreateContext();
    ImGuiIO& io = ImGui::GetIO();
    io.DisplaySize = {1280, 800};
    io.IniFilename = nullptr;
    io.BackendFlags |= ImGuiBackendFlags_RendererHasTextures;
    io.ConfigErrorRecoveryEnableAssert = true;
    ImGui::GetPlatformIO().Platform_ClipboardUserData = &clipboard;
    ImGui::GetPlatformIO().Platform_SetClipboardTextFn = [](ImGuiContext*, const char* text) {
      *static_cast<std::string*>(ImGui::GetPlatformIO().Platform_ClipboardUserData) = text;
    };
    fonts = load_fonts();
    apply_theme(*load_theme("dark"), 1);
  }
  ~Headless() {
    if (alive_) end();
  }
  Headless(const Headless&) = delete;
  Headless& operator=(const Headless&) = delete;

  // The context's end, as after the renderer's.
  void end() {
    for (ImTextureData* t : ImGui::GetPlatformIO().Textures) {
      t->SetTexID(ImTextureID_Invalid);
      t->SetStatus(ImTextureStatus_Destroyed);
    }
    ImPlot::DestroyContext();
    ImGui::DestroyContext();
    alive_ = false;
  }

  // One frame with one window of this size, which `draw` fills.
  void frame(const std::function<void()>& draw, ImVec2 size = {800, 600}) {
    collect_textures(false);
    ImGui::GetIO().DeltaTime = 1.0f / 60;
    ImGui::NewFrame();
    ImGui::SetNextWindowPos({0, 0});
    ImGui::SetNextWindowSize(size);
    ImGui::Begin("test", nullptr, ImGuiWindowFlags_NoDecoration | ImGuiWindowFlags_NoMove);
    draw();
    ImGui::End();
    ImGui::Render();
    for (ImTextureData* t : ImGui::GetPlatformIO().Textures) {
      if (t->Status == ImTextureStatus_WantCreate) {
        t->SetTexID(static_cast<ImTextureID>(next_texture_++));
        t->SetStatus(ImTextureStatus_OK);
      } else if (t->Status == ImTextureStatus_WantUpdates) {
        ++updates;
        t->SetStatus(ImTextureStatus_OK);
      } else if (t->Status == ImTextureStatus_WantDestroy && t->UnusedFrames > 0) {
        t->SetTexID(ImTextureID_Invalid);
        t->SetStatus(ImTextureStatus_Destroyed);
      }
    }
  }

  void move_to(ImVec2 at, const std::function<void()>& draw) {
    ImGui::GetIO().AddMousePosEvent(at.x, at.y);
    frame(draw);
    frame(draw);
  }
  void click(ImVec2 at, const std::function<void()>& draw) {
    move_to(at, draw);
    ImGui::GetIO().AddMouseButtonEvent(0, true);
    frame(draw);
    ImGui::GetIO().AddMouseButtonEvent(0, false);
    frame(draw);
    frame(draw);  // what the click asked for
  }
  void press(ImGuiKey modifier, ImGuiKey key, const std::function<void()>& draw) {
    ImGui::GetIO().AddKeyEvent(modifier, true);
    ImGui::GetIO().AddKeyEvent(key, true);
    frame(draw);
    ImGui::GetIO().AddKeyEvent(key, false);
    ImGui::GetIO().AddKeyEvent(modifier, false);
    frame(draw);
  }

  FontReport fonts;
  std::string clipboard;
  int updates = 0;  // of textures, after they were made

 private:
  int next_texture_ = 1;
  bool alive_ = true;
};

}  // namespace attnscope::gui
