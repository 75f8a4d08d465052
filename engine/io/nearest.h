// "Did you mean": names that a mistyped one is close to.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace attnscope {

// Insertions, deletions, replacements and swaps of neighbours that turn one text into the other,
// upper and lower case being the same.
int edit_distance(std::string_view a, std::string_view b);

// At most `count` of `names`, closest first: those that begin with or contain `wanted`, then by
// edit distance. Names that have nothing to do with it are left out.
std::vector<std::string> nearest_names(std::string_view wanted,
                                       const std::vector<std::string>& names,
                                       std::size_t count = 3);

// "did you mean X? ", X being the closest of `names`; empty where none is close. What the names are
// follows in a hint.
std::string did_you_mean(std::string_view wanted, const std::vector<std::string>& names);

}  // namespace attnscope
