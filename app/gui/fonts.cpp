// Finding and loading the two faces and the icons.
#include <fmt/format.h>

#include <cstdlib>
#include <filesystem>

#include "app/gui/theme.h"

namespace attnscope::gui {
namespace {

ImFont* words_font = nullptr;
ImFont* numbers_font = nullptr;

std::vector<std::string> font_folders() {
  std::vector<std::string> folders;
  const auto variable = [](const char* name) {
    const char* value = std::getenv(name);
    return std::string(value != nullptr ? value : "");
  };
  if (const std::string own = variable("ATTNSCOPE_FONTS"); !own.empty()) folders.push_back(own);
  if (const std::string home = variable("HOME"); !home.empty()) {
    folders.push_back(home + "/.local/share/fonts");
  }
  folders.emplace_back("/usr/local/share/fonts");
  folders.emplace_back("/usr/share/fonts");
  return folders;
}

// First file of this name in the font folders and below; empty = none.
std::string find_font(const std::vector<std::string>& names) {
  namespace fs = std::filesystem;
  for (const std::string& folder : font_folders()) {
    std::error_code error;
    fs::recursive_directory_iterator it(folder, fs::directory_options::skip_permission_denied,
                                        error);
    for (; !error && it != fs::recursive_directory_iterator(); it.increment(error)) {
      for (const std::string& name : names) {
        if (it->path().filename() == name) return it->path().string();
      }
    }
  }
  return {};
}

// Fonts are read by path once a process: the folders hold thousands of files.
const std::string& words_path() {
  static const std::string path =
      find_font({"Inter-Regular.otf", "Inter-Regular.ttf", "Inter.ttf"});
  return path;
}
const std::string& numbers_path() {
  static const std::string path = find_font({"JetBrainsMono-Regular.ttf"});
  return path;
}

ImFont* load_face(const std::string& path, const char* name, const char* package,
                  std::vector<std::string>& problems) {
  ImFontAtlas* atlas = ImGui::GetIO().Fonts;
  ImFontConfig config;
  ImFont* font = nullptr;
  config.Flags |= ImFontFlags_NoLoadError;
  if (!path.empty()) font = atlas->AddFontFromFileTTF(path.c_str(), 14, &config);
  if (font == nullptr) {
    std::string looked;
    for (const std::string& folder : font_folders()) {
      looked += (looked.empty() ? "" : ", ") + folder;
    }
    problems.push_back(fmt::format(
        "Font {} {} {}; a built-in face is used. Install the package {}.", name,
        path.empty() ? "was not found in" : "cannot be read:", path.empty() ? looked : path,
        package));
    font = atlas->AddFontDefaultVector();
  }
  return font;
}

void merge_icons(std::vector<std::string>* problems) {
#ifdef ATTNSCOPE_ICON_FONT
  const std::string path = ATTNSCOPE_ICON_FONT;
#else
  const std::string path;
#endif
  std::error_code error;
  ImFontConfig config;
  config.MergeMode = true;
  config.GlyphMinAdvanceX = 14;
  config.GlyphOffset.y = 1;
  config.Flags |= ImFontFlags_NoLoadError;
  if (!path.empty() && std::filesystem::exists(path, error) &&
      ImGui::GetIO().Fonts->AddFontFromFileTTF(path.c_str(), 12, &config) != nullptr) {
    return;
  }
  if (problems != nullptr) {
    problems->push_back(fmt::format(
        "Icons are missing ({}): buttons show boxes; their tooltips tell what they do. Build again "
        "to fetch them.",
        path.empty() ? "no file was named at build time" : path));
  }
}

}  // namespace

FontReport load_fonts() {
  FontReport report;
  words_font = load_face(words_path(), "Inter", "fonts-inter", report.problems);
  merge_icons(&report.problems);
  numbers_font =
      load_face(numbers_path(), "JetBrains Mono", "fonts-jetbrains-mono", report.problems);
  merge_icons(nullptr);
  ImGui::GetIO().FontDefault = words_font;
  return report;
}

ImFont* words() { return words_font; }
ImFont* numbers() { return numbers_font; }

}  // namespace attnscope::gui
