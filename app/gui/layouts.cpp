#include "app/gui/layouts.h"

#include <fmt/format.h>
#include <imgui_internal.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <initializer_list>

#include "app/gui/theme.h"
#include "engine/io/json_file.h"

namespace attnscope::gui {
namespace {

constexpr const char* kHeader = "; attnscope layout 1\n";
constexpr const char* kPanelLine = "; panel ";

// Docking by panel id, and the tab that is in front.
class Builder {
 public:
  explicit Builder(const std::vector<std::unique_ptr<Panel>>& panels) : panels_(panels) {
    for (const auto& panel : panels) panel->open = false;
  }

  // Tabs of one place, the first one in front.
  void dock(ImGuiID node, std::initializer_list<const char*> ids) {
    bool front = true;
    for (const char* id : ids) {
      for (const auto& panel : panels_) {
        if (std::strcmp(panel->id(), id) != 0) continue;
        const std::string name = window_name(*panel);
        ImGui::DockBuilderDockWindow(name.c_str(), node);
        panel->open = true;
        if (front) {
          if (ImGuiDockNode* at = ImGui::DockBuilderGetNode(node)) {
            at->SelectedTabId = ImHashStr("#TAB", 0, ImHashStr(name.c_str()));
          }
          front = false;
        }
      }
    }
  }

