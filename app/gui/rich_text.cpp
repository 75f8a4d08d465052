#include "app/gui/rich_text.h"

#include <imgui.h>
#include <imgui_internal.h>

#include <algorithm>
#include <cfloat>

#include "app/gui/theme.h"

namespace attnscope::gui {
namespace {

// "41", "-1.2e-4", "(3", ".5": a digit after signs and brackets.
bool is_number(std::string_view word) {
  constexpr std::string_view kBefore = "+-~(<>=[#.";
  const std::size_t first = word.find_first_not_of(kBefore);
  return first != std::string_view::npos && word[first] >= '0' && word[first] <= '9';
}

class TextFlow {
 public:
  explicit TextFlow(float width) : width_(width), origin_(ImGui::GetCursorScreenPos()) {
    space_ = words()->CalcTextSizeA(size_, FLT_MAX, 0, " ").x;
  }

  void add_word(std::string_view word) {
    ImFont* font = is_number(word) ? numbers() : words();
    const char* end = word.data() + word.size();
    const float w = font->CalcTextSizeA(size_, FLT_MAX, 0, word.data(), end).x;
    if (x_ > 0 && x_ + w > width_) new_line();
    ImGui::GetWindowDrawList()->AddText(font, size_, {origin_.x + x_, origin_.y + y_},
                                        ImGui::GetColorU32(ImGuiCol_Text), word.data(), end);
    x_ += w;
    widest_ = std::max(widest_, x_);
  }
  void add_space() { x_ += space_; }
  void new_line() {
    x_ = 0;
    y_ += line_;
  }
  void finish() { ImGui::Dummy({widest_, y_ + ImGui::GetTextLineHeight()}); }

 private:
  float width_;
  ImVec2 origin_;
  float size_ = ImGui::GetFontSize();
  float line_ = ImGui::GetTextLineHeight() + px(2);
  float space_ = 0;
  float x_ = 0, y_ = 0, widest_ = 0;
};

}  // namespace

void rich_text(std::string_view text, float width) {
  const ImVec2 at = ImGui::GetCursorScreenPos();
  ImGui::LogRenderedText(&at, text.data(), text.data() + text.size());
  TextFlow layout(width);
  while (!text.empty()) {
    const std::size_t end = std::min(text.find_first_of(" \n"), text.size());
    if (end > 0) {
      layout.add_word(text.substr(0, end));
    } else if (text.front() == '\n') {
      layout.new_line();
    } else {
      layout.add_space();
    }
    text.remove_prefix(std::max<std::size_t>(end, 1));
  }
  layout.finish();
}

}  // namespace attnscope::gui
