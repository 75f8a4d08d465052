// Whose tokens a dump's are, where no tensor of it says so: by their positions, which go on where
// those of a request ended. What they leave open is asked for.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kernels/params/result.h"

namespace attnscope {

class RequestsByPosition {
 public:
  // The request of every token of the next step. positions: of its tokens. slots: where their rows
  // lie in pages of `rows_per_block` rows, or empty: two neighbours in a page are of one request.
  // AS_BAD_INPUT: several requests could be meant.
  Result<std::vector<std::int32_t>> assign(std::int64_t step,
                                           const std::vector<std::int64_t>& positions,
                                           const std::vector<std::int64_t>& slots,
                                           std::int64_t rows_per_block);
  // The same where the dump says it.
  void know(const std::vector<std::int64_t>& positions, const std::vector<std::int32_t>& requests);

  // What was concluded, for people; empty: there was nothing to tell apart.
  std::string note() const;

 private:
  std::vector<std::int64_t> next_;  // position, by request
  bool told_apart_ = false;
};

}  // namespace attnscope
