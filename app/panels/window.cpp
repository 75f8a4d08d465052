// The sliding window of the selected token, or its chunk, slot by slot, how far the layers up to
// this one reach together, and the block mask of its request.
#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "app/gui/data_table.h"
#include "app/gui/widgets.h"
#include "app/panels/panels.h"
#include "app/text/format.h"
#include "app/views/block_mask_view.h"
#include "app/views/reach_view.h"
#include "app/views/window_view.h"
#include "app/workbench/missing_ops.h"

namespace attnscope::gui {
namespace {

class WindowPanel : public Panel {
 public:
  WindowPanel() : Panel("window", "Window") {}

  void draw(Ui& ui) override {
    Workbench& bench = ui.bench;
    const StepTrace* step = bench.step();
    if (step == nullptr) {
      empty_state(ui,
                  bench.snapshot() == nullptr ? "No session yet."
                                              : "The lists of this step are not kept. Run or "
                                                "replay it to see the window.",
                  "step.forward", CaptureLevel::kTables);
      return;
    }
    refresh(bench, *step);
    if (!view_.valid) {
      empty_state(ui, view_.sentence, "layer.forward", CaptureLevel::kTables);
      return;
    }
    sentence(view_.sentence);
    const int layer = bench.cursor().layer;
    const std::string missing =
        layer < 0 ? std::string() : missing_ops(bench, layer, {AS_ROLE_ATTENTION});
    if (!missing.empty()) dim("Without weights. " + missing);
    static constexpr const char* kColours[] = {"weight", "block"};
    segmented("colour", &by_block_, kColours, 2);
    ImGui::SameLine(0, px(12));
    static constexpr const char* kHeads[] = {"selected head", "mean of heads"};
    int mean = mean_ ? 1 : 0;
    if (segmented("heads", &mean, kHeads, 2)) mean_ = mean == 1;
    draw_strip(bench);
    draw_reach(bench);
    draw_mask();
    draw_table(bench);
  }

 private:
  // What the view was made from; the snapshot keeps the step alive, so that equal pointers mean
  // equal data.
  struct Key {
    const StepTrace* step = nullptr;
    int layer = -1, head = -2;
    std::int64_t row = -1;
    friend bool operator==(const Key&, const Key&) = default;
  };

  void refresh(const Workbench& bench, const StepTrace& step) {
    const Key key{&step, bench.cursor().layer, mean_ ? -1 : bench.selection().head,
                  bench.selected_row()};
    if (held_ && key == key_) return;
    key_ = key;
    held_ = bench.shared_snapshot();
    ++version_;
    view_ = window_view(*held_->info, step, key.layer, key.row, key.head);
    const bool known = key.row >= 0 && key.row < step.metadata.num_tokens_in_step();
    const std::int64_t position =
        known ? step.metadata.positions[static_cast<std::size_t>(key.row)] : -1;
    reach_ = reach_view(*held_->info, key.layer, position);
    mask_ = block_mask_view(*held_->info, step, key.layer, key.row, key.head);
  }

  // A cell a tile; the row of the selected token is framed.
  void draw_mask() {
    if (!mask_.why_empty.empty()) return;
    dim(mask_.sentence);
    const ImVec2 left = ImGui::GetContentRegionAvail();
    const float room = std::max(left.y - px(130), px(56));
    const float widest = left.x / (2 * static_cast<float>(mask_.across));
    const float side =
        std::clamp(std::min(room / static_cast<float>(mask_.blocks), widest), px(2), px(14));
    const ImVec2 at = ImGui::GetCursorScreenPos();
    const auto across = static_cast<float>(mask_.across), blocks = static_cast<float>(mask_.blocks);
    // A tile has twice as many keys as queries.
    ImGui::InvisibleButton("##mask", ImVec2(2 * side * across, side * blocks));
    const bool over = ImGui::IsItemHovered();
    ImDrawList* list = ImGui::GetWindowDrawList();
    const Theme& t = theme();
    static constexpr const char* kStates[] = {"empty: left out", "partial: asked key by key",
                                              "full: not asked"};
    for (std::int64_t b = 0; b < mask_.blocks; ++b) {
      for (std::int64_t k = 0; k < mask_.across; ++k) {
        const as_mask_tile state = mask_.tiles[static_cast<std::size_t>(b * mask_.across + k)];
        const ImVec2 min(at.x + 2 * side * static_cast<float>(k),
                         at.y + side * static_cast<float>(b));
        const ImVec2 max(min.x + 2 * side - px(1), min.y + side - px(1));
        list->AddRectFilled(min, max,
                            state == AS_TILE_EMPTY  ? t.raised
                            : state == AS_TILE_FULL ? t.window_part
                                                    : t.accent);
        if (over && ImGui::IsMouseHoveringRect(min, max)) {
          tooltip(fmt::format("queries {}-{}, keys {}-{}: {}", b * AS_MASK_QUERIES,
                              (b + 1) * AS_MASK_QUERIES - 1, k * AS_MASK_KEYS,
                              (k + 1) * AS_MASK_KEYS - 1, kStates[state]));
        }
      }
    }
    if (mask_.own_block < 0) return;
    const float top = at.y + side * static_cast<float>(mask_.own_block);
    list->AddRect({at.x - px(1), top - px(1)}, {at.x + 2 * side * across, top + side}, t.text);
  }

