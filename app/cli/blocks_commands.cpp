// attnscope blocks ..: the block manager and the scheduler alone, without a model.
#include <fmt/format.h>

#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>

#include "app/cli/commands.h"
#include "app/reports/storage_report.h"
#include "app/reports/workload_report.h"
#include "app/text/interrupt.h"
#include "app/text/say.h"
#include "app/views/kv_stream.h"
#include "app/wiring/find_model.h"
#include "engine/cache/event_log.h"
#include "engine/decisions/decision_watch.h"
#include "engine/decisions/replay_judge.h"
#include "engine/family/models.h"
#include "engine/family/tensor_parallel.h"
#include "engine/io/json_file.h"
#include "engine/sched/replay.h"
#include "engine/sched/sched_invariants.h"
#include "engine/sched/workload_file.h"

namespace attnscope {
namespace {

constexpr std::size_t kLargestFile = std::size_t{1} << 30;

// What a simulation leaves beside its result.
struct Watched {
  std::shared_ptr<CacheEventLog> log;
  std::shared_ptr<SchedAuditor> auditor;
  std::shared_ptr<DecisionWatch> judge;
};

// Invariants, and decisions.
class Checked : public SchedWatch {
 public:
  explicit Checked(const Watched& watched) : auditor_(watched.auditor), judge_(watched.judge) {}
  void before_schedule() override { auditor_->before_schedule(); }
  void after_schedule(const StepPlan& plan) override {
    auditor_->after_schedule(plan);
    judge_->after_schedule(plan);
  }
  void after_results(const StepPlan& plan) override {
    auditor_->after_results(plan);
    judge_->after_results(plan);
  }
  void after_change() override {
    auditor_->after_change();
    judge_->after_change();
  }
  bool go_on() const override { return auditor_->go_on() && judge_->go_on(); }
  void detach() override { auditor_->detach(); }

