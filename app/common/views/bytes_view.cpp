#include "app/common/views/bytes_view.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "app/common/format.h"
#include "app/common/views/tensor_view.h"
#include "kernels/cpu/codec.h"
#include "kernels/layout/records.h"
#include "kernels/params/tensor_view.h"

namespace attnscope {
namespace {

constexpr std::int64_t kPageRow = AS_NOPE_DIM;  // bytes of e4m3 before the bf16 part

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

bool quantised(ByteFormat format) {
  return format == ByteFormat::kE4m3 || format == ByteFormat::kE2m1;
}

}  // namespace

const char* record_name(std::int32_t record) {
  switch (record) {
    case AS_RECORD_LATENT:
      return "latent row";
    case AS_RECORD_INDEX_FP8:
      return "index key (FP8)";
    case AS_RECORD_INDEX_MXFP4:
      return "index key (MXFP4)";
    case AS_RECORD_STATE:
      return "compressor state row";
    default:
      return "row";
  }
}

const char* byte_format_name(ByteFormat format) {
  switch (format) {
    case ByteFormat::kE4m3:
      return "e4m3";
    case ByteFormat::kBf16:
      return "bf16";
    case ByteFormat::kE2m1:
      return "e2m1";
    case ByteFormat::kFloat:
      return "f32";
    case ByteFormat::kUe8m0:
      return "UE8M0";
    case ByteFormat::kFloatScale:
      return "f32 scale";
    case ByteFormat::kPadding:
      return "padding";
  }
  return "?";
}

ByteField field_of_byte(std::int32_t record, std::int32_t width, std::int64_t byte) {
  const std::int64_t payload = as_payload_bytes(record, width);
  const std::int64_t scale = byte - payload;
  switch (record) {
    case AS_RECORD_LATENT:
      if (byte < kPageRow) return {ByteFormat::kE4m3, byte, 1, byte, 1};
      if (byte < payload) {
        const std::int64_t dim = kPageRow + (byte - kPageRow) / 2;
        return {ByteFormat::kBf16, dim, 1, kPageRow + (dim - kPageRow) * 2, 2};
      }
      if (scale < AS_QUANT_BLOCKS) {
        return {ByteFormat::kUe8m0, scale * AS_QUANT_BLOCK, AS_QUANT_BLOCK, byte, 1};
      }
      return {ByteFormat::kPadding, -1, 0, byte, 1};
    case AS_RECORD_INDEX_FP8:
      if (byte < payload) return {ByteFormat::kE4m3, byte, 1, byte, 1};
      return {ByteFormat::kFloatScale, 0, AS_INDEX_DIM, payload, 4};
    case AS_RECORD_INDEX_MXFP4:
      if (byte < payload) return {ByteFormat::kE2m1, 2 * byte, 2, byte, 1};
      return {ByteFormat::kUe8m0, scale * AS_MXFP4_BLOCK, AS_MXFP4_BLOCK, byte, 1};
    default:
      return {ByteFormat::kFloat, byte / 4, 1, byte / 4 * 4, 4};
  }
}

ElementBytes bytes_of_dim(std::int32_t record, std::int32_t width, std::int64_t dim) {
  const std::int64_t payload = as_payload_bytes(record, width);
  switch (record) {
    case AS_RECORD_LATENT:
      if (dim < kPageRow) return {dim, payload + dim / AS_QUANT_BLOCK};
      return {kPageRow + (dim - kPageRow) * 2, -1};
    case AS_RECORD_INDEX_FP8:
      return {dim, payload};
    case AS_RECORD_INDEX_MXFP4:
      return {dim / 2, payload + dim / AS_MXFP4_BLOCK};
    default:
      return {4 * dim, -1};
  }
}

DecodedElement decode_element(const RecordBytes& row, std::int64_t dim) {
  DecodedElement out;
  const ElementBytes where = bytes_of_dim(row.record, row.width, dim);
  const std::uint8_t* payload = row.bytes.data() + where.payload;
  out.format = field_of_byte(row.record, row.width, where.payload).format;
  switch (out.format) {
    case ByteFormat::kE4m3:
      out.code = *payload;
      out.code_value = cpu::e4m3_to_float(*payload);
      out.saturated = (*payload & 0x7f) == 0x7e;
      break;
    case ByteFormat::kE2m1:
      out.code = dim % 2 == 0 ? *payload & 0x0fu : *payload >> 4;
      out.code_value = cpu::e2m1_to_float(static_cast<std::uint8_t>(out.code));
      out.saturated = (out.code & 0x7) == 0x7;
      break;
    case ByteFormat::kBf16:
      out.code = load_little(payload, 2);
      out.code_value = cpu::bf16_to_float(static_cast<std::uint16_t>(out.code));
      break;
    default:
      out.code = load_little(payload, 4);
      out.code_value = load_float(payload);
      break;
  }
  if (where.scale >= 0) {
    const std::uint8_t* scale = row.bytes.data() + where.scale;
    const bool is_float = row.record == AS_RECORD_INDEX_FP8;
    out.scaled = true;
    out.scale_code = load_little(scale, is_float ? 4 : 1);
    out.scale = is_float ? load_float(scale) : cpu::ue8m0_to_float(*scale);
    out.scale_exponent =
        is_float ? (std::isfinite(out.scale) && out.scale != 0 ? std::ilogb(out.scale) : 0)
                 : static_cast<int>(*scale) - 127;
  }
  out.value = out.code_value * out.scale;
  out.zero = out.code_value == 0;
  return out;
}

std::string element_words(const DecodedElement& e) {
  const int digits = e.format == ByteFormat::kE2m1   ? 1
                     : e.format == ByteFormat::kE4m3 ? 2
                     : e.format == ByteFormat::kBf16 ? 4
                                                     : 8;
  std::string text = fmt::format("0x{:0{}x} = {} ({})", e.code, digits, format_exact(e.code_value),
                                 byte_format_name(e.format));
  if (e.scaled) {
    text += fmt::format(" \xc3\x97 2^{} ({}) = {}", e.scale_exponent,
                        e.format == ByteFormat::kE4m3 && e.scale_code > 0xff
                            ? std::string("f32 scale")
                            : fmt::format("UE8M0 0x{:02x}", e.scale_code),
                        format_exact(e.value));
  }
  if (e.saturated) text += ", saturated";
  return text;
}

std::string field_words(const RecordBytes& row, std::int64_t byte) {
  const ByteField field = field_of_byte(row.record, row.width, byte);
  const std::uint32_t code =
      load_little(row.bytes.data() + field.first, std::min<std::int64_t>(field.length, 4));
  switch (field.format) {
    case ByteFormat::kPadding:
      return fmt::format("byte {}: padding, 0x{:02x}", byte, code);
    case ByteFormat::kUe8m0:
      return fmt::format("byte {}: UE8M0 0x{:02x} = 2^{}, scales dims {}-{}", byte, code,
                         static_cast<int>(code) - 127, field.dim, field.dim + field.dims - 1);
    case ByteFormat::kFloatScale:
      return fmt::format("bytes {}-{}: f32 scale {}, for all {} dims", field.first, field.first + 3,
                         format_exact(load_float(row.bytes.data() + field.first)), field.dims);
    default:
      break;
  }
  std::string text = field.length == 1
                         ? fmt::format("byte {}", byte)
                         : fmt::format("bytes {}-{}", field.first, field.first + field.length - 1);
  for (std::int64_t d = field.dim; d < field.dim + field.dims; ++d) {
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
    if (!quantised(e.format)) continue;
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
    const ElementBytes where = bytes_of_dim(row.record, row.width, dim);
    if (where.scale < 0) break;
    const ByteField field = field_of_byte(row.record, row.width, where.scale);
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

std::vector<double> values_before(const StepTrace& step, const OpTrace& op, const RowsCopy& rows,
                                  std::int64_t row) {
  const TapCopy* tap = op.tap(op.place.op == AS_OP_Q_ROPE_KV_INSERT ? "kv_row" : "row");
  if (tap == nullptr || tap->value.rank != 2 || tap->value.shape[1] != rows.width) return {};
  const std::int64_t kept = step.kept_index(rows.tokens[static_cast<std::size_t>(row)]);
  if (kept < 0 || kept >= tap->value.shape[0]) return {};
  const as_tensor& source = present(tap->reference) ? tap->reference : tap->value;
  std::vector<double> values(static_cast<std::size_t>(rows.width));
  TapIndex index({kept, 0});
  for (; index[1] < rows.width; ++index[1]) {
    values[static_cast<std::size_t>(index[1])] = element_at(source, index);
  }
  return values;
}

std::vector<std::uint8_t> row_of_page(const CacheSpec& spec, const std::vector<std::uint8_t>& block,
                                      std::int32_t row) {
  const std::int64_t payload = as_payload_bytes(spec.record, spec.width);
  const std::int64_t scales = as_scale_bytes(spec.record);
  const std::int64_t from = spec.offset + as_payload_offset(spec.record, spec.width, row);
  const std::int64_t scale_from =
      spec.offset + as_scale_offset(spec.record, spec.width, spec.rows_per_block, row);
  const auto size = static_cast<std::int64_t>(block.size());
  if (row < 0 || row >= spec.rows_per_block || from + payload > size ||
      (scales > 0 && scale_from + scales > size)) {
    return {};
  }
  std::vector<std::uint8_t> bytes(block.begin() + from, block.begin() + from + payload);
  if (scales > 0) {
    bytes.insert(bytes.end(), block.begin() + scale_from, block.begin() + scale_from + scales);
  }
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
  } else {
    text +=
        stats.lowest_scale == stats.highest_scale
            ? fmt::format("{} 2^{}", stats.scales == 1 ? "scale" : "all scales", stats.lowest_scale)
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
