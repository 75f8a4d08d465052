// Time of a frame of the desktop app on the software renderer, off screen, 1600 x 1000: from the
// app's first line to the last pixel (glFinish). Against 16 ms in the median and 33 ms in the 99th
// of 100 frames. Beside the time on the wall stands the processor time of a frame, which other
// programs on the machine disturb less: of the app's own thread, and of all, the renderer's too.
//
//   bench_ui [--benchmark_filter=REGEX]
#include <fmt/format.h>
#include <imgui.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <ctime>
#include <exception>
#include <functional>
#include <regex>
#include <string>
#include <vector>

#include "app/gui/gui.h"
#include "app/gui/heat_map.h"
#include "app/gui/platform.h"
#include "app/gui/pool_map.h"
#include "app/panels/panels.h"
#include "app/text/state_folder.h"
#include "app/wiring/wiring.h"

namespace attnscope::gui {
namespace {

constexpr int kWidth = 1600, kHeight = 1000;
constexpr int kFrames = 400, kWarmUp = 30;
constexpr double kMedianMs = 16, kP99Ms = 33;

double clock_ms(clockid_t clock) {
  timespec t{};
  clock_gettime(clock, &t);
  return static_cast<double>(t.tv_sec) * 1e3 + static_cast<double>(t.tv_nsec) / 1e6;
}

class Report {
 public:
  explicit Report(const std::string& filter) : filter_(filter) {}
  bool wants(const std::string& name) const { return std::regex_search(name, filter_); }
  bool wants_any(const std::vector<std::string>& names) const {
    return std::any_of(names.begin(), names.end(), [&](const auto& n) { return wants(n); });
  }

  // Measures `frame` with its number; before each the untimed `prepare`.
  void measure(const std::string& name, const std::function<void(int)>& frame,
               const std::function<void(int)>& prepare = {}) {
    if (!wants(name)) return;
    if (ran_ == 0) {
      fmt::print("{:<34}{:>10}{:>10}{:>10}{:>13}{:>13}\n", "frames of 1600 x 1000", "median", "p99",
                 "largest", "own thread", "all threads");
    }
    ++ran_;
    std::vector<double> times;
    double own = 0, all = 0;
    for (int i = 0; i < kWarmUp + kFrames; ++i) {
      if (prepare) prepare(i);
      const double own_before = clock_ms(CLOCK_THREAD_CPUTIME_ID);
      const double all_before = clock_ms(CLOCK_PROCESS_CPUTIME_ID);
      const auto start = std::chrono::steady_clock::now();
      frame(i);
      const std::chrono::duration<double, std::milli> took =
          std::chrono::steady_clock::now() - start;
      if (i < kWarmUp) continue;
      times.push_back(took.count());
      own += clock_ms(CLOCK_THREAD_CPUTIME_ID) - own_before;
      all += clock_ms(CLOCK_PROCESS_CPUTIME_ID) - all_before;
    }
    std::sort(times.begin(), times.end());
    const double median = times[times.size() / 2];
    const double p99 = times[times.size() * 99 / 100];
    const bool good = median <= kMedianMs && p99 <= kP99Ms;
    fmt::print("{:<34}{:>7.2f} ms{:>7.2f} ms{:>7.2f} ms{:>10.2f} ms{:>10.2f} ms{}\n", name, median,
               p99, times.back(), own / kFrames, all / kFrames,
               good ? "" : fmt::format("   over {:.0f} / {:.0f} ms", kMedianMs, kP99Ms));
    std::fflush(stdout);
  }
  int ran() const { return ran_; }

 private:
  std::regex filter_;
  int ran_ = 0;
};

// ---- the app with the default scenario ----------------------------------------------------------

void check(const Result<void>& ok) {
  if (ok) return;
  fmt::print(stderr, "bench_ui: {}\n", ok.error().text());
  std::exit(ok.error().code);
}

// The cursor goes through all ops of the kept steps, one a frame.
std::vector<Place> all_places(const Workbench& bench) {
  std::vector<Place> places;
  for (const auto& trace : bench.snapshot()->traces) {
    for (const auto& op : trace->ops) places.push_back(op->place);
  }
  return places;
}

Result<void> measure_app(Report& report) {
  const std::vector<std::string> names = {
      "app/cursor_moves",     "app/idle_redraw",  "app/mouse_moves", "app/cache_layout",
      "app/selection_layout", "app/error_layout", "app/token_moves"};
  if (!report.wants_any(names)) return {};
  auto scenario = load_scenario("default");
  if (!scenario) return scenario.error();
  App::Options options;
  options.keep_settings = false;
  if (auto state = state_folder()) options.cache_folder = *state;
  App app(options, {make_panels});
  app.settings().tour_seen = true;
  auto platform = make_offscreen(kWidth, kHeight);
  if (!platform) return platform.error();
  app.shell().set_graphics((*platform)->description());
  RunSetup setup;
  setup.scenario = std::move(*scenario);
  app.bench().open(std::move(setup), true);
  app.bench().wait_idle();
  const auto frame = [&](int) {
    (*platform)->begin_frame(0);
    app.frame();
    check((*platform)->render());
  };
  const std::vector<Place> places = all_places(app.bench());
  if (places.empty()) return {};
  const Place last = app.bench().cursor();
  const auto move = [&](int i) {
    app.bench().go_to(places[static_cast<std::size_t>(i) % places.size()]);
  };
  report.measure("app/cursor_moves", frame, move);
  app.bench().go_to(last);
  report.measure("app/idle_redraw", frame);
  // From edge to edge, as a hand does it: mostly over what does not answer.
  report.measure("app/mouse_moves", frame, [&](int i) {
    const float x = static_cast<float>(i * 7 % kWidth), y = static_cast<float>(i * 5 % kHeight);
    ImGui::GetIO().AddMousePosEvent(x, y);
  });
  ImGui::GetIO().AddMousePosEvent(-FLT_MAX, -FLT_MAX);
  report.measure("app/token_moves", frame, [&](int i) {
    app.bench().select_token(0, app.bench().selected_position() > 0 ? 2000 - i % 500 : 0);
  });
  for (const char* layout : {"cache", "selection", "error"}) {
    check(app.commands().run(fmt::format("layout.{}", layout)));
    report.measure(fmt::format("app/{}_layout", layout), frame, move);
  }
  return {};
}

// ---- single pictures that fill the screen -------------------------------------------------------

class Canvas {
 public:
  explicit Canvas(Platform& platform, App& app) : platform_(platform), app_(app) {}
  void frame(const std::function<void(ImVec2)>& draw) {
    platform_.begin_frame(0);
    app_.shell().before_frame();
    ImGui::NewFrame();
    ImGui::SetNextWindowPos({0, 0});
    ImGui::SetNextWindowSize({kWidth, kHeight});
    ImGui::SetNextWindowBgAlpha(0);  // as panels in the dock space
    ImGui::Begin("bench", nullptr, ImGuiWindowFlags_NoDecoration);
    draw(ImGui::GetContentRegionAvail());
    ImGui::End();
    ImGui::Render();
    check(platform_.render());
  }

