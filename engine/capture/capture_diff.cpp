#include "engine/capture/capture_diff.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <future>
#include <map>
#include <set>
#include <system_error>
#include <tuple>

#include "engine/cache/cache_spec.h"
#include "engine/capture/logical_slots.h"
#include "engine/capture/op_blame.h"
#include "engine/capture/recorded_sums.h"
#include "engine/capture/row_match.h"
#include "engine/capture/setup_diff.h"
#include "engine/capture/unrecorded.h"
#include "engine/family/op_graph.h"
#include "engine/model/numbers.h"
#include "kernels/cpu/thread_pool.h"

namespace attnscope {
namespace {

// The requests of the second capture by those of the first: same name, same prompt length.
std::vector<std::int32_t> match_requests(const SessionInfo& a, const SessionInfo& b,
                                         std::vector<StateDiff>& states) {
  std::vector<std::int32_t> of(a.request_names.size(), -1);
  std::set<std::size_t> taken;
  for (std::size_t i = 0; i < of.size(); ++i) {
    for (std::size_t j = 0; j < b.request_names.size(); ++j) {
      if (taken.contains(j) || a.request_names[i] != b.request_names[j]) continue;
      of[i] = static_cast<std::int32_t>(j);
      taken.insert(j);
      break;
    }
    const auto j = static_cast<std::size_t>(of[i]);
    if (of[i] < 0) {
      states.push_back(
          {-1, "requests",
           fmt::format("request \"{}\" is in the first capture alone", a.request_names[i])});
    } else if (a.prompt_tokens[i] != b.prompt_tokens[j]) {
      states.push_back({-1, "requests",
                        fmt::format("request \"{}\" has a prompt of {} tokens in the first capture "
                                    "and of {} in the second",
                                    a.request_names[i], a.prompt_tokens[i], b.prompt_tokens[j])});
    }
  }
  return of;
}

class Differ {
 public:
  Differ(const Capture& a, const Capture& b, const Tolerances& tolerances, const OwnJudge& judge)
      : a_(a), b_(b), tolerances_(tolerances), judge_(judge), unrecorded_(a, b) {}

  Result<CaptureDiff> run(const std::function<bool(double)>& progress) {
    for (const SetupDiff& diff : compare_setups(a_.index(), b_.index())) {
      out_.states.push_back({-1, "setup", diff.text});
      if (diff.numbers) out_.setup += (out_.setup.empty() ? "" : "; ") + diff.text;
    }
    out_.requests = match_requests(*a_.info(), *b_.info(), out_.states);
    if (std::ranges::all_of(out_.requests, [](std::int32_t r) { return r < 0; })) {
      return bad_input(
          fmt::format("{} and {} have no request of the same name", a_.path(), b_.path()),
          "record the same scenario twice");
    }
    if (auto ok = locate_tokens(); !ok) return ok.error();
    const auto& steps = a_.summaries();
    for (std::size_t i = 0; i < steps.size(); ++i) {
      if (progress && !progress(static_cast<double>(i) / static_cast<double>(steps.size()))) {
        return usage_error("the comparison was stopped before its end", "begin it again");
      }
      if (auto ok = compare_step(steps[i]->step); !ok) return ok.error();
    }
    for (const auto& summary : steps) out_.first_share.all_tokens += summary->tokens;
    out_.first_share.tokens = out_.tokens;
    out_.second_share.tokens = to_count(rows_there_.size());
    out_.second_share.ops = to_count(compared_there_.size());
    if (out_.tokens == 0) {
      return bad_input(fmt::format("{} and {}: no token of a request was recorded in both",
                                   a_.path(), b_.path()),
                       "record both at --level tables or full, and the same requests");
    }
    return std::move(out_);
  }

 private:
  using TracePtr = std::shared_ptr<const StepTrace>;
  struct ByPlace {
    bool operator()(const Place& a, const Place& b) const {
      return std::tie(a.step, a.layer, a.op) < std::tie(b.step, b.layer, b.op);
    }
  };

