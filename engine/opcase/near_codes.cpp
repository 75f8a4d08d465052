#include "engine/opcase/near_codes.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "engine/backend/call_op.h"
#include "engine/session/verify/forced_copy.h"
#include "kernels/params/indexer_params.h"
#include "kernels/params/paged_params.h"
#include "kernels/params/row_format.h"
#include "kernels/params/tensor_view.h"

namespace attnscope {
namespace {

// fp32 products of the weights' own tolerance, twice: beside each of the rows.
constexpr double kWeightRel = 1e-6;

// Empty where the case lacks what it follows from.
std::vector<std::int64_t> row_shape(const OpCase& kept) {
  const char* const source = kept.op.id == AS_OP_INVERSE_ROPE          ? "o"
                             : as_op_role(kept.op.id) == AS_ROLE_QUERY ? "q_raw"
                                                                       : nullptr;
  const auto given = kept.tensors.find(source != nullptr ? source : "slots");
  if (given == kept.tensors.end() || given->second.shape.empty()) return {};
  if (source != nullptr) return given->second.shape;
  const bool keys = kept.op.id == AS_OP_ROPE_KV_INSERT;
  const auto cache = kept.caches.find(keys ? "k_cache" : "cache");
  if (cache == kept.caches.end()) return {};
  if (keys) {
    const std::int64_t heads = std::max<std::int64_t>(1, cache->second.heads);
    return {given->second.shape[0], heads, cache->second.width / heads};
  }
  return {given->second.shape[0], cache->second.width};
}

// bf16 numbers, moved by some steps away from zero.
std::vector<std::uint8_t> bf16_rows(const as_tensor& rows, int steps) {
  const std::int64_t n = as_tensor_numel(&rows);
  std::vector<std::uint8_t> out(static_cast<std::size_t>(n) * 2);
  for (std::int64_t i = 0; i < n; ++i) {
    const auto exact = static_cast<float>(static_cast<const double*>(rows.data)[i]);
    std::uint32_t bits = 0;
    std::memcpy(&bits, &exact, sizeof(bits));
    auto half = static_cast<std::uint16_t>(bits >> 16);  // the reference's rows are bf16 numbers
    const int magnitude = half & 0x7fff;
    if (magnitude < 0x7f80) {
      half = static_cast<std::uint16_t>((half & 0x8000) | std::clamp(magnitude + steps, 0, 0x7f7f));
    }
    std::memcpy(&out[static_cast<std::size_t>(i) * 2], &half, sizeof(half));
  }
  return out;
}

// One row's bytes of the value and of the three sets.
struct Row {
  const std::uint8_t* value;
  std::array<const std::uint8_t*, 3> sets;

