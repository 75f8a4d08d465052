#include "engine/opcase/reference_call.h"

#include <fmt/format.h>

#include <cstring>

#include "engine/session/step/op_params.h"
#include "engine/session/step/own_rows.h"
#include "engine/session/verify/forced_copy.h"
#include "kernels/params/helper_params.h"
#include "kernels/params/row_access.h"
#include "kernels/params/tensor_view.h"

namespace attnscope {
namespace {

// The same call as a session has it.
OpParams op_params(const CaseCall& call) {
  OpParams out;
  out.init<as_sample_params>(static_cast<as_op_id>(call.op().id));
  std::memcpy(&out.get<char>(), call.params(), call.op().params_size);
  return out;
}

}  // namespace

// A cache whose rows a list of slots names, as those rows alone, and the list as their numbers.
void ReferenceCall::make_listed(std::int32_t op, std::size_t offset, as_cache& cache,
                                as_tensor& slots) {
  const std::int32_t heads = cache.data.reserved;
  const as_tensor rows = gather_rows(cache, slots, gathered_);
  const as_cache_access& access = *RowAccess::find(op, static_cast<std::uint32_t>(offset));
  std::vector<std::int64_t>& own = slots_[access.rows];
  own = rows_by_token(params_.data(), access);
  cache.addressing = AS_LOGICAL;
  cache.rows_per_block = 0;
  cache.data = rows;
  cache.data.reserved = heads;
  slots = make_tensor(own.data(), {slots.shape[0]});
}

Result<void> ReferenceCall::make(const CaseCall& call, bool row_given) {
  const CaseOp& op = call.op();
  params_.assign((op.params_size + 7) / 8, 0);
  std::memcpy(params_.data(), call.params(), op.params_size);
  if (op.id == AS_OP_GATHER_ROWS) {
    auto& p = *reinterpret_cast<as_gather_rows_params*>(params_.data());
    make_listed(op.id, offsetof(as_gather_rows_params, cache), p.cache, p.slots);
  } else if (op.id == AS_OP_CONVERT_ROWS) {
    auto& p = *reinterpret_cast<as_convert_rows_params*>(params_.data());
    make_listed(op.id, offsetof(as_convert_rows_params, from), p.from, p.slots);
  } else if (!op.helper) {
    const OpParams engine = op_params(call);
    OpParams copy = engine;
    if (!row_given) rows_.replace(engine, copy);
    std::memcpy(params_.data(), copy.data(), op.params_size);
  }
  const as_tap_info* row = as_op_row(op.id);
  if (row_given && row != nullptr) {
    integer_at(params_.data(), row->given_by) = 1;
    // Nothing is read then; a reference wants no pages.
    for (const as_cache_access& access : RowAccess::of(op.id)) {
      if (access.direction == AS_TAP_IN) cache_at(params_.data(), access.cache) = as_cache{};
    }
  }
  if (op.taps.size() > outputs_.size()) return internal_error("an op with more than 16 taps");
  for (std::size_t i = 0; i < op.taps.size(); ++i) {
    const as_tap_info& tap = op.taps[i];
    if (reads_tap(tap, params_.data())) continue;
    if (tap.kind == AS_TAP_CACHE) {
      as_cache& cache = cache_at(params_.data(), tap.offset);
      if (cache.record == AS_RECORD_NONE) continue;
      as_tensor& slots = tensor_at(params_.data(), tap.mask_offset);
      const bool fresh = !slots_.contains(tap.mask_offset);
      std::vector<std::int64_t>& own = slots_[tap.mask_offset];
      if (fresh) own = rows_by_token(params_.data(), *RowAccess::find(op.id, tap.offset));
      const std::int64_t tokens = slots.shape[0];
      slots = make_tensor(own.data(), {tokens});
      make_logical(cache, tokens, AS_F64, outputs_[i]);
      continue;
    }
    as_tensor& t = tensor_at(params_.data(), tap.offset);
    if (present(t)) t = outputs_[i].make_like(is_float(t.dtype) ? AS_F64 : t.dtype, t);
  }
  return {};
}

as_tensor ReferenceCall::output(const as_tap_info& tap) const {
  return tap.kind == AS_TAP_CACHE ? cache_at(params_.data(), tap.offset).data
                                  : tensor_at(params_.data(), tap.offset);
}

}  // namespace attnscope
