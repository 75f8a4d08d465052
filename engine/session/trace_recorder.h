// Records StepTraces and StepSummaries while a session runs. Traces of the newest steps are kept
// within a memory budget; summaries of all steps are. Belongs to the session's thread; what it
// hands out is immutable.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "engine/session/observer.h"
#include "engine/session/step/step_trace.h"

namespace attnscope {

// Whether the values of an op's taps of one dtype (AS_DTYPE_..) are copied; of others there are
// statistics, which cost less than a copy.
using KeepsTap = std::function<bool(const Place& place, std::int32_t dtype)>;

inline constexpr std::int64_t kKeptCacheEvents = 200000;  // 9.6 MB

struct TraceOptions {
  std::int64_t budget_bytes = std::int64_t{256} << 20;  // of all traces; the newest two always stay
  std::int64_t max_rows = 64;                           // token rows a trace keeps at most
  bool all_rows = false;                                // whatever they cost
  std::vector<std::int32_t> requests = {};              // ids whose rows are kept; empty = all
  bool attention = true;                                // AttentionCopy of sparse_attention
  KeepsTap keeps = {};                                  // empty = all
  // Block events that summaries keep, of whole steps, however long ago their tensors went; those of
  // the newest step always stay.
  std::int64_t max_events = kKeptCacheEvents;
  // Large tensors of all but the newest steps lie in a file (RestingMemory). They count as before.
  bool rest = false;
};

struct StepRecord;

// What is known of a step that nobody watched: tokens, results, times.
StepSummary summary_of(const Session& session, const StepRecord& record);

class TraceRecorder : public SessionObserver {
 public:
  explicit TraceRecorder(TraceOptions options = {});
  ~TraceRecorder() override;

  void op_done(const Session& session) override;
  void step_done(const Session& session) override;
  void went_back(const Session& session) override;
  void lanes_changed(const Session& session) override;
  void lane_failed(const Session& session, const Error& error) override { failed(session, error); }
  // A command failed: the step in progress (or the last one) says so.
  void failed(const Session& session, const Error& error);
  // Steps that ran before this recorder watched (a resumed session): summaries without traces.
  void adopt_history(const Session& session);

  // By step, ascending; the step in progress last. Steps after the session's own position stay.
  std::vector<std::shared_ptr<const StepSummary>> summaries() const;
  std::vector<std::shared_ptr<const StepTrace>> traces() const;
  // Of one step that is complete; nullptr = it is not kept.
  std::shared_ptr<const StepSummary> summary(std::int64_t step) const;
  std::shared_ptr<const StepTrace> trace(std::int64_t step) const;
  std::int64_t bytes() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace attnscope
