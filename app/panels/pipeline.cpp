// Pipeline: the ops of the cursor's layer as a flow chart of cards; time, budget, verdict. A click
// goes to the op, a double click opens its tensor.
#include <fmt/format.h>
#include <imgui_internal.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <vector>

#include "app/gui/icons.h"
#include "app/gui/theme.h"
#include "app/gui/widgets.h"
#include "app/panels/panels.h"
#include "app/text/format.h"
#include "app/views/compare_view.h"
#include "app/views/pipeline_view.h"
#include "engine/model/numbers.h"

namespace attnscope::gui {
namespace {

// At scale 1, in pixels.
constexpr float kGapX = 16, kGapY = 5;
constexpr float kLeastCard = 66, kUsualCard = 92, kWidestCard = 190;
constexpr float kLowestCard = 29, kHighestCard = 54;
constexpr float kSmallestName = 0.82f;  // of the face, for names that do not fit
constexpr float kDetailsWidth = 300, kDetailsHeight = 46;

class PipelinePanel : public Panel {
 public:
  PipelinePanel() : Panel("pipeline", "Pipeline") {}
  void draw(Ui& ui) override;
  bool scrolls() const override { return false; }

 private:
  struct Key {
    std::uint64_t version = 0;
    std::int64_t step = -2;
    PipelinePart part;
    const SessionInfo* info = nullptr;
    friend bool operator==(const Key&, const Key&) = default;
  };

  void refresh(const Ui& ui, const Snapshot& snapshot);
  void draw_head(Ui& ui);
  void draw_stops(Ui& ui, float width);
  float least_height() const;
  float stops_width() const;
  float stop_width(const PipelineStop& stop) const;
  void draw_chart(Ui& ui);
  void lay_out(ImVec2 space);
  void draw_edges() const;
  void draw_card(Ui& ui, int i);
  void draw_card_words(const PipelineCard& card, ImVec2 min, ImVec2 max) const;
  void draw_compared(const RunPair* comparison, const Place& place, ImVec2 max) const;
  void draw_details() const;
  ImVec2 card_min(const PipelineNode& node) const {
    return {origin_.x + x_[to_size(node.column)],
            origin_.y + static_cast<float>(node.row) * (card_height_ + px(kGapY))};
  }
  ImVec2 card_max(const PipelineNode& node) const {
    const ImVec2 min = card_min(node);
    return {min.x + width_[to_size(node.column)], min.y + card_height_};
  }

  Key key_;
  std::shared_ptr<const Snapshot> held_;  // keeps the traces that cards point to
  PipelineChart chart_;
  PipelineState state_;
  std::string sentence_;
  std::vector<PipelineStop> stops_;
  Place shown_;            // the op that was brought into view
  float shown_width_ = 0;  // of the view then

