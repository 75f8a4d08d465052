// A session on a device: opening it, decode steps by plan, GPU times, and leaving it when it fails.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "engine/family/family.h"
#include "engine/family/selected_entries.h"
#include "engine/io/elapsed.h"
#include "engine/session/rewind_points.h"

namespace attnscope {
namespace {

// The largest step that the session's requests can come to.
PlanShape largest_step(const std::vector<Request>& requests, const SessionParts& parts) {
  PlanShape most;
  most.live = static_cast<std::int64_t>(requests.size());
  std::int64_t longest = 1;
  for (const Request& request : requests) longest = std::max(longest, request.max_len());
  std::int64_t smallest_block = longest;
  for (const CacheGroup& group : parts.layout.groups) {
    smallest_block = std::min<std::int64_t>(smallest_block, group.block_tokens);
  }
  most.columns = (longest + smallest_block - 1) / smallest_block;
  most.logits = std::max<std::int64_t>(1, longest / tokens_of_selected(parts.config));
  most.list_columns = parts.graph->family->list_columns(longest, parts.config);
  return most;
}

}  // namespace

bool Session::seen() const {
  return observer_ != nullptr || witness_ || references() != References::kNone || !whole_step_;
}

Error Session::device_failure(const Error& why) {
  device_failed_ = why.code == AS_NO_ENVIRONMENT;
  return {why.code,
          fmt::format("step {}, lane {}: {}", cursor_.step, DeviceRun::kLane, why.message),
          why.hint};
}

Result<void> Session::open_device() {
  if (device_ || !DeviceRun::wanted(lanes_)) return {};
  if (compute_device_ == nullptr) {
    auto opened = open_cuda_device();
    if (!opened) return device_failure(opened.error());
    compute_device_ = std::move(*opened);
  }
  auto made = DeviceRun::make(compute_device_, parts_, *slab_,
                              largest_step(serving_->requests(), parts_), serial_);
  if (!made) return device_failure(made.error());
  device_ = std::move(*made);
  device_->residency().inputs().before_change([this] {
    verifier_->inputs_changed();
    return verifier_->settle();
  });
  return {};
}

Result<bool> Session::try_plan(as_op_id next) {
  if (!device_) return false;
  const bool whole = whole_step_ && !seen();
  const bool at_layers = cursor_.layer == 0 && cursor_.op == 0;
  // What is missed the host says, layer by layer, and it has the rows of ranks.
  const bool by_layer = tier_.has_value() || context_ != nullptr;
  const bool may_plan = change_ == nullptr && !by_layer;
  const bool at_lists = next == AS_OP_SLOT_MAPPING && whole && !by_layer &&
                        DeviceRun::makes_lists(*parts_.graph, lanes_);
  if (!at_layers && !at_lists) {
    if (next == AS_OP_SLOT_MAPPING) judge_plan();
    return false;
  }
  const as_tensor hidden = frame_.get(parts_.graph->hidden);
  auto begun = device_->begin_layers(metadata_, hidden, lanes_, may_plan, whole);
  if (!begun) return device_failure(begun.error());
  if (!device_->planned() || !whole) {
    judge_plan();
    return false;
  }
  if (auto ok = run_planned(at_lists); !ok) return ok.error();
  return true;
}

Result<void> Session::run_planned(bool lists) {
  const auto start = std::chrono::steady_clock::now();
  const auto rows = static_cast<std::int64_t>(metadata_.sample_rows.size());
  const as_tensor sampled = frame_.make(parts_.graph->sampled, AS_I32, {rows});
  launched_at_ = current_.seconds;
  if (auto ok = device_->launch(op_times_); !ok) return device_failure(ok.error());
  // Beside the device: what does not need its answer.
  judge_plan();
  PlannedRecord& record = planned_records_[{rows, lists}];
  if (record.timings.empty()) {
    if (auto ok = record_planned(lists, record); !ok) return ok;
  }
  current_.timings.insert(current_.timings.end(), record.timings.begin(), record.timings.end());
  verifier_->unseen_again(record.results, metadata_);
  if (auto ok = device_->finish(metadata_, sampled); !ok) return device_failure(ok.error());
  current_.seconds += seconds_since(start);
  if (lists) note_selective();
  ran_any_ = false;
  finish_step();
  return {};
}

// As if every op had run by itself.
Result<void> Session::record_planned(bool lists, PlannedRecord& record) {
  const PagedSource source(parts_.layout, *slab_, metadata_, tier());
  const OpContext context = op_context();
  const auto note = [&](as_op_id op, int layer, const OpParams& params) -> Result<void> {
    const int published = layer < 0 ? -1 : parts_.config.layers[static_cast<std::size_t>(layer)];
    record.timings.push_back({op, published, OpTiming::kNotMeasured, OpTiming::kNotMeasured, 0});
    return verifier_->unseen(layer, params, lanes_.lane(op), record.results);
  };
  const ModelGraph& graph = *parts_.graph;
  for (const as_op_id op : list_ops(graph)) {
    if (!lists) break;
    auto ok = note(op, -1, list_op_params(op, graph, metadata_, parts_.config, parts_.layout));
    if (!ok) return ok;
  }
  for (int layer = 0; layer < parts_.config.num_layers(); ++layer) {
    for (const as_op_id op : graph.layer(layer).ops()) {
      auto ok = note(op, layer, layer_op_params(op, layer, context, frame_, source));
      if (!ok) return ok;
    }
  }
  gather_last(graph, frame_, metadata_, false);
  for (const as_op_id op : graph.after.ops()) {
    if (auto ok = note(op, -1, layer_op_params(op, -1, context, frame_, source)); !ok) return ok;
  }
  return {};
}

Result<void> Session::take_device_times() {
  auto times = device_->take_times();
  if (!times) return times.error();
  for (const DecodePlan::Timed& time : *times) {
    const int published =
        time.layer < 0 ? -1 : parts_.config.layers[static_cast<std::size_t>(time.layer)];
    const auto timing =
        std::find_if(current_.timings.begin(), current_.timings.end(),
                     [&](const OpTiming& t) { return t.op == time.op && t.layer == published; });
    if (timing == current_.timings.end()) continue;
    timing->microseconds = time.microseconds;
    if (timing->start != OpTiming::kNotMeasured) continue;  // ran by itself
    timing->start = launched_at_ * 1e6 + time.start;
    timing->stream = time.stream;
  }
  return {};
}

Result<void> Session::leave_device(const Error& why) {
  device_failed_ = false;
  device_error_ = why;
  const Cursor target = cursor_;
  device_.reset();
  compute_device_.reset();
  const RewindPoint& from = *rewind_points_->at_or_before(target.step);
  const LaneSelector before = std::prev(lanes_from_.upper_bound(from.step))->second;
  lanes_from_.insert_or_assign(from.step, before);
  for (auto it = lanes_from_.find(from.step); it != lanes_from_.end(); ++it) {
    it->second = it->second.without(DeviceRun::kLane, *cpu_lanes_);
  }
  rewind_points_->drop_after(from.step);
  replay_watch_.forget_after(from.step);
  restore(from);
  ahead_.clear();
  if (observer_ != nullptr) observer_->lanes_changed(*this);
  if (auto ok = seek(target); !ok || cancelled_) return ok;
  return op();
}

}  // namespace attnscope
