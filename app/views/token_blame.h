// Which op is the first one that is wrong for one token: in the token's own rows of the step that
// computes it, and, for what it attends to, in the rows of earlier tokens of its request. Taps
// whose values a trace keeps are compared again, row by row; of others only the step as a whole is
// known.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/session/step/step_trace.h"

namespace attnscope {

struct TokenGuilt {
  Place place;
  std::string tap, lane;
  std::int64_t token = -1;     // row of the step whose element is the worst; -1 = of no one token
  std::int64_t position = -1;  // of it
  std::int64_t elements = 0;   // of the rows that were asked for
  std::int64_t beyond = 0;     // of them wrong
  bool cache = false;          // the rows that the op reads, not the op
  std::string sentence;
};

// A token, followed through the steps that lead to it.
//
//   TokenBlame blame(request, position);
//   for (.. each step, in order ..) if (blame.add(*trace, *summary)) break;
//   if (!blame.found()) .. blame.last_position() ..
class TokenBlame {
 public:
  TokenBlame(std::int32_t request, std::int64_t position)
      : request_(request), position_(position) {}

  // A step that is complete; trace: null where it has none. True: it computed the token.
  bool add(const StepTrace& trace, const StepSummary& summary);

  bool found() const { return step_ >= 0; }
  std::int64_t step() const { return step_; }    // that computed the token first
  std::int64_t token() const { return token_; }  // its row there
  // Positions of the request in the steps that were added; -1 = none.
  std::int64_t first_position() const { return first_; }
  std::int64_t last_position() const { return last_; }
  // The step holds no values of the token's row.
  bool kept() const { return kept_; }
  const std::optional<TokenGuilt>& own() const { return own_; }
  // Of tokens before it, whose rows it reads.
  const std::optional<TokenGuilt>& before() const { return before_; }
  // Without `before`: the first that is wrong in an earlier step and may be of such rows, which the
  // step does not tell; blocks that move are anybody's.
  const std::optional<TokenGuilt>& unclear() const { return unclear_; }

 private:
  std::int32_t request_;
  std::int64_t position_;
  std::int64_t step_ = -1, token_ = -1, first_ = -1, last_ = -1;
  bool kept_ = false;
  std::optional<TokenGuilt> own_, before_, unclear_;
};

}  // namespace attnscope
