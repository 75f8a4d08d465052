#include "engine/opcase/import_rows.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <limits>

#include "kernels/cpu/codec.h"
#include "kernels/params/row_format.h"

namespace attnscope {
namespace {

// The same code stands for half the value in FNUZ: the scales are halved, the codes stay. -0 is NaN
// there. False when there is no such row here.
bool from_fnuz(const as_row_layout& l, std::uint8_t* row) {
  const as_part_span part = as_part_in_row(&l, 0, 0);
  for (std::uint8_t* code = row + part.elements; code < row + part.elements + part.count; ++code) {
    if ((*code & 0x7f) == 0x7f) return false;
    if (*code == 0x80) *code = 0x7f;
  }
  std::uint8_t* scales = row + part.scales;
  for (std::int64_t k = 0; k < part.num_scales; ++k) {
    if (l.format->parts[0].scale == AS_CODE_F32) {
      float scale;
      std::memcpy(&scale, scales + 4 * k, sizeof(scale));
      scale *= 0.5f;
      std::memcpy(scales + 4 * k, &scale, sizeof(scale));
      continue;
    }
    if (scales[k] == 0) return false;
    if (scales[k] < 255) --scales[k];
  }
  return true;
}

}  // namespace

float e4m3_value(std::uint8_t code, bool fnuz) {
  if (!fnuz) return cpu::e4m3_to_float(code);
  if (code == 0x80) return std::numeric_limits<float>::quiet_NaN();
  if ((code & 0x7f) == 0x7f) return code == 0xff ? -240.0f : 240.0f;
  return cpu::e4m3_to_float(code) / 2;
}

Result<ImportedPages> import_pages(const ImportCache& cache, std::span<const std::uint8_t> bytes,
                                   std::int64_t first_axis, std::span<const std::uint8_t> scales) {
  const auto own_width = static_cast<std::int32_t>(as_row_width(cache.record));
  const std::int32_t width = own_width > 0 ? own_width : cache.width;
  const as_row_layout one = as_row_layout_of(cache.record, width, 1, 1);
  const std::int64_t payload = one.payload, scale = one.scales;
  const bool apart = !cache.scales.empty();
  const std::int64_t rows = cache.rows_per_block;
  const std::int64_t needed = rows * (apart ? payload : payload + scale);
  const auto total = static_cast<std::int64_t>(bytes.size());
  std::int64_t stride = cache.page_stride;
  if (stride == 0) stride = first_axis > 0 ? total / first_axis : 0;
  if (stride <= 0 || stride < needed) {
    return bad_input(fmt::format("{}: a page of {} rows has {} bytes, the pages lie {} apart",
                                 cache.name, rows, needed, stride),
                     "look at record, rows_per_block and page_stride in the map");
  }
  ImportedPages out;
  // The last page may end before its stride does.
  if (total - cache.offset >= needed) out.blocks = (total - cache.offset - needed) / stride + 1;
  if (out.blocks == 0) {
    return bad_input(fmt::format("{}: {} bytes are not one page of {}", cache.name,
                                 std::max<std::int64_t>(0, total - cache.offset), needed),
                     "look at offset and rows_per_block in the map");
  }
  if (apart && static_cast<std::int64_t>(scales.size()) < out.blocks * rows * scale) {
    return bad_input(fmt::format("{}: {} bytes of scales, {} are needed", cache.scales,
                                 scales.size(), out.blocks * rows * scale));
  }
  out.page_bytes = as_row_layout_of(cache.record, width, 1, rows).page;
  out.bytes.assign(static_cast<std::size_t>(out.blocks * out.page_bytes), 0xff);
  as_cache pages{};
  pages.data.data = out.bytes.data();
  pages.data.stride[0] = out.page_bytes;
  pages.data.dtype = AS_U8;
  pages.record = cache.record;
  pages.rows_per_block = cache.rows_per_block;
  pages.width = width;
  std::vector<std::uint8_t> record(static_cast<std::size_t>(one.row));
  for (std::int64_t slot = 0; slot < out.blocks * rows; ++slot) {
    const std::uint8_t* page = bytes.data() + cache.offset + slot / rows * stride;
    const std::int64_t row = slot % rows;
    const std::uint8_t* from = page + row * (cache.interleaved ? payload + scale : payload);
    std::memcpy(record.data(), from, static_cast<std::size_t>(payload));
    if (scale > 0) {
      const std::uint8_t* own = apart               ? scales.data() + slot * scale
                                : cache.interleaved ? from + payload
                                                    : page + rows * payload + row * scale;
      std::memcpy(record.data() + payload, own, static_cast<std::size_t>(scale));
    }
    if (cache.fnuz && !from_fnuz(one, record.data())) out.without_codes.push_back(slot);
    as_row_put(&pages, slot, record.data());
  }
  return out;
}

}  // namespace attnscope
