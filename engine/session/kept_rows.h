// After a writer ran: do the rows that it had no business with still hold what was written?
#pragma once

#include "engine/session/row_checks.h"

namespace attnscope {

// Rows that live requests wrote to this cache before the step, against the shadow, byte for byte.
// A row that differs was overwritten since: by the writer that just ran, when this is asked after
// every writer. Slots that it was told to write (i64 [T]) are left out: those are not its choice.
RowCheck check_rows_kept(const CacheSpec& spec, const as_cache& cache, const as_tensor& told,
                         const Shadow& shadow, const AddressSpace& space, const StepMetadata& step);

}  // namespace attnscope
