// The app without its looks: the session on its thread, the cursor all panels follow, the
// selection, the scenario being edited, messages. No drawing, no waiting: everything long is posted
// to the session's thread, and poll() picks up what it published.
//
// The cursor names an op that ran. It moves freely among steps whose traces are kept; going to an
// op that is not kept asks the session to replay or run to it, and the cursor follows when the
// picture arrives.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "app/views/kv_stream.h"
#include "app/views/message.h"
#include "app/views/selection.h"
#include "app/views/stop_condition.h"
#include "app/workbench/place_history.h"
#include "engine/capture/capture.h"
#include "engine/capture/notes.h"
#include "engine/session/place.h"
#include "engine/session/worker.h"

namespace attnscope {

struct PooledOf;      // pooled_tokens.h
struct PooledTokens;  // pooled_tokens.h
struct WhatIfOf;      // what_if_run.h
struct LanesFrom;     // likewise
struct CausesOf;      // causes_run.h

// How a scenario is run; edits are applied as a whole.
struct RunSetup {
  Scenario scenario;
  std::vector<std::string> lanes = {"cpu"};  // as LaneSelector::make
  References references = References::kBoth;
};

struct RunPair;

class Workbench {
 public:
  struct Options {
    std::string cache_folder;  // kept sessions; empty = none are kept
    std::int64_t trace_budget_mb = 256;
    std::int64_t rewind_budget_mb = 256;
    std::int64_t kept_events = kKeptCacheEvents;  // of blocks
    int threads = 0;
    std::function<void()> on_change;  // from any thread: something new to show
  };
  explicit Workbench(Options options);
  ~Workbench();

  // ---- session
  // Replaces the session. Returns at once; the old picture stays until the new one arrives.
  // When warm_up, runs on to the scenario's first decode steps (from a kept session if there is
  // one) so that there is something to see.
  void open(RunSetup setup, bool warm_up);
  // A name from assets/scenarios or a file; errors leave everything as it was.
  Result<void> open_scenario(const std::string& name_or_path);
  // Shows a capture in the place of a session: all that moves and selects works, nothing runs.
  // Errors leave everything as it was.
  Result<void> open_capture(const std::string& path);
  // Session or capture go; nothing is shown until another is opened.
  void close();
  // Null while a session is shown.
  const Capture* capture() const { return capture_.get(); }
  // Why what the capture was recorded from cannot be run here; nothing when it can, and for a
  // session. setup()'s scenario is empty then.
  const std::optional<Error>& no_scenario() const { return no_scenario_; }
  // Of a capture: why the op under the cursor has no values and how to record them; empty when it
  // has, and for a session. needs: the lowest level that has what is asked for.
  std::string why_missing(CaptureLevel needs = CaptureLevel::kFull) const;
  // What is shown laid beside another run, for whoever draws ops and steps; null: nothing is.
  const std::shared_ptr<const RunPair>& comparison() const { return comparison_; }
  void set_comparison(std::shared_ptr<const RunPair> comparison);
  // Writes the steps that are kept into a capture, all taps, on a thread of its own; a message says
  // how it went.
  Result<void> save_capture(const std::string& path);
  // Runs the scenario from its start, with the lanes that are chosen, on a thread of its own and
  // records it; the session stays as it is. A message says how it went.
  Result<void> record(const std::string& path, CaptureLevel level);
  // Share done and what is being written; nothing when nothing is recorded.
  std::optional<std::pair<double, std::string>> recording() const;
  // Runs the scenario from its start up to the op under the cursor, with the lanes and the planted
  // bug that are chosen, on a thread of its own, then the op once more with one thing changed at a
  // time; the session stays as it is.
  Result<void> ask_what_if();
  // What the last one gave; null before, and when another scenario was opened.
  const std::shared_ptr<const WhatIfOf>& what_if() const { return what_if_; }
  // Known mistakes tried on the op under the cursor: of a session likewise, of a capture as far as
  // it keeps the op's inputs.
  Result<void> ask_causes();
  const std::shared_ptr<const CausesOf>& causes() const { return causes_; }
  // The op that is on its way there and the share done; nothing when none is.
  std::optional<std::pair<double, Place>> asking() const;
  // Reads a stream of cache events on a thread of its own; a message says how it went. The session
  // stays.
  Result<void> open_events(const std::string& path);
  // Null when none is open.
  const std::shared_ptr<const KvStream>& events() const { return events_; }
  // What a session beside the one that is shown needs, to compute the same.
  SessionOptions options_beside() const;
  LanesFrom lanes_from() const;
  // Which invariants are checked around every step, of this session and later ones.
  void set_invariants(Invariants level);
  const RunSetup& setup() const { return setup_; }
  // Whether these lanes exist and hold the ops they are chosen for (as LaneSelector::make).
  Result<void> check_lanes(const std::vector<std::string>& lanes) const;
  // Also that the scenario's model has the ops, and one at least of each lane for all ops: a run
  // tells of one that ran none at its end, which a session that is looked at need not have.
  Result<void> check_setup(const RunSetup& setup) const;
  std::vector<std::string> lane_names() const;
  // Of sessions opened from now on.
  void set_trace_budget(std::int64_t mb);
  void set_kept_events(std::int64_t events);  // of the next session too
  // Of this session and later ones.
  void set_rewind_budget(std::int64_t mb);
  // Picks up new pictures and errors. True when anything changed since the last call.
  bool poll();
  // Null until a session's first picture.
  const Snapshot* snapshot() const { return snapshot_.get(); }
  std::shared_ptr<const Snapshot> shared_snapshot() const { return snapshot_; }
  bool busy() const;
  std::string running() const;  // title of the running command, "" when idle
  double running_seconds() const;
  void cancel();
  void wait_idle();  // for tests and off-screen use; polls afterwards
  // Grows with every change of picture, cursor, selection or setup: panels cache by it.
  std::uint64_t version() const { return version_; }

