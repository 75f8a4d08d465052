// What is selected, under all of its names; every line leads on.
#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "app/gui/rich_text.h"
#include "app/gui/tables_state.h"
#include "app/gui/widgets.h"
#include "app/panels/panels.h"
#include "app/views/selection_view.h"

namespace attnscope::gui {
namespace {

class SelectionPanel : public Panel {
 public:
  SelectionPanel() : Panel("selection", "Selection") {}

  void draw(Ui& ui) override {
    Workbench& bench = ui.bench;
    const StepTrace* step =
        kept_step(ui, "The tables of this step are no longer kept. Run or replay it to see them.",
                  CaptureLevel::kTables);
    if (step == nullptr) return;
    if (step->requests.empty()) {
      empty_state(ui, "This step has not come to its block tables yet.", "op.forward");
      return;
    }
    refresh(bench, *step);
    sentence(view_.sentence);
    int id = 0;
    for (const SelectionPart& part : view_.parts) {
      ImGui::SeparatorText(part.title.c_str());
      if (!ImGui::BeginTable("##part", 2, ImGuiTableFlags_SizingStretchProp)) continue;
      ImGui::TableSetupColumn("name", ImGuiTableColumnFlags_WidthFixed, px(92));
      ImGui::TableSetupColumn("what", ImGuiTableColumnFlags_WidthStretch);
      for (const SelectionLine& line : part.lines) draw_line(bench, line, id++);
      ImGui::EndTable();
    }
  }

 private:
  // What the view was made from; the snapshot keeps it alive, so that equal pointers mean equal
  // data.
  struct Key {
    const StepTrace* step = nullptr;
    Place cursor{};
    Selection selection;
    std::int64_t row = -1;
    const OpTrace* op = nullptr;
    const TapCopy* tap = nullptr;
    friend bool operator==(const Key&, const Key&) = default;
  };

  void refresh(const Workbench& bench, const StepTrace& step) {
    const Key key{&step,      bench.cursor(),      bench.selection(), bench.selected_row(),
                  bench.op(), bench.selected_tap()};
    if (held_ && key == key_) return;
    key_ = key;
    held_ = bench.shared_snapshot();
    view_ =
        selection_view({*held_->info, step, key.cursor, key.selection, key.row, key.op, key.tap});
  }

  static void draw_line(Workbench& bench, const SelectionLine& line, int id) {
    ImGui::TableNextRow();
    ImGui::TableNextColumn();
    ImGui::TextDisabled("%s", line.label.c_str());
    ImGui::TableNextColumn();
    ImGui::PushID(id);
    const ImVec2 at = ImGui::GetCursorScreenPos();
    const float width = std::max(ImGui::GetContentRegionAvail().x, px(20));
    ImGui::BeginGroup();
    if (line.null) ImGui::PushStyleColor(ImGuiCol_Text, theme().text_dim);
    rich_text(line.text, width);
    if (line.null) ImGui::PopStyleColor();
    ImGui::EndGroup();
    const ImVec2 end(at.x + width, ImGui::GetItemRectMax().y);
    if (line.here) draw_selected_text(ImGui::GetWindowDrawList(), at, end);
    if (line.to) {
      ImGui::SetCursorScreenPos(at);
      if (ImGui::InvisibleButton("##line", ImVec2(width, std::max(end.y - at.y, 1.0f)))) {
        bench.select(*line.to);
      }
      if (ImGui::IsItemHovered()) {
        draw_hovered_text(ImGui::GetWindowDrawList(), at, end);
        ImGui::SetMouseCursor(ImGuiMouseCursor_Hand);
      }
    }
    ImGui::PopID();
  }

  SelectionView view_;
  Key key_;
  std::shared_ptr<const Snapshot> held_;
};

}  // namespace

std::unique_ptr<Panel> make_selection_panel() { return std::make_unique<SelectionPanel>(); }

}  // namespace attnscope::gui