  static std::int32_t token_of(const StepTrace& trace, std::int32_t row) {
    return trace.metadata.tokens[static_cast<std::size_t>(row)];
  }
  // Whether a row is sampled behind another one of its request: it was drafted.
  static bool is_draft(const StepTrace& trace, std::int32_t row) {
    const StepMetadata& m = trace.metadata;
    const auto at = std::ranges::find(m.sample_rows, std::int64_t{row}) - m.sample_rows.begin();
    return at > 0 && at < to_count(m.sample_rows.size()) &&
           m.sample_request[static_cast<std::size_t>(at)] ==
               m.sample_request[static_cast<std::size_t>(at) - 1];
  }

  // Where the second capture computed each token: the last time, if it did so twice.
  Result<void> locate_tokens() {
    for (const auto& summary : b_.summaries()) {
      auto trace = b_.trace(summary->step);
      if (!trace) return trace.error();
      out_.second_share.all_tokens += summary->tokens;
      if (!*trace) continue;
      out_.second_share.all_ops += to_count((*trace)->ops.size());
      for (const std::int32_t row : (*trace)->kept) {
        const std::int32_t request = (*trace)->request_of(row);
        const std::int64_t position = (*trace)->metadata.positions[static_cast<std::size_t>(row)];
        const TokenPlace here{summary->step, row, token_of(**trace, row), is_draft(**trace, row)};
        const auto [at, fresh] = out_.where.try_emplace({request, position}, here);
        if (fresh) continue;
        before_[{request, position}].push_back(at->second);
        at->second = here;
      }
    }
    return {};
  }

  // Where the second computed a token: in the same step, where it did so again later. nth: of those
  // of that step, where one names a position twice.
  const TokenPlace* place_of(std::int32_t request, std::int64_t position, std::int64_t step,
                             std::int64_t nth) const {
    const auto last = out_.where.find({request, position});
    if (last == out_.where.end()) return nullptr;
    const auto earlier = before_.find({request, position});
    if (earlier == before_.end()) return &last->second;
    for (const TokenPlace& place : earlier->second) {
      if (place.step == step && nth-- == 0) return &place;
    }
    return &last->second;
  }

  Result<TracePtr> second(std::int64_t step) {
    if (!last_b_ || last_b_->step != step) {
      auto trace = b_.trace(step);
      if (!trace) return trace.error();
      last_b_ = std::move(*trace);
    }
    return last_b_;
  }

  Result<void> compare_step(std::int64_t step) {
    auto trace = a_.trace(step);
    if (!trace) return trace.error();
    if (!*trace) return {};
    const StepTrace& a = **trace;
    out_.first_share.all_ops += to_count(a.ops.size());
    std::map<std::pair<std::int32_t, std::int64_t>, std::int64_t> seen;
    std::map<std::int64_t, RowMatch> by_step;  // of the second capture
    std::set<std::int32_t> rejected;           // requests with a wrong draft in this step
    for (const std::int32_t row : a.kept) {
      const std::int32_t request = out_.requests[static_cast<std::size_t>(a.request_of(row))];
      const std::int64_t position = a.metadata.positions[static_cast<std::size_t>(row)];
      const TokenPlace* at = place_of(request, position, step, seen[{request, position}]++);
      if (request < 0 || at == nullptr) continue;
      const TokenPlace& there = *at;
      // A draft that was wrong, and what was computed behind it, is nobody's prefix.
      if (is_draft(a, row) || there.draft) {
        if (token_of(a, row) != there.token) {
          rejected.insert(request);
          rejected_there_.insert({request, there.step});
        }
        if (rejected.contains(request) || rejected_there_.contains({request, there.step})) {
          continue;
        }
      }
      by_step[there.step].rows.push_back({row, there.row});
    }
    if (by_step.empty()) {
      say_once(step, "steps",
               fmt::format("step {}: none of its tokens is in the second capture", step));
      return {};
    }
    ++out_.steps;
    out_.compared.insert(step);
    std::set<const OpTrace*> compared;
    for (auto& [other, match] : by_step) {
      auto b = second(other);
      if (!b) return b.error();
      if (!*b) continue;
      match.a = &a;
      match.b = b->get();
      match.threads = pool_.handle();
      out_.tokens += to_count(match.rows.size());
      for (const auto& row : match.rows) rows_there_.insert({other, row.second});
      compare_states(match);
      producers_.clear();
      auto entry_a = a_.entry(step), entry_b = b_.entry(other);
      if (!entry_a) return entry_a.error();
      if (!entry_b) return entry_b.error();
      sums_.reset();
      if (*entry_a && *entry_b) sums_.emplace(match, **entry_a, **entry_b);
      for (const auto& op : a.ops) {
        const OpTrace* twin = match.b->find(op->place.layer, op->place.op);
        if (twin == nullptr || !compare_op(match, *op, *twin)) continue;
        compared.insert(op.get());
        compared_there_.insert(twin->place);
      }
      if (contradiction_) return *contradiction_;
    }
    out_.first_share.ops += to_count(compared.size());
    return {};
  }

