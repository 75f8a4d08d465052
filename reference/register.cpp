#include "reference/register.h"

#include <algorithm>
#include <cstring>
#include <exception>
#include <new>
#include <string>

#include "kernels/params/op_table.h"
#include "reference/helper_ops.h"
#include "reference/ops.h"
#include "reference/tensors.h"
#include "reference/torch_module.h"

namespace attnscope::reference {

namespace {

enum class Numbers { kExact, kSim, kFp32 };
template <Numbers kNumbers>
constexpr Precision kPrecision{kNumbers == Numbers::kExact, kNumbers == Numbers::kFp32};
template <Numbers kNumbers>
constexpr const char* kName = kNumbers == Numbers::kExact ? "ref.exact"
                              : kNumbers == Numbers::kSim ? "ref.sim"
                                                          : "ref.fp32";
template <Numbers kNumbers>
constexpr const char* kDescription =
    kNumbers == Numbers::kExact ? "Reference in float64 without any quantisation."
    : kNumbers == Numbers::kSim ? "Reference that rounds where the contract says, sums in float64."
                                : "Reference that rounds where the contract says, sums in fp32.";

std::int32_t fail(as_error* err, std::int32_t code, as_op_id id, const char* name,
                  const std::string& what) {
  if (err != nullptr) {
    const std::string text = std::string(name) + " " + as_op_find(id)->name + ": " + what;
    const std::size_t n = std::min(text.size(), sizeof(err->message) - 1);
    err->code = code;
    std::memcpy(err->message, text.data(), n);
    err->message[n] = '\0';
  }
  return code;
}

template <class Params>
void check_head(const Params* params) {
  if (params == nullptr) throw BadInput("params is NULL");
  if (params->head.struct_size != sizeof(Params) || params->head.version != AS_PARAMS_VERSION) {
    throw BadInput("params struct of " + std::to_string(params->head.struct_size) +
                   " bytes, version " + std::to_string(params->head.version) + "; expected " +
                   std::to_string(sizeof(Params)) + " bytes, version " +
                   std::to_string(AS_PARAMS_VERSION) + ": rebuild the caller with these headers");
  }
}

// The border of the lanes: one C function for each op and precision, out of which no exception
// comes.
template <as_op_id kId, auto kOp, Numbers kNumbers>
struct Border;

template <as_op_id kId, class Params, void (*kOp)(const Params&, const Precision&),
          Numbers kNumbers>
struct Border<kId, kOp, kNumbers> {
  static std::int32_t call(const void* params, const as_call*, as_error* err) {
    try {
      const auto* p = static_cast<const Params*>(params);
      check_head(p);
      kOp(*p, kPrecision<kNumbers>);
      return AS_OK;
    } catch (const BadInput& e) {
      return fail(err, AS_BAD_INPUT, kId, kName<kNumbers>, e.what());
    } catch (const NoTorch& e) {
      return fail(err, AS_NO_ENVIRONMENT, kId, kName<kNumbers>, e.what());
    } catch (const std::bad_alloc&) {
      return fail(err, AS_NO_ENVIRONMENT, kId, kName<kNumbers>,
                  "out of memory; use fewer tokens a step or a smaller model");
    } catch (const std::exception& e) {
      return fail(err, AS_INTERNAL, kId, kName<kNumbers>, e.what());
    } catch (...) {
      return fail(err, AS_INTERNAL, kId, kName<kNumbers>, "unknown exception");
    }
  }
};

template <Numbers kNumbers>
Lane make_lane() {
  Lane lane{};
  lane.name = kName<kNumbers>;
  lane.description = kDescription<kNumbers>;
  LaneFunctions& op = lane.ops;
  op[AS_OP_SCHEDULE] = Border<AS_OP_SCHEDULE, schedule, kNumbers>::call;
  op[AS_OP_BLOCK_TABLES] = Border<AS_OP_BLOCK_TABLES, block_tables, kNumbers>::call;
  op[AS_OP_SLOT_MAPPING] = Border<AS_OP_SLOT_MAPPING, slot_mapping, kNumbers>::call;
  op[AS_OP_SWA_INDEX] = Border<AS_OP_SWA_INDEX, swa_index, kNumbers>::call;
  op[AS_OP_C128_INDEX] = Border<AS_OP_C128_INDEX, c128_index, kNumbers>::call;
  op[AS_OP_ATTN_NORM] = Border<AS_OP_ATTN_NORM, rms_norm, kNumbers>::call;
  op[AS_OP_Q_KV_A_PROJ] = Border<AS_OP_Q_KV_A_PROJ, linear_bf16, kNumbers>::call;
  op[AS_OP_Q_KV_NORM] = Border<AS_OP_Q_KV_NORM, q_kv_norm, kNumbers>::call;
  op[AS_OP_Q_B_PROJ] = Border<AS_OP_Q_B_PROJ, linear_bf16, kNumbers>::call;
  op[AS_OP_Q_ROPE_KV_INSERT] = Border<AS_OP_Q_ROPE_KV_INSERT, q_rope_kv_insert, kNumbers>::call;
  op[AS_OP_COMPRESSOR_PROJ] = Border<AS_OP_COMPRESSOR_PROJ, linear_fp32, kNumbers>::call;
  op[AS_OP_COMPRESSOR_STATE] = Border<AS_OP_COMPRESSOR_STATE, compressor_state, kNumbers>::call;
  op[AS_OP_COMPRESS_INSERT] = Border<AS_OP_COMPRESS_INSERT, compress_insert, kNumbers>::call;
  op[AS_OP_INDEXER_COMPRESSOR_PROJ] =
      Border<AS_OP_INDEXER_COMPRESSOR_PROJ, linear_fp32, kNumbers>::call;
  op[AS_OP_INDEXER_COMPRESSOR_STATE] =
      Border<AS_OP_INDEXER_COMPRESSOR_STATE, compressor_state, kNumbers>::call;
  op[AS_OP_INDEXER_COMPRESS_INSERT] =
      Border<AS_OP_INDEXER_COMPRESS_INSERT, compress_insert, kNumbers>::call;
  op[AS_OP_INDEXER_Q_PROJ] = Border<AS_OP_INDEXER_Q_PROJ, linear_bf16, kNumbers>::call;
  op[AS_OP_INDEXER_Q] = Border<AS_OP_INDEXER_Q, indexer_q, kNumbers>::call;
  op[AS_OP_INDEXER_WEIGHTS_PROJ] = Border<AS_OP_INDEXER_WEIGHTS_PROJ, linear_bf16, kNumbers>::call;
  op[AS_OP_INDEXER_LOGITS] = Border<AS_OP_INDEXER_LOGITS, indexer_logits, kNumbers>::call;
  op[AS_OP_INDEXER_TOPK] = Border<AS_OP_INDEXER_TOPK, indexer_topk, kNumbers>::call;
  op[AS_OP_TOPK_TO_SLOTS] = Border<AS_OP_TOPK_TO_SLOTS, topk_to_slots, kNumbers>::call;
  op[AS_OP_SPARSE_ATTENTION] = Border<AS_OP_SPARSE_ATTENTION, sparse_attention, kNumbers>::call;
  op[AS_OP_INVERSE_ROPE] = Border<AS_OP_INVERSE_ROPE, inverse_rope, kNumbers>::call;
  op[AS_OP_WO_A] = Border<AS_OP_WO_A, grouped_linear, kNumbers>::call;
  op[AS_OP_WO_B] = Border<AS_OP_WO_B, linear_bf16, kNumbers>::call;
  op[AS_OP_RESIDUAL] = Border<AS_OP_RESIDUAL, residual, kNumbers>::call;
  op[AS_OP_FINAL_NORM] = Border<AS_OP_FINAL_NORM, rms_norm, kNumbers>::call;
  op[AS_OP_LM_HEAD] = Border<AS_OP_LM_HEAD, linear_fp32, kNumbers>::call;
  op[AS_OP_SAMPLE] = Border<AS_OP_SAMPLE, sample, kNumbers>::call;
  op[AS_OP_ROPE_KV_INSERT] = Border<AS_OP_ROPE_KV_INSERT, rope_kv_insert, kNumbers>::call;
  op[AS_OP_PAGED_ATTENTION] = Border<AS_OP_PAGED_ATTENTION, paged_attention, kNumbers>::call;
  if constexpr (kNumbers == Numbers::kSim) enter_helpers(&lane);
  return lane;
}

}  // namespace

const Lane* exact_lane() {
  static const Lane lane = make_lane<Numbers::kExact>();
  return &lane;
}

const Lane* sim_lane() {
  static const Lane lane = make_lane<Numbers::kSim>();
  return &lane;
}

const Lane* fp32_lane() {
  static const Lane lane = make_lane<Numbers::kFp32>();
  return &lane;
}

}  // namespace attnscope::reference
