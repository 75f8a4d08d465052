#include "app/gui/top_k_steps.h"

#include <fmt/format.h>
#include <implot.h>

#include <algorithm>
#include <cmath>

#include "app/gui/theme.h"
#include "app/gui/widgets.h"
#include "app/text/format.h"

namespace attnscope::gui {
namespace {

// Counts below the zero line are counts all the same.
int format_magnitude(double value, char* out, int size, void*) {
  const std::string text = format_number(std::fabs(value));
  const std::size_t n = text.copy(out, static_cast<std::size_t>(size) - 1);
  out[n] = '\0';
  return static_cast<int>(n);
}

std::string describe(const TopKStep& s) {
  std::string text =
      fmt::format("step {}, token {}\n{} of {} entries selected", s.step, format_count(s.position),
                  format_count(s.selected), format_count(s.visible));
  if (!std::isnan(s.margin)) {
    text += fmt::format("\nthreshold {}, margin {}", format_number(s.threshold),
                        format_number(s.margin));
  } else {
    text += "\nno margin: nothing was left out";
  }
  if (s.has_before) {
    text += fmt::format("\n{} kept, {} entered, {} left", format_count(s.kept),
                        format_count(s.entered), format_count(s.left));
  }
  return text + fmt::format("\n{}", verdict_name(s.verdict));
}

void mark_cursor(std::int64_t step) {
  const double x = static_cast<double>(step);
  const ImVec2 top = ImPlot::GetPlotPos(), size = ImPlot::GetPlotSize();
  const float left = ImPlot::PlotToPixels(x - 0.5, 1).x, right = ImPlot::PlotToPixels(x + 0.5, 1).x;
  ImPlot::GetPlotDrawList()->AddRectFilled({left, top.y}, {right, top.y + size.y},
                                           with_alpha(theme().accent, 0.18f));
}

// The step under the mouse, with its tooltip; clicked when the button went up without a drag.
std::optional<std::int64_t> pick(const std::vector<TopKStep>& steps) {
  if (!ImPlot::IsPlotHovered()) return std::nullopt;
  const double at = ImPlot::GetPlotMousePos().x;
  for (const TopKStep& s : steps) {
    if (std::fabs(static_cast<double>(s.step) - at) > 0.5) continue;
    tooltip(describe(s));
    const bool dragged = ImGui::GetIO().MouseDragMaxDistanceSqr[0] > px(3) * px(3);
    if (ImGui::IsMouseReleased(ImGuiMouseButton_Left) && !dragged) return s.step;
  }
  return std::nullopt;
}

// Powers of ten, as many as fit.
void decade_ticks(double low, double high, float height) {
  const int first = static_cast<int>(std::ceil(std::log10(low)));
  const int last = static_cast<int>(std::floor(std::log10(high)));
  const int fit = std::max(1, static_cast<int>(height / (2.5f * ImGui::GetTextLineHeight())));
  const int every = std::max(1, (last - first + fit) / fit);
  std::vector<double> places;
  std::vector<std::string> names;
  for (int e = first; e <= last; e += every) {
    places.push_back(std::pow(10.0, e));
    names.push_back(format_error(places.back()));
  }
  std::vector<const char*> labels;
  labels.reserve(names.size());
  for (const std::string& name : names) labels.push_back(name.c_str());
  if (!places.empty()) {
    ImPlot::SetupAxisTicks(ImAxis_Y1, places.data(), static_cast<int>(places.size()),
                           labels.data());
  }
}

bool begin_plot(const char* id, const char* axis, const std::vector<TopKStep>& steps, double low,
                double high, bool logarithmic, ImVec2 size) {
  if (!ImPlot::BeginPlot(id, size, ImPlotFlags_CanvasOnly)) return false;
  ImPlot::SetupAxes("step", axis, ImPlotAxisFlags_NoHighlight, ImPlotAxisFlags_NoHighlight);
  if (logarithmic) {
    ImPlot::SetupAxisScale(ImAxis_Y1, ImPlotScale_Log10);
    decade_ticks(low, high, size.y);
  }
  const auto first = static_cast<double>(steps.front().step);
  const auto last = static_cast<double>(steps.back().step);
  ImPlot::SetupAxesLimits(first - 0.7, std::max(last, first + 3) + 0.7, low, high,
                          ImPlotCond_Always);
  ImPlot::SetupAxisFormat(ImAxis_X1, "%.0f");
  std::vector<double> whole;
  const double stride = std::max(1.0, std::ceil((last - first + 1) / 8));
  for (int i = 0; first + i * stride <= std::max(last, first + 3); ++i) {
    whole.push_back(first + i * stride);
  }
  ImPlot::SetupAxisTicks(ImAxis_X1, whole.data(), static_cast<int>(whole.size()));
  if (!logarithmic) ImPlot::SetupAxisFormat(ImAxis_Y1, format_magnitude);
  ImPlot::SetupFinish();
  return true;
}

}  // namespace

void TopKSteps::refresh(const Workbench& bench, int layer, std::int32_t request,
                        const Tolerance& tolerance) {
  std::shared_ptr<const Snapshot> snapshot = bench.shared_snapshot();
  const bool same =
      held_ != nullptr && snapshot->info == held_->info && layer == layer_ && request == request_;
  const bool same_picture = snapshot == held_;
  layer_ = layer;
  request_ = request;
  // What was held goes last: its ops' addresses are keys.
  const std::shared_ptr<const Snapshot> before = std::exchange(held_, std::move(snapshot));
  if (const Capture* capture = bench.capture()) {
    if (!same) {
      steps_.clear();
      scan_.restart();
      ++version_;
    }
    read_on(*capture, *held_, tolerance);
  } else if (!same || !same_picture) {
    reading_ = false;
    scan_.restart();
    take_kept(*held_, same, tolerance);
  }
}

void TopKSteps::take_kept(const Snapshot& snapshot, bool same, const Tolerance& tolerance) {
  std::map<Ops, TopKStep> known;
  std::vector<TopKStep> steps;
  for (const auto& trace : snapshot.traces) {
    const OpTrace* topk = layer_ < 0 ? nullptr : trace->find_role(layer_, AS_ROLE_SELECT);
    const std::int64_t row = last_row_of(*trace, request_);
    if (!topk || row < 0) continue;
    const StepTrace* before = snapshot.trace(trace->step - 1);
    const Ops ops{topk, before ? before->find_role(layer_, AS_ROLE_SELECT) : nullptr};
    const auto found = same ? known_.find(ops) : known_.end();
    if (found != known_.end()) {
      known.insert(*found);
      steps.push_back(found->second);
    } else {
      const TopKView view = top_k_view({*snapshot.info, *trace, before, layer_, row, 0, tolerance});
      steps.push_back(summarise_top_k(view, trace->step));
      known[ops] = steps.back();
    }
  }
  known_ = std::move(known);
  steps_ = std::move(steps);
  ++version_;
}

// A capture holds more steps than are at hand: each is read once, where its file is.
void TopKSteps::read_on(const Capture& capture, const Snapshot& snapshot,
                        const Tolerance& tolerance) {
  if (layer_ < 0) {
    reading_ = false;
    return;
  }
  scan_.read_on(capture, [&](const StepTrace& trace) {
    const std::int64_t row = last_row_of(trace, request_);
    if (row < 0 || trace.find_role(layer_, AS_ROLE_SELECT) == nullptr) return;
    std::shared_ptr<const StepTrace> before;
    if (snapshot.summary(trace.step - 1) != nullptr) {
      if (auto read = capture.trace(trace.step - 1)) before = *read;
    }
    const TopKView view =
        top_k_view({*snapshot.info, trace, before.get(), layer_, row, 0, tolerance});
    if (!view.why_empty.empty()) return;
    steps_.push_back(summarise_top_k(view, trace.step));
    ++version_;
  });
  reading_ = scan_.reading();
}

std::string TopKSteps::sentence() const { return top_k_steps_sentence(steps_) + scan_.rest(); }

std::optional<std::int64_t> TopKSteps::draw_margins(std::int64_t cursor_step, ImVec2 size) const {
  double low = 1, high = 1e-6;
  bool any = false;
  for (const TopKStep& s : steps_) {
    if (std::isnan(s.margin)) continue;
    any = true;
    for (const double v : {s.margin, s.score_tolerance}) {
      if (v > 0) low = std::min(low, v);
      high = std::max(high, v);
    }
  }
  if (!any) low = 1e-6, high = 1;
  const double foot = low / 2;  // margins of 0 and below have no place on a logarithmic axis
  if (!begin_plot("##margins", "margin", steps_, low / 3, high * 3, true, size)) return {};
  ImPlot::PushPlotClipRect();
  mark_cursor(cursor_step);
  ImDrawList* list = ImPlot::GetPlotDrawList();
  const Theme& t = theme();
  ImVec2 last{};
  bool joined = false;
  for (const TopKStep& s : steps_) {
    if (std::isnan(s.margin)) {
      joined = false;
      continue;
    }
    const auto x = static_cast<double>(s.step);
    const ImVec2 at = ImPlot::PlotToPixels(x, std::max(s.margin, foot));
    // Below this line sets may differ as near-ties.
    const float tie = ImPlot::PlotToPixels(x, std::max(s.score_tolerance, foot)).y;
    const float left = ImPlot::PlotToPixels(x - 0.5, 1).x,
                right = ImPlot::PlotToPixels(x + 0.5, 1).x;
    list->AddLine({left, tie}, {right, tie}, t.tie, px(1.2f));
    if (joined) list->AddLine(last, at, t.compressed_part, px(1.5f));
    const bool plain = s.verdict == Verdict::kEqual || s.verdict == Verdict::kNotCompared;
    list->AddCircleFilled(at, px(3.5f), plain ? t.compressed_part : verdict_colour(s.verdict));
    last = at;
    joined = true;
  }
  if (!any) {
    const ImVec2 corner = ImPlot::GetPlotPos();
    list->AddText({corner.x + px(8), corner.y + px(6)}, t.text_dim,
                  "every visible entry was selected: no margin");
  }
  ImPlot::PopPlotClipRect();
  const auto clicked = pick(steps_);
  ImPlot::EndPlot();
  return clicked;
}

// Up: entries that entered the set; down: entries that left it.
std::optional<std::int64_t> TopKSteps::draw_changes(std::int64_t cursor_step, ImVec2 size) const {
  double up = 4, down = 4;
  for (const TopKStep& s : steps_) {
    up = std::max(up, static_cast<double>(s.entered));
    down = std::max(down, static_cast<double>(s.left));
  }
  if (!begin_plot("##changes", "entries in / out", steps_, -down * 1.15, up * 1.15, false, size)) {
    return {};
  }
  ImPlot::PushPlotClipRect();
  mark_cursor(cursor_step);
  ImDrawList* list = ImPlot::GetPlotDrawList();
  const Theme& t = theme();
  for (const TopKStep& s : steps_) {
    if (!s.has_before) continue;
    const auto x = static_cast<double>(s.step);
    const ImVec2 entered = ImPlot::PlotToPixels(x - 0.35, static_cast<double>(s.entered));
    const ImVec2 zero = ImPlot::PlotToPixels(x + 0.35, 0);
    const ImVec2 left = ImPlot::PlotToPixels(x + 0.35, -static_cast<double>(s.left));
    list->AddRectFilled(entered, zero, t.compressed_part);
    list->AddRectFilled({entered.x, zero.y}, left, t.text_faint);
    list->AddLine({entered.x, zero.y}, {zero.x, zero.y}, t.text_dim);
  }
  ImPlot::PopPlotClipRect();
  const auto clicked = pick(steps_);
  ImPlot::EndPlot();
  return clicked;
}

void TopKSteps::fill_table() {
  table_.begin(version_);
  if (!table_.stale()) return;
  table_.columns({{"step", true, 0.7f},
                  {"token", true, 0.8f, "Last token of the request in this step."},
                  {"visible", true, 0.8f, "Entries the token may see."},
                  {"selected", true, 0.8f},
                  {"threshold", true, 1, "Lowest selected score."},
                  {"margin", true, 1, "Threshold minus the best unselected score."},
                  {"kept", true, 0.7f, "Selected one step ago too."},
                  {"entered", true, 0.7f},
                  {"left", true, 0.7f},
                  {"verdict", false, 1}});
  const auto count = [](std::int64_t value) {
    return TableCell{format_count(value), 0, static_cast<double>(value), true};
  };
  const auto value = [](double v, const std::string& text) {
    return std::isnan(v) ? TableCell{} : TableCell{text, 0, v, true, format_exact(v)};
  };
  for (const TopKStep& s : steps_) {
    const auto change = [&](std::int64_t n) { return s.has_before ? count(n) : TableCell{}; };
    table_.row({count(s.step), count(s.position), count(s.visible), count(s.selected),
                value(s.threshold, format_number(s.threshold)),
                value(s.margin, format_number(s.margin)), change(s.kept), change(s.entered),
                change(s.left), TableCell{verdict_name(s.verdict), verdict_colour(s.verdict)}},
               s.step);
  }
}

std::optional<std::int64_t> TopKSteps::draw(std::int64_t cursor_step, bool table) {
  legend(theme().compressed_part, "margin, entered");
  ImGui::SameLine();
  legend(theme().text_faint, "left");
  ImGui::SameLine();
  legend(theme().tie, "score tolerance");
  if (ImGui::IsItemHovered()) tooltip("Margins below it: sets may differ as near-ties.");
  const ImVec2 space = ImGui::GetContentRegionAvail();
  const ImVec2 gap = ImGui::GetStyle().ItemSpacing;
  const bool beside = space.x > px(520);
  const float all = table ? space.y * (beside ? 0.5f : 0.66f) : space.y;
  const float height = std::max(px(100), beside ? all : (all - gap.y) * 0.5f);
  const ImVec2 size{beside ? (space.x - gap.x) * 0.5f : space.x, height};
  std::optional<std::int64_t> clicked = draw_margins(cursor_step, size);
  if (beside) ImGui::SameLine();
  if (const auto other = draw_changes(cursor_step, size)) clicked = other;
  if (!table) return clicked;
  fill_table();
  const float room = ImGui::GetContentRegionAvail().y - ImGui::GetFrameHeightWithSpacing();
  const float rest = room > px(160) ? 0 : std::max(px(60), room);  // 0: as tall as its rows
  if (const auto key = table_.draw("##steps", {-1, rest}, cursor_step, false)) clicked = key;
  return clicked;
}

}  // namespace attnscope::gui
