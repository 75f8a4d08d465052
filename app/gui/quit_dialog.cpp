#include "app/gui/quit_dialog.h"

#include "app/gui/widgets.h"

namespace attnscope::gui {

void QuitDialog::ask(std::vector<std::string> what) {
  what_ = std::move(what);
  dialog_.open();
}

bool QuitDialog::draw(Ui& ui) {
  if (!dialog_.begin("Quit attnscope?", {460, 0})) return false;
  for (const std::string& what : what_) ImGui::TextWrapped("%s", what.c_str());
  ImGui::Spacing();
  const bool quit = ImGui::Button("Quit all the same##quit");
  ImGui::SameLine();
  if (ImGui::Button("Save scenario ..##quit")) {
    dialog_.close();
    ui.run("scenario.save");
  }
  ImGui::SameLine();
  if (ImGui::Button("Stay##quit")) dialog_.close();
  dialog_.end();
  return quit;
}

}  // namespace attnscope::gui
