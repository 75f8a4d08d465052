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
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "app/workbench/settings.h"
#include "app/workbench/workbench.h"

namespace attnscope {

// A text that copies share until one of them is given another: a prompt may be a megabyte, and
// every step of undo holds all prompts.
class SharedText {
 public:
  SharedText() = default;
  SharedText(std::string text) : text_(std::make_shared<const std::string>(std::move(text))) {}
  SharedText(const char* text) : SharedText(std::string(text)) {}
  const std::string& str() const {
    static const std::string none;
    return text_ ? *text_ : none;
  }
  friend bool operator==(const SharedText& a, const SharedText& b) {
    return a.text_ == b.text_ || a.str() == b.str();
  }

 private:
  std::shared_ptr<const std::string> text_;
};

// Texts of number fields are as typed; empty = the loader's default, where it has one.
struct RequestDraft {
  std::string name;
  bool from_file = false;
  SharedText text;        // the prompt itself
  std::string text_file;  // or where it is
  std::string offset, tokens;
  std::string max_new_tokens;
  std::string arrival_step, abort_step, priority;
  friend bool operator==(const RequestDraft&, const RequestDraft&) = default;
};

// They compute nothing: a file with other stops is the same one.
struct StopsOfFile {
  std::vector<ScenarioStop> list;
  friend bool operator==(const StopsOfFile&, const StopsOfFile&) { return true; }
};

// What a scenario file holds.
struct ScenarioFile {
  std::string name;          // empty = the file's
  bool from_config = false;  // model: a config.json or a checkpoint in place of a preset
  std::string preset, config;
  std::string layers;  // "0, 1, 2"; empty = all
  std::string seed;
  std::string sinks;          // of heads: "3: -inf, 5: inf, 7: 1.5"; empty = the weights'
  std::string hidden_states;  // file with the inputs of the layers; empty = none
  std::string profile;
  std::string ranks, rank;  // of tensor parallelism; empty = one
  std::string pool_blocks, token_budget, max_requests, decode_steps;
  std::string caching;          // "on" or "off"; empty = as the loader has it, as the next two
  std::string manager_profile;  // of the block manager: "M" or "A"
  std::string policy;           // "fcfs" or "priority"
  std::string serving;          // what else the object of this name holds, as JSON; empty = nothing
  std::string model_more, more;  // the same of the model and of the whole: keys without a field
  std::vector<RequestDraft> requests;
  StopsOfFile stops;
  friend bool operator==(const ScenarioFile&, const ScenarioFile&) = default;
};

// One request of a small model, to begin with.
ScenarioFile new_scenario();

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

class ScenarioEditor {
 public:
  // The session was opened with this setup. Edits that were not applied stay where it is the same
  // scenario with other lanes or references; else undo brings them back, with their own file.
  void load(const RunSetup& setup);

  const ScenarioDraft& draft() const { return now_.draft; }
  // Begins another draft, of no file; undo leads back.
  void start(ScenarioFile file);
  // The file it came from or was saved to.
  const std::string& path() const { return now_.file->path; }
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
  bool applied() const { return is_applied_; }  // the session runs what the draft says
  bool saved() const { return is_saved_; }
  void revert();  // to what the session runs

  RunSetup setup(Scenario scenario) const;  // with the draft's lanes and references
  // The session is opened with the draft, as setup() gave it.
  void mark_applied(const RunSetup& setup);
  void mark_saved(ScenarioFile as_written, const std::string& path);

 private:
  // The file that a draft belongs to. Undo leads back to an earlier file; what was saved to a file
  // holds for all drafts of it.
  struct File {
    std::string path;
    ScenarioFile saved;
  };
  struct State {
    ScenarioDraft draft;
    std::shared_ptr<File> file = std::make_shared<File>();
    std::string path;  // that the names of other files in the draft are relative to
  };

  void restore(State state);
  void changed();

  State now_;
  ScenarioDraft applied_;
  std::shared_ptr<File> applied_file_ = now_.file;
  std::optional<ScenarioDraft> before_;  // while a field is being typed into
  UndoStack<State> undo_;
  // What the session was opened with: a draft may have been saved to another file since.
  std::string opened_path_;
  ScenarioFile opened_;
  bool is_applied_ = true, is_saved_ = true;
  std::uint64_t version_ = 0;
};

}  // namespace attnscope
