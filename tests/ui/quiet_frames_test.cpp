// Panels away from the mouse keep their picture while nothing happens: the screen is the one that
// drawing all of them gives, and they are drawn again as soon as something happens.
#include <gtest/gtest.h>
#include <imgui_internal.h>

#include <string>
#include <string_view>
#include <vector>

#include "app/gui/layouts.h"
#include "tests/ui/headless_app.h"

namespace attnscope::gui {
namespace quiet_frames_test {

class QuietApp : public HeadlessApp {
 public:
  // Panels in front of their docks.
  std::vector<Panel*> shown() {
    std::vector<Panel*> all;
    for (const char* id : {"timeline", "pipeline", "tensor", "block_tables", "pool", "top_k",
                           "window", "sink", "error", "selection"}) {
      Panel* panel = (*this)->shell().panel(id);
      EXPECT_NE(panel, nullptr) << id;
      if (panel != nullptr && panel->drawn) all.push_back(panel);
    }
    return all;
  }
  static bool kept(const Panel* panel) {
    const ImGuiWindow* window = ImGui::FindWindowByName(window_name(*panel).c_str());
    return window != nullptr && window->SkipRefresh;
  }
  int kept() {
    int n = 0;
    for (const Panel* panel : shown()) n += kept(panel) ? 1 : 0;
    return n;
  }
  void move_to(const char* id) {
    const auto at = (*this)->shell().rectangle_of(id);
    ASSERT_TRUE(at) << id;
    ImGui::GetIO().AddMousePosEvent((at->x + at->z) / 2, (at->y + at->w) / 2);
  }
  void frames(int n) {
    for (int i = 0; i < n; ++i) frame();
  }
  // Everything that a renderer would draw, in its order.
  static std::vector<unsigned char> picture() {
    std::vector<unsigned char> bytes;
    for (const ImDrawList* list : ImGui::GetDrawData()->CmdLists) {
      if (std::string_view(list->_OwnerName) == "##status bar") continue;  // has a clock
      const auto add = [&](const auto& buffer) {
        const auto* data = reinterpret_cast<const unsigned char*>(buffer.Data);
        bytes.insert(bytes.end(), data, data + buffer.size_in_bytes());
      };
      add(list->VtxBuffer);
      add(list->IdxBuffer);
    }
    return bytes;
  }
};

TEST(QuietFrames, ShowWhatDrawingEverythingShows) {
  QuietApp app;
  for (const char* under : {"tensor", "timeline", "pool"}) {
    SCOPED_TRACE(under);
    app.move_to(under);
    app.frames(40);  // the hover delays are over
    const std::size_t panels = app.shown().size();
    ASSERT_GT(panels, 5u);
    EXPECT_EQ(static_cast<std::size_t>(app.kept()), panels - 1)
        << "all but the one under the mouse";
    EXPECT_FALSE(QuietApp::kept(app->shell().panel(under)));
    const auto quiet = QuietApp::picture();
    ASSERT_GT(quiet.size(), 100000u);
    ImGui::GetIO().AddKeyEvent(ImGuiKey_A, true);  // something happens, and is over
    app.frame();
    ImGui::GetIO().AddKeyEvent(ImGuiKey_A, false);
    app.frame();
    EXPECT_EQ(app.kept(), 0);
    app.frames(3);
    EXPECT_EQ(app.kept(), 0) << "a layout takes some frames";
    EXPECT_TRUE(QuietApp::picture() == quiet);
  }
}

TEST(QuietFrames, EndWhenAnythingHappens) {
  QuietApp app;
  app.move_to("tensor");
  ImGuiIO& io = ImGui::GetIO();
  const auto rest = [&] {
    app.frames(40);
    ASSERT_GT(app.kept(), 4);
  };
  rest();
  app.move_to("pool");  // what the mouse left loses its marks, what it came to gets them
  app.frame();
  EXPECT_FALSE(QuietApp::kept(app->shell().panel("tensor")));
  EXPECT_FALSE(QuietApp::kept(app->shell().panel("pool")));
  EXPECT_GT(app.kept(), 3);
  rest();
  io.AddMouseButtonEvent(0, true);
  app.frame();
  EXPECT_EQ(app.kept(), 0) << "a button is pressed";
  io.AddMouseButtonEvent(0, false);
  rest();
  io.AddKeyEvent(ImGuiKey_A, true);
  app.frame();
  EXPECT_EQ(app.kept(), 0) << "a key is pressed";
  io.AddKeyEvent(ImGuiKey_A, false);
  rest();
  io.AddMouseWheelEvent(0, 1);
  app.frame();
  EXPECT_EQ(app.kept(), 0) << "the wheel is turned";
  rest();
  app->settings().colour_map = "grey";
  app.frame();
  EXPECT_EQ(app.kept(), 0) << "a setting is another one";
  rest();
  io.DisplaySize = ImVec2(1500, 1000);
  app.frame();
  EXPECT_EQ(app.kept(), 0) << "the window is smaller";
  rest();
  const auto before = QuietApp::picture();
  ASSERT_TRUE(app->commands().run("step.forward"));
  app.bench().wait_idle();  // on another thread
  app.frame();
  EXPECT_EQ(app.kept(), 0) << "the session has gone on";
  app.frames(20);
  EXPECT_FALSE(QuietApp::picture() == before);
}

}  // namespace quiet_frames_test
}  // namespace attnscope::gui
