#include "reference/register.h"

#include <algorithm>
#include <cstring>
#include <exception>
#include <new>
#include <string>

#include "kernels/params/op_table.h"
#include "reference/ops.h"
#include "reference/tensors.h"
#include "reference/torch_module.h"

namespace attnscope::reference {

namespace {

enum class Numbers { kExact, kSim, kFp32 };
template <Numbers kNumbers>
Precision precision_of(const as_call* call) {
  // A call of an older program ends before its last members.
  const bool says = call != nullptr && call->struct_size >= sizeof(as_call);
  return {kNumbers == Numbers::kExact, kNumbers == Numbers::kFp32, says ? call->weights : 0};
}
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

// A tensor program, called in the module that it is built into.
template <as_op_id kId, class Params>
void call_program(const Params& p, const Precision& precision) {
  TorchFailure failure{};
  if (torch_module().programs[as_op_index(kId)](&p, &precision, &failure)) return;
  throw_failure(failure);
}

// The border of the lanes: one C function for each op and precision, out of which no exception
// comes.
template <as_op_id kId, class Params, void (*kOp)(const Params&, const Precision&),
          Numbers kNumbers>
struct Border {
  static std::int32_t call(const void* params, const as_call* how, as_error* err) {
    try {
      const auto* p = static_cast<const Params*>(params);
      check_head(p);
      kOp(*p, precision_of<kNumbers>(how));
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
#define AS_ENTRY(id, number, params, function)                                   \
  if constexpr (is_loop(id)) {                                                   \
    lane.ops[id] = Border<id, params, function, kNumbers>::call;                 \
  } else {                                                                       \
    lane.ops[id] = Border<id, params, call_program<id, params>, kNumbers>::call; \
  }
  AS_FOR_EACH_DECISION(AS_ENTRY)
  AS_FOR_EACH_KERNEL(AS_ENTRY)
  if constexpr (kNumbers == Numbers::kSim) {  // the other references have no helper ops
    AS_FOR_EACH_HELPER(AS_ENTRY)
  }
#undef AS_ENTRY
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
