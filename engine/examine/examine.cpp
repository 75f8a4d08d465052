#include "engine/examine/examine.h"

#include <fmt/format.h>

#include <algorithm>

#include "engine/examine/helper_calls.h"
#include "engine/examine/rerun.h"
#include "engine/examine/unreached.h"
#include "engine/golden/op_inputs.h"

namespace attnscope {
namespace {

constexpr std::uint8_t kUsualPoison = 0xff, kOtherPoison = 0x5a;
constexpr std::int64_t kMostAlone = 8;  // tokens of a call that are called alone

// What a call showed. Neither: all as it should be.
struct Shown {
  std::string wrong;        // "o: 4 of 512 elements beyond the tolerance"
  std::string refused;      // by the lane, in words of its own
  std::string unreachable;  // our own lane refuses the call
  std::optional<OpCase> expected;
};

std::string tap_text(const CaseTap& tap) {
  return fmt::format("{}: {} of {} elements beyond the tolerance{}", tap.tap,
                     tap.comparison.figures.beyond, tap.comparison.elements,
                     tap.comparison.anomalies > 0 ? fmt::format(", NaN or infinite on one side: {}",
                                                                tap.comparison.anomalies)
                                                  : "");
}

// Outputs byte for byte, by name.
using BytesOf = std::map<std::string, const std::vector<std::uint8_t>*>;

BytesOf outputs_of(const OpCase& call) {
  BytesOf found;
  for (const as_tap_info& tap : call.op.taps) {
    if (tap.direction != AS_TAP_OUT) continue;
    if (const auto t = call.tensors.find(tap.name); t != call.tensors.end()) {
      found[tap.name] = &t->second.bytes;
    } else if (const auto c = call.caches.find(tap.name); c != call.caches.end()) {
      found[tap.name] = &c->second.rows;
    }
  }
  return found;
}

class Examiner {
 public:
  explicit Examiner(const ExamineOptions& options) : options_(options) {}

  ClauseFinding look(const CaseOp& op, const Clause& clause, const std::vector<OpCase>& ordinary) {
    ClauseFinding finding;
    finding.clause = &clause;
    if (finding.note = cannot_call(op); !finding.note.empty()) return finding;
    if (std::string_view(clause.id) == "high_blocks" && !options_.not_far.empty()) {
      finding.note = options_.not_far;
      return finding;
    }
    for (const OpCase& call : ordinary) {
      for (Variation& variation : clause.make(call)) {
        const Shown shown = show(clause, variation.call);
        if (!shown.unreachable.empty()) {
          finding.note = fmt::format("{}: {}", variation.what, shown.unreachable);
          continue;
        }
        ++finding.calls;
        if (!shown.refused.empty() && finding.verdict != ClauseVerdict::kRefused) {
          finding.verdict = ClauseVerdict::kRefused;
          finding.note = fmt::format("{}: {}", variation.what, shown.refused);
        }
        if (shown.wrong.empty()) continue;
        finding.verdict = ClauseVerdict::kBroken;
        finding.note = fmt::format("{}: {}", variation.what, shown.wrong);
        finding.smallest = smallest(clause, variation.call, shown);
        return finding;
      }
    }
    if (finding.verdict == ClauseVerdict::kRefused) return finding;
    if (finding.calls > 0) {
      finding.verdict = ClauseVerdict::kKept;
      finding.note.clear();
    } else if (finding.note.empty()) {
      finding.note = why_unreached(clause.id, op);
    }
    return finding;
  }

 private:
  // A lane whose outputs can be filled before is called in a process of its own.
  std::string cannot_call(const CaseOp& op) const {
    if (op.id != AS_OP_COPY_BLOCKS || !options_.set_poison) return {};
    return "blocks that it leaves alone do not come back from a process: check it --in-process";
  }

  Shown show(const Clause& clause, const OpCase& call) {
    switch (clause.test) {
      case ClauseTest::kValues:
        return values(call);
      case ClauseTest::kExact:
        return exact(call);
      case ClauseTest::kTwice:
        return twice(call);
      case ClauseTest::kPoison:
        return poison(call);
      case ClauseTest::kAlone:
        return alone(call);
    }
    return {};
  }

