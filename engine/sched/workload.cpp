#include "engine/sched/workload.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace attnscope {
namespace {

constexpr std::int64_t kAbortAfter = 5;  // steps
constexpr std::array<std::int64_t, 7> kReportedSteps = {1, 10, 50, 100, 200, 400, 800};

class Lcg {
 public:
  explicit Lcg(std::uint64_t seed) : state_(seed) {}
  std::int64_t next() {
    state_ = state_ * 6364136223846793005u + 1442695040888963407u;
    return static_cast<std::int64_t>(state_ >> 33);
  }

 private:
  std::uint64_t state_;
};

std::int32_t token(std::int64_t value) {
  return static_cast<std::int32_t>(static_cast<std::uint32_t>(value));
}

constexpr std::uint64_t kPrime = 0x100000001b3;

// prime^(4 << i): what 4 << i zero bytes do to a digest.
constexpr std::array<std::uint64_t, 32> zero_powers() {
  std::array<std::uint64_t, 32> powers{};
  std::uint64_t p = kPrime * kPrime * kPrime * kPrime;
  for (std::uint64_t& power : powers) {
    power = p;
    p *= p;
  }
  return powers;
}
constexpr std::array<std::uint64_t, 32> kZeroPowers = zero_powers();
constexpr std::uint64_t kPrime2 = kPrime * kPrime;
constexpr std::uint64_t kPrime3 = kPrime2 * kPrime;

// What a step looks like: scheduled requests with all their tables, and the free count.
void digest_step(Digest& digest, const BlockScheduler& scheduler, const StepPlan& plan) {
  digest.word(static_cast<std::uint32_t>(plan.step + 1));
  digest.word(static_cast<std::uint32_t>(plan.scheduled.size()));
  const KvManager& kv = scheduler.kv();
  for (const ScheduledTokens& s : plan.scheduled) {
    digest.word(static_cast<std::uint32_t>(s.id));
    digest.word(static_cast<std::uint32_t>(s.tokens));
    for (std::size_t g = 0; g < kv.num_groups(); ++g) {
      const GroupTable& table = kv.table(s.slot, g);
      digest.word(static_cast<std::uint32_t>(table.size()));
      digest.zeros(table.first_real);
      for (std::int64_t i = table.first_real; i < table.size(); ++i) {
        digest.word(static_cast<std::uint32_t>(table.blocks[static_cast<std::size_t>(i)]));
      }
    }
  }
  digest.word(static_cast<std::uint32_t>(kv.pool().num_free()));
}

Error stuck(const BlockScheduler& scheduler, std::int64_t step, std::int64_t idle) {
  const std::vector<std::int32_t> waiting = scheduler.waiting();
  const std::vector<std::int32_t>& running = scheduler.running();
  const SchedRequest& head = scheduler.request(running.empty() ? waiting.front() : running.front());
  const KvManager& kv = scheduler.kv();
  return bad_input(
      fmt::format(
          "no request got on in the {} steps before step {}: request {} of {} tokens is {}, "
          "and the pool has {} blocks",
          idle, step, head.id, head.num_tokens(), request_status_name(head.status),
          kv.pool().usable()),
      "raise the number of blocks, or lower the lengths of the requests");
}

}  // namespace

void Digest::word(std::uint32_t w) {
  std::uint64_t h = hash_;
  h = (h ^ (w & 0xff)) * kPrime;
  if (w <= 0xffff) {  // two zero bytes at the end
    hash_ = (h ^ (w >> 8)) * kPrime3;
    return;
  }
  h = (h ^ ((w >> 8) & 0xff)) * kPrime;
  h = (h ^ ((w >> 16) & 0xff)) * kPrime;
  hash_ = (h ^ (w >> 24)) * kPrime;
}

void Digest::zeros(std::int64_t n) {
  for (std::size_t bit = 0; n != 0; n >>= 1, ++bit) {
    if ((n & 1) != 0) hash_ *= kZeroPowers[bit];
  }
}

std::vector<GeneratedRequest> generate_requests(const Workload& w) {
  Lcg random(w.seed);
  std::vector<GeneratedRequest> requests;
  requests.reserve(static_cast<std::size_t>(w.requests));
  std::int64_t arrival = 0;
  for (std::int64_t i = 0; i < w.requests; ++i) {
    GeneratedRequest g;
    g.family = random.next() % 4;
    g.shared = random.next() % 5 * w.shared_unit;
    g.tail = 1 + random.next() % w.tail_range;
    if (w.duplicate_unit > 0) g.tail *= w.duplicate_unit;
    g.outputs = 1 + random.next() % w.output_range;
    const std::int64_t gap = random.next() % 3;
    arrival += i == 0 ? 0 : gap;
    g.arrival_step = arrival;
    g.aborted = random.next() % 8 == 0;
    g.priority = random.next() % 3;
    requests.push_back(g);
  }
  return requests;
}

std::int32_t output_token(std::int64_t request, std::int64_t k) {
  return token(7000000 + request * 1000 + k);
}

