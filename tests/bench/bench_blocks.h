// Benchmarks of the block manager and the scheduler alone; names begin with "blocks/".
#pragma once

namespace attnscope {

void register_block_benchmarks();

}  // namespace attnscope