  // Of the frame.
  ImDrawList* list_ = nullptr;
  ImVec2 origin_;
  std::vector<float> x_, width_;  // by column
  float card_height_ = 0;
  int selected_ = -1;
  ImVec2 details_min_, details_max_;
};

void PipelinePanel::refresh(const Ui& ui, const Snapshot& snapshot) {
  const Place& cursor = ui.bench.cursor();
  // Until something has run, the first layer shows what will.
  const PipelinePart part =
      cursor.step < 0 ? PipelinePart{PipelinePart::Kind::kLayer, snapshot.info->config.layers[0]}
                      : pipeline_part(*snapshot.info, cursor);
  const Key key{ui.bench.version(), cursor.step, part, snapshot.info.get()};
  if (key == key_) return;
  if (key.part != key_.part || key.info != key_.info) {
    const auto graph = model_graph(snapshot.info->config);
    chart_ = pipeline_chart(*graph, pipeline_graph(*snapshot.info, *graph, part));
  }
  key_ = key;
  held_ = ui.bench.shared_snapshot();
  state_ = pipeline_state(snapshot, part, std::max<std::int64_t>(0, cursor.step));
  sentence_ = pipeline_sentence(state_);
  stops_ = pipeline_stops(snapshot, cursor);
}

void PipelinePanel::draw(Ui& ui) {
  const Snapshot* snapshot = ui.bench.snapshot();
  if (snapshot == nullptr) {
    empty_state(ui, ui.bench.busy() ? "The session is being made; its ops follow."
                                    : "No session is open, so there are no ops to show.");
    return;
  }
  refresh(ui, *snapshot);
  draw_head(ui);
  draw_chart(ui);
}

// ---- sentence and layers

float PipelinePanel::stop_width(const PipelineStop& stop) const {
  float width = ImGui::CalcTextSize(stop.name.c_str()).x + px(24);
  if (!stop.type.empty()) width += ImGui::CalcTextSize(stop.type.c_str()).x + px(4);
  return width;
}

// Of the chart with the lowest cards, and what lies between it and the sentence.
float PipelinePanel::least_height() const {
  const auto rows = static_cast<float>(chart_.rows);
  return rows * px(kLowestCard) + (rows - 1) * px(kGapY) + px(2) +
         3 * ImGui::GetStyle().ItemSpacing.y;
}

float PipelinePanel::stops_width() const {
  float width = 0;
  for (const PipelineStop& stop : stops_) width += stop_width(stop) + px(3);
  return width;
}

void PipelinePanel::draw_head(Ui& ui) {
  const float width = ImGui::GetContentRegionAvail().x;
  // The chart comes first: its lowest cards are not pushed out by a second line.
  const float room = ImGui::GetContentRegionAvail().y - least_height();
  const float all = stops_width();
  const float strip = std::min(all, width * 0.45f);
  const bool beside = width > px(900);
  if (beside && ImGui::BeginTable("##head", 2, ImGuiTableFlags_NoPadOuterX)) {
    ImGui::TableSetupColumn("words", ImGuiTableColumnFlags_WidthStretch);
    ImGui::TableSetupColumn("layers", ImGuiTableColumnFlags_WidthFixed, strip);
    ImGui::TableNextColumn();
    sentence(sentence_, pipeline_verdict(state_), room);
    ImGui::TableNextColumn();
    draw_stops(ui, strip);
    ImGui::EndTable();
    return;
  }
  sentence(sentence_, pipeline_verdict(state_));
  draw_stops(ui, std::min(all, width));
}

void PipelinePanel::draw_stops(Ui& ui, float width) {
  const Theme& t = theme();
  const float height = ImGui::GetTextLineHeight() + px(3);
  const bool scrolled = stops_width() > width + 1;
  const PipelinePart here = key_.part;
  if (ImGui::BeginChild("##layers", {width, height}, ImGuiChildFlags_None,
                        ImGuiWindowFlags_NoScrollbar | ImGuiWindowFlags_NoBackground)) {
    ImGui::PushStyleVar(ImGuiStyleVar_ItemSpacing, ImVec2(px(3), 0));
    ImDrawList* list = ImGui::GetWindowDrawList();
    for (std::size_t i = 0; i < stops_.size(); ++i) {
      const PipelineStop& stop = stops_[i];
      if (i > 0) ImGui::SameLine();
      const float w = stop_width(stop);
      const ImVec2 min = ImGui::GetCursorScreenPos();
      const ImVec2 max{min.x + w, min.y + height};
      const bool current = stop.part == here;
      ImGui::PushID(static_cast<int>(i));
      const bool clicked = ImGui::InvisibleButton(stop.name.c_str(), {w, height});
      ImGui::PopID();
      if (clicked && stop.target.step >= 0) ui.bench.go_to(stop.target);
      if (current && scrolled && ImGui::IsWindowAppearing()) ImGui::SetScrollHereX(0.5f);
      if (current && scrolled && !ImGui::IsItemVisible()) ImGui::SetScrollHereX(0.5f);
      list->AddRectFilled(min, max, current ? with_alpha(t.accent, 0.22f) : t.raised, px(3));
      if (current) list->AddRect(min, max, t.accent, px(3));
      const ImU32 mark = stop.ran ? verdict_colour(stop.worst) : t.text_faint;
      const ImVec2 dot{min.x + px(9), (min.y + max.y) * 0.5f};
      if (stop.ran) {
        list->AddCircleFilled(dot, px(3.5f), mark);
      } else {
        list->AddCircle(dot, px(3.5f), mark);
      }
      float x = min.x + px(17);
      const float y = min.y + (height - ImGui::GetTextLineHeight()) * 0.5f;
      list->AddText({x, y}, current ? t.accent : t.text, stop.name.c_str());
      x += ImGui::CalcTextSize(stop.name.c_str()).x + px(4);
      list->AddText({x, y}, t.text_dim, stop.type.c_str());
      if (ImGui::IsItemHovered()) {
        draw_hovered(list, min, max);
        tooltip(fmt::format(
            "{}\n{}\nclick: {}",
            stop.type.empty() ? stop.name + (stop.name == "before" ? " the layers" : " the layers")
                              : fmt::format("layer {} ({})", stop.name, stop.type),
            stop.ran ? verdict_name(stop.worst) : "has not run in this step",
            format_place(stop.target)));
      }
    }
    ImGui::PopStyleVar();
    if (ImGui::IsWindowHovered() && scrolled && ImGui::GetIO().MouseWheel != 0) {
      ImGui::SetScrollX(ImGui::GetScrollX() - ImGui::GetIO().MouseWheel * px(60));
    }
  }
  ImGui::EndChild();
}

// ---- chart

// Widths by column and the height of rows, so that the chart fills the space; below the least
// sizes it is larger than the space and scrolls.
void PipelinePanel::lay_out(ImVec2 space) {
  const auto columns = to_size(chart_.columns);
  const float gaps = px(kGapX) * static_cast<float>(chart_.columns - 1);
  std::vector<float> natural(columns, px(kUsualCard));
  for (const PipelineNode& node : chart_.nodes) {
    const float name = ImGui::CalcTextSize(node.label.c_str()).x + px(12);
    float& width = natural[to_size(node.column)];
    width = std::min(px(kWidestCard), std::max(width, name));
  }
  float sum = 0;
  for (float width : natural) sum += width;
  const float room = space.x - gaps - px(2);
  width_ = natural;
  if (sum > room) {
    // All shrink alike; where that is not enough they scroll, and then need not shrink.
    const float share = room / sum;
    const bool scrolls =
        std::ranges::any_of(width_, [&](float width) { return width * share < px(kLeastCard); });
    if (!scrolls) {
      for (float& width : width_) width *= share;
    }
  } else {
    const float more = (room - sum) / static_cast<float>(chart_.columns);
    for (float& width : width_) width = std::min(px(kWidestCard), width + more);
  }
  x_.assign(columns, 0);
  for (std::size_t i = 1; i < columns; ++i) x_[i] = x_[i - 1] + width_[i - 1] + px(kGapX);

  const auto rows = static_cast<float>(chart_.rows);
  const float height = (space.y - px(2) - px(kGapY) * (rows - 1)) / rows;
  card_height_ = std::clamp(std::floor(height), px(kLowestCard), px(kHighestCard));
}

void PipelinePanel::draw_chart(Ui& ui) {
  if (chart_.nodes.empty()) return;
  if (!ImGui::BeginChild("##chart", ImVec2(0, 0), ImGuiChildFlags_None,
                         ImGuiWindowFlags_HorizontalScrollbar)) {
    ImGui::EndChild();
    return;
  }
  list_ = ImGui::GetWindowDrawList();
  const ImVec2 space = ImGui::GetContentRegionAvail();
  lay_out(space);
  origin_ = ImGui::GetCursorScreenPos();
  origin_.x += 1;
  origin_.y += 1;
  const float width = x_.back() + width_.back() + 2;
  const float height = static_cast<float>(chart_.rows) * (card_height_ + px(kGapY)) - px(kGapY) + 2;

  const Place& cursor = ui.bench.cursor();
  selected_ = -1;
  for (std::size_t i = 0; i < chart_.nodes.size(); ++i) {
    if (cursor.step >= 0 && chart_.nodes[i].op == cursor.op) selected_ = static_cast<int>(i);
  }
  if ((cursor != shown_ || space.x != shown_width_) && selected_ >= 0) {
    shown_ = cursor;
    shown_width_ = space.x;
    const PipelineNode& node = chart_.nodes[to_size(selected_)];
    const float x = x_[to_size(node.column)], w = width_[to_size(node.column)];
    if (x < ImGui::GetScrollX() || x + w > ImGui::GetScrollX() + space.x) {
      ImGui::SetScrollX(std::max(0.0f, x - (space.x - w) * 0.5f));
    }
    const float y = static_cast<float>(node.row) * (card_height_ + px(kGapY));
    if (y < ImGui::GetScrollY() || y + card_height_ > ImGui::GetScrollY() + space.y) {
      ImGui::SetScrollY(std::max(0.0f, y - (space.y - card_height_) * 0.5f));
    }
  }

  // The space that holds no card: beside the branches, or below the only row.
  const float row = card_height_ + px(kGapY);
  if (chart_.rows > 1 && chart_.free_from < chart_.columns) {
    details_min_ = {origin_.x + x_[to_size(chart_.free_from)], origin_.y + row};
    details_max_ = {origin_.x + width - px(4), origin_.y + std::max(height, space.y - 2)};
  } else if (chart_.rows > 1) {
    details_min_ = {origin_.x + width + px(kGapX), origin_.y};
    details_max_ = {origin_.x + space.x - px(4), origin_.y + space.y - 2};
  } else {
    details_min_ = {origin_.x, origin_.y + row};
    details_max_ = {origin_.x + space.x - px(4), origin_.y + space.y - 2};
  }

  draw_edges();
  for (std::size_t r = 0; r < chart_.captions.size(); ++r) {
    if (chart_.captions[r].empty() || chart_.taken(static_cast<int>(r), 0)) continue;
    const ImVec2 min{origin_.x, origin_.y + static_cast<float>(r) * row};
    const std::string& caption = chart_.captions[r];
    const ImVec2 extent = ImGui::CalcTextSize(caption.c_str());
    const auto space_at = caption.find(' ');
    if (extent.x <= width_[0] || space_at == std::string::npos) {
      list_->AddText({min.x, min.y + (card_height_ - extent.y) * 0.5f}, theme().text_dim,
                     caption.c_str());
    } else {
      list_->AddText({min.x, min.y + card_height_ * 0.5f - extent.y}, theme().text_dim,
                     caption.substr(0, space_at).c_str());
      list_->AddText({min.x, min.y + card_height_ * 0.5f}, theme().text_dim,
                     caption.substr(space_at + 1).c_str());
    }
  }
  for (std::size_t i = 0; i < chart_.nodes.size(); ++i) draw_card(ui, static_cast<int>(i));
  draw_details();
  ImGui::SetCursorScreenPos({origin_.x - 1, origin_.y - 1});
  ImGui::Dummy({width, height});
  ImGui::EndChild();
}

void PipelinePanel::draw_edges() const {
  const Theme& t = theme();
  const float head = px(4);
  for (const PipelineEdge& edge : chart_.edges) {
    const PipelineNode& from = chart_.nodes[to_size(edge.from)];
    const PipelineNode& to = chart_.nodes[to_size(edge.to)];
    const bool lit = selected_ == edge.from || selected_ == edge.to;
    const ImU32 colour = lit ? t.accent : t.text_faint;
    const float thick = lit ? px(1.6f) : px(1.1f);
    const ImVec2 start{card_max(from).x, (card_min(from).y + card_max(from).y) * 0.5f};
    const ImVec2 end{card_min(to).x, (card_min(to).y + card_max(to).y) * 0.5f};
    const float after = start.x + px(kGapX) * 0.4f;  // trunk behind the writer
    const float before = end.x - px(kGapX) * 0.6f;   // trunk in front of the reader
    std::vector<ImVec2> path = {start};
    if (std::fabs(start.y - end.y) >= 1 || edge.route == PipelineEdge::Route::kBelow) {
      switch (edge.route) {
        case PipelineEdge::Route::kLate:
          path.insert(path.end(), {{before, start.y}, {before, end.y}});
          break;
        case PipelineEdge::Route::kEarly:
          path.insert(path.end(), {{after, start.y}, {after, end.y}});
          break;
        case PipelineEdge::Route::kBelow: {
          const float y = card_max(to).y + px(kGapY) * 0.5f;
          path.insert(path.end(), {{after, start.y}, {after, y}, {before, y}, {before, end.y}});
          break;
        }
      }
    }
    path.push_back({end.x - head, end.y});
    list_->AddPolyline(path.data(), static_cast<int>(path.size()), colour, thick);
    list_->AddTriangleFilled({end.x, end.y}, {end.x - head, end.y - head * 0.7f},
                             {end.x - head, end.y + head * 0.7f}, colour);
    // Not the whole of what the writer wrote: the other ranks' parts are added on the way.
    if (edge.sums) {
      const ImVec2 middle{(start.x + end.x - head) * 0.5f, start.y};
      const float radius = px(5), arm = px(3);
      list_->AddCircleFilled(middle, radius, t.panel);
      list_->AddCircle(middle, radius, t.accent, 0, px(1.3f));
      list_->AddLine({middle.x - arm, middle.y}, {middle.x + arm, middle.y}, t.accent, px(1.3f));
      list_->AddLine({middle.x, middle.y - arm}, {middle.x, middle.y + arm}, t.accent, px(1.3f));
    }
  }
}

void PipelinePanel::draw_card(Ui& ui, int i) {
  const Theme& t = theme();
  const PipelineNode& node = chart_.nodes[to_size(i)];
  const PipelineCard& card = state_.cards[to_size(i)];
  const ImVec2 min = card_min(node), max = card_max(node);
  ImGui::SetCursorScreenPos(min);
  const as_op_info* info = as_op_find(card.op);
  const char* name = info != nullptr ? info->name : "op";
  ImGui::InvisibleButton(name, {max.x - min.x, max.y - min.y});
  const bool hovered = ImGui::IsItemHovered();
  const std::int64_t step = std::max<std::int64_t>(0, ui.bench.cursor().step);
  if (ImGui::IsItemClicked() || picked_for_menu()) {
    ui.bench.go_to({step, state_.part.layer, card.op});
    shown_ = ui.bench.cursor();
    if (ImGui::IsMouseDoubleClicked(ImGuiMouseButton_Left)) ui.run("panel.tensor");
  }

  const bool selected = i == selected_;
  const float round = px(4);
  if (card.ran) {
    list_->AddRectFilled(min, max, t.raised, round);
    if (selected) list_->AddRectFilled(min, max, with_alpha(t.accent, 0.18f), round);
    if (card.worst == Verdict::kWrong) {
      list_->AddRectFilled(min, max, with_alpha(t.bad, 0.22f), round);
    }
  }
  const ImU32 frame = card.worst == Verdict::kWrong     ? t.bad
                      : card.worst == Verdict::kNearTie ? t.tie
                                                        : t.border;
  list_->AddRect(min, max, frame, round);
  draw_card_words(card, min, max);

  // Budget used: a bar along the lower edge, full at 1.
  if (card.ran && card.compared > 0) {
    const float y = max.y - px(4), left = min.x + px(6), right = max.x - px(6);
    const auto share = static_cast<float>(std::clamp(card.budget.used, 0.0, 1.0));
    list_->AddRectFilled({left, y}, {right, y + px(2)}, with_alpha(t.text_dim, 0.25f));
    if (share > 0) {
      list_->AddRectFilled({left, y},
                           {std::max(left + px(1), left + share * (right - left)), y + px(2)},
                           verdict_colour(card.worst));
    }
  }
  if (selected) draw_selected(list_, min, max);
  const Place place{step, state_.part.layer, card.op};
  if (card.ran) draw_compared(ui.bench.comparison().get(), place, max);
  if (hovered) {
    draw_hovered(list_, min, max);
    const std::string beside = compared_text(ui.bench.comparison().get(), place);
    tooltip(pipeline_card_text(card) + (beside.empty() ? "" : "\n" + beside) +
            (card.ran ? "\nclick: select, double click: open its tensor" : "\nclick: run to it"));
  }
}

// In the lower corner what a comparison with another run says: its sign on a triangle.
void PipelinePanel::draw_compared(const RunPair* comparison, const Place& place, ImVec2 max) const {
  const auto verdict = comparison != nullptr ? comparison->verdict(place) : std::nullopt;
  if (!verdict || *verdict == DiffVerdict::kUnknown) return;
  const DiffLook look = diff_look(*verdict);
  const float side = px(17), size = ImGui::GetFontSize() * 0.7f;
  const ImVec2 corner{max.x - px(1), max.y - px(1)};
  const ImU32 colour = look.caution ? theme().warn : verdict_colour(look.like);
  list_->AddTriangleFilled({corner.x - side, corner.y}, {corner.x, corner.y - side}, corner,
                           colour);
  const char* glyph = look.caution ? icon::kWarning : verdict_glyph(look.like);
  const ImVec2 extent = words()->CalcTextSizeA(size, FLT_MAX, 0, glyph);
  list_->AddText(words(), size, {corner.x - px(1) - extent.x, corner.y - extent.y}, text_on(colour),
                 glyph);
}

// Name; below it verdict and time at the left, budget at the right.
void PipelinePanel::draw_card_words(const PipelineCard& card, ImVec2 min, ImVec2 max) const {
  const Theme& t = theme();
  const float pad = px(6);
  float room = max.x - min.x - 2 * pad;
  const float full = ImGui::GetFontSize();
  const float height = max.y - min.y;
  const ImU32 ink = card.ran ? t.text : t.text_dim;
  list_->PushClipRect({min.x + px(2), min.y}, {max.x - px(2), max.y}, true);

  std::string name = card.label;
  float size = full;
  const auto width = [&](ImFont* font, float at, const std::string& s) {
    return font->CalcTextSizeA(at, FLT_MAX, 0, s.c_str()).x;
  };
  const float small = full * 0.88f;
  if (card.other_lane) {
    // Who computed it stands in the corner: the kind of lane, or a sign where that is too wide.
    std::string lane = card.lane.substr(0, card.lane.find(':'));
    if (width(words(), small, lane) + width(words(), full * kSmallestName, name) + px(12) > room) {
      lane = lane_sign(card.lane);
    }
    const float w = width(words(), small, lane) + px(6);
    const ImVec2 a{max.x - w - px(4), min.y + px(3)};
    list_->AddRectFilled(a, {max.x - px(4), a.y + small + px(1)}, t.warn, px(3));
    list_->AddText(words(), small, {a.x + px(3), a.y}, text_on(t.warn), lane.c_str());
    room -= w + px(2);
  }
  while (size > full * kSmallestName && width(words(), size, name) > room) size -= 0.5f;
  if (width(words(), size, name) > room) {
    // The end of a name tells more than its middle.
    const auto tail = name.rfind('_') == std::string::npos ? name.size() : name.rfind('_');
    for (std::size_t head = tail; head-- > 1;) {
      const std::string shorter = name.substr(0, head) + ".." + name.substr(tail);
      if (head > 1 && width(words(), size, shorter) > room) continue;
      name = shorter;
      break;
    }
  }
  const float lines = size + small + px(2);
  const float y = min.y + std::max(px(1), (height - px(5) - lines) * 0.5f);
  list_->AddText(words(), size, {min.x + pad, y}, ink, name.c_str());

  const float y2 = y + size + px(1);
  float x = min.x + pad;
  if (!card.ran) {
    list_->AddText(words(), small, {x, y2}, t.text_faint,
                   card.absent ? "no block moves" : "not run yet");
  } else {
    const char* glyph = verdict_glyph(card.worst);
    list_->AddText(words(), small, {x, y2}, verdict_colour(card.worst), glyph);
    x += std::max(px(15), width(words(), small, glyph) + px(4));
    const std::string time = card.microseconds >= 0 ? format_us(card.microseconds) : "";
    list_->AddText(numbers(), small, {x, y2}, t.text, time.c_str());
    x += width(numbers(), small, time);
    if (card.compared > 0 && card.budget.used > 0) {
      const std::string budget = budget_short(card.budget);
      const float w = width(numbers(), small, budget);
      if (x + px(6) + w <= max.x - pad) {
        const ImU32 quiet = card.worst == Verdict::kWrong ? t.text : t.text_dim;  // on red
        list_->AddText(numbers(), small, {max.x - pad - w, y2}, quiet, budget.c_str());
      }
    }
  }
  list_->PopClipRect();
}

// The selected op in words, where the chart leaves room.
void PipelinePanel::draw_details() const {
  if (selected_ < 0) return;
  // Within what is seen of a chart that scrolls.
  const ImVec2 seen_min = list_->GetClipRectMin(), seen_max = list_->GetClipRectMax();
  const ImVec2 min(std::max(details_min_.x, seen_min.x + px(4)), details_min_.y);
  const ImVec2 max(std::min(details_max_.x, seen_max.x - px(4)), details_max_.y);
  if (max.x - min.x < px(kDetailsWidth) || max.y - min.y < px(kDetailsHeight)) {
    return;
  }
  const Theme& t = theme();
  list_->AddRectFilled(min, max, with_alpha(t.raised, 0.5f), px(4));
  list_->PushClipRect(min, max, true);
  const float pad = px(8);
  const float wrap = max.x - min.x - 2 * pad;
  const std::string text = pipeline_card_text(state_.cards[to_size(selected_)]);
  const float size = ImGui::GetFontSize() * 0.92f;
  float y = min.y + px(4);
  std::size_t from = 0;
  for (int line = 0; from <= text.size(); ++line) {
    const std::size_t end = std::min(text.find('\n', from), text.size());
    const char* begin = text.data() + from;
    const char* stop = text.data() + end;
    const float h = words()->CalcTextSizeA(size, FLT_MAX, wrap, begin, stop).y;
    if (y + h > max.y) break;
    const ImU32 colour = line == 0 ? t.accent : line == 1 ? t.text : t.text_dim;
    list_->AddText(words(), size, {min.x + pad, y}, colour, begin, stop, wrap);
    y += h + px(1);
    from = end + 1;
  }
  list_->PopClipRect();
}

}  // namespace

std::unique_ptr<Panel> make_pipeline_panel() { return std::make_unique<PipelinePanel>(); }

}  // namespace attnscope::gui
