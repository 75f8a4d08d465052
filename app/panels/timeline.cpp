// Timeline: one column a step, one row a layer, the worst verdict as colour; time bars below. Wheel
// zooms, drag pans, a click goes to the cell's worst op.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>
#include <vector>

#include "app/gui/cell_texture.h"
#include "app/gui/icons.h"
#include "app/gui/theme.h"
#include "app/gui/widgets.h"
#include "app/panels/panels.h"
#include "app/text/format.h"
#include "app/views/compare_view.h"
#include "app/views/op_order.h"
#include "app/views/timeline_view.h"
#include "engine/family/family.h"
#include "engine/family/models.h"

namespace attnscope::gui {
namespace {

constexpr float kColumnMerge = 3;          // pixels: narrower steps share a column
constexpr float kRowMerge = 3;             // and lower layers a row
constexpr float kWidestColumn = 96;        // at scale 1
constexpr std::int64_t kMostCells = 3000;  // above: one texture in place of rectangles
constexpr float kLegendFrom = 900;         // width of a panel that has room for it
constexpr double kKeyZoom = 1.5, kWheelZoom = 1.2;
constexpr float kCalm = 0.62f;  // opacity of cells that are in order
constexpr float kAhead = 0.4f;  // opacity of steps from before going back

// What is in order stays in the background; near-ties and wrong cells stand out.
ImU32 cell_colour(Severity cell, bool ahead) {
  const Verdict verdict = verdict_of(cell);
  const bool loud = verdict == Verdict::kNearTie || verdict == Verdict::kWrong;
  return with_alpha(verdict_colour(verdict), (loud ? 1.0f : kCalm) * (ahead ? kAhead : 1.0f));
}

// Heights of the bands, top to bottom; 0 = left out, because the panel is too low.
struct Bands {
  float map = 0, caption = 0, cells = 0, bars = 0, axis = 0;
};

class TimelinePanel : public Panel {
 public:
  TimelinePanel() : Panel("timeline", "Timeline") {}
  void register_commands(Ui& ui) override;
  void draw(Ui& ui) override;
  bool scrolls() const override { return false; }

 private:
  struct GridKey {
    std::uint64_t version = 0;
    double from = -1, end = -1;
    std::int64_t columns = 0, rows = 0;
    friend bool operator==(const GridKey&, const GridKey&) = default;
  };

  void draw_head(Ui& ui);
  void draw_canvas(Ui& ui, ImVec2 min, ImVec2 size);
  void handle_map(float y, float height);
  void handle_zoom(bool hovered);
  void handle_click(Ui& ui, bool hovered);
  void draw_captions(float y, float height);
  void draw_cells();
  void draw_parted(const RunPair* comparison);
  void draw_texture();
  void draw_bars(float y, float height);
  void draw_axis(const Ui& ui, float y, float height);
  void draw_stops(const Ui& ui, float bottom);
  void draw_notes(const Workbench& bench, float bottom) const;
  void draw_troubles() const;
  void draw_map(float y, float height);
  void look_at_stops(const Workbench& bench);
  void draw_labels(const Ui& ui);
  void draw_cursor(const Ui& ui, float bottom);
  void draw_legend(float y, float height);
  void draw_hover(Ui& ui);

  float x_of(std::int64_t step) const {
    return left_ + static_cast<float>(zoom_.x_of(static_cast<double>(step)));
  }
  float y_of(std::int64_t row) const { return top_ + static_cast<float>(row) * row_height_; }
  void text(ImVec2 at, ImU32 colour, const std::string& text, ImFont* font = nullptr) const {
    list_->AddText(font != nullptr ? font : words(), small_, at, colour, text.c_str());
  }
  float text_width(const std::string& text, ImFont* font = nullptr) const {
    return (font != nullptr ? font : words())->CalcTextSizeA(small_, FLT_MAX, 0, text.c_str()).x;
  }
  std::string row_name(const Ui& ui, std::int64_t row) const;
  float label_width(const Ui& ui) const;  // of names of rows, whichever are in view

  TimelineData data_;
  TimelineZoom zoom_;
  TimelineGrid grid_;
  GridKey key_;
  CellTexture texture_;
  GridKey texture_key_;
  TimelineGrid map_;                                     // of all steps, where not all are in sight
  std::pair<std::uint64_t, std::int64_t> map_of_{0, 0};  // version and columns of it
  bool map_held_ = false;                                // the mouse moves the part in sight
  std::string texture_theme_;
  std::string sentence_;
  Verdict verdict_ = Verdict::kNotCompared;
  std::uint64_t sentence_version_ = 0;
  std::size_t sentence_faults_ = 0;  // that it speaks of
  std::int64_t shown_step_ = -1;     // the cursor's, brought into view when it moves
  std::vector<ScenarioStop> stops_;  // what holds_ was found with
  std::vector<std::shared_ptr<const StepSummary>> looked_at_;
  std::vector<bool> holds_;  // by step that was looked at
  std::uint64_t stops_version_ = 0;