  void say_once(std::int64_t step, const char* what, std::string text) {
    if (said_.insert(what).second) out_.states.push_back({step, what, std::move(text)});
  }

  // Scheduling, tables and events of the steps: the first difference of each kind is said.
  void compare_states(const RowMatch& m) {
    for (std::size_t r = 0; r < out_.requests.size() && r < m.a->requests.size(); ++r) {
      if (out_.requests[r] < 0 ||
          static_cast<std::size_t>(out_.requests[r]) >= m.b->requests.size()) {
        continue;
      }
      const RequestView& x = m.a->requests[r];
      const RequestView& y = m.b->requests[static_cast<std::size_t>(out_.requests[r])];
      compare_tokens(*m.a, x.request, y.request);
      if (m.a->step == m.b->step && x.request.computed != y.request.computed) {
        say_once(m.a->step, "schedule",
                 fmt::format("step {}: request \"{}\" stands at {} computed tokens in the first "
                             "capture and at {} in the second",
                             m.a->step, x.request.name, x.request.computed, y.request.computed));
      }
      if (x.request.computed == y.request.computed) compare_tables(*m.a, x, y);
    }
    if (m.a->step == m.b->step) compare_events(m.a->step);
  }

  void compare_tokens(const StepTrace& a, const Request& x, const Request& y) {
    const std::size_t n = std::min(x.tokens.size(), y.tokens.size());
    for (std::size_t i = 0; i < n; ++i) {
      if (x.tokens[i] == y.tokens[i]) continue;
      say_once(a.step, "tokens",
               fmt::format("step {}: token {} of request \"{}\" is {} in the first capture and {} "
                           "in the second{}",
                           a.step, i, x.name, x.tokens[i], y.tokens[i],
                           to_count(i) < x.prompt_tokens ? "" : " (sampled)"));
      return;
    }
  }

  // By entry: which are there and which are null. Block ids may differ.
  void compare_tables(const StepTrace& a, const RequestView& x, const RequestView& y) {
    for (std::size_t g = 0; g < std::min(x.tables.size(), y.tables.size()); ++g) {
      const auto &p = x.tables[g], &q = y.tables[g];
      const bool other_ids = p != q;
      const bool same_pattern = std::ranges::equal(
          p, q, [](std::int32_t u, std::int32_t v) { return (u == 0) == (v == 0); });
      const std::string& name = a_.info()->layout.groups[g].name;
      if (!same_pattern) {
        say_once(a.step, "block tables",
                 fmt::format("step {}: request \"{}\", group {}: {} entries, {} null in the first "
                             "capture; {} entries, {} null in the second",
                             a.step, x.request.name, name, p.size(), std::ranges::count(p, 0),
                             q.size(), std::ranges::count(q, 0)));
      } else if (other_ids) {
        say_once(a.step, "block ids",
                 fmt::format("step {}: request \"{}\", group {}: other blocks for the same tokens; "
                             "slots are compared by the rows they stand for",
                             a.step, x.request.name, name));
      }
    }
  }