 private:
  std::shared_ptr<SchedAuditor> auditor_;
  std::shared_ptr<DecisionWatch> judge_;
};

WorkloadRun watched_run(const SimulateCommand& command, Watched& watched) {
  WorkloadRun run;
  run.stopped = [] { return interrupted() != 0; };
  run.watch = [&](BlockScheduler& scheduler) -> std::shared_ptr<SchedWatch> {
    if (!command.events.empty()) {
      watched.log = std::make_shared<CacheEventLog>(std::size_t{1} << 24);
      scheduler.kv().pool().set_observer(watched.log.get());
    }
    if (!command.check) return std::make_shared<SchedWatch>();
    watched.auditor = std::make_shared<SchedAuditor>(scheduler, true);
    watched.judge = std::make_shared<DecisionWatch>(scheduler, output_token);
    return std::make_shared<Checked>(watched);
  };
  return run;
}

std::int64_t judged_decisions(const DecisionCounts& counts) {
  return std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
}

Result<void> write_events(const CacheEventLog& log, const std::string& path) {
  std::string text;
  for (const CacheEvent& event : log.events()) {
    text += event_json(event);
    text += '\n';
  }
  if (log.dropped() > 0) {
    say(stderr, "attnscope: {} older events are not in {}\n", log.dropped(), path);
  }
  return write_text_file(path, text);
}

}  // namespace

Result<as_status> simulate_command(const SimulateCommand& command) {
  std::optional<CacheProfile> profile;
  if (!command.profile.empty()) {
    Result<CacheProfile> parsed = parse_cache_profile(command.profile);
    if (!parsed) return parsed.error();
    profile = *parsed;
  }
  Result<Workload> workload = load_workload(command.workload, profile);
  if (!workload) return workload.error();
  Watched watched;
  catch_interrupts();
  Result<WorkloadResult> result = run_workload(*workload, watched_run(command, watched));
  if (!result) return result.error();
  if (!result->complete && interrupted() != 0) ended_early();
  if (watched.log) {
    if (Result<void> done = write_events(*watched.log, command.events); !done) return done.error();
  }
  if (watched.auditor) {
    for (const Violation& v : watched.auditor->findings()) {
      say(stderr, "attnscope: step {}: {}\n", result->steps, v.text());
    }
    const auto& wrong = watched.judge->wrong();
    if (wrong) {
      say(stderr, "attnscope: step {}: wrong decision, {}: {}\n", wrong->step,
          decision_name(wrong->decision), wrong->note);
    }
    if (!watched.auditor->findings().empty() || wrong) return AS_MISMATCH;
  }
  if (command.json) {
    say_json(workload_json(*workload, *result));
  } else {
    say("{}", Lines{workload_text(*workload, *result)});
    if (watched.auditor) {
      say("\nall invariants hold around {} calls\n", watched.auditor->calls());
      say("all {} decisions are those of the plain model\n",
          judged_decisions(watched.judge->counts()));
    }
  }
  return AS_OK;
}

Result<as_status> replay_command(const std::string& file) {
  Result<std::string> text = read_text_file(file, kLargestFile);
  if (!text) return text.error();
  Result<Replay> replay = parse_replay(*text, file);
  if (!replay) return replay.error();
  Result<ReplayJudge> judge = ReplayJudge::make(*replay);
  if (!judge) return judge.error();
  Result<ReplayOutcome> outcome = run_replay(*replay, &*judge);
  if (!outcome) return outcome.error();
  say("{}", Lines{outcome->lines});
  for (const ReplayMismatch& m : outcome->mismatches) {
    say(stderr, "attnscope: {}: line {}: {}\n", file, m.line, m.what);
  }
  if (const auto& wrong = judge->wrong()) {
    say(stderr, "attnscope: {}: line {}: wrong decision, {}: {}\n", file, judge->line(),
        decision_name(wrong->decision), wrong->note);
    return AS_MISMATCH;
  }
  say(stderr, "attnscope: all {} decisions are those of the plain model\n",
      judged_decisions(judge->counts()));
  return outcome->mismatches.empty() ? AS_OK : AS_MISMATCH;
}

Result<as_status> layout_command(const LayoutCommand& command) {
  Result<ModelConfig> config = find_model(command.model, command.layers, command.model_profile);
  if (!config) return config.error();
  if (!command.cache_dtype.empty()) {
    if (auto ok = set_cache_dtype(*config, command.cache_dtype); !ok) return ok.error();
  }
  if (command.first_tokens >= 0) {
    if (auto ok = set_first_tokens(*config, command.first_tokens); !ok) return ok.error();
  }
  Result<CacheProfile> profile = parse_cache_profile(command.profile);
  if (!profile) return profile.error();
  StorageQuestion question;
  question.profile = *profile;
  question.bytes = static_cast<std::int64_t>(command.gpu_memory * 1073741824.0);
  question.max_model_len = command.max_model_len > 0 ? command.max_model_len : config->max_position;
  question.token_budget = command.token_budget;
  question.parallel.size = command.ranks;
  if (auto ok = check_parallel(*config, question.parallel); !ok) {
    return bad_input(fmt::format("--tp {}: {}", command.ranks, ok.error().message),
                     ok.error().hint);
  }
  const nlohmann::ordered_json report = storage_report(*config, question);
  if (command.json) {
    say_json(report);
  } else {
    say("{}", Lines{storage_text(report)});
  }
  return AS_OK;
}

Result<as_status> cache_events_command(const std::string& file, bool as_json) {
  auto stream = read_kv_stream(file);
  if (!stream) return stream.error();
  const std::size_t batches = (*stream)->batches.size();
  KvStreamMap map(*stream);
  map.seek(static_cast<std::int64_t>(batches) - 1);
  const KvStreamCounts& events = map.counts();
  std::map<std::int32_t, std::pair<std::int64_t, std::int64_t>> groups;  // keys, blocks
  for (const auto& [key, entry] : map.entries()) {
    ++groups[key.group].first;
    groups[key.group].second += entry.blocks;
  }
  nlohmann::ordered_json report = {
      {"format", "attnscope-cache-events"},
      {"version", 1},
      {"batches", batches},
      {"events",
       {{"stored", events.stored}, {"removed", events.removed}, {"cleared", events.cleared}}},
      {"removed_unknown", events.unknown}};
  report["groups"] = nlohmann::ordered_json::array();
  for (const auto& [group, counts] : groups) {
    report["groups"].push_back(
        {{"group", group < 0 ? nlohmann::ordered_json(nullptr) : nlohmann::ordered_json(group)},
         {"hash_entries", counts.first},
         {"blocks", counts.second}});
  }
  if (as_json) {
    say_json(report);
    return AS_OK;
  }
  say("{} batches: {} stored, {} removed, {} cleared; {} removals of unknown content\n", batches,
      events.stored, events.removed, events.cleared, events.unknown);
  for (const auto& [group, counts] : groups) {
    const std::string name = group < 0 ? "not said" : std::to_string(group);
    say("group {}: {} hash entries, {} blocks\n", name, counts.first, counts.second);
  }
  return AS_OK;
}

}  // namespace attnscope