 private:
  Platform& platform_;
  App& app_;
};

void measure_heat_map(Report& report, Canvas& canvas) {
  HeatMap map;
  HeatMapData data;
  data.rows = data.columns = 256;
  data.is_signed = true;
  data.value = [&](std::int64_t row, std::int64_t column) {
    return std::sin(0.1 *
                    static_cast<double>(row * column + static_cast<std::int64_t>(data.version)));
  };
  const auto draw = [&](int) {
    canvas.frame([&](ImVec2 size) { map.draw("map", data, size, 100, 100); });
  };
  report.measure("heat_map/256x256_still", draw);
  report.measure("heat_map/256x256_new_values", draw, [&](int) { ++data.version; });
}

void measure_pool_map(Report& report, Canvas& canvas, std::int64_t blocks) {
  const std::string name = fmt::format("pool_map/{}_blocks", blocks);
  if (!report.wants_any({name + "_still", name + "_new_owners", name + "_picks"})) return;
  std::vector<BlockOwner> owners(static_cast<std::size_t>(blocks));
  const auto fill = [&](std::int64_t shift) {
    for (std::size_t i = 1; i < owners.size(); ++i) {
      const auto k = static_cast<std::int64_t>(i) + shift;
      owners[i] = BlockOwner{};
      if (k % 7 == 0) continue;
      owners[i].request = static_cast<std::int32_t>(k / 100 % 12);
      owners[i].group = static_cast<std::int32_t>(k % 5);
    }
  };
  fill(0);
  std::vector<std::int32_t> free_list;
  for (std::size_t i = 1; i < owners.size(); ++i) {
    if (owners[i].request < 0) free_list.push_back(static_cast<std::int32_t>(i));
  }
  PoolMap map;
  PoolMapData data;
  data.owners = &owners;
  data.free_list = &free_list;
  data.groups = 5;
  const auto draw = [&](int) { canvas.frame([&](ImVec2 size) { map.draw("pool", data, size); }); };
  report.measure(name + "_still", draw);
  report.measure(name + "_picks", draw, [&](int i) { data.selected = 1 + i * 97; });
  report.measure(name + "_new_owners", draw, [&](int i) {
    fill(i);
    ++data.version;
  });
}

Result<void> measure_pictures(Report& report) {
  if (!report.wants_any({"heat_map/256x256_still", "heat_map/256x256_new_values",
                         "pool_map/100000_blocks_still", "pool_map/100000_blocks_picks",
                         "pool_map/100000_blocks_new_owners", "pool_map/1000000_blocks_still",
                         "pool_map/1000000_blocks_picks", "pool_map/1000000_blocks_new_owners"})) {
    return {};
  }
  App::Options options;
  options.keep_settings = false;
  App app(options, {[] { return std::vector<std::unique_ptr<Panel>>(); }});
  auto platform = make_offscreen(kWidth, kHeight);
  if (!platform) return platform.error();
  Canvas canvas(**platform, app);
  measure_heat_map(report, canvas);
  measure_pool_map(report, canvas, 100'000);
  measure_pool_map(report, canvas, 1'000'000);
  return {};
}

int run(int argc, char** argv) {
  std::string filter;
  const std::string option = "--benchmark_filter=";
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    if (argument.starts_with(option)) filter = argument.substr(option.size());
  }
  Report report(filter);
  for (const auto& measure : {measure_app, measure_pictures}) {
    if (auto ok = measure(report); !ok) {
      if (ok.error().code != AS_NO_ENVIRONMENT) check(ok);
      fmt::print("frames are not measured: {}\n", ok.error().text());
      return 0;
    }
  }
  return report.ran() > 0 ? 0 : AS_USAGE;
}

}  // namespace
}  // namespace attnscope::gui

int main(int argc, char** argv) {
  try {
    return attnscope::gui::run(argc, argv);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return AS_INTERNAL;
  }
}
