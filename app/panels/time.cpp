// Time: the ops of the step under the cursor on an axis of time, a row a stream. A click selects
// the op; the wheel zooms, a drag pans.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>

#include "app/gui/theme.h"
#include "app/gui/widgets.h"
#include "app/panels/panels.h"
#include "app/text/format.h"
#include "app/views/op_time_view.h"
#include "engine/family/family.h"
#include "engine/model/numbers.h"

namespace attnscope::gui {
namespace {

constexpr float kRow = 22, kHighestRow = 48, kAxis = 20, kPhases = 20, kLeastSpan = 2;  // pixels

class TimePanel : public Panel {
 public:
  TimePanel() : Panel("time", "Time") {}

  void register_commands(Ui& ui) override {
    ui.commands.add({.id = "time.layer",
                     .title = "Time: the layer alone",
                     .group = "View",
                     .help = "Shows the ops of the layer under the cursor, or those of the step.",
                     .shortcut = "",
                     .argument = {},
                     .run = [this](std::string_view) -> Result<void> {
                       layer_alone_ = !layer_alone_;
                       held_ = nullptr;
                       return {};
                     },
                     .checked = [this] { return layer_alone_; }});
    ui.commands.add({.id = "time.zoom_op",
                     .title = "Time: zoom to the op",
                     .group = "View",
                     .help = "Shows the time around the op under the cursor, or all of it again.",
                     .run = [this, &ui](std::string_view) { return zoom_to_op(ui.bench); },
                     .enabled = [&ui] { return ui.bench.summary() != nullptr; },
                     .checked = [this] { return shown_ > 0; },
                     .why_disabled = "no step has run"});
  }

  void draw(Ui& ui) override {
    if (ui.bench.snapshot() == nullptr) {
      empty_state(ui, "No session yet: its first picture has not arrived.");
      return;
    }
    refresh(ui.bench);
    if (!view_.why_empty.empty()) {
      empty_state(ui, view_.why_empty, ui.bench.capture() != nullptr ? "" : "step.forward",
                  CaptureLevel::kSummary);
      return;
    }
    static constexpr const char* kOfWhat[] = {"layer", "step"};
    int scope = layer_alone_ ? 0 : 1;
    if (segmented("##scope", &scope, kOfWhat, 2)) ui.run("time.layer");
    ImGui::SameLine();
    command_button(ui, "time.zoom_op", shown_ > 0 ? "All of it" : "Zoom to the op");
    ImGui::SameLine();
    sentence(view_.sentence);
    draw_rows(ui);
  }

 private:
  Result<void> zoom_to_op(const Workbench& bench) {
    refresh(bench);
    if (shown_ > 0) {
      shown_ = 0;
      return {};
    }
    for (const TimeRow& row : view_.rows) {
      for (const TimeSpan& span : row.spans) {
        if (span.place != bench.cursor()) continue;
        // With a part of what runs before and behind it; of an op that is nearly all, most of it.
        shown_ = std::clamp(3 * span.microseconds, view_.span * 1e-4, view_.span * 0.9);
        from_ = span.start + (span.microseconds - shown_) / 2;
        hold();
        return {};
      }
    }
    return usage_error("this op has no place on the axis of its step",
                       "go to one that was measured");
  }

  // Inside what there is; all of it is not a zoom.
  void hold() {
    if (shown_ >= view_.span) shown_ = 0;
    from_ = std::clamp(from_, 0.0, std::max(0.0, view_.span - shown_));
  }

  // Around the mouse, whose share of the width is `at`.
  void navigate(float at, float width, bool hovered) {
    const ImGuiIO& io = ImGui::GetIO();
    const double before = shown_ > 0 ? shown_ : view_.span;
    if (hovered) ImGui::SetItemKeyOwner(ImGuiKey_MouseWheelY);
    if (hovered && io.MouseWheel != 0) {
      const double begin = shown_ > 0 ? from_ : 0;
      shown_ = std::clamp(before * std::pow(0.8, static_cast<double>(io.MouseWheel)),
                          view_.span * 1e-4, view_.span);
      from_ = begin + (before - shown_) * static_cast<double>(at);
      hold();
    }
    dragged_ = (dragged_ && !ImGui::IsItemActivated()) ||
               (ImGui::IsItemActive() && ImGui::IsMouseDragging(ImGuiMouseButton_Left, px(4)));
    if (dragged_ && ImGui::IsItemActive() && shown_ > 0) {
      from_ -= static_cast<double>(io.MouseDelta.x / width) * shown_;
      hold();
    }
  }

