#include "app/wiring/plugins.h"

#include <fmt/format.h>

#include <cstdlib>
#include <filesystem>
#include <mutex>
#include <utility>

#include "app/text/format.h"
#include "app/text/say.h"
#include "kernels/cpu/cpu_lane.h"
#include "kernels/cuda/cuda_lane.h"
#include "kernels/params/op_table.h"

namespace attnscope {
namespace {

std::vector<std::unique_ptr<PluginLane>>& open_ones() {
  static std::vector<std::unique_ptr<PluginLane>> plugins;
  return plugins;
}

PluginChoice& chosen() {
  static PluginChoice choice;
  return choice;
}

struct NewFaults {
  std::mutex mutex;
  std::vector<std::string> texts;
};
NewFaults& new_faults() {
  static NewFaults faults;
  return faults;
}

// Beside this program; where the build put it, for tests and other programs of the build.
std::string child_program() {
  if (const char* chosen = std::getenv("ATTNSCOPE_PLUGIN_HOST")) return chosen;
  std::error_code code;
  const auto self = std::filesystem::read_symlink("/proc/self/exe", code);
  const auto beside = self.parent_path() / "attnscope_plugin_host";
  if (!code && std::filesystem::exists(beside, code)) return beside.string();
  return ATTNSCOPE_PLUGIN_HOST;
}

}  // namespace

const std::vector<std::unique_ptr<PluginLane>>& plugins() { return open_ones(); }

PluginLane* find_plugin(const std::string& lane) {
  for (const auto& plugin : open_ones()) {
    if (lane == plugin->lane().name) return plugin.get();
  }
  return nullptr;
}

const PluginChoice& plugin_choice() { return chosen(); }

std::vector<std::string> plugin_faults() {
  std::vector<std::string> texts;
  for (const auto& plugin : open_ones()) {
    for (const PluginFault& fault : plugin->faults()) texts.push_back(fault.text());
  }
  return texts;
}

Result<void> open_plugins(const PluginChoice& choice) {
  open_ones().clear();
  chosen() = choice;
  for (const std::string& library : choice.libraries) {
    std::error_code code;
    if (std::filesystem::is_directory(library, code)) {
      return bad_input(fmt::format("--plugin {}: is a folder", library), "name the library in it");
    }
    if (!std::filesystem::is_regular_file(library, code)) {
      return bad_input(fmt::format("--plugin {}: no such file", library),
                       "build it first: assets/plugin/GUIDE.md");
    }
    PluginOptions options;
    options.library = library;
    options.program = child_program();
    options.in_process = choice.in_process;
    options.seconds_limit = choice.seconds_limit;
    options.stand_in = cpu::lane();
    options.beside_on_device = cuda::lane();
    auto plugin = PluginLane::open(options);
    if (!plugin) return plugin.error();
    if (find_plugin((*plugin)->lane().name) != nullptr) {
      return usage_error(
          fmt::format("--plugin {}: another one is named {} too", library, (*plugin)->lane().name),
          "give the lane another name");
    }
    (*plugin)->set_on_fault([](const PluginFault& fault) {
      std::string text = fault.text_with(cpu::lane()->name);
      say(stderr, "attnscope: {}\n", text);
      std::lock_guard lock(new_faults().mutex);
      new_faults().texts.push_back(std::move(text));
    });
    open_ones().push_back(std::move(*plugin));
  }
  return {};
}

std::vector<std::string> take_plugin_faults() {
  std::lock_guard lock(new_faults().mutex);
  return std::exchange(new_faults().texts, {});
}

std::string plugin_report() {
  std::string text;
  for (const auto& plugin : open_ones()) {
    for (const PluginTiming& t : plugin->timings()) {
      text += fmt::format("{}: {}, {}; of {} with {}: fastest {}", printable(plugin->lane().name),
                          as_op_find(t.op)->name, plural(t.all_calls, "call", "calls"), t.calls,
                          plural(t.rows, "row", "rows"),
                          t.microseconds > 0 ? format_us(t.microseconds) : "-");
      if (t.pair) {
        text += fmt::format(", one of them on both {} and on lane {} {}", format_us(t.pair->plugin),
                            t.pair->lane, format_us(t.pair->other));
      }
      text += "\n";
    }
  }
  for (const std::string& fault : plugin_faults()) text += printable(fault) + "\n";
  return text;
}

}  // namespace attnscope
