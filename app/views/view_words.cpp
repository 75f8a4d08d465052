#include "app/views/view_words.h"

#include <fmt/format.h>

#include "app/text/format.h"
#include "app/views/linkage.h"
#include "app/views/op_order.h"
#include "app/views/tensor_view.h"
#include "engine/io/shell_word.h"

namespace attnscope {

std::string place_words(const SessionInfo& info, const Place& place, const Selection& selection) {
  std::string text = format_place(place);
  if (selection.request >= 0) {
    text += fmt::format("; request {} \"{}\"", selection.request,
                        request_name(info, selection.request));
  }
  if (selection.position >= 0) text += fmt::format(", token {}", selection.position);
  text += fmt::format(", head {}", selection.head);
  if (selection.block >= 0) {
    text += fmt::format(", block {}", selection.block);
    if (selection.row >= 0) text += fmt::format(", row {}", selection.row);
  }
  if (selection.entry >= 0) {
    text += fmt::format(", entry {} of {} tokens", selection.entry, selection.entry_ratio);
  }
  return text;
}

std::string element_words(const StepTrace& step, const OpTrace& op, const TapCopy& tap,
                          const Selection& selection) {
  const auto axes = axes_of(step, op, tap);
  if (selection.element.empty() || selection.element.size() != axes.size()) return {};
  if (tap.value.data == nullptr) return {};
  TapIndex index(selection.element);
  for (int i = 0; i < index.rank; ++i) {
    const TapAxis& axis = axes[static_cast<std::size_t>(i)];
    if (axis.link == AxisLink::kToken) index[i] = index_of_token_row(step, op, index[i]);
    if (index[i] < 0 || index[i] >= axis.size) return {};
  }
  std::string text = fmt::format("{}: {}: ", tap.name, element_text(step, op, tap, index));
  if (const char* why = gaps_of(op, tap).why(tap, index)) return text + why;
  text += format_exact(element_at(tap.value, index));
  if (tap.reference.data != nullptr) {
    text += ", reference " + format_exact(element_at(tap.reference, index));
  }
  return text;
}

std::vector<std::string> view_commands(const Place& place, const Selection& selection,
                                       const std::string& layout) {
  std::vector<std::string> commands;
  if (!layout.empty()) commands.push_back("layout." + layout);
  commands.push_back("cursor.goto=" + place_text(place));
  if (selection.request >= 0 && selection.position >= 0) {
    commands.push_back(fmt::format("select.token={}/{}", selection.request, selection.position));
  } else if (selection.request > 0) {
    commands.push_back(fmt::format("select.request={}", selection.request));
  }
  if (selection.head > 0) commands.push_back(fmt::format("select.head={}", selection.head));
  if (selection.block >= 0) commands.push_back(fmt::format("select.block={}", selection.block));
  if (selection.entry >= 0) {
    commands.push_back(fmt::format("select.entry={}/{}", selection.entry, selection.entry_ratio));
  }
  if (!selection.tap.empty()) commands.push_back("tensor.tap=" + selection.tap);
  if (!selection.element.empty()) {
    commands.push_back(fmt::format("select.element={}", fmt::join(selection.element, "/")));
  }
  return commands;
}

std::string view_command_line(const std::string& shown, const std::vector<std::string>& lanes,
                              const std::vector<std::string>& commands) {
  std::string line = "attnscope gui " + shell_word(shown);
  for (const std::string& lane : lanes) line += " --lane " + shell_word(lane);
  return line + " --do " + shell_word(fmt::format("{}", fmt::join(commands, ",")));
}

}  // namespace attnscope
