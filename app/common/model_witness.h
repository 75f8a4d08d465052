// Holds a run against ref.model, which shares no wiring with engine, ref.sim and ref.exact. Behind
// every step it computes the same tokens and compares
//
//   the free-running ref.exact   hidden states of every layer, selections and logits: both are
//                                float64 without quantisation, so that nothing may drift
//   the engine                   the tokens that were appended to requests: each is the best one by
//                                logits that lie as far from ref.model's as the engine's do
//
// What parts although every op is right on its own inputs has been wired otherwise: an op was given
// another weight, number, table or input than its layer's, on both sides. A result only where that
// is so, the first one; a run in which something else is wrong is left alone from there on.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "app/common/model_reference.h"
#include "engine/metadata/step_metadata.h"
#include "engine/session/observer.h"
#include "engine/trace/tap_result.h"

namespace attnscope {

// How far the two may be apart, of the largest value of a row: order of sums in float64, and angles
// of positions up to a million.
inline constexpr double kModelBound = 1e-9;

class ModelWitness : public SessionObserver {
 public:
  // next: is told everything too; may be null.
  ModelWitness(std::unique_ptr<reference::ModelReference> model, SessionObserver* next)
      : model_(std::move(model)), next_(next) {}

  void op_done(const Session& session) override;
  void step_done(const Session& session) override;
  void went_back(const Session& session) override;
  void lanes_changed(const Session& session) override;
  void lane_failed(const Session& session, const Error& error) override;

  // What is wired otherwise.
  const std::optional<TapResult>& parted() const { return parted_; }
  // Rows of layers and of logits that were compared, and how far they were apart at most.
  std::int64_t rows() const { return rows_; }
  double worst() const { return worst_; }
  double seconds() const { return seconds_; }
  // ref.model could not compute a step.
  const std::optional<Error>& error() const { return error_; }

 private:
  struct Selection {
    std::int64_t width = 0;
    std::vector<std::int32_t> entries;  // [T, width], -1 = none
  };
  // What the step that runs gave.
  struct Seen {
    StepMetadata step;
    std::vector<std::size_t> known;             // tokens of each live request before the step
    std::vector<std::vector<double>> hidden;    // by running layer: [T, hidden]
    std::vector<Selection> selected;            // by running layer
    std::vector<double> logits, engine_logits;  // [N, 256]
  };
  Result<void> follow(const Session& session);
  Result<reference::ModelOutput> compute(const Session& session, std::size_t live);
  void compare_layers(const Session& session, std::size_t live, const reference::ModelOutput& out);
  void compare_logits(const Session& session, std::size_t live, const reference::ModelOutput& out);
  // Whether a selection is another one; ties leave the request out from there on.
  bool same_selection(const Session& session, std::size_t live, std::size_t layer,
                      const reference::ModelLayer& model);
  void part(const Session& session, as_op_id op, const char* tap, int layer, std::string note);
  std::string place(std::size_t live, std::int64_t token) const;

  std::unique_ptr<reference::ModelReference> model_;
  SessionObserver* next_;
  Seen seen_;
  std::set<std::int32_t> tied_;  // requests whose histories may differ since a tie
  bool over_ = false;
  std::optional<TapResult> parted_;
  std::optional<Error> error_;
  std::int64_t rows_ = 0;
  double worst_ = 0, seconds_ = 0;
};

// Why a token cannot be the one that logits like these chose: empty when it can. model: ref.model's
// logits; engine: those the token was sampled by, which the formats have moved.
std::string token_note(const double* model, const double* engine, std::int64_t n,
                       std::int32_t token);

}  // namespace attnscope
