#include "app/gui/cell_texture.h"

#include <imgui_internal.h>

#include <algorithm>
#include <cstring>
#include <utility>

namespace attnscope::gui {
namespace {

constexpr int kMaxSide = 4096;
constexpr std::int64_t kRoom = 1 << 20;  // pixels that a texture may be larger than its picture

// Making a texture costs the driver more than filling one: a new picture goes into the old texture
// where it fits, and into one that fits both where that is not much larger.
int side_for(int wanted, int had, int other, int other_had) {
  const std::int64_t both = std::int64_t{std::max(wanted, had)} * std::max(other, other_had);
  return both <= std::int64_t{wanted} * other + kRoom ? std::max(wanted, had) : wanted;
}

}  // namespace

// A texture belongs to the ImGui context it was first drawn in and to no other. The context points
// to it until the renderer has let go of it, a frame or two after its picture is gone: until then
// it waits in abandoned(). A context that ends first lets go of all its textures by a hook.
struct CellTexture::Impl {
  ImTextureData texture;
  int width = 0, height = 0;        // of the picture in its corner
  ImGuiContext* context = nullptr;  // null before the first drawing and after the context's end
  ImGuiID hook = 0;

  static std::vector<std::unique_ptr<Impl>>& abandoned() {
    static std::vector<std::unique_ptr<Impl>> list;
    return list;
  }

  static void on_shutdown(ImGuiContext*, ImGuiContextHook* hook) {
    auto* impl = static_cast<Impl*>(hook->UserData);
    ImGui::UnregisterUserTexture(&impl->texture);
    impl->context = nullptr;
    // Ready for another context: nothing of the renderer's is left.
    impl->texture.TexID = ImTextureID_Invalid;
    impl->texture.BackendUserData = nullptr;
    impl->texture.Status = ImTextureStatus_WantCreate;
    std::erase_if(abandoned(), [&](const auto& other) { return other.get() == impl; });
  }

  void attach(ImGuiContext* to) {
    context = to;
    ImGuiContextHook shutdown;
    shutdown.Type = ImGuiContextHookType_Shutdown;
    shutdown.Callback = on_shutdown;
    shutdown.UserData = this;
    hook = ImGui::AddContextHook(to, &shutdown);
    ImGui::RegisterUserTexture(&texture);
  }

  // Out of the context, which is the current one.
  void detach() {
    ImGui::UnregisterUserTexture(&texture);
    ImGui::GetPlatformIO().Textures.find_erase(&texture);
    ImGui::RemoveContextHook(context, hook);
    context = nullptr;
  }

  // The picture is gone: freed at once if no renderer saw it.
  static void abandon(std::unique_ptr<Impl> impl) {
    if (!impl || impl->context == nullptr) return;
    impl->texture.WantDestroyNextFrame = true;
    abandoned().push_back(std::move(impl));
  }
};

void collect_textures(bool all) {
  using Impl = CellTexture::Impl;
  std::erase_if(Impl::abandoned(), [&](const std::unique_ptr<Impl>& impl) {
    const bool mine = impl->context == ImGui::GetCurrentContext();
    const bool gone = mine && (all || impl->texture.Status == ImTextureStatus_Destroyed);
    if (gone) impl->detach();
    return gone;
  });
}

CellTexture::CellTexture() = default;
CellTexture::~CellTexture() { Impl::abandon(std::move(impl_)); }
CellTexture::CellTexture(CellTexture&&) noexcept = default;
CellTexture& CellTexture::operator=(CellTexture&& other) noexcept {
  if (this != &other) {
    Impl::abandon(std::move(impl_));
    impl_ = std::move(other.impl_);
  }
  return *this;
}

bool CellTexture::empty() const { return impl_ == nullptr; }
int CellTexture::width() const { return impl_ ? impl_->width : 0; }
int CellTexture::height() const { return impl_ ? impl_->height : 0; }

void CellTexture::update(int width, int height, const std::vector<ImU32>& pixels) {
  if (width <= 0 || height <= 0 || width > kMaxSide || height > kMaxSide ||
      pixels.size() < static_cast<std::size_t>(width) * static_cast<std::size_t>(height)) {
    Impl::abandon(std::move(impl_));
    return;
  }
  const int had_width = impl_ ? impl_->texture.Width : 0;
  const int had_height = impl_ ? impl_->texture.Height : 0;
  const int wide = side_for(width, had_width, height, had_height);
  const int high = side_for(height, had_height, width, had_width);
  if (wide != had_width || high != had_height) {
    Impl::abandon(std::move(impl_));
    impl_ = std::make_unique<Impl>();
    impl_->texture.Create(ImTextureFormat_RGBA32, wide, high);
    impl_->texture.UseColors = true;
  }
  impl_->width = width;
  impl_->height = height;
  ImTextureData& t = impl_->texture;
  const std::size_t row = static_cast<std::size_t>(width) * sizeof(ImU32);
  for (int y = 0; y < height; ++y) {
    std::memcpy(t.GetPixelsAt(0, y),
                pixels.data() + static_cast<std::size_t>(y) * static_cast<std::size_t>(width), row);
  }
  const ImTextureRect all = {0, 0, static_cast<unsigned short>(width),
                             static_cast<unsigned short>(height)};
  t.UsedRect = all;
  if (t.Status == ImTextureStatus_OK || t.Status == ImTextureStatus_WantUpdates) {
    t.UpdateRect = all;
    t.Updates.resize(0);
    t.Updates.push_back(all);
    t.Status = ImTextureStatus_WantUpdates;
  }
}

void CellTexture::draw(ImDrawList* list, ImVec2 min, ImVec2 max, float x0, float y0, float x1,
                       float y1) const {
  if (!impl_) return;
  ImGuiContext* now = ImGui::GetCurrentContext();
  if (impl_->context == nullptr) impl_->attach(now);
  if (impl_->context != now) return;
  ImTextureData& t = impl_->texture;
  const ImVec2 uv0 = {x0 / static_cast<float>(t.Width), y0 / static_cast<float>(t.Height)};
  const ImVec2 uv1 = {x1 / static_cast<float>(t.Width), y1 / static_cast<float>(t.Height)};
  const ImGuiPlatformIO& io = ImGui::GetPlatformIO();
  if (io.DrawCallback_SetSamplerNearest != nullptr) {
    list->AddCallback(io.DrawCallback_SetSamplerNearest);
  }
  list->AddImage(t.GetTexRef(), min, max, uv0, uv1);
  if (io.DrawCallback_SetSamplerLinear != nullptr) {
    list->AddCallback(io.DrawCallback_SetSamplerLinear);
  }
}

}  // namespace attnscope::gui