  // ---- cursor
  const Place& cursor() const { return cursor_; }
  // Moves there now if the op's trace is kept, else runs or replays to it. A jump, which go_back()
  // undoes; moves by one op, layer or step are none.
  void go_to(const Place& place);
  // To the place that was left by the last jump, and what was selected there; and forward again.
  void go_back(), go_forward();
  bool can_go_back() const { return visited_.has_back(); }
  bool can_go_forward() const { return visited_.has_forward(); }
  void next_op(), previous_op(), next_layer(), previous_layer(), next_step(), previous_step();
  void first_step(), last_step();
  // Runs until it holds at the end of a step, or to the end.
  void run_until(std::string title, std::function<bool(const Session&)> predicate);
  // ---- stops: what a run is to be stopped at
  struct Stop {
    StopCondition condition;
    bool on = true;
  };
  // Those of the scenario at first.
  const std::vector<Stop>& stops() const { return stops_; }
  Result<void> add_stop(std::string_view text);
  void remove_stop(std::size_t index);
  void switch_stop(std::size_t index, bool on);
  // As a scenario file has them.
  std::vector<ScenarioStop> scenario_stops() const;
  // Where the first of those that are on holds in a step; nothing: none does. step: known.
  std::optional<StopHit> stop_hit(const StepSummary& step) const;
  // Runs until one of those that are on holds of a step, or to the end, and goes there. In a
  // capture: to the next step after the cursor's.
  Result<void> run_to_stop();
  // To the newest step before the cursor's of which one holds. A message says where nothing was
  // found, and which steps could not be looked at.
  Result<void> back_to_stop();

  // ---- notes on places, by step. Those of a capture are kept in it, those of a scenario in the
  // cache folder, and written into captures that are made of it. Where a change cannot be written,
  // it is kept as long as the app runs, and the error says why.
  const std::vector<Note>& notes() const { return notes_; }
  // Of the cursor's op and of what is selected. An empty text is a bookmark.
  Result<void> add_note(std::string_view text);
  Result<void> remove_note(std::size_t index);
  void go_to_note(std::size_t index);
  std::string notes_file() const;  // where they are kept; empty: nowhere

  // Earliest wrong tap of all steps known; false when none is.
  bool go_to_first_failure();
  // The newest step before the cursor's of which it holds; false when there is none.
  bool go_back_to(const std::function<bool(const StepSummary&)>& predicate);
  // A pending move (its picture has not arrived yet).
  bool moving() const { return target_.has_value(); }

  // Trace of the cursor's step, of the step before it, of the cursor's op; null when not kept.
  const StepTrace* step() const;
  const StepTrace* step_before() const;
  const OpTrace* op() const;
  const StepSummary* summary() const;

