#include "app/gui/text_input.h"

#include <cstddef>

namespace attnscope::gui {
namespace {

int grow(ImGuiInputTextCallbackData* data) {
  if (data->EventFlag == ImGuiInputTextFlags_CallbackResize) {
    auto& text = *static_cast<std::string*>(data->UserData);
    text.resize(static_cast<std::size_t>(data->BufTextLen));
    data->Buf = text.data();
  } else if (data->EventFlag == ImGuiInputTextFlags_CallbackAlways) {
    data->CursorPos = data->SelectionStart = data->SelectionEnd = data->BufTextLen;
  }
  return 0;
}

}  // namespace

bool text_input(const char* id, std::string& text, const char* hint, ImGuiInputTextFlags flags,
                bool caret_at_end) {
  if (caret_at_end) flags |= ImGuiInputTextFlags_CallbackAlways;
  return ImGui::InputTextWithHint(id, hint != nullptr ? hint : "", text.data(), text.capacity() + 1,
                                  flags | ImGuiInputTextFlags_CallbackResize, grow, &text);
}

bool text_area(const char* id, std::string& text, ImVec2 size, ImGuiInputTextFlags flags) {
  // Wrapping goes through the whole text in every frame.
  constexpr std::size_t kLongestWrapped = 32768;
  if (text.size() <= kLongestWrapped) flags |= ImGuiInputTextFlags_WordWrap;
  return ImGui::InputTextMultiline(id, text.data(), text.capacity() + 1, size,
                                   flags | ImGuiInputTextFlags_CallbackResize, grow, &text);
}

}  // namespace attnscope::gui
