#include "app/reports/scale.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <ctime>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "app/reports/doctor.h"
#include "app/wiring/wiring.h"
#include "engine/family/models.h"
#include "engine/model/memory.h"
#include "kernels/cpu/cpu_lane.h"
#include "kernels/cpu/thread_pool.h"
#include "kernels/cuda/device.h"

namespace attnscope {
namespace {

constexpr char kModel[] = "v4-flash";
constexpr std::int64_t kMostOnHost = 1 << 18;
constexpr std::int64_t kMostRequests = 1024;

// Of the kernel module; empty where the system does not tell.
std::string driver_version() {
  std::ifstream file("/proc/driver/nvidia/version");
  std::string line;
  std::getline(file, line);
  std::istringstream words(line);
  for (std::string word; words >> word;) {
    const bool number = std::isdigit(static_cast<unsigned char>(word[0])) != 0;
    if (number && word.find('.') != std::string::npos) return word;
  }
  return "";
}

std::string cuda_version(int number) {
  return fmt::format("{}.{}", number / 1000, number % 1000 / 10);
}

std::string today() {
  const std::time_t now = std::time(nullptr);
  return fmt::format("{:%Y-%m-%d}", fmt::gmtime(now));
}

ScaleHow describe(const ScaleOptions& options, const std::string& lane, const LaneTimer& timer) {
  const nlohmann::json machine = describe_machine();
  ScaleHow how;
  how.model = kModel;
  how.lane = lane;
  how.processor = machine.at("processor").get<std::string>();
  how.simd = machine.at("simd").get<std::string>();
  how.compiler = machine.at("compiler").get<std::string>();
  how.date = today();
  how.requests = options.requests;
  how.cache_bytes = static_cast<std::int64_t>(timer.cache_bytes());
  how.rounds = timer.rounds();
  how.method = timer.method();
  return how;
}

Result<std::vector<std::int64_t>> contexts_of(const ScaleOptions& options, std::int64_t most) {
  const std::int64_t last = options.max_context == 0 ? most : options.max_context;
  if (last < kLeastContext || last > kMostContext) {
    return usage_error(fmt::format("--max-context is {}", last),
                       fmt::format("allowed: {} to {} tokens", kLeastContext, kMostContext));
  }
  if (options.requests < 1 || options.requests > kMostRequests) {
    return usage_error(fmt::format("--requests is {}", options.requests),
                       fmt::format("allowed: 1 to {}", kMostRequests));
  }
  std::vector<std::int64_t> contexts;
  for (std::int64_t c = kLeastContext; c <= last; c *= 2) contexts.push_back(c);
  return contexts;
}

Result<ScaleResult> on_host(const ScaleOptions& options, const ModelConfig& config) {
  const auto contexts = contexts_of(options, kMostOnHost);
  if (!contexts) return contexts.error();
  const cpu::ThreadPool pool(options.threads);
  const auto timer = host_timer(pool.handle(), last_level_cache_bytes());
  ScaleResult out;
  out.how = describe(options, "cpu", *timer);
  out.how.threads = pool.num_threads();
  const std::int64_t available = available_memory();
  const ScaleAsked asked{*contexts, options.requests,
                         available < 0 ? std::int64_t{1} << 32 : available / 2};
  if (auto ok = measure_ops(config, *cpu::lane(), *timer, asked, out); !ok) return ok.error();
  return out;
}

Result<ScaleResult> on_gpu(const ScaleOptions& options, const ModelConfig& config) {
  const auto contexts = contexts_of(options, kMostContext);
  if (!contexts) return contexts.error();
  const auto& found = cuda::Device::get();
  if (!found) return found.error();
  const cuda::DeviceInfo& info = (*found)->info();
  auto device = open_cuda_device();
  if (!device) return device.error();
  const auto timer = device_timer(*device, info.l2);
  ScaleResult out;
  out.how = describe(options, "cuda", *timer);
  out.how.gpu = info.name;
  out.how.driver = driver_version();
  if (out.how.driver.empty()) out.how.driver = "for CUDA " + cuda_version(info.driver);
  out.how.cuda = cuda_version(info.runtime);
  // The rest is for workspaces and for what overwrites the L2.
  const auto free = static_cast<std::int64_t>((*found)->free_memory());
  const ScaleAsked asked{*contexts, options.requests, free / 10 * 8};
  const LaneRegistry lanes = all_lanes();
  if (auto ok = measure_ops(config, *lanes.find("cuda"), *timer, asked, out); !ok) {
    return ok.error();
  }
  return out;
}

}  // namespace

bool ScaleResult::memory_equal() const {
  return std::ranges::all_of(memory, [](const ScaleMemory& m) { return m.equal; });
}

Result<ScaleResult> measure_scale(const ScaleOptions& options) {
  const Result<ModelConfig> config = preset(kModel);
  if (!config) return config.error();
  if (!options.lane.empty() && options.lane != "cpu" && options.lane != "cuda") {
    return usage_error("there is no timed lane '" + options.lane + "'", "lanes: cpu, cuda");
  }
  const bool gpu = options.lane == "cuda" || (options.lane.empty() && cuda::Device::get());
  Result<ScaleResult> out = gpu ? on_gpu(options, *config) : on_host(options, *config);
  if (!out) return out.error();
  std::vector<std::int64_t> contexts;
  for (const ScaleLine& line : out->lines) {
    for (const ScalePoint& point : line.points) contexts.push_back(point.context);
  }
  std::ranges::sort(contexts);
  contexts.erase(std::unique(contexts.begin(), contexts.end()), contexts.end());
  auto memory = measure_memory(*config, contexts);
  if (!memory) return memory.error();
  out->memory = std::move(*memory);
  out->blocks = measure_blocks(options.max_blocks);
  return out;
}

}  // namespace attnscope
