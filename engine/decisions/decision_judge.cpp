#include "engine/decisions/decision_judge.h"

#include <fmt/format.h>

#include <algorithm>

#include "engine/model/numbers.h"

namespace attnscope {
namespace {

plain::Group::Kind plain_kind(GroupKind kind) {
  switch (kind) {
    case GroupKind::kSliding:
      return plain::Group::Kind::kSliding;
    case GroupKind::kChunked:
      return plain::Group::Kind::kChunked;
    case GroupKind::kFirst:
      return plain::Group::Kind::kFirst;
    case GroupKind::kFull:
      break;
  }
  return plain::Group::Kind::kFull;
}

plain::Rules plain_rules(const SchedulerOptions& o, bool serving) {
  plain::Rules rules;
  for (const GroupSpec& g : o.kv.groups) {
    rules.groups.push_back({plain_kind(g.kind), g.block_tokens, g.window, g.flagged});
  }
  const CacheSwitches& switches = o.kv.switches;
  rules.blocks = o.kv.first_block - 1 + o.kv.num_blocks;
  rules.first_block = o.kv.first_block;
  rules.alignment = o.kv.alignment;
  rules.hash_block = o.kv.hash_block;
  rules.max_len = o.kv.max_model_len;
  rules.budget = o.token_budget;
  rules.max_running = o.max_requests;
  rules.steps_in_flight = o.steps_in_flight;
  rules.lookahead = o.lookahead;
  rules.longest_chunk = o.prefill_threshold;
  rules.chunk_of_full = o.chunks.least;
  rules.chunk_of_empty = o.chunks.most;
  rules.host_blocks = o.swap_blocks;
  rules.watermark =
      static_cast<std::int64_t>(o.kv.watermark * static_cast<double>(o.kv.num_blocks));
  rules.retain = o.kv.retention;
  rules.caching = o.kv.caching;
  rules.by_priority = o.policy == SchedulePolicy::kPriority;
  rules.whole_sequence = o.whole_sequence;
  rules.chunked_prefill = o.chunked_prefill;
  rules.keyless_first = switches.free_order != FreeOrder::kAppend;
  rules.uncached_first = switches.free_order == FreeOrder::kLifoWhenUncached;
  rules.drafts_keep_more = switches.mask == RetentionMask::kTailDraftShift;
  rules.prompt_ends = switches.partial_hashes;
  rules.cursor_by_place = switches.victim_cursor == VictimCursor::kBelowCursor;
  rules.trim_to_stored = switches.full_trim == FullTrim::kStoredLength;
  rules.window_of_results = switches.window_basis == WindowBasis::kProcessed;
  rules.cap_of_in_flight = switches.cap == CapBasis::kInFlight;
  rules.forget_uncomputed = serving;
  return rules;
}

// Tokens that a plan gives one of those who ran before; nullopt = it is left out.
std::optional<std::int64_t> tokens_of(const StepPlan& plan, std::int64_t request) {
  for (const ScheduledTokens& s : plan.scheduled) {
    if (s.id == request && !s.admitted) return s.tokens;
  }
  return std::nullopt;
}

std::optional<std::int64_t> tokens_of(const plain::Plan& plan, std::int64_t request) {
  for (const plain::Planned& p : plan.scheduled) {
    if (p.request == request && !p.admitted) return p.tokens;
  }
  return std::nullopt;
}

std::vector<std::int64_t> ids(const BlockScheduler& s, const std::vector<std::int32_t>& slots) {
  std::vector<std::int64_t> out;
  out.reserve(slots.size());
  for (const std::int32_t slot : slots) out.push_back(s.request(slot).id);
  return out;
}

// The first place at which two lists differ; their length where they do not.
template <class A, class B>
std::size_t first_difference(const A& a, const B& b) {
  const std::size_t shorter = std::min<std::size_t>(a.size(), b.size());
  std::size_t i = 0;
  while (i < shorter && a[i] == b[i]) ++i;
  return i;
}

// "request 3", "nobody" behind a list's end.
std::string at_place(const std::vector<std::int64_t>& list, std::size_t place) {
  return place < list.size() ? fmt::format("request {}", list[place]) : "nobody";
}

std::int64_t nulls(const std::vector<std::int32_t>& blocks) {
  return std::find_if(blocks.begin(), blocks.end(), [](std::int32_t b) { return b != 0; }) -
         blocks.begin();
}

}  // namespace

const char* decision_name(Decision decision) {
  static constexpr std::array<const char*, kDecisions> kNames = {
      "tokens", "victim",   "admission", "hit",  "queue",  "window",
      "room",   "eviction", "keys",      "stop", "common", "swap"};
  return kNames[static_cast<std::size_t>(decision)];
}

const char* decision_sentence(Decision decision) {
  static constexpr std::array<const char*, kDecisions> kSentences = {
      "how many tokens of a request a step computes",
      "who loses its blocks, and to whom",
      "who is admitted, in which order",
      "how much of it a newcomer finds computed, and in which blocks",
      "the order of those who run and of those who wait",
      "which entries of a table are out of sight",
      "how many entries a table has",
      "which free block is taken next",
      "which blocks can be found by their content",
      "who is over",
      "how many leading blocks all requests share",
      "which rows of a preempted request lie in host memory, and where"};
  return kSentences[static_cast<std::size_t>(decision)];
}

DecisionJudge::DecisionJudge(const SchedulerOptions& options, bool serving)
    : model_(plain_rules(options, serving)) {}

template <class Note>
bool DecisionJudge::judge(Decision decision, std::int64_t request, bool holds, const Note& note) {
  if (holds) return right(decision);
  ++counts_[static_cast<std::size_t>(decision)];
  wrong_ = WrongDecision{decision, step_, request,
                         request < 0 ? note() : fmt::format("request {}: {}", request, note())};
  return false;
}

void DecisionJudge::add(const plain::Request& request) {
  if (wrong_) return;
  learnt_.erase(request.id);
  model_.add(request);
}

// In the order in which they are made, so that the first one to differ is none's consequence.
void DecisionJudge::planned(const BlockScheduler& scheduler, const StepPlan& plan) {
  if (wrong_) return;
  step_ = plan.step;
  const plain::Plan& must = model_.step();
  if (!running(plan, must) || !moved(plan.swapped_out, must.out, "to") ||
      !admitted(scheduler, plan, must) || !queues(scheduler)) {
    return;
  }
  for (const plain::Planned& planned : must.scheduled) {
    if (!tables(scheduler, planned)) return;
  }
  if (!moved(plan.swapped_in, must.in, "from")) return;
  const std::int64_t first = must.scheduled.empty() ? -1 : must.scheduled.front().request;
  if (free_order(scheduler, first) && keys(scheduler)) common_prefix(plan);
}

bool DecisionJudge::running(const StepPlan& plan, const plain::Plan& must) {
  for (const std::int64_t id : must.running) {
    const auto is_tokens = tokens_of(plan, id), must_tokens = tokens_of(must, id);
    const auto compare_tokens = [&] {
      return judge(Decision::kTokens, id, is_tokens == must_tokens, [&] {
        return fmt::format("computes {} tokens, must compute {}", is_tokens.value_or(0),
                           must_tokens.value_or(0));
      });
    };
    if (is_tokens && must_tokens && !compare_tokens()) return false;
    std::vector<std::int64_t> is, wanted;
    for (std::size_t i = 0; i < plan.preempted.size(); ++i) {
      if (plan.preempted_for[i] == id) is.push_back(plan.preempted[i]);
    }
    for (const plain::Preempted& p : must.preempted) {
      if (p.by == id) wanted.push_back(p.request);
    }
    for (std::size_t i = 0; i < std::max(is.size(), wanted.size()); ++i) {
      const bool same = i < is.size() && i < wanted.size() && is[i] == wanted[i];
      if (!judge(Decision::kVictim, id, same, [&] {
            return fmt::format("{} loses its blocks to it, must be {}", at_place(is, i),
                               at_place(wanted, i));
          })) {
        return false;
      }
    }
    // Who lost its blocks has no tokens left; that is judged with who got them.
    const bool lost = std::ranges::count(plan.preempted, id) > 0 ||
                      std::ranges::count(must.preempted, id, &plain::Preempted::request) > 0;
    if (is_tokens.has_value() != must_tokens.has_value() && !lost && !compare_tokens()) {
      return false;
    }
  }
  return true;
}

bool DecisionJudge::moved(const std::vector<SwapMove>& is, const std::vector<plain::Moved>& must,
                          const char* way) {
  const auto shown = [&](bool there, const auto& block, const auto& host) {
    return there ? fmt::format("block {} {} host block {}", block, way, host)
                 : std::string("nothing");
  };
  for (std::size_t i = 0; i < std::max(is.size(), must.size()); ++i) {
    const SwapMove a = i < is.size() ? is[i] : SwapMove{};
    const plain::Moved b = i < must.size() ? must[i] : plain::Moved{};
    const bool same = i < is.size() && i < must.size() && a.request == b.request &&
                      to_size(a.group) == b.group && a.index == b.entry && a.block == b.block &&
                      a.host == b.host;
    if (!judge(Decision::kSwap, i < must.size() ? b.request : a.request, same, [&] {
          return fmt::format(
              "entry {} of group {}: {} is moved, must be {}", i < must.size() ? b.entry : a.index,
              i < must.size() ? b.group : to_size(a.group), shown(i < is.size(), a.block, a.host),
              shown(i < must.size(), b.block, b.host));
        })) {
      return false;
    }
  }
  return true;
}

bool DecisionJudge::admitted(const BlockScheduler& scheduler, const StepPlan& plan,
                             const plain::Plan& must) {
  std::vector<ScheduledTokens> is;
  std::vector<plain::Planned> wanted;
  std::vector<std::int64_t> is_ids, wanted_ids;
  for (const ScheduledTokens& s : plan.scheduled) {
    if (!s.admitted) continue;
    is.push_back(s);
    is_ids.push_back(s.id);
  }
  for (const plain::Planned& p : must.scheduled) {
    if (!p.admitted) continue;
    wanted.push_back(p);
    wanted_ids.push_back(p.request);
  }
  for (std::size_t i = 0; i < std::max(is.size(), wanted.size()); ++i) {
    const bool same = first_difference(is_ids, wanted_ids) > i;
    const std::int64_t id = i < wanted.size() ? wanted_ids[i] : is_ids[i];
    if (!judge(Decision::kAdmission, id, same, [&] {
          return fmt::format("number {} to be admitted is {}, must be {}", i, at_place(is_ids, i),
                             at_place(wanted_ids, i));
        })) {
      return false;
    }
    const std::int64_t hit = scheduler.request(is[i].slot).hit_tokens;
    if (!judge(Decision::kHit, id, hit == wanted[i].hit,
               [&] {
                 return fmt::format("finds {} tokens computed, must find {}", hit, wanted[i].hit);
               }) ||
        !judge(Decision::kTokens, id, is[i].tokens == wanted[i].tokens, [&] {
          return fmt::format("computes {} tokens, must compute {}", is[i].tokens, wanted[i].tokens);
        })) {
      return false;
    }
  }
  return true;
}

bool DecisionJudge::queues(const BlockScheduler& s) {
  const auto same_order = [&](const char* which, const std::vector<std::int64_t>& is,
                              const std::vector<std::int64_t>& must) {
    const std::size_t place = first_difference(is, must);
    const bool holds = place == is.size() && place == must.size();
    const std::int64_t id = holds ? -1 : place < must.size() ? must[place] : is[place];
    return judge(Decision::kQueue, id, holds, [&] {
      return fmt::format("place {} of those who {} has {}, must have {}", place, which,
                         at_place(is, place), at_place(must, place));
    });
  };
  return same_order("run", ids(s, s.running()), model_.running()) &&
         same_order("wait", ids(s, s.waiting()), model_.waiting());
}

bool DecisionJudge::tables(const BlockScheduler& s, const plain::Planned& planned) {
  const std::int64_t id = planned.request;
  const std::int32_t slot = s.find(id)->slot;
  for (std::size_t g = 0; g < s.kv().num_groups(); ++g) {
    const std::vector<std::int32_t>& is = s.kv().table(slot, g).blocks;
    const plain::Blocks& must = model_.cache().table(id, g);
    if (!judge(Decision::kWindow, id, nulls(is) == nulls(must),
               [&] {
                 return fmt::format("{} entries of group {} are out of sight, must be {}",
                                    nulls(is), g, nulls(must));
               }) ||
        !judge(Decision::kRoom, id, is.size() == must.size(), [&] {
          return fmt::format("has {} entries in group {}, must have {}", is.size(), g, must.size());
        })) {
      return false;
    }
    const std::size_t i = first_difference(is, must);
    const std::int64_t found = planned.hit / model_.rules().groups[g].block;
    const bool of_hit = planned.admitted && static_cast<std::int64_t>(i) < found;
    const bool holds = i == must.size();
    if (!judge(of_hit && !holds ? Decision::kHit : Decision::kEviction, id, holds, [&] {
          return fmt::format("entry {} of group {} {} block {}, must be block {}", i, g,
                             of_hit ? "was found in" : "took", is[i], must[i]);
        })) {
      return false;
    }
  }
  return true;
}

bool DecisionJudge::free_order(const BlockScheduler& s, std::int64_t request) {
  // Copies are made for what is to be said alone: of nearly all steps nothing is.
  const FreeQueue& queue = s.kv().pool().queue();
  std::int32_t next = queue.front();
  const bool same = model_.cache().each_free([&](std::int32_t must) {
    if (next != must) return false;
    next = queue.next(next);
    return true;
  });
  if (same && next == queue.sentinel()) return right(Decision::kEviction);
  const std::vector<std::int32_t> is = s.kv().pool().queue().ids();
  const plain::Blocks must = model_.cache().free_blocks();
  const std::size_t i = first_difference(is, must);
  const auto shown = [&](const std::vector<std::int32_t>& list) {
    return i < list.size() ? fmt::format("block {}", list[i]) : std::string("none");
  };
  for (const auto* list : {&is, &must}) {
    if (i >= list->size()) continue;
    const std::int64_t holder = model_.cache().last_holder((*list)[i]);
    if (holder >= 0) request = holder;
  }
  return judge(Decision::kEviction, request, false, [&] {
    return fmt::format("number {} of the free blocks to be taken is {}, must be {}", i, shown(is),
                       shown(must));
  });
}

bool DecisionJudge::keys(const BlockScheduler& s) {
  if (s.kv().pool().caching() && !learn_hashes(s)) return false;
  const BlockPool& pool = s.kv().pool();
  for (std::int32_t b = pool.first_block(); b < pool.end_block(); ++b) {
    std::int64_t is = pool.caching() && pool.map().has_primary(b) ? 1 : 0;
    if (pool.caching() && pool.map().has_secondary(b)) {
      is += static_cast<std::int64_t>(pool.map().secondaries(b).size());
    }
    const std::int64_t must = model_.cache().keys_of(b);
    if (is == must && (is == 0 || known_key(pool.map(), b) || same_keys(s, b))) continue;
    return judge(Decision::kKeys, model_.cache().last_holder(b), false, [&] {
      return is != must
                 ? fmt::format("block {} can be found under {} keys, must be under {}", b, is, must)
                 : fmt::format("block {} can be found under a key of other content", b);
    });
  }
  return right(Decision::kKeys);
}

bool DecisionJudge::common_prefix(const StepPlan& plan) {
  const std::vector<std::int64_t> must = model_.cache().common_prefix();
  const std::size_t g = first_difference(plan.common_prefix, must);
  const std::int64_t first = model_.running().empty() ? -1 : model_.running().front();
  return judge(Decision::kCommon, first, plan.common_prefix == must, [&] {
    const auto shown = [&](const std::vector<std::int64_t>& list) {
      return g < list.size() ? fmt::format("{}", list[g]) : std::string("none");
    };
    return fmt::format("{} leading blocks of group {} are everybody's, must be {}",
                       shown(plan.common_prefix), g, shown(must));
  });
}

// A prefix has one hash, and a hash stands for one prefix.
bool DecisionJudge::learn_hashes(const BlockScheduler& s) {
  for (const auto& [id, request] : model_.requests()) {
    const SchedRequest* scheduled = s.find(id);
    if (scheduled == nullptr) continue;
    std::int64_t& known = learnt_[id];
    const std::int64_t end = std::min(scheduled->chain.size(), std::ssize(request.prefixes));
    for (; known < end; ++known) {
      const std::int64_t prefix = request.prefixes[static_cast<std::size_t>(known)];
      const BlockHash& hash = scheduled->chain[known];
      const std::pair words(hash.low, hash.high);
      const bool holds = hashes_->prefix_of.emplace(words, prefix).first->second == prefix &&
                         hashes_->hash_of.emplace(prefix, words).first->second == words;
      if (holds) continue;
      return judge(Decision::kKeys, id, false, [&] {
        return fmt::format("the hash of its first {} tokens is not theirs alone",
                           (known + 1) * model_.rules().hash_block);
      });
    }
  }
  return true;
}

bool DecisionJudge::known_key(const PrefixMap& map, std::int32_t block) const {
  const auto i = static_cast<std::size_t>(block);
  if (i >= hashes_->seen.size() || map.has_secondary(block)) return false;
  const std::vector<plain::Key>& must = model_.cache().keys(block);
  const Hashes::Pair& seen = hashes_->seen[i];
  return must.size() == 1 && must[0] == seen.must && map.has_primary(block) &&
         map.primary(block) == seen.is;
}

bool DecisionJudge::same_keys(const BlockScheduler& s, std::int32_t block) const {
  const PrefixMap& map = s.kv().pool().map();
  std::vector<PrefixKey> is = map.secondaries(block);
  is.push_back(map.primary(block));
  std::vector<plain::Key> must = model_.cache().keys(block);
  const Hashes::Pair pair{is.front(), must.front()};
  const bool same = std::ranges::all_of(is, [&](const PrefixKey& key) {
    const auto prefix = hashes_->prefix_of.find({key.hash.low, key.hash.high});
    return prefix != hashes_->prefix_of.end() &&
           std::erase(must, plain::Key{prefix->second, static_cast<std::size_t>(key.group)}) == 1;
  });
  if (same && is.size() == 1) {
    const auto i = static_cast<std::size_t>(block);
    if (i >= hashes_->seen.size()) hashes_->seen.resize(i + 1);
    hashes_->seen[i] = pair;
  }
  return same;
}

void DecisionJudge::ended(const BlockScheduler& s) {
  if (wrong_) return;
  std::int64_t freed_by = -1;
  for (const plain::Planned& planned : model_.over().scheduled) {
    const plain::Request& r = model_.request(planned.request);
    const bool over = r.is_over();
    if (over) freed_by = r.id;
    const bool is_over = !s.alive(r.id);
    if (!judge(Decision::kStop, r.id, over == is_over, [&] {
          return fmt::format("{} with {} sampled tokens, must {}", is_over ? "is over" : "goes on",
                             r.sampled(), over ? "be over" : "go on");
        })) {
      return;
    }
  }
  if (freed_by >= 0) free_order(s, freed_by);
}

void DecisionJudge::aborted(const BlockScheduler& s, std::int64_t request, bool done, bool must) {
  if (wrong_) return;
  const auto shown = [](bool ended) { return ended ? "ended by the abort" : "not there to abort"; };
  if (judge(Decision::kStop, request, done == must && !s.alive(request),
            [&] { return fmt::format("is {}, must be {}", shown(done), shown(must)); }) &&
      queues(s)) {
    free_order(s, request);
  }
}

void DecisionJudge::reset(const BlockScheduler& s, bool done, bool must) {
  if (wrong_) return;
  const auto shown = [](bool cleared) { return cleared ? "cleared" : "left as it was"; };
  if (judge(Decision::kKeys, -1, done == must,
            [&] {
              return fmt::format("the prefix cache is {}, must be {}", shown(done), shown(must));
            }) &&
      queues(s) && free_order(s, -1)) {
    keys(s);
  }
}

}  // namespace attnscope
