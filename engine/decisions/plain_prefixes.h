// Names of prefixes: two lists of tokens have the same name where they are equal token by token. No
// hash decides it.
#pragma once

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

namespace attnscope::plain {

class Prefixes {
 public:
  // The prefix `before` (0 = the empty one) and these tokens behind it.
  std::int64_t name(std::int64_t before, const std::vector<std::int32_t>& tokens) {
    return names_.emplace(std::pair(before, tokens), static_cast<std::int64_t>(names_.size()) + 1)
        .first->second;
  }

 private:
  std::map<std::pair<std::int64_t, std::vector<std::int32_t>>, std::int64_t> names_;
};

}  // namespace attnscope::plain
