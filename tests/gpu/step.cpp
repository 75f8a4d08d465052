// Time of whole decode steps on the CUDA lane, with v4-flash dimensions: what a step takes from one
// call to the next, and the share of every op. Prints two tables per number of requests.
//
// A step's time is the median over steps without events around ops. The shares come from other
// steps, whose graph has them; ops of different branches overlap, so that shares add up to more
// than the step.
//
// Usage: gpu_step [REQUESTS=TOKENS ..]: requests of so many prompt tokens each; default 1=4200
// 8=2100 64=2100. --lane LANE: as on the command line, may be repeated (default cuda). --serial:
// each op after the one before it, in place of branches beside each other.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <map>
#include <string>
#include <vector>

#include "engine/session/session.h"
#include "kernels/cpu/cpu_lane.h"
#include "kernels/cuda/cuda_lane.h"
#include "kernels/cuda/device.h"
#include "tests/gpu/need.h"

namespace attnscope {
namespace {

constexpr int kSteps = 60;       // measured
constexpr int kTimedSteps = 20;  // with events

double seconds_of(const std::function<void()>& work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

double quantile(std::vector<double> values, double q) {
  std::sort(values.begin(), values.end());
  return values[static_cast<std::size_t>(q * static_cast<double>(values.size() - 1))];
}

// The scenario of tests/gpu/scenarios with requests of other lengths and texts.
Scenario scenario_of(std::int64_t requests, std::int64_t tokens) {
  Scenario s = need(load_scenario(ATTNSCOPE_SOURCE_DIR "/tests/gpu/scenarios/flash.json"));
  const ScenarioRequest one = s.requests.front();
  s.requests.clear();
  for (std::int64_t r = 0; r < requests; ++r) {
    ScenarioRequest& request = s.requests.emplace_back();
    request.name = fmt::format("r{}", r);
    for (std::int64_t t = 0; t < tokens; ++t) {
      const auto at = static_cast<std::size_t>(t + 17 * r) % one.tokens.size();
      request.tokens.push_back(one.tokens[at]);
    }
    request.max_new_tokens = 2 * (kSteps + kTimedSteps) + 200;
  }
  s.limits.max_requests = requests;
  s.limits.token_budget = std::max<std::int64_t>(2048, requests);
  s.pool_blocks = 2500 + requests * (tokens + 400) / 6;
  return s;
}

// Decode steps; the time of each.
std::vector<double> steps(Session& session, int count) {
  std::vector<double> times;
  for (int i = 0; i < count; ++i) {
    times.push_back(1e6 * seconds_of([&] { need(session.step()); }));
  }
  return times;
}

// Of each layer: the sum of its ops, and from the first one's start to the last one's end; medians.
void print_layers(const Session& session, std::size_t first) {
  struct Layer {
    std::vector<double> sums, spans;
  };
  std::map<int, Layer> layers;
  for (std::size_t i = first; i < session.history().size(); ++i) {
    std::map<int, std::array<double, 3>> of_step;  // sum, start, end
    for (const OpTiming& t : session.history()[i].timings) {
      if (t.layer < 0 || !t.placed()) continue;
      auto [it, fresh] = of_step.try_emplace(t.layer, std::array{0.0, t.start, 0.0});
      it->second[0] += t.microseconds;
      it->second[1] = std::min(it->second[1], t.start);
      it->second[2] = std::max(it->second[2], t.start + t.microseconds);
    }
    for (const auto& [layer, times] : of_step) {
      layers[layer].sums.push_back(times[0]);
      layers[layer].spans.push_back(times[2] - times[1]);
    }
  }
  for (const auto& [layer, times] : layers) {
    fmt::print("  layer {}: ops {:.1f} us, from first to last {:.1f}\n", layer,
               quantile(times.sums, 0.5), quantile(times.spans, 0.5));
  }
}

void measure(std::int64_t requests, std::int64_t tokens, const std::vector<std::string>& lanes,
             bool serial) {
  LaneRegistry registry;
  registry.add(*cpu::lane());
  registry.add(*cuda::lane());
  SessionOptions options;
  options.lanes = lanes;
  options.references = References::kNone;
  options.rewind_every = 0;
  options.serial = serial;
  options.tolerance_file = ATTNSCOPE_SOURCE_DIR "/assets/tolerances.json";
  std::unique_ptr<Session> session;
  const double made = seconds_of(
      [&] { session = need(Session::create(scenario_of(requests, tokens), registry, options)); });
  const double prefill = seconds_of([&] {
    while (!session->decoding()) need(session->step());
  });
  steps(*session, 10);
  const std::size_t first = session->history().size();
  const std::vector<double> plain = steps(*session, kSteps);
  std::vector<double> inside;
  for (std::size_t i = first; i < session->history().size(); ++i) {
    inside.push_back(1e6 * session->history()[i].seconds);
  }
  session->measure_ops(true);
  steps(*session, 4);
  const std::size_t second = session->history().size();
  const std::vector<double> timed = steps(*session, kTimedSteps);
  if (session->device_error()) need(Result<void>(*session->device_error()));
  const double step = quantile(plain, 0.5);
  fmt::print("\n{} requests of {} tokens{}: made in {:.1f} s, prefill {:.1f} s\n", requests, tokens,
             serial ? ", serial" : "", made, prefill);
  fmt::print(
      "  decode step {:.1f} us (p10 {:.1f}, p90 {:.1f}), in ops {:.1f}, on the host around "
      "them {:.1f}; with events around ops {:.1f}\n",
      step, quantile(plain, 0.1), quantile(plain, 0.9), quantile(inside, 0.5),
      step - quantile(inside, 0.5), quantile(timed, 0.5));
  print_layers(*session, second);
  // By op, over all layers: the median of its sum in a step.
  std::map<as_op_id, std::vector<double>> ops;
  std::map<as_op_id, int> calls;
  for (std::size_t i = second; i < session->history().size(); ++i) {
    std::map<as_op_id, double> sums;
    for (const OpTiming& t : session->history()[i].timings) {
      sums[t.op] += t.microseconds;
      if (i == second) ++calls[t.op];
    }
    for (const auto& [op, sum] : sums) ops[op].push_back(sum);
  }
  double total = 0;
  std::vector<std::pair<double, as_op_id>> order;
  for (const auto& [op, sums] : ops) {
    order.emplace_back(quantile(sums, 0.5), op);
    total += order.back().first;
  }
  std::sort(order.rbegin(), order.rend());
  fmt::print("  {:<28}{:>6}{:>10}{:>9}\n", "op", "calls", "us", "share");
  for (const auto& [us, op] : order) {
    fmt::print("  {:<28}{:>6}{:>10.1f}{:>8.1f}%\n", as_op_find(op)->name, calls[op], us,
               100 * us / total);
  }
  fmt::print("  {:<28}{:>6}{:>10.1f}\n", "sum", "", total);
}

}  // namespace
}  // namespace attnscope

int main(int argc, char** argv) {
  using namespace attnscope;
  const auto& device = cuda::Device::get();
  if (!device) {
    fmt::print(stderr, "gpu_step: {}\n", device.error().text());
    return device.error().code;
  }
  std::vector<std::string> lanes, shapes;
  bool serial = false;
  for (int i = 1; i < argc; ++i) {
    const std::string arg = argv[i];
    if (arg == "--lane" && i + 1 < argc) {
      lanes.push_back(argv[++i]);
    } else if (arg == "--serial") {
      serial = true;
    } else {
      shapes.push_back(arg);
    }
  }
  if (lanes.empty()) lanes = {"cuda"};
  if (shapes.empty()) shapes = {"1=4200", "8=2100", "64=2100"};
  fmt::print("{}\n", (*device)->info().name);
  for (const std::string& shape : shapes) {
    const std::size_t equals = shape.find('=');
    const std::int64_t requests = std::atoll(shape.c_str());
    const std::int64_t tokens =
        equals == std::string::npos ? 0 : std::atoll(shape.c_str() + equals + 1);
    if (requests < 1 || tokens < 1) {
      fmt::print(stderr, "gpu_step: {}: wanted REQUESTS=TOKENS, such as 8=2100\n", shape);
      return AS_USAGE;
    }
    measure(requests, tokens, lanes, serial);
  }
  return 0;
}
