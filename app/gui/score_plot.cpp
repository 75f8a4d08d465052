#include "app/gui/score_plot.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>
#include <string>

#include "app/gui/colour.h"
#include "app/gui/theme.h"
#include "app/gui/widgets.h"
#include "app/text/format.h"
#include "engine/model/numbers.h"

namespace attnscope::gui {
namespace {

constexpr int kAroundThreshold = 24;  // ranks on either side

ImU32 swap_colour(const TopKSwap& swap) { return swap.near_tie ? theme().tie : theme().bad; }

// A cap at each score over a paler bar, so that dense pictures stay calm. [0] of entries that are
// not selected, [1] of those that are.
struct BarColours {
  ImU32 caps[2] = {theme().text_dim, theme().compressed_part};
  ImU32 bodies[2] = {with_alpha(theme().text_dim, 0.3f),
                     with_alpha(theme().compressed_part, 0.35f)};
};

struct BarEdges {
  float top = 0, cap_end = 0;
};

// Entries and ranks are whole numbers: ticks between them go without one.
int whole_label(double value, char* text, int size, void*) {
  const bool whole = std::fabs(value - std::round(value)) < 1e-6;
  if (whole) return std::snprintf(text, to_size(size), "%.0f", value);
  *text = '\0';
  return 0;
}

}  // namespace

struct ScorePlot::Frame {
  bool by_rank = false;
  ImPlotRect limits;
  ImVec2 min, max;  // of the plot, in pixels
  float base = 0;   // where bars start: scores have no natural zero
  float lane = 0;   // height of the lane of changes at the bottom
  ImDrawList* list = nullptr;