  // A line a layer over the tokens up to this one; what it reaches is filled.
  void draw_reach(Workbench& bench) {
    if (reach_.rows.empty()) return;
    dim(reach_.sentence);
    const auto count = static_cast<float>(reach_.rows.size());
    // As tall as the table of slots leaves room for.
    const float room = ImGui::GetContentRegionAvail().y - px(130);
    const float line = std::clamp(std::min(room, px(78)) / count, px(3), px(13));
    const bool labels = line >= px(11);
    const float label = labels ? px(92) : 0, numbers_width = labels ? px(46) : 0;
    const ImVec2 at = ImGui::GetCursorScreenPos();
    const float width = std::max(ImGui::GetContentRegionAvail().x - label - numbers_width, px(40));
    ImGui::InvisibleButton("##reach", ImVec2(label + width + numbers_width, line * count));
    const bool over = ImGui::IsItemHovered();
    const bool click = ImGui::IsItemClicked() || picked_for_menu();
    ImDrawList* list = ImGui::GetWindowDrawList();
    const Theme& t = theme();
    ImGui::PushFont(nullptr, ImGui::GetStyle().FontSizeBase * 0.72f);
    const ReachRow* under_mouse = nullptr;
    for (std::size_t i = 0; i < reach_.rows.size(); ++i) {
      const ReachRow& row = reach_.rows[i];
      const float y = at.y + line * static_cast<float>(i), end = y + line - px(1);
      const float unit = width / static_cast<float>(reach_.position + 1);
      const float left = at.x + label, from = left + unit * static_cast<float>(row.first);
      const bool own = static_cast<int>(i) == reach_.selected;
      list->AddRectFilled({left, y}, {left + width, end}, t.raised);
      list->AddRectFilled({std::min(from, left + width - px(2)), y}, {left + width, end},
                          own ? t.accent : t.window_part);
      if (labels) {
        const std::string name = fmt::format("layer {} {}", row.layer, row.type);
        const std::string reached = format_count(reach_.position - row.first + 1);
        list->AddText({at.x, y}, own ? t.text : t.text_dim, name.c_str());
        list->AddText({left + width + px(6), y}, own ? t.text : t.text_dim, reached.c_str());
      }
      if (over && ImGui::IsMouseHoveringRect({at.x, y}, {left + width + numbers_width, y + line})) {
        under_mouse = &row;
      }
    }
    ImGui::PopFont();
    if (under_mouse == nullptr) return;
    tooltip(fmt::format("through layer {} ({}): positions {}-{}, {}", under_mouse->layer,
                        under_mouse->type, under_mouse->first, reach_.position,
                        plural(reach_.position - under_mouse->first + 1, "token", "tokens")));
    if (click) bench.select_token(bench.selection().request, under_mouse->first);
  }

