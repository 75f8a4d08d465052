// Block tables of every request and group as strips of cells.
#include <fmt/format.h>

#include <algorithm>

#include "app/common/views/block_tables_view.h"
#include "app/common/views/linkage.h"
#include "app/common/views/pool_view.h"
#include "app/gui/widgets.h"
#include "app/panels/panels.h"

namespace attnscope::gui {
namespace {

class BlockTablesPanel : public Panel {
 public:
  BlockTablesPanel() : Panel("block_tables", "Block tables") {}

  void draw(Ui& ui) override {
    Workbench& bench = ui.bench;
    const StepTrace* step = bench.step();
    if (step == nullptr || step->requests.empty()) {
      empty_state(ui,
                  bench.snapshot() == nullptr
                      ? "No session yet."
                      : "The block tables of this step are not kept. Run or replay it to see them.",
                  "step.forward");
      return;
    }
    const SessionInfo& info = *bench.snapshot()->info;
    if (bench.version() != version_) {
      version_ = bench.version();
      view_ = block_tables_view(info, *step, bench.selected_request(), bench.selected_position());
      hovered_ = -1;
    }
    sentence(view_.sentence);
    for (const TablesOfRequest& request : view_.requests) {
      ImGui::PushID(request.request);
      const bool selected = request.request == bench.selected_request();
      ImGui::Spacing();
      const ImVec2 at = ImGui::GetCursorScreenPos();
      const float side = ImGui::GetTextLineHeight() * 0.7f;
      ImGui::GetWindowDrawList()->AddRectFilled(ImVec2(at.x, at.y + side * 0.25f),
                                                ImVec2(at.x + side, at.y + side * 1.25f),
                                                owner_colour(request.request), px(2));
      ImGui::SetCursorPosX(ImGui::GetCursorPosX() + side + px(6));
      ImGui::PushStyleColor(ImGuiCol_Text, selected ? theme().accent : theme().text);
      if (ImGui::Selectable(request.title.c_str(), false)) bench.select_token(request.request, -1);
      ImGui::PopStyleColor();
      ImGui::PushStyleColor(ImGuiCol_Text, theme().text_dim);
      ImGui::TextUnformatted(fmt::format("\"{}\"", request.text).c_str());
      ImGui::PopStyleColor();
      for (const TableStrip& strip : request.strips) {
        ImGui::PushID(strip.group);
        draw_strip(ui, info, *step, request.request, strip);
        ImGui::PopID();
      }
      ImGui::PopID();
    }
  }

 private:
  void draw_strip(Ui& ui, const SessionInfo& info, const StepTrace& step, std::int32_t request,
                  const TableStrip& strip) {
    ImGui::PushStyleColor(ImGuiCol_Text, theme().text_faint);
    ImGui::TextUnformatted(strip.title.c_str());
    ImGui::PopStyleColor();
    ImGui::PushFont(numbers(), ImGui::GetStyle().FontSizeBase * 0.8f);
    const float height = px(20), cell_width = px(32), gap = px(2);
    const float width = std::max(cell_width, ImGui::GetContentRegionAvail().x);
    const int columns = std::max(1, static_cast<int>((width + gap) / (cell_width + gap)));
    const int count = static_cast<int>(strip.cells.size());
    const int lines = std::max(1, (count + columns - 1) / columns);
    const ImVec2 at = ImGui::GetCursorScreenPos();
    if (count == 0) {
      ImGui::TextDisabled("no entry yet");
      ImGui::PopFont();
      return;
    }
    ImGui::InvisibleButton("##strip", ImVec2(width, static_cast<float>(lines) * (height + gap)));
    const bool over = ImGui::IsItemHovered();
    const bool click = ImGui::IsItemClicked();
    ImDrawList* list = ImGui::GetWindowDrawList();
    const float top = list->GetClipRectMin().y, bottom = list->GetClipRectMax().y;
    int line = std::clamp(static_cast<int>((top - at.y) / (height + gap)), 0, lines);
    for (; line < lines; ++line) {
      const float y = at.y + static_cast<float>(line) * (height + gap);
      if (y > bottom) break;
      for (int c = 0; c < columns && line * columns + c < count; ++c) {
        const TableStripCell& cell = strip.cells[static_cast<std::size_t>(line * columns + c)];
        const ImVec2 min(at.x + static_cast<float>(c) * (cell_width + gap), y);
        const ImVec2 max(min.x + cell_width, min.y + height);
        draw_cell(list, strip, cell, request, min, max);
        if (cell.block != 0 && cell.block == ui.bench.selection().block) {
          draw_selected(list, min, max);
        }
        if (over && ImGui::IsMouseHoveringRect(min, max)) {
          draw_hovered(list, min, max);
          hover(ui, info, step, strip, cell, request, click);
        }
      }
    }
    ImGui::PopFont();
  }

  static void draw_cell(ImDrawList* list, const TableStrip& strip, const TableStripCell& cell,
                        std::int32_t request, ImVec2 min, ImVec2 max) {
    if (cell.block == 0) {
      draw_hatch(list, min, max);
      if (cell.count > 1) {
        const std::string text = fmt::format("×{}", cell.count);
        const ImVec2 size = ImGui::CalcTextSize(text.c_str());
        const ImVec2 middle((min.x + max.x) / 2, (min.y + max.y) / 2);
        list->AddRectFilled(ImVec2(middle.x - size.x / 2 - 2, min.y + 2),
                            ImVec2(middle.x + size.x / 2 + 2, max.y - 2), theme().panel);
        draw_cell_text(list, min, max, theme().text_dim, text);
      }
      return;
    }
    const ImU32 colour = with_alpha(owner_colour(request), cell.in_window ? 1.0f : 0.45f);
    list->AddRectFilled(min, max, colour, px(2));
    if (cell.fresh) list->AddRect(min, max, theme().text, px(2), px(1.5f));
    draw_cell_text(list, min, max, cell.in_window ? text_on(owner_colour(request)) : theme().text,
                   fmt::format("{}", cell.block));
    if (cell.row >= 0) {
      const float x = min.x + (max.x - min.x) * (static_cast<float>(cell.row) + 0.5f) /
                                  static_cast<float>(strip.rows_per_block);
      list->AddTriangleFilled(ImVec2(x, max.y - px(6)), ImVec2(x - px(4), max.y),
                              ImVec2(x + px(4), max.y), theme().accent);
    }
  }

  void hover(Ui& ui, const SessionInfo& info, const StepTrace& step, const TableStrip& strip,
             const TableStripCell& cell, std::int32_t request, bool click) {
    if (cell.block == 0) {
      tooltip(fmt::format("{} null {}: entries {}-{} left the window; nothing reads them",
                          cell.count, cell.count == 1 ? "entry" : "entries", cell.index,
                          cell.index + cell.count - 1));
      return;
    }
    if (hovered_ != cell.block) {
      hovered_ = cell.block;
      text_ = describe_block(info, step, cell.block);
    }
    tooltip(text_);
    if (!click) return;
    Selection selection = ui.bench.selection();
    selection.request = request;
    selection.block = cell.block;
    selection.group = strip.group;
    selection.row = cell.row;
    ui.bench.select(selection);
  }

  BlockTablesView view_;
  std::uint64_t version_ = ~std::uint64_t{0};
  std::int32_t hovered_ = -1;
  std::string text_;
};

}  // namespace

std::unique_ptr<Panel> make_block_tables_panel() { return std::make_unique<BlockTablesPanel>(); }

}  // namespace attnscope::gui
