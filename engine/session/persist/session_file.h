// A session kept on disk at a step boundary, so that the next start goes on where it was in a
// fraction of a second: lengths, tokens, tables, blocks in use, the rows of the references' own
// histories that can still be read, the results of all steps, and the newest two rewind points, so
// that going back a few steps does not replay from the start.
//
// The file is a cache, not a document: it is only read by the program that wrote it, and `key` must
// hold all that the bytes depend on (program, scenario, lanes, references, SIMD level). Written to
// a temporary name and renamed, with a checksum: a torn file is recognised.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/session/session.h"

namespace attnscope {

// At a step boundary only (AS_USAGE otherwise).
Result<void> save_session(const Session& session, const std::string& path, const std::string& key);

// Into a fresh session of the same scenario. AS_BAD_INPUT, with the session as it was, when the
// file is missing, damaged or of another key.
Result<void> load_session(Session& session, const std::string& path, const std::string& key);

// What a session beside another one begins from, in place of from its first step. In the memory of
// one program: no key tells whose it is.
struct SessionState {
  std::int64_t step = 0;  // that runs next
  std::vector<std::uint8_t> bytes;
};

// Before `step`, or before the nearest earlier one whose state the session keeps; it may stand
// anywhere. references: those of the session beside. AS_USAGE: the session runs fewer, or its rows
// lie in host memory (Scenario::ess).
Result<SessionState> session_state(const Session& session, std::int64_t step,
                                   References references);

// Into a fresh session of the same scenario and references, which goes on with its own lanes.
// AS_BAD_INPUT, with the session as it was, where that is not so.
Result<void> begin_from(Session& session, const SessionState& state);

}  // namespace attnscope
