// Attention over rows that tokens list, in the form of sparse_attention, whichever op it is: what
// copies weights, counts masses or shows rows asks for it. Of absorbed MLA the list is the window,
// without sinks; an op that sees whole contexts lists what is seen, oldest first.
//
//   const ListedAttention listed(session.last_params(), rows);
//   AttentionCopy copy = copy_attention(listed.params(), rows, threads);
#pragma once

#include <cstdint>
#include <vector>

#include "engine/session/step/op_params.h"
#include "kernels/params/attention_params.h"

namespace attnscope {

class ListedAttention {
 public:
  // Whether an op has such a form.
  static bool of(std::int32_t op);

  // rows: tokens whose lists are wanted; those of others may be empty. params must outlive it.
  ListedAttention(const OpParams& params, const std::vector<std::int32_t>& rows);
  ListedAttention(const ListedAttention&) = delete;
  ListedAttention& operator=(const ListedAttention&) = delete;

  const as_sparse_attention_params& params() const { return *params_; }

 private:
  const as_sparse_attention_params* params_ = nullptr;
  as_sparse_attention_params own_{};
  std::vector<std::int32_t> slots_, lens_;
};

}  // namespace attnscope
