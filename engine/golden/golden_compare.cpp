#include "engine/golden/golden_compare.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <deque>
#include <limits>
#include <map>

#include "engine/io/json_object.h"
#include "engine/model/numbers.h"
#include "engine/trace/compare.h"
#include "kernels/params/tensor_view.h"

namespace attnscope {
namespace {

// Distance of two neighbours of bf16 is at most this share of the smaller one.
constexpr double kBf16Step = 0x1p-7;

std::int64_t to_signed(std::size_t n) { return static_cast<std::int64_t>(n); }

constexpr double kWrittenDigits = 1e-8;  // share that writing a figure may change

// How far two elements may lie apart, by the loosest bound that applies.
double element_bound(const Tolerance& t, std::int32_t dtype, double reference, double row_max) {
  double bound = std::max({t.abs, t.rel * std::fabs(reference), t.row_max * row_max});
  if (dtype == AS_BF16) bound = std::max(bound, t.bf16_ulp * kBf16Step * std::fabs(reference));
  return bound;
}

// How far the mean or the rms of elements may lie apart that each keep their bound.
double range_bound(const Tolerance& t, std::int32_t dtype, double rms, double row_max) {
  const double ulp = dtype == AS_BF16 ? t.bf16_ulp * kBf16Step : 0;
  return t.abs + (t.rel + ulp) * rms + t.row_max * row_max;
}

double used_of(double a, double b, double bound) {
  if (a == b || (std::isnan(a) && std::isnan(b))) return 0;
  if (!std::isfinite(a) || !std::isfinite(b) || bound == 0) return kInfinity;
  return std::fabs(a - b) / bound;
}

std::string golden_machine(const GoldenOrigin& origin, const std::string& name) {
  const auto it = std::ranges::find(origin.machine, name, &CaptureProperty::name);
  return it == origin.machine.end() ? std::string() : it->value;
}

std::string shown_number(double v) { return std::isnan(v) ? "NaN" : fmt::format("{:.6g}", v); }

// The worst of many differences, as evidence.
struct Worst {
  double used = 0;
  std::int64_t beyond = 0, looked = 0;
  bool equal = true;
  std::string note;

  void look(double a, double b, double bound, const auto& what) {
    ++looked;
    const double one = used_of(b, a, bound);
    if (one == 0) return;
    equal = false;
    if (one > 1) ++beyond;
    if (one <= used) return;
    used = one;
    note = fmt::format("{} was {}, is {}", what(), shown_number(a), shown_number(b));
  }
};

class Comparer {
 public:
  Comparer(const GoldenSpec& spec, const GoldenValues& accepted, const GoldenValues& received,
           const Tolerances& tolerances)
      : spec_(spec), accepted_(accepted), received_(received), tolerances_(tolerances) {}

  Result<GoldenComparison> run() {
    if (auto ok = tokens(); !ok) return ok.error();
    std::map<std::pair<std::string, std::string>, const GoldenTap*> got;
    for (const GoldenTap& t : received_.taps) got[{t.where, t.tap}] = &t;
    for (const GoldenTap& a : accepted_.taps) {
      flush_tokens(a.step);
      const auto it = got.find({a.where, a.tap});
      if (it == got.end()) {
        absent(a);
        continue;
      }
      if (auto ok = tap(a, *it->second); !ok) return ok.error();
      got.erase(it);
    }
    flush_tokens(std::numeric_limits<std::int64_t>::max());
    for (const GoldenTap& b : received_.taps) {
      if (!got.contains({b.where, b.tap})) continue;
      add(b, GoldenVerdict::kUnexpected, kInfinity, "has no accepted value");
    }
    return std::move(out_);
  }

 private:
  void add(const GoldenTap& t, GoldenVerdict verdict, double used, std::string note) {
    add(GoldenFinding{t.where, t.tap, verdict, used, std::move(note)});
  }
  void add(GoldenFinding finding) {
    ++out_.counts[static_cast<std::size_t>(finding.verdict)];
    out_.findings.push_back(std::move(finding));
  }

