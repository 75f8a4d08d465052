// Fonts: found on the system, merged with the icons, with letters in place of what is missing.
#include <fmt/format.h>
#include <imgui.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "app/gui/icons.h"
#include "app/gui/theme.h"

#ifndef ATTNSCOPE_ICON_FONT
#define ATTNSCOPE_ICON_FONT ""
#endif

namespace attnscope::gui {
namespace {

namespace fs = std::filesystem;

struct Face {
  const char* name;
  const char* package;               // Debian and Ubuntu
  std::array<const char*, 4> files;  // below a folder of fonts; the first that is there is taken
  float scale;                       // so that both faces look equally large
  float drop;                        // pixels at 14, so that both stand on one line
};

constexpr Face kWords = {"Inter",
                         "fonts-inter",
                         {"opentype/inter/Inter-Regular.otf", "truetype/inter/Inter-Regular.ttf",
                          "Inter-Regular.otf", "Inter-Regular.ttf"},
                         1.06f,
                         0};
constexpr Face kNumbers = {
    "JetBrains Mono",
    "fonts-jetbrains-mono",
    {"truetype/jetbrains-mono/JetBrainsMono-Regular.ttf", "JetBrainsMono-Regular.ttf",
     "jetbrains-mono/JetBrainsMono-Regular.ttf", "JetBrainsMono/JetBrainsMono-Regular.ttf"},
    1.10f,
    0.5f};

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr ? value : "";
}

void add_paths(std::vector<std::string>& folders, const std::string& list, const char* below) {
  for (std::size_t at = 0; at < list.size();) {
    const std::size_t end = std::min(list.find(':', at), list.size());
    if (end > at) folders.push_back(list.substr(at, end - at) + below);
    at = end + 1;
  }
}

// $ATTNSCOPE_FONTS alone where it is set, so that it can also take fonts away.
std::vector<std::string> font_folders() {
  std::vector<std::string> folders;
  add_paths(folders, variable("ATTNSCOPE_FONTS"), "");
  if (!folders.empty()) return folders;
  const std::string home = variable("HOME"), data_home = variable("XDG_DATA_HOME");
  if (!data_home.empty()) {
    folders.push_back(data_home + "/fonts");
  } else if (!home.empty()) {
    folders.push_back(home + "/.local/share/fonts");
  }
  const std::string data = variable("XDG_DATA_DIRS");
  add_paths(folders, data.empty() ? "/usr/local/share:/usr/share" : data, "/fonts");
  if (std::ranges::find(folders, "/usr/share/fonts") == folders.end()) {
    folders.emplace_back("/usr/share/fonts");
  }
  return folders;
}

struct Loaded {
  ImFont* font = nullptr;
  bool built_in = false;
};

Loaded load_face(const Face& face, std::vector<std::string>& problems) {
  ImFontAtlas* atlas = ImGui::GetIO().Fonts;
  const std::vector<std::string> folders = font_folders();
  std::string unreadable;
  for (const std::string& folder : folders) {
    for (const char* file : face.files) {
      const std::string path = folder + "/" + file;
      std::error_code code;
      if (!fs::is_regular_file(path, code)) continue;
      ImFontConfig config;
      config.Flags |= ImFontFlags_NoLoadError;
      config.ExtraSizeScale = face.scale;
      config.GlyphOffset.y = face.drop;
      if (ImFont* font = atlas->AddFontFromFileTTF(path.c_str(), 14, &config)) {
        return {font, false};
      }
      unreadable = path;
    }
  }
  problems.push_back(
      unreadable.empty()
          ? fmt::format("Font {} was not found in {}; the built-in font is used. On Debian and "
                        "Ubuntu install {}; or list its folder, and all others to search, in "
                        "ATTNSCOPE_FONTS.",
                        face.name, fmt::join(folders, ", "), face.package)
          : fmt::format("Font {}: {} is no font file that can be read; the built-in font is used.",
                        face.name, unreadable));
  return {atlas->AddFontDefaultVector(), true};
}

bool merge_icons(ImFont* font, const std::string& file) {
  ImFontConfig config;
  config.MergeMode = true;
  config.DstFont = font;
  config.Flags |= ImFontFlags_NoLoadError;
  config.ExtraSizeScale = 0.88f;  // the glyphs fill their square
  return ImGui::GetIO().Fonts->AddFontFromFileTTF(file.c_str(), 0, &config) != nullptr;
}

// No boxes: what a face lacks is shown as a plain letter.
void stand_in(ImFont* font, bool built_in) {
  const auto replace = [font](unsigned code, char letter) {
    const auto wide = static_cast<ImWchar>(code);
    if (!font->IsGlyphInFont(wide)) font->AddRemapCodepoint(wide, static_cast<ImWchar>(letter));
  };
  for (const icon::Letter& i : icon::kLetters) replace(i.code, i.letter);
  constexpr std::array<icon::Letter, 15> kSigns = {{{0x00b5, 'u'},
                                                    {0x00b7, '-'},
                                                    {0x00b1, '~'},
                                                    {0x00d7, 'x'},
                                                    {0x2009, ' '},
                                                    {0x2013, '-'},
                                                    {0x2019, '\''},
                                                    {0x2026, '.'},
                                                    {0x2190, '<'},
                                                    {0x2192, '>'},
                                                    {0x2212, '-'},
                                                    {0x2260, '#'},
                                                    {0x2264, '<'},
                                                    {0x2265, '>'},
                                                    {0x221e, '8'}}};
  for (const icon::Letter& i : kSigns) replace(i.code, i.letter);
  // The built-in face has these two, but empty.
  if (built_in) {
    font->AddRemapCodepoint(0x2019, '\'');
    font->AddRemapCodepoint(0x2026, '.');
  }
}

ImFont*& words_font() {
  static ImFont* font = nullptr;
  return font;
}
ImFont*& numbers_font() {
  static ImFont* font = nullptr;
  return font;
}

// The font, if it is one of the context's; else the context's own.
ImFont* alive(ImFont* font) {
  for (ImFont* known : ImGui::GetIO().Fonts->Fonts) {
    if (known == font) return font;
  }
  return ImGui::GetFont();
}

}  // namespace

std::string icon_font() { return ATTNSCOPE_ICON_FONT; }

FontReport load_fonts(const std::string& icons_file) {
  FontReport report;
  const Loaded faces[2] = {load_face(kWords, report.problems),
                           load_face(kNumbers, report.problems)};
  std::error_code code;
  const bool icons = fs::is_regular_file(icons_file, code) &&
                     merge_icons(faces[0].font, icons_file) &&
                     merge_icons(faces[1].font, icons_file);
  if (!icons) {
    report.problems.push_back(
        fmt::format("Icon font {} was not found or cannot be read; letters stand for the icons. "
                    "Build again to have it fetched.",
                    icons_file.empty() ? "(none was built in)" : icons_file));
  }
  for (const Loaded& face : faces) stand_in(face.font, face.built_in);
  words_font() = faces[0].font;
  numbers_font() = faces[1].font;
  ImGui::GetIO().FontDefault = faces[0].font;
  return report;
}

ImFont* words() { return alive(words_font()); }
ImFont* numbers() { return alive(numbers_font()); }

}  // namespace attnscope::gui
