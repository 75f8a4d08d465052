// AS_OP_SCHEDULE and AS_OP_BLOCK_TABLES: random streams of requests through the scheduler and the
// block manager, with shared prompts, preemption and aborts, against the references, which see only
// the params of each step; every decision against the plain model of both.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/backend/host_ops.h"
#include "engine/cache/cache_layout.h"
#include "engine/decisions/serving_judge.h"
#include "engine/family/models.h"
#include "engine/metadata/step_metadata.h"
#include "engine/model/model_config.h"
#include "engine/sched/sched_invariants.h"
#include "tests/property/checks.h"

namespace attnscope::properties {
namespace host_property {

// Prompt lengths, and lengths in all of which something ends or begins: a block, a window.
constexpr std::int64_t kLengths[] = {1, 3, 4, 127, 128, 129, 255, 256, 520, 1050};

struct StreamCase {
  std::string name;
  std::string model;
  std::vector<int> layers;  // of the model, empty = all
  std::int64_t token_budget = 512;
  std::int64_t max_requests = 8;
  std::int64_t spare_blocks = 0;  // of the pool, beyond what the longest request needs
  CacheProfile profile = CacheProfile::kM;
  bool by_priority = false;
  std::int64_t longest = 1050;
  int requests = 60;
  int first_tokens = 0;  // that the model keeps in 16 bits, in a group of their own
};

void PrintTo(const StreamCase& c, std::ostream* out) { *out << c.name; }

// What a stream must have met, so that the comparison was worth something.
struct Met {
  int waited = 0;       // somebody had to wait
  int cut_prefill = 0;  // the budget ended a chunk
  int several = 0;      // requests in one step
  int dropped = 0;      // entries that the manager no longer has and the ops' tables still show
  int hits = 0, hits_within_a_step = 0;
  int preempted = 0;
};

class Stream {
 public:
  explicit Stream(const StreamCase& c)
      : case_(c), report_(case_seed("stream " + c.name)), random_(report_.seed()) {
    auto config = preset(c.model, c.layers);
    EXPECT_TRUE(config) << config.error().text();
    if (c.first_tokens > 0) {
      EXPECT_TRUE(set_first_tokens(*config, c.first_tokens));
    }
    layout_ = build_cache_layout(*config);
    SchedulerOptions options;
    for (const CacheGroup& g : layout_.groups) {
      options.kv.groups.push_back({g.kind, g.block_tokens, g.window, false});
    }
    options.kv.num_blocks = layout_.demand(c.longest + 40, c.token_budget) + c.spare_blocks + 1;
    options.kv.switches = switches_of(c.profile);
    options.token_budget = c.token_budget;
    options.max_requests = c.max_requests;
    options.policy = c.by_priority ? SchedulePolicy::kPriority : SchedulePolicy::kFcfs;
    if (c.by_priority) options.chunks = {8, c.token_budget};
    auto serving = Serving::make(options, requests());
    EXPECT_TRUE(serving) << serving.error().text();
    serving_ = std::make_unique<Serving>(std::move(*serving));
    auditor_ = std::make_unique<SchedAuditor>(serving_->scheduler());
    judge_.emplace(*serving_);
    tables_.assign(static_cast<std::size_t>(c.requests),
                   std::vector<std::vector<std::int32_t>>(layout_.groups.size()));
  }

  bool done() const { return serving_->done() || !report_.ok(); }
  void step() {
    serving_->begin_step(step_);
    judge_->begin_step(step_++, *serving_);
    StepMetadata m = begin_step(layout_, *serving_, tables_, {});
    host_ = {serving_.get()};
    auditor_->before_schedule();
    serving_->schedule();
    auditor_->after_schedule(serving_->plan());
    judge_->planned(*serving_);
    take_decisions(m, *serving_);
    schedule(m);
    block_tables(m);
    note(m);
    WorkerTables without_op = tables_;
    keep_tables(m, tables_);
    keep_tables(*serving_, without_op);
    if (tables_ != without_op) report_.fail("tables", "gone through again they are others");
    std::vector<std::int32_t> sampled;
    for (std::size_t r = 0; r < m.live.size(); ++r) {
      const bool last = m.num_scheduled_tokens[r] > 0 &&
                        m.num_computed[r] + m.num_scheduled_tokens[r] == m.num_tokens[r];
      sampled.push_back(last && below(random_, 100) > 0 ? 5 : -1);
    }
    serving_->finish_step(sampled);
    auditor_->after_results(serving_->plan());
    for (const Violation& v : auditor_->findings()) report_.fail(v.invariant, v.what);
    judge_->ended(*serving_, sampled, {});
    if (const auto& wrong = judge_->wrong()) {
      report_.fail(decision_name(wrong->decision), wrong->note);
    }
  }