  // Whether sums had another order, and each op is what its own inputs give.
  bool right_by_itself() const {
    return rounds_otherwise(accepted_, received_) && received_.judged && received_.fault.empty();
  }
  // What a value beyond its bound is then.
  GoldenVerdict beyond(std::string& note) const {
    if (!right_by_itself()) return GoldenVerdict::kWrong;
    note += accepted_.lanes != received_.lanes
                ? "; every op of this lane is right on its own inputs"
                : "; every op is right on its own inputs at this SIMD level";
    return GoldenVerdict::kFollows;
  }

  void absent(const GoldenTap& a) {
    const as_op_info& info = *as_op_find(a.op);
    const auto* end = info.taps + info.num_taps;
    const auto* entry =
        std::find_if(info.taps, end, [&](const auto& t) { return a.tap == t.name; });
    const bool other_lane = accepted_.lanes != received_.lanes;
    if (entry != end && entry->optional != 0 && other_lane) {
      return add(a, GoldenVerdict::kWithheld, 0, "this lane does not show it");
    }
    add(a, GoldenVerdict::kMissing, kInfinity, "was accepted, and the run has no such value");
  }

  Result<GoldenBound> bound_of(const GoldenTap& t) {
    auto bound =
        golden_bound(spec_, tolerances_, t.op, t.tap, t.lane, t.rule, as_dtype_name(t.dtype));
    if (!bound) {
      return Error{
          bound.error().code,
          fmt::format("{}: {}: {}", accepted_.name, shown_name(t.where), bound.error().message),
          bound.error().hint};
    }
    if (bound && bound->loosened) {
      const auto same = [&](const GoldenTolerance& l) {
        return l.text() == bound->loosened->text() && l.reason == bound->loosened->reason;
      };
      if (std::ranges::none_of(out_.loosened, same)) out_.loosened.push_back(*bound->loosened);
    }
    return bound;
  }

  // A step's tokens come behind its taps.
  void flush_tokens(std::int64_t step) {
    for (; !tokens_.empty() && tokens_.front().first < step; tokens_.pop_front()) {
      add(std::move(tokens_.front().second));
    }
  }

  // The tokens that were sampled. Behind a near tie a request computes something else.
  Result<void> tokens() {
    // A verification samples several tokens of a request, in order.
    std::map<std::pair<std::int64_t, std::int32_t>, std::int64_t> seen;
    for (const GoldenToken& a : accepted_.sampled) {
      std::int64_t before = seen[{a.step, a.request}]++;
      if (parted_.contains(a.request)) continue;
      const auto it = std::ranges::find_if(received_.sampled, [&](const GoldenToken& b) {
        return a.step == b.step && a.request == b.request && before-- == 0;
      });
      GoldenFinding finding{fmt::format("{}/-/sample", a.step), "token", GoldenVerdict::kMissing,
                            kInfinity, fmt::format("request {} sampled no token", a.request)};
      if (it == received_.sampled.end()) {
        tokens_.emplace_back(a.step, std::move(finding));
        continue;
      }
      if (it->token == a.token) continue;
      auto used = token_tie(a, *it);
      if (!used) return used.error();
      finding.budget_used = *used;
      finding.note =
          fmt::format("request {} took token {} in place of {}", a.request, it->token, a.token);
      if (*used <= 1) {
        finding.verdict = GoldenVerdict::kNearTie;
        finding.note += ", whose scores tie";
      } else {
        finding.verdict = beyond(finding.note);
      }
      if (!is_failure(finding.verdict)) {
        finding.note += "; its later rows are left out";
        parted_[a.request] = a.step;
      }
      tokens_.emplace_back(a.step, std::move(finding));
    }
    return {};
  }

