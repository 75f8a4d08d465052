// Drafts of what a request samples next, computed together with its next token and verified by it
// (speculative decoding). They are the model's own where it has a draft layer that runs: one token
// a step, which Serving is told of when a step ends. A Drafter makes others where no model drafts:
// the tokens are those that the same request got in a run without drafts, and how many of them are
// right is given, so that a run has the acceptance it was asked for and the same one every time.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace attnscope {

struct DraftOptions {
  std::int64_t tokens = 0;  // drafted for each decode step, 0 = none
  // How many of them are right, by verification of a request, over and over. Empty = all.
  std::vector<std::int64_t> accept;
  bool by_model = false;  // they are those of the model's draft layer
};

inline constexpr std::int64_t kMostDrafts = 15;  // a verification is a handful of rows

struct Drafter {
  DraftOptions options;
  std::vector<std::vector<std::int32_t>> known;  // by request: its prompt and all it samples
  std::int32_t vocabulary = 0;

  // Drafts behind the first `num_tokens` tokens of a request, at most `most`, in its verification
  // number `turn` (from 0). A wrong one is not the last: those behind it are right in their places,
  // and nothing but the one before tells that they do not count.
  std::vector<std::int32_t> draft(std::int32_t request, std::int64_t num_tokens, std::int64_t most,
                                  std::int64_t turn) const;
};

// How many of the leading drafts are what was sampled in their place.
std::size_t right_drafts(std::span<const std::int32_t> drafts,
                         std::span<const std::int32_t> sampled);

}  // namespace attnscope
