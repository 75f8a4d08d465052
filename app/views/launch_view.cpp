#include "app/views/launch_view.h"

#include <fmt/format.h>

#include "app/text/format.h"
#include "engine/io/plural.h"

namespace attnscope {
namespace {

ComputeCapability capability_of(const OpLaunches& launches) {
  return {static_cast<int>(launches.major), static_cast<int>(launches.minor)};
}

// "1 024", "64 x 4": axes of one at the end are left out.
std::string extent_text(const LaunchExtent& e) {
  std::string text = format_count(e.x);
  if (e.y > 1 || e.z > 1) text += " x " + format_count(e.y);
  if (e.z > 1) text += " x " + format_count(e.z);
  return text;
}

}  // namespace

std::vector<LaunchRow> launch_rows(const OpLaunches& launches) {
  std::vector<LaunchRow> rows;
  for (const KernelLaunch& kernel : launches.kernels) {
    if (!rows.empty() && rows.back().kernel == kernel) {
      ++rows.back().times;
      continue;
    }
    LaunchRow& row = rows.emplace_back();
    row.kernel = kernel;
    const auto of = occupancy({.threads = kernel.block.count(),
                               .registers = kernel.registers,
                               .shared = kernel.static_shared + kernel.dynamic_shared},
                              capability_of(launches));
    if (of) row.occupancy = *of;
    row.at_once = kernel.at_once > 0 ? kernel.at_once : of ? of->blocks : 0;
    if (row.at_once > 0 && launches.multiprocessors > 0) {
      row.waves = static_cast<double>(kernel.grid.count()) /
                  static_cast<double>(row.at_once * launches.multiprocessors);
    }
  }
  return rows;
}

std::string launch_text(const LaunchRow& row) {
  const KernelLaunch& k = row.kernel;
  std::string text = row.times > 1 ? format_count(row.times) + " times " : "";
  text += fmt::format("{}: {} {} of {} threads", k.name, extent_text(k.grid),
                      agree(k.grid.count(), "block", "blocks"), extent_text(k.block));
  if (k.cluster.count() > 1) text += " in clusters of " + extent_text(k.cluster);
  text += ", " + plural(k.registers, "register", "registers");
  const std::int64_t shared = k.static_shared + k.dynamic_shared;
  if (shared > 0) text += fmt::format(", {} shared", format_bytes(static_cast<double>(shared)));
  if (k.local > 0) {
    text += fmt::format(", {} local a thread", format_bytes(static_cast<double>(k.local)));
  }
  return text;
}

std::string launch_occupancy_text(const LaunchRow& row, const OpLaunches& launches) {
  std::string text;
  if (row.occupancy) {
    text = describe(*row.occupancy, capability_of(launches));
    if (row.kernel.at_once > 0 && row.kernel.at_once != row.occupancy->blocks) {
      text += fmt::format("; the driver says {} at once",
                          plural(row.kernel.at_once, "block", "blocks"));
    }
  } else if (row.at_once > 0) {
    text = fmt::format("{} at once, says the driver", plural(row.at_once, "block", "blocks"));
  }
  if (row.waves > 0) {
    const std::int64_t blocks = row.kernel.grid.count();
    text += text.empty() ? "" : "; ";
    text += blocks < launches.multiprocessors
                ? fmt::format("on {} of", format_count(blocks))
                : fmt::format("{:.{}f} {} on", row.waves, row.waves < 10 ? 2 : 0,
                              row.waves == 1 ? "wave" : "waves");
    text += " " + plural(launches.multiprocessors, "multiprocessor", "multiprocessors");
  }
  return text;
}

std::vector<std::string> launch_lines(const OpLaunches& launches) {
  if (!launches.unknown.empty()) return {"launches not known: " + launches.unknown};
  if (launches.kernels.empty()) return {};
  std::vector<std::string> lines = {
      fmt::format("launches {} on {}",
                  plural(static_cast<std::int64_t>(launches.kernels.size()), "kernel", "kernels"),
                  capability_name(capability_of(launches)))};
  for (const LaunchRow& row : launch_rows(launches)) {
    lines.push_back(launch_text(row));
    const std::string of = launch_occupancy_text(row, launches);
    if (!of.empty()) lines.push_back("  " + of);
  }
  return lines;
}

}  // namespace attnscope
