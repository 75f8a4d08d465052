#include "engine/session/verify/token_watch.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "engine/model/numbers.h"
#include "kernels/params/tensor_view.h"

namespace attnscope {
namespace {

// Two logits whose difference is below this share of the row's largest are a tie between two runs
// whose batches differ: a hidden state in bf16 is known to half of 2^-7 of itself.
constexpr double kTie = 0x1p-7;

}  // namespace

TokenWatch::TokenWatch(const std::vector<Request>& requests) : parted_(requests.size(), false) {
  went_back(requests);
}

void TokenWatch::went_back(const std::vector<Request>& requests) {
  tokens_.resize(requests.size());
  for (std::size_t i = 0; i < requests.size(); ++i) tokens_[i] = requests[i].tokens;
  next_.assign(requests.size(), -1);
  drafts_.clear();
  has_sample_ = false;
}

void TokenWatch::sampled(const as_sample_params& params) {
  const auto* tokens = at<std::int32_t>(params.tokens);
  sample_.assign(tokens, tokens + as_tensor_numel(&params.tokens));
  const auto* logits = at<float>(params.logits);
  logits_.assign(logits, logits + as_tensor_numel(&params.logits));
  vocabulary_ = params.logits.shape[1];
  has_sample_ = true;
}

void TokenWatch::drafted(const as_sample_params& params) {
  const auto* tokens = at<std::int32_t>(params.tokens);
  drafts_.assign(tokens, tokens + as_tensor_numel(&params.tokens));
}

std::vector<TapResult> TokenWatch::planned(const StepMetadata& step) const {
  std::vector<TapResult> found;
  for (std::size_t t = 0; t < step.tokens.size(); ++t) {
    const std::int32_t id = step.live[to_size(step.token_to_req[t])];
    const std::int32_t drafted = next_[to_size(id)];
    const bool is_draft = step.positions[t] == to_count(tokens_[to_size(id)].size());
    if (!is_draft || drafted < 0 || step.tokens[t] == drafted) continue;
    found.push_back(wrong_result(
        AS_OP_SAMPLE, std::string("tokens") + kAppendTap, 1, 1,
        fmt::format("request {}: its draft for position {} is {}, where the model drafted {}", id,
                    step.positions[t], step.tokens[t], drafted)));
  }
  return found;
}

TokenWatch::Expected TokenWatch::expected(const StepMetadata& step, std::size_t row) const {
  Expected out;
  for (std::size_t i = 0; i < step.sample_rows.size(); ++i) {
    if (to_size(step.sample_request[i]) != row || i >= sample_.size()) continue;
    const std::int32_t token = sample_[i];
    if (token < 0) break;  // of a row that is no number
    out.tokens.push_back(token);
    out.from.push_back(i);
    // The next row of the request computed a draft in the place of this token: does it hold?
    const std::size_t next = to_size(step.sample_rows[i]) + 1;
    if (next >= step.tokens.size() || step.tokens[next] != token) break;
  }
  return out;
}

std::string TokenWatch::difference(const Request& request, const Expected& expected) const {
  const std::vector<std::int32_t>& before = tokens_[to_size(request.id)];
  const bool kept = before.size() <= request.tokens.size() &&
                    std::equal(before.begin(), before.end(), request.tokens.begin());
  for (std::size_t i = 0; !kept && i < before.size(); ++i) {
    if (i < request.tokens.size() && request.tokens[i] == before[i]) continue;
    return fmt::format("request {} ({}): its token at position {} was {} and is {}", request.id,
                       request.name, i, before[i],
                       i < request.tokens.size() ? fmt::format("{}", request.tokens[i]) : "gone");
  }
  const std::size_t got = request.tokens.size() - before.size();
  for (std::size_t i = 0; i < got; ++i) {
    const std::int32_t token = request.tokens[before.size() + i];
    if (i < expected.tokens.size() && token == expected.tokens[i]) continue;
    const std::string who = fmt::format("request {} ({}) got token {} at position {}", request.id,
                                        request.name, token, before.size() + i);
    if (i < expected.tokens.size()) {
      return fmt::format("{}, where {} was sampled (row {} of the tap)", who, expected.tokens[i],
                         expected.from[i]);
    }
    return who + (i == 0 ? ", where nothing was sampled" : ", behind a draft that did not hold");
  }
  // A request that is over may have reached its end before the last of them.
  if (got < expected.tokens.size() && (got == 0 || !is_over(request.state))) {
    return fmt::format("request {} ({}) got {} of the {} tokens that were sampled for it",
                       request.id, request.name, got, expected.tokens.size());
  }
  return {};
}

std::string TokenWatch::difference_from_plain(const Request& request, std::size_t known,
                                              const Expected& expected) {
  const std::size_t id = to_size(request.id);
  if (plain_.empty() || parted_[id]) return {};
  const std::vector<std::int32_t>& plain = plain_[id];
  for (std::size_t i = known; i < request.tokens.size() && i < plain.size(); ++i) {
    if (request.tokens[i] == plain[i]) continue;
    parted_[id] = true;
    if (i - known >= expected.from.size()) return {};
    const float* row = logits_.data() + expected.from[i - known] * to_size(vocabulary_);
    double largest = 0;
    for (std::int64_t v = 0; v < vocabulary_; ++v) {
      largest = std::max(largest, std::fabs(static_cast<double>(row[v])));
    }
    const double gap =
        static_cast<double>(row[request.tokens[i]]) - static_cast<double>(row[plain[i]]);
    if (gap <= kTie * largest) return {};
    return fmt::format(
        "request {} ({}) got token {} at position {}; without drafts it got {}, whose logit is "
        "lower by {:.3g} here",
        request.id, request.name, request.tokens[i], i, plain[i], gap);
  }
  return {};
}

std::vector<TapResult> TokenWatch::appended(const StepMetadata& step,
                                            const std::vector<Request>& requests) {
  std::vector<TapResult> found;
  if (!has_sample_ && !step.sample_rows.empty()) {
    for (const Request& request : requests) {
      std::vector<std::int32_t>& known = tokens_[to_size(request.id)];
      const std::size_t before = std::min(known.size(), request.tokens.size());
      known.resize(before);
      known.insert(known.end(), request.tokens.begin() + to_count(before), request.tokens.end());
    }
    return found;
  }
  for (const Request& request : requests) {
    std::vector<std::int32_t>& known = tokens_[to_size(request.id)];
    const auto row = std::ranges::find(step.live, request.id) - step.live.begin();
    const Expected must =
        row < to_count(step.live.size()) ? expected(step, to_size(row)) : Expected{};
    if (row < to_count(step.live.size()) && step.num_scheduled_tokens[to_size(row)] > 0) {
      const bool has = !must.from.empty() && must.from.back() < drafts_.size();
      next_[to_size(request.id)] = has ? drafts_[must.from.back()] : -1;
    }
    std::string note = difference(request, must);
    if (note.empty()) note = difference_from_plain(request, known.size(), must);
    if (note.empty()) {
      known.insert(known.end(), request.tokens.begin() + to_count(known.size()),
                   request.tokens.end());
      continue;
    }
    known = request.tokens;
    found.push_back(
        wrong_result(AS_OP_SAMPLE, std::string("tokens") + kAppendTap, 1, 1, std::move(note)));
  }
  has_sample_ = false;
  drafts_.clear();
  return found;
}

}  // namespace attnscope
