// A scenario while it is being edited: what was typed, field by field, checked by the engine's own
// loader, with undo.
//
//   ScenarioEditor editor;
//   editor.load(bench.setup());
//   editor.change([](ScenarioDraft& d) { d.file.pool_blocks = "800"; });   // one step of undo
//   DraftCheck check = check_draft(editor.draft().file, editor.path());
//   if (check.scenario) bench.open(editor.setup(*check.scenario), true);
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "app/common/settings.h"
#include "app/common/workbench.h"

namespace attnscope {

// Texts of number fields are as typed; empty = the loader's default, where it has one.
struct RequestDraft {
  std::string name;
  bool from_file = false;
  std::string text;       // the prompt itself
  std::string text_file;  // or where it is
  std::string offset, tokens;
  std::string max_new_tokens;
  friend bool operator==(const RequestDraft&, const RequestDraft&) = default;
};

// What a scenario file holds.
struct ScenarioFile {
  std::string name;          // empty = the file's
  bool from_config = false;  // model: a config.json in place of a preset
  std::string preset, config;
  std::string layers;  // "0, 1, 2"; empty = all
  std::string seed;
  std::string profile;
  std::string pool_blocks, token_budget, max_requests, decode_steps;
  std::vector<RequestDraft> requests;
  friend bool operator==(const ScenarioFile&, const ScenarioFile&) = default;
};

struct ScenarioDraft {
  ScenarioFile file;
  std::vector<std::string> lanes = {"cpu"};
  References references = References::kBoth;
  friend bool operator==(const ScenarioDraft&, const ScenarioDraft&) = default;
};

// What the setup's scenario was read from; made from the scenario itself where that text is none.
ScenarioDraft draft_of(const RunSetup& setup);

// Errors by place: "pool_blocks", "requests[1].tokens"; "" = the whole.
using DraftErrors = std::map<std::string, std::string>;

// As a scenario file. Fields that are no numbers, or no text, are errors.
Result<std::string> draft_text(const ScenarioFile& draft, DraftErrors* errors = nullptr);

// Reads the draft with the engine's loader, as if it stood in the file `path`.
struct DraftCheck {
  DraftErrors errors;                // empty: scenario is set
  std::optional<Scenario> scenario;  // with the text it was read from
};
DraftCheck check_draft(const ScenarioFile& draft, const std::string& path);

// Writes it to `path`. Files that were found from `from`, the draft's former place, are named so
// that they are found from the new one. Returns the draft as written.
Result<ScenarioFile> save_draft(const ScenarioFile& draft, const std::string& from,
                                const std::string& path);

// ---- lanes of a draft
// The lane all ops run on, and the one chosen for an op ("" = none of its own).
std::string base_lane(const std::vector<std::string>& lanes);
std::string lane_of(const std::vector<std::string>& lanes, as_op_id op);
// "" removes the op's own choice.
void set_base_lane(std::vector<std::string>& lanes, const std::string& lane);
void set_lane(std::vector<std::string>& lanes, as_op_id op, const std::string& lane);

class ScenarioEditor {
 public:
  // The session was opened with this setup. Edits that were not applied stay where it is the same
  // scenario with other lanes or references; else undo brings them back.
  void load(const RunSetup& setup);

  const ScenarioDraft& draft() const { return draft_; }
  const std::string& path() const { return path_; }   // the file it came from or was saved to
  std::uint64_t version() const { return version_; }  // grows with every change of the draft

  // One step of undo.
  void change(const std::function<void(ScenarioDraft&)>& edit);
  // A field that is typed into: all keys between begin() and end() are one step of undo.
  void begin();
  void type(const std::function<void(ScenarioDraft&)>& edit);
  void end();

  bool can_undo() const { return undo_.can_undo(); }
  bool can_redo() const { return undo_.can_redo(); }
  void undo();
  void redo();
  bool applied() const { return draft_ == applied_; }  // the session runs what the draft says
  bool saved() const { return draft_.file == saved_; }
  void revert();  // to what the session runs

  RunSetup setup(Scenario scenario) const;  // with the draft's lanes and references
  void mark_applied() { applied_ = draft_; }
  void mark_saved(ScenarioFile as_written, const std::string& path);

 private:
  void replace(ScenarioDraft next);

  ScenarioDraft draft_, applied_;
  ScenarioFile saved_;
  std::optional<ScenarioDraft> before_;  // while a field is being typed into
  UndoStack<ScenarioDraft> undo_;
  std::string path_;
  std::uint64_t version_ = 0;
};

}  // namespace attnscope
