#include "engine/sched/explain.h"

#include <fmt/format.h>

#include <algorithm>

namespace attnscope {
namespace {

// First entry that a hit of `tokens` needs and the pool does not have; -1 = none.
std::int64_t missing_entry(const KvManager& kv, const KvRequest& r, std::size_t group,
                           std::int64_t tokens) {
  const KvOptions& o = kv.options();
  const GroupSpec& spec = o.groups[group];
  const std::int64_t end = full_blocks(spec, tokens);
  const std::int64_t ratio = spec.block_tokens / o.hash_block;
  std::int64_t first = 0;
  if (spec.kind == GroupKind::kSliding) {
    first = std::max<std::int64_t>(end - window_blocks(spec, false), 0);
  } else if (spec.kind == GroupKind::kChunked) {
    first = skipped_tokens(spec, tokens) / spec.block_tokens;
  }
  for (std::int64_t i = first; i < end; ++i) {
    if (kv.pool().find(r.chain[(i + 1) * ratio - 1], static_cast<std::int32_t>(group)) < 0) {
      return i;
    }
  }
  return -1;
}

}  // namespace

MissReport explain_miss(const KvManager& kv, const KvRequest& request) {
  MissReport report;
  const KvOptions& o = kv.options();
  report.tokens = request.num_tokens();
  const std::int64_t most = std::max<std::int64_t>(report.tokens - 1, 0);
  const std::int64_t unit = o.groups.size() == 1 ? o.groups[0].block_tokens : o.alignment;
  report.longest = most / unit * unit;
  if (!o.caching || request.skip_lookup) return report;
  PrefixLookup lookup(o.groups, o.alignment, o.hash_block, o.switches.full_trim);
  PrefixHit hit;
  lookup.find(kv.pool(), request.chain, most, hit);
  report.hit = hit.tokens;
  const GroupSearch search{kv.pool(), request.chain, o.hash_block};
  for (std::size_t g = 0; g < o.groups.size(); ++g) {
    const GroupSpec& spec = o.groups[g];
    std::vector<GroupHit> own(1);
    find_hit(search, {spec, {static_cast<std::int32_t>(g)}, spec.flagged}, most, spec.flagged, unit,
             own);
    GroupMiss miss;
    miss.group = static_cast<std::int32_t>(g);
    miss.reach = reach_of_hit(spec, own[0], most, unit);
    miss.missing_entry = missing_entry(kv, request, g, report.longest);
    if (miss.missing_entry >= 0) {
      miss.missing_position = miss.missing_entry * spec.block_tokens;
      const Retention kept(spec, unit, false, o.retention);
      const std::int64_t end = request.prompt_tokens - 1;
      miss.ever_stored = kept.keeps(miss.missing_entry, std::span(&end, 1));
    }
    if (miss.reach <= report.hit && report.hit < report.longest) {
      report.limiting.push_back(miss.group);
    }
    report.groups.push_back(miss);
  }
  return report;
}

std::string miss_text(const MissReport& r) {
  std::string out =
      fmt::format("{} of {} tokens hit, at most {} can\n", r.hit, r.tokens, r.longest);
  for (const GroupMiss& g : r.groups) {
    out += fmt::format("group {}: blocks up to token {}", g.group, g.reach);
    if (g.missing_entry >= 0) {
      out += fmt::format("; for {} it lacks entry {} (from token {}){}", r.longest, g.missing_entry,
                         g.missing_position, g.ever_stored ? "" : ", which the group never keeps");
    }
    out += '\n';
  }
  return out;
}

AdmissionReport explain_admission(const BlockScheduler& s) {
  AdmissionReport report;
  const KvManager& kv = s.kv();
  const BlockPool& pool = kv.pool();
  report.free = pool.num_free();
  report.held = pool.usable() - report.free;
  report.running = static_cast<std::int64_t>(s.running().size());
  report.max_running = s.options().max_requests;
  const std::vector<std::int32_t> waiting = s.waiting();
  if (waiting.empty()) return report;
  const SchedRequest& r = s.request(waiting.front());
  report.request = r.id;
  report.watermark = s.running().empty() ? 0 : kv.watermark_blocks();
  const KvOptions& o = kv.options();
  PrefixHit hit;
  hit.groups.resize(o.groups.size());
  if (o.caching && !r.skip_lookup) {
    PrefixLookup lookup(o.groups, o.alignment, o.hash_block, o.switches.full_trim);
    lookup.find(pool, r.chain, r.num_tokens() - 1, hit);
  }
  report.swapped = r.swapped_tokens;
  for (const SwappedTable& table : r.swapped) report.host_blocks += std::ssize(table.blocks);
  const std::int64_t found = hit.tokens + r.swapped_tokens;
  const bool whole = s.options().whole_sequence;
  const std::int64_t chunk = std::min(r.num_tokens() - found, s.options().token_budget);
  const std::int64_t tokens = whole ? r.num_tokens() : std::min(found + chunk, o.max_model_len);
  std::int64_t alone = 0;  // what it would need with nothing in the pool
  for (std::size_t g = 0; g < o.groups.size(); ++g) {
    GroupDemand d;
    d.group = static_cast<std::int32_t>(g);
    d.required = blocks_for(o.groups[g], std::min(tokens, o.max_model_len));
    d.cap = kv.cap(g);
    d.hit = hit.groups[g].size();
    for (const std::int32_t b : hit.groups[g].blocks) d.evictable += pool.refs(b) == 0 ? 1 : 0;
    d.need = kv.group_need(r, g, std::min(tokens, o.max_model_len), found, &hit, whole);
    alone += whole && d.cap >= 0 ? std::min(d.required, d.cap) : d.required;
    report.need += d.need;
    report.groups.push_back(d);
  }
  report.blocks_short = report.need + report.watermark > report.free;
  report.slots_short = report.running >= report.max_running;
  report.never_fits = alone > pool.usable();
  return report;
}

std::string admission_text(const AdmissionReport& r) {
  if (r.request < 0) return "no request waits\n";
  std::string out =
      fmt::format("request {} heads the queue: it needs {} blocks", r.request, r.need);
  if (r.watermark > 0) out += fmt::format(" and leaves {}", r.watermark);
  out += fmt::format(", {} are free, {} held; {} of {} requests run\n", r.free, r.held, r.running,
                     r.max_running);
  if (r.swapped > 0) {
    out += fmt::format("rows of {} of its tokens come back from {} host blocks\n", r.swapped,
                       r.host_blocks);
  }
  for (const GroupDemand& d : r.groups) {
    out += fmt::format("group {}: {} entries for its tokens", d.group, d.required);
    if (d.cap >= 0) out += fmt::format(", at most {} at once", d.cap);
    out += fmt::format("; {} are hits, {} of them free; {} to take\n", d.hit, d.evictable, d.need);
  }
  if (r.never_fits) {
    out += "it does not fit into the empty pool: raise the number of blocks\n";
  } else if (r.blocks_short) {
    out += "it waits for blocks\n";
  } else if (r.slots_short) {
    out += "it waits for a running request to end\n";
  } else {
    out += "nothing holds it back\n";
  }
  return out;
}

std::vector<PreemptionCost> preemption_costs(const BlockScheduler& s) {
  std::vector<PreemptionCost> costs;
  std::vector<std::int32_t> slots = s.running();
  const std::vector<std::int32_t> waiting = s.waiting();
  slots.insert(slots.end(), waiting.begin(), waiting.end());
  std::sort(slots.begin(), slots.end());
  for (const std::int32_t slot : slots) {
    const SchedRequest& r = s.request(slot);
    if (r.preemptions > 0) costs.push_back({r.id, r.preemptions, r.recomputed, r.swaps});
  }
  return costs;
}

std::string chunk_text(const BlockScheduler& s, const StepPlan& plan) {
  if (plan.chunk == 0) return {};
  const AdaptiveChunks& c = s.options().chunks;
  if (!c.on()) return fmt::format("at most {} tokens of a prompt in a step", plan.chunk);
  const std::int64_t usable = s.kv().pool().usable();
  return fmt::format(
      "at most {} tokens of a prompt in this step, as {} of {} blocks are free: {} + ({} - {}) x "
      "{} "
      "/ {}",
      plan.chunk, plan.free_before, usable, c.least, c.most, c.least, plan.free_before, usable);
}

}  // namespace attnscope
