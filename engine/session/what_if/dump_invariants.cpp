#include "engine/session/what_if/dump_invariants.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "engine/model/numbers.h"
#include "engine/session/place.h"
#include "engine/session/step/attention_copy.h"
#include "engine/session/what_if/deepseek_v4/dump_invariants.h"
#include "engine/session/what_if/dense/dump_invariants.h"
#include "engine/session/what_if/mla/dump_invariants.h"
#include "engine/session/what_if/row_alone.h"
#include "engine/trace/judged_taps.h"
#include "kernels/params/offload_params.h"
#include "kernels/params/row_format.h"
#include "kernels/params/tensor_view.h"

namespace attnscope {

void check_positions(const Session& session, DumpInvariants& to, int number) {
  const StepMetadata& m = session.metadata();
  for (std::size_t r = 0; r + 1 < m.query_start_loc.size(); ++r) {
    const std::int32_t length = m.query_start_loc[r + 1] - m.query_start_loc[r];
    for (std::int32_t i = 0; i < length; ++i) {
      const std::int64_t position = m.positions[to_size(m.query_start_loc[r] + i)];
      to.check(number, position == m.seq_lens[r] - length + i,
               fmt::format("token {} of request {} has position {}", m.query_start_loc[r] + i,
                           m.live[r], position));
    }
  }
}

void check_last_row_alone(const Session& session, DumpInvariants& to, int number) {
  const std::int64_t tokens = session.metadata().num_tokens_in_step();
  if (tokens < 2) return;  // it is alone
  const RowAlone alone = run_row_alone(session, tokens - 1);
  if (!alone.possible) return;
  to.check(number, alone.budget_used <= 1,
           fmt::format("token {} alone differs by {:.3g} times what another order of sums may "
                       "cause, {} steps of its dtype ({})",
                       tokens - 1, alone.budget_used, alone.worst_ulp, alone.worst));
}

void check_masses(const Session& session, const AttentionCopy& copy,
                  const std::vector<std::int32_t>& rows, DumpInvariants& to, int number) {
  // An fp32 sum of scores of 100 and more has steps of its own size, and a lane may hold rows in
  // another format than they are kept in.
  float largest = 0;
  for (const float logit : copy.logits) {
    if (std::isfinite(logit)) largest = std::max(largest, std::fabs(logit));
  }
  const as_op_id op = session.last_params().op();
  const auto allowed = session.parts().tolerances.find(op, "lse", session.lanes().lane(op), "lse");
  const double bound = std::max(1e-3, allowed ? allowed->abs : 0.0);
  to.check(number,
           static_cast<double>(copy.lse_error) <
               bound * std::max(1.0, static_cast<double>(largest) / 100),
           fmt::format("an LSE differs from the recomputed one by {:.3g}",
                       static_cast<double>(copy.lse_error)));
  const std::size_t columns = to_size(copy.window + copy.extra);
  for (std::size_t i = 0; i < copy.sink_mass.size(); ++i) {
    double sum = static_cast<double>(copy.sink_mass[i]);
    bool seen = copy.sinks[i % to_size(copy.heads)] > -std::numeric_limits<float>::infinity();
    for (std::size_t c = 0; c < columns; ++c) {
      sum += static_cast<double>(copy.weights[i * columns + c]);
      const bool row = copy.slots[i / to_size(copy.heads) * columns + c] >= 0;
      seen =
          seen || (row && copy.logits[i * columns + c] > -std::numeric_limits<float>::infinity());
    }
    // A mask may hide all rows from a head.
    to.check(number, std::fabs(sum - (seen ? 1 : 0)) < 1e-5,
             fmt::format("token {}, head {}: the masses sum to {}", rows[i / to_size(copy.heads)],
                         i % to_size(copy.heads), sum));
  }
}

namespace {

constexpr InvariantText kExchangedRows = {
    "exchanged_rows",
    "A row that came into the pool or went back to its page is the row that it was, byte for byte; "
    "attention is given its place in the pool where it has one."};

// After exchange_rows. Of a session without a device, whose rows are somewhere else.
void check_exchange(const Session& session, DumpInvariants& to, int number) {
  if (session.has_device()) return;
  const auto& p = session.last_params().get<as_exchange_rows_params>();
  std::vector<std::uint8_t> there(to_size(as_cache_row_bytes(&p.pool))), here(there);
  const auto same = [&](const as_cache& from, const as_tensor& from_slots, const as_cache& into,
                        const as_tensor& into_slots, const char* what) {
    for (std::int64_t n = 0; n < into_slots.shape[0]; ++n) {
      const std::int64_t source = *at<std::int64_t>(from_slots, n);
      const std::int64_t slot = *at<std::int64_t>(into_slots, n);
      if (source < 0 || slot < 0) continue;
      as_row_get(&from, source, there.data());
      as_row_get(&into, slot, here.data());
      const bool held = there == here;
      to.check(number, held,
               held ? std::string()
                    : fmt::format("{} {}: slot {} does not hold the row of slot {}", what, n, slot,
                                  source));
    }
  };
  same(p.missed, p.missed_from, p.pool, p.pool_to, "missed row");
  same(p.fresh, p.fresh_from, p.pages, p.pages_to, "new row of token");
  for (std::int64_t t = 0; t < p.places.shape[0]; ++t) {
    const std::int32_t *place = at<std::int32_t>(p.places, t), *slot = at<std::int32_t>(p.slots, t),
                       *page = at<std::int32_t>(p.selected, t);
    std::int64_t k = 0;
    const auto given = [&] { return slot[k] == (place[k] >= 0 ? place[k] : page[k]); };
    while (k < p.places.shape[1] && given()) ++k;
    const bool held = k == p.places.shape[1];
    to.check(number, held,
             held ? std::string()
                  : fmt::format("token {}, entry {}: slot {} instead of {}", t, k, slot[k],
                                place[k] >= 0 ? place[k] : page[k]));
  }
}

}  // namespace

std::vector<std::int32_t> last_rows(const StepMetadata& step) {
  std::vector<std::int32_t> rows;
  for (std::size_t r = 0; r + 1 < step.query_start_loc.size(); ++r) {
    const std::int32_t end = step.query_start_loc[r + 1];
    if (end > step.query_start_loc[r]) rows.push_back(end - 1);
  }
  return rows;
}

DumpInvariants::DumpInvariants(const ModelConfig& config) {
  for (const FamilyInvariants* one :
       {&deepseek_v4_invariants(), &dense_invariants(), &mla_invariants()}) {
    if (config.family == one->family) family_ = one;
  }
  if (family_ == nullptr) return;
  for (const InvariantText& text : family_->texts) all_.push_back({text.name, text.sentence});
  if (!config.host_rows) return;
  exchanged_ = static_cast<int>(all_.size());
  all_.push_back({kExchangedRows.name, kExchangedRows.sentence});
}

void DumpInvariants::check(int number, bool holds, const std::string& how) {
  Here& here = here_[to_size(number)];
  ++here.checked;
  if (!holds && here.broken++ == 0) here.first = how;
}

void DumpInvariants::op_done(const Session& session) {
  if (family_ == nullptr) return;
  here_.assign(all_.size(), {});
  family_->op_done(session, *this);
  const Place place = last_place(session);
  const as_op_id op = session.last_params().op();
  if (op == AS_OP_EXCHANGE_ROWS && exchanged_ >= 0) check_exchange(session, *this, exchanged_);
  const char* name = as_op_find(op)->name;
  for (std::size_t i = 0; i < here_.size(); ++i) {
    const Here& here = here_[i];
    Invariant& invariant = all_[i];
    invariant.checked += here.checked;
    if (here.broken == 0) continue;
    if (invariant.broken == 0) {
      invariant.first =
          place.layer < 0
              ? fmt::format("step {}, {}: {}", place.step, name, here.first)
              : fmt::format("step {}, layer {}, {}: {}", place.step, place.layer, name, here.first);
    }
    invariant.broken += here.broken;
    TapResult result = judged_wrong(op, invariant.name + kInvariantTap, here.checked, here.broken,
                                    here.first + "; what must hold: " + invariant.sentence);
    result.step = place.step;
    result.layer = place.layer;
    result.lane = session.lanes().lane(op);
    broken_.push_back(std::move(result));
  }
}

}  // namespace attnscope
