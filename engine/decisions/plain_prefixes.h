// Names of prefixes: two lists of tokens have the same name where they are equal token by token,
// and in what else tells them apart. No hash decides it.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace attnscope::plain {

// What belongs to a block beside its tokens: a name, and for media how far behind the block's start
// it begins (negative: before it).
using Mark = std::pair<std::string, std::optional<std::int64_t>>;

class Prefixes {
 public:
  // The prefix `before` (0 = the empty one) and these tokens behind it.
  std::int64_t name(std::int64_t before, const std::vector<std::int32_t>& tokens,
                    const std::vector<Mark>& marks) {
    return names_
        .emplace(std::tuple(before, tokens, marks), static_cast<std::int64_t>(names_.size()) + 1)
        .first->second;
  }

 private:
  std::map<std::tuple<std::int64_t, std::vector<std::int32_t>, std::vector<Mark>>, std::int64_t>
      names_;
};

}  // namespace attnscope::plain
