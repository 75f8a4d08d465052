// What happened in a step, in words: for the log.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/session/session.h"
#include "engine/session/step_trace.h"

namespace attnscope {

// Requests that schedule admitted; after block_tables (metadata holds who runs).
void add_admissions(const Session& session, std::vector<Event>& events);
// One event a block that changed hands between two owner tables; ids into fresh and freed.
void add_block_changes(const Session& session, const std::vector<BlockOwner>& before,
                       StepTrace& trace, std::vector<Event>& events);
// Sampled tokens of a finished step; step: who was live, what each row sampled.
void add_samples(const Session& session, const StepRecord& step, std::vector<Event>& events);
// Requests that ended with this step, and the blocks they gave back (which trace still shows).
void add_finishes(const Session& session, StepTrace& trace, std::vector<Event>& events);
// Wrong and near-tie results.
void add_verdict(const TapResult& result, std::vector<Event>& events);
Event back_event(const Session& session);
Event error_event(const Place& place, const Error& error);

}  // namespace attnscope
