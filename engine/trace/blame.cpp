// Who is to blame for the wrong taps of a run.
#include <fmt/format.h>

#include <algorithm>

#include "engine/family/family.h"
#include "engine/trace/judged_taps.h"
#include "engine/trace/tap_result.h"
#include "engine/trace/wiring_tap.h"
#include "kernels/params/op_table.h"

namespace attnscope {
namespace {

// Given to ops by the session itself (session/verify/input_checks.h).
bool is_given(const TapResult& result) {
  return result.tap.ends_with(kMetadataTap) || result.tap.ends_with(kTableTap) ||
         result.tap.ends_with(kChangedTap) || result.tap.ends_with(kWeightTap);
}

// Given by the session's wiring: which rows an op finds where follows from these.
bool is_of_pages(const TapResult& result) {
  const auto places = {"table",      "tables",  "slots",       "indices",    "rows_per_block",
                       "block_size", "window",  "mla_group",   "chunk",      "cache",
                       "state",      "k_cache", "extra_cache", "v_cache",    "wide_table",
                       "wide_slots", "k_wide",  "v_wide",      "wide_tokens"};
  return std::ranges::any_of(
      places, [&](const char* place) { return result.tap == std::string(place) + kWiringTap; });
}

bool turns(as_op_id op) { return as_op_has(op, AS_ROTATES) != 0; }

bool is_read(const TapResult& result) { return result.tap.ends_with(".read"); }
bool is_between(const TapResult& result) { return result.tap.ends_with(kBetweenTap); }

// Ops that decide which rows a reader finds where, in any family of models: planning, tables,
// slots, its list, the writer. tap: "extra_cache.read".
std::vector<as_op_id> makers_of(as_op_id reader, const std::string& tap) {
  std::vector<as_op_id> makers;
  for (const Family* family : families()) {
    for (const as_op_id op :
         makers_of_rows(example_graph(*family), reader, tap.substr(0, tap.find('.')))) {
      makers.push_back(op);
    }
  }
  return makers;
}

}  // namespace

std::vector<Blame> blame(const std::vector<TapResult>& results) {
  std::vector<Blame> blamed;
  const auto find = [&](as_op_id op, bool cache) {
    return std::find_if(blamed.begin(), blamed.end(),
                        [&](const Blame& b) { return b.op == op && b.cache == cache; });
  };
  std::vector<as_op_id> wired;  // given other pages; said at the end of its step
  for (const TapResult& result : results) {
    if (result.verdict == Verdict::kWrong && is_of_pages(result)) wired.push_back(result.op);
  }
  const auto given_else = [&](as_op_id op) { return std::ranges::find(wired, op) != wired.end(); };
  bool table = false;    // a rotary table is wrong: so is all that is turned by it
  bool between = false;  // rows changed while no op ran: so did those that are read
  for (const TapResult& result : results) {
    if (result.verdict != Verdict::kWrong) continue;
    table = table || result.tap.ends_with(kTableTap);
    if (table && turns(result.op) && !is_given(result)) continue;
    if (between && is_read(result)) continue;
    // What does not hold where an op or a decision is wrong already follows from it.
    if (result.tap.ends_with(kInvariantTap) && !blamed.empty()) continue;
    between = between || is_between(result);
    const bool cache = is_read(result) || is_between(result);
    // Rows overwritten where tables or slots are wrong: by whoever was told to.
    if (is_read(result) || is_between(result) || result.tap.ends_with(".kept")) {
      const auto makers = makers_of(result.op, result.tap);
      const bool follows = std::any_of(makers.begin(), makers.end(), [&](as_op_id op) {
        return find(op, false) != blamed.end() || given_else(op);
      });
      // Rows that were moved wrongly are so for all who meet them later, and so are those that
      // left when they had changed.
      const bool moved = std::ranges::any_of(blamed, [](const Blame& b) {
        return as_op_role(b.op) == AS_ROLE_COPY && (!b.cache || b.op == AS_OP_SWAP_OUT);
      });
      if (follows || moved || given_else(result.op)) continue;
    }
    auto at = find(result.op, cache);
    if (at == blamed.end()) {
      at = blamed.insert(at, Blame{});
      at->op = result.op;
      at->cache = cache;
      at->first = result;
    }
    ++at->taps;
  }
  return blamed;
}

std::string Blame::sentence() const {
  const char* name = as_op_find(op)->name;
  const std::string who =
      first.tap.ends_with(kMetadataTap)    ? std::string("the metadata of the step")
      : first.tap.ends_with(kTableTap)     ? std::string("the rotary table of the layer")
      : first.tap.ends_with(kChangedTap)   ? fmt::format("what {} is fed", name)
      : first.tap.ends_with(kWiringTap)    ? std::string("wiring")
      : first.tap.ends_with(kWeightTap)    ? fmt::format("the weights that {} reads", name)
      : first.tap.ends_with(kLoadTap)      ? std::string("loading the checkpoint")
      : first.tap.ends_with(kRecordedTap)  ? std::string("reading the recorded hidden states")
      : first.tap.ends_with(kBetweenTap)   ? fmt::format("the cache that {} writes to", name)
      : first.tap.ends_with(kSumTap)       ? std::string("the sum over ranks")
      : first.tap.ends_with(kAppendTap)    ? std::string("the tokens that were appended")
      : first.tap.ends_with(kReplayTap)    ? std::string("going back")
      : first.tap.ends_with(kDecisionTap)  ? std::string("the scheduler")
      : first.tap.ends_with(kInvariantTap) ? std::string("an invariant")
      : cache                              ? fmt::format("the cache that {} reads", name)
              : fmt::format("{}{}", name, first.lane.empty() ? "" : " (lane " + first.lane + ")");
  const std::string where = first.layer < 0
                                ? fmt::format("step {}", first.step)
                                : fmt::format("step {}, layer {}", first.step, first.layer);
  return fmt::format("{}, {}, tap {}: {}", where, who, first.tap, first.note);
}

}  // namespace attnscope
