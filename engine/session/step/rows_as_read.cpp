#include "engine/session/step/rows_as_read.h"

#include <algorithm>
#include <cstring>

#include "engine/model/numbers.h"
#include "kernels/params/row_access.h"
#include "kernels/params/row_format.h"
#include "kernels/params/tensor_view.h"

namespace attnscope {
namespace {

std::int64_t slots_of(const as_cache& cache) { return cache.data.shape[0] * cache.rows_per_block; }

constexpr int kWildExponent = 127 + 20;  // biased

bool wild(std::uint32_t exponent) { return exponent >= kWildExponent && exponent < 255; }

// Numbers of a format that reaches so far: the exponents of others do not.
bool any_wild(std::int32_t code, const std::uint8_t* bytes, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) {
    std::uint32_t exponent = 0;
    if (code == AS_CODE_UE8M0) {
      exponent = bytes[i];
    } else if (code == AS_CODE_BF16 || code == AS_CODE_F32) {
      const std::int64_t size = code == AS_CODE_BF16 ? 2 : 4;
      std::uint16_t high;
      std::memcpy(&high, bytes + i * size + size - 2, sizeof(high));
      exponent = high >> 7 & 0xff;
    }
    if (wild(exponent)) return true;
  }
  return false;
}

bool wild_row(const as_cache& cache, const void* record) {
  const auto* row = static_cast<const std::uint8_t*>(record);
  const as_row_layout l = as_row_layout_of(cache.record, cache.width, as_cache_heads(&cache), 1);
  for (std::int64_t head = 0; head < l.heads; ++head) {
    for (std::int32_t i = 0; i < l.format->num_parts; ++i) {
      const as_row_part& part = l.format->parts[i];
      const as_part_span span = as_part_in_row(&l, head, i);
      if (any_wild(part.code, row + span.elements, span.count)) return true;
      if (any_wild(part.scale, row + span.scales, span.num_scales)) return true;
    }
  }
  return false;
}

as_cache logical(const as_cache& cache, const as_tensor& data) {
  as_cache out = cache;
  out.addressing = AS_LOGICAL;
  out.rows_per_block = 0;
  out.data = data;
  out.data.reserved = cache.data.reserved;
  return out;
}

}  // namespace

void RowsAsRead::mark_wild(std::int64_t token, std::int64_t tokens) {
  wild_.resize(to_size(tokens));
  wild_[to_size(token)] = true;
}

void RowsAsRead::by_list(const OpParams& engine, const as_cache_access& access, Memory& memory,
                         OpParams& copy) {
  const as_cache& cache = engine.cache(access.cache);
  const as_tensor& indices = engine.tensor(access.rows);
  const std::int64_t tokens = indices.shape[0], width = indices.shape[1];
  const std::int64_t bytes = as_cache_row_bytes(&cache);
  memory.numbers.assign(to_size(tokens * width), -1);
  // A slot is one row, however many tokens list it.
  std::vector<std::int32_t> row_of(to_size(slots_of(cache)), -1);
  std::int64_t rows = 0;
  memory.rows.clear();
  RowAccess::for_each(engine.data(), access, [&](const RowVisit& v) {
    if (v.slot >= slots_of(cache)) return;
    std::int32_t& row = row_of[to_size(v.slot)];
    if (row < 0) {
      row = static_cast<std::int32_t>(rows++);
      memory.rows.resize(to_size(rows * bytes));
      as_row_get(&cache, v.slot, memory.rows.data() + row * bytes);
    }
    memory.numbers[to_size(v.token * width + v.place)] = row;
    if (wild_row(cache, memory.rows.data() + row * bytes)) mark_wild(v.token, tokens);
  });
  rows = std::max<std::int64_t>(1, rows);
  memory.rows.resize(to_size(rows * bytes));
  copy.cache(access.cache) = logical(cache, make_tensor(memory.rows.data(), {rows, bytes}));
  copy.tensor(access.rows) = make_tensor(memory.numbers.data(), {tokens, width});
}