  float x(double place) const {
    return min.x + static_cast<float>((place - limits.X.Min) / limits.X.Size()) * (max.x - min.x);
  }
  float y(double score) const {
    const double t = (score - limits.Y.Min) / limits.Y.Size();
    return max.y - static_cast<float>(std::clamp(t, -1.0, 2.0)) * (max.y - min.y);
  }
  std::int64_t place(const TopKView& view, std::int64_t entry) const {
    return by_rank ? view.rank[to_size(entry)] : entry;
  }
  std::int64_t entry(const TopKView& view, std::int64_t place) const {
    return by_rank ? view.order[to_size(place)] : place;
  }
  // Of a bar from the lowest to the highest of its scores; it ends at base.
  BarEdges bar(double low, double high) const {
    const float cap = px(2);
    const float top = std::min(y(high), base - cap);
    return {top, std::min(std::max(y(low), top + cap), base)};
  }
  float pixels_per_place() const { return (max.x - min.x) / static_cast<float>(limits.X.Size()); }
};

void ScorePlot::fit(const TopKView& view, ScoreOrder order) {
  const auto count = static_cast<double>(view.visible);
  double begin = -0.5, end = count - 0.5;
  if (order == ScoreOrder::kThreshold && view.choosing()) {
    const auto k = static_cast<double>(view.selected);
    begin = std::max(begin, k - kAroundThreshold - 0.5);
    end = std::min(end, k + kAroundThreshold - 0.5);
  }
  double low = std::numeric_limits<double>::infinity(), high = -low;
  const auto first = static_cast<std::int64_t>(std::ceil(begin));
  const auto last = static_cast<std::int64_t>(std::floor(end));
  for (std::int64_t place = first; place <= last; ++place) {
    const std::int64_t entry = order == ScoreOrder::kEntry ? place : view.order[to_size(place)];
    const float score = view.scores[to_size(entry)];
    if (!std::isfinite(score)) continue;
    low = std::min(low, static_cast<double>(score));
    high = std::max(high, static_cast<double>(score));
  }
  if (low > high) low = 0, high = 1;
  const double pad = std::max((high - low) * 0.08, std::max(std::fabs(high), 1e-30) * 1e-4);
  // The lowest bar shows above the lane of changes.
  fitted_ = ImPlotRect(begin, end, low - pad * 2, high + pad);
}

void ScorePlot::reduce(const TopKView& view, Frame& frame) {
  const int width = std::max(1, static_cast<int>(frame.max.x - frame.min.x));
  if (frame.limits.X.Size() <= width) {
    columns_.clear();
    return;
  }
  if (columns_version_ == version_ && columns_by_rank_ == frame.by_rank &&
      columns_begin_ == frame.limits.X.Min && columns_end_ == frame.limits.X.Max &&
      columns_.size() == static_cast<std::size_t>(width)) {
    return;
  }
  columns_version_ = version_;
  columns_by_rank_ = frame.by_rank;
  columns_begin_ = frame.limits.X.Min;
  columns_end_ = frame.limits.X.Max;
  columns_ = reduce_scores(view, frame.by_rank, columns_begin_, columns_end_, width);
  repaint_ = true;
}

void ScorePlot::paint_columns(const Frame& frame) {
  const Theme& t = theme();
  const BarColours colours;
  const int width = static_cast<int>(columns_.size());
  const int height = static_cast<int>(std::ceil(frame.max.y - frame.min.y));
  const Painted now = {frame.limits.Y.Min,
                       frame.limits.Y.Max,
                       frame.base,
                       width,
                       height,
                       {colours.caps[0], t.nan_cell, colours.caps[1]}};
  if (!repaint_ && now == painted_) return;
  repaint_ = false;
  painted_ = now;
  std::vector<ImU32> pixels(to_size(width) * to_size(height), 0);
  // A row is filled where its middle lies between the edges, as rectangles are.
  const auto fill = [&](std::size_t column, float top, float bottom, ImU32 colour) {
    const auto row = [&](float y) {
      return std::clamp(static_cast<int>(std::ceil(y - frame.min.y - 0.5f)), 0, height);
    };
    for (int r = row(top); r < row(bottom); ++r) {
      ImU32& pixel = pixels[to_size(r) * to_size(width) + column];
      pixel = layered(colour, pixel);
    }
  };
  for (std::size_t c = 0; c < columns_.size(); ++c) {
    const ScoreColumn& column = columns_[c];
    if (column.nan) fill(c, frame.min.y, frame.max.y, t.nan_cell);
    // Capped from the lowest to the highest of the entries in this pixel; selected ones in front.
    for (int set : {0, 1}) {
      if (column.low[set] > column.high[set]) continue;
      const BarEdges bar = frame.bar(column.low[set], column.high[set]);
      fill(c, bar.cap_end, frame.base, colours.bodies[set]);
      fill(c, bar.top, bar.cap_end, colours.caps[set]);
    }
  }
  picture_.update(width, height, pixels);
}

void ScorePlot::draw_bars(const TopKView& view, const Frame& frame) {
  if (!columns_.empty()) {
    paint_columns(frame);
    const auto width = static_cast<float>(picture_.width());
    const auto height = static_cast<float>(picture_.height());
    picture_.draw(frame.list, frame.min, {frame.min.x + width, frame.min.y + height}, 0, 0, width,
                  height);
    return;
  }
  const BarColours colours;
  const float width = frame.pixels_per_place();
  const float gap = width >= 4 ? std::min(px(2), width * 0.2f) * 0.5f : 0;
  const auto first = std::max<std::int64_t>(0, std::llround(std::floor(frame.limits.X.Min)));
  const auto last =
      std::min<std::int64_t>(view.visible - 1, std::llround(std::ceil(frame.limits.X.Max)));
  for (std::int64_t place = first; place <= last; ++place) {
    const std::int64_t entry = frame.entry(view, place);
    const float score = view.scores[to_size(entry)];
    const float x0 = frame.x(static_cast<double>(place) - 0.5) + gap;
    const float x1 = frame.x(static_cast<double>(place) + 0.5) - gap;
    if (std::isnan(score)) {
      frame.list->AddRectFilled({x0, frame.min.y}, {x1, frame.max.y}, theme().nan_cell);
      continue;
    }
    const int set = view.flags[to_size(entry)] & kInOurs ? 1 : 0;
    const BarEdges bar = frame.bar(score, score);
    frame.list->AddRectFilled({x0, bar.cap_end}, {x1, frame.base}, colours.bodies[set]);
    frame.list->AddRectFilled({x0, bar.top}, {x1, bar.cap_end}, colours.caps[set]);
  }
}

// A lane along the bottom: entries that entered the set since the step before, and that left it.
void ScorePlot::draw_changes(const TopKView& view, const Frame& frame) const {
  if (!view.has_before || frame.lane <= 0) return;
  const Theme& t = theme();
  const float top = frame.max.y - frame.lane, bottom = frame.max.y;
  frame.list->AddRectFilled({frame.min.x, top}, {frame.max.x, bottom}, t.raised);
  const float half = std::max(px(1), frame.pixels_per_place() * 0.5f - 1);
  const auto tick = [&](std::int64_t entry, bool entered) {
    const float x = frame.x(static_cast<double>(frame.place(view, entry)));
    if (x < frame.min.x || x > frame.max.x) return;
    if (entered) {
      frame.list->AddRectFilled({x - half, top + 1}, {x + half, bottom - 1}, t.text);
    } else {
      frame.list->AddRect({x - half, top + 1}, {x + half, bottom - 1}, t.text_dim);
    }
  };
  for (std::int64_t e = 0; e < view.visible; ++e) {
    const std::uint8_t flags = view.flags[to_size(e)];
    if ((flags & kInOurs) && !(flags & kInBefore)) tick(e, true);
  }
  for (std::int32_t e : view.left) {
    if (e < view.visible) tick(e, false);
  }
}

void ScorePlot::draw_threshold(const TopKView& view, const Frame& frame) const {
  if (!view.choosing() || !std::isfinite(view.threshold)) return;
  const Theme& t = theme();
  const float y = frame.y(view.threshold);
  if (frame.by_rank && std::isfinite(view.margin) && view.margin > 0) {
    const float below = frame.y(view.best_unselected);
    frame.list->AddRectFilled({frame.min.x, y}, {frame.max.x, below}, with_alpha(t.text, 0.10f));
    const float x = frame.x(static_cast<double>(view.selected) - 0.5);
    frame.list->AddLine({x, frame.min.y}, {x, frame.max.y}, with_alpha(t.text, 0.35f));
  }
  frame.list->AddLine({frame.min.x, y}, {frame.max.x, y}, t.text, px(1.2f));
  const std::string text = "threshold " + format_number(view.threshold) +
                           (frame.by_rank ? ", margin " + format_number(view.margin) : "");
  const ImVec2 extent = ImGui::CalcTextSize(text.c_str());
  const ImVec2 pad{px(4), px(1)};
  ImVec2 at{frame.max.x - extent.x - 2 * pad.x - px(4), y - extent.y - 2 * pad.y - px(2)};
  if (at.y < frame.min.y) at.y = y + px(2);
  frame.list->AddRectFilled(at, {at.x + extent.x + 2 * pad.x, at.y + extent.y + 2 * pad.y},
                            with_alpha(t.panel, 0.85f), px(3));
  frame.list->AddText({at.x + pad.x, at.y + pad.y}, t.text, text.c_str());
}

// Full bars and a mark at the top: pointing up = ours alone, down = the reference's alone. How many
// lie outside is said at the edges.
void ScorePlot::draw_swaps(const TopKView& view, const Frame& frame) const {
  const float half = std::clamp(frame.pixels_per_place() * 0.4f, 1.0f, px(6));
  int outside[2] = {0, 0};  // left and right of what is shown
  for (bool ours : {true, false}) {
    for (const TopKSwap& swap : ours ? view.only_ours : view.only_reference) {
      const float x = frame.x(static_cast<double>(frame.place(view, swap.entry)));
      if (x < frame.min.x || x > frame.max.x) {
        ++outside[x < frame.min.x ? 0 : 1];
        continue;
      }
      const ImU32 colour = swap_colour(swap);
      const float y = std::isfinite(swap.score) ? frame.y(swap.score) : frame.min.y;
      frame.list->AddRectFilled({x - half, std::min(y, frame.base - 1)}, {x + half, frame.base},
                                colour);
      const float s = px(5), top = frame.min.y + px(2);
      if (ours) {
        frame.list->AddTriangleFilled({x - s, top + 2 * s}, {x + s, top + 2 * s}, {x, top}, colour);
      } else {
        frame.list->AddTriangleFilled({x - s, top}, {x + s, top}, {x, top + 2 * s}, colour);
      }
      frame.list->AddLine({x, top + 2 * s}, {x, y}, with_alpha(colour, 0.5f));
    }
  }
  const ImU32 colour = view.verdict == Verdict::kNearTie ? theme().tie : theme().bad;
  const float y = frame.min.y + px(14);
  if (outside[0] > 0) {
    const std::string text = "< " + std::to_string(outside[0]);
    frame.list->AddText({frame.min.x + px(4), y}, colour, text.c_str());
  }
  if (outside[1] > 0) {
    const std::string text = std::to_string(outside[1]) + " >";
    const float width = ImGui::CalcTextSize(text.c_str()).x;
    frame.list->AddText({frame.max.x - width - px(4), y}, colour, text.c_str());
  }
}

std::int32_t ScorePlot::entry_under_mouse(const TopKView& view, const Frame& frame) const {
  const ImVec2 mouse = ImGui::GetMousePos();
  const double per_pixel = frame.limits.X.Size() / static_cast<double>(frame.max.x - frame.min.x);
  const double at = frame.limits.X.Min + static_cast<double>(mouse.x - frame.min.x) * per_pixel;
  if (columns_.empty()) {
    const std::int64_t place = std::llround(at);
    return place < 0 || place >= view.visible ? -1
                                              : static_cast<std::int32_t>(frame.entry(view, place));
  }
  const auto column =
      to_size(std::clamp<std::int64_t>(static_cast<std::int64_t>(mouse.x - frame.min.x), 0,
                                       static_cast<std::int64_t>(columns_.size()) - 1));
  if (columns_[column].swap >= 0) return columns_[column].swap;
  // The best of the entries that share this pixel.
  std::int64_t best = -1;
  const auto first = std::max<std::int64_t>(0, std::llround(std::ceil(at - per_pixel * 0.5)));
  const auto last =
      std::min<std::int64_t>(view.visible - 1, std::llround(std::floor(at + per_pixel * 0.5)));
  for (std::int64_t place = first; place <= last; ++place) {
    const std::int64_t entry = frame.entry(view, place);
    if (best < 0 || view.rank[to_size(entry)] < view.rank[to_size(best)]) best = entry;
  }
  return static_cast<std::int32_t>(best);
}

ScorePlotEvents ScorePlot::draw(const char* id, const TopKView& view, std::uint64_t version,
                                ScoreOrder order, std::int64_t selected, ImVec2 size) {
  ScorePlotEvents events;
  if (version != version_ || order != order_) {
    if (order != order_) zoomed_ = false;
    version_ = version;
    order_ = order;
    fit(view, order);
    refit_ = refit_ || !zoomed_;
  }
  constexpr ImPlotFlags kFlags = ImPlotFlags_CanvasOnly;
  if (!ImPlot::BeginPlot(id, size, kFlags)) return events;
  const bool by_rank = order != ScoreOrder::kEntry;
  // A low picture needs its height; the switch beside it says the same.
  const bool low = size.y < px(150);
  const ImPlotAxisFlags axis =
      ImPlotAxisFlags_NoHighlight | (low ? ImPlotAxisFlags_NoLabel : ImPlotAxisFlags_None);
  ImPlot::SetupAxes(by_rank ? "rank" : "entry", "score", axis, axis);
  ImPlot::SetupAxesLimits(fitted_.X.Min, fitted_.X.Max, fitted_.Y.Min, fitted_.Y.Max,
                          refit_ ? ImPlotCond_Always : ImPlotCond_Once);
  // What is fitted is allowed, however few entries there are.
  ImPlot::SetupAxisZoomConstraints(ImAxis_X1, std::min(4.0, fitted_.X.Size()),
                                   static_cast<double>(view.visible) * 4 + 16);
  ImPlot::SetupAxisFormat(ImAxis_X1, whole_label);
  ImPlot::SetupFinish();

  Frame frame;
  frame.by_rank = by_rank;
  frame.limits = ImPlot::GetPlotLimits();
  frame.min = ImPlot::GetPlotPos();
  const ImVec2 extent = ImPlot::GetPlotSize();
  frame.max = {frame.min.x + extent.x, frame.min.y + extent.y};
  frame.lane = view.has_before ? px(6) : 0;
  frame.base = frame.max.y - frame.lane;
  frame.list = ImPlot::GetPlotDrawList();
  if (!refit_) {
    const auto moved = [](const ImPlotRange& a, const ImPlotRange& b) {
      return std::fabs(a.Min - b.Min) + std::fabs(a.Max - b.Max) > 1e-6 * b.Size();
    };
    zoomed_ = moved(frame.limits.X, fitted_.X) || moved(frame.limits.Y, fitted_.Y);
  }
  refit_ = false;
  reduce(view, frame);

  ImPlot::PushPlotClipRect();
  const auto whole_column = [&](std::int64_t entry, ImU32 colour) {
    const auto place = static_cast<double>(frame.place(view, entry));
    const float middle = frame.x(place);
    const float half = std::max(px(1.5f), frame.pixels_per_place() * 0.5f);
    frame.list->AddRectFilled({middle - half, frame.min.y}, {middle + half, frame.max.y}, colour);
  };
  if (ImPlot::IsPlotHovered()) {
    events.hovered = entry_under_mouse(view, frame);
    if (events.hovered >= 0) whole_column(events.hovered, with_alpha(theme().accent_soft, 0.5f));
    const bool dragged = ImGui::GetIO().MouseDragMaxDistanceSqr[0] > px(3) * px(3);
    if (ImGui::IsMouseReleased(ImGuiMouseButton_Left) && !dragged) events.clicked = events.hovered;
    if (ImGui::IsMouseDoubleClicked(ImGuiMouseButton_Left)) refit_ = true;
  }
  draw_bars(view, frame);
  draw_changes(view, frame);
  draw_threshold(view, frame);
  draw_swaps(view, frame);
  if (selected >= 0 && selected < view.visible) {
    const float x = frame.x(static_cast<double>(frame.place(view, selected)));
    const float half = std::max(px(1.5f), frame.pixels_per_place() * 0.5f);
    draw_selected(frame.list, {x - half, frame.min.y}, {x + half, frame.max.y});
  }
  ImPlot::PopPlotClipRect();
  ImPlot::EndPlot();
  return events;
}

}  // namespace attnscope::gui
