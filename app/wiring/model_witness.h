// Holds a session against ref.model, which shares no wiring with engine, ref.sim and ref.exact.
// Behind every step it computes the same tokens and compares, each of the others running free,
//
//   ref.exact    hidden states of every layer, selections and logits: both are float64 without
//                quantisation, so that nothing may drift
//   the engine   the same, within what its formats may have moved them (Drift); and the tokens that
//                were appended to requests: each is the best one by logits that lie as far from
//                ref.model's as the engine's do
//
// and looks at what each op of the engine is given (op_audit.h). What parts although every op
// is right on its own inputs has been wired otherwise; the audit says which op, and what it was
// given. Results only where that is so, of the first step; a session in which something else is
// wrong is left alone from there on, until it goes back behind that step.
//
// Layers that are fed recorded rows have no hidden states of their own: of these sessions only what
// the ops are given is looked at.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "app/wiring/op_audit.h"
#include "engine/config/scenario.h"
#include "engine/metadata/step_metadata.h"
#include "engine/session/verify/beside.h"
#include "engine/session/verify/witness.h"
#include "reference/model.h"

namespace attnscope {

// How far ref.exact may be off, of the largest value of a row: order of sums in float64, and angles
// of positions up to a million.
inline constexpr double kModelBound = 1e-9;

// How far the engine may be off, as the length of the difference over the length of the row.
// Formats move a row: e4m3 codes of latent rows by 2 to 4 % of each value, index keys and queries
// so that other entries are chosen, and each layer reads what the one before it gave. How much
// that comes to depends on the weights, so that ref.sim, which rounds where the engine does and
// differs from it in the order of sums, says it where it runs: the engine may be off kTimesSim
// times as far as ref.sim was in any row of this layer, and never has to be nearer than kFloor.
// Without ref.sim the limit is kAlone. Where attention is merged of rounded parts, entries that are
// chosen never have to be nearer than kGapOfParts: codes of index keys lose 0.17 in a prompt of 396
// tokens, and 0.12 was seen of a decode behind one, where ref.sim lost less than 0.05.
struct Drift {
  static constexpr double kTimesSim = 3, kFloor = 0.05, kAlone = 0.8, kGapOfParts = 0.3;
};

class ModelWitness : public SessionWitness {
 public:
  ModelWitness(std::unique_ptr<reference::ModelReference> model, std::unique_ptr<OpAudit> audit,
               const Scenario& scenario);

  void reference_done(int layer, const OpParams& params, bool exact) override;
  void op_done(const Session& session) override;
  void rank_op_done(const Session& session, const OpParams& params, int rank) override;
  Result<std::vector<TapResult>> step_done(const Session& session, bool changed) override;
  Witnessed witnessed() const override { return figures_; }

 private:
  struct Selection {
    as_op_id op = AS_OP_COUNT;  // that selected, and as which of its taps
    const char* tap = "";
    std::int64_t width = 0;
    std::vector<std::int32_t> entries;  // [T, width], -1 = none
  };
  // What one party gave in the step that runs; empty where it does not run.
  struct Party {
    std::vector<std::vector<double>> hidden;  // by running layer: [T, hidden]
    std::vector<Selection> selected;          // by running layer
    std::vector<double> logits, drafted;      // [N, 256] of the head, and of a draft layer's
    std::vector<std::vector<double>> spare;   // memory of steps before
    // As it began, but for the memory.
    void begin_step();
  };
  // Largest so far of what ref.sim was off.
  struct SimDrift {
    double hidden = 0, gap = 0;
  };
  // The rows of a request in a step, and ref.model's of them.
  struct Rows {
    std::size_t live = 0;               // row of the step's metadata
    std::int64_t first = 0, count = 0;  // tokens of the step
    std::int64_t model_first = 0;       // in what ref.model gave
    std::size_t part = 0;
  };
  // layer: index among the running ones, -1 outside.
  // threads: null = none.
  static void keep(const OpParams& params, int layer, std::size_t layers, Party& party,
                   const as_threads* threads);
  // What the model is to compute for a step, and what it gave.
  struct Computed {
    std::int64_t step = -1;
    StepMetadata metadata;
    std::vector<Rows> rows;
    std::vector<reference::ModelRows> tokens;  // of the metadata
    std::optional<Result<reference::ModelOutput>> out;
  };
  // The rows of the step that the session stands in, and the model at the positions before them.
  Result<void> prepare(const Session& session, std::int64_t step, const StepMetadata& metadata);
  // Where references compute elsewhere, the model does so as soon as it knows the step's tokens.
  void run_ahead(const Session& session);
  Result<void> follow(const Session& session);
  Result<void> catch_up(const Session& session, const StepMetadata& step,
                        const std::vector<Rows>& rows);
  void compare_layers(const Session& session, const reference::ModelOutput& out, const Rows& rows);
  void compare_exact(const Session& session, const reference::ModelOutput& out, const Rows& rows,
                     std::size_t layer);
  void compare_engine(const Session& session, const reference::ModelOutput& out, const Rows& rows,
                      std::size_t layer);
  void compare_logits(const Session& session, const reference::ModelOutput& out, const Rows& rows);
  // Of one head: logits of ref.model [T, 256], which ones of each party, and in which layer it is
  // (-1 = behind the main ones).
  void compare_head(const Session& session, const std::vector<double>& model,
                    std::vector<double> Party::*logits, int layer, SimDrift& drift,
                    const Rows& rows);
  void compare_tokens(const Session& session, const reference::ModelOutput& out, const Rows& rows);
  bool tied(const Rows& rows) const;
  // Whether ref.exact's selection is another one; ties leave the request out from there on.
  bool same_selection(const Session& session, const reference::ModelChoice& model, const Rows& rows,
                      std::size_t layer);
  void part(const Session& session, as_op_id op, const std::string& tap, int layer,
            std::string note);
  std::string place(const Rows& rows, std::int64_t token) const;

  std::unique_ptr<reference::ModelReference> model_;
  std::unique_ptr<OpAudit> audit_;
  const bool follows_;  // computes the steps too
  StepMetadata step_;
  std::vector<std::size_t> known_;  // tokens of each live request before the step
  std::size_t layers_ = 0;          // of the session, since its first op
  Party exact_, sim_, engine_;
  Computed computed_;
  std::vector<SimDrift> sim_drift_;  // by running layer; behind them the logits and the draft's
  std::map<std::int32_t, std::int64_t> tied_;  // request: position from which it may differ
  // Requests that have taken over rows of the draft layer that are of other tokens: what it drafts
  // for them is not ref.model's.
  std::set<std::int32_t> stale_;
  std::optional<std::int64_t> over_since_;  // step
  std::optional<TapResult> parted_;
  Witnessed figures_;
  std::unique_ptr<Beside> thread_;  // of the model; first to go
};

// For LaneRegistry::set_witness: that of the model's family.
Result<std::unique_ptr<SessionWitness>> make_model_witness(const Scenario& scenario,
                                                           const as_threads* threads);

// Why a token cannot be the one that logits like these chose: empty when it can. model: ref.model's
// logits; engine: those the token was sampled by, which the formats have moved.
std::string token_note(const double* model, const double* engine, std::int64_t n,
                       std::int32_t token);

// By how much the worst entry chosen lies below the best one left out, by ref.model's scores of one
// token, of the largest of them: 0 where the selection is ref.model's own. list: -1 = none.
// Infinite where the list has another length, an entry twice or one that cannot be seen.
double selection_gap(const reference::ModelChoice& model, std::int64_t token,
                     const std::int32_t* list, std::int64_t width);

}  // namespace attnscope
