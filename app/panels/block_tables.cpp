// Block tables of every request and group as strips of cells.
#include <fmt/format.h>

#include <algorithm>
#include <tuple>

#include "app/gui/colour.h"
#include "app/gui/legend_row.h"
#include "app/gui/tables_state.h"
#include "app/gui/widgets.h"
#include "app/panels/panels.h"
#include "app/views/block_tables_view.h"
#include "app/views/pool_view.h"
#include "engine/io/plural.h"

namespace attnscope::gui {
namespace {

class BlockTablesPanel : public Panel {
 public:
  BlockTablesPanel() : Panel("block_tables", "Block tables") {}
  void register_commands(Ui& ui) override;
  void draw(Ui& ui) override;

 private:
  // What view_ was made for.
  using Key = std::tuple<const StepTrace*, int, std::int32_t, std::int64_t>;
  struct Strip {  // geometry of one
    ImVec2 at;
    float cell = 0, height = 0, gap = 0;
    int columns = 1, lines = 1;
  };

  void refresh(const Ui& ui, const StepTrace& step);
  void draw_request(Ui& ui, const TablesOfRequest& request);
  void draw_header(Ui& ui, const TablesOfRequest& request);
  void draw_label(const TableStrip& strip, ImVec2 at, float height) const;
  void draw_strip(Ui& ui, const TablesOfRequest& request, const TableStrip& strip);
  void draw_local(Ui& ui, const TablesOfRequest& request, const TableStrip& strip);
  void draw_cell(const TablesOfRequest& request, const TableStrip& strip,
                 const TableStripCell& cell, ImVec2 min, ImVec2 max) const;
  void hover(Ui& ui, const TableStrip& strip, const TableStripCell& cell, bool click);
  void select(Workbench& bench, std::int32_t block);

