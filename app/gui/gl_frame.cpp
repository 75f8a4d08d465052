#include "app/gui/gl_frame.h"

#include <GL/gl.h>
#include <GL/glext.h>
#include <fmt/format.h>
#include <imgui.h>
#include <imgui_impl_opengl3.h>

#include <algorithm>
#include <utility>

#include "engine/io/content_hash.h"

namespace attnscope::gui {

bool DrawnFrame::shows(int width, int height) {
  const ImDrawData& data = *ImGui::GetDrawData();
  std::uint64_t hash = 0;
  const auto add_bytes = [&hash](const void* bytes, std::size_t size) {
    hash = content_hash(bytes, size, hash);
  };
  const auto add = [&](const auto& value) { add_bytes(&value, sizeof value); };
  add(width);
  add(height);
  add(data.DisplaySize);
  add(ImGui::GetStyleColorVec4(ImGuiCol_WindowBg));
  bool settled = true;
  if (data.Textures != nullptr) {
    for (const ImTextureData* texture : *data.Textures) {
      settled = settled && texture->Status == ImTextureStatus_OK;
    }
  }
  for (const ImDrawList* list : data.CmdLists) {
    add_bytes(list->VtxBuffer.Data, static_cast<std::size_t>(list->VtxBuffer.size_in_bytes()));
    add_bytes(list->IdxBuffer.Data, static_cast<std::size_t>(list->IdxBuffer.size_in_bytes()));
    for (const ImDrawCmd& command : list->CmdBuffer) {
      add(command.UserCallback);  // they choose a sampler
      add(command.ClipRect);
      add(command.GetTexID());
      add(command.VtxOffset);
      add(command.IdxOffset);
      add(command.ElemCount);
    }
  }
  const std::uint64_t now = settled ? hash | 1 : 0;
  return std::exchange(drawn_, now) == now && now != 0;
}

void draw_imgui(int width, int height) {
  const ImVec4 back = ImGui::GetStyleColorVec4(ImGuiCol_WindowBg);
  glViewport(0, 0, width, height);
  glClearColor(back.x, back.y, back.z, 1);
  glClear(GL_COLOR_BUFFER_BIT);
  ImGui_ImplOpenGL3_RenderDrawData(ImGui::GetDrawData());
}

Image read_frame(int width, int height) {
  Image image{width, height, {}};
  const auto row = static_cast<std::size_t>(width) * 3;
  image.rgb.resize(row * static_cast<std::size_t>(height));
  glPixelStorei(GL_PACK_ALIGNMENT, 1);
  glReadPixels(0, 0, width, height, GL_RGB, GL_UNSIGNED_BYTE, image.rgb.data());
  for (int y = 0; y < height / 2; ++y) {
    auto top = image.rgb.begin() + static_cast<std::ptrdiff_t>(row) * y;
    auto bottom = image.rgb.begin() + static_cast<std::ptrdiff_t>(row) * (height - 1 - y);
    std::swap_ranges(top, top + static_cast<std::ptrdiff_t>(row), bottom);
  }
  return image;
}

std::string gl_description() {
  const auto* renderer = reinterpret_cast<const char*>(glGetString(GL_RENDERER));
  const int version = gl_version();
  return fmt::format("OpenGL {}.{}, {}", version / 10, version % 10,
                     renderer != nullptr ? renderer : "unknown renderer");
}

int gl_version() {
  GLint major = 0, minor = 0;
  glGetIntegerv(GL_MAJOR_VERSION, &major);
  glGetIntegerv(GL_MINOR_VERSION, &minor);
  return major * 10 + minor;
}

bool gl_lost() { return gl_version() >= 45 && glGetGraphicsResetStatus() != GL_NO_ERROR; }

}  // namespace attnscope::gui