  static std::multiset<std::string> event_texts(const Capture& c, std::int64_t step) {
    std::multiset<std::string> out;
    for (const auto& summary : c.summaries()) {
      if (summary->step != step) continue;
      for (const Event& e : summary->events) {
        // Verdicts of each run against its own reference, and ids of blocks, are not compared.
        if (e.kind == EventKind::kWrong || e.kind == EventKind::kNearTie) continue;
        if (e.kind == EventKind::kError) {  // what happened to the run, not to a request
          out.insert(e.text);
          continue;
        }
        const std::string who =
            e.request >= 0 ? c.info()->request_names[static_cast<std::size_t>(e.request)] : "-";
        out.insert(fmt::format("{} of request \"{}\"", event_kind_name(e.kind), who));
      }
    }
    return out;
  }
  void compare_events(std::int64_t step) {
    const auto x = event_texts(a_, step), y = event_texts(b_, step);
    if (x == y) return;
    std::vector<std::string> first, then;
    std::ranges::set_difference(x, y, std::back_inserter(first));
    std::ranges::set_difference(y, x, std::back_inserter(then));
    const auto some = [](const std::vector<std::string>& list) {
      return list.empty() ? std::string("nothing") : list.front();
    };
    say_once(step, "events",
             fmt::format("step {}: {} events in the first capture alone ({}), {} in the second "
                         "alone ({})",
                         step, first.size(), some(first), then.size(), some(then)));
  }

  // False when nothing of what they put out could be.
  bool compare_op(const RowMatch& m, const OpTrace& x, const OpTrace& y) {
    OpDiff diff;
    diff.a = x.place;
    diff.b = y.place;
    diff.lane_a = x.lane;
    diff.lane_b = y.lane;
    bool rounded_row = false;     // what was quantised differs by rounding
    std::optional<TapDiff> tied;  // an input that differs by a near-tie
    Moved moved;                  // what moved the rows of its caches here, what else it read
    const auto reads = [&](DiffInputs one) {
      diff.inputs = std::max(diff.inputs, one);
      moved.besides = std::max(moved.besides, one);
    };
    for (const TapCopy& tap : x.taps) {
      const TapCopy* twin = y.tap(tap.name);
      if (twin == nullptr || tap_meaning(x.place.op, tap.name) == TapMeaning::kPlacement) continue;
      auto compared = compare_taps(m, *a_.info(), *b_.info(), x, y, tap, *twin, tolerances_);
      if (!compared) continue;
      if (tap.output) {
        // Slots of other entries are as near a tie as the entries are.
        if (lists_selected(x.place.op) && !compared->within && tied &&
            compared->differing == tied->differing) {
          compared->within = compared->near_tie = true;
          compared->evidence += ", of a near-tie";
        }
        producers_[tap.value.data] = *compared;
        rounded_row |= tap.rule == "row" && !compared->equal && compared->within;
      } else {
        const auto producer = producers_.find(tap.value.data);
        if (producer != producers_.end() && !compared->equal) {
          compared->within = compared->within || producer->second.within;
          compared->near_tie = producer->second.near_tie;
        }
        reads(compared->equal                           ? DiffInputs::kEqual
              : compared->within && !compared->near_tie ? DiffInputs::kWithin
                                                        : DiffInputs::kBeyond);
        if (compared->near_tie) tied = *compared;
      }
      diff.taps.push_back(std::move(*compared));
    }
    for (const RowsCopy& rows : x.rows) {
      const RowsCopy* twin = y.cache_rows(rows.name);
      if (twin == nullptr) continue;
      TapDiff compared = compare_rows(m, *a_.info(), rows, *twin);
      // A rounding before quantisation explains other bytes after it.
      const bool state = as_row_is_values(rows.record) != 0;
      compared.within = compared.equal || rounded_row || (state && compared.max_abs < 1e-3);
      diff.taps.push_back(std::move(compared));
    }
    for_each_cache(x.place.op, AS_TAP_IN, [&](const as_tap_info& tap) {
      for (const auto& [cache, held] : written_) {
        if (!overlap(cache, cache_of(x.place, tap))) continue;
        reads(held.besides);
        diff.inputs = std::max(diff.inputs, held.known);
        if (held.moved.empty()) continue;
        moved.by = held.moved;
        moved.suspect = held.suspect;
      }
    });
    if (!all_compared(x, diff)) unrecorded_.outputs(m, x, y, diff);
    hold_against_sums(x, y, diff);
    const bool same_reads = read_the_same(m, x, y, diff);
    note_written(m, x, y, diff, same_reads);
    judge(m, x, y, same_reads, moved, diff);
    ++out_.counts[static_cast<std::size_t>(diff.verdict)];
    if (blame_rank(diff) > (out_.first ? blame_rank(out_.first->op) : 0)) {
      out_.first = FirstDivergence{diff, first_difference(diff)};
    }
    const bool compared = diff.verdict != DiffVerdict::kUnknown || !has_outputs(x.place.op);
    if (diff.verdict != DiffVerdict::kEqual) out_.ops.push_back(std::move(diff));
    return compared;
  }

