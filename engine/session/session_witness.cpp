// A session and its witness.
#include <fmt/format.h>

#include "engine/family/model_weights.h"
#include "engine/session/session.h"

namespace attnscope {
namespace {

// It reads all weights a second time, two bytes each.
constexpr const char* kTooLarge = "the model is too large";
constexpr std::int64_t kMostWitnessed = std::int64_t{2} << 30;  // parameters

std::string not_witnessed(const Scenario& scenario, const LaneRegistry& registry,
                          const SessionOptions& options) {
  if (options.references == References::kNone && !options.witness) return "no reference runs";
  if (!registry.witness()) return "this build has none";
  if (parameter_count(scenario.model) > kMostWitnessed) return kTooLarge;
  return {};
}

}  // namespace

std::string unwitnessed_text(const Witnessed& witnessed) {
  if (witnessed.left_out.empty()) return {};
  return fmt::format("ref.model does not follow: {}{}{}", witnessed.left_out,
                     witnessed.hint.empty() ? "" : "; ", witnessed.hint);
}

void Session::choose_witness(const Scenario& scenario, const LaneRegistry& registry,
                             const SessionOptions& options) {
  unwitnessed_.left_out = not_witnessed(scenario, registry, options);
  if (unwitnessed_.left_out == kTooLarge) unwitnessed_.hint = "run fewer layers, --layers";
  if (!unwitnessed_.left_out.empty()) return;
  Scenario own = scenario;
  own.model.context_ranks = parts_.config.context_ranks;
  witness_to_make_ = [make = registry.witness(), own = std::move(own), threads = parts_.threads] {
    return make(own, threads);
  };
}

Result<void> Session::make_witness() {
  if (!witness_to_make_) return {};
  auto made = std::exchange(witness_to_make_, nullptr)();
  if (made) {
    witness_ = std::move(*made);
    verifier_->watch_free([this](int layer, const OpParams& params, bool exact) {
      if (witness_) witness_->reference_done(layer, params, exact);
    });
    return {};
  }
  unwitnessed_.left_out = made.error().message;
  return made.error();
}

Result<void> Session::ask_witness() {
  if (!witness_) return {};
  auto said = witness_->step_done(*this, change_ != nullptr);
  if (said) {
    std::vector<TapResult>& results = history_.back().results;
    results.insert(results.end(), said->begin(), said->end());
    return {};
  }
  unwitnessed_ = witness_->witnessed();
  unwitnessed_.left_out = said.error().message;
  witness_.reset();
  return said.error();
}

}  // namespace attnscope
