#include "engine/session/verify/invariant_guard.h"

#include <fmt/format.h>

#include "engine/sched/sched_invariants.h"

namespace attnscope {

const char* invariants_name(Invariants level) {
  switch (level) {
    case Invariants::kOff:
      return "off";
    case Invariants::kStep:
      return "step";
    case Invariants::kCall:
      break;
  }
  return "call";
}

Result<Invariants> parse_invariants(std::string_view name) {
  for (const Invariants level : {Invariants::kOff, Invariants::kStep, Invariants::kCall}) {
    if (name == invariants_name(level)) return level;
  }
  return usage_error(fmt::format("unknown choice of invariants \"{}\"", name),
                     "allowed: off, step (cheap ones each step), call (all around every call)");
}

Invariants default_invariants() {
#ifdef NDEBUG
  return Invariants::kStep;
#else
  return Invariants::kCall;
#endif
}

void InvariantGuard::attach(Serving& serving, Invariants level) {
  // Whoever watched before may be gone.
  serving.scheduler().kv().set_audit(nullptr);
  watch_.reset();
  violation_.reset();
  level_ = level;
  if (level == Invariants::kStep) watch_ = std::make_unique<StepWatch>(serving.scheduler());
  if (level == Invariants::kCall) watch_ = std::make_unique<SchedAuditor>(serving.scheduler());
}

template <class F>
void InvariantGuard::timed(const F& f) {
  if (!watch_ || violation_) return;
  const auto start = std::chrono::steady_clock::now();
  f(*watch_);
  const std::vector<Violation>* found = nullptr;
  if (const auto* step = dynamic_cast<const StepWatch*>(watch_.get())) found = &step->findings();
  if (const auto* call = dynamic_cast<const SchedAuditor*>(watch_.get())) found = &call->findings();
  if (found != nullptr && !found->empty()) violation_ = found->front();
  cost_ += std::chrono::steady_clock::now() - start;
}

void InvariantGuard::before_schedule() {
  timed([](SchedWatch& w) { w.before_schedule(); });
}

void InvariantGuard::after_schedule(const StepPlan& plan) {
  if (watch_) ++steps_;
  timed([&](SchedWatch& w) { w.after_schedule(plan); });
}

void InvariantGuard::after_results(const StepPlan& plan) {
  timed([&](SchedWatch& w) { w.after_results(plan); });
}

void InvariantGuard::after_arrivals() {
  timed([](SchedWatch& w) { w.after_change(); });
}

}  // namespace attnscope
