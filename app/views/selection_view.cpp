#include "app/views/selection_view.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "app/text/format.h"
#include "app/views/linkage.h"
#include "app/views/op_order.h"
#include "app/views/tensor_view.h"
#include "app/views/top_k_view.h"
#include "app/views/window_view.h"
#include "engine/io/plural.h"

namespace attnscope {
namespace {

constexpr std::size_t kSelectionTextLimit = 60;
constexpr std::size_t kReadersShown = 6;

std::string token_text(const RequestView& request, std::int64_t position) {
  if (position < 0 || position >= request.request.num_tokens()) return "";
  return format_token(request.request.tokens[static_cast<std::size_t>(position)]);
}

std::string positions_text(TokenRange range) {
  if (range.end - range.begin == 1) return fmt::format("token {}", format_count(range.begin));
  return fmt::format("tokens {}-{}", range.begin, range.end - 1);
}

// Ratios of the model's compressed layers, ascending.
std::vector<int> compressed_ratios(const SessionInfo& info) {
  std::vector<int> ratios;
  for (const CacheSpec& spec : info.layout.specs) {
    const int ratio = spec.tokens_per_row;
    if (ratio > 1 && std::find(ratios.begin(), ratios.end(), ratio) == ratios.end()) {
      ratios.push_back(ratio);
    }
  }
  std::sort(ratios.begin(), ratios.end());
  return ratios;
}

class SelectionBuilder {
 public:
  explicit SelectionBuilder(const SelectionInput& input)
      : in_(input),
        request_(find_request(input.step, input.selection.request)),
        looked_at_(position_of_row()) {}

  SelectionView build() {
    if (in_.selection.entry >= 0) entry_of_ = find_request(in_.step, in_.selection.entry_request);
    if (request_ == nullptr) {
      view_.sentence = fmt::format("Request {} is not running in this step: pick another one.",
                                   in_.selection.request);
      return view_;
    }
    // The other panels look at somebody else's token where the selected request has none.
    const bool elsewhere = in_.row >= 0 && in_.step.request_of(in_.row) != in_.selection.request;
    position_ = in_.selection.position >= 0 || elsewhere ? in_.selection.position : looked_at_;
    if (position_ >= 0) token_part();
    if (entry_of_ != nullptr) entry_part();
    if (in_.selection.block >= 0) block_part();
    if (in_.op != nullptr && in_.tap != nullptr && !in_.selection.element.empty()) element_part();
    if (view_.sentence.empty() && elsewhere) {
      view_.sentence = fmt::format(
          "Request {} ({}) computes no token in this step; the other panels show token {} of {}.",
          request_name(in_.info, in_.selection.request),
          request_state_name(request_->request.state), format_count(looked_at_),
          request_name(in_.info, in_.step.request_of(in_.row)));
    }
    if (view_.sentence.empty()) {
      view_.sentence = "Nothing is picked: click a token, a block, an entry or an element.";
    }
    return view_;
  }

 private:
  std::int64_t position_of_row() const {
    const auto& positions = in_.step.metadata.positions;
    return in_.row >= 0 && static_cast<std::size_t>(in_.row) < positions.size()
               ? positions[static_cast<std::size_t>(in_.row)]
               : -1;
  }

  Selection at_block(std::int32_t block, std::int32_t row, int group) const {
    Selection to = in_.selection;
    to.position = position_;
    to.block = block;
    to.row = row;
    to.group = group;
    return to;
  }

  SelectionPart& part(std::string title) {
    view_.parts.push_back({std::move(title), {}});
    return view_.parts.back();
  }

