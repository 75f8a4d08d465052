#include "app/views/note_view.h"

#include <fmt/format.h>

#include <algorithm>

#include "app/text/format.h"
#include "app/views/linkage.h"

namespace attnscope {

std::string note_place(const SessionInfo& info, const Note& note) {
  std::string text = format_place(note.place);
  if (!note.tap.empty()) {
    text += fmt::format(" · {}", note.tap);
    if (!note.element.empty()) text += fmt::format(" [{}]", fmt::join(note.element, ", "));
  }
  if (note.position >= 0) {
    text += fmt::format(" · {}, token {}", request_name(info, note.request),
                        format_count(note.position));
  }
  if (note.block >= 0) text += fmt::format(" · block {}", note.block);
  return text;
}

std::string notes_sentence(const std::vector<Note>& notes, const std::string& kept) {
  if (notes.empty()) {
    return "No place has a note: write one below on the op that is shown, or press Ctrl+B to mark "
           "it.";
  }
  const auto steps = [&] {
    std::int64_t count = 0, last = -1;
    for (const Note& note : notes) {
      if (note.place.step != last) ++count;
      last = note.place.step;
    }
    return count;
  }();
  return fmt::format("{} on {}{}.", plural(std::ssize(notes), "note", "notes"),
                     plural(steps, "step", "steps"),
                     kept.empty() ? ", kept as long as the app runs" : ", kept in " + kept);
}

}  // namespace attnscope