  BlockTablesView view_;
  Key key_{};
  std::shared_ptr<const Snapshot> held_;  // keeps the step alive, so that its address is a key
  const StepTrace* step_ = nullptr;
  // Followed into sight when it changes elsewhere.
  std::int32_t block_ = -1, request_ = -1;
  bool show_block_ = false, show_request_ = false;
  std::pair<int, std::int32_t> hovered_{-1, -1};  // group and entry or block that text_ is of
  std::string text_;
};

void BlockTablesPanel::register_commands(Ui& ui) {
  Workbench& bench = ui.bench;
  const auto add = [&](const char* id, const char* title, const char* help, const char* shortcut,
                       auto choose) {
    ui.commands.add({.id = id,
                     .title = title,
                     .group = "Selection",
                     .help = help,
                     .shortcut = shortcut,
                     .run = [&bench, choose](std::string_view) -> Result<void> {
                       const StepTrace* step = bench.step();
                       const SessionInfo& info = *bench.snapshot()->info;
                       const std::int32_t block = choose(info, *step);
                       if (block > 0) {
                         bench.select(block_selection(info, *step, bench.selection(), block));
                       }
                       return {};
                     },
                     .enabled = [&bench] { return bench.step() != nullptr; },
                     .why_disabled = "the block tables of this step are not kept"});
  };
  const auto step_by = [&bench](int by) {
    return [&bench, by](const SessionInfo& info, const StepTrace& step) {
      return next_block(info, step, bench.selected_request(), bench.selected_position(),
                        bench.selection().block, by);
    };
  };
  add("block.next", "Next block", "Selects the next block of the same table.", "B", step_by(1));
  add("block.previous", "Previous block", "Selects the block before it in the same table.",
      "Shift+B", step_by(-1));
  add("block.next_group", "Next group's block",
      "Selects the block that holds the token in the next group.", "G",
      [&bench](const SessionInfo& info, const StepTrace& step) {
        const Selection& s = bench.selection();
        const bool whole = s.position >= 0 && s.request == bench.selected_request();
        return block_in_next_group(info, step, bench.selected_request(),
                                   whole ? s.position : bench.selected_position(),
                                   s.block >= 0 ? s.group : -1);
      });
}

void BlockTablesPanel::refresh(const Ui& ui, const StepTrace& step) {
  const Selection& selection = ui.bench.selection();
  const int layer = ui.bench.cursor().layer;
  if (selection.block != block_) show_block_ = selection.block > 0;
  if (selection.request != request_) show_request_ = request_ >= 0 && !show_block_;
  block_ = selection.block;
  request_ = selection.request;
  const Key key{&step, layer, selection.request, selection.position};
  if (key == key_) return;
  key_ = key;
  if (&step != step_) hovered_ = {-1, -1};
  held_ = ui.bench.shared_snapshot();
  step_ = &step;
  view_ = block_tables_view({*held_->info, step, layer, selection.request, selection.position});
}

void BlockTablesPanel::draw(Ui& ui) {
  Workbench& bench = ui.bench;
  const StepTrace* step = step_with_tables(ui, "The block tables");
  if (step == nullptr) return;
  refresh(ui, *step);
  sentence(view_.sentence);
  LegendRow row;
  row.swatch(owner_colour(bench.selection().request), "the token may read");
  row.hatched("null");
  row.mark(LegendMark::kFresh, "taken now");
  row.mark(LegendMark::kSlot, "the token's slot");
  if (bench.selection().position >= 0 && bench.selection().position != bench.selected_position()) {
    row.mark(LegendMark::kPicked, "selected position");
  }
  for (const TablesOfRequest& request : view_.requests) {
    ImGui::PushID(request.request);
    draw_request(ui, request);
    ImGui::PopID();
  }
}

void BlockTablesPanel::draw_header(Ui& ui, const TablesOfRequest& request) {
  const bool selected = request.request == ui.bench.selection().request;
  ImGui::Dummy({0, px(2)});
  if (selected && show_request_) {
    ImGui::SetScrollHereY(0.1f);
    show_request_ = false;
  }
  const ImVec2 at = ImGui::GetCursorScreenPos();
  const float line = ImGui::GetTextLineHeight(), side = std::round(line * 0.72f);
  if (ImGui::Selectable("##request", selected, ImGuiSelectableFlags_AllowOverlap, {0, line})) {
    ui.bench.select_token(request.request, -1);
  }
  if (ImGui::IsItemHovered()) {
    tooltip(fmt::format("request {} \"{}\"\n{}\n\"{}\"\nclick: selects it", request.request,
                        request.name, request.state, request.text));
  }
  ImDrawList* list = ImGui::GetWindowDrawList();
  const float top = std::round(at.y + (line - side) / 2);
  list->AddRectFilled({at.x, top}, {at.x + side, top + side}, owner_colour(request.request), px(2));
  const std::string name = fmt::format("{} {}", request.request, request.name);
  const float x = at.x + side + px(6);
  list->AddText({x, at.y}, selected ? theme().accent : theme().text, name.c_str());
  const float after = x + ImGui::CalcTextSize(name.c_str()).x + px(10);
  const float width = ImGui::CalcTextSize(request.state.c_str()).x;
  if (after + width <= at.x + ImGui::GetContentRegionAvail().x) {
    list->AddText({after, at.y}, theme().text_dim, request.state.c_str());
  } else {
    ImGui::PushStyleColor(ImGuiCol_Text, theme().text_dim);
    ImGui::TextWrapped("%s", request.state.c_str());
    ImGui::PopStyleColor();
  }
  const std::string text = fmt::format("\"{}\"", request.text);
  ImGui::PushStyleColor(ImGuiCol_Text, theme().text_faint);
  ImGui::PushFont(numbers(), ImGui::GetStyle().FontSizeBase * 0.85f);
  ImGui::TextUnformatted(text.c_str());
  ImGui::PopFont();
  ImGui::PopStyleColor();
}

void BlockTablesPanel::draw_request(Ui& ui, const TablesOfRequest& request) {
  draw_header(ui, request);
  for (const TableStrip& strip : request.strips) {
    ImGui::PushID(strip.group);
    draw_strip(ui, request, strip);
    draw_local(ui, request, strip);
    ImGui::PopID();
  }
}

void BlockTablesPanel::draw_label(const TableStrip& strip, ImVec2 at, float height) const {
  ImDrawList* list = ImGui::GetWindowDrawList();
  const float base = ImGui::GetStyle().FontSizeBase;
  ImGui::PushFont(nullptr, base * 0.85f);
  list->AddText(at, theme().text_dim, strip.name.c_str());
  const float line = ImGui::GetTextLineHeight();
  ImGui::PopFont();
  ImGui::PushFont(nullptr, base * 0.72f);
  list->AddText({at.x, at.y + line - px(2)}, theme().text_faint, strip.note.c_str());
  ImGui::PopFont();
  ImGui::SetCursorScreenPos(at);
  ImGui::Dummy({px(74), height});
  if (ImGui::IsItemHovered()) tooltip(group_text(*held_->info, strip.group));
}

void BlockTablesPanel::draw_strip(Ui& ui, const TablesOfRequest& request, const TableStrip& strip) {
  const int count = static_cast<int>(strip.cells.size());
  ImGui::PushFont(numbers(), ImGui::GetStyle().FontSizeBase * 0.8f);
  Strip s;
  s.gap = px(2);
  s.height = px(19);
  // Wide enough for every id of the pool.
  const std::string widest = std::to_string(held_->info->num_blocks);
  s.cell = std::max(px(30), std::ceil(ImGui::CalcTextSize(widest.c_str()).x) + px(7));
  ImGui::PopFont();
  const ImVec2 start = ImGui::GetCursorScreenPos();
  const float label = px(78), room = ImGui::GetContentRegionAvail().x;
  const float width = std::max(s.cell, room - label);
  s.columns = std::max(1, static_cast<int>((width + s.gap) / (s.cell + s.gap)));
  s.lines = std::max(1, (count + s.columns - 1) / s.columns);
  const float tall = static_cast<float>(s.lines) * (s.height + s.gap);
  const float label_height = px(27);
  draw_label(strip, start, label_height);
  s.at = {start.x + label, start.y + (s.lines == 1 ? px(3) : 0)};
  ImGui::SetCursorScreenPos(s.at);
  ImGui::InvisibleButton("##strip", {width, std::max(tall, label_height - px(3))});
  const bool over = ImGui::IsItemHovered();
  const bool click = ImGui::IsItemClicked() || picked_for_menu();
  const bool twice = over && ImGui::IsMouseDoubleClicked(ImGuiMouseButton_Left);
  ImDrawList* list = ImGui::GetWindowDrawList();
  ImGui::PushFont(numbers(), ImGui::GetStyle().FontSizeBase * 0.8f);
  if (count == 0) list->AddText(s.at, theme().text_faint, request.none.c_str());
  const float pitch = s.height + s.gap;
  if (show_block_) {
    for (int i = 0; i < count; ++i) {
      if (strip.cells[static_cast<std::size_t>(i)].block != block_) continue;
      const int line = i / s.columns;
      const float y = s.at.y + static_cast<float>(line) * pitch;
      if (!ImGui::IsRectVisible({s.at.x, y}, {s.at.x + 1, y + s.height})) {
        ImGui::SetScrollFromPosY(y - ImGui::GetWindowPos().y, 0.5f);
      }
      show_block_ = false;
    }
  }
  const float top = list->GetClipRectMin().y, bottom = list->GetClipRectMax().y;
  const int first = std::clamp(static_cast<int>((top - s.at.y) / pitch), 0, s.lines);
  const int last = std::clamp(static_cast<int>((bottom - s.at.y) / pitch) + 1, first, s.lines);
  for (int i = first * s.columns; i < std::min(count, last * s.columns); ++i) {
    const TableStripCell& cell = strip.cells[static_cast<std::size_t>(i)];
    const int line = i / s.columns;
    const ImVec2 min(s.at.x + static_cast<float>(i % s.columns) * (s.cell + s.gap),
                     s.at.y + static_cast<float>(line) * pitch);
    const ImVec2 max(min.x + s.cell, min.y + s.height);
    draw_cell(request, strip, cell, min, max);
    if (cell.block != 0 && cell.block == block_) draw_selected(list, min, max);
    if (over && ImGui::IsMouseHoveringRect(min, max)) {
      draw_hovered(list, min, max);
      hover(ui, strip, cell, click);
      if (twice && cell.block > 0) ui.run("panel.bytes");
    }
  }
  ImGui::PopFont();
}

// The tables that attention in chunks is given in this step: a line a sequence.
void BlockTablesPanel::draw_local(Ui& ui, const TablesOfRequest& request, const TableStrip& strip) {
  if (strip.local.empty()) return;
  ImDrawList* list = ImGui::GetWindowDrawList();
  ImGui::PushFont(numbers(), ImGui::GetStyle().FontSizeBase * 0.8f);
  const float cell = px(30), height = px(15), gap = px(2), indent = px(78);
  for (const LocalSequence& one : strip.local) {
    ImGui::PushID(static_cast<int>(one.sequence));
    const ImVec2 at = ImGui::GetCursorScreenPos();
    const std::string text = fmt::format("seq {}  {}", one.sequence, one.text());
    const float cells =
        (cell + gap) * static_cast<float>(std::max<std::size_t>(one.blocks.size(), 1));
    const float width = indent + cells + px(6) + ImGui::CalcTextSize(text.c_str()).x;
    ImGui::InvisibleButton("##local", {width, height});
    const bool over = ImGui::IsItemHovered();
    const bool click = ImGui::IsItemClicked() || picked_for_menu();
    for (std::size_t i = 0; i < one.blocks.size(); ++i) {
      const ImVec2 min(at.x + indent + static_cast<float>(i) * (cell + gap), at.y);
      const ImVec2 max(min.x + cell, min.y + height);
      const std::int32_t block = one.blocks[i];
      if (block <= 0) {
        draw_hatch(list, min, max);
        continue;
      }
      const ImU32 owner = owner_colour(request.request);
      list->AddRect(min, max, owner, px(2));
      draw_cell_text(list, min, max, theme().text, std::to_string(block));
      if (!over || !ImGui::IsMouseHoveringRect(min, max)) continue;
      draw_hovered(list, min, max);
      if (click) select(ui.bench, block);
    }
    list->AddText({at.x + indent + cells + px(4), at.y}, theme().text_dim, text.c_str());
    if (over) {
      tooltip(
          fmt::format("row {} of local_batch: {}\n{} of layer group {} as attention is given "
                      "them, a sequence a chunk",
                      one.sequence, one.text(), agree(one.blocks.size(), "the block", "the blocks"),
                      strip.name));
    }
    ImGui::PopID();
  }
  ImGui::PopFont();
}

void BlockTablesPanel::draw_cell(const TablesOfRequest& request, const TableStrip& strip,
                                 const TableStripCell& cell, ImVec2 min, ImVec2 max) const {
  ImDrawList* list = ImGui::GetWindowDrawList();
  const Theme& t = theme();
  if (cell.block == 0) {
    draw_hatch(list, min, max);
    if (cell.was != 0) list->AddRect(min, max, t.text_dim, 0, 1);
    const std::string text = cell.count > 1 ? fmt::format("×{}", cell.count)
                             : cell.was > 0 ? std::to_string(cell.was)
                                            : std::string();
    if (text.empty()) return;
    const ImVec2 size = ImGui::CalcTextSize(text.c_str());
    const ImVec2 middle((min.x + max.x) / 2, (min.y + max.y) / 2);
    list->AddRectFilled({middle.x - size.x / 2 - px(2), min.y + px(2)},
                        {middle.x + size.x / 2 + px(2), max.y - px(2)}, t.panel);
    draw_cell_text(list, min, max, t.text_dim, text);
    return;
  }
  const ImU32 owner = owner_colour(request.request);
  const ImU32 colour = cell.in_window ? owner : mix(owner, t.panel, 0.62f);
  list->AddRectFilled(min, max, colour, px(2));
  draw_cell_text(list, min, max, text_on(colour), std::to_string(cell.block));
  if (cell.fresh) draw_mark(list, LegendMark::kFresh, min, max);
  const auto mark_row = [&](LegendMark mark, std::int32_t row) {
    if (row < 0) return;
    const float half = px(5);
    const float x = min.x + (max.x - min.x) * (static_cast<float>(row) + 0.5f) /
                                static_cast<float>(strip.block_tokens);
    draw_mark(list, mark, {x - half, max.y - px(14)}, {x + half, max.y + px(1)});
  };
  mark_row(LegendMark::kSlot, cell.row);
  mark_row(LegendMark::kPicked, cell.picked);
}

void BlockTablesPanel::hover(Ui& ui, const TableStrip& strip, const TableStripCell& cell,
                             bool click) {
  const std::pair<int, std::int32_t> key =
      cell.block > 0 ? std::pair{-2, cell.block} : std::pair{strip.group, cell.index};
  if (key != hovered_) {
    hovered_ = key;
    text_ = cell.block > 0 ? describe_block(*held_->info, *step_, cell.block)
                           : null_text(*held_->info, strip.group, cell);
  }
  tooltip(text_);
  if (click && cell.block > 0) select(ui.bench, cell.block);
}

void BlockTablesPanel::select(Workbench& bench, std::int32_t block) {
  bench.select(block_selection(*held_->info, *step_, bench.selection(), block));
  block_ = bench.selection().block;  // it is in sight already
  request_ = bench.selection().request;
}

}  // namespace

std::unique_ptr<Panel> make_block_tables_panel() { return std::make_unique<BlockTablesPanel>(); }

}  // namespace attnscope::gui
