#include "engine/session/what_if/dump_invariants.h"

#include <fmt/format.h>

#include <algorithm>

#include "engine/model/numbers.h"
#include "engine/session/place.h"
#include "engine/session/what_if/deepseek_v4/dump_invariants.h"
#include "engine/trace/judged_taps.h"

namespace attnscope {

DumpInvariants::DumpInvariants(const ModelConfig& config) {
  for (const FamilyInvariants* one : {&deepseek_v4_invariants()}) {
    if (config.family == one->family) family_ = one;
  }
  if (family_ == nullptr) return;
  for (const InvariantText& text : family_->texts) all_.push_back({text.name, text.sentence});
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