  void draw_strip(Workbench& bench) {
    const float height = px(26);
    const float width = ImGui::GetContentRegionAvail().x;
    // Every slot, with one cell at the left for the entries that are null.
    const auto cells = static_cast<int>(view_.window) + (view_.nulls_before > 0 ? 2 : 0);
    const int lines = std::max(
        1, static_cast<int>(std::ceil(static_cast<float>(cells) * px(11) / std::max(width, 1.0f))));
    const int columns = (cells + lines - 1) / lines;
    const float side = width / static_cast<float>(columns);
    const ImVec2 at = ImGui::GetCursorScreenPos();
    ImGui::InvisibleButton(
        "##slots", ImVec2(std::max(width, 1.0f), static_cast<float>(lines) * (height + px(3))));
    const bool over = ImGui::IsItemHovered();
    const bool click = ImGui::IsItemClicked() || picked_for_menu();
    ImDrawList* list = ImGui::GetWindowDrawList();
    ImGui::PushFont(numbers(), ImGui::GetStyle().FontSizeBase * 0.8f);
    int cell = 0;
    const auto place = [&](int span, ImVec2& min, ImVec2& max) {
      const int line = cell / columns;
      min = ImVec2(at.x + side * static_cast<float>(cell % columns),
                   at.y + (height + px(3)) * static_cast<float>(line));
      max = ImVec2(min.x + side * static_cast<float>(span) - 1, min.y + height);
      cell += span;
    };
    ImVec2 min, max;
    bool over_nulls = false;
    const WindowSlot* under_mouse = nullptr;
    if (view_.nulls_before > 0) {
      place(2, min, max);
      draw_hatch(list, min, max);
      over_nulls = over && ImGui::IsMouseHoveringRect(min, max);
    }
    for (const WindowSlot& slot : view_.slots) {
      place(1, min, max);
      if (slot.slot < 0 && in_cache()) {
        draw_hatch(list, min, max);
      } else {
        const float unit =
            view_.largest_weight > 0 ? static_cast<float>(slot.weight / view_.largest_weight) : 0;
        const bool by_block = in_cache() && (by_block_ == 1 || !slot.has_weight);
        const ImU32 colour = by_block ? owner_colour(slot.block % 8) : magnitude_colour(unit);
        list->AddRectFilled(min, max, colour);
        std::string letter = format_token(slot.token);
        if (letter.size() == 3) letter = letter.substr(1, 1);
        draw_cell_text(list, min, max, text_on(colour), letter);
      }
      const bool own = &slot - view_.slots.data() == view_.own;
      if (slot.position == bench.selection().position || (own && bench.selection().position < 0)) {
        draw_selected(list, min, max);
      } else if (own) {
        list->AddRectFilled(ImVec2(min.x, max.y - px(3)), max, theme().accent);
      }
      if (over && ImGui::IsMouseHoveringRect(min, max)) {
        draw_hovered(list, min, max);
        under_mouse = &slot;
      }
    }
    for (auto i = static_cast<std::int64_t>(view_.slots.size()); i < view_.window; ++i) {
      place(1, min, max);
      draw_free(list, min, max);
    }
    ImGui::PopFont();
    // In the size of all tooltips.
    if (over_nulls) {
      const bool one = view_.nulls_before == 1;
      tooltip(fmt::format("{} before the {} {} null; nothing reads {}",
                          plural(view_.nulls_before, "table entry", "table entries"),
                          view_.begin >= 0 ? "chunk" : "window", one ? "is" : "are",
                          one ? "it" : "them"));
    } else if (under_mouse != nullptr) {
      tooltip(slot_text(*under_mouse));
      if (click) select(bench, *under_mouse);
    }
    if (!view_.left.empty()) dim(view_.left);
  }

  // Models without caches have no blocks.
  bool in_cache() const { return view_.group >= 0; }

  std::string slot_text(const WindowSlot& slot) const {
    std::string text = fmt::format("position {}  {}", slot.position, format_token(slot.token));
    if (in_cache()) {
      text += fmt::format("\nblock {} row {}, slot {}", slot.block, slot.row, slot.slot);
    }
    if (slot.has_weight) {
      text += fmt::format("\nlogit {}, weight {}", format_number(slot.logit),
                          format_number(slot.weight));
    }
    return text;
  }

  void draw_table(Workbench& bench) {
    table_.begin(version_);
    if (table_.stale()) {
      table_.columns({{"position", true},
                      {"token"},
                      {"block:row", false, 1.2f},
                      {"slot", true},
                      {"logit", true, 1, "before the softmax"},
                      {"weight", true, 1, "share of the attention, the sink included"}});
      for (const WindowSlot& slot : view_.slots) {
        const auto number = [](double value, const std::string& text, bool has) {
          TableCell cell;
          cell.text = has ? text : "–";
          cell.number = value;
          cell.has_number = has;
          if (has) cell.exact = format_exact(value);
          return cell;
        };
        TableCell token, where;
        token.text = format_token(slot.token);
        where.text = in_cache() ? fmt::format("{}:{}", slot.block, slot.row) : "–";
        table_.row(
            {number(static_cast<double>(slot.position), fmt::format("{}", slot.position), true),
             token, where,
             number(static_cast<double>(slot.slot), fmt::format("{}", slot.slot), in_cache()),
             number(slot.logit, format_number(slot.logit), slot.has_weight),
             number(slot.weight, format_number(slot.weight), slot.has_weight)},
            slot.position);
      }
    }
    const ImVec2 room = ImGui::GetContentRegionAvail();
    if (room.y < px(60)) return;
    if (auto key =
            table_.draw("##window", ImVec2(0, room.y - px(30)), bench.selection().position)) {
      for (const WindowSlot& slot : view_.slots) {
        if (slot.position == *key) select(bench, slot);
      }
    }
  }

  void select(Workbench& bench, const WindowSlot& slot) const {
    Selection selection = bench.selection();
    selection.position = slot.position;
    selection.block = slot.block;
    selection.row = slot.row;
    selection.group = view_.group;
    bench.select(selection);
  }

  WindowView view_;
  ReachView reach_;
  BlockMaskView mask_;
  DataTable table_;
  Key key_;
  std::shared_ptr<const Snapshot> held_;
  std::uint64_t version_ = 0;  // of view_
  int by_block_ = 0;
  bool mean_ = false;
};

}  // namespace

std::unique_ptr<Panel> make_window_panel() { return std::make_unique<WindowPanel>(); }

}  // namespace attnscope::gui
