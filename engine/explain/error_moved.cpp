#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <span>

#include "engine/explain/error_relation.h"
#include "engine/model/numbers.h"
#include "engine/trace/axis_words.h"

namespace attnscope {
namespace {

using Row = std::span<const double>;

constexpr double kMostRows = 0.8;           // of the rows looked at, for a statement about all
constexpr double kNear = 0.01;              // relative distance of a row from the one that it is
constexpr double kFar = 0.05;               // and from the one that it should be
constexpr std::int64_t kLookedAt = 48;      // rows
constexpr std::int64_t kMostPlaces = 1024;  // along an axis, among which a row is searched for

// |a - b| / |b|; infinite where something is not finite.
double distance(Row a, Row b) {
  double difference = 0, size = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    difference += (a[i] - b[i]) * (a[i] - b[i]);
    size += b[i] * b[i];
  }
  if (!std::isfinite(difference) || !(size > 0)) return kInfinity;
  return std::sqrt(difference / size);
}

Row row_of(const std::vector<double>& all, std::int64_t row, std::int64_t columns) {
  return Row(all).subspan(to_size(row * columns), to_size(columns));
}

// Wrong rows, far from what they should be, evenly over all.
std::vector<std::int64_t> looked_at(const WrongElements& w) {
  const std::int64_t columns = w.columns();
  std::vector<std::int64_t> rows;
  for (std::int64_t row = 0; row < w.rows(); ++row) {
    const auto first = w.wrong.begin() + row * columns;
    if (std::find(first, first + columns, 1) == first + columns) continue;
    if (distance(row_of(w.value, row, columns), row_of(w.reference, row, columns)) > kFar) {
      rows.push_back(row);
    }
  }
  const std::int64_t step = std::max<std::int64_t>(1, to_count(rows.size()) / kLookedAt);
  std::vector<std::int64_t> some;
  for (std::int64_t i = 0; i < to_count(rows.size()); i += step) some.push_back(rows[to_size(i)]);
  return some;
}

struct Found {
  std::int64_t from, is;  // places along the axis
};

std::string moved_text(const std::string& word, const std::vector<Found>& found) {
  const auto all = [&](const std::function<bool(const Found&)>& holds) {
    return std::ranges::all_of(found, holds);
  };
  const std::int64_t shift = found[0].is - found[0].from;
  if (all([&](const Found& f) { return f.is - f.from == shift; })) {
    return fmt::format("the right one of the {} {} {}", word,
                       shift == 1    ? "behind"
                       : shift == -1 ? "before"
                       : shift > 0   ? fmt::format("{} places behind", shift)
                                     : fmt::format("{} places before", -shift),
                       "it");
  }
  if (all([&](const Found& f) { return f.is == found[0].is; })) {
    return fmt::format("the right one of {} {}", word, found[0].is);
  }
  if (all([](const Found& f) { return f.is == (f.from ^ 1); })) {
    return fmt::format("that of its neighbour, as if two {}s were exchanged", word);
  }
  return fmt::format("the right one of another {}, such as {} of {}", word, found[0].is,
                     found[0].from);
}

// Orders of n dims: which one of the right row stands at place i.
struct Order {
  const char* words;
  std::function<std::int64_t(std::int64_t i, std::int64_t n)> source;
};

const std::vector<Order>& orders() {
  static const std::vector<Order> kOrders = {
      {"in reverse order", [](std::int64_t i, std::int64_t n) { return n - 1 - i; }},
      {"moved by one", [](std::int64_t i, std::int64_t n) { return (i + 1) % n; }},
      {"moved by one", [](std::int64_t i, std::int64_t n) { return (i + n - 1) % n; }},
      {"with their halves exchanged",
       [](std::int64_t i, std::int64_t n) { return (i + n / 2) % n; }},
      {"with neighbours exchanged", [](std::int64_t i, std::int64_t) { return i ^ 1; }},
      {"in pairs where halves are due",
       [](std::int64_t i, std::int64_t n) { return i / 2 + i % 2 * (n / 2); }},
      {"in halves where pairs are due",
       [](std::int64_t i, std::int64_t n) { return i % (n / 2) * 2 + i / (n / 2); }},
  };
  return kOrders;
}

}  // namespace

std::optional<ErrorFinding> moved_rows(const WrongElements& w,
                                       const std::vector<std::string>& axes) {
  if (w.shape.size() < 2 || w.columns() < 4) return {};
  const std::vector<std::int64_t> rows = looked_at(w);
  if (rows.size() < 2) return {};
  const std::int64_t columns = w.columns();
  std::optional<ErrorFinding> best;
  for (std::size_t axis = 0; axis + 1 < w.shape.size(); ++axis) {
    const std::int64_t extent = w.shape[axis], step = w.stride(axis) / columns;
    std::vector<Found> found;
    for (const std::int64_t row : rows) {
      const std::int64_t from = row / step % extent;
      // The nearest place first, so that of equal rows the nearest counts.
      for (std::int64_t far = 1; far < std::min(extent, kMostPlaces); ++far) {
        const std::size_t before = found.size();
        for (const std::int64_t is : {from - far, from + far}) {
          if (is < 0 || is >= extent || found.size() > before) continue;
          const Row other = row_of(w.reference, row + (is - from) * step, columns);
          if (distance(row_of(w.value, row, columns), other) <= kNear) found.push_back({from, is});
        }
        if (found.size() > before) break;
      }
    }
    const double share = static_cast<double>(found.size()) / static_cast<double>(rows.size());
    if (share < kMostRows || (best && best->share >= share)) continue;
    const std::string word = axis_word(axis < axes.size() ? axes[axis] : "");
    best = {"moved_row",
            fmt::format("{} of {} wrong rows looked at are another's: each is {}", found.size(),
                        rows.size(), moved_text(word, found)),
            share};
  }
  return best;
}

std::optional<ErrorFinding> moved_dims(const WrongElements& w, const PatternContext& context) {
  const std::int64_t columns = w.columns();
  if (columns < 4) return {};
  const std::vector<std::int64_t> rows = looked_at(w);
  if (rows.size() < 2) return {};
  const std::int64_t turned = std::min(context.rope_dims, columns);
  std::vector<std::pair<std::int64_t, std::int64_t>> stretches = {{0, columns}};
  if (turned > 3) stretches.insert(stretches.end(), {{columns - turned, turned}, {0, turned}});
  for (const auto& [first, length] : stretches) {
    if (length % 2 != 0) continue;
    for (const Order& order : orders()) {
      std::int64_t same = 0, seen = 0;
      for (const std::int64_t row : rows) {
        const Row value = row_of(w.value, row, columns).subspan(to_size(first), to_size(length));
        const Row right =
            row_of(w.reference, row, columns).subspan(to_size(first), to_size(length));
        if (distance(value, right) <= kFar) continue;
        ++seen;
        std::vector<double> other(to_size(length));
        for (std::int64_t i = 0; i < length; ++i) {
          other[to_size(i)] = right[to_size(order.source(i, length))];
        }
        same += distance(value, other) <= kNear ? 1 : 0;
      }
      if (seen < 2 || static_cast<double>(same) < kMostRows * static_cast<double>(seen)) continue;
      const std::string which =
          length == columns ? "" : fmt::format(" {} to {}", first, first + length - 1);
      return ErrorFinding{"moved_dim",
                          fmt::format("dims{} are the right ones {}, in {} of {} rows looked at",
                                      which, order.words, same, seen),
                          static_cast<double>(same) / static_cast<double>(seen)};
    }
  }
  return {};
}

}  // namespace attnscope