  // What was found of taps, by values, against what their checksums say.
  void hold_against_sums(const OpTrace& x, const OpTrace& y, const OpDiff& diff) {
    for (const TapDiff& tap : diff.taps) {
      const bool by_bytes = tap_meaning(x.place.op, tap.tap) != TapMeaning::kSlots &&
                            !is_selection(x.place.op, tap.tap);
      const auto same = sums_ && by_bytes ? sums_->same(x.place, y.place, tap.tap) : std::nullopt;
      if (!same || *same == tap.equal || contradiction_) continue;
      contradiction_ =
          internal_error(fmt::format("step {}, layer {}, {}: tap {} is found to be {} in {} and "
                                     "{}, and by its checksums it is "
                                     "{}",
                                     x.place.step, x.place.layer, as_op_find(x.place.op)->name,
                                     tap.tap, tap.equal ? "the same" : "another", a_.path(),
                                     b_.path(), *same ? "the same" : "another"));
    }
  }

  // Who is named rather than those behind him.
  static int blame_rank(const OpDiff& diff) {
    return diff.verdict == DiffVerdict::kOrigin      ? 3
           : diff.verdict == DiffVerdict::kDiffers   ? 2
           : diff.verdict == DiffVerdict::kInherited ? 1
                                                     : 0;
  }

  template <class Body>
  static void for_each_output(as_op_id op, const Body& body) {
    const as_op_info& info = *as_op_find(op);
    for (std::uint32_t i = 0; i < info.num_taps; ++i) {
      const as_tap_info& tap = info.taps[i];
      if (tap.direction != AS_TAP_OUT) continue;
      if (tap_meaning(op, tap.name) != TapMeaning::kPlacement) body(tap);
    }
  }
  static bool all_compared(const OpTrace& x, const OpDiff& diff) {
    bool all = true;
    for_each_output(x.place.op, [&](const as_tap_info& tap) {
      all &= std::ranges::find(diff.taps, tap.name, &TapDiff::tap) != diff.taps.end();
    });
    return all;
  }

  // What moved rows of an op's caches without being found the same.
  struct Moved {
    std::string by;
    std::optional<std::size_t> suspect;       // see Held
    DiffInputs besides = DiffInputs::kEqual;  // what else the op read
  };