  // A status that the kernel returned is its right; all else is not.
  static void failed(const Error& error, Shown& shown) {
    const bool said = error.message.find("returned status ") != std::string::npos;
    (said ? shown.refused : shown.wrong) = error.message;
  }

  CaseLane cpu() const { return {"cpu", options_.run.guard}; }

  Shown values(const OpCase& call) {
    Shown shown;
    CaseRunOptions plain = options_.run;
    plain.guard = nullptr;
    auto expected = rerun_call(call, cpu(), plain);
    if (!expected) {
      shown.unreachable = expected.error().message;
      return shown;
    }
    auto run = run_case(*expected, options_.lane, plain);
    if (!run) {
      failed(run.error(), shown);
    } else if (!run->trespasses.empty()) {
      shown.wrong = "wrote to " + run->trespasses.front();
    } else if (!run->right()) {
      const auto tap = std::ranges::find(run->taps, Verdict::kWrong, &CaseTap::verdict);
      if (tap != run->taps.end() && !reference_agrees(call)) shown.wrong = tap_text(*tap);
    }
    if (!shown.wrong.empty()) shown.expected = std::move(*expected);
    return shown;
  }

  // Selections that differ where scores are equal are as good as each other, but not as promised.
  Shown exact(const OpCase& call) {
    Shown shown = values(call);
    if (!shown.wrong.empty() || !shown.refused.empty() || !shown.unreachable.empty()) return shown;
    CaseRunOptions plain = options_.run;
    plain.guard = nullptr;
    auto expected = rerun_call(call, cpu(), plain);
    auto theirs = of_lane(call);
    if (!expected || !theirs) return shown;
    if (const std::string name = difference(*theirs, *expected); !name.empty()) {
      shown.wrong = fmt::format("{} is not what the contract leaves no choice in", name);
      shown.expected = std::move(*expected);
    }
    return shown;
  }

  // Near a tie or a step of a code our own lane is as far off as anybody.
  bool reference_agrees(const OpCase& call) {
    if (options_.reference.function == nullptr) return false;
    CaseRunOptions plain = options_.run;
    plain.guard = nullptr;
    auto theirs = rerun_call(call, options_.lane, plain);
    if (!theirs) return false;
    auto judged = run_case(*theirs, options_.reference, plain);
    return judged && judged->right();
  }

  Result<OpCase> of_lane(const OpCase& call) {
    CaseRunOptions plain = options_.run;
    plain.guard = nullptr;
    return rerun_call(call, options_.lane, plain);
  }

  // Name of an output in which the two differ; empty = none.
  static std::string difference(const OpCase& a, const OpCase& b) {
    const BytesOf first = outputs_of(a), second = outputs_of(b);
    for (const auto& [name, bytes] : first) {
      if (*bytes != *second.at(name)) return name;
    }
    return {};
  }

  Shown twice(const OpCase& call) {
    Shown shown;
    auto first = of_lane(call), second = of_lane(call);
    if (!first || !second) {
      failed(first ? second.error() : first.error(), shown);
    } else if (const std::string name = difference(*first, *second); !name.empty()) {
      shown.wrong = fmt::format("{} has other bytes the second time", name);
    }
    if (!shown.wrong.empty()) shown.expected = first ? *first : call;
    return shown;
  }

  Shown poison(const OpCase& call) {
    Shown shown;
    if (!options_.set_poison) {
      shown.unreachable = "what outputs hold before cannot be chosen for this lane";
      return shown;
    }
    auto usual = of_lane(call);
    options_.set_poison(kOtherPoison);
    auto other = of_lane(call);
    options_.set_poison(kUsualPoison);
    if (!usual || !other) {
      failed(usual ? other.error() : usual.error(), shown);
    } else {
      shown.wrong = kept_poison(*usual, *other);
      if (!shown.wrong.empty() && unsteady(call, *usual)) {
        shown.wrong.clear();
        shown.unreachable = "its outputs change from call to call, whatever was there before";
      }
    }
    if (!shown.wrong.empty()) shown.expected = usual ? *usual : call;
    return shown;
  }

  // Whether one of two more calls has other outputs.
  bool unsteady(const OpCase& call, const OpCase& before) {
    for (int i = 0; i < 2; ++i) {
      const auto again = of_lane(call);
      if (again && !difference(before, *again).empty()) return true;
    }
    return false;
  }

