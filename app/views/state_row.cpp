#include "app/views/state_row.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace attnscope {

int entries_of_token(const SessionInfo& info, int layer) {
  const int index = layer_index(info, layer);
  const CacheSpec* entries = index < 0 ? nullptr : entries_of(info.layout, index);
  if (entries == nullptr) return 0;
  return tokens_pooled(info.layout, entries->tokens_per_row) / entries->tokens_per_row;
}

std::vector<StatePart> state_parts(const RecordBytes& row, int entries) {
  if (row.record != AS_RECORD_STATE || entries < 1 || row.width % (2 * entries) != 0) return {};
  const std::int64_t width = row.width / (2 * entries);
  std::vector<StatePart> parts;
  for (const char* what : {"C", "Z"}) {
    for (int e = 0; e < entries; ++e) {
      StatePart& part = parts.emplace_back();
      // While its window is the newest a token is pooled by the second half, one window later by
      // the first.
      part.name = entries == 1
                      ? std::string(what)
                      : fmt::format("{} for {} entry", what, e == 0 ? "the next" : "its own");
      part.first = static_cast<std::int64_t>(parts.size() - 1) * width;
      part.width = width;
      for (std::int64_t d = part.first; d < part.first + width; ++d) {
        const double value = std::fabs(decode_element(row, d).value);
        if (std::isfinite(value)) part.largest = std::max(part.largest, value);
      }
    }
  }
  return parts;
}

std::string state_words(const std::vector<StatePart>& parts, std::int64_t dim) {
  for (const StatePart& part : parts) {
    if (dim >= part.first && dim < part.first + part.width) {
      return fmt::format("{}, channel {}", part.name, dim - part.first);
    }
  }
  return {};
}

}  // namespace attnscope