  // same_reads: it read the same bits, and nothing can have made other ones of them.
  void judge(const RowMatch& m, const OpTrace& x, const OpTrace& y, bool same_reads,
             const Moved& moved, OpDiff& diff) {
    bool any = false, equal = true, within = true;
    for (const TapDiff& tap : diff.taps) {
      if (!tap.output) continue;
      any = true;
      equal &= tap.equal;
      within &= tap.within;
    }
    if (any && !within) {
      if (diff.inputs < DiffInputs::kDiffers) {
        diff.inputs = std::max(diff.inputs, unrecorded_.inputs(m, x, y));
      }
      diff.open = false;  // what differs says enough
      // One lane makes the same of the same: so the rows that were moved are others.
      if (moved.suspect && moved.besides == DiffInputs::kEqual && same_code(x, y) &&
          given_the_same(m, x, y, diff)) {
        blame_move(*moved.suspect, diff);
      }
      auto [first, second] = own_outputs(x, y);
      for (auto& [own, op] : {std::tie(first, x), std::tie(second, y)}) {
        // The judge has the rows that were written, not those that were there after the move.
        const bool unfair = !moved.by.empty() && own.verdict != OwnOutput::kRight &&
                            recorded_output(op).verdict != OwnOutput::kWrong;
        if (unfair) {
          own = {OwnOutput::kUnknown,
                 moved.by + " may have left other rows in its cache than were written"};
        }
      }
      blame_op(first, second, out_.setup, diff);
      return;
    }
    const bool outputs = has_outputs(x.place.op);
    if (!outputs) ++out_.placements;
    // A dump may hold what an op read alone: two of them are the same where all of that is.
    same_reads = same_reads && outputs && !any && unrecorded_.no_outputs(x, y);
    diff.open |= outputs && !any && !same_reads;
    // What nobody kept was compared with a reference while it was recorded.
    const OwnOutput first = recorded_output(x), second = recorded_output(y);
    if (diff.open && (first.verdict == OwnOutput::kWrong || second.verdict == OwnOutput::kWrong)) {
      diff.open = false;
      blame_op(first, second, out_.setup, diff);
      return;
    }
    if (diff.open && diff.why.empty()) {
      diff.why = as_op_role(x.place.op) == AS_ROLE_COPY
                     ? "captures keep blocks that left, not those that came"
                     : "it has no output that both recorded";
    }
    diff.verdict = diff.open || (!any && !same_reads) ? DiffVerdict::kUnknown
                   : equal                            ? DiffVerdict::kEqual
                                                      : DiffVerdict::kWithin;
  }

  // Every tensor that an op read, weights included, and by code that makes the same of it: one
  // lane, which is not a library that may have been built anew; of a move of rows also two lanes
  // that were found right, as nothing is rounded.
  static bool same_code(const OpTrace& x, const OpTrace& y) {
    return x.lane == y.lane && !x.lane.starts_with("plugin:");
  }
  bool read_the_same(const RowMatch& m, const OpTrace& x, const OpTrace& y, const OpDiff& diff) {
    const auto right = [](const OpTrace& op) {
      return recorded_output(op).verdict == OwnOutput::kRight;
    };
    const bool one_code = same_code(x, y) || (is_move(x.place.op) && right(x) && right(y));
    return one_code && diff.inputs == DiffInputs::kEqual && same_tensors(x, y, diff) &&
           unrecorded_.inputs(m, x, y) == DiffInputs::kEqual;
  }
  // Every tensor that an op read is the same, weights included; of rows nothing is said.
  bool given_the_same(const RowMatch& m, const OpTrace& x, const OpTrace& y, const OpDiff& diff) {
    return same_tensors(x, y, diff, true) && unrecorded_.inputs(m, x, y) == DiffInputs::kEqual;
  }
  // A move of the same blocks, which nobody kept, is where the two part: its first reader tells.
  void blame_move(std::size_t suspect, OpDiff& reader) {
    OpDiff& move = out_.ops[suspect];
    --out_.counts[static_cast<std::size_t>(move.verdict)];
    move.verdict = DiffVerdict::kOrigin;
    ++out_.counts[static_cast<std::size_t>(move.verdict)];
    move.open = false;
    move.why = "its inputs have the same bits";
    for_each_output(move.a.op, [&](const as_tap_info& tap) {
      TapDiff rows;
      rows.tap = tap.name;
      rows.output = rows.by_checksum = true;
      rows.evidence = reader_text(reader);
      move.taps.push_back(std::move(rows));
    });
    if (blame_rank(move) > (out_.first ? blame_rank(out_.first->op) : 0)) {
      out_.first = FirstDivergence{move, first_difference(move)};
    }
    reader.inputs = DiffInputs::kDiffers;
    for (auto& [cache, held] : written_) {
      if (held.suspect != suspect) continue;
      held.suspect.reset();
      held.besides = held.known = std::max(held.known, DiffInputs::kDiffers);
    }
  }
  static bool same_tensors(const OpTrace& x, const OpTrace& y, const OpDiff& diff,
                           bool inputs_alone = false) {
    const auto same_bytes = [](const as_tensor& a, const as_tensor& b) {
      return a.data != nullptr && b.data != nullptr && a.dtype == b.dtype && a.rank == b.rank &&
             std::equal(a.shape, a.shape + a.rank, b.shape) &&
             std::memcmp(a.data, b.data, to_size(as_tensor_numel(&a) * as_dtype_size(a.dtype))) ==
                 0;
    };
    return x.taps.size() == y.taps.size() && std::ranges::all_of(x.taps, [&](const TapCopy& tap) {
             if (inputs_alone && tap.output) return true;
             const auto compared = std::ranges::find(diff.taps, tap.name, &TapDiff::tap);
             if (compared != diff.taps.end()) return compared->equal;
             const TapCopy* twin = y.tap(tap.name);
             return twin != nullptr &&
                    (tap_meaning(x.place.op, tap.name) == TapMeaning::kPlacement ||
                     same_bytes(tap.value, twin->value));
           });
  }

