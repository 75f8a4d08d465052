// StepRecords as bytes.
#pragma once

#include <vector>

#include "engine/io/byte_stream.h"
#include "engine/session/session.h"

namespace attnscope {

void write_records(ByteWriter& out, const std::vector<StepRecord>& records);
// What records of older files lack.
enum class RecordsOf { kNow, kWithoutProposed, kWithoutStarts, kWithoutDecisions };
// Values out of range make the reader fail.
std::vector<StepRecord> read_records(ByteReader& in, RecordsOf age);

}  // namespace attnscope
