// Places that were visited, and notes on places.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "app/text/text.h"
#include "app/views/op_order.h"
#include "app/workbench/workbench_impl.h"
#include "engine/io/content_hash.h"

namespace attnscope {
namespace {

namespace fs = std::filesystem;

// The file of a scenario's notes: its name, and what tells files of one name apart.
std::string notes_name(const Scenario& scenario) {
  std::error_code code;
  const std::string path =
      scenario.path.empty() ? "" : fs::absolute(scenario.path, code).lexically_normal().string();
  std::string name = scenario.name.empty() ? "scenario" : scenario.name.substr(0, 60);
  std::ranges::replace(name, '/', '-');
  return fmt::format("{}-{:016x}.notes.json", name, content_hash(path.data(), path.size()));
}

}  // namespace

void Workbench::go_to(const Place& place) {
  if (snapshot_ && cursor_.step >= 0 && place != cursor_ && has_place(*snapshot_->info, place)) {
    visited_.leave({cursor_, selection_});
  }
  move_to(place);
}

void Workbench::revisit(const std::optional<Visit>& visit) {
  if (!visit) return;
  move_to(visit->place);
  select(visit->selection);
}

void Workbench::go_back() { revisit(visited_.back({cursor_, selection_})); }

void Workbench::go_forward() { revisit(visited_.forward({cursor_, selection_})); }

std::string Workbench::notes_file() const {
  if (capture_) return (fs::path(capture_->path()) / kNotesFile).string();
  const std::string& folder = impl_->options.cache_folder;
  if (folder.empty() || setup_.scenario.requests.empty()) return "";
  return folder + "/" + notes_name(setup_.scenario);
}

void Workbench::load_notes() {
  visited_.clear();
  notes_.clear();
  const std::string file = notes_file();
  if (file.empty()) return;
  auto notes = read_notes(file);
  if (!notes) {
    // The file stays as it is until a note is written, which is then said to fail.
    say(Message::Kind::kWarning, "The notes were not read: " + notes.error().text());
    return;
  }
  notes_ = std::move(*notes);
}

Result<void> Workbench::keep_notes() {
  ++version_;
  const std::string file = notes_file();
  if (file.empty()) return {};
  if (auto known = read_notes(file); !known) {
    return Error{known.error().code,
                 "the note is kept as long as the app runs: " + known.error().message,
                 "mend or remove that file, then change a note"};
  }
  if (!capture_) {
    std::error_code code;
    fs::create_directories(impl_->options.cache_folder, code);  // writing says what is wrong
  }
  auto written = write_notes(file, notes_);
  if (written) return {};
  return Error{written.error().code,
               "the note is kept as long as the app runs: " + written.error().message,
               written.error().hint};
}

Result<void> Workbench::add_note(std::string_view text) {
  if (!snapshot_ || cursor_.step < 0) {
    return usage_error("there is no op to write a note on", "go to one first");
  }
  if (notes_.size() >= kMostNotes) {
    return usage_error(fmt::format("there are {} notes", kMostNotes), "remove some");
  }
  if (text.size() > kLongestNote) {
    return usage_error(fmt::format("a note of {} bytes", text.size()),
                       fmt::format("at most {}", kLongestNote));
  }
  Note note;
  note.place = cursor_;
  note.request = selection_.request;
  note.position = selection_.position;
  note.head = selection_.head;
  note.block = selection_.block;
  note.tap = selection_.tap;
  note.element = selection_.element;
  note.text = std::string(trimmed(text));
  if (std::ranges::find(notes_, note) != notes_.end()) return {};
  const auto at = std::ranges::upper_bound(notes_, note.place.step, {},
                                           [](const Note& n) { return n.place.step; });
  notes_.insert(at, std::move(note));
  return keep_notes();
}

Result<void> Workbench::remove_note(std::size_t index) {
  if (index >= notes_.size()) return {};
  notes_.erase(notes_.begin() + static_cast<std::ptrdiff_t>(index));
  return keep_notes();
}

void Workbench::go_to_note(std::size_t index) {
  if (index >= notes_.size()) return;
  const Note note = notes_[index];
  go_to(note.place);
  Selection selection;
  selection.request = std::max(0, note.request);
  selection.position = note.position;
  selection.head = std::max(0, note.head);
  selection.block = note.block;
  selection.tap = note.tap;
  selection.element = note.element;
  select(selection);
}

}  // namespace attnscope