  // Gap of the two scores in units of what two of them may move apart.
  Result<double> token_tie(const GoldenToken& a, const GoldenToken& b) {
    const auto score = [&](std::int32_t token) {
      const auto i = static_cast<std::size_t>(token);
      return i < b.scores.size() ? b.scores[i] : -kInfinity;
    };
    auto bound =
        golden_bound(spec_, tolerances_, AS_OP_LM_HEAD, "y", received_.lanes, "dense", "f32");
    if (!bound) return bound.error();
    double largest = 0;
    for (const double s : b.scores) largest = std::max(largest, std::fabs(s));
    const double allowed = 2 * element_bound(bound->tolerance, AS_F32, score(b.token), largest);
    return used_of(score(a.token), score(b.token), allowed);
  }

  bool left_out(const GoldenTap& t, std::size_t row) const {
    if (row >= t.requests.size()) return false;
    const auto it = parted_.find(t.requests[row]);
    return it != parted_.end() && t.step > it->second;
  }

  Result<void> tap(const GoldenTap& a, const GoldenTap& b) {
    if (a.shape != b.shape || a.dtype != b.dtype || a.requests != b.requests ||
        a.stats.has_value() != b.stats.has_value() || a.parts.size() != b.parts.size() ||
        a.sets.size() != b.sets.size() || a.at != b.at || a.ranges.size() != b.ranges.size()) {
      add(a, GoldenVerdict::kWrong, kInfinity,
          fmt::format("was {} {}, is {} {}", as_dtype_name(a.dtype), shape_text(a),
                      as_dtype_name(b.dtype), shape_text(b)));
      return {};
    }
    // Both choose the bounds.
    if (a.rule != b.rule || (a.lane != b.lane && accepted_.lanes == received_.lanes)) {
      const bool rule = a.rule != b.rule;
      add(a, GoldenVerdict::kWrong, kInfinity,
          fmt::format("{} {}, is {}", rule ? "its tolerance class was" : "was computed on lane",
                      rule ? a.rule : a.lane, rule ? b.rule : b.lane));
      return {};
    }
    std::size_t out = 0;
    for (std::size_t r = 0; r < a.requests.size(); ++r) out += left_out(a, r) ? 1 : 0;
    if (out > 0 && out == a.requests.size()) {
      add(a, GoldenVerdict::kLeftOut, 0, "all its rows are of requests that took another token");
      return {};
    }
    auto bound = bound_of(a);
    if (!bound) return bound.error();
    if (a.stats) {
      floats(a, b, bound->tolerance, out > 0);
    } else if (!a.sets.empty()) {
      sets(a, b, bound->tolerance);
    } else {
      parts(a, b);
    }
    return {};
  }

  static std::string shape_text(const GoldenTap& t) {
    std::string text;
    for (const std::int64_t n : t.shape) text += fmt::format("{}{}", text.empty() ? "" : "x", n);
    return fmt::format("[{}], {} values", text, t.stats ? t.values.size() : t.parts.size());
  }

  // Largest magnitude of the range of rows that an element lies in.
  static double largest_near(const GoldenTap& t, std::int64_t element) {
    const std::int64_t columns = t.shape.back(), rows = t.elements() / columns;
    const std::int64_t row = element / columns, ranges = to_signed(t.ranges.size());
    std::int64_t g = 0;
    while (g + 1 < ranges && rows * (g + 1) / ranges <= row) ++g;
    return g < ranges ? t.ranges[static_cast<std::size_t>(g)].max : 0;
  }

