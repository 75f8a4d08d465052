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
#include "app/wiring/wiring.h"
#include "engine/golden/golden_folder.h"
#include "engine/golden/golden_run.h"
#include "engine/golden/golden_values.h"
#include "engine/io/json_file.h"

namespace attnscope::gui {
namespace {

struct Shot {
  std::string name;
  int width = 1600, height = 1000;
  std::vector<std::string> commands;  // on top of what the picture before left
};

// What these commands show, in both themes, at the size of a laptop and at twice the scale too.
void add_in_all_themes(std::vector<Shot>& shots, const std::string& name,
                       std::vector<std::string> commands) {
  const auto add = [&](const char* suffix, std::vector<std::string> more, int width = 1600,
                       int height = 1000) {
    shots.push_back({name + suffix, width, height, std::move(more)});
  };
  add("-dark", std::move(commands));
  add("-dark-1280", {}, 1280, 720);
  add("-light", {"settings.theme=light"});
  add("-light-1280", {}, 1280, 720);
  add("-dark-200", {"settings.theme=dark", "settings.scale=2"});
  add("-light-200", {"settings.theme=light"});
}

std::vector<Shot> plan() {
  std::vector<Shot> shots;
  for (const std::string layout : {"step", "cache", "selection", "error"}) {
    add_in_all_themes(shots, layout, {"layout." + layout});
  }
  return shots;
}

// A golden whose accepted values are no lane's, and what a run received in their place.
Result<void> make_failing_golden(const std::string& folder) {
  const std::string name = "norm";
  if (auto ok = write_text_file(
          folder + "/" + name + kSpecSuffix,
          R"({"format": "attnscope-golden", "version": 1, "about": "the norm before attention",
 "op": "attn_norm", "cases": [{"name": "four", "lengths": [4]}]})");
      !ok) {
    return ok;
  }
  auto goldens = GoldenFolder::open(folder);
  if (!goldens) return goldens.error();
  const LaneRegistry lanes = all_lanes();
  run_golden(*goldens, name, lanes, {});
  GoldenOrigin origin;
  origin.reason = "a picture of the tour";
  if (auto ok = goldens->accept(name, origin); !ok) return ok.error();
  auto values = goldens->values(name, kAcceptedSuffix);
  if (!values) return values.error();
  for (std::size_t i = 0; i < values->taps.front().values.size(); i += 97) {
    values->taps.front().values[i] += 0.5;
  }
  if (auto ok = write_text_file(folder + "/" + name + kAcceptedSuffix, golden_values_text(*values));
      !ok) {
    return ok;
  }
  run_golden(*goldens, name, lanes, {});
  return {};
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
    for (const char* command :
         {"settings.theme=dark", "settings.scale=1", "layout.step", "messages.dismiss"}) {
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
  std::vector<Shot> states = {
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
  };
  const std::string goldens = *kept + "/goldens";
  std::filesystem::create_directories(goldens, error);
  if (auto ok = make_failing_golden(goldens); !ok) return ok;
  add_in_all_themes(states, "compare",
                    {"capture.record=full:" + full, "capture.record=tables:" + tables,
                     "lane.set=q_rope_kv_insert=mutant:scale_rounded_down", "compare.open=" + full,
                     "layout.compare", "compare.first", "compare.tab=values", "messages.dismiss"});
  add_in_all_themes(states, "review",
                    {"settings.theme=dark", "settings.scale=1", "layout.review",
                     "review.open=" + goldens, "messages.dismiss"});
  for (const Shot& shot :
       std::vector<Shot>{{"capture-tables",
                          1600,
                          1000,
                          {"settings.theme=dark", "settings.scale=1", "file.open_capture=" + tables,
                           "layout.step", "messages.dismiss"}},
                         {"capture-tables-selection", 1600, 1000, {"layout.selection"}},
                         {"capture-tables-errors", 1600, 1000, {"layout.error"}}}) {
    states.push_back(shot);
  }
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
