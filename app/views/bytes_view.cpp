#include "app/views/bytes_view.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <span>
#include <string_view>

#include "app/text/format.h"
#include "app/views/tensor_view.h"
#include "engine/io/plural.h"
#include "engine/tensorfile/float_value.h"
#include "kernels/cpu/codec.h"
#include "kernels/params/row_format.h"
#include "kernels/params/tensor_view.h"

namespace attnscope {
namespace {

float load_float(const std::uint8_t* p) {
  float value;
  std::memcpy(&value, p, sizeof(value));
  return value;
}

std::uint32_t load_little(const std::uint8_t* p, std::int64_t bytes) {
  std::uint32_t value = 0;
  for (std::int64_t i = 0; i < bytes; ++i) value |= static_cast<std::uint32_t>(p[i]) << (8 * i);
  return value;
}

bool quantised(std::int32_t code) { return as_code_bits(code) > 0 && as_code_bits(code) <= 8; }

double code_value(std::int32_t code, std::uint32_t bits) {
  const auto half = [](std::uint32_t h) {
    const std::uint8_t bytes[2] = {static_cast<std::uint8_t>(h), static_cast<std::uint8_t>(h >> 8)};
    return float_value(ElementType::kF16, bytes);
  };
  switch (code) {
    case AS_CODE_E4M3:
      return cpu::e4m3_to_float(static_cast<std::uint8_t>(bits));
    case AS_CODE_E5M2:
      return half(bits << 8);  // the upper byte of an fp16
    case AS_CODE_E2M1:
      return cpu::e2m1_to_float(static_cast<std::uint8_t>(bits));
    case AS_CODE_BF16:
      return cpu::bf16_to_float(static_cast<std::uint16_t>(bits));
    case AS_CODE_F16:
      return half(bits);
    case AS_CODE_I8:
      return static_cast<std::int8_t>(bits);
    default:
      return std::bit_cast<float>(bits);
  }
}

bool saturated(std::int32_t code, std::uint32_t bits) {
  switch (code) {
    case AS_CODE_E4M3:
      return (bits & 0x7f) == 0x7e;
    case AS_CODE_E5M2:
      return (bits & 0x7f) == 0x7b;
    case AS_CODE_E2M1:
      return (bits & 0x7) == 0x7;
    case AS_CODE_I8:
      return bits == 0x7f || bits == 0x80;
    default:
      return false;
  }
}

}  // namespace

const char* record_name(std::int32_t record) {
  const as_row_format* format = as_row_format_of(record);
  return format != nullptr ? format->words : "row";
}

ByteField field_of_byte(std::int32_t record, std::int32_t width, std::int64_t byte,
                        std::int32_t heads) {
  const as_row_layout l = as_row_layout_of(record, width, heads, 1);
  if (l.format == nullptr) return {.first = byte};
  const as_row_field f = as_field_at(&l, byte);
  if (f.kind == AS_FIELD_PADDING) return {.first = byte};
  const std::int64_t dim = f.first < 0 ? -1 : f.head * l.width + f.first;
  return {f.kind, f.code, dim, f.count, f.at, f.bytes};
}

std::string field_name(const ByteField& field) {
  switch (field.kind) {
    case AS_FIELD_ELEMENT:
      return as_code_name(field.code);
    case AS_FIELD_SCALE:
      return fmt::format("{} scale", as_code_name(field.code));
    case AS_FIELD_ZERO:
      return "zero point";
    default:
      return "padding";
  }
}

ElementBytes bytes_of_dim(std::int32_t record, std::int32_t width, std::int64_t dim,
                          std::int32_t heads) {
  const as_row_layout l = as_row_layout_of(record, width, heads, 1);
  if (l.format == nullptr) return {};
  const as_element_place e = as_element_at(&l, 0, dim / l.width, dim % l.width);
  return {e.at, e.scale, e.zero};
}

DecodedElement decode_element(const RecordBytes& row, std::int64_t dim) {
  DecodedElement out;
  const as_row_layout l = as_row_layout_of(row.record, row.width, row.heads, 1);
  if (l.format == nullptr) return out;
  const as_element_place e = as_element_at(&l, 0, dim / l.width, dim % l.width);
  const std::int64_t bits = as_code_bits(e.code);
  out.code_kind = e.code;
  out.code = load_little(row.bytes.data() + e.at, std::max<std::int64_t>(1, bits / 8)) >> e.shift;
  if (bits == 4) out.code &= 0xf;
  out.code_value = code_value(e.code, out.code);
  out.saturated = saturated(e.code, out.code);
  if (e.zero >= 0) out.zero_point = load_float(row.bytes.data() + e.zero);
  out.scale_kind = e.scale_kind;
  if (e.scale_index >= 0) {
    const bool known = e.scale_index < static_cast<std::int64_t>(row.beside.size());
    out.beside = out.scaled = true;
    const float scale = known ? row.beside[static_cast<std::size_t>(e.scale_index)] : std::nanf("");
    out.scale = scale;
    out.scale_code = std::bit_cast<std::uint32_t>(scale);
    out.scale_exponent = known && scale > 0 ? std::ilogb(scale) : 0;
  } else if (e.scale >= 0) {
    const std::uint8_t* scale = row.bytes.data() + e.scale;
    const bool is_float = e.scale_kind == AS_CODE_F32;
    out.scaled = true;
    out.scale_code = load_little(scale, is_float ? 4 : 1);
    out.scale = is_float ? load_float(scale) : cpu::ue8m0_to_float(*scale);
    out.scale_exponent =
        is_float ? (std::isfinite(out.scale) && out.scale != 0 ? std::ilogb(out.scale) : 0)
                 : static_cast<int>(*scale) - 127;
  }
  out.value = (out.code_value - out.zero_point) * out.scale;
  out.zero = out.code_value == out.zero_point;
  return out;
}

std::string element_words(const DecodedElement& e) {
  std::string text = fmt::format("0x{:0{}x} = {} ({})", e.code, as_code_bits(e.code_kind) / 4,
                                 format_exact(e.code_value), as_code_name(e.code_kind));
  if (e.beside) {
    text += std::isnan(e.scale)
                ? std::string(" \xc3\x97 the scale beside the cache, which is not kept")
                : fmt::format(" \xc3\x97 {} (scale beside the cache) = {}", format_exact(e.scale),
                              format_exact(e.value));
  } else if (e.scaled && e.zero_point != 0) {
    text = fmt::format("({} - {} (zero point)) \xc3\x97 {} (f32 scale) = {}", text,
                       format_exact(e.zero_point), format_exact(e.scale), format_exact(e.value));
  } else if (e.scaled && e.scale_kind == AS_CODE_F32 &&
             e.scale != std::ldexp(1.0, e.scale_exponent)) {
    text +=
        fmt::format(" \xc3\x97 {} (f32 scale) = {}", format_exact(e.scale), format_exact(e.value));
  } else if (e.scaled) {
    text += fmt::format(" \xc3\x97 2^{} ({}) = {}", e.scale_exponent,
                        e.scale_kind == AS_CODE_F32 ? std::string("f32 scale")
                                                    : fmt::format("UE8M0 0x{:02x}", e.scale_code),
                        format_exact(e.value));
  }
  if (e.saturated) text += ", saturated";
  return text;
}

std::string field_words(const RecordBytes& row, std::int64_t byte) {
  const ByteField field = field_of_byte(row.record, row.width, byte, row.heads);
  const std::uint32_t code =
      load_little(row.bytes.data() + field.first, std::min<std::int64_t>(field.length, 4));
  const auto last = field.dim + field.dims - 1;
  if (field.kind == AS_FIELD_PADDING) return fmt::format("byte {}: padding, 0x{:02x}", byte, code);
  if (field.kind == AS_FIELD_SCALE && field.code == AS_CODE_UE8M0) {
    return fmt::format("byte {}: UE8M0 0x{:02x} = 2^{}, scales dims {}-{}", byte, code,
                       static_cast<int>(code) - 127, field.dim, last);
  }
  if (field.kind != AS_FIELD_ELEMENT) {
    return fmt::format("bytes {}-{}: {} {}, for {}", field.first, field.first + 3,
                       field_name(field), format_exact(load_float(row.bytes.data() + field.first)),
                       field.dims == row.width ? fmt::format("all {} dims", field.dims)
                                               : fmt::format("dims {}-{}", field.dim, last));
  }
  std::string text = field.length == 1
                         ? fmt::format("byte {}", byte)
                         : fmt::format("bytes {}-{}", field.first, field.first + field.length - 1);
  for (std::int64_t d = field.dim; d <= last; ++d) {
    text += fmt::format("\ndim {}: {}", d, element_words(decode_element(row, d)));
  }
  return text;
}

RecordStats record_stats(const RecordBytes& row, std::span<const std::uint8_t> reference,
                         std::span<const double> before) {
  RecordStats stats;
  stats.poisoned = !row.bytes.empty() && std::all_of(row.bytes.begin(), row.bytes.end(),
                                                     [](std::uint8_t b) { return b == 0xFF; });
  if (reference.size() == row.bytes.size()) {
    stats.differing = 0;
    for (std::size_t i = 0; i < row.bytes.size(); ++i) {
      if (row.bytes[i] == reference[i]) continue;
      if (stats.differing++ == 0) stats.first_difference = static_cast<std::int64_t>(i);
    }
  }
  if (stats.poisoned) return stats;
  if (static_cast<std::int64_t>(before.size()) == row.width) stats.underflow = 0;
  for (std::int64_t dim = 0; dim < row.width; ++dim) {
    const DecodedElement e = decode_element(row, dim);
    stats.nan += std::isnan(e.value) ? 1 : 0;
    if (!quantised(e.code_kind)) continue;
    stats.saturated += e.saturated ? 1 : 0;
    stats.zeros += e.zero ? 1 : 0;
    if (stats.underflow >= 0 && e.zero && before[static_cast<std::size_t>(dim)] != 0) {
      ++stats.underflow;
    }
  }
  for (const ScaleGroup& group : scale_groups(row)) {
    stats.lowest_scale =
        stats.scales == 0 ? group.exponent : std::min(stats.lowest_scale, group.exponent);
    stats.highest_scale =
        stats.scales == 0 ? group.exponent : std::max(stats.highest_scale, group.exponent);
    ++stats.scales;
  }
  return stats;
}

std::vector<ScaleGroup> scale_groups(const RecordBytes& row) {
  std::vector<ScaleGroup> groups;
  for (std::int64_t dim = 0; dim < row.width;) {
    const ElementBytes where = bytes_of_dim(row.record, row.width, dim, row.heads);
    if (where.scale < 0) {
      ++dim;
      continue;
    }
    const ByteField field = field_of_byte(row.record, row.width, where.scale, row.heads);
    ScaleGroup group;
    group.byte = where.scale;
    group.first_dim = field.dim;
    group.dims = field.dims;
    for (; dim < field.dim + field.dims; ++dim) {
      const DecodedElement e = decode_element(row, dim);
      group.code = e.scale_code;
      group.exponent = e.scale_exponent;
      group.largest = std::max(group.largest, std::fabs(e.value));
      group.saturated += e.saturated ? 1 : 0;
      group.zeros += e.zero ? 1 : 0;
    }
    groups.push_back(group);
  }
  return groups;
}

namespace {

// The tap that has the values of rows before they were written: what the cache is said to store,
// else the row that is an output.
const char* row_tap(as_op_id op, const std::string& cache) {
  const as_op_info& info = *as_op_find(op);
  const std::span<const as_tap_info> taps(info.taps, info.num_taps);
  const auto written = std::ranges::find(taps, std::string_view(cache), &as_tap_info::name);
  for (const as_tap_info& tap : taps) {
    if (tap.kind != AS_TAP_TENSOR) continue;
    if (written != taps.end() && written->stores != 0) {
      if (tap.offset == written->stores) return tap.name;
    } else if (tap.direction == AS_TAP_OUT && tap.mask == AS_MASK_SLOTS) {
      return tap.name;
    }
  }
  return "";
}

}  // namespace

std::vector<double> values_before(const StepTrace& step, const OpTrace& op, const RowsCopy& rows,
                                  std::int64_t row, ValuesOf whose) {
  const TapCopy* tap = op.tap(row_tap(op.place.op, rows.name));
  if (tap == nullptr || tap->value.rank < 2) return {};
  const std::int64_t heads = tap->value.rank == 3 ? tap->value.shape[1] : 1;
  const std::int64_t width = tap->value.shape[tap->value.rank - 1];
  if (heads * width != rows.width) return {};
  const std::int64_t kept = step.kept_index(rows.tokens[static_cast<std::size_t>(row)]);
  if (kept < 0 || kept >= tap->value.shape[0]) return {};
  const bool reference = whose == ValuesOf::kReference && present(tap->reference);
  const as_tensor& source = reference ? tap->reference : tap->value;
  std::vector<double> values(static_cast<std::size_t>(rows.width));
  for (std::int64_t i = 0; i < rows.width; ++i) {
    const TapIndex index =
        tap->value.rank == 3 ? TapIndex({kept, i / width, i % width}) : TapIndex({kept, i});
    values[static_cast<std::size_t>(i)] = element_at(source, index);
  }
  return values;
}

std::vector<float> scales_beside_cache(const StepTrace& step, int layer, std::string_view cache) {
  // Rows of first tokens in 16 bits have none.
  if (cache != "k_cache" && cache != "v_cache") return {};
  const OpTrace* op = step.find_role(layer, AS_ROLE_CACHE_WRITE);
  const TapCopy* tap =
      op == nullptr ? nullptr : op->tap(cache == "k_cache" ? "k_scale" : "v_scale");
  if (tap == nullptr || tap->value.rank != 1 || !present(tap->value)) return {};
  std::vector<float> scales;
  for (std::int64_t i = 0; i < tap->value.shape[0]; ++i) {
    scales.push_back(static_cast<float>(element_at(tap->value, TapIndex({i}))));
  }
  return scales;
}

std::vector<std::uint8_t> row_of_page(const CacheSpec& spec, const std::vector<std::uint8_t>& block,
                                      std::int32_t row) {
  const as_row_layout l = spec.rows();
  if (row < 0 || row >= spec.rows_per_block ||
      spec.offset + l.page_used > static_cast<std::int64_t>(block.size())) {
    return {};
  }
  const as_cache page = spec.cache(make_tensor(block.data() + spec.offset, {1, l.page_used}));
  std::vector<std::uint8_t> bytes(static_cast<std::size_t>(l.row));
  as_row_get(&page, row, bytes.data());
  return bytes;
}

std::string slot_text(std::int64_t slot, std::int32_t rows_per_block) {
  if (slot < 0 || rows_per_block <= 0) return "no slot";
  return fmt::format("slot {}: block {}, row {}", format_count(slot), slot / rows_per_block,
                     slot % rows_per_block);
}

std::string bytes_sentence(const RecordBytes& row, const RecordStats& stats,
                           const std::string& place) {
  std::string text = fmt::format("{}, {} of {}: ", place, record_name(row.record),
                                 format_bytes(static_cast<double>(row.bytes.size())));
  if (stats.poisoned) return text + "never written; every byte is 0xFF.";
  if (row.record == AS_RECORD_STATE) {
    text += fmt::format("{} fp32 values, the first half C, the second the scores Z",
                        format_count(row.width));
  } else if (stats.scales == 0) {
    text += fmt::format("{} values", format_count(row.width));
  } else {
    text +=
        stats.lowest_scale == stats.highest_scale
            ? fmt::format("{} 2^{}", agree(stats.scales, "scale", "all scales"), stats.lowest_scale)
            : fmt::format("scales 2^{} to 2^{}", stats.lowest_scale, stats.highest_scale);
    text += fmt::format("; {} saturated, {} quantised to 0", format_count(stats.saturated),
                        format_count(stats.zeros));
    if (stats.underflow >= 0) {
      text += fmt::format(" ({} by underflow)", format_count(stats.underflow));
    }
  }
  if (stats.nan > 0) text += fmt::format("; {} NaN", format_count(stats.nan));
  if (stats.differing == 0) text += "; every byte equals ref.sim's";
  if (stats.differing > 0) {
    text += fmt::format("; {} of {} bytes differ from ref.sim's, the first is byte {}",
                        format_count(stats.differing),
                        format_count(static_cast<std::int64_t>(row.bytes.size())),
                        stats.first_difference);
  }
  return text + ".";
}

}  // namespace attnscope
