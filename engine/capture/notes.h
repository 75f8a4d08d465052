// Notes on places of a run, and bookmarks, which are notes without a text. A capture keeps its own
// in notes.json beside its index; its digests and sizes do not know them, so that it stays what was
// recorded.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/session/step/step_trace.h"

namespace attnscope {

struct Note {
  Place place;
  // What was selected there; -1, or empty: nothing.
  std::int32_t request = -1;
  std::int64_t position = -1;
  int head = -1;
  std::int32_t block = -1;
  std::string tap;
  std::vector<std::int64_t> element;  // along the tap's axes
  std::string text;
  friend bool operator==(const Note&, const Note&) = default;
};

inline constexpr const char* kNotesFile = "notes.json";
inline constexpr std::size_t kMostNotes = 10000;
inline constexpr std::size_t kLongestNote = 2000;        // bytes of a text
inline constexpr std::size_t kLargestNotes = 32u << 20;  // bytes of a file

// Without such a file there are none.
Result<std::vector<Note>> read_notes(const std::string& file);
// The old file or the new one, never a half. Without notes the file goes.
Result<void> write_notes(const std::string& file, const std::vector<Note>& notes);

}  // namespace attnscope