  static bool has_outputs(as_op_id op) {
    bool outputs = false;
    for_each_output(op, [&](const as_tap_info&) { outputs = true; });
    return outputs;
  }

  // A judge takes longer than all else, and the two sides know nothing of each other.
  std::pair<OwnOutput, OwnOutput> own_outputs(const OpTrace& x, const OpTrace& y) const {
    const auto second = [&] { return own_output(b_, y, judge_); };
    const bool both = judge_ && recorded_output(x).verdict == OwnOutput::kUnknown &&
                      recorded_output(y).verdict == OwnOutput::kUnknown;
    if (!both) return {own_output(a_, x, judge_), second()};
    std::future<OwnOutput> later;
    try {
      later = std::async(std::launch::async, second);
    } catch (const std::system_error&) {  // no thread to be had
      later = std::async(std::launch::deferred, second);
    }
    OwnOutput first = own_output(a_, x, judge_);
    return {std::move(first), later.get()};
  }

  // A cache of a layer.
  using LayerCache = std::pair<int, CacheId>;
  static LayerCache cache_of(const Place& place, const as_tap_info& tap) {
    return {place.layer, tap_cache(place.op, tap.offset)};
  }
  template <class Body>
  static void for_each_cache(as_op_id op, as_tap_direction direction, const Body& body) {
    const as_op_info& info = *as_op_find(op);
    for (std::uint32_t i = 0; i < info.num_taps; ++i) {
      const as_tap_info& tap = info.taps[i];
      if (tap.kind == AS_TAP_CACHE && tap.direction == direction) body(tap);
    }
  }

  // Moves of rows are of whatever cache they are given, those of the step of all layers.
  static bool overlap(const LayerCache& a, const LayerCache& b) {
    const auto any = [](const LayerCache& c) { return c.second.role == AS_CACHE_ANY; };
    return (a.first == b.first || a.first < 0 || b.first < 0) &&
           (a.second == b.second || any(a) || any(b));
  }
  static bool is_move(as_op_id op) { return as_op_role(op) == AS_ROLE_COPY; }

  // What later ops find in the caches that this one wrote: other rows, or rows elsewhere.
  void note_written(const RowMatch& m, const OpTrace& x, const OpTrace& y, const OpDiff& diff,
                    bool same_reads) {
    for_each_cache(x.place.op, AS_TAP_OUT, [&](const as_tap_info& tap) {
      const auto rows = std::ranges::find(diff.taps, tap.name, &TapDiff::tap);
      const bool kept = rows != diff.taps.end();
      if (!kept && is_move(x.place.op) && same_reads) return;
      Held& held = written_[cache_of(x.place, tap)];
      DiffInputs known = held.known;
      if (!kept) {
        known = std::max(known, unrecorded_.rows(m, x, y, tap.name));
      } else if (!rows->equal) {
        known = std::max(known, rows->within ? DiffInputs::kWithin : DiffInputs::kBeyond);
      }
      const auto slots = std::ranges::find(diff.taps, std::string("slots"), &TapDiff::tap);
      if (slots != diff.taps.end() && !slots->equal) known = DiffInputs::kBeyond;
      bool suspect = false;
      if (is_move(x.place.op) && !(kept && rows->equal)) {
        // Of the same blocks, the first that is not known to have left the same: it alone can have
        // left others.
        suspect = !kept && held.moved.empty() && given_the_same(m, x, y, diff);
        held.moved = fmt::format("{} of step {}", as_op_find(x.place.op)->name, x.place.step);
        held.suspect.reset();
        if (suspect) held.suspect = out_.ops.size();
        if (!kept) known = std::max(known, diff.inputs);
      }
      held.known = known;
      if (!suspect) held.besides = known;
    });
  }