  // ---- selection
  const Selection& selection() const { return selection_; }
  void select(const Selection& selection);
  void select_token(std::int32_t request, std::int64_t position);
  // Token row of the selection in the cursor's step: the selected position if it is computed there,
  // else the request's last row, else the last row of the step; -1 without a trace.
  std::int64_t selected_row() const;
  // Request and position of that row; request -1 without a trace.
  std::int32_t selected_request() const;
  std::int64_t selected_position() const;
  // The selected tap of the op under the cursor (by name, else the first output); null if none.
  const TapCopy* selected_tap() const;

  // ---- blocks as they are now
  // Asks the session's thread for a block's bytes; block_bytes() is null until they come.
  void request_block(std::int32_t block);
  std::shared_ptr<const BlockBytes> block_bytes() const;
  // The same for the tokens pooled into an entry: from the rows that the layer's compressor wrote,
  // however long ago.
  void request_pooled(const PooledOf& of);
  std::shared_ptr<const PooledTokens> pooled() const;

  // ---- messages and planted bugs
  void say(Message::Kind kind, std::string text);
  const std::deque<Message>& messages() const { return messages_; }
  // Name of the planted mutant ("topk_one_short"), empty when none.
  const std::string& planted() const { return planted_; }
  // How often the cursor has come to a wrong tap, with its worst element selected: what shows
  // elements goes there when it changes.
  std::uint64_t landed() const { return landed_; }
  // What failed of the session's plugins, a sentence each: lane cpu stands in for them.
  const std::vector<std::string>& lane_faults() const { return lane_faults_; }
  // Runs the newest step again with the mutant in place of its op, and further steps until a tap is
  // wrong; then goes there.
  void plant(const std::string& mutant);
  // Runs from there with the healthy lanes again.
  void remove_planted();

 private:
  void change_lanes(const std::vector<std::string>& lanes, const std::string& title,
                    bool until_wrong);
  std::vector<std::string> planted_lanes() const;
  void forget_shown();  // what was made of or asked of what is shown
  void show_capture(const Place& place);
  std::vector<OpCost> costs_of(std::int64_t step);
  // one_op: the cursor stands where the session does, which runs its next op, whichever that is.
  void move_to(const Place& place, bool one_op = false);
  // Whether its step is known not to have run it: nothing to swap, nobody who samples.
  bool is_absent(const Place& place) const;
  // The next place in this order that is not absent.
  std::optional<Place> beyond_absent(const Place& from,
                                     std::optional<Place> (*next)(const SessionInfo& info,
                                                                  const Place& place)) const;
  Place or_begin_of_step(const Place& place) const;
  void revisit(const std::optional<Visit>& visit);
  void load_notes();
  Result<void> keep_notes();
  void go_to_result(const TapResult& wrong);
  void land_on(const TapResult& wrong);
  Result<void> check_stops() const;  // that one is on
  void take_stops(const Scenario& scenario);
  void go_to_hit(const StopHit& hit, const TapResult* result);
  void take_reached();
  void say_read_only();
  // What runs on a thread of its own; what it returns is called by poll().
  Result<void> in_background(const char* what, std::function<std::function<void()>()> work);
  // The same of what the op under the cursor is asked; progress is false once it was stopped.
  Result<void> ask_beside(
      const char* what,
      std::function<std::function<void()>(const std::function<bool(double)>& progress)> work);

  struct Impl;
  std::unique_ptr<Impl> impl_;
  RunSetup setup_;
  std::shared_ptr<const Snapshot> snapshot_;
  std::shared_ptr<const Capture> capture_;
  std::optional<Error> no_scenario_;
  std::shared_ptr<const RunPair> comparison_;
  std::shared_ptr<const KvStream> events_;
  std::shared_ptr<const WhatIfOf> what_if_;
  std::shared_ptr<const CausesOf> causes_;
  Place cursor_{-1, -1, AS_OP_SCHEDULE};
  std::optional<Place> target_;
  Selection selection_;
  std::deque<Message> messages_;
  std::string planted_;
  std::vector<std::string> lane_faults_;
  std::vector<Stop> stops_;
  PlaceHistory visited_;
  std::vector<Note> notes_;
  std::optional<TapResult> landing_;  // where the cursor goes, once its op has been replayed
  std::uint64_t landed_ = 0;
  std::uint64_t version_ = 0;
};

}  // namespace attnscope