  void refresh(const Workbench& bench) {
    const Place cursor = bench.cursor();
    const bool here = cursor.step == at_.step && (!layer_alone_ || cursor.layer == at_.layer);
    if (held_ == bench.shared_snapshot() && here) return;
    held_ = bench.shared_snapshot();
    at_ = cursor;
    if (info_ != held_->info) {
      info_ = held_->info;
      graph_ = model_graph(info_->config);
    }
    const StepSummary* summary = held_->summary(cursor.step);
    if (summary == nullptr) {
      view_ = {};
      view_.why_empty = fmt::format("Step {} has not run.", cursor.step);
      return;
    }
    const double before = view_.span;
    view_ = op_time_view(*summary, *graph_, info_->config.layers,
                         layer_alone_ ? std::optional<int>(cursor.layer) : std::nullopt);
    if (view_.span != before) shown_ = 0;
  }

  void draw_rows(Ui& ui) {
    const Theme& t = theme();
    ImDrawList* list = ImGui::GetWindowDrawList();
    float names = 0;
    for (const TimeRow& row : view_.rows) {
      names = std::max(names, ImGui::CalcTextSize(row.name.c_str()).x);
    }
    const ImVec2 at = ImGui::GetCursorScreenPos();
    const float width = ImGui::GetContentRegionAvail().x;
    const float left = at.x + names + px(10), right = at.x + width - px(6);
    const auto count = static_cast<float>(view_.rows.size());
    const float room = (ImGui::GetContentRegionAvail().y - px(kAxis + kPhases + 4)) / count;
    const float of_row = std::clamp(room, px(kRow), px(kHighestRow));
    const float head = px(kAxis) + (view_.phases.empty() ? 0 : px(kPhases));
    const float height = head + of_row * count;
    ImGui::InvisibleButton("##time", {std::max(width, px(40)), height});
    if (right - left < px(40) || view_.span <= 0) return;
    navigate(std::clamp((ImGui::GetMousePos().x - left) / (right - left), 0.0f, 1.0f), right - left,
             ImGui::IsItemHovered());
    const double begin = shown_ > 0 ? from_ : 0, span = shown_ > 0 ? shown_ : view_.span;
    const auto x_of = [&](double us) {
      return left + static_cast<float>((us - begin) / span) * (right - left);
    };
    draw_axis(list, at.y, left, right, at.y + height, begin, span);
    list->PushClipRect({left, at.y}, {right + px(6), at.y + height}, true);
    draw_phases(list, at.y + px(kAxis), x_of);
    const Place cursor = ui.bench.cursor();
    const ImVec2 mouse = ImGui::GetIO().MousePos;
    const TimeSpan* under = nullptr;
    for (std::size_t i = 0; i < view_.rows.size(); ++i) {
      const TimeRow& row = view_.rows[i];
      const float top = at.y + head + of_row * static_cast<float>(i) + px(2);
      const float bottom = top + of_row - px(4);
      list->PopClipRect();
      list->AddText({at.x, top + (bottom - top - ImGui::GetFontSize()) / 2}, t.text_dim,
                    row.name.c_str());
      list->PushClipRect({left, at.y}, {right + px(6), at.y + height}, true);
      list->AddLine({left, bottom}, {right, bottom}, t.grid);
      for (const TimeSpan& s : row.spans) {
        const float x0 = x_of(s.start);
        const float x1 = std::max(x_of(s.start + s.microseconds), x0 + px(kLeastSpan));
        if (x1 < left || x0 > right) continue;
        const bool own = s.place == cursor;
        const bool of_layer = s.place.layer == cursor.layer;
        const ImU32 fill = own ? t.accent : with_alpha(of_layer ? t.accent : t.text_dim, 0.45f);
        list->AddRectFilled({x0, top}, {std::max(x0 + 1, x1 - 1), bottom}, fill, px(2));
        const float seen = std::max(x0, left);  // where its label begins
        if (ImGui::CalcTextSize(s.label.c_str()).x + px(8) < std::min(x1, right) - seen) {
          list->AddText({seen + px(4), top + (bottom - top - ImGui::GetFontSize()) / 2},
                        own ? text_on(t.accent) : t.text, s.label.c_str());
        }
        const bool inside = mouse.x >= x0 && mouse.x < x1 && mouse.y >= top && mouse.y < bottom;
        if (inside && ImGui::IsItemHovered()) under = &s;
      }
    }
    const auto middle = [&](std::size_t row) {
      return at.y + head + of_row * (static_cast<float>(row) + 0.5f);
    };
    for (const TimeWait& wait : view_.waits) {
      const ImVec2 from{x_of(wait.from), middle(wait.from_row)};
      const ImVec2 to{x_of(wait.until), middle(wait.row)};
      const bool over = under == nullptr && ImGui::IsItemHovered() && near_line(mouse, from, to);
      list->AddLine(from, to, over ? t.accent : t.text_dim, px(over ? 2.0f : 1.2f));
      list->AddCircleFilled(to, px(2.5f), over ? t.accent : t.text_dim);
      if (over) tooltip(time_wait_text(view_, wait));
    }
    list->PopClipRect();
    if (ImGui::IsItemHovered() && ImGui::IsMouseDoubleClicked(ImGuiMouseButton_Left)) shown_ = 0;
    if (under == nullptr || dragged_) return;
    tooltip(time_span_text(view_, *under));
    if (ImGui::IsItemDeactivated() || picked_for_menu()) ui.bench.go_to(under->place);
  }

