// Paths that only compressed entries and an indexer have.
#pragma once

#include "engine/session/coverage.h"

namespace attnscope {

const FamilyPaths& deepseek_v4_paths();

}  // namespace attnscope