  // some_out: statistics are of all rows, so that only samples can be compared.
  void floats(const GoldenTap& a, const GoldenTap& b, const Tolerance& rule, bool some_out) {
    Worst worst;
    const std::int64_t rows = a.requests.empty() ? 1 : to_signed(a.requests.size());
    const std::int64_t row_size = std::max<std::int64_t>(1, a.elements() / rows);
    for (std::size_t i = 0; i < a.at.size(); ++i) {
      if (some_out && left_out(a, static_cast<std::size_t>(a.at[i] / row_size))) continue;
      const double v = a.values[i];
      worst.look(v, b.values[i], element_bound(rule, a.dtype, v, largest_near(a, a.at[i])),
                 [&] { return fmt::format("element {}", a.at[i]); });
    }
    const std::int64_t samples = worst.looked, samples_beyond = worst.beyond;
    if (!some_out) statistics(a, b, rule, worst);
    if (worst.used > 1) {
      worst.note += std::isinf(worst.used)
                        ? std::string()
                        : fmt::format(", {:.3g} times the tolerance", worst.used);
      worst.note +=
          fmt::format("; {} of {} samples and {} of {} statistics are beyond it", samples_beyond,
                      samples, worst.beyond - samples_beyond, worst.looked - samples);
    }
    const GoldenVerdict verdict = worst.used > 1 ? beyond(worst.note)
                                  : worst.equal  ? GoldenVerdict::kEqual
                                                 : GoldenVerdict::kWithin;
    add(a, verdict, worst.used, worst.note);
  }

  // Of all elements together: what a person reads first.
  static void whole_statistics(const GoldenTap& a, const TapStats& now, const Tolerance& rule,
                               Worst& worst) {
    const TapStats& was = *a.stats;
    const double finite =
        static_cast<double>(std::max<std::int64_t>(1, a.elements() - was.nans - was.infinities));
    const double largest = std::max(std::fabs(was.min), std::fabs(was.max));
    const double bound = range_bound(rule, a.dtype, was.l2 / std::sqrt(finite), largest);
    const auto look = [&](double x, double y, double allowed, const char* what) {
      if (std::fabs(x - y) <= kWrittenDigits * std::max(std::fabs(x), largest)) return;
      worst.look(x, y, allowed, [&] { return fmt::format("{} of all elements", what); });
    };
    look(was.mean, now.mean, bound, "mean");
    look(was.l2, now.l2, bound * std::sqrt(finite), "l2 norm");
    look(was.min, now.min, element_bound(rule, a.dtype, was.min, largest), "smallest value");
    look(was.max, now.max, element_bound(rule, a.dtype, was.max, largest), "largest value");
  }

  static void statistics(const GoldenTap& a, const GoldenTap& b, const Tolerance& rule,
                         Worst& worst) {
    const auto count = [&](std::int64_t x, std::int64_t y, const char* what) {
      worst.look(static_cast<double>(x), static_cast<double>(y), 0, [&] { return what; });
    };
    count(a.stats->nans, b.stats->nans, "number of NaN");
    count(a.stats->infinities, b.stats->infinities, "number of infinities");
    whole_statistics(a, *b.stats, rule, worst);
    for (std::size_t i = 0; i < a.ranges.size(); ++i) {
      const GoldenRange &x = a.ranges[i], &y = b.ranges[i];
      const double bound = range_bound(rule, a.dtype, x.rms, x.max);
      const auto named = [&](const char* what) {
        return [i, what, n = a.ranges.size()] {
          return fmt::format("{} of rows' range {} of {}", what, i + 1, n);
        };
      };
      worst.look(x.mean, y.mean, bound, named("mean"));
      worst.look(x.rms, y.rms, bound, named("rms"));
      worst.look(x.max, y.max, element_bound(rule, a.dtype, x.max, x.max),
                 named("largest magnitude"));
    }
  }

  void sets(const GoldenTap& a, const GoldenTap& b, const Tolerance& rule) {
    Worst worst;
    std::int64_t swapped = 0;
    for (std::size_t r = 0; r < a.sets.size(); ++r) {
      if (left_out(a, r) || a.sets[r] == b.sets[r]) continue;
      worst.equal = false;
      ++swapped;
      double used = kInfinity;
      std::string note = fmt::format("row {}: other entries are selected", r);
      if (r < b.scores.size()) {
        const Comparison c = compare_row(a.sets[r], b.sets[r], b.scores[r], b.lens[r], a, rule);
        used = c.budget_used;
        note = fmt::format("row {}: {}", r, c.note);
      }
      if (used < worst.used) continue;
      worst.used = used;
      worst.note = note;
    }
    if (swapped > 0) worst.note += fmt::format("; {} of {} rows differ", swapped, a.sets.size());
    const GoldenVerdict verdict = worst.used > 1 ? beyond(worst.note)
                                  : worst.equal  ? GoldenVerdict::kEqual
                                                 : GoldenVerdict::kNearTie;
    add(a, verdict, worst.used, worst.note);
  }

