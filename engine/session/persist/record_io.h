// StepRecords as bytes.
#pragma once

#include <vector>

#include "engine/io/byte_stream.h"
#include "engine/session/session.h"

namespace attnscope {

void write_records(ByteWriter& out, const std::vector<StepRecord>& records);
// Values out of range make the reader fail.
// with_decisions: false for files that did not count them.
std::vector<StepRecord> read_records(ByteReader& in, bool with_decisions);

}  // namespace attnscope
