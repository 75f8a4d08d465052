#include "engine/offload/overlap_choice.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <optional>

namespace attnscope {
namespace {

std::optional<Overlap> overlap_named(std::string_view name) {
  for (const Overlap one : {Overlap::kNone, Overlap::kDa, Overlap::kDba}) {
    if (name == overlap_name(one)) return one;
  }
  return std::nullopt;
}

}  // namespace

bool OverlapChoice::any(Overlap overlap) const {
  return all == overlap ||
         std::ranges::any_of(layers, [&](const auto& own) { return own.second == overlap; });
}

std::string OverlapChoice::text() const {
  std::string out = overlap_name(all);
  for (const auto& [layer, overlap] : layers) {
    out += fmt::format(",{}={}", layer, overlap_name(overlap));
  }
  return out;
}

Result<OverlapChoice> overlap_choice(std::string_view text, std::span<const int> selecting) {
  OverlapChoice choice;
  std::size_t begin = 0;
  for (bool first = true; begin <= text.size(); first = false) {
    const std::string_view part = text.substr(begin, text.find(',', begin) - begin);
    begin += part.size() + 1;
    const std::size_t equals = part.find('=');
    const bool one = equals != std::string_view::npos;
    const auto overlap = overlap_named(one ? part.substr(equals + 1) : part);
    int layer = -1;
    if (one) {
      const std::string_view number = part.substr(0, equals);
      const char* end = number.data() + number.size();
      const auto read = std::from_chars(number.data(), end, layer);
      if (read.ec != std::errc{} || read.ptr != end) layer = -1;
    }
    if (!overlap || (one && layer < 0) || (!one && !first)) {
      return usage_error(fmt::format("\"{}\": \"{}\" says no way to attend", text, part),
                         "none, da or dba, then other layers: \"da,4=dba\"");
    }
    if (!one) {
      choice.all = *overlap;
      continue;
    }
    if (std::ranges::find(selecting, layer) == selecting.end()) {
      return usage_error(fmt::format("\"{}\": layer {} selects no rows", text, layer),
                         fmt::format("layers that do: {}", fmt::join(selecting, ", ")));
    }
    choice.layers[layer] = *overlap;
  }
  return choice;
}

std::int64_t second_half(std::span<const std::int32_t> query_start_loc) {
  if (query_start_loc.empty()) return 0;
  const std::int64_t tokens = query_start_loc.back();
  const auto off = [&](std::int64_t start) { return std::abs(2 * start - tokens); };
  std::int64_t cut = 0;
  for (const std::int32_t start : query_start_loc) {
    if (start > 0 && start < tokens && (cut == 0 || off(start) <= off(cut))) cut = start;
  }
  return cut;
}

}  // namespace attnscope
