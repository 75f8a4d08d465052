// AS_OP_SCHEDULE and AS_OP_BLOCK_TABLES: Scheduler and BlockManager over random streams of requests
// against the references, which see only the params of each step.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "engine/backend/host_ops.h"
#include "engine/cache/cache_layout.h"
#include "engine/metadata/step_metadata.h"
#include "engine/model/model_config.h"
#include "tests/property/checks.h"

namespace attnscope::properties {
namespace {

// Prompt lengths, and lengths in all of which something ends or begins: a block, a window.
constexpr std::int64_t kLengths[] = {1, 3, 4, 127, 128, 129, 255, 256, 2050, 2051};

struct StreamCase {
  std::string name;
  std::string model;
  std::vector<int> layers;  // of the model, empty = all
  std::int64_t token_budget = 512;
  std::int64_t max_requests = 8;
  std::int64_t spare_blocks = 0;  // of the pool, beyond what the longest request needs
  int steps = 400;
  std::int64_t longest = 2051;
};

void PrintTo(const StreamCase& c, std::ostream* out) { *out << c.name; }

// What a stream must have met, so that the comparison was worth something.
struct Met {
  int full_pool = 0;    // the head had to wait for blocks
  int full_house = 0;   // the head had to wait for a place
  int cut_prefill = 0;  // the budget ended a chunk
  int several = 0;      // requests in one step
  int left_window = 0;  // blocks given back while the request runs
  int finished = 0;
};

class Stream {
 public:
  explicit Stream(const StreamCase& c)
      : case_(c), report_(case_seed("stream " + c.name)), random_(report_.seed()) {
    auto config = preset(c.model, c.layers);
    EXPECT_TRUE(config) << config.error().text();
    layout_ = build_cache_layout(*config);
    usable_ = layout_.demand(c.longest + 40, c.token_budget) + c.spare_blocks;
    scheduler_ = Scheduler(layout_, {c.token_budget, c.max_requests}, usable_);
    blocks_ = make_block_manager(layout_, usable_ + 1);
  }

  // False once a check has failed.
  bool step() {
    if (scheduler_.live().size() < 12 && (scheduler_.done() || below(random_, 4) == 0)) arrive();
    StepMetadata m = begin_step(layout_, scheduler_, *blocks_);
    host_ = {&scheduler_, blocks_.get(), &m.live, 0};
    schedule(m);
    tables(m);
    advance(m);
    return report_.ok();
  }

  const Report& report() const { return report_; }
  const Met& met() const { return met_; }
  const BlockManager& blocks() const { return *blocks_; }
  std::int64_t usable() const { return usable_; }

  // Runs what is left without further arrivals.
  void drain() {
    for (int i = 0; i < 4000 && !scheduler_.done() && report_.ok(); ++i) {
      StepMetadata m = begin_step(layout_, scheduler_, *blocks_);
      host_ = {&scheduler_, blocks_.get(), &m.live, 0};
      schedule(m);
      tables(m);
      advance(m);
    }
  }

