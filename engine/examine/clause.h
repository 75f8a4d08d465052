// What the contract of an op asks beyond right numbers on ordinary calls, a clause each, and calls
// on which a kernel that forgot it comes out wrong.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "engine/opcase/op_case.h"

namespace attnscope {

// A call made for a clause. Its outputs are of no account.
struct Variation {
  std::string what;  // "token 0 lists nothing"
  OpCase call;
};

// How a lane shows that it keeps a clause.
enum class ClauseTest {
  kValues,  // outputs as the references have them, nothing else written
  kExact,   // likewise, and the very bytes: of integers that the contract leaves no choice in
  kTwice,   // the same bytes when it is called again
  kPoison,  // the same bytes whatever outputs hold before
  kAlone    // a token has the same result without the others of the call
};

struct Clause {
  const char* id;
  const char* text;  // what it asks for, a sentence
  ClauseTest test;
  // Calls made of an ordinary one; none: the clause does not reach its op.
  std::vector<Variation> (*make)(const OpCase& ordinary);
};
std::span<const Clause> clauses();

// Ordinary calls of an op, the smallest first; none where it has no inputs of its own. page_ends:
// such whose requests end at, before and behind the ends of pages.
std::vector<OpCase> ordinary_calls(as_op_id op, bool page_ends);

// The call with one of its tokens alone; nullopt where it cannot be taken apart.
std::optional<OpCase> one_token(const OpCase& call, std::int64_t token);
// Tokens of a call that can be; 0 = it cannot.
std::int64_t tokens_apart(const OpCase& call);

}  // namespace attnscope
