// Curves of a training while it runs: the panel follows the table as it grows.
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "tests/ui/driven_app.h"

namespace attnscope::gui {
namespace driven_training_test {

namespace fs = std::filesystem;

constexpr const char* kHead =
    "step,stage,rate,loss,kl,held_loss,held_sparse,layer,layer_kl,recall,mass,overlap,changed\n";

std::string line(int step) {
  return std::to_string(step) + ",model,0.001,2.5,0.5,2.75,3,0,0.25,0.5,0.5,0.125,1\n";
}

// Another time of writing than before, whatever the file system's clock.
void write(const fs::path& path, const std::string& text, int age) {
  fs::create_directories(path.parent_path());
  std::ofstream(path) << text;
  fs::last_write_time(path, fs::file_time_type::clock::now() - std::chrono::seconds(age));
}

TEST(TrainingPanel, FollowsATableAsItGrows) {
  const fs::path home = fs::temp_directory_path() / "attnscope_training_panel";
  fs::remove_all(home);
  setenv("XDG_DATA_HOME", home.c_str(), 1);
  DrivenApp app(References::kNone);
  app.drive([&](User& user) {
    user.show("training");
    EXPECT_NE(user.screen().find("Nothing has been trained: "), std::string::npos);
    const fs::path table = home / "attnscope/trained/tiny-v3.2/model.csv";
    write(table, kHead + line(50), 90);
    write(home / "attnscope/trained/tiny-v3.2/indexer.csv", kHead, 90);
    const auto waited = [&](const std::string& words) {
      for (int i = 0; i < 400 && user.screen().find(words) == std::string::npos; ++i) user.wait(5);
      return user.screen().find(words) != std::string::npos;
    };
    EXPECT_TRUE(waited("No interval has ended yet."));  // the indexer's comes first by name
    user.look_at("training");
    user.ctx->ComboClick("##training/tiny-v3.2 model");
    EXPECT_TRUE(waited("50 steps, stage model: loss on held-out text 2.7500 nats a byte"));
    write(table, kHead + line(50) + line(100), 30);
    EXPECT_TRUE(waited("100 steps, stage model"));
    // What a figure means, and its values where the mouse is.
    user.ctx->MouseMove("loss, nats a byte##0");
    user.wait(3);
    EXPECT_NE(user.screen().find("Loss of the next byte"), std::string::npos);
    EXPECT_NE(user.screen().find("held out, selected 3"), std::string::npos);
    write(table, "something else\n", 10);
    EXPECT_TRUE(waited("line 1: not the head of a training's table"));
    EXPECT_FALSE(app->commands().run("training.show=nobody"));
  });
  unsetenv("XDG_DATA_HOME");
  fs::remove_all(home);
}

// A tab in the layouts whose subject it is, on a laptop's screen too.
TEST(TrainingPanel, IsDockedInStepAndSelection) {
  DrivenApp app(References::kNone);
  app.drive([&](User& user) {
    for (const ImVec2 size : {ImVec2(1280, 720), ImVec2(1600, 1000)}) {
      ImGui::GetIO().DisplaySize = size;
      user.settle();
      for (const char* layout : {"step", "selection"}) {
        ASSERT_TRUE(app->commands().run(std::string("layout.") + layout));
        user.wait(4);
        user.show("training");
        user.wait(3);
        const ImGuiWindow* window =
            user.ctx->GetWindowByRef(("//" + user.window("training")).c_str());
        ASSERT_NE(window, nullptr) << layout;
        EXPECT_NE(window->DockNode, nullptr) << layout << " of " << size.x;
      }
    }
  });
}

}  // namespace driven_training_test
}  // namespace attnscope::gui