// Row n is the one in slot n of the list, moved and not looked at.
void RowsAsRead::by_slots(const OpParams& engine, const as_cache_access& access, Memory& memory,
                          OpParams& copy) {
  const as_cache& cache = engine.cache(access.cache);
  const std::int64_t bytes = as_cache_row_bytes(&cache);
  const std::int64_t slots = engine.tensor(access.rows).shape[0];
  memory.rows.assign(to_size(std::max<std::int64_t>(1, slots) * bytes), 0);
  memory.slots.assign(to_size(slots), -1);
  RowAccess::for_each(engine.data(), access, [&](const RowVisit& v) {
    if (v.slot >= slots_of(cache)) return;
    as_row_get(&cache, v.slot, memory.rows.data() + v.token * bytes);
    memory.slots[to_size(v.token)] = v.token;
  });
  copy.cache(access.cache) =
      logical(cache, make_tensor(memory.rows.data(), {std::max<std::int64_t>(1, slots), bytes}));
  copy.tensor(access.rows) = make_tensor(memory.slots.data(), {slots});
}

void RowsAsRead::by_table(const OpParams& engine, const as_cache_access& access, Memory& memory,
                          OpParams& copy) {
  const as_cache& cache = engine.cache(access.cache);
  const as_tensor& token_to_req = engine.tensor(access.token_to_req);
  const bool state = as_row_is_values(cache.record) != 0;
  const std::int64_t width = state ? cache.width : as_cache_row_bytes(&cache);
  const std::vector<std::int64_t> ends = RowAccess::ends(engine.data(), access);
  std::int64_t rows = 0;
  memory.numbers.clear();
  for (const std::int64_t end : ends) {
    memory.numbers.push_back(static_cast<std::int32_t>(rows));
    rows += end;
  }
  rows = std::max<std::int64_t>(1, rows);
  if (state) {
    memory.states.assign(to_size(rows * width), 0);
  } else {
    memory.rows.assign(to_size(rows * width), 0);
  }
  std::vector<bool> wild_request(ends.size());
  RowAccess::for_each(engine.data(), access, [&](const RowVisit& v) {
    if (v.slot < 0 || v.slot >= slots_of(cache)) return;
    const auto request = to_size(*at<std::int32_t>(token_to_req, v.token));
    const std::int64_t to = (memory.numbers[request] + v.place) * width;
    void* row = state ? static_cast<void*>(memory.states.data() + to) : memory.rows.data() + to;
    as_row_get(&cache, v.slot, row);
    if (wild_row(cache, row)) wild_request[request] = true;
  });
  for (std::int64_t t = 0; t < token_to_req.shape[0]; ++t) {
    const std::int32_t request = *at<std::int32_t>(token_to_req, t);
    if (request >= 0 && request < to_count(ends.size()) && wild_request[to_size(request)]) {
      mark_wild(t, token_to_req.shape[0]);
    }
  }
  copy.cache(access.cache) = logical(cache, state ? make_tensor(memory.states.data(), {rows, width})
                                                  : make_tensor(memory.rows.data(), {rows, width}));
  copy.tensor(access.rows) =
      make_tensor(memory.numbers.data(), {static_cast<std::int64_t>(ends.size()), 1});
}

void RowsAsRead::replace(const OpParams& engine, OpParams& copy) {
  wild_.clear();
  const auto accesses = RowAccess::of(engine.op());
  memory_.resize(std::max(memory_.size(), accesses.size()));
  for (std::size_t i = 0; i < accesses.size(); ++i) {
    const as_cache_access& access = accesses[i];
    if (access.direction != AS_TAP_IN) continue;
    if (engine.cache(access.cache).record == AS_RECORD_NONE) continue;
    if (RowAccess::by_table(access)) {
      by_table(engine, access, memory_[i], copy);
    } else if (access.by == AS_BY_SLOTS) {
      by_slots(engine, access, memory_[i], copy);
    } else if (present(engine.tensor(access.rows))) {
      by_list(engine, access, memory_[i], copy);
    }
  }
}

}  // namespace attnscope
