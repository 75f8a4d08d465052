// Bytes that attention backends keep besides the cache: by formula, each with its own.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kernels/params/result.h"

namespace attnscope {

struct WorkspaceNumbers {
  std::int64_t batch = 256;       // requests, or tokens of a decode step
  std::int64_t max_seq = 8192;    // tokens of the longest request
  std::int64_t heads = 32;        // of queries
  std::int64_t kv_heads = 8;      // 0 with MLA: one row for all
  std::int64_t head_size = 128;   // of queries and keys; with MLA of the row
  std::int64_t value_size = 128;  // of values and outputs
  std::int64_t splits = 32;       // of a row at most, while a CUDA graph is recorded
  std::int64_t partition = 512;   // tokens of a partition of paged attention v2
  std::int64_t gathered = 0;  // tokens that prefill gathers at most; 0 = 5 of the longest request
};

struct WorkspaceSum {
  std::string what;     // "CUDA graph"
  std::string formula;  // "batch x tokens x heads x head size x 4"
  std::string numbers;  // the same with numbers: "256 x 8192 x 32 x 128 x 4"
  std::int64_t bytes = 0;
};

// AS_BAD_INPUT: a number out of range, or more than 2^63 - 1 bytes.
Result<std::vector<WorkspaceSum>> workspace_sums(const WorkspaceNumbers& numbers);

}  // namespace attnscope
