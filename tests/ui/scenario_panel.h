// The scenario panel, torn off and tall, over a session whose scenario comes from a file.
#pragma once

#include <string>

#include "tests/ui/driven_app.h"

namespace attnscope::gui {

// The draft is read on a thread of its own.
inline void wait_for_draft(User& user) { user.wait_for("scenario"); }

inline void open_early(DrivenApp& app, User& user) {
  ASSERT_TRUE(app->commands().run("references.set=none"));
  ASSERT_TRUE(app->commands().run("scenario.open=early"));
  user.settle();
  ASSERT_EQ(app.bench().setup().scenario.name, "early");
  user.show("scenario");
  const std::string window = "//" + user.window("scenario");
  user.ctx->UndockWindow(window.c_str());
  user.ctx->WindowMove(window.c_str(), ImVec2(100, 60));
  user.ctx->WindowResize(window.c_str(), ImVec2(700, 900));
  user.look_at("scenario");
  wait_for_draft(user);
}

}  // namespace attnscope::gui
