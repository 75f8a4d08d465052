// Sink: how the attention weight of the selected token is shared out between window, compressed
// entries and sink, per head; and the sink's part in every layer.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>

#include "app/gui/data_table.h"
#include "app/gui/heat_map.h"
#include "app/gui/tables_state.h"
#include "app/gui/theme.h"
#include "app/gui/widgets.h"
#include "app/panels/panels.h"
#include "app/text/format.h"
#include "app/views/op_order.h"
#include "app/views/sink_view.h"
#include "app/workbench/missing_ops.h"
#include "engine/model/numbers.h"

namespace attnscope::gui {
namespace {

class SinkPanel : public Panel {
 public:
  SinkPanel() : Panel("sink", "Sink") { table_.least_width = 840; }
  void draw(Ui& ui) override;
  bool animating() const override { return heat_map_.busy(); }

 private:
  // The snapshot keeps the ops alive, so that equal pointers mean equal data.
  struct Key {
    const OpTrace* attention = nullptr;  // of the layer shown
    std::size_t layers = 0;              // whose attention ran
    std::int64_t row = -1, step = -1;
    friend bool operator==(const Key&, const Key&) = default;
  };

  void refresh(const Ui& ui, const StepTrace& step);
  void draw_bars(Ui& ui, ImVec2 size);
  void draw_bar(const SinkHead& head, ImVec2 min, ImVec2 max) const;
  std::string describe(int head) const;
  const char* rows_word() const { return view_.windowed ? "window" : "rows"; }
  void draw_map(Ui& ui, ImVec2 size);
  void draw_checks() const;
  void fill_table();
  static void select_head(Ui& ui, std::int64_t head);

