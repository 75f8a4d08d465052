#include "engine/explain/error_places.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "engine/model/numbers.h"
#include "engine/trace/axis_words.h"

namespace attnscope {
namespace {

using Places = std::vector<std::int64_t>;

std::string ordinal_text(std::int64_t n) {
  const bool teen = n % 100 >= 11 && n % 100 <= 13;
  const char* end = teen          ? "th"
                    : n % 10 == 1 ? "st"
                    : n % 10 == 2 ? "nd"
                    : n % 10 == 3 ? "rd"
                                  : "th";
  return fmt::format("{}{}", n, end);
}

// Step between places that lie evenly from the first on and reach to the end; 0 = they do not.
std::int64_t even_step(const Places& places, std::int64_t extent) {
  if (places.size() < 3) return 0;
  const std::int64_t step = places[1] - places[0];
  for (std::size_t i = 1; i < places.size(); ++i) {
    if (places[i] - places[i - 1] != step) return 0;
  }
  return places.front() < step && places.back() + step >= extent ? step : 0;
}

// Places with a wrong element, of each axis.
std::vector<Places> wrong_places(const WrongElements& wrong) {
  std::vector<std::vector<std::uint8_t>> seen;
  seen.reserve(wrong.shape.size());
  for (const std::int64_t extent : wrong.shape) seen.emplace_back(to_size(extent), 0);
  for (std::size_t i = 0; i < wrong.wrong.size(); ++i) {
    if (wrong.wrong[i] == 0) continue;
    for (std::size_t axis = 0; axis < seen.size(); ++axis) {
      seen[axis][to_size(wrong.place(to_count(i), axis))] = 1;
    }
  }
  std::vector<Places> out(seen.size());
  for (std::size_t axis = 0; axis < seen.size(); ++axis) {
    for (std::size_t p = 0; p < seen[axis].size(); ++p) {
      if (seen[axis][p] != 0) out[axis].push_back(to_count(p));
    }
  }
  return out;
}

// What a stretch of the last axis is: those that are rotated, a block with one scale.
std::string stretch_note(const Places& places, std::int64_t extent, const PatternContext& known) {
  const std::int64_t length = to_count(places.size());
  const std::int64_t turned = known.rope_dims;
  if (turned > 0 && turned < extent && length < turned && length > turned / 2) {
    // Slow pairs turn too little to be beyond the tolerance.
    if (places.front() >= extent - turned) {
      return fmt::format(", all among the last {}, as many as RoPE turns", turned);
    }
    if (places.back() < turned) {
      return fmt::format(", all among the first {}, as many as RoPE turns", turned);
    }
  }
  if (places.back() - places.front() + 1 != length || length == extent) return "";
  const bool last = places.back() == extent - 1, first = places.front() == 0;
  if (length == known.rope_dims && (first || last)) {
    return fmt::format(", the {} {}, as many as RoPE turns", last ? "last" : "first", length);
  }
  if (last && extent - known.rope_dims == length) return "";
  if (first && known.rope_dims > 0 && extent - known.rope_dims == length) {
    return ", those that RoPE does not turn";
  }
  for (const std::int64_t block : known.block_sizes) {
    if (length == block && places.front() % block == 0) {
      return fmt::format(", block {} of {} with one scale", places.front() / block, block);
    }
  }
  return "";
}

template <class T>
bool all_equal(const std::vector<T>& values) {
  return std::adjacent_find(values.begin(), values.end(), std::not_equal_to<>()) == values.end();
}

}  // namespace

std::string tokens_note(const Places& tokens, std::int64_t extent, const PatternContext& known) {
  if (to_count(tokens.size()) == extent) return "";
  std::string note;
  const auto has = [&](const auto& of) { return to_count(of.size()) >= extent; };
  if (has(known.requests)) {
    std::vector<std::int32_t> requests;
    for (const std::int64_t t : tokens) requests.push_back(known.requests[to_size(t)]);
    std::set<std::int32_t> live(known.requests.begin(), known.requests.begin() + extent);
    live.erase(-1);
    std::int64_t of_request = 0;
    for (std::int64_t t = 0; t < extent; ++t) {
      of_request += known.requests[to_size(t)] == requests[0] ? 1 : 0;
    }
    if (all_equal(requests) && live.size() > 1) {
      note += fmt::format(", {} of request row {}",
                          of_request == to_count(tokens.size()) ? "all" : "some", requests[0]);
    }
    const auto ends = [&](std::int64_t step, std::int64_t end) {
      return std::ranges::all_of(tokens, [&](std::int64_t t) {
        return t == end || known.requests[to_size(t + step)] != known.requests[to_size(t)];
      });
    };
    if (tokens.size() > 1 || extent > 2) {
      if (ends(-1, 0)) note += ", the first of their request in the step";
      if (ends(1, extent - 1)) note += ", the last of their request in the step";
    }
  }
  if (has(known.positions) && tokens.size() > 1) {
    for (const std::int64_t rows : known.page_rows) {
      Places in_page;
      for (const std::int64_t t : tokens) in_page.push_back(known.positions[to_size(t)] % rows);
      if (rows < 2 || !all_equal(in_page)) continue;
      note += fmt::format(", all at row {} of a page of {}", in_page[0], rows);
      break;
    }
    std::int64_t lowest = INT64_MAX, right_before = -1;
    std::size_t next = 0;
    for (std::int64_t t = 0; t < extent; ++t) {
      const std::int64_t position = known.positions[to_size(t)];
      if (next < tokens.size() && tokens[next] == t) {
        lowest = std::min(lowest, position);
        ++next;
      } else {
        right_before = std::max(right_before, position);
      }
    }
    if (right_before < lowest && right_before >= 0) {
      note += fmt::format(", those at position {} and behind it", lowest);
    }
  }
  return note;
}

std::string places_text(const Places& places, std::int64_t extent) {
  const std::int64_t count = to_count(places.size());
  if (count == extent) return fmt::format("all {}", extent);
  if (count == 1) return fmt::format("{}", places[0]);
  if (places.back() - places.front() + 1 == count) {
    return fmt::format("{} to {}", places.front(), places.back());
  }
  const std::int64_t step = even_step(places, extent);
  if (step > 0) return fmt::format("every {} from {}", ordinal_text(step), places.front());
  return fmt::format("{} of {}", count, extent);
}

ErrorFinding error_places(const WrongElements& wrong, const std::vector<std::string>& axes,
                          const PatternContext& context) {
  const std::vector<Places> all = wrong_places(wrong);
  std::string text = fmt::format("{} of {} elements are wrong", wrong.count, wrong.elements);
  for (std::size_t axis = 0; axis < all.size(); ++axis) {
    const std::int64_t extent = wrong.shape[axis];
    if (extent == 1) continue;
    const std::string name = axis < axes.size() ? axes[axis] : "";
    const bool plural = all[axis].size() != 1;
    std::string note;
    if (axis == 0 && name == "T") {
      note = tokens_note(all[axis], extent, context);
    } else if (axis + 1 == all.size()) {
      note = stretch_note(all[axis], extent, context);
    }
    text += fmt::format("{} {} {}{}", text.ends_with("wrong") ? ":" : ";",
                        plural ? axis_words(name) : axis_word(name), places_text(all[axis], extent),
                        note);
  }
  return {"place", text, 1};
}

}  // namespace attnscope
