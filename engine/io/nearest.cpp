#include "engine/io/nearest.h"

#include <algorithm>
#include <utility>

#include "engine/io/letters.h"

namespace attnscope {
namespace {

constexpr std::size_t kLongestTyped = 128;  // of what a user typed; the rest cannot matter

}  // namespace

int edit_distance(std::string_view a_text, std::string_view b_text) {
  const std::string a = lower(a_text.substr(0, kLongestTyped)),
                    b = lower(b_text.substr(0, kLongestTyped));
  std::vector<int> before(b.size() + 1), row(b.size() + 1), next(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) row[j] = static_cast<int>(j);
  for (std::size_t i = 1; i <= a.size(); ++i) {
    next[0] = static_cast<int>(i);
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const int replaced = row[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      next[j] = std::min({replaced, row[j] + 1, next[j - 1] + 1});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        next[j] = std::min(next[j], before[j - 2] + 1);
      }
    }
    std::swap(before, row);
    std::swap(row, next);
  }
  return row[b.size()];
}

std::vector<std::string> nearest_names(std::string_view wanted,
                                       const std::vector<std::string>& names, std::size_t count) {
  const std::string text = lower(wanted.substr(0, kLongestTyped));
  if (text.empty()) return {};
  // Beyond this share of the text the two have nothing to do with each other.
  const int furthest = std::max<int>(2, static_cast<int>(text.size()) / 2);
  std::vector<std::pair<int, const std::string*>> found;
  for (const std::string& name : names) {
    const std::string other = lower(name);
    int distance = edit_distance(text, other);
    if (other.starts_with(text)) {
      distance = 0;
    } else if (other.find(text) != std::string::npos) {
      distance = std::min(distance, 1);
    }
    if (distance <= furthest) found.emplace_back(distance, &name);
  }
  std::stable_sort(found.begin(), found.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<std::string> out;
  for (const auto& [distance, name] : found) {
    if (out.size() == count) break;
    out.push_back(*name);
  }
  return out;
}

std::string did_you_mean(std::string_view wanted, const std::vector<std::string>& names) {
  const auto near = nearest_names(wanted, names, 1);
  return near.empty() ? "" : "did you mean " + near.front() + "? ";
}

}  // namespace attnscope
