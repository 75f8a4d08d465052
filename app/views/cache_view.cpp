#include "app/views/cache_view.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "app/text/format.h"
#include "app/views/linkage.h"
#include "app/views/row_tier.h"

namespace attnscope {
namespace {

constexpr std::size_t kCacheTextLimit = 40;
constexpr std::int64_t kTextTokens = 24;

const BlockOwner* owner_of(const StepTrace& step, std::int32_t block) {
  const auto i = static_cast<std::size_t>(block);
  return block > 0 && i < step.owners.size() ? &step.owners[i] : nullptr;
}

std::string life_text(const SessionInfo& info, const CacheEvent& e) {
  const std::string who = name_if_known(info, e.request);
  switch (e.kind) {
    case CacheEventKind::kAllocate:
      return fmt::format("taken from the front of the free list for {}{}", who,
                         e.reason == CacheReason::kExternal ? ", for rows from elsewhere" : "");
    case CacheEventKind::kTouch:
      return fmt::format("found by {}, which holds it too", who);
    case CacheEventKind::kFree:
      return fmt::format("let go by {} ({}){}", who, cache_reason_name(e.reason),
                         e.refs == 0 ? ": free" : "");
    case CacheEventKind::kUnhash:
      return fmt::format("lost its key ({})", cache_reason_name(e.reason));
    case CacheEventKind::kCache:
      return fmt::format("got a key ({})", cache_reason_name(e.reason));
    case CacheEventKind::kDrop:
      return fmt::format("left the window of {}, entry {} of its table", who, e.value);
    case CacheEventKind::kSwapOut:
      return fmt::format("rows of {} copied to host block {}", who, e.value);
    case CacheEventKind::kSwapIn:
      return fmt::format("rows of {} copied back from host block {}", who, e.value);
    default:
      return cache_event_name(e.kind);
  }
}

}  // namespace

std::string content_text(const SessionInfo& info, const BlockOwner& owner) {
  if (owner.group < 0 || owner.index < 0) return "nothing that is known";
  const CacheGroup& group = info.layout.groups[static_cast<std::size_t>(owner.group)];
  const std::int64_t first = std::int64_t{owner.index} * group.block_tokens;
  return fmt::format("{}, positions {}-{} of {}", group.name, first, first + group.block_tokens - 1,
                     name_if_known(info, owner.writer));
}

void add_block_events(std::int64_t step, const std::vector<CacheEvent>& events,
                      BlockEvents& known) {
  for (const CacheEvent& e : events) known.events.emplace_back(step, e);
}

BlockEvents kept_block_events(const std::vector<std::shared_ptr<const StepSummary>>& steps) {
  BlockEvents known;
  std::int64_t seen = 0;
  for (const auto& summary : steps) {
    if (summary->cache_events == nullptr) continue;
    ++seen;
    for (const CacheEvent& e : *summary->cache_events) {
      // A capture has those of steps whose tensors were gone with the next step.
      const bool older = e.step >= 0 && e.step < summary->step;
      known.events.emplace_back(older ? e.step : summary->step, e);
    }
  }
  const auto all = std::ssize(steps);
  known.steps = seen < all ? fmt::format("{} of {} steps", format_count(seen), format_count(all))
                : all == 1 ? "the one step"
                           : fmt::format("all {} steps", format_count(all));
  if (all > 0 && !known.events.empty() && known.events.front().first < steps.front()->step) {
    known.steps = fmt::format("all steps from {} on", format_count(known.events.front().first));
  }
  return known;
}

BlockLife block_life(const SessionInfo& info, const StepTrace& step, std::int32_t block,
                     const BlockEvents& known) {
  BlockLife life;
  for (const auto& [when, e] : known.events) {
    if (block <= 0 || e.block != block) continue;
    life.events.push_back({when, e.kind, static_cast<std::int32_t>(e.request), e.refs,
                           allocation_stage(e), life_text(info, e)});
  }
  const BlockOwner* owner = owner_of(step, block);
  if (block == 0) {
    life.sentence = "Block 0 is the null block: nobody holds it, nothing is written to it.";
    return life;
  }
  if (owner == nullptr) {
    life.sentence = "No block is selected; a click on one anywhere selects it.";
    return life;
  }
  const std::string events =
      fmt::format("{} in {}", plural(std::ssize(life.events), "event", "events"), known.steps);
  const bool known_content = owner->request >= 0 || owner->keyed;
  life.sentence =
      fmt::format("Block {} is {}{}; {}.", block, block_state(info, step, block),
                  known_content ? ": " + content_text(info, *owner) : std::string(), events);
  const std::string tier =
      owner->request < 0 ? std::string() : row_tier(info, step, owner->request, owner->group);
  if (!tier.empty()) {
    life.sentence += fmt::format(" Rows that layers select from lie {}.",
                                 tier == "host" ? "in host memory" : "on the device");
  }
  return life;
}

FreeListView free_list_view(const SessionInfo& info, const StepTrace& step) {
  FreeListView view;
  std::int64_t keyed = 0;
  for (const std::int32_t block : step.free_list) {
    FreeEntry& entry = view.entries.emplace_back();
    entry.block = block;
    const BlockOwner* owner = owner_of(step, block);
    if (owner == nullptr || !owner->keyed) continue;
    ++keyed;
    entry.holds = content_text(info, *owner);
  }
  if (view.entries.empty()) {
    view.sentence = "No block is free: the next request for one preempts somebody.";
    return view;
  }
  const auto next =
      std::ranges::find_if(view.entries, [](const FreeEntry& e) { return !e.holds.empty(); });
  view.sentence = fmt::format("{} free, block {} is taken next; {} can still be hit",
                              plural(std::ssize(view.entries), "block is", "blocks are"),
                              view.entries.front().block, format_count(keyed));
  if (next != view.entries.end()) {
    view.sentence += fmt::format("; block {} is evicted first, after {}", next->block,
                                 plural(next - view.entries.begin(), "other", "others"));
  }
  view.sentence += ".";
  return view;
}

PrefixView prefix_view(const SessionInfo& info, const StepTrace& step) {
  PrefixView view;
  std::set<std::int32_t> blocks;
  for (const BlockKey& key : step.keys) {
    PrefixEntry& entry = view.entries.emplace_back();
    entry.hash = fmt::format("{:016x}", key.hash);
    entry.block = key.block;
    entry.group = key.group;
    entry.tokens = key.tokens;
    blocks.insert(key.block);
    if (const BlockOwner* owner = owner_of(step, key.block)) {
      entry.refs = owner->refs;
      entry.holds = content_text(info, *owner);
    }
    if (const RequestView* writer = find_request(step, key.writer)) {
      const std::int64_t first = std::max<std::int64_t>(key.tokens - kTextTokens, 0);
      entry.text = text_of(writer->request, {first, key.tokens}, kCacheTextLimit);
    }
  }
  if (view.entries.empty()) {
    view.sentence = "No block has a key: nothing can be hit.";
    return view;
  }
  const std::int64_t free = std::ranges::count_if(blocks, [&](std::int32_t b) {
    const BlockOwner* owner = owner_of(step, b);
    return owner != nullptr && owner->refs == 0;
  });
  view.sentence = fmt::format("{} {}, {} of them free.",
                              plural(std::ssize(view.entries), "key finds", "keys find"),
                              plural(std::ssize(blocks), "block", "blocks"), format_count(free));
  return view;
}

CacheRequestsView cache_requests_view(const SessionInfo& info, const StepTrace& step) {
  CacheRequestsView view;
  std::int64_t hit = 0, preemptions = 0, recomputed = 0;
  for (const RequestView& r : step.requests) {
    CacheRequest& row = view.rows.emplace_back();
    row.request = r.request.id;
    row.name = r.request.name;
    row.state = request_state_name(r.request.state);
    row.prompt = r.request.prompt_tokens;
    row.computed = r.request.computed;
    row.hit = r.request.hit_tokens;
    row.preemptions = r.request.preemptions;
    row.recomputed = r.request.recomputed;
    for (const auto& table : r.tables) {
      for (const std::int32_t block : table) {
        const BlockOwner* owner = owner_of(step, block);
        row.nulls += block == 0 ? 1 : 0;
        row.blocks += block > 0 ? 1 : 0;
        row.shared += owner != nullptr && owner->refs > 1 ? 1 : 0;
      }
    }
    for (const StepWhy& why : step.misses) {
      if (why.request == row.request) row.why = why.text;
    }
    hit += row.hit;
    preemptions += row.preemptions;
    recomputed += row.recomputed;
  }
  view.sentence = fmt::format("{} found computed; {} cost {} computed again.",
                              plural(hit, "token was", "tokens were"),
                              plural(preemptions, "preemption", "preemptions"),
                              plural(recomputed, "token that was", "tokens that were"));
  if (step.waiting.request >= 0) {
    view.waiting =
        fmt::format("{} waits. {}", name_if_known(info, step.waiting.request), step.waiting.text);
  }
  return view;
}

UsageView usage_view(const Snapshot& snapshot) {
  UsageView view;
  std::int64_t fullest = 0, at = 0;
  for (const auto& summary : snapshot.steps) {
    const PoolUsage& u = summary->usage;
    if (u.null == 0) continue;  // of a kept session's steps nothing is known
    view.steps.push_back(summary->step);
    view.usage.push_back(u);
    view.hit_tokens.push_back(summary->hit_tokens);
    view.preemptions.push_back(summary->preemptions);
    if (u.held > fullest) {
      fullest = u.held;
      at = summary->step;
    }
  }
  view.sentence =
      view.steps.empty()
          ? "No step with known blocks yet."
          : fmt::format(
                "Of {} blocks {} are held, {} free and findable, {} free and empty; most "
                "were held in step {}: {}.",
                format_count(snapshot.info->usable_blocks()), format_count(view.usage.back().held),
                format_count(view.usage.back().free_keyed),
                format_count(view.usage.back().free_empty), at, format_count(fullest));
  return view;
}

DeadEntriesView dead_entries_view(const SessionInfo& info, const StepTrace& step) {
  DeadEntriesView view;
  const StepMetadata& m = step.metadata;
  const std::int64_t rows = m.num_live();
  std::int64_t read = 0;
  for (std::int64_t table = 0; table < static_cast<std::int64_t>(m.counts.size()); ++table) {
    for (std::int64_t c = 0; c < m.counts[static_cast<std::size_t>(table)]; ++c) {
      const auto i = static_cast<std::size_t>(table * m.columns + c);
      if (m.blocks[i] != 0 || m.tables[i] == 0) continue;
      DeadEntry& entry = view.entries.emplace_back();
      entry.request = m.live[static_cast<std::size_t>(table % rows)];
      entry.group = static_cast<std::int32_t>(table / rows);
      entry.index = static_cast<std::int32_t>(c);
      entry.block = m.tables[i];
      const BlockOwner* owner = owner_of(step, entry.block);
      entry.now = owner == nullptr || (owner->refs == 0 && !owner->keyed)
                      ? "free"
                      : content_text(info, *owner);
      for (const std::int32_t token : readers_of_block(info, step, entry.block)) {
        // Somebody else may read what the block holds now.
        const bool own = step.request_of(token) == entry.request;
        const bool holds = owner != nullptr && owner->group == entry.group &&
                           std::ranges::count(holders_of(step, entry.block), entry.request) > 0;
        entry.reads += own && !holds ? 1 : 0;
      }
      read += entry.reads > 0 ? 1 : 0;
    }
  }
  view.sentence =
      view.entries.empty()
          ? "No table that the ops read has an entry that the manager dropped."
          : fmt::format("{} dead: the manager has dropped their blocks; {} of them were read.",
                        plural(std::ssize(view.entries), "entry of the ops' tables is",
                               "entries of the ops' tables are"),
                        read == 0 ? std::string("none") : format_count(read));
  return view;
}

ChecksView checks_view(const Snapshot& snapshot) {
  constexpr Invariants kStep = Invariants::kStep, kCall = Invariants::kCall;
  static constexpr CheckedInvariant kRows[] = {
      {"I1 partition", "every block is held or free, never both", kStep, true},
      {"I2 conservation", "a block's references are table entries and pins", kStep, true},
      {"I3 ownership", "a shared block stands at the same place, under a key", kStep, true},
      {"I4 map", "prefix map and blocks name the same keys", kStep, true},
      {"I5 content", "a key is the hash of the tokens in the block", kStep, true},
      {"I6 length", "tables reach as far as the computed tokens", kStep, false},
      {"I7 nulls", "null entries are what has left the window", kStep, false},
      {"I8 cap", "windowed groups stay below their admission cap", kStep, true},
      {"I9 commit", "what was committed is findable, and only grows", kStep, false},
      {"I10 hit", "a lookup's blocks are what was asked for", kCall, false},
      {"I11 free arithmetic", "free blocks before and after a call add up", kCall, false},
      {"I12 prediction", "what a request needed is what it took", kCall, false},
      {"I13 failed allocation", "a failed allocation leaves everything as it was", kCall, false},
      {"I14 order", "the free list moves by its rules alone", kCall, false},
      {"I16 slots", "every slot that is written lies in a held block", kStep, false},
      {"I17 quiescence", "without requests every block is free", kStep, false},
      {"I18 scheduler", "lists, budget and number of requests", kStep, false},
      {"I20 liveness", "with nobody running, a head that fits is admitted", kCall, false},
      {"I22 metrics", "the figures add up", kStep, false},
      {"I23 host blocks", "each is of one request that waits, or free", kStep, true}};
  ChecksView view;
  view.rows = kRows;
  switch (snapshot.invariants) {
    case Invariants::kOff:
      view.sentence = "Nothing is checked.";
      break;
    case Invariants::kStep:
      view.sentence =
          "What a step touched is checked in the step, all of the state every 1,000 steps.";
      break;
    case Invariants::kCall:
      view.sentence = "All of the state is checked around every call of the block manager.";
  }
  if (snapshot.violation) {
    view.broken = snapshot.violation->invariant;
    view.sentence +=
        fmt::format(" {} is broken; the session has stopped there.", snapshot.violation->text());
  } else if (snapshot.invariant_steps > 0) {
    view.sentence += fmt::format(" {} checked and nothing was broken.",
                                 plural(snapshot.invariant_steps, "step was", "steps were"));
  }
  if (snapshot.invariant_steps > 0) {
    view.sentence += fmt::format(" Checking costs {} a step.",
                                 format_us(1e6 * snapshot.invariant_seconds /
                                           static_cast<double>(snapshot.invariant_steps)));
  }
  return view;
}

}  // namespace attnscope