  // What the mask of a tap leaves out nobody writes.
  static std::string kept_poison(const OpCase& usual, const OpCase& other) {
    for (const as_tap_info& tap : usual.op.taps) {
      if (tap.direction != AS_TAP_OUT || tap.kind != AS_TAP_TENSOR || tap.mask != AS_MASK_ALL) {
        continue;
      }
      const auto a = usual.tensors.find(tap.name), b = other.tensors.find(tap.name);
      if (a == usual.tensors.end() || b == other.tensors.end()) continue;
      std::int64_t differing = 0;
      const std::size_t size = a->second.bytes.size();
      for (std::size_t i = 0; i < size; ++i) differing += a->second.bytes[i] != b->second.bytes[i];
      if (differing > 0) {
        return fmt::format("{}: {} of {} bytes follow from what was there before", tap.name,
                           differing, size);
      }
    }
    return {};
  }

  Shown alone(const OpCase& call) {
    Shown shown;
    // Of packed sequences a token alone is none of its sequence.
    const std::int64_t tokens = call.tensors.contains("cu_seqlens") ? 0 : tokens_apart(call);
    if (tokens < 2) {
      shown.unreachable = tokens == 1 ? "it has one token" : why_unreached("alone", call.op);
      return shown;
    }
    auto all = of_lane(call);
    if (!all) {
      failed(all.error(), shown);
      shown.expected = call;
      return shown;
    }
    for (std::int64_t t = 0; t < std::min(tokens, kMostAlone); ++t) {
      const OpCase single = *one_token(call, t);
      auto own = of_lane(single);
      if (!own) {
        failed(own.error(), shown);
      } else if (differs(*one_token(*all, t), *own)) {
        // Another order of sums may round otherwise, which is allowed.
        const Shown by_value = values(single);
        if (!by_value.wrong.empty()) shown.wrong = fmt::format("token {}: {}", t, by_value.wrong);
      }
      if (shown.wrong.empty() && shown.refused.empty()) continue;
      shown.expected = single;
      return shown;
    }
    return shown;
  }

  static bool differs(const OpCase& a, const OpCase& b) {
    for (const as_tap_info& tap : a.op.taps) {
      if (tap.direction != AS_TAP_OUT || tap.kind != AS_TAP_TENSOR) continue;
      const auto x = a.tensors.find(tap.name), y = b.tensors.find(tap.name);
      if (x == a.tensors.end() || y == b.tensors.end()) continue;
      if (x->second.bytes != y->second.bytes) return true;
    }
    return false;
  }

  // One token alone where that shows it too.
  std::optional<OpCase> smallest(const Clause& clause, const OpCase& call, const Shown& shown) {
    if (clause.test == ClauseTest::kValues || clause.test == ClauseTest::kExact) {
      for (std::int64_t t = 0; t < tokens_apart(call); ++t) {
        Shown one = show(clause, *one_token(call, t));
        if (!one.wrong.empty()) return std::move(one.expected);
      }
    }
    return shown.expected;
  }

  const ExamineOptions& options_;
};

}  // namespace

const char* clause_verdict_name(ClauseVerdict verdict) {
  constexpr const char* kNames[] = {"kept", "broken", "refused", "not reached"};
  return kNames[static_cast<int>(verdict)];
}

Result<std::vector<ClauseFinding>> examine(as_op_id op, const ExamineOptions& options) {
  const CaseOp of = *find_case_op(op);
  if (of.helper && helper_calls(of).empty()) {
    return bad_input(fmt::format("there are no calls of the helper op {} to try", of.name),
                     "try it on a case: attnscope case run");
  }
  if (options.run.guard == nullptr || (!of.helper && !has_own_inputs(op))) {
    return bad_input(fmt::format("{} is carried out by the engine, and has no calls of its own",
                                 as_op_find(op)->name),
                     "name ops of the plugin with --op");
  }
  const std::vector<OpCase> plain = ordinary_calls(op, false), ends = ordinary_calls(op, true);
  Examiner examiner(options);
  std::vector<ClauseFinding> findings;
  for (const Clause& clause : clauses()) {
    const bool page_ends = std::string_view(clause.id) == "page_ends";
    findings.push_back(examiner.look(of, clause, page_ends ? ends : plain));
  }
  return findings;
}

}  // namespace attnscope
