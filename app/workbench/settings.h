// The user's settings: one JSON file with comments, read leniently key by key, so that one bad
// value costs that value and nothing else. With undo.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/session/trace_recorder.h"
#include "engine/session/verify/invariant_guard.h"
#include "kernels/params/result.h"

namespace attnscope {

struct Settings {
  std::string theme = "dark";   // "dark", "light", or a file in assets/themes or a path
  float scale = 1.0f;           // of text and spacing, 0.75 to 3, on top of the monitor's
  std::string layout = "step";  // named layout shown at start
  bool animations = true;
  bool whole_sentences = false;        // of panels, where they are longer than a line
  std::string colour_map = "viridis";  // magnitude: "viridis", "grey"
  bool free_list_order = false;        // pool map shows the free list's order
  bool tour_seen = false;
  std::int64_t trace_budget_mb = 256;
  std::int64_t rewind_budget_mb = 256;
  std::int64_t kept_events = kKeptCacheEvents;  // of blocks
  Invariants invariants = default_invariants();
  std::string scenario = "default";              // open at the end: name or file
  std::vector<std::string> recent;               // scenario files, newest first, at most 10
  std::map<std::string, std::string> shortcuts;  // by command id
  int window_width = 1600, window_height = 1000;
  std::optional<std::pair<int, int>> window_at;  // x, y on the desktop; none: anywhere
  friend bool operator==(const Settings&, const Settings&) = default;
};

// What is remembered rather than set, such as the last scenario: undo and reset leave it alone.
void keep_state(const Settings& from, Settings& to);

// Settings::load never fails as a whole: what is wrong is said in `problems`, one sentence each
// with file, key, allowed values and what was taken in its place. A file that is not JSON is kept
// aside as FILE.bad and said.
struct LoadedSettings {
  Settings settings;
  std::vector<std::string> problems;
};
LoadedSettings load_settings(const std::string& path);
// Written to a temporary name, then renamed.
Result<void> save_settings(const Settings& settings, const std::string& path);

// Undo for settings and scenario edits: values before and after.
template <class T>
class UndoStack {
 public:
  void push(T before) {
    undo_.push_back(std::move(before));
    redo_.clear();
    if (undo_.size() > 200) undo_.erase(undo_.begin());
  }
  bool can_undo() const { return !undo_.empty(); }
  bool can_redo() const { return !redo_.empty(); }
  T undo(T now) {
    T value = std::move(undo_.back());
    undo_.pop_back();
    redo_.push_back(std::move(now));
    return value;
  }
  T redo(T now) {
    T value = std::move(redo_.back());
    redo_.pop_back();
    undo_.push_back(std::move(now));
    return value;
  }

 private:
  std::vector<T> undo_, redo_;
};

}  // namespace attnscope