  Tolerance tolerance_;
  bool tolerance_known_ = false;
  Key key_;
  std::shared_ptr<const Snapshot> held_;
  std::uint64_t version_ = 0;  // of view_ and map_
  SinkLayer layer_;
  SinkView view_;
  SinkMap map_;
  HeatMap heat_map_;
  DataTable table_;
  int shown_head_ = -1;  // scrolled to when the selection changes elsewhere
};

void SinkPanel::refresh(const Ui& ui, const StepTrace& step) {
  const SessionInfo& info = *ui.bench.snapshot()->info;
  const auto attention = op_of_role(info, AS_ROLE_ATTENTION);
  if (!tolerance_known_ && attention) {
    tolerance_known_ = true;
    if (auto all = Tolerances::load()) {
      if (auto found = all->find(*attention, "lse", "cpu", "lse")) tolerance_ = *found;
    } else {
      ui.bench.say(Message::Kind::kError, all.error().text());
    }
  }
  layer_ = sink_layer(info, step, ui.bench.cursor());
  Key key;
  key.attention = step.find_role(layer_.layer, AS_ROLE_ATTENTION);
  key.row = ui.bench.selected_row();
  key.step = step.step;
  for (int layer : info.config.layers) {
    key.layers += step.find_role(layer, AS_ROLE_ATTENTION) != nullptr;
  }
  held_ = ui.bench.shared_snapshot();
  if (key == key_ && version_ > 0) return;
  key_ = key;
  view_ = sink_view({info, step, layer_.layer, key.row, tolerance_});
  map_ = sink_map(info, step, key.row);
  ++version_;
}

void SinkPanel::select_head(Ui& ui, std::int64_t head) {
  Selection selection = ui.bench.selection();
  selection.head = static_cast<int>(head);
  ui.bench.select(selection);
}

std::string SinkPanel::describe(int head) const {
  const SinkHead& h = view_.heads[to_size(head)];
  std::string text =
      fmt::format("head {} of layer {}, token {}\n{} {} ({} {})\n", head, view_.layer,
                  format_count(view_.position), rows_word(), format_number(h.window),
                  format_count(view_.window_slots), view_.windowed ? "slots" : "of them");
  if (view_.compressed) {
    text += fmt::format("compressed {} ({})\n", format_number(h.compressed),
                        plural(view_.entries, "entry", "entries"));
  }
  if (view_.has_sinks) {
    text += fmt::format("sink {} (logit {})\n", format_number(h.sink), format_number(h.sink_logit));
  }
  text +=
      fmt::format("LSE {}, from its logits {}", format_number(h.lse), format_number(h.lse_again));
  if (view_.has_sinks) {
    text += fmt::format("\nleft by the sink {} = e^(LSE - {})", format_number(h.decay),
                        format_number(h.merged));
  }
  if (!std::isnan(h.lse_reference)) {
    text += fmt::format(", reference {}", format_number(h.lse_reference));
  }
  return text;
}

void SinkPanel::draw_bar(const SinkHead& head, ImVec2 min, ImVec2 max) const {
  ImDrawList* list = ImGui::GetWindowDrawList();
  const Theme& t = theme();
  if (view_.nothing_read() || !std::isfinite(head.sum())) {
    draw_hatch(list, min, max);
    list->AddRect(min, max, t.border);
    return;
  }
  const double parts[] = {head.window, head.compressed, head.sink};
  const ImU32 colours[] = {t.window_part, t.compressed_part, t.sink_part};
  double at = 0;
  for (int i = 0; i < 3; ++i) {
    const float x0 = min.x + static_cast<float>(std::clamp(at, 0.0, 1.0)) * (max.x - min.x);
    at += parts[i];
    const float x1 = min.x + static_cast<float>(std::clamp(at, 0.0, 1.0)) * (max.x - min.x);
    list->AddRectFilled({x0, min.y}, {x1, max.y}, colours[i]);
    const std::string text = fmt::format("{:.2f}", parts[i]);
    draw_cell_text(list, {x0, min.y}, {x1, max.y}, text_on(colours[i]), text);
  }
  if (at < 1 - SinkView::kSumTolerance) {
    // What is missing from 1.
    const float x = min.x + static_cast<float>(std::max(at, 0.0)) * (max.x - min.x);
    draw_hatch(list, {x, min.y}, max);
  }
}

void SinkPanel::draw_bars(Ui& ui, ImVec2 size) {
  const int selected = ui.bench.selection().head;
  if (!ImGui::BeginChild("##bars", size)) {
    ImGui::EndChild();
    return;
  }
  ImGui::PushFont(numbers(), 0);
  const Theme& t = theme();
  const float row = std::max(px(18), ImGui::GetTextLineHeight() + px(4));
  const float label = ImGui::CalcTextSize("h127 ").x;
  const float lse = ImGui::CalcTextSize(" -000.00").x;
  const float width = ImGui::GetContentRegionAvail().x;
  const auto count = static_cast<int>(view_.heads.size());
  if (selected != shown_head_ && selected >= 0 && selected < count) {
    const float y = static_cast<float>(selected) * row;
    if (y < ImGui::GetScrollY() || y + row > ImGui::GetScrollY() + ImGui::GetWindowHeight()) {
      ImGui::SetScrollY(std::max(0.0f, y - ImGui::GetWindowHeight() * 0.5f));
    }
  }
  shown_head_ = selected;
  ImGui::PushStyleVar(ImGuiStyleVar_ItemSpacing, ImVec2(0, 0));
  ImGuiListClipper clipper;
  clipper.Begin(count, row);
  while (clipper.Step()) {
    for (int h = clipper.DisplayStart; h < clipper.DisplayEnd; ++h) {
      const SinkHead& head = view_.heads[to_size(h)];
      const ImVec2 at = ImGui::GetCursorScreenPos();
      if (ImGui::InvisibleButton(fmt::format("head {}", h).c_str(), {width, row}) ||
          picked_for_menu()) {
        select_head(ui, h);
        shown_head_ = h;
      }
      ImDrawList* list = ImGui::GetWindowDrawList();
      const float text_y = at.y + (row - ImGui::GetTextLineHeight()) * 0.5f;
      const std::string name = fmt::format("h{}", h);
      list->AddText({at.x + label - ImGui::CalcTextSize((name + " ").c_str()).x, text_y},
                    h == selected ? t.accent : t.text_dim, name.c_str());
      const ImVec2 min{at.x + label, at.y + px(2)};
      const ImVec2 max{at.x + width - lse - px(2), at.y + row - px(2)};
      draw_bar(head, min, max);
      const std::string value =
          std::isfinite(head.lse) ? fmt::format("{:.2f}", head.lse) : format_number(head.lse);
      list->AddText({at.x + width - ImGui::CalcTextSize(value.c_str()).x - px(4), text_y}, t.text,
                    value.c_str());
      if (h == selected) draw_selected(list, {min.x - px(1), at.y}, {max.x + px(1), at.y + row});
      if (ImGui::IsItemHovered()) {
        draw_hovered(list, {min.x - px(1), at.y}, {max.x + px(1), at.y + row});
        tooltip(describe(h));
      }
    }
  }
  ImGui::PopStyleVar();
  ImGui::PopFont();
  ImGui::EndChild();
}

void SinkPanel::draw_map(Ui& ui, ImVec2 size) {
  const auto rows = static_cast<std::int64_t>(map_.layers.size());
  HeatMapData data;
  data.rows = rows;
  data.columns = map_.heads;
  data.value = [this](std::int64_t row, std::int64_t column) {
    return static_cast<double>(map_.mass[to_size(row * map_.heads + column)]);
  };
  data.row_axis = "layer";
  data.column_axis = "head";
  data.row_name = [this](std::int64_t row) { return std::to_string(map_.layers[to_size(row)]); };
  data.value_name = "sink mass";
  data.version = version_;
  std::int64_t selected_row = -1;
  for (std::int64_t i = 0; i < rows; ++i) {
    if (map_.layers[to_size(i)] == view_.layer) selected_row = i;
  }
  const HeatMapEvents events =
      heat_map_.draw("##map", data, size, selected_row, ui.bench.selection().head, false);
  if (!events.clicked || events.row < 0 || events.row >= rows) return;
  select_head(ui, events.column);
  const int layer = map_.layers[to_size(events.row)];
  if (layer != ui.bench.cursor().layer) {
    const auto attention = op_of_role(*ui.bench.snapshot()->info, AS_ROLE_ATTENTION);
    if (attention) ui.bench.go_to({ui.bench.cursor().step, layer, *attention});
  }
}

// Whether the parts add up and the kernel's LSE is that of its logits.
void SinkPanel::draw_checks() const {
  if (view_.nothing_read()) return;
  const bool sums =
      view_.worst_sum <= SinkView::kSumTolerance && view_.forms_apart <= SinkView::kSumTolerance;
  ImGui::PushStyleColor(ImGuiCol_Text,
                        sums && view_.lse_error_small ? theme().text_dim : theme().bad);
  std::string text = fmt::format("Parts add up to 1 within {}; LSE within {} of its logits'",
                                 format_error(view_.worst_sum), format_error(view_.lse_error));
  if (view_.has_sinks) {
    text += fmt::format(
        "; the decay factor 1 / (1 + e^(sink - LSE)) and the merged LSE leave the same within {}",
        format_error(view_.forms_apart));
  }
  ImGui::TextWrapped("%s.", text.c_str());
  if (ImGui::IsItemHovered()) {
    std::string more =
        "Over all heads of this token: |sum of the parts - 1|; the kernel's LSE against the "
        "log-sum-exp of the logits, worked out anew";
    if (view_.has_sinks) {
      more +=
          "; and what the sink leaves of the output in the two forms that kernels use, which are "
          "one";
    }
    tooltip(more + ".");
  }
  ImGui::PopStyleColor();
}

void SinkPanel::fill_table() {
  table_.begin(version_);
  if (!table_.stale()) return;
  // The parts that this layer has.
  const bool compressed = view_.compressed, sinks = view_.has_sinks;
  std::vector<TableColumn> columns = {{"head", true, 0.6f}};
  if (sinks) {
    columns.push_back({"sink logit", true, 1, "The layer's learnt sink logit of this head."});
  }
  columns.push_back({"LSE", true, 1, "ln of the sum of e^logit, natural, without the sink."});
  columns.push_back({"LSE error", true, 1, "Kernel's LSE against the one of its own logits."});
  columns.push_back({rows_word(), true, 1, "Share of the rows of tokens."});
  if (compressed) columns.push_back({"compressed", true, 1, "Share of the compressed entries."});
  if (sinks) columns.push_back({"sink", true, 1, "e^sink / (sum of e^logit + e^sink)."});
  columns.push_back({"sum", true, 0.8f, "Must be 1 within 1e-6."});
  if (sinks) {
    columns.push_back({"decay", true, 1,
                       "1 / (1 + e^(sink - LSE)): what the output without a sink is multiplied "
                       "by."});
    columns.push_back({"LSE + sink", true, 1, "ln(e^LSE + e^sink), the sink merged into the LSE."});
    columns.push_back({"by LSE", true, 1, "e^(LSE - that): the same factor as decay."});
  }
  table_.columns(std::move(columns));
  table_.least_width = sinks ? 840 : 420;
  const auto value = [](double v) {
    return TableCell{format_number(v), 0, v, true, format_exact(v)};
  };
  for (std::size_t h = 0; h < view_.heads.size(); ++h) {
    const SinkHead& head = view_.heads[h];
    const double error = head.lse == head.lse_again ? 0 : std::fabs(head.lse - head.lse_again);
    TableCell sum = value(head.sum());
    if (!(std::fabs(head.sum() - 1) <= SinkView::kSumTolerance)) sum.colour = theme().bad;
    std::vector<TableCell> cells = {{std::to_string(h), 0, static_cast<double>(h), true}};
    if (sinks) cells.push_back(value(head.sink_logit));
    cells.push_back(value(head.lse));
    cells.push_back({format_error(error), 0, error, true, format_exact(error)});
    cells.push_back(value(head.window));
    if (compressed) cells.push_back(value(head.compressed));
    if (sinks) cells.push_back(value(head.sink));
    cells.push_back(std::move(sum));
    if (sinks) {
      for (const double v : {head.decay, head.merged, head.by_merged}) cells.push_back(value(v));
    }
    table_.row(std::move(cells), static_cast<std::int64_t>(h));
  }
}

void SinkPanel::draw(Ui& ui) {
  const Snapshot* snapshot = ui.bench.snapshot();
  if (!snapshot) {
    empty_state(ui, "No session yet: its first picture has not arrived.");
    return;
  }
  const StepTrace* step = ui.bench.step();
  if (!step) {
    const std::string missing = missing_ops(ui.bench, ui.bench.cursor().layer, {AS_ROLE_ATTENTION});
    if (!missing.empty()) return empty_state(ui, missing, "", CaptureLevel::kSummary);
    empty_state(ui, no_trace(ui.bench, "there is no attention to share out"), "step.forward");
    return;
  }
  refresh(ui, *step);
  if (!view_.why_empty.empty()) {
    const std::string missing = missing_ops(ui.bench, layer_.layer, {AS_ROLE_ATTENTION});
    if (!missing.empty()) return empty_state(ui, missing, "", CaptureLevel::kSummary);
    empty_state(ui, view_.why_empty, "op.forward", CaptureLevel::kSummary);
    return;
  }
  const int head = ui.bench.selection().head;
  sentence(sink_sentence(view_, head), view_.verdict);
  if (!layer_.note.empty()) {
    ImGui::PushStyleColor(ImGuiCol_Text, theme().text_dim);
    ImGui::TextWrapped("%s", layer_.note.c_str());
    ImGui::PopStyleColor();
  }
  legend(theme().window_part, rows_word());
  if (view_.compressed) {
    ImGui::SameLine();
    legend(theme().compressed_part, "compressed");
  }
  if (view_.has_sinks) {
    ImGui::SameLine();
    legend(theme().sink_part, "sink");
  }
  ImGui::SameLine();
  ImGui::TextDisabled("LSE at the right");

  const ImVec2 space = ImGui::GetContentRegionAvail();
  const float gap = ImGui::GetStyle().ItemSpacing.x;
  const float row = std::max(px(18), ImGui::GetTextLineHeight() + px(4));
  const float all_bars = row * static_cast<float>(view_.heads.size()) + px(4);
  const bool beside = map_.has_sinks && space.x > px(420);
  const float map_rows = static_cast<float>(map_.layers.size());
  const float map = std::clamp(px(18) * (map_rows + 2), px(80), px(240));
  const float bars = std::min(all_bars, std::max(row * 6, space.y * 0.6f));
  if (beside) {
    const float left = (space.x - gap) * 0.58f, height = std::max(bars, std::min(map, px(120)));
    draw_bars(ui, {left, height});
    ImGui::SameLine();
    draw_map(ui, {space.x - left - gap, height});
  } else {
    draw_bars(ui, {space.x, bars});
    if (map_.has_sinks) draw_map(ui, {space.x, map});
  }
  draw_checks();
  fill_table();
  const float room = ImGui::GetContentRegionAvail().y - ImGui::GetFrameHeightWithSpacing();
  const float rest = room > px(160) ? 0 : std::max(px(60), room);  // 0: as tall as its rows
  // Other columns are another table to ImGui, which keeps their order and widths.
  const char* const name = !view_.has_sinks ? "##without" : view_.compressed ? "##heads" : "##rows";
  if (const auto key = table_.draw(name, {-1, rest}, head, false)) select_head(ui, *key);
}

}  // namespace

std::unique_ptr<Panel> make_sink_panel() { return std::make_unique<SinkPanel>(); }

}  // namespace attnscope::gui
