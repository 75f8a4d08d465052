#include "app/cli/commands.h"

#ifdef ATTNSCOPE_HAS_GUI
#include "app/gui/gui.h"
#include "app/panels/panels.h"
#endif

namespace attnscope {

Result<as_status> gui_command(const GuiCommand& command) {
#ifdef ATTNSCOPE_HAS_GUI
  gui::GuiOptions options;
  options.scenario = command.scenario;
  options.model = command.model;
  options.references = command.references;
  if (!command.lanes.empty()) options.lanes = command.lanes;
  options.layout = command.layout;
  options.at = command.at;
  options.commands = command.commands;
  options.screenshot = command.screenshot;
  options.tour = command.tour;
  options.report = command.report;
  options.width = command.width;
  options.height = command.height;
  options.threads = command.threads;
  return gui::run_gui(options, {gui::make_panels});
#else
  (void)command;
  return Error{
      AS_NO_ENVIRONMENT, "this build has no desktop app",
      "install libglfw3-dev, libgl-dev, libopengl-dev, libegl-dev and libx11-dev and build "
      "again; without it, "
      "'attnscope run' and all other commands work"};
#endif
}

}  // namespace attnscope
