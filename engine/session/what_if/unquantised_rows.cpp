#include "engine/session/what_if/unquantised_rows.h"

#include <algorithm>

#include "engine/model/numbers.h"
#include "engine/session/place.h"
#include "engine/session/verify/forced_copy.h"
#include "engine/trace/compare.h"
#include "kernels/params/row_access.h"
#include "kernels/params/tensor_view.h"

namespace attnscope {
namespace {

as_cache logical(const as_cache& cache, std::vector<double>& values) {
  as_cache out = cache;
  out.addressing = AS_LOGICAL;
  out.rows_per_block = 0;
  if (values.empty()) values.resize(to_size(cache.width));
  out.data = make_tensor(values.data(), {static_cast<std::int64_t>(values.size()) / cache.width,
                                         static_cast<std::int64_t>(cache.width)});
  return out;
}

}  // namespace

void UnquantisedRows::op_done(const Session& session) {
  if (last_place(session).layer != layer_) return;
  const OpParams& params = session.last_params();
  const as_tap_info* row_tap = as_op_row(params.op());
  const auto written =
      std::ranges::find_if(RowAccess::of(params.op()), [&](const as_cache_access& a) {
        return a.direction == AS_TAP_OUT && row_tap != nullptr && a.rows == row_tap->mask_offset;
      });
  if (written == RowAccess::of(params.op()).end()) return;
  const as_tensor &rows = params.tensor(row_tap->offset), &slots = params.tensor(written->rows);
  // The lane may keep its row to itself; of several heads no reader wants one.
  if (!present(rows) || rows.rank != 2) return;
  Rows& kept = rows_[tap_cache(params.op(), written->cache)];
  for (std::int64_t t = 0; t < slots.shape[0]; ++t) {
    const std::int64_t slot = *at<std::int64_t>(slots, t);
    if (slot < 0) continue;
    std::vector<double>& row = kept[slot];
    row.resize(to_size(rows.shape[1]));
    for (std::int64_t k = 0; k < rows.shape[1]; ++k) row[to_size(k)] = element(rows, t, k);
  }
}

bool UnquantisedRows::by_list(const OpParams& engine, const as_cache_access& access,
                              const Rows& rows, Memory& memory, OpParams& copy) {
  const as_tensor& indices = engine.tensor(access.rows);
  const std::int64_t tokens = indices.shape[0], width = indices.shape[1];
  memory.numbers.assign(to_size(tokens * width), -1);
  memory.values.clear();
  std::unordered_map<std::int64_t, std::int32_t> place;
  bool all = true;
  RowAccess::for_each(engine.data(), access, [&](const RowVisit& v) {
    const auto row = rows.find(v.slot);
    all = all && row != rows.end();
    if (!all) return;
    const auto [at_row, fresh] = place.try_emplace(v.slot, static_cast<std::int32_t>(place.size()));
    if (fresh) {
      memory.values.insert(memory.values.end(), row->second.begin(), row->second.end());
    }
    memory.numbers[to_size(v.token * width + v.place)] = at_row->second;
  });
  if (!all) return false;
  copy.cache(access.cache) = logical(engine.cache(access.cache), memory.values);
  copy.tensor(access.rows) = make_tensor(memory.numbers.data(), {tokens, width});
  return true;
}

// Entries 0 .. of every request, one request behind the other.
bool UnquantisedRows::by_table(const OpParams& engine, const as_cache_access& access,
                               const Rows& rows, Memory& memory, OpParams& copy) {
  std::int64_t before = 0;
  memory.numbers.clear();
  for (const std::int64_t end : RowAccess::ends(engine.data(), access)) {
    memory.numbers.push_back(static_cast<std::int32_t>(before));
    before += end;
  }
  memory.values.clear();
  bool all = true;
  RowAccess::for_each(engine.data(), access, [&](const RowVisit& v) {
    const auto row = rows.find(v.slot);
    all = all && row != rows.end();
    if (!all) return;
    memory.values.insert(memory.values.end(), row->second.begin(), row->second.end());
  });
  if (!all) return false;
  copy.cache(access.cache) = logical(engine.cache(access.cache), memory.values);
  copy.tensor(access.rows) =
      make_tensor(memory.numbers.data(), {static_cast<std::int64_t>(memory.numbers.size()), 1});
  return true;
}

bool UnquantisedRows::replace(const OpParams& engine, OpParams& copy) {
  const auto accesses = RowAccess::of(engine.op());
  memory_.resize(accesses.size());
  bool any = false;
  for (std::size_t i = 0; i < accesses.size(); ++i) {
    const as_cache_access& access = accesses[i];
    if (access.direction != AS_TAP_IN || !present(engine.tensor(access.rows))) continue;
    // Nothing quantises state rows, which are pooled window by window.
    if (access.by == AS_BY_WINDOW) return false;
    const Rows& rows = rows_[tap_cache(engine.op(), access.cache)];
    const bool found = access.by == AS_BY_TABLE ? by_table(engine, access, rows, memory_[i], copy)
                                                : by_list(engine, access, rows, memory_[i], copy);
    if (!found) return false;
    any = true;
  }
  return any;
}

}  // namespace attnscope
