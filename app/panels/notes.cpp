// Notes: what was noted on places of the run, and bookmarks. A click goes there.
#include <fmt/format.h>

#include <memory>

#include "app/gui/icons.h"
#include "app/gui/text_input.h"
#include "app/gui/theme.h"
#include "app/gui/widgets.h"
#include "app/panels/panels.h"
#include "app/views/note_view.h"

namespace attnscope::gui {
namespace {

class NotesPanel : public Panel {
 public:
  NotesPanel() : Panel("notes", "Notes") {}
  void draw(Ui& ui) override;
  bool scrolls() const override { return false; }

 private:
  void draw_field(Ui& ui);
  static void draw_note(Ui& ui, std::size_t index);

  std::string typed_, refused_;
};

void NotesPanel::draw_field(Ui& ui) {
  command_button(ui, "place.back", icon::kAngleLeft);
  ImGui::SameLine(0, px(4));
  command_button(ui, "place.forward", icon::kAngleRight);
  ImGui::SameLine(0, px(8));
  ImGui::BeginDisabled(ui.bench.snapshot() == nullptr || ui.bench.cursor().step < 0);
  ImGui::SetNextItemWidth(-1);
  const bool added = text_input("##note", typed_, "a note on the op that is shown, then Enter",
                                ImGuiInputTextFlags_EnterReturnsTrue);
  ImGui::EndDisabled();
  if (added && !typed_.empty()) {
    const auto ok = ui.commands.run("note.add=" + typed_);
    refused_ = ok ? "" : ok.error().text();
    if (ok) typed_.clear();
  }
  if (!refused_.empty()) paragraph(refused_, Verdict::kWrong);
}

void NotesPanel::draw_note(Ui& ui, std::size_t index) {
  const Note& note = ui.bench.notes()[index];
  ImGui::PushID(static_cast<int>(index));
  const bool here = note.place == ui.bench.cursor();
  const float cross = ImGui::CalcTextSize(icon::kCross).x + px(12);
  const float room = ImGui::GetContentRegionAvail().x - cross - px(8);
  const std::string place = note_place(*ui.bench.snapshot()->info, note);
  const ImVec2 at = ImGui::GetCursorScreenPos();
  const float line = ImGui::GetTextLineHeight();
  const float height = note.text.empty() ? line + px(6) : 2 * line + px(8);
  const bool clicked = ImGui::Selectable("##go", here, 0, {room, height});
  if (ImGui::IsItemHovered(ImGuiHoveredFlags_DelayShort)) {
    tooltip(note.text.empty() ? place : place + "\n" + note.text);
  }
  ImDrawList* list = ImGui::GetWindowDrawList();
  const float top = at.y + px(3);
  const float left = at.x + px(4), wide = room - px(4);
  if (!note.text.empty()) text_cut(list, {left, top}, wide, theme().text, note.text);
  const float below = note.text.empty() ? top : top + line + px(2);
  text_cut(list, {left, below}, wide, theme().text_dim, place);
  ImGui::SameLine(0, px(8));
  const bool removed = ImGui::Button(icon::kCross);
  if (ImGui::IsItemHovered(ImGuiHoveredFlags_DelayShort)) tooltip("Remove the note.");
  ImGui::PopID();
  if (clicked) ui.run(fmt::format("note.goto={}", index + 1));
  if (removed) ui.run(fmt::format("note.remove={}", index + 1));
}

void NotesPanel::draw(Ui& ui) {
  if (ui.bench.snapshot() == nullptr) {
    sentence("No session: open a scenario or a capture first.");
    return;
  }
  sentence(notes_sentence(ui.bench.notes(), ui.bench.notes_file()));
  draw_field(ui);
  if (ImGui::BeginChild("##notes", ImVec2(-1, -1))) {
    for (std::size_t i = 0; i < ui.bench.notes().size(); ++i) draw_note(ui, i);
  }
  ImGui::EndChild();
}

}  // namespace

std::unique_ptr<Panel> make_notes_panel() { return std::make_unique<NotesPanel>(); }

}  // namespace attnscope::gui
