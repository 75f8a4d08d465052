// Review of goldens: what is pending, both sides of every value that fails, and the decision.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "app/gui/command_group.h"
#include "app/gui/data_table.h"
#include "app/gui/text_input.h"
#include "app/gui/theme.h"
#include "app/gui/widgets.h"
#include "app/panels/panels.h"
#include "app/text/format.h"
#include "app/workbench/golden_session.h"
#include "engine/model/numbers.h"

namespace attnscope::gui {
namespace {

constexpr std::size_t kMostSides = 64;  // rows of a table of what differs

class ReviewPanel : public Panel {
 public:
  ReviewPanel() : Panel("review", "Review") {}
  bool scrolls() const override { return false; }
  void register_commands(Ui& ui) override;
  void draw(Ui& ui) override;

 private:
  void draw_names(Ui& ui);
  void draw_decision(Ui& ui);
  void draw_taps(const GoldenReview& review);
  void draw_sides(const GoldenReviewTap& tap);

  GoldenSession session_;
  std::string reason_;
  std::int64_t tap_ = 0;  // index into the review's taps
  std::uint64_t shown_ = 0;
  DataTable taps_, sides_;
};

void ReviewPanel::register_commands(Ui& ui) {
  const CommandGroup file(ui.commands, "File");
  file.add(
      "review.open", "Open goldens ..",
      "Shows what is pending in a folder of goldens; without one in tests/goldens.", "",
      [this, &ui](std::string_view folder) -> Result<void> {
        if (auto ok = session_.open(std::string(folder)); !ok) return ok;
        return ui.commands.run("panel.review");
      },
      "FOLDER");
  const CommandGroup review(
      ui.commands, "Review", [this] { return session_.current() != nullptr; },
      "no golden is pending");
  review.add(
      "review.select", "Golden ..", "Shows another pending golden.", "",
      [this](std::string_view name) { return session_.select(std::string(name)); }, "NAME");
  review.add(
      "review.accept", "Accept ..",
      "What was received becomes what is accepted, with this reason, the commit and the machine.",
      "", [this](std::string_view reason) { return session_.accept(std::string(reason)); },
      "REASON");
  review.add("review.reject", "Reject", "Removes what was received; the golden goes on failing.",
             "", [this](std::string_view) { return session_.reject(); });
  review.add("review.skip", "Skip", "Goes to the next pending golden.", "",
             [this](std::string_view) { return session_.skip(); });
}

void ReviewPanel::draw(Ui& ui) {
  if (!session_.is_open()) {
    empty_state(ui,
                "No goldens are open. A run of \"attnscope golden run\" keeps what differs from "
                "the accepted values; here it is accepted or rejected.",
                "review.open");
    return;
  }
  sentence(session_.sentence());
  const GoldenReview* review = session_.current();
  if (review == nullptr) {
    return empty_state(ui,
                       "Nothing waits for a decision. \"attnscope golden run\" keeps what differs "
                       "from the accepted values; then open the folder again.",
                       "review.open");
  }
  if (shown_ != session_.version()) {
    shown_ = session_.version();
    tap_ = 0;
    reason_.clear();
  }
  draw_names(ui);
  if (shown_ != session_.version()) return;  // another one was chosen; drawn in the next frame
  const std::string words = fmt::format("{}: {}", review->name, review->sentence);
  review->is_new ? caution(words) : sentence(words, Verdict::kWrong);
  if (!review->about.empty()) dim(review->about);
  if (!review->accepted_by.empty()) field("accepted", review->accepted_by);
  if (!review->received_by.empty()) field("received", review->received_by);
  draw_decision(ui);
  // A decision may just have been made.
  if (session_.current() == review && shown_ == session_.version()) draw_taps(*review);
}

void ReviewPanel::draw_names(Ui& ui) {
  if (session_.pending().size() < 2) return;
  ImGui::SetNextItemWidth(std::min(px(320), ImGui::GetContentRegionAvail().x));
  if (!ImGui::BeginCombo("##golden", session_.current()->name.c_str())) return;
  for (const std::string& name : session_.pending()) {
    if (ImGui::Selectable(name.c_str(), name == session_.current()->name)) {
      ui.run("review.select=" + name);
      break;
    }
  }
  ImGui::EndCombo();
}

void ReviewPanel::draw_decision(Ui& ui) {
  ImGui::SetNextItemWidth(std::max(px(120), ImGui::GetContentRegionAvail().x - px(240)));
  const bool entered = text_input("##reason", reason_, "Why the new values are right",
                                  ImGuiInputTextFlags_EnterReturnsTrue);
  ImGui::SameLine();
  const bool reasoned = reason_.find_first_not_of(' ') != std::string::npos;
  ImGui::BeginDisabled(!reasoned);
  const bool accept = ImGui::Button("Accept##review");
  ImGui::EndDisabled();
  if (!reasoned && ImGui::IsItemHovered(ImGuiHoveredFlags_AllowWhenDisabled)) {
    tooltip("Accepting needs a reason, in one line.");
  }
  if (accept || (entered && reasoned)) return ui.run("review.accept=" + reason_);
  ImGui::SameLine();
  command_button(ui, "review.reject", "Reject");
  ImGui::SameLine();
  if (session_.current() != nullptr) command_button(ui, "review.skip", "Skip");
}

void ReviewPanel::draw_taps(const GoldenReview& review) {
  if (review.taps.empty()) return;  // a damaged one: its sentence says why
  taps_.begin(shown_);
  if (taps_.stale()) {
    taps_.columns({{"where", false, 1.4f, "STEP/LAYER/OP, or the case of an op alone."},
                   {"tap", false, 0.7f},
                   {"verdict", false, 0.7f},
                   {"of budget", true, 0.6f, "Worst difference in units of its bound."},
                   {"what", false, 3}});
    for (std::size_t i = 0; i < review.taps.size(); ++i) {
      const GoldenFinding& f = review.taps[i].finding;
      const bool bad = is_failure(f.verdict) && !review.is_new;
      taps_.row({{f.where},
                 {f.tap},
                 {review.is_new ? "new" : golden_verdict_name(f.verdict), bad ? theme().bad : 0},
                 review.is_new ? TableCell{}
                               : TableCell{format_number(f.budget_used), 0, f.budget_used, true},
                 {f.note}},
                static_cast<std::int64_t>(i));
    }
  }
  // No taller than its rows: what differs in one of them is looked at below.
  const float line = ImGui::GetTextLineHeight() + 2 * ImGui::GetStyle().CellPadding.y;
  const float most = ImGui::GetContentRegionAvail().y * 0.45f;
  const float high = std::min(most, line * static_cast<float>(review.taps.size() + 1) + px(4));
  if (const auto key = taps_.draw("##taps", ImVec2(-1, high), tap_)) tap_ = *key;
  const auto at = static_cast<std::size_t>(tap_);
  if (at < review.taps.size()) draw_sides(review.taps[at]);
}

// Samples over their place in the tensor: discs accepted, rings received; one side may have none.
void draw_samples(const GoldenTap& a, const GoldenTap& b, float height) {
  const auto range = sample_range(a, b);
  if (!range) return;
  const double low = range->first, high = range->second;
  const double span = high > low ? high - low : 1;
  const std::int64_t elements = std::max(a.elements(), b.elements());
  dim(fmt::format("Samples of {}, by their place: discs accepted, rings received.",
                  plural(elements, "element", "elements")));
  ImDrawList* list = ImGui::GetWindowDrawList();
  const float edge = px(6), line = ImGui::GetTextLineHeight();
  ImVec2 from = ImGui::GetCursorScreenPos();
  const std::string top = format_number(high), bottom = format_number(low);
  const float names =
      std::max(ImGui::CalcTextSize(top.c_str()).x, ImGui::CalcTextSize(bottom.c_str()).x) + px(6);
  list->AddText({from.x, from.y}, theme().text_dim, top.c_str());
  list->AddText({from.x, from.y + height - line}, theme().text_dim, bottom.c_str());
  const float width = std::max(px(40), ImGui::GetContentRegionAvail().x - names);
  from.x += names;
  list->AddRect(from, ImVec2(from.x + width, from.y + height), theme().grid);
  const auto n = static_cast<double>(std::max<std::int64_t>(1, elements));
  const auto place = [&](const GoldenTap& t, std::size_t i) {
    const double x = static_cast<double>(t.at[i]) / n, y = (high - t.values[i]) / span;
    return ImVec2(from.x + edge + static_cast<float>(x) * (width - 2 * edge),
                  from.y + edge + static_cast<float>(y) * (height - 2 * edge));
  };
  for (std::size_t i = 0; i < a.at.size(); ++i) {
    if (std::isfinite(a.values[i])) list->AddCircleFilled(place(a, i), px(2), theme().positive);
  }
  for (std::size_t i = 0; i < b.at.size(); ++i) {
    if (std::isfinite(b.values[i])) list->AddCircle(place(b, i), px(4), theme().accent);
  }
  ImGui::SetCursorScreenPos(from);
  ImGui::Dummy(ImVec2(width, height));
  if (!ImGui::IsItemHovered()) return;
  // The sample that is nearest to the mouse, of both sides.
  const ImVec2 mouse = ImGui::GetMousePos();
  const GoldenTap& t = b.at.empty() ? a : b;
  std::size_t nearest = 0;
  const auto gap = [&](std::size_t i) { return std::fabs(place(t, i).x - mouse.x); };
  for (std::size_t i = 1; i < t.at.size(); ++i) {
    if (gap(i) < gap(nearest)) nearest = i;
  }
  std::string text = fmt::format("element {}", t.at[nearest]);
  for (const GoldenTap* side : {&a, &b}) {
    const auto at = std::ranges::find(side->at, t.at[nearest]);
    if (at == side->at.end()) continue;
    text += fmt::format("\n{} {}", side == &a ? "accepted" : "received",
                        format_exact(side->values[to_size(at - side->at.begin())]));
  }
  tooltip(text);
}

void ReviewPanel::draw_sides(const GoldenReviewTap& tap) {
  const GoldenTap *a = tap.accepted, *b = tap.received;
  const GoldenTap none;
  const GoldenTap& before = a != nullptr ? *a : none;
  const GoldenTap& now = b != nullptr ? *b : none;
  if (before.stats || now.stats) draw_samples(before, now, px(96));
  sides_.begin(shown_ * 4096 + static_cast<std::uint64_t>(tap_));
  if (sides_.stale()) {
    sides_.columns({{"value", false, 1.4f,
                     "Of all values, of one element, or of one of so many equal ranges of rows."},
                    {"accepted", true, 1},
                    {"received", true, 1},
                    {"difference", true, 1}});
    const auto number = [](double v) {
      return TableCell{format_number(v), 0, v, true, format_exact(v)};
    };
    std::int64_t key = 0;
    for (const GoldenDelta& d : tap.deltas) {
      sides_.row(
          {{d.what}, number(d.accepted), number(d.received), number(d.received - d.accepted)},
          key++);
    }
    if (tap.deltas.empty()) {
      for (const GoldenSides& side : golden_sides(tap, kMostSides)) {
        sides_.row({{side.what}, {side.accepted}, {side.received}, {}}, key++);
      }
    }
  }
  sides_.draw("##sides", ImVec2(-1, -1), -1, false);
}

}  // namespace

std::unique_ptr<Panel> make_review_panel() { return std::make_unique<ReviewPanel>(); }

}  // namespace attnscope::gui