  // By the scores of this run: the received choice is one of the best, and the accepted one nearly.
  static Comparison compare_row(const std::string& accepted, const std::string& received,
                                const std::vector<double>& scores, std::int32_t len,
                                const GoldenTap& tap, const Tolerance& rule) {
    const std::int64_t width = tap.shape.back();
    const auto padded = [&](const std::string& text) {
      std::vector<std::int32_t> entries = parse_set(text).value_or(std::vector<std::int32_t>());
      entries.resize(static_cast<std::size_t>(width), -1);
      return entries;
    };
    const std::vector<std::int32_t> theirs = padded(accepted), ours = padded(received);
    const as_tensor a = make_tensor(theirs.data(), {1, width});
    const as_tensor b = make_tensor(ours.data(), {1, width});
    const as_tensor s = make_tensor(scores.data(), {1, to_signed(scores.size())});
    Comparison now = compare_top_k(b, a, s, &len, rule);
    Comparison before = compare_top_k(a, b, s, &len, rule);
    return before.budget_used > now.budget_used ? before : now;
  }

  void parts(const GoldenTap& a, const GoldenTap& b) {
    std::int64_t differ = 0, owed = 0;
    std::string note;
    for (std::size_t r = 0; r < a.parts.size(); ++r) {
      if (left_out(a, r) || a.parts[r].checksum == b.parts[r].checksum) continue;
      ++differ;
      if (a.parts[r].given != b.parts[r].given) continue;
      if (owed++ == 0 && a.parts.size() > 1) note = fmt::format("row {} has other bytes; ", r);
    }
    if (differ == 0 && !a.numbers.empty() && a.numbers != b.numbers && parted_.empty()) {
      return add(a, GoldenVerdict::kWrong, kInfinity,
                 number_note(a, b) + "its checksums are those of other numbers than it shows");
    }
    if (differ == 0) return add(a, GoldenVerdict::kEqual, 0, "");
    if (owed > 0) {
      note += fmt::format("{} of {} checksums differ, computed from the same values", owed,
                          a.parts.size());
      return add(a, GoldenVerdict::kWrong, kInfinity, number_note(a, b) + note);
    }
    add(a, GoldenVerdict::kFollows, 0,
        fmt::format("{} of {} checksums differ, and so do the values they were computed from",
                    differ, a.parts.size()));
  }

  static std::string number_note(const GoldenTap& a, const GoldenTap& b) {
    if (a.numbers.size() != b.numbers.size()) return {};
    for (std::size_t i = 0; i < a.numbers.size(); ++i) {
      if (a.numbers[i] == b.numbers[i]) continue;
      return fmt::format("element {} was {}, is {}; ", i, a.numbers[i], b.numbers[i]);
    }
    return {};
  }

