// The text that models are trained on, byte by byte, and the part of it that they never see.
//
// All files one behind the other are cut into pieces; every tenth piece is held out. A sequence of
// training lies within the pieces between two of those, so that no byte of theirs is learnt from.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kernels/params/result.h"

namespace attnscope {

struct TextRun {
  std::int64_t begin = 0, end = 0;
};

struct TrainText {
  std::string bytes;
  std::uint64_t sum = 0;  // checksum() of them
  std::vector<std::string> files;
  std::vector<TextRun> learnt, held;

  std::int64_t learnt_bytes() const;
  std::int64_t held_bytes() const;
};

// Without files: what the assets explain in Markdown, but prompts.md, which scenarios ask with, and
// training.md, whose figures come from training. AS_BAD_INPUT where no sequence of `length` bytes
// and the one behind fits.
Result<TrainText> read_train_text(const std::vector<std::string>& files, std::int64_t length);
TrainText cut_train_text(std::string bytes);

// [sequences, length + 1], chosen by seed and step alone.
std::vector<std::int32_t> learnt_batch(const TrainText& text, std::uint64_t seed, std::int64_t step,
                                       std::int64_t sequences, std::int64_t length);
// The first `most` sequences of held-out text that do not overlap, or as many as there are.
std::vector<std::int32_t> held_batch(const TrainText& text, std::int64_t most, std::int64_t length);

}  // namespace attnscope
