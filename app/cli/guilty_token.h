// The first op that is wrong for a token, named by its request and position: of a scenario, which
// is run until the token was computed, or of a capture.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "app/cli/look_commands.h"
#include "app/views/token_blame.h"

namespace attnscope {

// By name or id. AS_USAGE for one that is not there.
Result<std::int32_t> request_by_name(const std::string& text,
                                     const std::vector<std::string>& names);

struct GuiltyToken {
  TokenBlame blame;
  std::int32_t request = -1;
  std::string scenario;  // of a capture: its own, as commands take it; may be empty
  std::string not_kept;  // why the token's values are not looked at; empty: they are

  // What was found, a line each.
  std::vector<std::string> lines() const;
  // The op to look at next: of the token itself, else of an earlier one.
  const TokenGuilt* guilt() const;
};
// AS_BAD_INPUT: the request never computes the position, or a capture lacks the step.
Result<GuiltyToken> guilty_token(const LookAt& at, const TokenChoice& token);

nlohmann::json guilty_token_json(const GuiltyToken& found);

// By name or id, of those that the session has.
Result<std::int32_t> request_in(const Session& session, const std::string& text);
// Row of the chosen token in the session's step.
Result<std::int64_t> row_in_step(const Session& session, const TokenChoice& token);

}  // namespace attnscope
