// Named arrangements of the panels. Each remembers what the user moved, until it is reset.
#pragma once

#include <imgui.h>

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "app/gui/panel.h"

namespace attnscope::gui {

struct Layout {
  const char* id;        // "step"
  const char* title;     // "Step"
  const char* shortcut;  // "F1"
  const char* help;
};
const std::vector<Layout>& layouts();
const Layout* find_layout(std::string_view id);

// How much fits: a layout has an arrangement for each, with fewer panels side by side.
enum class Room { kFull, kCompact, kSmall };
Room room_for(ImVec2 pixels);        // of the whole window, at the scale in force
const char* room_suffix(Room room);  // of the file that keeps the arrangement: "", "-compact", ..

// ImGui's name of a panel's window: the tab shows the title, the id stays.
std::string window_name(const Panel& panel);

// Docks the panels as the layout has them at the start, and opens those it shows.
void build_layout(std::string_view id, Room room, ImGuiID dockspace, ImVec2 size,
                  const std::vector<std::unique_ptr<Panel>>& panels);

// Whether a window is docked, or was when it was closed; and the place with most room for one more
// tab, 0 where nothing is docked.
bool has_place(const std::string& window_name);
ImGuiID roomiest_place();

// What the user made of a layout: FOLDER/NAME.ini. Reading: false when there is none, or when it is
// no layout file (then `problem` says so).
bool load_layout(const std::string& path, const std::vector<std::unique_ptr<Panel>>& panels,
                 std::string& problem);
Result<void> save_layout(const std::string& path,
                         const std::vector<std::unique_ptr<Panel>>& panels);

}  // namespace attnscope::gui