 private:
  void arrive() {
    Request request;
    std::int64_t length = kLengths[below(random_, 10)];
    if (below(random_, 3) == 0) length = 1 + below(random_, 300);
    length = std::min(length, case_.longest);
    request.tokens.assign(static_cast<std::size_t>(length), 7);
    request.prompt_tokens = length;
    request.max_new_tokens = 1 + below(random_, 40);
    scheduler_.add(std::move(request));
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
    for (const as_lane* reference : {reference::sim_lane(), reference::exact_lane()}) {
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
    p.num_computed = make_tensor(m.num_computed.data(), {rows});
    p.max_len = make_tensor(m.max_len.data(), {rows});
    p.running = make_tensor(m.running.data(), {rows});
    p.demand = make_tensor(m.demand.data(), {rows});
    p.scheduled = make_tensor(m.scheduled.data(), {rows});
    p.token_budget = static_cast<std::int32_t>(case_.token_budget);
    p.max_requests = static_cast<std::int32_t>(case_.max_requests);
    p.usable_blocks = static_cast<std::int32_t>(usable_);
    run_host(host_schedule, params);
    compare_with_references(params);
    std::int64_t total = 0, running = 0, with_tokens = 0, reserved = 0;
    for (std::size_t r = 0; r < m.live.size(); ++r) {
      const std::int32_t n = m.scheduled[r];
      total += n;
      with_tokens += n > 0;
      if (m.running[r] != 0 || n > 0) {
        ++running;
        reserved += m.demand[r];
        continue;
      }
      met_.full_house += running >= case_.max_requests;
      met_.full_pool += reserved + m.demand[r] > usable_;
      break;
    }
    for (std::size_t r = 0; r < m.live.size(); ++r) {
      met_.cut_prefill +=
          m.scheduled[r] > 0 && m.num_computed[r] + m.scheduled[r] < m.num_tokens[r];
    }
    met_.several += with_tokens > 1;
    if (total == 0) report_.fail("scheduled", "nobody advances although requests are live");
    if (total > case_.token_budget) report_.fail("scheduled", "more tokens than the budget");
    if (reserved > usable_) report_.fail("scheduled", "more blocks promised than there are");
  }

  void tables(StepMetadata& m) {
    const auto rows = m.num_live();
    const auto groups = static_cast<std::int64_t>(layout_.groups.size());
    OpParams params;
    auto& p = params.init<as_block_tables_params>(AS_OP_BLOCK_TABLES);
    p.groups = make_tensor(m.groups.data(), {groups, 2});
    p.num_computed = make_tensor(m.num_computed.data(), {rows});
    p.scheduled = make_tensor(m.scheduled.data(), {rows});
    const auto free = static_cast<std::int64_t>(m.free_before.size());
    p.free_before = make_tensor(free > 0 ? m.free_before.data() : &nothing_, {free});
    p.tables_before = make_tensor(m.tables_before.data(), {groups, rows, m.columns});
    p.counts_before = make_tensor(m.counts_before.data(), {groups, rows});
    p.tables = make_tensor(m.tables.data(), {groups, rows, m.columns});
    p.counts = make_tensor(m.counts.data(), {groups, rows});
    p.free_after = make_tensor(m.free_after.data(), {blocks_->num_blocks()});
    run_host(host_block_tables, params);
    p.free_after = make_tensor(m.free_after.data(), {host_.free_count});
    compare_with_references(params);
    for (std::size_t i = 0; i < m.tables.size(); ++i) {
      met_.left_window += m.tables_before[i] != AS_NULL_BLOCK && m.tables[i] == AS_NULL_BLOCK;
    }
  }

  void advance(const StepMetadata& m) {
    std::vector<std::int32_t> sampled;
    for (std::size_t r = 0; r < m.live.size(); ++r) {
      sampled.push_back(below(random_, 50) == 0 ? -1 : 5);
    }
    for (const std::int32_t id : scheduler_.advance(m.live, m.scheduled, sampled)) {
      blocks_->free(id);
      ++met_.finished;
    }
  }

  StreamCase case_;
  Report report_;
  Random random_;
  CacheLayout layout_;
  std::int64_t usable_ = 0;
  Scheduler scheduler_;
  std::unique_ptr<BlockManager> blocks_;
  StepHost host_;
  Met met_;
  std::int32_t nothing_ = 0;
};

class HostOps : public testing::TestWithParam<StreamCase> {};

TEST_P(HostOps, StreamsMatchBothReferences) {
  const StreamCase& c = GetParam();
  Stream stream(c);
  SCOPED_TRACE(testing::Message() << "seed " << stream.report().seed());
  for (int i = 0; i < c.steps; ++i) ASSERT_TRUE(stream.step()) << "step " << i << stream.report();
  stream.drain();
  ASSERT_TRUE(stream.report().ok()) << stream.report();
  EXPECT_EQ(stream.blocks().num_free(), stream.usable());
  const Met& met = stream.met();
  EXPECT_GT(met.finished, 3);
  EXPECT_GT(met.left_window, 0);
  EXPECT_GT(met.cut_prefill, 0);
  if (c.max_requests == 1) {
    EXPECT_EQ(met.several, 0);
    EXPECT_GT(met.full_house, 0);
  } else if (c.token_budget > 1) {
    EXPECT_GT(met.several, 0);
    EXPECT_GT(met.full_house + met.full_pool, 0);
  }
  if (c.spare_blocks < 8 && c.max_requests > 1) {
    EXPECT_GT(met.full_pool, 0);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Streams, HostOps,
    testing::Values(StreamCase{"all_layer_types", "v4-flash", {}, 512, 8, 200},
                    StreamCase{"short_pool", "v4-flash", {}, 512, 8, 0},
                    StreamCase{"short_pool_odd_budget", "v4-flash", {}, 61, 5, 7},
                    StreamCase{"window_only", "v4-flash", {0, 1}, 129, 8, 12},
                    StreamCase{"many_window_groups", "v4-flash", {0, 1, 3}, 300, 4, 60},
                    StreamCase{"one_request", "v4-flash", {0, 2, 3}, 255, 1, 300},
                    StreamCase{"one_token", "v4-flash", {0, 2, 3}, 1, 8, 300, 800, 256},
                    StreamCase{"tiny", "tiny", {}, 37, 3, 0, 600},
                    StreamCase{"tiny_wide", "tiny", {}, 2051, 16, 500}),
    name_of<StreamCase>);

}  // namespace
}  // namespace attnscope::properties
