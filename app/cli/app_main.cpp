// The desktop app as a program of its own: `attnscope gui` without options.
#include "app/gui/gui.h"
#include "app/panels/panels.h"
#include "app/wiring/command_end.h"

int main() {
  using namespace attnscope;
  return guarded_main([] {
    return exit_code_of(gui::run_gui(gui::GuiOptions{}, gui::GuiParts{gui::make_panels}));
  });
}
