#include "engine/trace/recount.h"

#include <fmt/format.h>

#include "engine/trace/wiring_tap.h"
#include "kernels/params/op_table.h"

namespace attnscope {

void Recount::add(const TapResult& result) {
  ++results_;
  if (result.verdict != Verdict::kWrong) return;
  ++wrong_;
  if (!first_) first_ = result;
}

Error Recount::contradicted(const std::string& what) const {
  std::string first;
  if (first_) {
    first = fmt::format(", of which the first is step {}, layer {}, {}, tap {}", first_->step,
                        first_->layer, as_op_find(first_->op)->name, first_->tap);
  }
  return internal_error(fmt::format("{} results are wrong{}, but {}", wrong_, first, what));
}

Result<void> Recount::hold(const Summary& summary) const {
  if (summary.taps != results_) {
    return contradicted(
        fmt::format("the summary is of {} results in place of {}", summary.taps, results_));
  }
  if (summary.count(Verdict::kWrong) != wrong_) {
    return contradicted(fmt::format("the summary counts {}", summary.count(Verdict::kWrong)));
  }
  if ((summary.verdict() == "wrong") != (wrong_ > 0)) {
    return contradicted(fmt::format("the verdict is {}", summary.verdict()));
  }
  if (summary.blamed.empty() != (wrong_ == 0)) return contradicted("the blame is another");
  if (!first_) return {};
  const TapResult& blamed = summary.blamed.front().first;
  // What an op is given is looked at when its step has ended; rows found wrong before follow from
  // it.
  if (blamed.step == first_->step && blamed.tap.ends_with(kWiringTap)) return {};
  if (blamed.step != first_->step || blamed.layer != first_->layer || blamed.op != first_->op ||
      blamed.tap != first_->tap) {
    return contradicted(fmt::format("the first to blame is step {}, layer {}, {}, tap {}",
                                    blamed.step, blamed.layer, as_op_find(blamed.op)->name,
                                    blamed.tap));
  }
  return {};
}

Result<void> Recount::hold(bool ok) const {
  if (ok && wrong_ > 0) return contradicted("the run is called ok");
  return {};
}

}  // namespace attnscope
