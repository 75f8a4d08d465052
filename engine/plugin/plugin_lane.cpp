#include "engine/plugin/plugin_lane.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <utility>

#include "engine/backend/stand_in.h"
#include "engine/opcase/op_case.h"
#include "engine/plugin/load.h"
#include "kernels/params/op_table.h"

namespace attnscope {
namespace {

constexpr std::size_t kMostPlugins = 8;

// A lane's functions have no place for an object: one set of them for each plugin.
std::array<PluginLane*, kMostPlugins> open_plugins{};

template <std::size_t Slot, std::size_t Place>
std::int32_t enter(const void* params, const as_call* call, as_error* error) {
  return open_plugins[Slot]->run(as_op_at(Place)->id, params, call, error);
}

using Functions = std::array<as_op_fn, AS_NUM_OPS>;  // in the order of the op table

template <std::size_t Slot, std::size_t... Places>
constexpr Functions functions_of(std::index_sequence<Places...>) {
  return {enter<Slot, Places>...};
}

template <std::size_t... Slots>
constexpr std::array<Functions, kMostPlugins> all_functions(std::index_sequence<Slots...>) {
  return {functions_of<Slots>(std::make_index_sequence<AS_NUM_OPS>())...};
}

constexpr auto kFunctions = all_functions(std::make_index_sequence<kMostPlugins>());

std::int32_t set_error(as_error* error, std::int32_t code, const std::string& message) {
  if (error != nullptr) {
    error->code = code;
    std::strncpy(error->message, message.c_str(), sizeof(error->message) - 1);
    error->message[sizeof(error->message) - 1] = '\0';
  }
  return code;
}

// Microseconds of a call, or what it returned.
Result<double> timed(const DeviceImage::Function& function, const void* params,
                     const as_call* call) {
  as_error error{};
  const auto start = std::chrono::steady_clock::now();
  const std::int32_t status = function(params, call, &error);
  const std::chrono::duration<double, std::micro> elapsed =
      std::chrono::steady_clock::now() - start;
  error.message[sizeof(error.message) - 1] = '\0';
  if (status == AS_OK) return elapsed.count();
  return bad_input(fmt::format("returned status {}: {}", status,
                               error.message[0] != '\0' ? error.message : "no message"));
}

// Of what the op puts out.
std::int64_t rows_of_call(as_op_id op, const void* params) {
  const CaseOp of = *find_case_op(op);
  std::int64_t rows = 0;
  for (const as_tap_info& tap : of.taps) {
    if (tap.kind != AS_TAP_TENSOR) continue;
    const as_tensor& t = tensor_at(params, tap.offset);
    if (t.data == nullptr || t.rank == 0) continue;
    if (tap.direction == AS_TAP_OUT) return t.shape[0];
    if (rows == 0) rows = t.shape[0];  // of an op that writes to a cache alone
  }
  return rows;
}

// The first calls of a size, then fewer and fewer.
bool is_timed(std::int64_t call) {
  return call < 4 || (call & (call - 1)) == 0;  // powers of two
}

}  // namespace

std::string PluginFault::text() const {
  return fmt::format("{}: {} {}", lane, as_op_find(op)->name, what);
}

std::string PluginFault::text_with(const char* stand_in) const {
  return fmt::format("{}; lane {} carries out {} from here on", text(), stand_in,
                     as_op_find(op)->name);
}

Result<std::unique_ptr<PluginLane>> PluginLane::open(const PluginOptions& options) {
  std::unique_ptr<PluginLane> plugin(new PluginLane(options));
  const auto free = std::find(open_plugins.begin(), open_plugins.end(), nullptr);
  if (free == open_plugins.end()) {
    return usage_error(fmt::format("--plugin {}: too many plugins", options.library),
                       fmt::format("at most {} at once", kMostPlugins));
  }
  auto info = plugin->load();
  if (!info) return info.error();
  plugin->name_ = "plugin:" + info->name;
  plugin->description_ = info->description;
  plugin->on_device_ = info->on_device;
  plugin->slot_ = static_cast<int>(free - open_plugins.begin());
  *free = plugin.get();
  Lane& lane = plugin->lane_;
  lane.name = plugin->name_.c_str();
  lane.description = plugin->description_.c_str();
  const Functions& functions = kFunctions[static_cast<std::size_t>(plugin->slot_)];
  for (int i = 0; const as_op_info* op = as_op_at(i); ++i) {
    if (info->ops[op->id]) lane.ops[op->id] = functions[static_cast<std::size_t>(i)];
  }
  return plugin;
}

Result<PluginInfo> PluginLane::load() {
  PluginInfo info;
  if (options_.in_process) {
    auto loaded = load_plugin(options_.library);
    if (!loaded) return loaded.error();
    loaded_ = std::move(*loaded);
    info.name = loaded_.name;
    info.description = loaded_.description;
    for (int i = 0; const as_op_info* op = as_op_at(i); ++i) {
      info.ops[op->id] = loaded_.ops[op->id].run != nullptr;
      info.on_device[op->id] = loaded_.ops[op->id].on_device;
    }
  } else {
    process_ =
        std::make_unique<PluginProcess>(options_.program, options_.library, options_.seconds_limit);
    auto started = process_->start();
    if (!started) return started.error();
    info = *started;
  }
  const auto first = std::find(info.on_device.begin(), info.on_device.end(), true);
  if (first == info.on_device.end()) return info;
  auto device = options_.open_device();
  if (!device) {
    const auto place = static_cast<std::int32_t>(first - info.on_device.begin());
    return Error{AS_NO_ENVIRONMENT,
                 fmt::format("plugin {}: its {} takes tensors on the GPU: {}", options_.library,
                             as_op_at(place)->name, device.error().message),
                 "run it where there is a GPU, with a build that has the CUDA lane"};
  }
  image_ = std::make_unique<DeviceImage>(*device);
  if (process_) {
    if (auto ok = process_->attach(image_.get()); !ok) return ok.error();
  }
  return info;
}

PluginLane::~PluginLane() {
  if (slot_ >= 0) open_plugins[static_cast<std::size_t>(slot_)] = nullptr;
}

std::vector<PluginFault> PluginLane::faults() const {
  const std::lock_guard lock(mutex_);
  return faults_;
}

std::vector<PluginTiming> PluginLane::timings() const {
  const std::lock_guard lock(mutex_);
  std::vector<PluginTiming> out;
  for (const auto& sizes : timings_) {
    if (sizes.empty()) continue;
    std::int64_t calls = 0;
    const PluginTiming* shown = nullptr;
    for (const auto& [rows, timing] : sizes) {  // ascending
      calls += timing.calls;
      if (shown == nullptr || timing.pair || !shown->pair) shown = &timing;
    }
    out.push_back(*shown);
    out.back().all_calls = calls;
  }
  return out;
}

DeviceImage::Function PluginLane::in_process(as_op_id op) const {
  return [this, op](const void* params, const as_call* call, as_error* error) {
    return loaded_.call(op, params, call, error);
  };
}

Result<double> PluginLane::run_plugin(as_op_id op, const void* params, const as_call* call) {
  if (options_.in_process) {
    return on_device_[op] ? run_here_on_device(op, params, call)
                          : timed(in_process(op), params, call);
  }
  const int threads = call->threads != nullptr ? call->threads->num_threads : 1;
  return process_->call(op, params, threads);
}

Result<double> PluginLane::run_here_on_device(as_op_id op, const void* params,
                                              const as_call* call) {
  auto kept = keep_case(*find_case_op(op), params, {});
  if (!kept) return kept.error();
  image_->clear();
  auto copy = CaseCall::make(*kept, *image_);
  if (!copy) return copy.error();
  auto time = image_->run(in_process(op), *copy, call->threads);
  if (!time) return time;
  auto wrong = image_->download();
  if (!wrong) return wrong.error();
  if (wrong->empty()) *wrong = strays(*copy, *kept);
  if (!wrong->empty()) return bad_input(*wrong);
  copy_outputs(*copy, const_cast<void*>(params));
  return time;
}

void PluginLane::reset_timings() {
  const std::lock_guard lock(mutex_);
  for (auto& sizes : timings_) sizes.clear();
}

std::optional<double> PluginLane::time_other(as_op_id op, const void* params, const as_call* call,
                                             std::int64_t calls_before) {
  const Lane* other = beside(op);
  if (other == nullptr || other->ops[op] == nullptr || !is_timed(calls_before)) {
    return std::nullopt;
  }
  auto kept = keep_case(*find_case_op(op), params, {});
  if (!kept) return std::nullopt;
  if (on_device_[op]) image_->clear();
  auto copy = on_device_[op] ? CaseCall::make(*kept, *image_) : CaseCall::make(*kept);
  if (!copy) return std::nullopt;
  auto time = on_device_[op] ? image_->run(other->ops[op], *copy, call->threads)
                             : timed(other->ops[op], copy->params(), call);
  return time ? std::optional(*time) : std::nullopt;
}

std::int32_t PluginLane::run(as_op_id op, const void* params, const as_call* call,
                             as_error* error) {
  const std::lock_guard lock(mutex_);
  const as_op_fn instead =
      !strict_ && options_.stand_in != nullptr ? options_.stand_in->ops[op] : nullptr;
  if (failed_[op] && instead != nullptr) {
    note_stand_in({options_.stand_in, failed_[op]->text_with(options_.stand_in->name)});
    return instead(params, call, error);
  }
  PluginTiming& timing = timings_[op][rows_of_call(op, params)];
  timing.op = op;
  timing.rows = rows_of_call(op, params);
  const auto other = time_other(op, params, call, timing.calls);
  auto time = run_plugin(op, params, call);
  ++timing.calls;
  if (time) {
    timing.microseconds = timing.microseconds == 0 ? *time : std::min(timing.microseconds, *time);
    if (other && (!timing.pair || *time < timing.pair->plugin)) {
      timing.pair = {*time, *other, beside(op)->name};
    }
    return AS_OK;
  }
  ++failures_;
  const PluginFault fault = {name_, op, time.error().message};
  if (instead == nullptr) return set_error(error, time.error().code, fault.what);
  failed_[op] = fault;
  faults_.push_back(fault);
  if (on_fault_) on_fault_(fault);
  note_stand_in({options_.stand_in, fault.text_with(options_.stand_in->name)});
  return instead(params, call, error);
}

}  // namespace attnscope
