#include "engine/opcase/import_join.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstring>

#include "engine/io/json_object.h"

namespace attnscope {

Result<JoinedEntry> joined_entry(const std::vector<const TensorEntry*>& parts, std::int64_t axis) {
  const TensorEntry& first = *parts.front();
  const auto rank = std::ssize(first.shape);
  const std::int64_t along = axis < 0 ? rank - 1 : axis;
  const int bits = element_bits(first.type);
  if (along < 0 || along >= rank || bits % 8 != 0) {
    return bad_input(fmt::format("{} of [{}] has no axis {} to be continued",
                                 shown_name(first.name), fmt::join(first.shape, ","), axis),
                     "look at \"axis\" in the map");
  }
  const auto at = static_cast<std::size_t>(along);
  JoinedEntry out;
  out.entry = first;
  out.entry.shape[at] = 0;
  std::int64_t outer = 1;  // rows before the axis
  for (std::size_t a = 0; a < at; ++a) outer *= first.shape[a];
  for (const TensorEntry* part : parts) {
    std::vector<std::int64_t> others = part->shape;
    if (std::ssize(others) == rank) others[at] = first.shape[at];
    if (part->type != first.type || others != first.shape) {
      return bad_input(fmt::format("{} {} [{}] does not continue {} {} [{}] along axis {}",
                                   shown_name(part->name), element_name(part->type),
                                   fmt::join(part->shape, ","), shown_name(first.name),
                                   element_name(first.type), fmt::join(first.shape, ","), along),
                       "tensors of a \"concat\" have one type and the same other axes");
    }
    out.entry.shape[at] += part->shape[at];
    out.entry.bytes += part == &first ? 0 : part->bytes;
  }
  out.bytes.resize(out.entry.bytes);
  std::uint8_t* to = out.bytes.data();
  for (std::int64_t row = 0; row < outer; ++row) {
    for (const TensorEntry* part : parts) {
      const std::size_t bytes = part->bytes / static_cast<std::size_t>(outer);
      if (bytes == 0) continue;
      std::memcpy(to, part->data + static_cast<std::size_t>(row) * bytes, bytes);
      to += bytes;
    }
  }
  out.entry.elements =
      static_cast<std::int64_t>(out.entry.bytes) / static_cast<std::int64_t>(bits / 8);
  out.entry.data = out.bytes.data();
  return out;
}

}  // namespace attnscope
