#include "app/gui/gl_frame.h"

#include <GL/gl.h>
#include <GL/glext.h>
#include <fmt/format.h>
#include <imgui.h>
#include <imgui_impl_opengl3.h>

#include <algorithm>
#include <cstring>
#include <utility>

namespace attnscope::gui {

namespace {

class Hash {
 public:
  void add(const void* data, std::size_t bytes) {
    const auto* at = static_cast<const unsigned char*>(data);
    for (; bytes >= sizeof(std::uint64_t); bytes -= sizeof(std::uint64_t)) {
      std::uint64_t word = 0;
      std::memcpy(&word, at, sizeof word);
      mix(word);
      at += sizeof word;
    }
    std::uint64_t rest = bytes;
    std::memcpy(&rest, at, bytes);
    mix(rest + bytes);
  }
  template <class T>
  void add(const T& value) {
    add(&value, sizeof value);
  }
  std::uint64_t value() const { return value_; }

 private:
  void mix(std::uint64_t word) {
    value_ = (value_ ^ word) * 0x9e3779b97f4a7c15u;
    value_ ^= value_ >> 29;
  }
  std::uint64_t value_ = 0xcbf29ce484222325u;
};

}  // namespace

bool DrawnFrame::shows(int width, int height) {
  const ImDrawData& data = *ImGui::GetDrawData();
  Hash hash;
  hash.add(width);
  hash.add(height);
  hash.add(data.DisplaySize);
  hash.add(ImGui::GetStyleColorVec4(ImGuiCol_WindowBg));
  bool settled = true;
  if (data.Textures != nullptr) {
    for (const ImTextureData* texture : *data.Textures) {
      settled = settled && texture->Status == ImTextureStatus_OK;
    }
  }
  for (const ImDrawList* list : data.CmdLists) {
    hash.add(list->VtxBuffer.Data, static_cast<std::size_t>(list->VtxBuffer.size_in_bytes()));
    hash.add(list->IdxBuffer.Data, static_cast<std::size_t>(list->IdxBuffer.size_in_bytes()));
    for (const ImDrawCmd& command : list->CmdBuffer) {
      hash.add(command.UserCallback);  // they choose a sampler
      hash.add(command.ClipRect);
      hash.add(command.GetTexID());
      hash.add(command.VtxOffset);
      hash.add(command.IdxOffset);
      hash.add(command.ElemCount);
    }
  }
  const std::uint64_t now = settled ? hash.value() | 1 : 0;
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
