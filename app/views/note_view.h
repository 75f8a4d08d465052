// Notes in words: where a note stands, and what its panel says of all of them.
#pragma once

#include <string>
#include <vector>

#include "engine/capture/notes.h"
#include "engine/session/snapshot.h"

namespace attnscope {

// "step 7, layer 2, sparse_attention · o [3, 0, 17] · manual, token 2 051": the place, then what
// was selected there.
std::string note_place(const SessionInfo& info, const Note& note);

// Its first line. kept: the file that they are kept in; empty: they go with the app.
std::string notes_sentence(const std::vector<Note>& notes, const std::string& kept);

}  // namespace attnscope
