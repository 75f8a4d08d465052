// Which caches are dealt out over ranks that share a request (context_split.h): those whose rows
// attention reads. Index keys are whole on every rank, which selects by itself, and so are states
// of compressors: what becomes an entry lies in few rows, of neighbouring tokens.
#pragma once

#include "engine/cache/cache_spec.h"

namespace attnscope {

inline bool is_dealt(CacheId id) { return id.role != AS_CACHE_INDEX && id.role != AS_CACHE_STATE; }
inline bool is_dealt(const CacheSpec& spec) { return is_dealt(spec.id); }

}  // namespace attnscope
