#include "app/gui/gl_frame.h"

#include <GL/gl.h>
#include <GL/glext.h>
#include <fmt/format.h>
#include <imgui.h>
#include <imgui_impl_opengl3.h>

#include <algorithm>

namespace attnscope::gui {

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
