#include "engine/session/verify/forced_copy.h"

#include <algorithm>
#include <cstring>

#include "engine/model/numbers.h"
#include "engine/session/step/own_rows.h"
#include "kernels/params/row_access.h"
#include "kernels/params/row_format.h"
#include "kernels/params/tensor_view.h"

namespace attnscope {
namespace {

as_tensor logical_table(const std::vector<std::int32_t>& table) {
  return make_tensor(table.data(), {static_cast<std::int64_t>(table.size()), 1});
}

}  // namespace

bool is_float(std::int32_t dtype) { return dtype == AS_BF16 || dtype == AS_F32 || dtype == AS_F64; }

as_tensor gather_rows(const as_cache& cache, const as_tensor& slots, Scratch& scratch) {
  const std::int64_t rows = slots.shape[0];
  const std::int64_t row_bytes = as_cache_row_bytes(&cache);
  const std::int64_t total = cache.data.shape[0] * cache.rows_per_block;
  const bool values = as_row_is_values(cache.record) != 0;
  as_tensor out =
      scratch.make(values ? AS_F32 : AS_U8, {rows, values ? std::int64_t{cache.width} : row_bytes});
  auto* bytes = static_cast<std::uint8_t*>(out.data);
  for (std::int64_t t = 0; t < rows; ++t, bytes += row_bytes) {
    const std::int64_t slot = *at<std::int64_t>(slots, t);
    if (slot < 0 || slot >= total) {
      std::memset(bytes, 0, static_cast<std::size_t>(row_bytes));
      continue;
    }
    as_row_get(&cache, slot, bytes);
  }
  return out;
}

as_cache ForcedCopy::output_cache(const as_cache& engine, std::int64_t rows, bool exact,
                                  Scratch& scratch) {
  as_cache c = engine;
  make_logical(c, rows, AS_F32, scratch);
  if (exact) {
    c.data = scratch.make(AS_F64, {rows, engine.width});
    c.data.reserved = engine.data.reserved;
  }
  return c;
}

as_tensor ForcedCopy::translate(const OpParams& engine, const as_cache_access& access,
                                const CacheSpec& spec, const LogicalMetadata& logical,
                                std::vector<std::int32_t>& memory) const {
  const as_tensor& slots = engine.tensor(access.rows);
  const std::int64_t tokens = slots.shape[0], width = slots.shape[1];
  memory.assign(static_cast<std::size_t>(tokens * width), -1);
  RowAccess::for_each(engine.data(), access, [&](const RowVisit& v) {
    // A slot of somebody else's: that row, so that what the op read is what the reference reads.
    const std::int32_t request = logical.requests[static_cast<std::size_t>(v.token)];
    const std::int64_t own = shadow_.row_of(spec, v.slot, request);
    memory[static_cast<std::size_t>(v.token * width + v.place)] =
        static_cast<std::int32_t>(own >= 0 ? own : shadow_.row_of(spec, v.slot));
  });
  return make_tensor(memory.data(), {tokens, width});
}

// Slots as the logical rows that they hold, whichever request's.
as_tensor ForcedCopy::rows_in_slots(const OpParams& engine, const as_cache_access& access,
                                    const CacheSpec& spec,
                                    std::vector<std::int64_t>& memory) const {
  const std::int64_t slots = engine.tensor(access.rows).shape[0];
  memory.assign(static_cast<std::size_t>(slots), -1);
  RowAccess::for_each(engine.data(), access, [&](const RowVisit& v) {
    memory[static_cast<std::size_t>(v.token)] = shadow_.row_of(spec, v.slot);
  });
  return make_tensor(memory.data(), {slots});
}

// The rows of whole requests, by position, where the engine reads those of chunks.
void ForcedCopy::whole_requests(const as_cache_access& access, std::int32_t chunk,
                                const LogicalMetadata& logical) {
  const auto of = [&](StepTensor::Kind kind) {
    return std::ranges::find(logical.own, kind, &StepTensor::kind)
        ->tensor(to_count(logical.requests.size()), 0);
  };
  params_.tensor(access.rows) = of(StepTensor::Kind::kTables);
  params_.tensor(access.token_to_req) = of(StepTensor::Kind::kRows);
  params_.tensor(access.positions) = of(StepTensor::Kind::kPlaces);
  params_.tensor(access.lens) = of(StepTensor::Kind::kLengths);
  params_.integer(access.chunk) = chunk;
}

void ForcedCopy::read_shadow(const OpParams& engine, int layer, const LogicalMetadata& logical,
                             int peer) {
  const auto accesses = RowAccess::of(engine.op());
  lists_.resize(std::max(lists_.size(), accesses.size()));
  moved_.resize(std::max(moved_.size(), accesses.size()));
  for (std::size_t i = 0; i < accesses.size(); ++i) {
    const as_cache_access& access = accesses[i];
    if (access.direction != AS_TAP_IN || !present(engine.tensor(access.rows))) continue;
    const CacheSpec& spec = *layout_.of_tap(layer, engine.op(), access.cache, peer);
    params_.cache(access.cache) = shadow_.cache(spec);
    if (access.chunk != 0 && spec.retention.kind == GroupKind::kChunked) {
      whole_requests(access, spec.retention.window, logical);
      continue;
    }
    if (access.by == AS_BY_SLOTS) {
      params_.tensor(access.rows) = rows_in_slots(engine, access, spec, moved_[i]);
      continue;
    }
    params_.tensor(access.rows) = RowAccess::by_table(access)
                                      ? logical_table(logical.table(row_ratio(spec)))
                                      : translate(engine, access, spec, logical, lists_[i]);
  }
}

OpParams& ForcedCopy::make(const OpParams& engine, int layer, const LogicalMetadata& logical,
                           bool exact, bool as_read, int peer) {
  params_ = engine;
  as_read = as_read || moves_blocks(engine.op());  // whatever they hold
  const as_op_info& info = engine.info();
  for (std::uint32_t i = 0; i < info.num_taps; ++i) {
    const as_tap_info& tap = info.taps[i];
    if (tap.direction != AS_TAP_OUT) continue;
    if (tap.kind == AS_TAP_CACHE && !engine.has_cache(tap)) continue;
    if (tap.kind == AS_TAP_CACHE) {
      // Row t of the copy is what token t writes.
      slots_[i] = rows_by_token(engine.data(), *RowAccess::find(engine.op(), tap.offset));
      const std::int64_t rows = to_count(slots_[i].size());
      params_.tensor(tap.mask_offset) = make_tensor(slots_[i].data(), {rows});
      params_.cache(tap.offset) = output_cache(engine.cache(tap.offset), rows, exact, outputs_[i]);
      continue;
    }
    const as_tensor& tensor = engine.tensor(tap.offset);
    if (!present(tensor)) continue;
    params_.tensor(tap.offset) =
        outputs_[i].make_like(exact && is_float(tensor.dtype) ? AS_F64 : tensor.dtype, tensor);
  }
  if (!as_read) read_shadow(engine, layer, logical, peer);
  if (exact && as_op_role(engine.op()) == AS_ROLE_QUERY) {
    params_.tensor_named("q") = exact_query_.make_like(AS_F64, params_.tensor_named("q_raw"));
    for (std::uint32_t i = 0; i < info.num_taps; ++i) {
      const bool scale = std::strcmp(info.taps[i].name, "q_scale") == 0;
      if (scale) params_.tensor(info.taps[i].offset) = no_tensor();
    }
  }
  if (exact && as_op_role(engine.op()) == AS_ROLE_ROTATION) {
    auto& p = params_.get<as_inverse_rope_params>();
    if (present(p.codes)) p.codes = exact_query_.make_like(AS_F64, p.codes);
    p.scales = no_tensor();
  }
  if (as_read) rows_as_read_.replace(engine, params_);
  return params_;
}

bool ForcedCopy::requantise(const OpParams& engine, OpParams* out) {
  *out = engine;
  const as_tap_info* row = as_op_row(engine.op());
  if (row == nullptr || !present(engine.tensor(row->offset))) return false;
  out->integer(row->given_by) = 1;
  // It reads no rows then, and a reference wants no pages.
  for (const as_cache_access& access : RowAccess::of(engine.op())) {
    if (access.direction != AS_TAP_IN) continue;
    out->cache(access.cache) = params_.cache(access.cache);
    out->tensor(access.rows) = params_.tensor(access.rows);
  }
  const as_op_info& info = engine.info();
  for (std::uint32_t i = 0; i < info.num_taps; ++i) {
    const as_tap_info& tap = info.taps[i];
    if (tap.follows_row == 0) continue;
    if (tap.kind == AS_TAP_CACHE && !engine.has_cache(tap)) continue;
    if (tap.kind == AS_TAP_CACHE) {
      const as_tensor slots = make_tensor(slots_[i].data(), {to_count(slots_[i].size())});
      out->tensor(tap.mask_offset) = slots;
      out->cache(tap.offset) =
          output_cache(engine.cache(tap.offset), slots.shape[0], false, requantised_[i]);
      continue;
    }
    const as_tensor& tensor = engine.tensor(tap.offset);
    if (!present(tensor)) continue;
    out->tensor(tap.offset) = requantised_[i].make_like(tensor.dtype, tensor);
  }
  return true;
}

}  // namespace attnscope