 private:
  const std::vector<std::unique_ptr<Panel>>& panels_;
};

ImGuiID split(ImGuiID& node, ImGuiDir direction, float ratio) {
  ImGuiID part = 0;
  ImGui::DockBuilderSplitNode(node, direction, std::clamp(ratio, 0.08f, 0.9f), &part, &node);
  return part;
}

void build_step(Builder& b, ImGuiID rest, ImVec2 size) {
  const float timeline = px(172), pipeline = px(206);
  b.dock(split(rest, ImGuiDir_Up, timeline / size.y), {"timeline"});
  b.dock(split(rest, ImGuiDir_Up, pipeline / (size.y - timeline)), {"pipeline", "time"});
  ImGuiID left = split(rest, ImGuiDir_Left, 0.26f);
  ImGuiID right = split(rest, ImGuiDir_Right, 0.36f);
  b.dock(split(left, ImGuiDir_Down, 0.5f), {"pool", "row_pool", "row_sweep", "cache_study"});
  b.dock(left, {"block_tables", "scenario", "cache"});
  b.dock(split(right, ImGuiDir_Down, 0.36f), {"selection", "events", "notes", "history"});
  b.dock(right, {"error", "backends", "training"});
  ImGuiID below = split(rest, ImGuiDir_Down, 0.56f);
  b.dock(split(below, ImGuiDir_Right, 0.42f),
         {"sink", "coverage", "plan", "index_keys", "row_error"});
  b.dock(below, {"top_k", "window", "why"});
  b.dock(rest, {"tensor", "bytes"});
}

// A laptop's screen: the pipeline in the middle column, the rest as tabs below it.
void build_step_compact(Builder& b, ImGuiID rest, ImVec2 size) {
  const float timeline = px(172), pipeline = px(238);
  b.dock(split(rest, ImGuiDir_Up, timeline / size.y), {"timeline"});
  ImGuiID left = split(rest, ImGuiDir_Left, 0.26f);
  b.dock(split(left, ImGuiDir_Down, 0.46f), {"pool", "row_pool", "row_sweep", "cache_study"});
  b.dock(left, {"block_tables", "scenario", "cache"});
  b.dock(split(rest, ImGuiDir_Up, pipeline / (size.y - timeline)), {"pipeline", "time"});
  b.dock(split(rest, ImGuiDir_Right, 0.42f),
         {"error", "sink", "selection", "why", "coverage", "events", "notes", "history", "plan",
          "index_keys", "row_error", "backends"});
  b.dock(rest, {"tensor", "top_k", "window", "bytes", "training"});
}

// Two stacks of tabs: what there is to see, and what it means.
void build_small(Builder& b, ImGuiID rest, std::initializer_list<const char*> left,
                 std::initializer_list<const char*> right) {
  b.dock(split(rest, ImGuiDir_Left, 0.5f), left);
  b.dock(rest, right);
}

void build_step_small(Builder& b, ImGuiID rest, ImVec2 size) {
  if (size.y < px(560)) {  // below a pipeline the tensor would be all buttons
    return build_small(
        b, rest,
        {"pipeline", "time", "timeline", "block_tables", "pool", "cache", "window", "scenario"},
        {"tensor", "error", "top_k", "sink", "selection", "bytes", "why", "coverage", "events",
         "notes", "history", "plan", "row_pool", "row_sweep", "cache_study", "index_keys",
         "row_error", "backends", "training"});
  }
  b.dock(split(rest, ImGuiDir_Up, px(232) / size.y), {"pipeline", "time", "timeline"});
  build_small(b, rest, {"block_tables", "pool", "cache", "window", "scenario"},
              {"tensor", "error", "top_k", "sink", "selection", "bytes", "why", "coverage",
               "events", "notes", "history", "plan", "row_pool", "row_sweep", "cache_study",
               "index_keys", "row_error", "backends", "training"});
}

void build_cache(Builder& b, ImGuiID rest, ImVec2 size) {
  b.dock(split(rest, ImGuiDir_Up, px(172) / size.y), {"timeline"});
  ImGuiID right = split(rest, ImGuiDir_Right, 0.46f);
  b.dock(split(rest, ImGuiDir_Down, 0.42f), {"window", "cache", "events", "notes", "history"});
  b.dock(rest, {"block_tables"});
  ImGuiID below = split(right, ImGuiDir_Down, 0.5f);
  b.dock(split(below, ImGuiDir_Right, 0.5f), {"selection"});
  b.dock(below, {"bytes", "scenario"});
  b.dock(right, {"pool", "row_pool", "row_sweep", "cache_study"});
}

void build_selection(Builder& b, ImGuiID rest, ImVec2 size) {
  b.dock(split(rest, ImGuiDir_Up, px(172) / size.y), {"timeline"});
  ImGuiID right = split(rest, ImGuiDir_Right, 0.4f);
  b.dock(split(right, ImGuiDir_Down, 0.36f), {"selection", "block_tables"});
  b.dock(right, {"sink", "row_pool", "row_sweep", "cache_study", "training"});
  b.dock(split(rest, ImGuiDir_Down, 0.42f), {"window", "why"});
  b.dock(rest, {"top_k"});
}

void build_error(Builder& b, ImGuiID rest, ImVec2 size) {
  const float timeline = px(172), pipeline = px(206);
  b.dock(split(rest, ImGuiDir_Up, timeline / size.y), {"timeline"});
  b.dock(split(rest, ImGuiDir_Up, pipeline / (size.y - timeline)), {"pipeline", "time"});
  ImGuiID left = split(rest, ImGuiDir_Left, 0.42f);
  b.dock(left, {"error", "coverage"});
  b.dock(split(rest, ImGuiDir_Down, 0.38f), {"selection", "why", "bytes", "events", "history"});
  b.dock(rest, {"tensor"});
}

void build_error_compact(Builder& b, ImGuiID rest, ImVec2 size) {
  b.dock(split(rest, ImGuiDir_Up, px(172) / size.y), {"timeline", "pipeline", "time"});
  b.dock(split(rest, ImGuiDir_Left, 0.46f), {"error", "coverage"});
  b.dock(rest, {"tensor", "bytes", "selection", "events", "notes", "history"});
}

// What a build no longer gives, beside what a scenario can be run with to find out why.
void build_review(Builder& b, ImGuiID rest) {
  b.dock(split(rest, ImGuiDir_Right, 0.34f), {"scenario", "events"});
  b.dock(rest, {"review"});
}

// Where two runs part, beside the op itself.
void build_compare(Builder& b, ImGuiID rest, ImVec2 size) {
  const float timeline = px(172), pipeline = px(206);
  b.dock(split(rest, ImGuiDir_Up, timeline / size.y), {"timeline"});
  b.dock(split(rest, ImGuiDir_Up, pipeline / (size.y - timeline)), {"pipeline", "time"});
  b.dock(split(rest, ImGuiDir_Right, 0.36f),
         {"tensor", "error", "selection", "events", "notes", "history"});
  b.dock(rest, {"compare"});
}

}  // namespace

const std::vector<Layout>& layouts() {
  static const std::vector<Layout> all = {
      {"step", "Step", "F1", "One step, whole: tables, tensors, selection, errors."},
      {"cache", "Cache", "F2", "Pool, block tables, windows and bytes."},
      {"selection", "Selection", "F3", "Top-k, margins, sinks, from step to step."},
      {"error", "Error", "F4", "Errors of all ops, differences, bytes."},
      {"review", "Review", "F5", "Goldens that wait for a decision."},
      {"compare", "Compare", "F6", "Another capture beside what is shown."},
  };
  return all;
}

const Layout* find_layout(std::string_view id) {
  for (const Layout& layout : layouts()) {
    if (id == layout.id) return &layout;
  }
  return nullptr;
}

std::string window_name(const Panel& panel) {
  return fmt::format("{}###{}", panel.title(), panel.id());
}

Room room_for(ImVec2 pixels) {
  if (pixels.x >= px(1200) && pixels.y >= px(820)) return Room::kFull;
  return pixels.x >= px(1000) && pixels.y >= px(620) ? Room::kCompact : Room::kSmall;
}

const char* room_suffix(Room room) {
  return room == Room::kFull ? "" : room == Room::kCompact ? "-compact" : "-small";
}

void build_layout(std::string_view id, Room room, ImGuiID dockspace, ImVec2 size,
                  const std::vector<std::unique_ptr<Panel>>& panels) {
  ImGui::DockBuilderRemoveNode(dockspace);
  ImGui::DockBuilderAddNode(dockspace, ImGuiDockNodeFlags_DockSpace);
  ImGui::DockBuilderSetNodeSize(dockspace, size);
  Builder builder(panels);
  size.y = std::max(size.y, 1.0f);
  const bool small = room == Room::kSmall;
  if (id == "cache") {
    small
        ? build_small(builder, dockspace, {"block_tables", "cache", "window", "timeline", "events"},
                      {"pool", "selection", "bytes", "scenario"})
        : build_cache(builder, dockspace, size);
  } else if (id == "selection") {
    small ? build_small(builder, dockspace, {"top_k", "window", "why", "timeline"},
                        {"sink", "selection", "block_tables", "training"})
          : build_selection(builder, dockspace, size);
  } else if (id == "error") {
    small ? build_small(builder, dockspace, {"error", "timeline", "pipeline", "time", "coverage"},
                        {"tensor", "selection", "bytes", "events", "history"})
    : room == Room::kCompact ? build_error_compact(builder, dockspace, size)
                             : build_error(builder, dockspace, size);
  } else if (id == "review") {
    small ? build_small(builder, dockspace, {"review"}, {"scenario", "events"})
          : build_review(builder, dockspace);
  } else if (id == "compare") {
    room == Room::kFull
        ? build_compare(builder, dockspace, size)
        : build_small(builder, dockspace, {"compare", "timeline"}, {"pipeline", "tensor", "error"});
  } else {
    small                    ? build_step_small(builder, dockspace, size)
    : room == Room::kCompact ? build_step_compact(builder, dockspace, size)
                             : build_step(builder, dockspace, size);
  }
  ImGui::DockBuilderFinish(dockspace);
}

bool has_place(const std::string& window_name) {
  const ImGuiID id = ImHashStr(window_name.c_str());
  const ImGuiWindow* window = ImGui::FindWindowByID(id);
  const ImGuiWindowSettings* kept = ImGui::FindWindowSettingsByID(id);
  const ImGuiID dock = window != nullptr ? window->DockId : kept != nullptr ? kept->DockId : 0;
  return dock != 0 && ImGui::DockBuilderGetNode(dock) != nullptr;
}

ImGuiID roomiest_place() {
  constexpr float kLow = 220;  // a panel in a lower place would be all buttons
  ImGuiID best = 0;
  float most = -1;
  for (const auto& entry : ImGui::GetCurrentContext()->DockContext.Nodes.Data) {
    auto* node = static_cast<ImGuiDockNode*>(entry.val_p);
    if (node == nullptr || !node->IsLeafNode() || node->Windows.empty()) continue;
    if (!ImGui::DockNodeGetRootNode(node)->IsDockSpace()) continue;
    const float room = node->Size.x * node->Size.y * (node->Size.y < px(kLow) ? 0.1f : 1.0f);
    if (room <= most) continue;
    most = room;
    best = node->ID;
  }
  return best;
}

bool load_layout(const std::string& path, const std::vector<std::unique_ptr<Panel>>& panels,
                 std::string& problem) {
  std::error_code error;
  if (!std::filesystem::exists(path, error)) return false;
  auto text = read_text_file(path, std::size_t{1} << 20);
  if (!text) {
    problem = text.error().text();
    return false;
  }
  if (text->rfind(kHeader, 0) != 0 || text->find("[Docking][Data]") == std::string::npos) {
    problem = fmt::format("{} is no layout of this program; the built-in one is shown", path);
    return false;
  }
  for (const auto& panel : panels) {
    panel->open = text->find(fmt::format("{}{}\n", kPanelLine, panel->id())) != std::string::npos;
  }
  ImGui::LoadIniSettingsFromMemory(text->data(), text->size());
  return true;
}

Result<void> save_layout(const std::string& path,
                         const std::vector<std::unique_ptr<Panel>>& panels) {
  std::string text = kHeader;
  for (const auto& panel : panels) {
    if (panel->open) text += fmt::format("{}{}\n", kPanelLine, panel->id());
  }
  text += ImGui::SaveIniSettingsToMemory();
  std::error_code error;
  std::filesystem::create_directories(std::filesystem::path(path).parent_path(), error);
  return write_text_file(path, text);
}

}  // namespace attnscope::gui