  const GoldenSpec& spec_;
  const GoldenValues &accepted_, &received_;
  const Tolerances& tolerances_;
  std::map<std::int32_t, std::int64_t> parted_;  // request: step whose token was another
  std::deque<std::pair<std::int64_t, GoldenFinding>> tokens_;  // findings, by step, not yet added
  GoldenComparison out_;
};

}  // namespace

bool GoldenComparison::passed() const { return first() == nullptr; }

const GoldenFinding* GoldenComparison::first() const {
  const auto it =
      std::ranges::find_if(findings, [](const auto& f) { return is_failure(f.verdict); });
  return it != findings.end() ? &*it : nullptr;
}

std::string GoldenComparison::sentence() const { return golden_sentence(findings); }

std::string golden_sentence(const std::vector<GoldenFinding>& findings) {
  const auto failed = [](const GoldenFinding& f) { return is_failure(f.verdict); };
  const auto first = std::ranges::find_if(findings, failed);
  if (first == findings.end()) return fmt::format("all {} values hold", findings.size());
  return fmt::format("{} of {} is {}: {}; {} of {} values fail", first->tap, first->where,
                     golden_verdict_name(first->verdict), first->note,
                     std::ranges::count_if(findings, failed), findings.size());
}

Result<GoldenComparison> compare_golden(const GoldenSpec& spec, const GoldenValues& accepted,
                                        const GoldenValues& received,
                                        const Tolerances& tolerances) {
  return Comparer(spec, accepted, received, tolerances).run();
}

bool rounds_otherwise(const GoldenValues& accepted, const GoldenValues& received) {
  if (accepted.lanes != received.lanes) return true;
  const std::string was = golden_machine(accepted.origin, "SIMD");
  const std::string is = golden_machine(received.origin, "SIMD");
  return !was.empty() && !is.empty() && was != is;
}

std::vector<GoldenChange> origin_changes(const GoldenValues& accepted,
                                         const GoldenValues& received) {
  std::vector<GoldenChange> out;
  const auto change = [&](const std::string& what, const std::string& was, const std::string& is) {
    if (was != is) out.push_back({what, was, is});
  };
  change("lanes", accepted.lanes, received.lanes);
  change("program", accepted.origin.program, received.origin.program);
  const auto said = [](const GoldenOrigin& origin, const std::string& name) {
    const std::string value = golden_machine(origin, name);
    return value.empty() ? std::string("not said") : value;
  };
  for (const CaptureProperty& p : received.origin.machine) {
    change(p.name, said(accepted.origin, p.name), p.value);
  }
  for (const CaptureProperty& p : accepted.origin.machine) {
    if (said(received.origin, p.name) == "not said") change(p.name, p.value, "not said");
  }
  return out;
}

std::vector<GoldenDelta> golden_deltas(const GoldenTap& accepted, const GoldenTap& received,
                                       std::size_t most) {
  std::vector<GoldenDelta> out;
  if (!accepted.stats || !received.stats) return out;
  const TapStats &a = *accepted.stats, &b = *received.stats;
  const auto statistic = [&](const char* what, double x, double y) {
    if (x != y) out.push_back({what, x, y});
  };
  statistic("NaN", static_cast<double>(a.nans), static_cast<double>(b.nans));
  statistic("infinities", static_cast<double>(a.infinities), static_cast<double>(b.infinities));
  statistic("min", a.min, b.min);
  statistic("max", a.max, b.max);
  statistic("mean", a.mean, b.mean);
  statistic("l2", a.l2, b.l2);
  std::vector<GoldenDelta> samples;  // and figures of ranges of rows
  const std::size_t ranges = std::min(accepted.ranges.size(), received.ranges.size());
  for (std::size_t i = 0; i < ranges; ++i) {
    const GoldenRange &x = accepted.ranges[i], &y = received.ranges[i];
    const auto figure = [&](const char* what, double before, double now) {
      if (before == now) return;
      samples.push_back({fmt::format("{} of range {}/{}", what, i + 1, ranges), before, now});
    };
    figure("mean", x.mean, y.mean);
    figure("rms", x.rms, y.rms);
    figure("max", x.max, y.max);
  }
  for (std::size_t i = 0; i < std::min(accepted.at.size(), received.at.size()); ++i) {
    if (accepted.at[i] != received.at[i] || accepted.values[i] == received.values[i]) continue;
    samples.push_back(
        {fmt::format("element {}", accepted.at[i]), accepted.values[i], received.values[i]});
  }
  const auto gap = [](const GoldenDelta& d) {
    const double g = std::fabs(d.accepted - d.received);
    return std::isnan(g) ? kInfinity : g;
  };
  std::ranges::stable_sort(samples, [&](const auto& x, const auto& y) { return gap(x) > gap(y); });
  for (const GoldenDelta& d : samples) {
    if (out.size() >= most) break;
    out.push_back(d);
  }
  return out;
}

}  // namespace attnscope
