#include "engine/capture/capture_options.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

namespace attnscope {
namespace {

constexpr const char* kLevels[kCaptureLevels] = {"summary", "tables", "full"};

template <class T>
bool admits_one(const std::vector<T>& list, const T& value) {
  return list.empty() || std::ranges::find(list, value) != list.end();
}

// A whole number at the front of `text`, which is cut; nothing when there is none.
std::optional<std::int64_t> take_number(std::string_view& text) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || value < 0) return std::nullopt;
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  return value;
}

}  // namespace

const char* capture_level_name(CaptureLevel level) { return kLevels[static_cast<int>(level)]; }

std::optional<CaptureLevel> capture_level_by_name(std::string_view name) {
  for (int i = 0; i < kCaptureLevels; ++i) {
    if (name == kLevels[i]) return static_cast<CaptureLevel>(i);
  }
  return std::nullopt;
}

bool CaptureFilter::admits_step(std::int64_t step) const {
  return steps.empty() || std::ranges::any_of(steps, [&](const Range& r) {
           return step >= r.first && step <= r.last;
         });
}

bool CaptureOptions::keeps(const Place& place, std::int32_t dtype) const {
  if (level == CaptureLevel::kFull && filter.admits(place)) return true;
  return level != CaptureLevel::kSummary && (dtype == AS_I32 || dtype == AS_I64);
}

bool CaptureFilter::admits(const Place& place) const {
  return admits_step(place.step) && admits_one(layers, place.layer) && admits_one(ops, place.op);
}

std::string CaptureFilter::text() const {
  if (empty()) return "all";
  std::string out;
  const auto add = [&](const char* what, const std::vector<std::string>& items) {
    if (items.empty()) return;
    out += fmt::format("{}{} {}", out.empty() ? "" : "; ", what, fmt::join(items, ","));
  };
  std::vector<std::string> step_items, layer_items, op_items;
  for (const Range& r : steps) {
    step_items.push_back(r.first == r.last ? std::to_string(r.first)
                                           : fmt::format("{}-{}", r.first, r.last));
  }
  for (const int layer : layers) layer_items.push_back(layer < 0 ? "-" : std::to_string(layer));
  for (const as_op_id op : ops) op_items.emplace_back(as_op_find(op)->name);
  add("steps", step_items);
  add("layers", layer_items);
  add("ops", op_items);
  return out;
}

Result<std::vector<CaptureFilter::Range>> parse_ranges(std::string_view text, const char* what) {
  std::vector<CaptureFilter::Range> ranges;
  const auto wrong = [&] {
    return usage_error(fmt::format("{}: '{}' is no list of steps", what, text.substr(0, 60)),
                       "write numbers and ranges, such as 3,5-9");
  };
  for (std::string_view left = text;;) {
    const auto first = take_number(left);
    if (!first) return wrong();
    CaptureFilter::Range range{*first, *first};
    if (left.starts_with('-')) {
      left.remove_prefix(1);
      const auto last = take_number(left);
      if (!last || *last < *first) return wrong();
      range.last = *last;
    }
    ranges.push_back(range);
    if (left.empty()) return ranges;
    if (left.front() != ',') return wrong();
    left.remove_prefix(1);
  }
}

}  // namespace attnscope