  static bool near_line(const ImVec2& p, const ImVec2& a, const ImVec2& b) {
    const ImVec2 along{b.x - a.x, b.y - a.y};
    const float length = std::max(1.0f, along.x * along.x + along.y * along.y);
    const float share =
        std::clamp(((p.x - a.x) * along.x + (p.y - a.y) * along.y) / length, 0.0f, 1.0f);
    const float x = p.x - a.x - share * along.x, y = p.y - a.y - share * along.y;
    return x * x + y * y < px(5) * px(5);
  }

  // The parts of the layer, as the main stream runs through them.
  template <class XOf>
  void draw_phases(ImDrawList* list, float top, const XOf& x_of) const {
    const Theme& t = theme();
    const float bottom = top + px(kPhases - 3);
    for (std::size_t i = 0; i < view_.phases.size(); ++i) {
      const TimePhase& phase = view_.phases[i];
      const float x0 = x_of(phase.start), x1 = std::max(x_of(phase.end), x0 + px(kLeastSpan));
      list->AddRectFilled({x0, top}, {x1, bottom}, with_alpha(t.grid, i % 2 == 0 ? 0.9f : 0.6f));
      const bool fits = ImGui::CalcTextSize(phase.name.c_str()).x + px(6) < x1 - x0;
      const std::string shown = fits ? phase.name : phase.name.substr(0, 1);
      if (ImGui::CalcTextSize(shown.c_str()).x + px(2) > x1 - x0) continue;
      list->AddText({x0 + px(3), top + (bottom - top - ImGui::GetFontSize()) / 2}, t.text_dim,
                    shown.c_str());
    }
  }

  // Steps of 1, 2 or 5 times a power of ten, so that labels have room.
  static void draw_axis(ImDrawList* list, float top, float left, float right, float bottom,
                        double begin, double span) {
    const Theme& t = theme();
    const double room = px(90) / static_cast<double>(right - left) * span;
    double step = std::pow(10, std::floor(std::log10(std::max(room, 1e-3))));
    for (const double factor : {1.0, 2.0, 5.0, 10.0}) {
      if (step * factor < room) continue;
      step *= factor;
      break;
    }
    for (auto mark = static_cast<std::int64_t>(std::ceil(begin / step));
         static_cast<double>(mark) * step <= begin + span; ++mark) {
      const double us = static_cast<double>(mark) * step;
      const float x = left + static_cast<float>((us - begin) / span) * (right - left);
      const std::string label = us == 0 ? "0" : format_us(us);
      const float wide = ImGui::CalcTextSize(label.c_str()).x;
      list->AddLine({x, top + px(kAxis) - px(4)}, {x, bottom}, with_alpha(t.grid, 0.5f));
      if (x + px(3) + wide < right + px(6)) {
        list->AddText({x + px(3), top}, t.text_dim, label.c_str());
      }
    }
  }

  OpTimeView view_;
  std::shared_ptr<const Snapshot> held_;
  std::shared_ptr<const SessionInfo> info_;
  std::shared_ptr<const ModelGraph> graph_;  // of info_
  Place at_;
  bool layer_alone_ = true;
  double from_ = 0, shown_ = 0;  // microseconds that are in sight; shown_ 0 = all
  bool dragged_ = false;
};

}  // namespace

std::unique_ptr<Panel> make_time_panel() { return std::make_unique<TimePanel>(); }

}  // namespace attnscope::gui
