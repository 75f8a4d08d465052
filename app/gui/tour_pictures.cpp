// The pictures of every layout, size, theme and state that is worth looking at.
#include <fmt/format.h>
#include <imgui.h>

#include <filesystem>
#include <vector>

#include "app/gui/gui.h"
#include "app/gui/theme.h"
#include "app/text/private_folder.h"
#include "app/text/say.h"
#include "app/views/op_order.h"

namespace attnscope::gui {
namespace {

struct Shot {
  std::string name;
  int width = 1600, height = 1000;
  std::vector<std::string> commands;  // on top of what the picture before left
};

std::vector<Shot> plan() {
  std::vector<Shot> shots;
  const auto add = [&](std::string name, std::vector<std::string> commands, int width = 1600,
                       int height = 1000) {
    shots.push_back({std::move(name), width, height, std::move(commands)});
  };
  const std::vector<std::string> layouts = {"step", "cache", "selection", "error"};
  for (const std::string& layout : layouts) {
    add(layout + "-dark", {"layout." + layout});
    add(layout + "-dark-1280", {}, 1280, 720);
    add(layout + "-light", {"settings.theme=light"});
    add(layout + "-light-1280", {}, 1280, 720);
    add(layout + "-dark-200", {"settings.theme=dark", "settings.scale=2"});
    add(layout + "-light-200", {"settings.theme=light"});
  }
  return shots;
}

}  // namespace

Result<void> write_tour(App& app, Platform& platform, const std::string& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) {
    return bad_input(fmt::format("{}: cannot be created: {}", folder, error.message()),
                     "name a folder that you may write to");
  }
  const auto take = [&](const Shot& shot) -> Result<void> {
    if (auto ok = platform.resize(shot.width, shot.height); !ok) return ok;
    for (const std::string& command : shot.commands) {
      if (auto ok = app.commands().run(command); !ok) return ok;
      app.bench().wait_idle();
    }
    auto picture = settled_picture(app, platform);
    if (!picture) return picture.error();
    const std::string file = fmt::format("{}/{}.png", folder, shot.name);
    if (auto ok = write_png(*picture, file); !ok) return ok;
    say("{}\n", file);
    return {};
  };
  const auto reset = [&]() -> Result<void> {
    for (const char* command : {"settings.theme=dark", "settings.scale=1", "layout.step"}) {
      if (auto ok = app.commands().run(command); !ok) return ok;
    }
    return {};
  };
  for (const Shot& shot : plan()) {
    if (shot.name.ends_with("-dark")) {
      if (auto ok = reset(); !ok) return ok;
    }
    if (auto ok = take(shot); !ok) return ok;
  }
  if (auto ok = reset(); !ok) return ok;
  // States of the default scenario: prefill, decode past the indexer's budget, an error.
  const Snapshot* now = app.bench().snapshot();
  if (now == nullptr) return {};
  const Place here = first_view(*now->info, 2);
  const std::string op = fmt::format("{}/sparse_attention", here.layer);
  // What was recorded, at the level that leaves out all values and at the one that has them.
  auto kept = make_private_folder();
  if (!kept) return kept.error();
  const std::string tables = *kept + "/tour-tables.acap", full = *kept + "/tour-full.acap";
  const std::vector<Shot> states = {
      {"prefill", 1600, 1000, {fmt::format("cursor.goto=2/{}", op)}},
      {"decode-long", 1600, 1000, {"cursor.last"}},
      {"why", 1600, 1000, {"layout.selection", "panel.why"}},
      {"coverage", 1600, 1000, {"layout.error", "panel.coverage"}},
      {"time", 1600, 1000, {"layout.step", "panel.time"}},
      {"small-window", 300, 200, {"layout.step"}},
      {"error-planted", 1600, 1000, {"lesson.plant=topk_one_short"}},
      {"error-planted-errors", 1600, 1000, {"layout.error"}},
      {"palette", 1600, 1000, {"lesson.remove", "layout.step", "palette.open"}},
      {"early-decode", 1600, 1000, {"scenario.open=early"}},
      {"compare",
       1600,
       1000,
       {"capture.record=full:" + full, "capture.record=tables:" + tables,
        "lane.set=q_rope_kv_insert=mutant:scale_rounded_down", "compare.open=" + full,
        "layout.compare", "compare.first", "messages.dismiss"}},
      {"capture-tables",
       1600,
       1000,
       {"file.open_capture=" + tables, "layout.step", "messages.dismiss"}},
      {"capture-tables-selection", 1600, 1000, {"layout.selection"}},
      {"capture-tables-errors", 1600, 1000, {"layout.error"}},
  };
  auto done = [&]() -> Result<void> {
    for (const Shot& shot : states) {
      if (auto ok = take(shot); !ok) return ok;
    }
    return {};
  }();
  std::filesystem::remove_all(*kept, error);
  return done;
}

}  // namespace attnscope::gui