  // Of the frame.
  ImDrawList* list_ = nullptr;
  float small_ = 11, left_ = 0, right_ = 0, top_ = 0, row_height_ = 1, label_ = 0, legend_ = 0;
  bool dragged_ = false;
  std::int64_t hover_column_ = -1, hover_row_ = -1;  // of the grid
};

void TimelinePanel::register_commands(Ui& ui) {
  const auto add = [&](const char* id, const char* title, const char* help, const char* shortcut,
                       auto action, const std::function<bool()>& checked = {}) {
    ui.commands.add({.id = id,
                     .title = title,
                     .group = "View",
                     .help = help,
                     .shortcut = shortcut,
                     .argument = {},
                     .run = [action](std::string_view) -> Result<void> {
                       action();
                       return {};
                     },
                     .checked = checked});
  };
  add("timeline.zoom_in", "Timeline: zoom in", "Fewer steps, wider columns.", "Equal",
      [this] { zoom_.zoom(kKeyZoom); });
  add("timeline.zoom_out", "Timeline: zoom out", "More steps, narrower columns.", "Minus",
      [this] { zoom_.zoom(1 / kKeyZoom); });
  add(
      "timeline.fit", "Timeline: all steps", "Shows every step that ran.", "0",
      [this] { zoom_.fit(); }, [this] { return zoom_.fits(); });
  add(
      "timeline.follow", "Timeline: follow", "Keeps the newest step in sight; a drag ends it.", "F",
      [this] { zoom_.follow(!zoom_.follows()); }, [this] { return zoom_.follows(); });
}

void TimelinePanel::draw(Ui& ui) {
  const Snapshot* snapshot = ui.bench.snapshot();
  if (snapshot == nullptr) {
    empty_state(ui, ui.bench.busy() ? "The session is being made; its first step follows."
                                    : "No session is open, so there is no step to show.");
    return;
  }
  data_.update(*snapshot);
  if (data_.empty()) {
    empty_state(ui, "No step has run yet. Each step becomes a column, each layer a row.",
                "step.forward");
    return;
  }
  draw_head(ui);
  const ImVec2 size = ImGui::GetContentRegionAvail();
  if (size.x < px(60) || size.y < px(16)) return;
  draw_canvas(ui, ImGui::GetCursorScreenPos(), size);
}

// Sentence, and at its right what acts on the timeline.
void TimelinePanel::draw_head(Ui& ui) {
  const auto& faults = ui.bench.lane_faults();
  if (sentence_version_ != data_.version() || sentence_faults_ != faults.size()) {
    sentence_version_ = data_.version();
    sentence_faults_ = faults.size();
    sentence_ = timeline_sentence(data_);
    if (const std::string before = resumed_steps(*ui.bench.snapshot()); !before.empty()) {
      sentence_.back() = ';';
      sentence_ += fmt::format(" {}.", before);
    }
    if (!faults.empty()) sentence_ = faults.back() + ". " + sentence_;
    verdict_ = timeline_verdict(data_);
  }
  const float width = ImGui::GetContentRegionAvail().x;
  const bool buttons = width > px(420);
  if (!buttons || !ImGui::BeginTable("##head", 2, ImGuiTableFlags_NoPadOuterX)) {
    sentence(sentence_, verdict_);
    return;
  }
  ImGui::TableSetupColumn("words", ImGuiTableColumnFlags_WidthStretch);
  ImGui::TableSetupColumn("buttons", ImGuiTableColumnFlags_WidthFixed);
  ImGui::TableNextColumn();
  sentence(sentence_, verdict_);
  ImGui::TableNextColumn();
  ImGui::PushStyleVar(ImGuiStyleVar_FramePadding, ImVec2(px(6), px(1)));
  ImGui::PushStyleVar(ImGuiStyleVar_ItemSpacing, ImVec2(px(4), px(2)));
  if (width > px(700)) {
    command_button(ui, "cursor.first_failure", fmt::format("{} First failure", icon::kBug).c_str());
    ImGui::SameLine();
  }
  if (width > px(700) && ui.bench.comparison() != nullptr) {
    command_button(ui, "compare.first", "Where they part");
    ImGui::SameLine();
  }
  command_button(ui, "timeline.zoom_out", "-");
  ImGui::SameLine();
  command_button(ui, "timeline.zoom_in", "+");
  ImGui::SameLine();
  command_button(ui, "timeline.fit", "All");
  ImGui::SameLine();
  command_button(ui, "timeline.follow", zoom_.follows() ? "Following" : "Follow");
  ImGui::PopStyleVar(2);
  ImGui::EndTable();
}

std::string TimelinePanel::row_name(const Ui& ui, std::int64_t row) const {
  if (row == 0) return "step ops";
  const auto [first, end] = grid_layers(grid_, row, data_.rows());
  if (first >= data_.rows()) return {};
  const int layer = data_.layers()[first];
  if (end - first > 1) return fmt::format("{} to {}", layer, data_.layers()[end - 1]);
  const SessionInfo& info = *ui.bench.snapshot()->info;
  return fmt::format("{} {}", layer, layer_type_name(info.config, layer_index(info, layer)));
}

float TimelinePanel::label_width(const Ui& ui) const {
  float width = text_width("step ops");
  for (const char* type : family_of(ui.bench.snapshot()->info->config).layer_types) {
    width = std::max(width, text_width(fmt::format("60 {}", type)));
  }
  return width;
}

void TimelinePanel::draw_canvas(Ui& ui, ImVec2 min, ImVec2 size) {
  list_ = ImGui::GetWindowDrawList();
  small_ = std::round(ImGui::GetFontSize() * 0.85f);
  const float line = small_ + px(3);
  Bands bands;
  float rest = size.y;
  const auto give = [&](float wanted, float least_left) {
    if (rest - wanted < least_left) return 0.0f;
    rest -= wanted;
    return wanted;
  };
  if (!zoom_.fits()) bands.map = give(px(10), px(60));
  bands.axis = give(line, px(24));
  bands.caption = give(line, px(36));
  bands.bars = give(std::clamp(size.y * 0.19f, px(12), px(30)), px(30));
  bands.cells = rest;

  label_ = size.x > px(360) ? label_width(ui) + px(8) : 0;
  left_ = min.x + label_;
  legend_ = size.x > px(kLegendFrom)
                ? text_width("quantisation") + text_width(" 00 000", numbers()) + px(32)
                : 0;
  right_ = min.x + size.x - legend_;
  top_ = min.y + bands.map + bands.caption;
  zoom_.set(right_ - left_, px(kWidestColumn), data_.first_step(), data_.end_step());
  const std::int64_t cursor_step = ui.bench.cursor().step;
  if (cursor_step != shown_step_) {
    shown_step_ = cursor_step;
    if (cursor_step >= 0) zoom_.show(cursor_step);
  }

  ImGui::InvisibleButton("steps", size);
  const bool hovered = ImGui::IsItemHovered();
  handle_map(min.y, bands.map);
  if (!map_held_) handle_zoom(hovered);

  const GridKey key{data_.version(), zoom_.from(), zoom_.visible_end(),
                    static_cast<std::int64_t>((right_ - left_) / px(kColumnMerge)),
                    static_cast<std::int64_t>(bands.cells / px(kRowMerge))};
  if (key != key_) {
    key_ = key;
    grid_ =
        timeline_grid(data_, key.from, key.end, key.columns, std::max<std::int64_t>(2, key.rows));
  }
  if (grid_.columns == 0) return;
  row_height_ = bands.cells / static_cast<float>(grid_.rows);
  // Layers stay cells and never become fields.
  row_height_ = std::min(row_height_, px(26));
  if (bands.bars > 0) {
    const float over = bands.cells - row_height_ * static_cast<float>(grid_.rows);
    bands.bars += std::min(over, px(60));
  }

  hover_column_ = hover_row_ = -1;
  if (hovered && !dragged_) {
    const ImVec2 mouse = ImGui::GetIO().MousePos;
    const auto step =
        static_cast<std::int64_t>(std::floor(zoom_.step_at(static_cast<double>(mouse.x - left_))));
    if (mouse.x >= left_ && step >= data_.first_step() && step < data_.end_step()) {
      hover_column_ = (step - grid_.first) / grid_.per_column;
    }
    const auto row = static_cast<std::int64_t>(std::floor((mouse.y - top_) / row_height_));
    if (row >= 0 && row < grid_.rows) hover_row_ = row;
  }

  if (map_held_) {
    if (ImGui::IsItemDeactivated()) map_held_ = dragged_ = false;
  } else {
    handle_click(ui, hovered);
  }

  const ImVec2 max{min.x + size.x, min.y + size.y};
  list_->PushClipRect(min, max, true);
  const float cells_end = y_of(grid_.rows);
  draw_labels(ui);
  if (legend_ > 0) draw_legend(min.y, size.y);
  list_->PushClipRect({left_, min.y}, {right_, max.y}, true);
  if (bands.map > 0) draw_map(min.y, bands.map);
  if (bands.caption > 0) draw_captions(min.y + bands.map, bands.caption);
  draw_cells();
  draw_troubles();
  draw_parted(ui.bench.comparison().get());
  if (bands.bars > 0) draw_bars(cells_end + px(2), bands.bars - px(3));
  if (bands.axis > 0) {
    draw_axis(ui, cells_end + bands.bars, bands.axis);
    draw_stops(ui, cells_end + bands.bars + bands.axis);
    draw_notes(ui.bench, cells_end + bands.bars + bands.axis);
  }
  draw_cursor(ui, cells_end + bands.bars);
  list_->PopClipRect();
  list_->PopClipRect();
  if (hovered) draw_hover(ui);
}

// In the map of all steps a click or a drag moves what is in sight.
void TimelinePanel::handle_map(float y, float height) {
  const ImVec2 mouse = ImGui::GetIO().MousePos;
  if (ImGui::IsItemActivated()) {
    map_held_ = height > 0 && mouse.y >= y && mouse.y < y + height && mouse.x >= left_;
  }
  if (!map_held_ || !ImGui::IsItemActive()) return;
  const double share =
      std::clamp(static_cast<double>((mouse.x - left_) / (right_ - left_)), 0., 1.);
  const double middle = static_cast<double>(data_.first_step()) +
                        share * static_cast<double>(data_.end_step() - data_.first_step());
  const double now = (zoom_.from() + zoom_.visible_end()) / 2;
  zoom_.pan((now - middle) * zoom_.per_step());
}

void TimelinePanel::handle_zoom(bool hovered) {
  const ImGuiIO& io = ImGui::GetIO();
  if (ImGui::IsItemActivated()) dragged_ = false;
  if (ImGui::IsItemActive() && ImGui::IsMouseDragging(ImGuiMouseButton_Left)) {
    dragged_ = true;
    zoom_.pan(static_cast<double>(io.MouseDelta.x));
  }
  if (hovered) ImGui::SetItemKeyOwner(ImGuiKey_MouseWheelY);
  if (hovered && io.MouseWheel != 0) {
    zoom_.zoom(std::pow(kWheelZoom, static_cast<double>(io.MouseWheel)),
               static_cast<double>(io.MousePos.x - left_));
  }
  if (hovered && io.MouseWheelH != 0) zoom_.pan(static_cast<double>(io.MouseWheelH * px(40)));
}

void TimelinePanel::handle_click(Ui& ui, bool hovered) {
  if (!ImGui::IsItemDeactivated()) return;
  if (dragged_) {
    dragged_ = false;
    return;
  }
  if (!hovered || hover_column_ < 0) return;
  // Below and above the cells a click changes the step alone.
  const Snapshot& snapshot = *ui.bench.snapshot();
  const std::int64_t first = grid_.first + hover_column_ * grid_.per_column;
  if (hover_row_ < 0) {
    Place place = ui.bench.cursor();
    place.step = std::clamp(first, data_.first_step(), data_.end_step() - 1);
    ui.bench.go_to(place);
    shown_step_ = place.step;
    return;
  }
  const auto [row_first, row_end] = grid_layers(grid_, hover_row_, data_.rows());
  const auto cell = worst_cell(data_, first, first + grid_.per_column, row_first, row_end);
  if (!cell) return;
  const StepSummary& summary = *data_.facts(cell->step)->source;
  ui.bench.go_to(timeline_target(snapshot, summary, data_.layers()[cell->row], ui.bench.cursor()));
  shown_step_ = cell->step;  // it is on the screen: nothing has to move
}

void TimelinePanel::draw_captions(float y, float height) {
  const Theme& t = theme();
  for (const TimelineRun& run : data_.runs()) {
    const float x0 = std::max(x_of(run.first), left_), x1 = std::min(x_of(run.end), right_);
    if (x1 <= left_ || x0 >= right_) continue;
    const ImU32 colour = run.decode ? t.text_dim : t.text_faint;
    const float bar = y + height - px(2);
    list_->AddRectFilled({x0, bar - px(1)}, {std::max(x1 - px(1), x0 + 1), bar}, colour);
    const std::string name = timeline_run_name(run);
    for (const std::string& label :
         {name, name.substr(0, name.rfind(", ")), std::string(run.decode ? "decode" : "prefill")}) {
      if (text_width(label) + px(6) > x1 - x0) continue;
      text({x0 + px(2), y - px(1)}, t.text_dim, label);
      break;
    }
  }
}

void TimelinePanel::draw_labels(const Ui& ui) {
  if (label_ <= 0) return;
  const Theme& t = theme();
  const float size = std::clamp(row_height_ + px(1), px(9), small_);
  const auto every =
      std::max<std::int64_t>(1, static_cast<std::int64_t>(std::ceil((size - px(1)) / row_height_)));
  const int cursor_layer = ui.bench.cursor().layer;
  for (std::int64_t row = 0; row < grid_.rows; row += every) {
    const auto [first, end] = grid_layers(grid_, row, data_.rows());
    bool here = false;
    for (std::size_t i = first; i < end; ++i) here = here || data_.layers()[i] == cursor_layer;
    const std::string name = row_name(ui, row);
    const ImVec2 extent = words()->CalcTextSizeA(size, FLT_MAX, 0, name.c_str());
    const float y = y_of(row) + (row_height_ - extent.y) * 0.5f - px(1);
    list_->AddText(words(), size, {left_ - px(6) - extent.x, std::round(y)},
                   here ? t.accent : t.text_dim, name.c_str());
  }
}

void TimelinePanel::draw_texture() {
  const Theme& t = theme();
  if (texture_key_ != key_ || texture_theme_ != t.name) {
    texture_key_ = key_;
    texture_theme_ = t.name;
    std::vector<ImU32> pixels(grid_.cells.size());
    for (std::int64_t column = 0; column < grid_.columns; ++column) {
      const bool ahead = grid_.first + column * grid_.per_column >= data_.ahead();
      for (std::int64_t row = 0; row < grid_.rows; ++row) {
        const Severity cell = grid_.at(row, column);
        pixels[static_cast<std::size_t>(row * grid_.columns + column)] =
            cell == kNothingRan ? t.panel : cell_colour(cell, ahead);
      }
    }
    texture_.update(static_cast<int>(grid_.columns), static_cast<int>(grid_.rows), pixels);
  }
  texture_.draw(list_, {x_of(grid_.first), top_},
                {x_of(grid_.first + grid_.columns * grid_.per_column), y_of(grid_.rows)}, 0, 0,
                static_cast<float>(grid_.columns), static_cast<float>(grid_.rows));
}

void TimelinePanel::draw_cells() {
  if (grid_.columns * grid_.rows > kMostCells) {
    draw_texture();
    return;
  }
  const float width = static_cast<float>(zoom_.per_step()) * static_cast<float>(grid_.per_column);
  const float gap_x = width > px(5) ? px(1) : 0, gap_y = row_height_ > px(5) ? px(1) : 0;
  for (std::int64_t column = 0; column < grid_.columns; ++column) {
    const std::int64_t step = grid_.first + column * grid_.per_column;
    const float x0 = x_of(step), x1 = x_of(step + grid_.per_column) - gap_x;
    if (x1 < left_ || x0 > right_) continue;
    const bool ahead = step >= data_.ahead();
    for (std::int64_t row = 0; row < grid_.rows; ++row) {
      const ImVec2 min{x0, y_of(row)}, max{x1, y_of(row + 1) - gap_y};
      const Severity cell = grid_.at(row, column);
      if (cell == kNothingRan) {
        if (width > px(5)) draw_free(list_, min, max);
        continue;
      }
      const Verdict verdict = verdict_of(cell);
      const ImU32 colour = cell_colour(cell, ahead);
      list_->AddRectFilled(min, max, colour, row_height_ > px(8) ? px(2) : 0);
      // The colour is never alone where there is room for a sign.
      if (max.x - min.x >= px(10) && max.y - min.y >= px(9)) {
        const float size = std::min(max.y - min.y - px(1), small_);
        const char* glyph = verdict_glyph(verdict);
        const ImVec2 extent = words()->CalcTextSizeA(size, FLT_MAX, 0, glyph);
        list_->AddText(words(), size,
                       {std::round((min.x + max.x - extent.x) * 0.5f),
                        std::round((min.y + max.y - extent.y) * 0.5f)},
                       with_alpha(ink_on(colour), ahead ? 0.5f : 0.9f), glyph);
      }
    }
  }
}

// A line below the cells in which another run parts from this one, the kind by its length: all of
// the cell where it begins, half of it where it is inherited.
void TimelinePanel::draw_parted(const RunPair* comparison) {
  if (comparison == nullptr) return;
  const Theme& t = theme();
  const float thick = std::clamp(row_height_ * 0.25f, px(1), px(3));
  for (std::int64_t row = 0; row < grid_.rows; ++row) {
    const auto [first, end] = grid_layers(grid_, row, data_.rows());
    for (std::int64_t column = 0; column < grid_.columns; ++column) {
      const std::int64_t step = grid_.first + column * grid_.per_column;
      const float x0 = x_of(step), x1 = x_of(step + grid_.per_column);
      if (x1 < left_ || x0 > right_) continue;
      bool begins = false, parted = false;
      for (std::int64_t s = step; s < step + grid_.per_column; ++s) {
        for (std::size_t i = first; i < end; ++i) {
          const auto at = comparison->parted.find({s, data_.layers()[i]});
          if (at == comparison->parted.end()) continue;
          parted = true;
          begins = begins || at->second == DiffVerdict::kOrigin;
        }
      }
      if (!parted) continue;
      const float width = std::max(px(1), (x1 - x0 - px(1)) * (begins ? 1.0f : 0.5f));
      const float bottom = y_of(row + 1);
      list_->AddRectFilled({x0, bottom - thick - px(1)}, {x0 + width, bottom}, t.panel);
      list_->AddRectFilled({x0, bottom - thick}, {x0 + width, bottom},
                           begins ? verdict_colour(Verdict::kWrong) : t.warn);
    }
  }
}

void TimelinePanel::draw_bars(float y, float height) {
  const Theme& t = theme();
  // Decode steps set the scale: beside a prefill they would all be nothing. What is longer is cut.
  float scale = 0, longest = 0;
  for (std::int64_t column = 0; column < grid_.columns; ++column) {
    const StepFacts* facts = data_.facts(grid_.first + column * grid_.per_column);
    const float seconds = grid_.seconds[static_cast<std::size_t>(column)];
    longest = std::max(longest, seconds);
    if (facts != nullptr && facts->source->decode_only) scale = std::max(scale, seconds);
  }
  if (scale <= 0) scale = longest;
  if (scale <= 0) return;
  const float width = static_cast<float>(zoom_.per_step()) * static_cast<float>(grid_.per_column);
  const float gap = width > px(5) ? px(1) : 0;
  for (std::int64_t column = 0; column < grid_.columns; ++column) {
    const std::int64_t step = grid_.first + column * grid_.per_column;
    const float seconds = grid_.seconds[static_cast<std::size_t>(column)];
    const float x0 = x_of(step), x1 = std::max(x_of(step + grid_.per_column) - gap, x0 + 1);
    if (x1 < left_ || x0 > right_ || seconds <= 0) continue;
    const bool cut = seconds > scale * 1.001f;
    const float share = std::min(1.0f, seconds / scale);
    const ImU32 colour = with_alpha(t.text_dim, step >= data_.ahead() ? 0.2f : 0.45f);
    list_->AddRectFilled({x0, y + height * (1 - share)}, {x1, y + height}, colour);
    if (cut && height > px(8)) {
      list_->AddRectFilled({x0, y + px(3)}, {x1, y + px(5)}, t.panel);
    }
    const std::string label = format_us(static_cast<double>(seconds) * 1e6);
    if (text_width(label, numbers()) + px(4) < x1 - x0 && height >= small_ + px(6)) {
      text({x0 + px(3), y + height - small_ - px(1)}, t.text, label, numbers());
    }
  }
  if (label_ <= 0) return;
  list_->PushClipRect({left_ - label_, y - px(2)}, {left_, y + height + px(2)}, false);
  const std::string top = format_us(static_cast<double>(scale) * 1e6);
  text({left_ - px(6) - text_width(top, numbers()), y - px(2)}, t.text_dim, top, numbers());
  list_->PopClipRect();
}

void TimelinePanel::draw_axis(const Ui& ui, float y, float height) {
  const Theme& t = theme();
  const auto label_of = [](std::int64_t step) { return format_count(step); };
  const double room = static_cast<double>(text_width(label_of(data_.end_step()), numbers()));
  const std::int64_t every = axis_distance(zoom_.per_step(), room + static_cast<double>(px(14)));
  const float ty = y + (height - small_) * 0.5f - px(1);
  const float half = static_cast<float>(zoom_.per_step()) * 0.5f;
  const std::int64_t cursor = ui.bench.cursor().step;
  const auto place = [&](std::int64_t step, float& x0, float& x1) {
    const float width = text_width(label_of(step), numbers());
    x0 = std::clamp(x_of(step) + half - width * 0.5f, left_, std::max(left_, right_ - width));
    x1 = x0 + width;
  };
  float cursor0 = 0, cursor1 = -1;
  const bool cursor_visible = cursor >= 0 && x_of(cursor + 1) > left_ && x_of(cursor) < right_;
  if (cursor_visible) place(cursor, cursor0, cursor1);
  const auto start = static_cast<std::int64_t>(zoom_.from()) / every * every;
  for (std::int64_t step = start; x_of(step) < right_ && step < data_.end_step(); step += every) {
    if (step < data_.first_step() || x_of(step) + half < left_) continue;
    float x0 = 0, x1 = 0;
    place(step, x0, x1);
    if (cursor_visible && x0 < cursor1 + px(4) && x1 > cursor0 - px(4)) continue;
    text({x0, ty}, t.text_dim, label_of(step), numbers());
  }
  if (cursor_visible) text({cursor0, ty}, t.accent, label_of(cursor), numbers());
  if (label_ <= 0) return;
  list_->PushClipRect({left_ - label_, y}, {left_, y + height}, false);
  text({left_ - px(6) - text_width("step"), ty}, t.text_dim, "step");
  list_->PopClipRect();
}

// Steps that were there are not looked at again, however many there are.
void TimelinePanel::look_at_stops(const Workbench& bench) {
  const auto& steps = bench.snapshot()->steps;
  auto stops = bench.scenario_stops();
  std::size_t known = 0;
  if (stops == stops_) {
    while (known < steps.size() && known < looked_at_.size() && steps[known] == looked_at_[known]) {
      ++known;
    }
  }
  stops_ = std::move(stops);
  looked_at_.resize(known);
  holds_.resize(known);
  for (std::size_t i = known; i < steps.size(); ++i) {
    looked_at_.push_back(steps[i]);
    holds_.push_back(std::ranges::any_of(bench.stops(), [&](const Workbench::Stop& stop) {
      return stop.on && !stop.condition.needs_trace() &&
             stop.condition.find(*bench.snapshot()->info, *steps[i], nullptr);
    }));
  }
}

// A mark below each step of which a stop holds; those that look at values are left out, as it would
// take a while to look at them in all steps.
void TimelinePanel::draw_stops(const Ui& ui, float bottom) {
  if (stops_version_ != ui.bench.version()) {
    stops_version_ = ui.bench.version();
    look_at_stops(ui.bench);
  }
  const float half = static_cast<float>(zoom_.per_step()) * 0.5f, size = px(4);
  for (std::size_t i = 0; i < looked_at_.size(); ++i) {
    if (!holds_[i]) continue;
    const float x = x_of(looked_at_[i]->step) + half;
    if (x < left_ || x > right_) continue;
    list_->AddTriangleFilled({x, bottom - size}, {x + size, bottom}, {x - size, bottom},
                             theme().warn);
  }
}

// All steps, each the worst of its layers, and the part of them that is in sight.
void TimelinePanel::draw_map(float y, float height) {
  const Theme& t = theme();
  const float width = right_ - left_, bottom = y + height - px(3);
  const std::pair key{data_.version(), static_cast<std::int64_t>(width / px(2))};
  if (key != map_of_) {
    map_of_ = key;
    map_ = timeline_grid(data_, static_cast<double>(data_.first_step()),
                         static_cast<double>(data_.end_step()), key.second, 2);
  }
  const double steps = static_cast<double>(data_.end_step() - data_.first_step());
  const auto x_in_map = [&](double step) {
    return left_ +
           static_cast<float>((step - static_cast<double>(data_.first_step())) / steps) * width;
  };
  for (std::int64_t column = 0; column < map_.columns; ++column) {
    Severity worst = kNothingRan;
    for (std::int64_t row = 0; row < map_.rows; ++row) {
      worst = std::max(worst, map_.at(row, column));
    }
    if (worst == kNothingRan) continue;
    const std::int64_t step = map_.first + column * map_.per_column;
    const float x0 = std::max(x_in_map(static_cast<double>(step)), left_);
    const float x1 = std::min(x_in_map(static_cast<double>(step + map_.per_column)), right_);
    list_->AddRectFilled({x0, y}, {std::max(x1, x0 + 1), bottom},
                         cell_colour(worst, step >= data_.ahead()));
  }
  const float x0 = std::max(x_in_map(zoom_.from()), left_);
  const float x1 = std::min(x_in_map(zoom_.visible_end()), right_);
  list_->AddRectFilled({left_, y}, {x0, bottom}, with_alpha(t.panel, 0.6f));
  list_->AddRectFilled({x1, y}, {right_, bottom}, with_alpha(t.panel, 0.6f));
  list_->AddRect({x0, y - px(1)}, {std::max(x1, x0 + px(3)), bottom + px(1)}, t.text_dim);
}

// What happened in a step beside its taps, as marks at the upper edge of the cells.
void TimelinePanel::draw_troubles() const {
  const float half = static_cast<float>(zoom_.per_step()) * 0.5f, size = px(4);
  const auto last = std::min(data_.end_step(), static_cast<std::int64_t>(zoom_.visible_end()) + 1);
  for (auto step = std::max(data_.first_step(), static_cast<std::int64_t>(zoom_.from()));
       step < last; ++step) {
    const StepFacts* facts = data_.facts(step);
    if (facts == nullptr) continue;
    const StepTrouble trouble = trouble_of(*facts->source);
    if (trouble == StepTrouble::kNone) continue;
    const float x = x_of(step) + half;
    const ImU32 colour = trouble == StepTrouble::kFault ? theme().bad : theme().text;
    list_->AddTriangleFilled({x - size, top_ - px(1)}, {x + size, top_ - px(1)}, {x, top_ + size},
                             colour);
  }
}

// A line of the selection's colour below each step with a note.
void TimelinePanel::draw_notes(const Workbench& bench, float bottom) const {
  const float half = static_cast<float>(zoom_.per_step()) * 0.5f, size = px(8);
  std::int64_t last = -1;
  for (const Note& note : bench.notes()) {  // by step
    if (note.place.step == last) continue;
    last = note.place.step;
    const float x = x_of(last) + half;
    if (x < left_ || x > right_) continue;
    list_->AddRectFilled({x - size, bottom - px(1)}, {x + size, bottom + px(1)}, theme().accent);
  }
}

// What the colours mean, and how many taps got each verdict.
void TimelinePanel::draw_legend(float y, float height) {
  const Theme& t = theme();
  constexpr Verdict kShown[] = {Verdict::kEqual,   Verdict::kRounding, Verdict::kQuantisation,
                                Verdict::kNearTie, Verdict::kWrong,    Verdict::kNotCompared};
  int lines = 0;
  for (Verdict verdict : kShown) {
    lines +=
        verdict != Verdict::kNotCompared || data_.counts()[static_cast<std::size_t>(verdict)] > 0
            ? 1
            : 0;
  }
  const float line = std::min(small_ + px(4), (height - px(2)) / static_cast<float>(lines));
  if (line < small_ * 0.9f) return;
  const float x = right_ + px(14), end = right_ + legend_ - px(2);
  for (Verdict verdict : kShown) {
    const std::int64_t count = data_.counts()[static_cast<std::size_t>(verdict)];
    if (verdict == Verdict::kNotCompared && count == 0) continue;
    const ImU32 colour = verdict_colour(verdict);
    list_->AddText(words(), small_, {x, y}, colour, verdict_glyph(verdict));
    text({x + px(16), y}, count > 0 ? t.text : t.text_faint, verdict_word(verdict));
    const std::string number = format_count(count);
    text({end - text_width(number, numbers()), y}, count > 0 ? t.text_dim : t.text_faint, number,
         numbers());
    y += line;
  }
}

// The cursor's column, lightly, and its cell framed.
void TimelinePanel::draw_cursor(const Ui& ui, float bottom) {
  const Place& cursor = ui.bench.cursor();
  if (cursor.step < data_.first_step() || cursor.step >= data_.end_step()) return;
  const std::int64_t column = (cursor.step - grid_.first) / grid_.per_column;
  if (cursor.step < grid_.first || column >= grid_.columns) return;
  const std::int64_t step = grid_.first + column * grid_.per_column;
  const float x0 = x_of(step), x1 = std::max(x_of(step + grid_.per_column), x0 + px(2));
  list_->AddRectFilled({x0, top_}, {x1, bottom}, with_alpha(theme().accent, 0.10f));
  for (std::int64_t row = 0; row < grid_.rows; ++row) {
    const auto [first, end] = grid_layers(grid_, row, data_.rows());
    for (std::size_t i = first; i < end; ++i) {
      if (data_.layers()[i] != cursor.layer) continue;
      draw_selected(list_, {x0 - px(1), y_of(row) - px(1)}, {x1, y_of(row + 1)});
      return;
    }
  }
}

void TimelinePanel::draw_hover(Ui& ui) {
  if (hover_column_ < 0 || dragged_) return;
  const std::int64_t first = grid_.first + hover_column_ * grid_.per_column;
  const std::int64_t end = std::min(first + grid_.per_column, data_.end_step());
  const Snapshot& snapshot = *ui.bench.snapshot();
  if (hover_row_ < 0) {
    const StepFacts* facts = data_.facts(first);
    if (facts == nullptr || grid_.per_column > 1) return;
    const StepSummary& s = *facts->source;
    const std::string trouble = trouble_text(s);
    tooltip(
        fmt::format("step {}: {}, {}\nops {}, with references {}\nclick: goes to this "
                    "step{}",
                    format_count(s.step), s.decode_only ? "decode" : "prefill",
                    plural(s.tokens, "token", "tokens"), format_us(s.seconds * 1e6),
                    format_us(s.wall_seconds * 1e6), trouble.empty() ? "" : "\n" + trouble));
    return;
  }
  const auto [row_first, row_end] = grid_layers(grid_, hover_row_, data_.rows());
  const float x0 = x_of(first), x1 = std::max(x_of(first + grid_.per_column), x0 + px(2));
  list_->PushClipRect({left_, top_ - px(2)}, {right_, y_of(grid_.rows) + px(2)}, true);
  draw_hovered(list_, {x0 - px(1), y_of(hover_row_) - px(1)}, {x1, y_of(hover_row_ + 1)});
  list_->PopClipRect();
  const auto cell = worst_cell(data_, first, end, row_first, row_end);
  if (!cell) {
    tooltip(fmt::format("step {}\nhas not run yet here", format_count(first)));
    return;
  }
  const StepSummary& summary = *data_.facts(cell->step)->source;
  std::string lines;
  if (end - first > 1 || row_end - row_first > 1) {
    lines =
        fmt::format("worst of steps {} to {}, {}:\n", format_count(first), format_count(end - 1),
                    hover_row_ == 0 ? "outside the layers" : "layers " + row_name(ui, hover_row_));
  }
  const int layer = data_.layers()[cell->row];
  lines += timeline_cell_text(snapshot, summary, layer);
  const Place target = timeline_target(snapshot, summary, layer, ui.bench.cursor());
  if (const RunPair* other = ui.bench.comparison().get()) {
    const auto at = other->parted.find({cell->step, layer});
    if (at != other->parted.end()) {
      lines += fmt::format("\nbeside {}: {}", other->name_b, diff_look(at->second).word);
    }
  }
  if (const std::string trouble = trouble_text(summary); !trouble.empty()) {
    lines += "\n" + trouble;
  }
  tooltip(lines + "\nclick: " + format_place(target));
}

}  // namespace

std::unique_ptr<Panel> make_timeline_panel() { return std::make_unique<TimelinePanel>(); }

}  // namespace attnscope::gui
