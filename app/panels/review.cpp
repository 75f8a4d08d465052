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
  if (review == nullptr) return;
  if (shown_ != session_.version()) {
    shown_ = session_.version();
    tap_ = 0;
    reason_.clear();
  }
  draw_names(ui);
  if (shown_ != session_.version()) return;  // another one was chosen; drawn in the next frame
  sentence(fmt::format("{}: {}", review->name, review->sentence), Verdict::kWrong);
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
                 {format_number(f.budget_used), 0, f.budget_used, true},
                 {f.note}},
                static_cast<std::int64_t>(i));
    }
  }
  const ImVec2 room = ImGui::GetContentRegionAvail();
  if (const auto key = taps_.draw("##taps", ImVec2(-1, room.y * 0.45f), tap_)) tap_ = *key;
  const auto at = static_cast<std::size_t>(tap_);
  if (at < review.taps.size()) draw_sides(review.taps[at]);
}

// Samples over their place in the tensor: discs accepted, rings received.
void draw_samples(const GoldenTap& a, const GoldenTap& b, float height) {
  const auto range = sample_range(a, b);
  if (!range) return;
  const double low = range->first, high = range->second;
  const double span = high > low ? high - low : 1;
  const ImVec2 from = ImGui::GetCursorScreenPos();
  const float width = ImGui::GetContentRegionAvail().x, edge = px(6);
  ImDrawList* list = ImGui::GetWindowDrawList();
  list->AddRect(from, ImVec2(from.x + width, from.y + height), theme().grid);
  const auto n = static_cast<double>(std::max<std::int64_t>(1, a.elements()));
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
  ImGui::Dummy(ImVec2(width, height));
  if (ImGui::IsItemHovered()) {
    tooltip(
        fmt::format("Samples over their place in the tensor, {} to {}: discs accepted, rings "
                    "received.",
                    format_number(low), format_number(high)));
  }
}

void ReviewPanel::draw_sides(const GoldenReviewTap& tap) {
  const GoldenTap *a = tap.accepted, *b = tap.received;
  if (a != nullptr && b != nullptr && a->stats && b->stats) draw_samples(*a, *b, px(96));
  sides_.begin(shown_ * 4096 + static_cast<std::uint64_t>(tap_));
  if (sides_.stale()) {
    sides_.columns({{"value", false, 1.4f},
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
