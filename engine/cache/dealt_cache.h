// Which caches are dealt out over ranks that share a request (context_split.h): those whose rows
// attention reads. Index keys are whole on every rank, which selects by itself.
#pragma once

#include "engine/cache/cache_spec.h"

namespace attnscope {

inline bool is_dealt(const CacheSpec& spec) { return spec.id.role != AS_CACHE_INDEX; }

}  // namespace attnscope