  SelectionLine slot_line(const TokenSlot& slot) const {
    const CacheGroup& group = in_.info.layout.groups[static_cast<std::size_t>(slot.group)];
    SelectionLine line;
    line.label = slot.ratio == 1 ? group.name : fmt::format("{} 1/{}", group.name, slot.ratio);
    const bool known = position_ < length_in_step(in_.step, *request_);
    if (slot.block > 0 && known) {
      line.text = fmt::format("block {} row {}, slot {}", slot.block, slot.row, slot.slot);
      if (slot.entry >= 0) line.text += fmt::format(", entry {}", slot.entry);
      line.here = in_.selection.block == slot.block && in_.selection.group == slot.group;
      line.to = at_block(slot.block, slot.row, slot.group);
      if (slot.entry >= 0) line.to->pick_entry(in_.selection.request, slot.ratio, slot.entry);
      return line;
    }
    line.null = true;
    if (group.kind == GroupKind::kFirst && position_ >= group.window) {
      line.text = fmt::format("none: the first {} tokens alone have rows", group.window);
    } else if (slot.block == 0) {
      line.text = group.kind == GroupKind::kChunked
                      ? fmt::format("null: its chunk of {} tokens has ended", group.window)
                      : fmt::format("null: it left the window of {} tokens", group.window);
    } else {
      line.text = "not written yet";
    }
    return line;
  }

  // "slot 97 of 128, weight 0.0022 in head 0": the picked token in the window that is looked at.
  // Where no row leaves it: "row 97 of 210".
  SelectionLine window_line(const WindowView& window) {
    SelectionLine line{window.whole ? "attended" : "window", {}, false, false, std::nullopt};
    for (std::size_t i = 0; i < window.slots.size(); ++i) {
      const WindowSlot& slot = window.slots[i];
      if (slot.position != position_) continue;
      line.text = fmt::format("{} {} of {} read by token {}", window.whole ? "row" : "slot", i + 1,
                              window.slots.size(), format_count(looked_at_));
      if (slot.has_weight) {
        line.text +=
            fmt::format(", weight {} in head {}", format_number(slot.weight), in_.selection.head);
        window_weight_ = slot.weight;
      }
      line.to = at_block(slot.block, slot.row, window.group);
      return line;
    }
    line.null = true;
    const std::string by = format_count(looked_at_);
    line.text = !window.whole            ? fmt::format("outside that of token {}", by)
                : position_ > looked_at_ ? fmt::format("not by token {}, which comes before it", by)
                                         : fmt::format("not by token {}", by);
    return line;
  }

  void token_part() {
    SelectionPart& out =
        part(fmt::format("Token {} {}", format_count(position_), token_text(*request_, position_)));
    const TokenRange around{position_ - 24, position_ + 24};
    out.lines.push_back(
        {"text", fmt::format("\"{}\"", text_of(request_->request, around, kSelectionTextLimit)),
         false, false, std::nullopt});
    std::size_t live = 0, gone = 0;
    for (const TokenSlot& slot : slots_of_token(in_.info, *request_, position_)) {
      out.lines.push_back(slot_line(slot));
      (out.lines.back().null ? gone : live)++;
    }
    const WindowView window =
        in_.step.request_of(in_.row) == in_.selection.request
            ? window_view(in_.info, in_.step, in_.cursor.layer, in_.row, in_.selection.head)
            : WindowView{};
    if (window.valid) out.lines.push_back(window_line(window));
    std::vector<std::string> pooled;
    for (const int ratio : compressed_ratios(in_.info)) {
      for (const std::int64_t entry : entries_of_token(in_.info.layout, ratio, position_)) {
        out.lines.push_back(pool_line(ratio, entry));
        if (!out.lines.back().null) pooled.push_back(fmt::format("{} (1/{})", entry, ratio));
      }
    }
    view_.sentence = fmt::format("Token {} of {} has rows in {}", format_count(position_),
                                 request_name(in_.info, in_.selection.request),
                                 counted(live, "place", "places"));
    if (gone > 0)
      view_.sentence += fmt::format("; {} null or not written", counted(gone, "is", "are"));
    if (window_weight_) {
      view_.sentence +=
          fmt::format("; head {} gives it {} of its weight in layer {}", in_.selection.head,
                      format_number(*window_weight_), in_.cursor.layer);
    } else if (window.valid && window.whole) {
      // Nothing more: the token is attended as a row, if not by this one.
    } else if (window.valid && position_ <= looked_at_ && pooled.empty()) {
      view_.sentence += "; nothing stands for it outside the window yet";
    } else if (window.valid && position_ < looked_at_) {
      view_.sentence += fmt::format("; beyond the window it is seen through {}",
                                    counted(pooled.size(), "entry", "entries"));
    }
    view_.sentence += ".";
  }

