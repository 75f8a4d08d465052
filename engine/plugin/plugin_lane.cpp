#include "engine/plugin/plugin_lane.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <utility>

#include "engine/opcase/op_case.h"
#include "engine/plugin/load.h"
#include "kernels/params/op_table.h"

namespace attnscope {
namespace {

constexpr std::size_t kMostPlugins = 8;

// A lane's functions have no place for an object: one set of them for each plugin.
std::array<PluginLane*, kMostPlugins> open_plugins{};

template <std::size_t Slot, std::size_t Op>
std::int32_t enter(const void* params, const as_call* call, as_error* error) {
  return open_plugins[Slot]->run(static_cast<as_op_id>(Op), params, call, error);
}

using Functions = std::array<as_op_fn, AS_OP_COUNT>;

template <std::size_t Slot, std::size_t... Ops>
constexpr Functions functions_of(std::index_sequence<Ops...>) {
  return {enter<Slot, Ops>...};
}

template <std::size_t... Slots>
constexpr std::array<Functions, kMostPlugins> all_functions(std::index_sequence<Slots...>) {
  return {functions_of<Slots>(std::make_index_sequence<AS_OP_COUNT>())...};
}

constexpr auto kFunctions = all_functions(std::make_index_sequence<kMostPlugins>());

std::int32_t fail(as_error* error, std::int32_t code, const std::string& message) {
  if (error != nullptr) {
    error->code = code;
    std::strncpy(error->message, message.c_str(), sizeof(error->message) - 1);
    error->message[sizeof(error->message) - 1] = '\0';
  }
  return code;
}

// Microseconds of a call, or what it returned.
Result<double> timed(as_op_fn function, const void* params, const as_call* call) {
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

// The first calls, then fewer and fewer: prompts and decode steps are both among them.
bool is_timed(std::int64_t call) {
  return call < 4 || (call & (call - 1)) == 0;  // powers of two
}

}  // namespace

std::string PluginFault::text() const {
  return fmt::format("{}: {} {}", lane, as_op_find(op)->name, what);
}

Result<std::unique_ptr<PluginLane>> PluginLane::open(const PluginOptions& options) {
  std::unique_ptr<PluginLane> plugin(new PluginLane(options));
  const auto free = std::find(open_plugins.begin(), open_plugins.end(), nullptr);
  if (free == open_plugins.end()) {
    return usage_error(fmt::format("--plugin {}: too many plugins", options.library),
                       fmt::format("at most {} at once", kMostPlugins));
  }
  std::array<bool, AS_OP_COUNT> has{};
  if (options.in_process) {
    auto loaded = load_plugin_lane(options.library);
    if (!loaded) return loaded.error();
    plugin->loaded_ = *loaded;
    plugin->name_ = loaded->name;
    plugin->description_ = loaded->description != nullptr ? loaded->description : "";
    for (std::size_t op = 0; op < has.size(); ++op) has[op] = loaded->ops[op] != nullptr;
  } else {
    plugin->process_ =
        std::make_unique<PluginProcess>(options.program, options.library, options.seconds_limit);
    auto info = plugin->process_->start();
    if (!info) return info.error();
    plugin->name_ = info->name;
    plugin->description_ = info->description;
    has = info->ops;
  }
  plugin->name_ = "plugin:" + plugin->name_;
  plugin->slot_ = static_cast<int>(free - open_plugins.begin());
  *free = plugin.get();
  as_lane& lane = plugin->lane_;
  lane.struct_size = sizeof(lane);
  lane.version = AS_LANE_VERSION;
  lane.name = plugin->name_.c_str();
  lane.description = plugin->description_.c_str();
  for (std::size_t op = 0; op < has.size(); ++op) {
    plugin->timings_[op].op = static_cast<as_op_id>(op);
    if (has[op]) lane.ops[op] = kFunctions[static_cast<std::size_t>(plugin->slot_)][op];
  }
  return plugin;
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
  std::vector<PluginTiming> out(timings_.begin(), timings_.end());
  std::erase_if(out, [](const PluginTiming& t) { return t.calls == 0; });
  return out;
}

Result<double> PluginLane::run_plugin(as_op_id op, const void* params, const as_call* call) {
  if (options_.in_process) return timed(loaded_.ops[op], params, call);
  const int threads = call->threads != nullptr ? call->threads->num_threads : 1;
  return process_->call(op, params, threads);
}

void PluginLane::reset_timings() {
  const std::lock_guard lock(mutex_);
  for (PluginTiming& t : timings_) t = {t.op, 0, 0, {}};
}

std::optional<double> PluginLane::time_stand_in(as_op_id op, const void* params,
                                                const as_call* call) {
  if (options_.stand_in == nullptr || !is_timed(timings_[op].calls)) return std::nullopt;
  const as_op_fn function = options_.stand_in->ops[op];
  auto kept = keep_case(*find_case_op(op), params, {});
  if (function == nullptr || !kept) return std::nullopt;
  auto copy = CaseCall::make(*kept);
  if (!copy) return std::nullopt;
  auto time = timed(function, copy->params(), call);
  return time ? std::optional(*time) : std::nullopt;
}

std::int32_t PluginLane::run(as_op_id op, const void* params, const as_call* call,
                             as_error* error) {
  const std::lock_guard lock(mutex_);
  const as_op_fn instead =
      !strict_ && options_.stand_in != nullptr ? options_.stand_in->ops[op] : nullptr;
  if (failed_[op] && instead != nullptr) return instead(params, call, error);
  const auto stand_in = time_stand_in(op, params, call);
  auto time = run_plugin(op, params, call);
  PluginTiming& timing = timings_[op];
  ++timing.calls;
  if (time) {
    timing.microseconds = timing.microseconds == 0 ? *time : std::min(timing.microseconds, *time);
    if (stand_in && (!timing.pair || *time < timing.pair->plugin)) timing.pair = {*time, *stand_in};
    return AS_OK;
  }
  ++failures_;
  const PluginFault fault = {name_, op, time.error().message};
  if (instead == nullptr) return fail(error, time.error().code, fault.what);
  failed_[op] = true;
  faults_.push_back(fault);
  if (on_fault_) on_fault_(fault);
  return instead(params, call, error);
}

}  // namespace attnscope