SchedRequest make_request(const Workload& w, std::int64_t i, const GeneratedRequest& g) {
  SchedRequest r;
  r.id = i;
  r.arrival = static_cast<double>(i);
  r.priority = g.priority;
  r.stop.max_tokens = g.outputs;
  const std::int64_t length = g.shared + g.tail;
  r.tokens.reserve(static_cast<std::size_t>(length + g.outputs));
  for (std::int64_t p = 0; p < length; ++p) {
    const bool common = p < g.shared || w.duplicate_unit > 0;
    r.tokens.push_back(token(common ? (g.family + 1) * 100000 + p : (i + 1) * 1000000 + p));
  }
  return r;
}

Result<WorkloadResult> run_workload(const Workload& workload, const WorkloadRun& run) {
  Result<BlockScheduler> made = BlockScheduler::make(workload.options);
  if (!made) return made.error();
  BlockScheduler& scheduler = *made;
  const std::vector<GeneratedRequest> requests = generate_requests(workload);
  const std::shared_ptr<SchedWatch> watch =
      run.watch ? run.watch(scheduler) : std::make_shared<SchedWatch>();
  const auto changed = [&] {
    watch->after_change();
    return watch->go_on();
  };

  WorkloadResult result;
  result.min_free = scheduler.kv().pool().num_free();
  Digest digest;
  std::size_t added = 0;
  std::size_t first_to_abort = 0;  // requests before it are past their abort step
  std::vector<std::int32_t> sampled;
  std::int64_t s = 0;
  std::int64_t last_progress = 0;  // step that sampled a token, or had no request
  // The first running request computes at least one token a step.
  const std::int64_t patience = 1000 + 2 * workload.options.kv.max_model_len;
  bool stopped = false;
  while (!stopped && (added < requests.size() || !scheduler.done())) {
    for (; added < requests.size() && requests[added].arrival_step <= s; ++added) {
      const auto i = static_cast<std::int64_t>(added);
      if (Result<void> good = scheduler.add(make_request(workload, i, requests[added])); !good) {
        return good.error();
      }
      stopped = !changed();
    }
    for (std::size_t i = first_to_abort; i < added; ++i) {
      const std::int64_t at = requests[i].arrival_step + kAbortAfter;
      if (at > s) break;
      first_to_abort = i + 1;
      if (at < s || !requests[i].aborted) continue;
      if (scheduler.abort(static_cast<std::int64_t>(i))) stopped = !changed();
    }
    watch->before_schedule();
    const StepPlan& plan = scheduler.schedule();
    watch->after_schedule(plan);
    ++s;
    if (run.digests) {
      digest_step(digest, scheduler, plan);
      if (std::find(kReportedSteps.begin(), kReportedSteps.end(), s) != kReportedSteps.end()) {
        result.checkpoints[s] = digest.value();
      }
    }
    const HostBlocks& host = scheduler.host_blocks();
    result.most_host_blocks = std::max(result.most_host_blocks, host.size() - host.num_free());
    if (workload.options.chunks.on()) {
      result.least_chunk = s == 1 ? plan.chunk : std::min(result.least_chunk, plan.chunk);
      result.most_chunk = std::max(result.most_chunk, plan.chunk);
    }
    const BlockPool& pool = scheduler.kv().pool();
    result.min_free = std::min(result.min_free, pool.num_free());
    result.max_keys = std::max(result.max_keys, pool.num_keys());
    if (scheduler.running().size() > 1) {
      const std::int64_t common = *std::ranges::max_element(plan.common_prefix);
      result.common_steps += common > 0 ? 1 : 0;
      result.most_common = std::max(result.most_common, common);
    }
    sampled.clear();
    for (const ScheduledTokens& scheduled : plan.scheduled) {
      const SchedRequest& r = scheduler.request(scheduled.slot);
      sampled.push_back(r.computed >= r.num_tokens() ? output_token(r.id, r.outputs()) : kNoToken);
    }
    const bool some = std::any_of(sampled.begin(), sampled.end(),
                                  [](std::int32_t sample) { return sample != kNoToken; });
    if (some || scheduler.done()) last_progress = s;
    if (s - last_progress > patience) return stuck(scheduler, s, s - last_progress);
    scheduler.results(plan, sampled);
    scheduler.take_finished();
    watch->after_results(plan);
    stopped = stopped || !watch->go_on() || (run.stopped && run.stopped());
  }
  result.complete = added == requests.size() && scheduler.done();
  watch->detach();
  const SchedulerCounters& counters = scheduler.counters();
  result.steps = s;
  result.final_digest = digest.value();
  Digest queue;
  for (const std::int32_t id : scheduler.kv().pool().queue().ids()) {
    queue.word(static_cast<std::uint32_t>(id));
  }
  result.queue_digest = queue.value();
  result.hit_tokens = counters.hit_tokens;
  result.lookups = counters.lookups;
  result.failed_allocations = counters.failed_allocations;
  result.preemptions = counters.preemptions;
  result.evictions = scheduler.kv().pool().evictions();
  result.aborted = counters.aborted;
  result.scheduled_tokens = counters.scheduled_tokens;
  result.recomputed_tokens = counters.recomputed_tokens;
  result.blocks_out = counters.blocks_out;
  result.blocks_in = counters.blocks_in;
  result.swaps_refused = counters.swaps_refused;
  result.final_free = scheduler.kv().pool().num_free();
  return result;
}

}  // namespace attnscope
