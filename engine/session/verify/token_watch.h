// Tokens from the sample tap to the requests. Of each step: what a request has behind the tokens it
// had before is what was sampled at its rows, drafts that held before the token behind them, and
// nothing else changed. With drafts: the tokens are those of the run without; what a model has
// drafted is what the next step verifies.
//
// Expected tokens are kept here, from the prompts on and from the tap alone, so that swapped,
// altered, lost or additional tokens show with request and step.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "engine/metadata/step_metadata.h"
#include "engine/session/step/op_params.h"
#include "engine/trace/tap_result.h"

namespace attnscope {

class TokenWatch {
 public:
  explicit TokenWatch(const std::vector<Request>& requests);

  // What each request had in the run without drafts, its prompt first.
  void set_plain(std::vector<std::vector<std::int32_t>> tokens) { plain_ = std::move(tokens); }
  // From here on lanes or ops are others than in the run without drafts.
  void forget_plain() { plain_.clear(); }

  // The op sample has run. In a step without this, what requests get is taken as it comes.
  void sampled(const as_sample_params& params);
  // The same op of a layer that drafts.
  void drafted(const as_sample_params& params);
  // Once a step's tokens are planned: drafts that are others than a model had for them.
  std::vector<TapResult> planned(const StepMetadata& step) const;
  // Once the step's tokens were appended; the step's number is the caller's to set.
  std::vector<TapResult> appended(const StepMetadata& step, const std::vector<Request>& requests);
  // The session stands at a step boundary with these requests.
  void went_back(const std::vector<Request>& requests);

 private:
  // What a request of a live row gets by the tap, and the rows of the tap it comes from.
  struct Expected {
    std::vector<std::int32_t> tokens;
    std::vector<std::size_t> from;
  };
  Expected expected(const StepMetadata& step, std::size_t row) const;
  // Why the request's tokens from `known` on are not those; empty = they are.
  std::string difference(const Request& request, const Expected& expected) const;
  std::string difference_from_plain(const Request& request, std::size_t known,
                                    const Expected& expected);

  std::vector<std::vector<std::int32_t>> tokens_;  // by request, as they must be
  std::vector<std::vector<std::int32_t>> plain_;   // empty: nothing to compare with
  std::vector<bool> parted_;                       // by request: at a tie, from plain_
  bool has_sample_ = false;
  std::vector<std::int32_t> sample_;  // [N]
  std::vector<std::int32_t> drafts_;  // [N] of a layer that drafts; empty = there was none
  std::vector<std::int32_t> next_;    // by request: what is drafted for the next step; -1 = unknown
  std::vector<float> logits_;         // [N, V]
  std::int64_t vocabulary_ = 0;       // V
};

}  // namespace attnscope