  const Report& report() const { return report_; }
  const Met& met() const { return met_; }
  const Serving& serving() const { return *serving_; }

 private:
  // Many begin alike, and some arrive together.
  std::vector<Request> requests() {
    std::vector<Request> out(static_cast<std::size_t>(case_.requests));
    std::int64_t arrival = 0;
    for (Request& r : out) {
      std::int64_t length = kLengths[below(random_, 10)];
      if (below(random_, 3) == 0) length = 1 + below(random_, 300);
      r.tokens.assign(static_cast<std::size_t>(std::min(length, case_.longest)), 7);
      for (std::size_t i = static_cast<std::size_t>(below(random_, 700)); i < r.tokens.size();
           i += 1 + static_cast<std::size_t>(below(random_, 400))) {
        r.tokens[i] = 1 + static_cast<std::int32_t>(below(random_, 3));
      }
      r.max_new_tokens = 1 + below(random_, 40);
      r.priority = below(random_, 4);
      arrival += below(random_, 2) * below(random_, 12);
      r.arrival_step = arrival;
      if (below(random_, 8) == 0) r.abort_step = arrival + 1 + below(random_, 12);
    }
    return out;
  }

  void run_host(std::int32_t (*op)(const void*, const as_call*, as_error*),
                const OpParams& params) {
    as_error error{};
    as_call call{};
    call.struct_size = sizeof(call);
    call.host = &host_;
    if (op(params.data(), &call, &error) != AS_OK) report_.fail("call", error.message);
  }

  void compare_with_references(const OpParams& engine) {
    for (const Lane* reference : {reference::sim_lane(), reference::exact_lane()}) {
      Memory memory;
      const OpParams own = with_own_outputs(engine, &memory);
      if (!run(*reference, own, &report_)) return;
      judge_all(engine, own, &report_);
    }
  }

  void schedule(StepMetadata& m) {
    const auto rows = m.num_live();
    OpParams params;
    auto& p = params.init<as_schedule_params>(AS_OP_SCHEDULE);
    p.groups = make_tensor(m.groups.data(), {static_cast<std::int64_t>(layout_.groups.size()), 2});
    p.num_tokens = make_tensor(m.num_tokens.data(), {rows});
    p.num_before = make_tensor(m.num_before.data(), {rows});
    p.running = make_tensor(m.running.data(), {rows});
    p.joins = make_tensor(m.joins.data(), {rows});
    p.lost_to = make_tensor(m.lost_to.data(), {rows});
    p.matching = make_tensor(m.matching.data(), {rows});
    p.num_computed = make_tensor(m.num_computed.data(), {rows});
    p.num_scheduled_tokens = make_tensor(m.num_scheduled_tokens.data(), {rows});
    p.token_budget = static_cast<std::int32_t>(case_.token_budget);
    p.longest_chunk = static_cast<std::int32_t>(serving_->plan().chunk);
    run_host(host_schedule, params);
    compare_with_references(params);
  }

  void block_tables(StepMetadata& m) {
    const auto rows = m.num_live();
    const auto groups = static_cast<std::int64_t>(layout_.groups.size());
    OpParams params;
    auto& p = params.init<as_block_tables_params>(AS_OP_BLOCK_TABLES);
    p.groups = make_tensor(m.groups.data(), {groups, 2});
    p.num_computed = make_tensor(m.num_computed.data(), {rows});
    p.num_scheduled_tokens = make_tensor(m.num_scheduled_tokens.data(), {rows});
    p.joins = make_tensor(m.joins.data(), {rows});
    p.blocks = make_tensor(m.blocks.data(), {groups, rows, m.columns});
    p.tables_before = make_tensor(m.tables_before.data(), {groups, rows, m.columns});
    p.counts_before = make_tensor(m.counts_before.data(), {groups, rows});
    p.tables = make_tensor(m.tables.data(), {groups, rows, m.columns});
    p.counts = make_tensor(m.counts.data(), {groups, rows});
    run_host(host_block_tables, params);
    compare_with_references(params);
  }

