// What happened in a step, in words: for the log.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/session/session.h"
#include "engine/session/step/step_trace.h"

namespace attnscope {

// Events of the block manager and the scheduler from `first` on: sentences for those that a reader
// of the log wants, and which blocks the step took and gave back. at_end: of the step's end.
void add_cache_events(const Session& session, std::size_t first, bool at_end, StepTrace& trace,
                      std::vector<Event>& events);
// Sampled tokens of a finished step; step: who was live, what each row sampled.
void add_samples(const Session& session, const StepRecord& step, std::vector<Event>& events);
// Wrong and near-tie results.
void add_verdict(const TapResult& result, std::vector<Event>& events);
Event back_event(const Session& session);
Event error_event(const Place& place, const Error& error);

}  // namespace attnscope
