// What rows of caches hold.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <set>

#include "engine/examine/call_parts.h"
#include "engine/examine/clause_makers.h"
#include "engine/model/numbers.h"
#include "engine/opcase/rows_read.h"
#include "kernels/params/op_table.h"
#include "kernels/params/row_access.h"
#include "kernels/params/row_format.h"

namespace attnscope {
namespace {

void put_bf16(std::uint8_t* to, float value) {
  std::uint32_t bits = 0;
  std::memcpy(&bits, &value, sizeof(bits));
  const auto upper = static_cast<std::uint16_t>(bits >> 16);  // of values that it can hold
  std::memcpy(to, &upper, sizeof(upper));
}

// The cache that keys are read from: the first one, and those that belong to lists behind it.
bool holds_keys(const OpCase& call, const as_tap_info& tap) {
  for (const as_cache_access& access : RowAccess::of(call.op.id)) {
    if (access.cache == tap.offset) return access.role != AS_CACHE_V;
  }
  return false;
}

// Sets the last value of every row and head, where that is bf16.
bool put_last(StoredCache& cache, float value) {
  const as_row_layout one = single_row(cache);
  for (std::size_t r = 0; r < cache.slots.size(); ++r) {
    std::uint8_t* row = cache.rows.data() + r * to_size(cache.row_bytes());
    for (std::int32_t head = 0; head < std::max(cache.heads, 1); ++head) {
      const as_element_place e = as_element_at(&one, 0, head, one.width - 1);
      if (e.code != AS_CODE_BF16) return false;
      put_bf16(row + e.at, value);
    }
  }
  return !cache.slots.empty();
}

// The same of rows that have been gathered before.
bool put_last_of_rows(OpCase& call, float value) {
  const auto rows = call.tensors.find("rows");
  if (call.op.id != AS_OP_WORKSPACE_ATTENTION || rows == call.tensors.end()) return false;
  const std::size_t row = to_size(rows->second.shape[1]) * 2;
  for (std::size_t at = row - 2; at < rows->second.bytes.size(); at += row) {
    put_bf16(rows->second.bytes.data() + at, value);
  }
  return true;
}

// Fills those of them with NaN that no list names.
bool poison_plain_rows(OpCase& call) {
  const auto rows = call.tensors.find("rows");
  if (call.op.id != AS_OP_WORKSPACE_ATTENTION || rows == call.tensors.end()) return false;
  std::set<std::int64_t> named;
  for (const ListedRows& listed : listed_rows(call)) {
    for (std::int64_t t = 0; t < listed.tokens(); ++t) {
      for (std::int64_t k = 0; k < listed.length(t); ++k) named.insert(listed.of(t)[to_size(k)]);
    }
  }
  const std::int64_t count = rows->second.shape[0];
  const std::size_t bytes = rows->second.bytes.size() / to_size(count);
  bool poisoned = false;
  for (std::int64_t n = 0; n < count; ++n) {
    if (named.contains(n)) continue;
    std::memset(rows->second.bytes.data() + to_size(n) * bytes, 0xff, bytes);
    poisoned = true;
  }
  return poisoned;
}

template <class Edit>
std::vector<Variation> each_e4m3_cache(const OpCase& ordinary, const char* what, const Edit& edit) {
  std::vector<Variation> out;
  for (const as_tap_info& tap : ordinary.op.taps) {
    if (tap.kind != AS_TAP_CACHE || tap.direction != AS_TAP_IN) continue;
    const auto it = ordinary.caches.find(tap.name);
    if (it == ordinary.caches.end() || it->second.slots.empty()) continue;
    const as_row_layout one = single_row(it->second);
    if (as_element_at(&one, 0, 0, 0).code != AS_CODE_E4M3) continue;
    OpCase call = ordinary;
    edit(call.caches[tap.name], one);
    out.push_back({fmt::format("{}, {}", tap.name, what), std::move(call)});
  }
  return out;
}

// Half of the rows of gather_rows, which are a list of no length of its own.
bool gathers_fewer(OpCase& call) {
  if (call.op.id != AS_OP_GATHER_ROWS) return false;
  for (const char* name : {"slots", "out"}) {
    StoredTensor& t = call.tensors.at(name);
    const std::int64_t before = t.shape[0];
    t.shape[0] = (before + 1) / 2;
    t.bytes.resize(t.bytes.size() / to_size(before) * to_size(t.shape[0]));
  }
  return true;
}

}  // namespace

std::vector<Variation> far_lse(const OpCase& ordinary) {
  std::vector<Variation> out;
  // Of states to merge they are inputs.
  if (ordinary.tensors.contains("lse_a")) {
    for (const float far : {900.0f, -900.0f}) {
      OpCase call = ordinary;
      for (const char* side : {"lse_a", "lse_b"}) {
        for (float& lse : elements<float>(call.tensors[side])) lse += far;
      }
      out.push_back({fmt::format("both LSEs {:+g}", far), std::move(call)});
    }
    return out;
  }
  const as_op_info* op = as_op_find(static_cast<as_op_id>(ordinary.op.id));
  const auto scale = ordinary.reals.find("scale");
  const auto q = ordinary.tensors.find("q");
  if (op == nullptr || op->role != AS_ROLE_ATTENTION || scale == ordinary.reals.end() ||
      q == ordinary.tensors.end() || q->second.dtype != AS_BF16 || scale->second <= 0) {
    return out;
  }
  // Both are bf16; their product times the scale is added to every logit.
  constexpr float kOfKey = 256;
  const auto of_query =
      static_cast<float>(std::clamp(std::round(900 / scale->second / kOfKey), 1.0, 255.0));
  for (const float sign : {1.0f, -1.0f}) {
    OpCase call = ordinary;
    bool keys = false;
    for (const as_tap_info& tap : call.op.taps) {
      if (tap.kind != AS_TAP_CACHE || tap.direction != AS_TAP_IN || !holds_keys(call, tap))
        continue;
      const auto it = call.caches.find(tap.name);
      if (it == call.caches.end() || it->second.slots.empty()) continue;
      if (!put_last(it->second, kOfKey)) return {};
      keys = true;
    }
    keys = put_last_of_rows(call, kOfKey) || keys;
    if (!keys) return {};
    StoredTensor& queries = call.tensors["q"];
    const std::size_t row = to_size(queries.shape.back()) * 2;
    for (std::size_t at = row - 2; at < queries.bytes.size(); at += row) {
      put_bf16(queries.bytes.data() + at, sign * of_query);
    }
    const double far = sign * of_query * kOfKey * scale->second;
    if (const auto sinks = call.tensors.find("sinks"); sinks != call.tensors.end()) {
      for (float& sink : elements<float>(sinks->second)) sink += static_cast<float>(far);
    }
    out.push_back({fmt::format("every logit and sink {:+.1f}", far), std::move(call)});
  }
  return out;
}

std::vector<Variation> unlisted_nan(const OpCase& ordinary) {
  std::vector<Variation> out;
  OpCase call = ordinary;
  bool changed = gathers_fewer(call);
  for (const ListedRows& rows : listed_rows(call)) {
    for (std::int64_t t = 0; t < rows.tokens(); ++t) {
      if (rows.length(t) > 1) rows.length(t) = (rows.length(t) + 1) / 2;
    }
    changed = true;
  }
  if (!changed) return out;
  auto laid_out = CaseCall::make(call);
  if (!laid_out) return out;
  bool poisoned = poison_plain_rows(call);
  for (const as_tap_info& tap : call.op.taps) {
    if (tap.kind != AS_TAP_CACHE || tap.direction != AS_TAP_IN) continue;
    const auto it = call.caches.find(tap.name);
    if (it == call.caches.end()) continue;
    StoredCache& cache = it->second;
    const as_row_layout one = single_row(cache);
    const auto named = slots_touched(call.op, laid_out->params(), tap.offset);
    for (std::size_t r = 0; r < cache.slots.size(); ++r) {
      if (std::ranges::binary_search(named, cache.slots[r])) continue;
      std::uint8_t* row = cache.rows.data() + r * to_size(cache.row_bytes());
      for (std::int64_t i = 0; i < one.width; ++i) {
        const as_element_place e = as_element_at(&one, 0, 0, i);
        const std::int64_t bytes = as_code_bits(e.code) / 8;
        if (bytes > 0) std::memset(row + e.at, 0x7f, to_size(bytes));
        // 0x7f7f is a large number of bf16 and no NaN.
        if (e.code == AS_CODE_BF16) row[e.at] = row[e.at + 1] = 0xff;
        poisoned = true;
      }
    }
  }
  if (poisoned) out.push_back({"half of each list, NaN in the rows of the rest", std::move(call)});
  return out;
}

std::vector<Variation> subnormal_codes(const OpCase& ordinary) {
  return each_e4m3_cache(ordinary, "subnormal codes alone",
                         [](StoredCache& cache, const as_row_layout& one) {
                           std::uint8_t code = 0;
                           for (std::size_t r = 0; r < cache.slots.size(); ++r) {
                             std::uint8_t* row = cache.rows.data() + r * to_size(cache.row_bytes());
                             each_e4m3_code(one, row, [&code](std::uint8_t& at, std::int64_t i) {
                               code = static_cast<std::uint8_t>(code % 7 + 1);
                               at = static_cast<std::uint8_t>(code | (i % 2 == 0 ? 0x80 : 0));
                             });
                             // Scales that bring them to the size of other values.
                             for (std::int32_t i = 0; i < one.format->num_parts; ++i) {
                               if (one.format->parts[i].scale != AS_CODE_UE8M0) continue;
                               const as_part_span part = as_part_in_row(&one, 0, i);
                               for (std::int64_t k = 0; k < part.num_scales; ++k)
                                 row[part.scales + k] = 127 + 8;
                             }
                           }
                         });
}

}  // namespace attnscope