  SelectionLine pool_line(int ratio, std::int64_t entry) const {
    SelectionLine line;
    line.label = fmt::format("entry 1/{}", ratio);
    const TokenRange tokens = tokens_of_entry(in_.info.layout, ratio, entry);
    const TokenSlot slot = slot_of_entry(in_.info, *request_, ratio, entry);
    line.text = fmt::format("{} pools {}", format_count(entry), positions_text(tokens));
    if (tokens.end > length_in_step(in_.step, *request_)) {
      line.null = true;
      line.text += ", still incomplete";
      return line;
    }
    line.here = in_.selection.entry_of(in_.selection.request, ratio) == entry;
    line.to = at_block(slot.block, slot.row, slot.group);
    line.to->pick_entry(in_.selection.request, ratio, entry);
    return line;
  }

  void entry_part() {
    const std::int64_t entry = in_.selection.entry;
    const int ratio = in_.selection.entry_ratio;
    const std::int32_t owner = in_.selection.entry_request;
    const TokenRange tokens = tokens_of_entry(in_.info.layout, ratio, entry);
    SelectionPart& out = part(fmt::format("Entry {} of {}, one a {} tokens", format_count(entry),
                                          request_name(in_.info, owner), ratio));
    SelectionLine pools{"pools",
                        fmt::format("{} \"{}\"", positions_text(tokens),
                                    text_of(entry_of_->request, tokens, kSelectionTextLimit)),
                        false, false, in_.selection};
    pools.to->request = owner;
    pools.to->position = tokens.begin;
    out.lines.push_back(pools);
    const TokenSlot slot = slot_of_entry(in_.info, *entry_of_, ratio, entry);
    if (slot.block > 0) {
      Selection to = at_block(slot.block, slot.row, slot.group);
      to.request = owner;
      to.position = tokens.begin;
      out.lines.push_back({"row",
                           fmt::format("block {} row {}, slot {}", slot.block, slot.row, slot.slot),
                           false, in_.selection.block == slot.block, to});
    } else {
      out.lines.push_back(
          {"row",
           fmt::format("none: {} has no block there ({})", request_name(in_.info, owner),
                       request_state_name(entry_of_->request.state)),
           true, false, std::nullopt});
    }
    const TopKLayer layer = top_k_layer(in_.info, in_.cursor, looked_at_);
    if (layer.ratio != ratio || in_.row < 0 || in_.step.request_of(in_.row) != owner) return;
    const auto top = top_k_entry(
        {in_.info, in_.step, nullptr, layer.layer, in_.row, in_.selection.head, Tolerance{}},
        entry);
    if (!top) {
      out.lines.push_back({"score", "not visible to the token", true, false, std::nullopt});
      return;
    }
    std::string score =
        fmt::format("{} in layer {}, rank {} of {}", format_number(top->score), layer.layer,
                    format_count(top->rank + 1), format_count(top->visible));
    out.lines.push_back({"score", score, false, false, std::nullopt});
    std::string chosen = top->selected ? "selected" : "not selected";
    if (top->chosen && std::isfinite(top->threshold) && top->choosing()) {
      const double distance = top->score - top->threshold;
      chosen += fmt::format(", {} {} the threshold {}", format_number(std::abs(distance)),
                            distance < 0 ? "below" : "above", format_number(top->threshold));
    }
    out.lines.push_back({"choice", chosen, !top->selected, false, std::nullopt});
    if (!std::isnan(top->weight)) {
      out.lines.push_back(
          {"weight", fmt::format("{} in head {}", format_number(top->weight), in_.selection.head),
           false, false, std::nullopt});
    }
  }

