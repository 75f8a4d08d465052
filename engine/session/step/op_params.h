// The params struct of any op of the table, and its taps by the op table.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>
#include <vector>

#include "kernels/params/attention_params.h"
#include "kernels/params/compressor_params.h"
#include "kernels/params/dense_params.h"
#include "kernels/params/draft_params.h"
#include "kernels/params/indexer_params.h"
#include "kernels/params/offload_params.h"
#include "kernels/params/op_table.h"
#include "kernels/params/step_params.h"

namespace attnscope {

// Whether an op moves blocks as they are, whosever rows they hold.
inline bool moves_blocks(as_op_id op) { return op == AS_OP_SWAP_OUT || op == AS_OP_SWAP_IN; }

// The bytes of one params struct, as many as the table says, with the id that says which. Copyable
// like the structs themselves.
class OpParams {
 public:
  OpParams() { resize(); }
  // An empty struct of this op with its head filled in.
  explicit OpParams(as_op_id op) : op_(op) {
    resize();
    auto& head = get<as_params_head>();
    head.struct_size = info().params_size;
    head.version = AS_PARAMS_VERSION;
  }

  // A copy of a whole struct of this op.
  static OpParams of(as_op_id op, const void* params) {
    OpParams out;
    out.op_ = op;
    out.resize();
    std::memcpy(out.bytes(), params, out.info().params_size);
    return out;
  }

  // Fills in the head of a fresh struct S for op.
  template <class S>
  S& init(as_op_id op) {
    static_assert(alignof(S) <= alignof(Unit));
    *this = OpParams(op);
    return get<S>();
  }

  template <class S>
  S& get() {
    return *reinterpret_cast<S*>(bytes());
  }
  template <class S>
  const S& get() const {
    return *reinterpret_cast<const S*>(bytes());
  }

  as_op_id op() const { return op_; }
  const as_op_info& info() const { return *as_op_find(op_); }
  const void* data() const { return bytes(); }
  void* data() { return bytes(); }

  as_tensor& tensor(std::size_t offset) { return *reinterpret_cast<as_tensor*>(bytes() + offset); }
  const as_tensor& tensor(std::size_t offset) const {
    return *reinterpret_cast<const as_tensor*>(bytes() + offset);
  }
  // Of a tap of the op.
  as_tensor& tensor_named(std::string_view tap) {
    const as_tap_info* at = info().taps;
    while (tap != at->name) ++at;
    return tensor(at->offset);
  }
  std::int32_t& integer(std::size_t offset) {
    return *reinterpret_cast<std::int32_t*>(bytes() + offset);
  }
  as_cache& cache(std::size_t offset) { return *reinterpret_cast<as_cache*>(bytes() + offset); }
  const as_cache& cache(std::size_t offset) const {
    return *reinterpret_cast<const as_cache*>(bytes() + offset);
  }
  // Whether a tap is a cache that this call has: some calls of an op have none.
  bool has_cache(const as_tap_info& tap) const {
    return tap.kind == AS_TAP_CACHE && cache(tap.offset).record != AS_RECORD_NONE;
  }
  // The same of a cache of a layer, whose rows are those of requests.
  bool has_rows(const as_tap_info& tap) const { return has_cache(tap) && !moves_blocks(op_); }

 private:
  struct alignas(16) Unit {
    std::byte bytes[16];
  };
  void resize() { units_.assign((info().params_size + sizeof(Unit) - 1) / sizeof(Unit), Unit{}); }
  char* bytes() { return reinterpret_cast<char*>(units_.data()); }
  const char* bytes() const { return reinterpret_cast<const char*>(units_.data()); }

  std::vector<Unit> units_;
  as_op_id op_ = AS_OP_SCHEDULE;
};

// The rotary embedding of an op that has one; nullptr.
inline as_rope* rope_of(OpParams& params) {
  const std::uint32_t offset = as_rope_offset(params.op());
  return offset == 0 ? nullptr
                     : reinterpret_cast<as_rope*>(static_cast<char*>(params.data()) + offset);
}

// The tolerance class of an op's output: that of the op table, but of a projection in FP8 and of
// index scores by AS_SCORES_E4M3 of FP8 keys one of their own. params: of the op with this info.
inline const char* tolerance_class(const as_op_info& info, const void* params,
                                   const as_tap_info& tap) {
  if (tap.rule == nullptr) return tap.rule;
  if (info.id == AS_OP_INDEXER_LOGITS) {
    const auto& p = *static_cast<const as_indexer_logits_params*>(params);
    const bool codes =
        p.weights.reserved == AS_SCORES_E4M3 && p.cache.record == AS_RECORD_INDEX_FP8;
    return codes ? "scores_e4m3" : tap.rule;
  }
  if (std::strcmp(tap.rule, "dense") != 0) return tap.rule;
  for (std::uint32_t i = 0; i < info.num_taps; ++i) {
    const as_tap_info& other = info.taps[i];
    if (std::strcmp(other.name, "weight_scale") != 0) continue;
    const char* at = static_cast<const char*>(params) + other.offset;
    if (reinterpret_cast<const as_tensor*>(at)->data != nullptr) return "dense_fp8";
  }
  return tap.rule;
}
inline const char* tolerance_class(const OpParams& params, const as_tap_info& tap) {
  return tolerance_class(params.info(), params.data(), tap);
}

}  // namespace attnscope
