#include "app/gui/cell_texture.h"

#include <imgui_internal.h>

#include <algorithm>
#include <cstring>

namespace attnscope::gui {
namespace {

// Pictures nobody shows any more, until the renderer has let go of them.
std::vector<ImTextureData*>& retired() {
  static std::vector<ImTextureData*> list;
  return list;
}

void destroy(ImTextureData* data) {
  ImGui::UnregisterUserTexture(data);
  IM_DELETE(data);
}

}  // namespace

void collect_textures(bool all) {
  std::erase_if(retired(), [&](ImTextureData* data) {
    const bool gone = all || data->Status == ImTextureStatus_Destroyed;
    if (gone) destroy(data);
    return gone;
  });
}

struct CellTexture::Impl {
  ImTextureData* data = nullptr;

  void release() {
    if (data == nullptr) return;
    data->WantDestroyNextFrame = true;
    retired().push_back(data);
    data = nullptr;
  }
};

CellTexture::CellTexture() : impl_(std::make_unique<Impl>()) {}
CellTexture::~CellTexture() {
  if (impl_) impl_->release();
}
CellTexture::CellTexture(CellTexture&&) noexcept = default;
CellTexture& CellTexture::operator=(CellTexture&& other) noexcept {
  if (impl_ && this != &other) impl_->release();
  impl_ = std::move(other.impl_);
  return *this;
}

bool CellTexture::empty() const { return impl_->data == nullptr; }
int CellTexture::width() const { return empty() ? 0 : impl_->data->Width; }
int CellTexture::height() const { return empty() ? 0 : impl_->data->Height; }

void CellTexture::update(int width, int height, const std::vector<ImU32>& pixels) {
  const auto cells =
      static_cast<std::size_t>(std::max(width, 0)) * static_cast<std::size_t>(std::max(height, 0));
  if (cells == 0 || pixels.size() < cells) {
    impl_->release();
    return;
  }
  if (impl_->data != nullptr && (impl_->data->Width != width || impl_->data->Height != height)) {
    impl_->release();
  }
  if (impl_->data == nullptr) {
    impl_->data = IM_NEW(ImTextureData)();
    impl_->data->Create(ImTextureFormat_RGBA32, width, height);
    impl_->data->UseColors = true;
    impl_->data->SetStatus(ImTextureStatus_WantCreate);
    ImGui::RegisterUserTexture(impl_->data);
  } else if (impl_->data->Status == ImTextureStatus_OK) {
    const ImTextureRect whole = {0, 0, static_cast<unsigned short>(width),
                                 static_cast<unsigned short>(height)};
    impl_->data->Updates.resize(0);
    impl_->data->Updates.push_back(whole);
    impl_->data->UpdateRect = whole;
    impl_->data->SetStatus(ImTextureStatus_WantUpdates);
  }
  std::memcpy(impl_->data->Pixels, pixels.data(), cells * sizeof(ImU32));
}

void CellTexture::draw(ImDrawList* list, ImVec2 min, ImVec2 max, float x0, float y0, float x1,
                       float y1) const {
  if (empty()) return;
  const ImGuiPlatformIO& platform = ImGui::GetPlatformIO();
  const auto w = static_cast<float>(width()), h = static_cast<float>(height());
  // A renderer without samplers (tests) draws as it likes.
  if (platform.DrawCallback_SetSamplerNearest != nullptr) {
    list->AddCallback(platform.DrawCallback_SetSamplerNearest, nullptr);
  }
  list->AddImage(impl_->data->GetTexRef(), min, max, ImVec2(x0 / w, y0 / h),
                 ImVec2(x1 / w, y1 / h));
  if (platform.DrawCallback_SetSamplerLinear != nullptr) {
    list->AddCallback(platform.DrawCallback_SetSamplerLinear, nullptr);
  }
}

}  // namespace attnscope::gui