  void block_part() {
    const std::int32_t block = in_.selection.block;
    SelectionPart& out = part(fmt::format("Block {}", block));
    if (block == 0) {
      out.lines.push_back({"null", "nobody owns it, nothing is written to it", true, false, {}});
      return;
    }
    const auto contents = contents_of_block(in_.info, in_.step, block);
    if (!contents) {
      const auto& list = in_.step.free_list;
      const auto found = std::find(list.begin(), list.end(), block);
      std::string state = block_state(in_.info, in_.step, block);
      if (found != list.end()) {
        state += fmt::format(", in turn {} of {}", found - list.begin() + 1,
                             format_count(static_cast<std::int64_t>(list.size())));
      }
      out.lines.push_back({"state", state, true, false, std::nullopt});
      return;
    }
    const CacheGroup& group = in_.info.layout.groups[static_cast<std::size_t>(contents->group)];
    Selection owner = at_block(block, -1, contents->group);
    owner.request = contents->request;
    owner.position = contents->tokens.begin;
    out.lines.push_back(
        {"state",
         fmt::format("{}; {} table entry {}", block_state(in_.info, in_.step, block), group.name,
                     contents->index),
         false, in_.selection.request == contents->request, owner});
    const RequestView* holder = find_request(in_.step, contents->request);
    std::string holds = contents->tokens.begin == contents->tokens.end
                            ? "nothing yet"
                            : positions_text(contents->tokens);
    if (holder != nullptr && contents->tokens.begin < contents->tokens.end) {
      holds += fmt::format(" \"{}\"",
                           text_of(holder->request, contents->tokens, kSelectionTextLimit / 2));
    }
    if (contents->fresh) holds += ", taken in this step";
    out.lines.push_back({"holds", holds, false, false, owner});
    readers(out, block);
  }

  void readers(SelectionPart& out, std::int32_t block) const {
    const auto rows = readers_of_block(in_.info, in_.step, block);
    if (rows.empty()) {
      out.lines.push_back({"read by", "no kept token of this step", true, false, std::nullopt});
      return;
    }
    for (std::size_t i = 0; i < std::min(rows.size(), kReadersShown); ++i) {
      const auto row = static_cast<std::size_t>(rows[i]);
      Selection to = in_.selection;
      to.request = in_.step.request_of(rows[i]);
      to.position = in_.step.metadata.positions[row];
      out.lines.push_back({i == 0 ? "read by" : "",
                           fmt::format("token {} of {}", format_count(to.position),
                                       request_name(in_.info, to.request)),
                           false, rows[i] == in_.row, to});
    }
    if (rows.size() > kReadersShown) {
      out.lines.push_back({"", fmt::format("and {} more", rows.size() - kReadersShown), false,
                           false, std::nullopt});
    }
  }

  void element_part() {
    if (in_.selection.tap != in_.tap->name) return;
    TapIndex index(in_.selection.element);
    if (index.rank != in_.tap->value.rank) return;
    const auto axes = axes_of(in_.step, *in_.op, *in_.tap);
    for (int axis = 0; axis < index.rank; ++axis) {
      if (axes[static_cast<std::size_t>(axis)].link == AxisLink::kToken) {
        index[axis] = index_of_token_row(in_.step, *in_.op, index[axis]);
      }
    }
    for (int axis = 0; axis < index.rank; ++axis) {
      if (index[axis] < 0 || index[axis] >= in_.tap->value.shape[axis]) return;
    }
    const std::string where = element_text(in_.step, *in_.op, *in_.tap, index);
    SelectionPart& out = part(fmt::format("{}: {}", in_.tap->name, where));
    const char* gap = gaps_of(*in_.op, *in_.tap).why(*in_.tap, index);
    if (gap != nullptr) {
      out.lines.push_back({"value", gap, true, false, std::nullopt});
      return;
    }
    const double value = element_at(in_.tap->value, index);
    out.lines.push_back({"value", format_exact(value), false, false, std::nullopt});
    if (in_.tap->reference.data == nullptr) {
      out.lines.push_back({"ref.sim", "not compared", true, false, std::nullopt});
      return;
    }
    const double reference = element_at(in_.tap->reference, index);
    out.lines.push_back({"ref.sim", format_exact(reference), false, false, std::nullopt});
    const std::string difference = format_error(std::abs(value - reference));
    out.lines.push_back({"apart", difference, false, false, std::nullopt});
    view_.sentence += fmt::format(" {} at {}: {}, {} from ref.sim.", in_.tap->name, where,
                                  format_number(value), difference);
  }

  const SelectionInput& in_;
  const RequestView* request_;
  const RequestView* entry_of_ = nullptr;  // whose entry is picked; null: none is
  std::int64_t looked_at_;                 // position of the row
  std::int64_t position_ = -1;             // picked
  std::optional<double> window_weight_;
  SelectionView view_;
};

}  // namespace

SelectionView selection_view(const SelectionInput& input) {
  return SelectionBuilder(input).build();
}

}  // namespace attnscope
