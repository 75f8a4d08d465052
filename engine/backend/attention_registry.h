// Attention backends by name: those of vLLM, and what others add.
//
//   AttentionRegistry backends;               // knows vLLM's
//   Result<void> added = backends.add(mine);  // tried only where it is named
//   const AttentionBackend* flash = backends.find("FLASH_ATTN");
#pragma once

#include <deque>
#include <string>
#include <string_view>
#include <vector>

#include "engine/backend/attention_backend.h"

namespace attnscope {

class AttentionRegistry {
 public:
  AttentionRegistry();

  // AS_USAGE where the name is taken (upper and lower case are the same), or where a backend says
  // nothing of its platforms, dtypes, cache dtypes or cache. Rows stay where they are.
  Result<void> add(AttentionBackend backend);
  const AttentionBackend* find(std::string_view name) const;  // nullptr when unknown
  // CUDA, MLA on CUDA, ROCm, XPU, CPU, layers with a state; then those that were added.
  const std::deque<AttentionBackend>& all() const { return backends_; }
  std::vector<std::string> names() const;
  std::vector<std::string> cache_dtypes() const;  // that some backend has

 private:
  std::deque<AttentionBackend> backends_;
};

// Rows by the file they stand in (attention_rows_*.cpp).
std::vector<AttentionBackend> cuda_attention_rows();
std::vector<AttentionBackend> mla_attention_rows();
std::vector<AttentionBackend> other_attention_rows();

}  // namespace attnscope