  void note(const StepMetadata& m) {
    int with_tokens = 0;
    for (std::size_t r = 0; r < m.live.size(); ++r) {
      const std::int32_t n = m.num_scheduled_tokens[r];
      with_tokens += n > 0;
      met_.waited += n == 0 && m.lost_to[r] < 0;
      met_.cut_prefill += n > 0 && m.num_computed[r] + n < m.num_tokens[r];
      met_.hits += m.joins[r] != 0 && m.num_computed[r] > 0;
      met_.preempted += m.lost_to[r] >= 0;
    }
    met_.several += with_tokens > 1;
    for (const SharedBlock& b : serving_->step().shared) met_.hits_within_a_step += b.this_step;
    for (std::size_t i = 0; i < m.tables.size(); ++i) {
      met_.dropped += m.blocks[i] == AS_NULL_BLOCK && m.tables[i] != AS_NULL_BLOCK;
    }
  }

  StreamCase case_;
  Report report_;
  Random random_;
  CacheLayout layout_;
  std::unique_ptr<Serving> serving_;
  std::unique_ptr<SchedAuditor> auditor_;
  std::optional<ServingJudge> judge_;
  WorkerTables tables_;
  StepHost host_;
  Met met_;
  std::int64_t step_ = 0;
};

class HostOps : public testing::TestWithParam<StreamCase> {};

TEST_P(HostOps, StreamsMatchBothReferences) {
  const StreamCase& c = GetParam();
  Stream stream(c);
  SCOPED_TRACE(testing::Message() << "seed " << stream.report().seed());
  for (int i = 0; i < 20000 && !stream.done(); ++i) stream.step();
  ASSERT_TRUE(stream.report().ok()) << stream.report();
  ASSERT_TRUE(stream.done());
  EXPECT_EQ(stream.serving().num_free(), stream.serving().num_blocks() - 1);
  const Met& met = stream.met();
  if (c.first_tokens == 0) {
    EXPECT_GT(met.dropped, 0);
  }
  EXPECT_GT(met.cut_prefill, 0);
  EXPECT_GT(met.waited, 0);
  if (c.max_requests == 1) {
    EXPECT_EQ(met.several, 0);
  } else if (c.token_budget > 1) {
    EXPECT_GT(met.several, 0);
  }
  if (c.spare_blocks < 50 && c.max_requests > 1) {
    EXPECT_GT(met.preempted, 0);
  }
  // Where one group is full, hits end at whole blocks of 256 tokens.
  if (c.spare_blocks >= 200) {
    EXPECT_GT(met.hits, 0);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Streams, HostOps,
    testing::Values(
        StreamCase{"all_layer_types", "v4-flash", {}, 512, 8, 400},
        StreamCase{"all_layer_types_a", "v4-flash", {}, 700, 8, 400, CacheProfile::kA},
        StreamCase{"short_pool", "v4-flash", {}, 100, 12, 0, CacheProfile::kM, false, 100},
        StreamCase{"short_pool_odd_budget", "v4-flash", {}, 61, 5, 7, CacheProfile::kA, false, 130},
        StreamCase{"by_priority", "v4-flash", {}, 40, 12, 4, CacheProfile::kA, true, 60},
        StreamCase{"by_priority_m", "v4-flash", {}, 40, 12, 60, CacheProfile::kM, true, 60},
        StreamCase{"window_only", "v4-flash", {0, 1}, 129, 8, 0, CacheProfile::kM, false, 300},
        StreamCase{"many_window_groups", "v4-flash", {0, 1, 3}, 300, 4, 60},
        StreamCase{"one_request", "v4-flash", {0, 2, 3}, 255, 1, 300},
        StreamCase{"tiny", "tiny", {}, 37, 3, 60, CacheProfile::kM, false, 600},
        StreamCase{
            "first_tokens", "tiny-llama-fp8", {}, 37, 6, 0, CacheProfile::kM, false, 600, 60, 32},
        StreamCase{"first_tokens_by_priority",
                   "tiny-llama-fp8",
                   {},
                   61,
                   8,
                   4,
                   CacheProfile::kA,
                   true,
                   300,
                   60,
                   40},
        StreamCase{"first_tokens_found_again",
                   "tiny-llama-fp8",
                   {},
                   200,
                   6,
                   300,
                   CacheProfile::kA,
                   false,
                   600,
                   60,
                   136}),
    name_of<StreamCase>);

}  // namespace host_property
}  // namespace attnscope::properties
