// The order in which the trainer selects entries by their scores.
#pragma once

#include <cmath>

namespace attnscope::reference {

// Larger scores first, of equal ones the lower entry, NaN behind all: an order of any scores, as
// algorithms of the standard library ask for.
template <class Score, class Entry>
bool selected_before(const Score* scores, Entry a, Entry b) {
  const bool no_a = std::isnan(scores[a]), no_b = std::isnan(scores[b]);
  if (no_a != no_b) return no_b;
  if (!no_a && scores[a] != scores[b]) return scores[a] > scores[b];
  return a < b;
}

}  // namespace attnscope::reference
