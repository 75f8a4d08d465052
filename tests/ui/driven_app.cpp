#include "tests/ui/driven_app.h"

#include <algorithm>
#include <cfloat>
#include <chrono>
#include <thread>
#include <utility>

#include "app/gui/layouts.h"

namespace attnscope::gui {

DrivenApp::DrivenApp(References references) : engine_(ImGuiTestEngine_CreateContext()) {
  app_ = std::make_unique<HeadlessApp>(references);
  ImGuiTestEngineIO& io = ImGuiTestEngine_GetIO(engine_.get());
  io.ConfigSavedSettings = false;
  io.ConfigRunSpeed = ImGuiTestRunSpeed_Fast;
  io.ConfigMouseDrawCursor = false;
  io.ConfigVerboseLevel = ImGuiTestVerboseLevel_Warning;
  io.ConfigVerboseLevelOnError = ImGuiTestVerboseLevel_Info;
  // Slow machines and sanitizers are no failure.
  io.ConfigWatchdogWarning = io.ConfigWatchdogKillTest = FLT_MAX;
  ImGuiTestEngine_Start(engine_.get(), ImGui::GetCurrentContext());
  for (int i = 0; i < 2; ++i) app_->frame();  // the engine wants to see the app before tests
}

DrivenApp::~DrivenApp() {
  ImGuiTestEngine_Stop(engine_.get());
  app_.reset();
}

void DrivenApp::drive(const std::function<void(User&)>& act) {
  const std::string name = "run " + std::to_string(runs_++);
  ImGuiTest* test = ImGuiTestEngine_RegisterTest(engine_.get(), "app", name.c_str());
  test->GuiFunc = [this](ImGuiTestContext*) {
    if (std::exchange(log_frame_, false)) ImGui::LogToClipboard();
  };
  test->TestFunc = [&](ImGuiTestContext* context) {
    User user(*this, context);
    act(user);
  };
  ImGuiTestEngine_QueueTest(engine_.get(), test);
  while (!ImGuiTestEngine_IsTestQueueEmpty(engine_.get())) {
    app_->frame();
    ImGuiTestEngine_PostSwap(engine_.get());
  }
  if (test->Output.Status != ImGuiTestStatus_Success) {
    ImGuiTextBuffer log;
    test->Output.Log.ExtractLinesForVerboseLevels(ImGuiTestVerboseLevel_Error,
                                                  ImGuiTestVerboseLevel_Info, &log);
    ADD_FAILURE() << "the screen is not as the test expects:\n" << log.c_str();
  }
}

bool DrivenApp::checked(std::string_view command) {
  const Command* found = (*this)->commands().find(command);
  return found != nullptr && found->checked && found->checked();
}

bool DrivenApp::said(std::string_view text) {
  const auto& messages = bench().messages();
  return std::any_of(messages.begin(), messages.end(),
                     [&](const Message& m) { return m.text.find(text) != std::string::npos; });
}

void User::settle() {
  for (int i = 0; i < 3; ++i) {
    app_.bench().wait_idle();
    ctx->Yield(2);
  }
}

void User::wait_for(const char* panel) {
  Panel* found = app_->shell().panel(panel);
  ASSERT_NE(found, nullptr) << panel;
  ctx->Yield(2);  // what was typed last reaches the panel
  const auto end = std::chrono::steady_clock::now() + std::chrono::minutes(1);
  while (found->animating()) {
    ASSERT_LT(std::chrono::steady_clock::now(), end) << panel;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    ctx->Yield(1);
  }
  ctx->Yield(2);  // and its result the layout
}

std::string User::window(const char* panel) const {
  Panel* found = app_->shell().panel(panel);
  EXPECT_NE(found, nullptr) << panel;
  return found != nullptr ? window_name(*found) : std::string();
}

void User::look_at(const char* panel) { ctx->SetRef(("//" + window(panel)).c_str()); }

void User::show(const char* panel) {
  const auto ok = app_->commands().run(std::string("panel.") + panel);
  EXPECT_TRUE(ok) << panel;
  ctx->Yield(3);
  look_at(panel);
}

std::vector<std::int64_t> User::numbers(const std::string& prefix) {
  ImGuiTestItemList items;
  ctx->GatherItems(&items, ctx->GetRef());
  std::vector<std::int64_t> found;
  for (const ImGuiTestItemInfo& item : items) {
    const std::string_view label = item.DebugLabel;
    if (!label.starts_with(prefix) || item.RectClipped.GetHeight() < 4) continue;
    found.push_back(std::stoll(std::string(label.substr(prefix.size()))));
  }
  std::sort(found.begin(), found.end());
  return found;
}

ImRect User::rect(const std::string& item) {
  const ImGuiTestItemInfo info = ctx->ItemInfo(item.c_str());
  EXPECT_NE(info.ID, 0u) << item;
  return info.RectFull;
}

void User::click(const std::string& item, float x, float y) {
  const ImRect at = rect(item);
  click(ImVec2(at.Min.x + x * at.GetWidth(), at.Min.y + y * at.GetHeight()));
}

void User::click(ImVec2 at) {
  ctx->MouseMoveToPos(at);
  ctx->MouseClick(0);
  ctx->Yield(2);
}

void User::drag(ImVec2 from, ImVec2 to) {
  ctx->MouseMoveToPos(from);
  ctx->MouseDown(0);
  ctx->MouseLiftDragThreshold();
  ctx->MouseMoveToPos(ImVec2((from.x + to.x) / 2, (from.y + to.y) / 2));
  ctx->MouseMoveToPos(to);
  ctx->MouseUp(0);
  ctx->Yield(2);
}

std::string User::screen() {
  // ImGui logs the texts of one whole frame: from the gui function at its beginning.
  app_.log_frame_ = true;
  ctx->Yield(2);
  const char* text = ImGui::GetClipboardText();
  return text != nullptr ? text : "";
}

void User::keys(ImGuiKeyChord chord) {
  ctx->KeyPress(chord);
  ctx->Yield(2);
}

}  // namespace attnscope::gui
