#include <fmt/format.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>

#include "app/gui/platform.h"

#define STB_IMAGE_WRITE_STATIC
#define STB_IMAGE_WRITE_IMPLEMENTATION
#if defined(__GNUC__)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-function"
#pragma GCC diagnostic ignored "-Wmissing-field-initializers"
#endif
#include <stb_image_write.h>
#if defined(__GNUC__)
#pragma GCC diagnostic pop
#endif

namespace attnscope::gui {

Result<void> write_png(const Image& image, const std::string& path) {
  const std::string part = path + ".part";
  const auto failed = [&](const char* what) {
    const std::string why = std::strerror(errno);
    std::remove(part.c_str());
    return bad_input(fmt::format("{}: cannot {} the picture: {}", path, what, why),
                     "name a file in a folder that you may write to");
  };
  std::FILE* file = std::fopen(part.c_str(), "wb");
  if (file == nullptr) return failed("create");
  const auto write = [](void* to, void* data, int size) {
    std::fwrite(data, 1, static_cast<std::size_t>(size), static_cast<std::FILE*>(to));
  };
  const int done = stbi_write_png_to_func(write, file, image.width, image.height, 3,
                                          image.rgb.data(), 3 * image.width);
  const bool bad = std::ferror(file) != 0;
  if (std::fclose(file) != 0 || bad || done == 0) return failed("write");
  if (std::rename(part.c_str(), path.c_str()) != 0) return failed("name");
  return {};
}

}  // namespace attnscope::gui
