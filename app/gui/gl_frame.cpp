#include "app/gui/gl_frame.h"

#include <GL/gl.h>
#include <GL/glext.h>
#include <fmt/format.h>
#include <imgui.h>
#include <imgui_impl_opengl3.h>

#include <algorithm>
#include <array>
#include <cfloat>
#include <cmath>
#include <cstring>
#include <span>
#include <string_view>
#include <utility>

#include "engine/io/content_hash.h"

namespace attnscope::gui {
namespace {

// Whole pixels around it. What is far away, or no number, counts as beyond every screen.
PixelArea in_pixels(const ImVec4& rect, const ImDrawData& data) {
  const ImVec2 at = data.DisplayPos, scale = data.FramebufferScale;
  static constexpr float kFar = 1e6f;
  const auto least = [](float v) {
    return v > -kFar ? static_cast<int>(std::floor(std::min(v, kFar))) : static_cast<int>(-kFar);
  };
  const auto most = [](float v) {
    return v < kFar ? static_cast<int>(std::ceil(std::max(v, -kFar))) : static_cast<int>(kFar);
  };
  return {least((rect.x - at.x) * scale.x), least((rect.y - at.y) * scale.y),
          most((rect.z - at.x) * scale.x), most((rect.w - at.y) * scale.y)};
}

PixelArea common(const PixelArea& a, const PixelArea& b) {
  return {std::max(a.left, b.left), std::max(a.top, b.top), std::min(a.right, b.right),
          std::min(a.bottom, b.bottom)};
}

// The pixels that ImGui's renderer makes of a command's rectangle: it cuts off fractions, counting
// from below.
PixelArea scissor_of(const ImVec4& rect, const ImDrawData& data) {
  const ImVec2 at = data.DisplayPos, scale = data.FramebufferScale;
  const ImVec2 min((rect.x - at.x) * scale.x, (rect.y - at.y) * scale.y);
  const ImVec2 max((rect.z - at.x) * scale.x, (rect.w - at.y) * scale.y);
  const auto height = static_cast<int>(data.DisplaySize.y * scale.y);
  const int left = static_cast<int>(min.x);
  const int bottom = height - static_cast<int>(static_cast<float>(height) - max.y);
  return {left, bottom - static_cast<int>(max.y - min.y), left + static_cast<int>(max.x - min.x),
          bottom};
}

// A rectangle of which it makes these pixels.
ImVec4 rect_of(const PixelArea& area, const ImDrawData& data) {
  const ImVec2 at = data.DisplayPos, scale = data.FramebufferScale;
  if (area.empty()) return {at.x, at.y, at.x, at.y};
  constexpr float kPart = 0.25f;  // away from where a rounding would matter
  return {at.x + (static_cast<float>(area.left) + kPart) / scale.x,
          at.y + (static_cast<float>(area.top) - 2 * kPart) / scale.y,
          at.x + (static_cast<float>(area.right) + 2 * kPart) / scale.x,
          at.y + (static_cast<float>(area.bottom) - kPart) / scale.y};
}

// Around its corners, as far as its commands let them be seen.
PixelArea area_of(const ImDrawList& list, const ImDrawData& data) {
  PixelArea clip;
  for (const ImDrawCmd& command : list.CmdBuffer) {
    if (command.ElemCount > 0) clip.add(in_pixels(command.ClipRect, data));
  }
  if (clip.empty()) return {};
  ImVec4 around(FLT_MAX, FLT_MAX, -FLT_MAX, -FLT_MAX);
  for (const ImDrawVert& corner : list.VtxBuffer) {
    around.x = std::min(around.x, corner.pos.x);
    around.y = std::min(around.y, corner.pos.y);
    around.z = std::max(around.z, corner.pos.x);
    around.w = std::max(around.w, corner.pos.y);
  }
  return common(clip, in_pixels(around, data));
}

void clear_part(int width, int height, const PixelArea& part) {
  const ImVec4 back = ImGui::GetStyleColorVec4(ImGuiCol_WindowBg);
  glViewport(0, 0, width, height);
  glEnable(GL_SCISSOR_TEST);
  glScissor(part.left, height - part.bottom, part.right - part.left, part.bottom - part.top);
  glClearColor(back.x, back.y, back.z, 1);
  glClear(GL_COLOR_BUFFER_BIT);
  glDisable(GL_SCISSOR_TEST);
}

// A texture that is made or filled in this frame changes a picture without changing its list.
// Letters come to theirs at places where none were.
bool is_filled(const ImTextureData* texture) {
  const bool filled = texture->Status == ImTextureStatus_WantUpdates;
  const bool letters = texture == ImGui::GetIO().Fonts->TexData;
  return texture->Status == ImTextureStatus_WantCreate || (filled && !letters);
}

bool shows_filled(const ImDrawList& list) {
  return std::ranges::any_of(list.CmdBuffer, [](const ImDrawCmd& command) {
    return command.TexRef._TexData != nullptr && is_filled(command.TexRef._TexData);
  });
}

}  // namespace

void PixelArea::add(const PixelArea& other) {
  if (other.empty()) return;
  if (empty()) {
    *this = other;
    return;
  }
  left = std::min(left, other.left);
  top = std::min(top, other.top);
  right = std::max(right, other.right);
  bottom = std::max(bottom, other.bottom);
}

DrawnFrame::List DrawnFrame::list_of(const ImDrawList& list, const ImDrawData& data) {
  List out;
  out.id = &list;
  out.area = area_of(list, data);
  const auto* corners = reinterpret_cast<const unsigned char*>(list.VtxBuffer.Data);
  out.corners.assign(corners, corners + list.VtxBuffer.size_in_bytes());
  const auto* order = reinterpret_cast<const unsigned char*>(list.IdxBuffer.Data);
  out.order.assign(order, order + list.IdxBuffer.size_in_bytes());
  for (const ImDrawCmd& command : list.CmdBuffer) {
    const auto add = [&out](const auto& value) {
      const auto* bytes = reinterpret_cast<const unsigned char*>(&value);
      out.commands.insert(out.commands.end(), bytes, bytes + sizeof value);
    };
    out.counts.push_back(command.ElemCount);
    out.one_range = out.one_range && command.VtxOffset == 0;
    add(command.UserCallback);  // they choose a sampler
    add(command.ClipRect);
    add(command.GetTexID());
  }
  return out;
}

// Where two pictures of a list differ. A list mostly differs in one place: its corners do from the
// first one to the last one that is not the same, counted from either end, and with them every
// triangle that has one of these.
PixelArea DrawnFrame::between(const List& before, const List& now, const ImDrawData& data) {
  PixelArea changed;
  const bool same_corners = before.corners == now.corners;
  const bool same_commands = before.commands == now.commands;
  if (same_corners && same_commands && before.order == now.order && before.counts == now.counts) {
    return changed;
  }
  changed.add(before.area);
  changed.add(now.area);
  if (same_corners || !same_commands || !before.one_range || !now.one_range) return changed;
  const auto corners = [](const List& list) {
    return std::span(reinterpret_cast<const ImDrawVert*>(list.corners.data()),
                     list.corners.size() / sizeof(ImDrawVert));
  };
  const auto same = [](const ImDrawVert& a, const ImDrawVert& b) {
    // What is drawn is their bytes. NOLINTNEXTLINE(bugprone-suspicious-memory-comparison)
    return std::memcmp(&a, &b, sizeof a) == 0;
  };
  const std::span<const ImDrawVert> old = corners(before), fresh = corners(now);
  const auto begin =
      static_cast<std::size_t>(std::ranges::mismatch(old, fresh, same).in1 - old.begin());
  std::size_t end = 0;
  while (end < std::min(old.size(), fresh.size()) - begin &&
         same(old[old.size() - 1 - end], fresh[fresh.size() - 1 - end])) {
    ++end;
  }
  PixelArea moved;
  const auto add = [&](const List& list, std::span<const ImDrawVert> all) {
    const auto* order = reinterpret_cast<const ImDrawIdx*>(list.order.data());
    const std::size_t count = list.order.size() / sizeof(ImDrawIdx);
    for (std::size_t i = 0; i + 2 < count; i += 3) {
      const auto differs = [&](std::size_t k) {
        return order[i + k] >= begin && order[i + k] < all.size() - end;
      };
      if (!differs(0) && !differs(1) && !differs(2)) continue;
      for (std::size_t k = 0; k < 3; ++k) {
        const ImVec2 at = all[order[i + k]].pos;
        moved.add(in_pixels(ImVec4(at.x - 1, at.y - 1, at.x + 1, at.y + 1), data));
      }
    }
  };
  add(before, old);
  add(now, fresh);
  return common(moved, changed);
}

PixelArea DrawnFrame::changed(int width, int height) {
  const ImDrawData& data = *ImGui::GetDrawData();
  const ImVec4 back = ImGui::GetStyleColorVec4(ImGuiCol_WindowBg);
  const std::array<float, 8> around = {static_cast<float>(width),
                                       static_cast<float>(height),
                                       data.DisplaySize.x,
                                       data.DisplaySize.y,
                                       back.x,
                                       back.y,
                                       back.z,
                                       data.FramebufferScale.x};
  const std::uint64_t hash = content_hash(around.data(), sizeof around, 0);
  std::vector<List> lists;
  PixelArea changed;
  for (const ImDrawList* list : data.CmdLists) {
    lists.push_back(list_of(*list, data));
    if (shows_filled(*list)) changed.add(lists.back().area);
  }
  const bool same_ground = std::exchange(around_, hash) == hash && known_;
  known_ = true;
  const std::vector<List> before = std::exchange(lists_, std::move(lists));
  const PixelArea all{0, 0, width, height};
  if (!same_ground) return all;
  // Lists keep their order but for those that come and go.
  auto old = before.begin();
  for (const List& list : lists_) {
    const auto found = std::ranges::find(old, before.end(), list.id, &List::id);
    if (found == before.end()) {
      // New, or others have come before it.
      if (std::ranges::find(before.begin(), old, list.id, &List::id) != old) return all;
      changed.add(list.area);
      continue;
    }
    for (; old != found; ++old) changed.add(old->area);
    changed.add(between(*found, list, data));
    ++old;
  }
  for (; old != before.end(); ++old) changed.add(old->area);
  return common(changed, all);
}

void draw_imgui(int width, int height) {
  clear_part(width, height, {0, 0, width, height});
  ImGui_ImplOpenGL3_RenderDrawData(ImGui::GetDrawData());
}

void DrawnFrame::draw(int width, int height, const PixelArea& part) const {
  const bool all = part.left <= 0 && part.top <= 0 && part.right >= width && part.bottom >= height;
  if (all) return draw_imgui(width, height);
  clear_part(width, height, part);
  ImDrawData& data = *ImGui::GetDrawData();
  // The renderer leaves out what lies outside a command's rectangle.
  ImDrawData some = data;
  some.CmdLists.clear();
  std::vector<ImVec4> rects;
  for (int i = 0; i < data.CmdLists.Size; ++i) {
    ImDrawList* list = data.CmdLists[i];
    if (common(lists_[static_cast<std::size_t>(i)].area, part).empty()) continue;
    some.CmdLists.push_back(list);
    for (ImDrawCmd& command : list->CmdBuffer) {
      rects.push_back(command.ClipRect);
      command.ClipRect = rect_of(common(scissor_of(command.ClipRect, data), part), data);
    }
  }
  ImGui_ImplOpenGL3_RenderDrawData(&some);
  auto rect = rects.begin();
  for (ImDrawList* list : some.CmdLists) {
    for (ImDrawCmd& command : list->CmdBuffer) command.ClipRect = *rect++;
  }
}

bool KeptPicture::bind(int width, int height, bool& anew) {
  if (frame_ == 0) {
    glGenRenderbuffers(1, &colour_);
    glGenFramebuffers(1, &frame_);
  }
  glBindFramebuffer(GL_FRAMEBUFFER, frame_);
  anew = width != width_ || height != height_;
  if (!anew) return true;
  glBindRenderbuffer(GL_RENDERBUFFER, colour_);
  glRenderbufferStorage(GL_RENDERBUFFER, GL_RGBA8, width, height);
  glFramebufferRenderbuffer(GL_FRAMEBUFFER, GL_COLOR_ATTACHMENT0, GL_RENDERBUFFER, colour_);
  const bool whole = glCheckFramebufferStatus(GL_FRAMEBUFFER) == GL_FRAMEBUFFER_COMPLETE;
  width_ = whole ? width : 0;
  height_ = whole ? height : 0;
  if (!whole) glBindFramebuffer(GL_FRAMEBUFFER, 0);
  return whole;
}

void KeptPicture::show() const {
  glBindFramebuffer(GL_READ_FRAMEBUFFER, frame_);
  glBindFramebuffer(GL_DRAW_FRAMEBUFFER, 0);
  glBlitFramebuffer(0, 0, width_, height_, 0, 0, width_, height_, GL_COLOR_BUFFER_BIT, GL_NEAREST);
  glBindFramebuffer(GL_FRAMEBUFFER, 0);
}

std::vector<std::uint32_t> KeptPicture::pixels(const PixelArea& part) const {
  const int width = part.right - part.left, height = part.bottom - part.top;
  const auto row = static_cast<std::size_t>(width);
  std::vector<std::uint32_t> from_below(row * static_cast<std::size_t>(height));
  glBindFramebuffer(GL_READ_FRAMEBUFFER, frame_);
  glPixelStorei(GL_PACK_ALIGNMENT, 4);
  glReadPixels(part.left, height_ - part.bottom, width, height, GL_BGRA,
               GL_UNSIGNED_INT_8_8_8_8_REV, from_below.data());
  glBindFramebuffer(GL_FRAMEBUFFER, 0);
  std::vector<std::uint32_t> out;
  out.reserve(from_below.size());
  for (std::size_t y = static_cast<std::size_t>(height); y-- > 0;) {
    const auto begin = from_below.begin() + static_cast<std::ptrdiff_t>(y * row);
    out.insert(out.end(), begin, begin + width);
  }
  return out;
}

void KeptPicture::close() {
  if (frame_ != 0) glDeleteFramebuffers(1, &frame_);
  if (colour_ != 0) glDeleteRenderbuffers(1, &colour_);
  *this = KeptPicture();
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

bool gl_is_software() {
  const auto* renderer = reinterpret_cast<const char*>(glGetString(GL_RENDERER));
  const std::string_view name = renderer != nullptr ? renderer : "";
  return std::ranges::any_of(std::array{"llvmpipe", "softpipe", "swrast"},
                             [&](const char* word) { return name.find(word) != name.npos; });
}

int gl_version() {
  GLint major = 0, minor = 0;
  glGetIntegerv(GL_MAJOR_VERSION, &major);
  glGetIntegerv(GL_MINOR_VERSION, &minor);
  return major * 10 + minor;
}

bool gl_lost() { return gl_version() >= 45 && glGetGraphicsResetStatus() != GL_NO_ERROR; }

}  // namespace attnscope::gui