  bool as_one(std::int64_t at, std::int64_t size) const {
    return std::ranges::any_of(sets, [&](const std::uint8_t* s) {
      return std::memcmp(value + at, s + at, static_cast<std::size_t>(size)) == 0;
    });
  }
  // A code whose scale may have moved with the row's largest element: of the sets with this scale,
  // and where that is not the row's own, a neighbouring code too.
  template <class Code>
  bool as_scaled(const Code& code, int sign, std::int64_t scale, std::int64_t scale_bytes,
                 bool moved) const {
    const auto same_scale = [&](const std::uint8_t* s) {
      return scale_bytes == 0 ||
             std::memcmp(value + scale, s + scale, static_cast<std::size_t>(scale_bytes)) == 0;
    };
    const bool steady = !moved && std::ranges::all_of(sets, same_scale);
    return std::ranges::any_of(sets, [&](const std::uint8_t* s) {
      if (!same_scale(s)) return false;
      const int mine = code(value), its = code(s), mask = sign - 1;
      // Codes of the FNUZ kind have no -0.
      const bool zeros = sign == 0x80 && mine == 0 && its == sign;
      return mine == its || zeros ||
             (!steady && (mine & sign) == (its & sign) &&
              std::abs((mine & mask) - (its & mask)) == 1);
    });
  }
};

// Whether the sets have several scales, which are not among the bytes: one rounding of an element
// moves its code by two at most, another scale by eight.
bool scales_differ(const Row& row, std::int64_t codes) {
  for (std::int64_t i = 0; i < codes; ++i) {
    for (const std::uint8_t* s : row.sets) {
      const bool same_sign = (s[i] & 0x80) == (row.sets[0][i] & 0x80);
      if (same_sign && std::abs((s[i] & 0x7f) - (row.sets[0][i] & 0x7f)) > 2) return true;
    }
  }
  return false;
}

float fp32_at(const std::uint8_t* bytes) {
  float value = 0;
  std::memcpy(&value, bytes, sizeof(value));
  return value;
}

// Whether an fp32 number lies between those of the sets, or at most `beyond` outside.
bool between_sets(const Row& row, std::int64_t at, float beyond) {
  float low = fp32_at(row.sets[0] + at), high = low;
  for (const std::uint8_t* s : row.sets) {
    low = std::min(low, fp32_at(s + at));
    high = std::max(high, fp32_at(s + at));
  }
  const float mine = fp32_at(row.value + at);
  return (mine >= low - beyond && mine <= high + beyond) || row.as_one(at, sizeof(float));
}

// int8 under a scale and a zero point that the head's largest and smallest element give, each of
// which may have moved alone: a rounding of 2^-8, of the element, the scale and the zero point.
std::int64_t unexplained_int8(const Row& row, const as_row_layout& l) {
  constexpr int kSteps = 3;
  std::int64_t n = 0;
  for (std::int64_t i = 0; i < l.heads * l.width; ++i) {
    const as_element_place e = as_element_at(&l, 0, i / l.width, i % l.width);
    if (i % l.width == 0) {
      n += between_sets(row, e.scale, 0) ? 0 : 1;
      n += between_sets(row, e.zero, 1) ? 0 : 1;
    }
    const auto code = [&](const std::uint8_t* r) { return int{static_cast<std::int8_t>(r[e.at])}; };
    n += std::ranges::none_of(row.sets, [&](const std::uint8_t* s) {
      return std::abs(code(row.value) - code(s)) <= kSteps;
    });
  }
  return n;
}

// Elements of a row that follow from none of the sets. scales: the bytes are a whole record, not
// its elements alone. width: of all heads. zeros: adds codes of 0 in the place of the row's own -0.
std::int64_t unexplained_codes(const Row& row, std::int32_t record, std::int64_t width,
                               std::int64_t heads, bool scales, std::int64_t* zeros) {
  const as_row_layout l = as_row_layout_of(record, width, heads, 1);
  if (l.format == nullptr) return 1;
  if (l.format->parts[0].zero != AS_CODE_NONE) return unexplained_int8(row, l);
  const as_row_part& first = l.format->parts[0];
  const bool pairs = as_code_bits(first.code) == 4;
  const bool moved = !scales && (pairs || scales_differ(row, as_part_count(l.format, 0, l.width)));
  std::int64_t n = 0;
  for (std::int64_t i = 0; i < l.heads * l.width; ++i) {
    const as_element_place e = as_element_at(&l, 0, i / l.width, i % l.width);
    const std::int64_t bits = as_code_bits(e.code);
    if (e.scale < 0) {
      n += !row.as_one(e.at, bits / 8);
      continue;
    }
    const std::int64_t scale_bytes = as_code_bits(l.format->parts[e.part].scale) / 8;
    const auto code = [&](const std::uint8_t* r) {
      return (r[e.at] >> e.shift) & ((1 << bits) - 1);
    };
    n += !row.as_scaled(code, 1 << (bits - 1), e.scale, scales ? scale_bytes : 0, moved);
    *zeros += bits == 8 && code(row.value) == 0 && code(row.sets[0]) == 0x80;
  }
  for (std::int64_t at = l.payload; scales && at < l.row;) {
    const as_row_field field = as_field_at(&l, at);
    n += !row.as_one(field.at, field.bytes);
    at += field.bytes;
  }
  return n;
}

}  // namespace

bool quantises(const OpCase& kept) {
  if (as_op_has(kept.op.id, AS_QUANTISES) == 0 || as_op_row(kept.op.id) == nullptr) return false;
  return std::ranges::any_of(kept.op.taps, [&](const as_tap_info& tap) {
    return tap.follows_row != 0 &&
           (kept.caches.contains(tap.name) || kept.tensors.contains(tap.name));
  });
}

Result<void> NearCodes::Set::run(as_op_fn sim, const as_threads* threads) {
  auto made = CaseCall::make(kept);
  if (!made) return made.error();
  call = std::make_unique<CaseCall>(std::move(*made));
  const bool given = kept.integers["rows_given"] != 0;
  if (auto ok = reference.make(*call, given); !ok) return ok;
  return call_op(sim, reference.params(), host_call(threads));
}

Result<void> NearCodes::make(const OpCase& kept, as_op_fn sim, const as_threads* threads) {
  const as_tap_info& row = *as_op_row(kept.op.id);
  Set first;
  first.kept = kept;
  first.kept.unknown.erase(row.name);
  StoredTensor& stored = first.kept.tensors[row.name];
  stored = {AS_BF16, row_shape(kept), {}, {}};
  if (stored.shape.empty()) return bad_input(fmt::format("{}: has no rows", kept.op.name));
  std::int64_t elements = 1;
  for (const std::int64_t n : stored.shape) elements *= n;
  stored.bytes.assign(static_cast<std::size_t>(elements) * 2, 0);
  if (auto ok = first.run(sim, threads); !ok) return ok;
  const as_tensor rows = first.reference.output(row);
  constexpr int kSteps[] = {0, 1, -1};
  for (std::size_t i = 0; i < sets_.size(); ++i) {
    sets_[i].kept = first.kept;
    sets_[i].kept.integers["rows_given"] = 1;
    sets_[i].kept.tensors[row.name].bytes = bf16_rows(rows, kSteps[i]);
    if (auto ok = sets_[i].run(sim, threads); !ok) return ok;
  }
  return {};
}

NearCodes::Found NearCodes::find(const as_tap_info& tap, const as_tensor& value,
                                 const TapMask& mask) const {
  Found found;
  std::int64_t& n = found.unexplained;
  std::array<as_tensor, 3> sets;
  for (std::size_t i = 0; i < sets.size(); ++i) sets[i] = sets_[i].reference.output(tap);
  const std::int64_t all = as_tensor_numel(&value);
  if (value.dtype == AS_F32) {
    for (std::int64_t i = 0; i < all; ++i) {
      const auto mine = static_cast<double>(static_cast<const float*>(value.data)[i]);
      n += std::ranges::none_of(sets, [&](const as_tensor& s) {
        const double its = static_cast<const double*>(s.data)[i];
        return std::fabs(mine - its) <= kWeightRel * std::fabs(its);
      });
    }
    return found;
  }
  const OpCase& kept = sets_[0].kept;
  const bool cache = tap.kind == AS_TAP_CACHE;
  const bool query_scale = !cache && tap.offset == offsetof(as_indexer_q_params, q_scale);
  // Blocks of attention's output, and queries of one format, are as rows of index keys: 128 codes
  // under one scale.
  const bool output =
      !cache && (kept.op.id == AS_OP_INVERSE_ROPE || !kept.integers.contains("format"));
  const auto record = cache    ? kept.caches.at(tap.name).record
                      : output ? static_cast<std::int32_t>(AS_RECORD_INDEX_FP8)
                               : static_cast<std::int32_t>(kept.integers.at("format"));
  const std::int64_t fixed = as_row_width(record);
  const std::int64_t values = fixed == 0 && cache ? kept.caches.at(tap.name).width : fixed;
  const std::int64_t width = output ? fixed : value.shape[value.rank - 1];
  for (std::int64_t r = 0; width > 0 && r < all / width; ++r) {
    if (mask.slots != nullptr && mask.slots[r] < 0) continue;
    Row row{static_cast<const std::uint8_t*>(value.data) + r * width, {}};
    for (std::size_t i = 0; i < sets.size(); ++i) {
      row.sets[i] = static_cast<const std::uint8_t*>(sets[i].data) + r * width;
    }
    if (query_scale) {
      for (std::int64_t b = 0; b < width; ++b) n += !row.as_one(b, 1);
    } else {
      const std::int32_t heads = cache ? kept.caches.at(tap.name).heads : 1;
      n += unexplained_codes(row, record, values, std::max(heads, 1), cache, &found.zeros);
    }
  }
  return found;
}

}  // namespace attnscope
