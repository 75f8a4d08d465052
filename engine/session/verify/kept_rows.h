// Around a writer: do the rows that it has no business with hold what was written? Before it runs
// those that differ changed while no op wrote to the cache; after it, they are its own doing.
#pragma once

#include <set>

#include "engine/session/verify/row_checks.h"
#include "kernels/params/cache_access.h"

namespace attnscope {

enum class KeptWhen { kBefore, kAfter };

// Rows that live requests wrote to this cache before the step, against the shadow, byte for byte.
// Slots that the writer is told to write are left out: those are not its choice. So are known ones,
// which were found to differ before; what is found joins them. written: of the writer's params.
RowCheck check_rows_kept(const OpParams& params, const as_cache_access& written,
                         const CacheSpec& spec, const Shadow& shadow, const AddressSpace& space,
                         const StepMetadata& step, KeptWhen when, std::set<std::int64_t>& known,
                         const as_threads* threads);

}  // namespace attnscope
