// Benchmarks of captures: recording, writing, opening, comparing; names begin with "capture/".
#pragma once

namespace attnscope {

void register_capture_benchmarks();

}  // namespace attnscope
