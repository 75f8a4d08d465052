#include "kernels/cuda/cuda_lane.h"

#include <new>
#include <string>

#include "kernels/cuda/call.h"
#include "kernels/cuda/check_params.h"
#include "kernels/cuda/gemm.h"
#include "kernels/cuda/helper_entries.h"
#include "kernels/params/op_ids.h"

namespace attnscope::cuda {
namespace {

// Rows that kernels read in 16-byte steps. Host tensors are laid out so when they are copied.
bool aligned(const as_q_rope_kv_insert_params& p, cpu::Check& check) {
  if (!check_alignment("cache", p.cache, check)) return false;
  if (p.rows_given != 0) return check_alignment("kv_row", p.kv_row, check);
  return check_alignment("q_raw", p.q_raw, check) && check_alignment("kv", p.kv, check) &&
         check_alignment("q", p.q, check) &&
         (p.kv_row.data == nullptr || check_alignment("kv_row", p.kv_row, check));
}
bool aligned(const as_sparse_attention_params& p, cpu::Check& check) {
  return check_alignment("q", p.q, check) && check_alignment("o", p.o, check) &&
         check_alignment("cache", p.cache, check) &&
         (p.extra_cache.record == AS_RECORD_NONE ||
          check_alignment("extra_cache", p.extra_cache, check));
}
bool aligned(const as_compressor_state_params& p, cpu::Check& check) {
  return check_alignment("state", p.state, check);
}
bool aligned(const as_compress_insert_params& p, cpu::Check& check) {
  return check_alignment("cache", p.cache, check) &&
         (p.rows_given != 0 || check_alignment("state", p.state, check));
}
bool aligned(const as_indexer_logits_params& p, cpu::Check& check) {
  return check_alignment("cache", p.cache, check);
}
template <class Params>
bool aligned(const Params&, cpu::Check&) {
  return true;
}

// What the op table calls.
template <as_op_id Op, class Params, OpBody<Params> kBody>
std::int32_t entry(const void* params, const as_call* call, as_error* error) {
  const as_op_info& info = *as_op_find(Op);
  const Range range(info.name);
  cpu::Check check(Op, error);
  if (!check.head(params, sizeof(Params)) || !check_call(call, check)) return check.status();
  try {
    return run_entry<Params>(
        info.name, {info.taps, info.num_taps}, *static_cast<const Params*>(params), kBody, call,
        check, error, [&](const Params& as_host, bool on_host) {
          return check_params(as_host, on_host, check) && (on_host || aligned(as_host, check));
        });
  } catch (const std::bad_alloc&) {
    return refuse(error, info.name,
                  {AS_NO_ENVIRONMENT, "out of memory", "use fewer tokens per step"});
  }
}

Lane make_lane() {
  Lane lane{};
  lane.name = "cuda";
  const auto& device = Device::get();
  if (!device) {
    static const std::string kWhy = device.error().message;
    lane.description = kWhy.c_str();
    return lane;
  }
  lane.description = "Every op on the byte-exact caches, on the GPU.";
#define AS_ENTRY(id, number, params, function) lane.ops[id] = entry<id, params, function>;
  AS_FOR_EACH_KERNEL(AS_ENTRY)
#undef AS_ENTRY
  enter_helpers(&lane);
  return lane;
}

}  // namespace

const Lane* lane() {
  static const Lane kLane = make_lane();
  return &kLane;
}

const char* fp8_projections() {
  if (!Device::get()) return "";
  static const bool kLibrary = library_has_fp8();
  return kLibrary ? "cuBLASLt" : "own kernel";
}

}  // namespace attnscope::cuda