  const Capture &a_, &b_;
  const Tolerances& tolerances_;
  const OwnJudge& judge_;
  cpu::ThreadPool pool_{0};
  CaptureDiff out_;
  // Of tokens that the second computed more than once: all but the last time.
  std::map<std::pair<std::int32_t, std::int64_t>, std::vector<TokenPlace>> before_;
  std::set<std::pair<std::int32_t, std::int64_t>> rejected_there_;  // request, step of the second
  std::set<Place, ByPlace> compared_there_;                         // ops of the second
  std::set<std::pair<std::int64_t, std::int32_t>> rows_there_;      // its steps and rows
  TracePtr last_b_;
  std::map<const void*, TapDiff> producers_;  // outputs of the step so far
  struct Held {
    DiffInputs known = DiffInputs::kEqual;
    DiffInputs besides = DiffInputs::kEqual;  // without what the suspect left
    std::string moved;                        // by what they came that was not found the same
    std::optional<std::size_t>
        suspect;  // that move, an op of out_, where all it was given is the same
  };
  std::map<LayerCache, Held> written_;  // what the caches hold so far
  Unrecorded unrecorded_;
  std::optional<RecordedSums> sums_;  // of the two steps at hand
  std::optional<Error> contradiction_;
  std::set<std::string> said_;
};

// "layers 0, 1, 2, 3 and 0, 1": what keeps two models from being laid beside each other; empty:
// nothing does.
std::string other_model_text(const ModelConfig& x, const ModelConfig& y) {
  std::string text;
  const auto add = [&](const char* what, const std::string& a, const std::string& b) {
    if (a != b) text += fmt::format("{}{} {} and {}", text.empty() ? "" : "; ", what, a, b);
  };
  const auto list = [](const std::vector<int>& numbers) {
    return fmt::format("{}", fmt::join(numbers, ", "));
  };
  add("family", x.family, y.family);
  add("hidden size", std::to_string(x.hidden), std::to_string(y.hidden));
  add("heads", std::to_string(x.heads), std::to_string(y.heads));
  add("window", std::to_string(x.window), std::to_string(y.window));
  add("compression ratios", list(x.compress_ratios), list(y.compress_ratios));
  add("layers", list(x.layers), list(y.layers));
  return text;
}

}  // namespace

const char* diff_inputs_name(DiffInputs inputs) {
  constexpr const char* kNames[] = {"equal", "within", "unknown", "differs", "beyond"};
  return kNames[static_cast<int>(inputs)];
}

const char* diff_verdict_name(DiffVerdict verdict) {
  constexpr const char* kNames[kDiffVerdicts] = {"equal",     "within",  "origin",
                                                 "inherited", "differs", "unknown"};
  return kNames[static_cast<int>(verdict)];
}

Result<CaptureDiff> diff_captures(const Capture& a, const Capture& b, const Tolerances& tolerances,
                                  const std::function<bool(double)>& progress,
                                  const OwnJudge& judge) {
  const ModelConfig &x = a.index().model, &y = b.index().model;
  if (x.parallel != y.parallel) {
    const auto rank = [](const ModelConfig& m) {
      return m.parallel.size == 1 ? std::string("the whole model")
                                  : fmt::format("rank {} of {}", m.parallel.rank, m.parallel.size);
    };
    return bad_input(fmt::format("{} is of {}, {} of {}: they have other heads", a.path(), rank(x),
                                 b.path(), rank(y)),
                     "record the same rank of the same number of ranks twice: --tp N --rank R");
  }
  if (const std::string other = other_model_text(x, y); !other.empty()) {
    return bad_input(
        fmt::format("{} is of model {} and {} of model {}: other dimensions or layers: {}",
                    a.path(), x.name, b.path(), y.name, other),
        "captures of the same model can be compared");
  }
  return Differ(a, b, tolerances, judge).run(progress);
}

}  // namespace attnscope
