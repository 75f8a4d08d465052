// Why: what every row, entry and the sink put into one element of an attention output, what was
// left out and by how much, who wrote the selected slot, which tokens were pooled into the selected
// entry; and what would have come out if one thing about the op under the cursor had been
// different.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>

#include "app/gui/command_group.h"
#include "app/gui/data_table.h"
#include "app/gui/legend_row.h"
#include "app/gui/tables_state.h"
#include "app/gui/theme.h"
#include "app/gui/widgets.h"
#include "app/panels/panels.h"
#include "app/reports/what_if_run.h"
#include "app/text/format.h"
#include "app/views/boundary_view.h"
#include "app/views/linkage.h"
#include "app/views/op_order.h"
#include "app/views/score_terms.h"
#include "app/views/sink_view.h"
#include "app/views/why_view.h"
#include "app/workbench/capture_scan.h"
#include "app/workbench/missing_ops.h"
#include "app/workbench/pooled_tokens.h"

namespace attnscope::gui {
namespace {

TableCell number(double value) {
  if (std::isnan(value)) return {"–", theme().text_dim};
  return {format_number(value), 0, value, true, format_exact(value)};
}

TableCell whole(std::int64_t value) {
  if (value < 0) return {"–", theme().text_dim};
  return {std::to_string(value), 0, static_cast<double>(value), true};
}

class WhyPanel : public Panel {
 public:
  WhyPanel() : Panel("why", "Why") { table_.least_width = 760; }

  void register_commands(Ui& ui) override {
    Workbench& bench = ui.bench;
    const CommandGroup group(
        ui.commands, "Why", [&bench] { return bench.snapshot() != nullptr && !bench.capture(); },
        "no session is open");
    group.add("why.what_if", "What if",
              "Runs the op under the cursor once more with one thing changed at a time, from the "
              "scenario's start and beside the session; Escape stops it.",
              "", [this, &ui](std::string_view) -> Result<void> {
                if (auto ok = ui.bench.ask_what_if(); !ok) return ok;
                show_part(kWhatIf);
                return ui.commands.run("panel.why");
              });
    group.add(
        "why.part", "Part of Why ..", "What the panel shows of the op.", "",
        [this](std::string_view value) -> Result<void> {
          for (int i = 0; i < kPartCount; ++i) {
            if (value != kPartNames[i]) continue;
            if (view_.layer >= 0 && !has(i)) {
              return usage_error(
                  fmt::format("why.part: layer {} has no {}", view_.layer, kParts[i]),
                  i == kPooled ? "go to a layer with entries" : "go to a layer that selects");
            }
            show_part(i);
            return {};
          }
          return usage_error(fmt::format("why.part: '{}' is unknown", value.substr(0, 40)),
                             "allowed: contributions, left_out, writes, pooled, score, what_if");
        },
        "contributions, left_out, writes, pooled, score or what_if");
  }

  bool animating() const override {
    return rows_scan_.reading() || (part_ == kWrites && scan_.reading());
  }

  void draw(Ui& ui) override {
    Workbench& bench = ui.bench;
    const StepTrace* step =
        kept_step(ui, "The tensors of this step are not kept. Run or replay it to see them.");
    if (step == nullptr) return;
    refresh(bench, *step);
    if (const Capture* capture = bench.capture(); capture != nullptr && part_ == kWrites) {
      read_writes(*capture);
    }
    // What another layer has stays chosen until the cursor is there again.
    const int shown = has(part_) ? part_ : 0;
    if (shown != shown_) ++version_;
    shown_ = shown;
    const bool what_if = shown_ == kWhatIf;
    if (what_if) {
      head_of_what_if(ui);
    } else if (view_.why_empty.empty()) {
      sentence(view_.sentence, view_.verdict);
      if (!note_.empty()) dim(note_);
      if (rows_scan_.reading()) dim(rows_scan_.rest());
    }
    draw_parts();
    if (shown_ != kWhatIf && !view_.why_empty.empty()) {
      const std::string missing = missing_ops(bench, key_.layer, {AS_ROLE_ATTENTION});
      if (!missing.empty()) return empty_state(ui, missing, "", CaptureLevel::kSummary);
      empty_state(ui, view_.why_empty, "layer.forward", CaptureLevel::kSummary);
      return;
    }
    if (shown_ == kWhatIf && what_if_ == nullptr) return;
    if (shown_ == kPooled || shown_ == kScore) ask_pooled(bench, *step);
    if (shown_ == kPooled) draw_boundaries();
    table_.begin(version_);
    if (table_.stale()) fill();
    if (shown_ == kWrites && !known_writes_.empty()) dim(known_writes_);
    if (empty_part_ != nullptr) {
      dim(empty_part_);
      return;
    }
    if (shown_ == kScore) sentence(terms_.sentence);
    const float rest = ImGui::GetContentRegionAvail().y - ImGui::GetFrameHeightWithSpacing();
    const ImVec2 size(0, std::max(rest, px(60)));
    const auto key = table_.draw("##why", size, -1, false);
    if (key && shown_ < kPooled) select(bench, *key);
  }

 private:
  static constexpr int kLeftOut = 1, kWrites = 2, kPooled = 3, kScore = 4, kWhatIf = 5,
                       kPartCount = 6;
  static constexpr const char* kPartNames[kPartCount] = {"contributions", "left_out", "writes",
                                                         "pooled",        "score",    "what_if"};

  static constexpr const char* kParts[kPartCount] = {"contributions",      "not selected",
                                                     "writes of the slot", "pooled tokens",
                                                     "score terms",        "what if"};

  // Whether the layer that is shown has such a part.
  bool has(int part) const {
    if (part == kLeftOut || part == kScore) return view_.selects;
    return part != kPooled || view_.has_entries;
  }

  void draw_parts() {
    std::vector<const char*> names;
    std::vector<int> parts;
    int current = 0;
    for (int i = 0; i < kPartCount; ++i) {
      if (!has(i)) continue;
      if (i == shown_) current = static_cast<int>(parts.size());
      names.push_back(kParts[i]);
      parts.push_back(i);
    }
    if (segmented("part", &current, names.data(), static_cast<int>(names.size()))) {
      show_part(parts[static_cast<std::size_t>(current)]);
    }
  }

  void show_part(int part) {
    part_ = shown_ = part;
    ++version_;
  }

  void head_of_what_if(Ui& ui) {
    if (const auto asking = ui.bench.asking()) {
      const bool begun =
          what_if_ != nullptr && !what_if_->whole && what_if_->place == asking->second;
      sentence(fmt::format("{}{}: {:.0f} %.",
                           begun ? "Rows as they were before quantisation, from "
                                   "the first step to "
                                 : "On the way to ",
                           format_place(asking->second), 100 * asking->first));
      if (!begun) return;
    }
    if (what_if_ == nullptr) {
      sentence("What would have come out if one thing had been different?");
    } else {
      const bool right = what_if_->changes.front().right();
      sentence(fmt::format("{}, lane {}: {}", format_place(what_if_->place), what_if_->lane,
                           what_if_->sentence),
               right ? Verdict::kRounding : Verdict::kWrong);
      const RowAlone& alone = what_if_->alone;
      if (alone.possible && alone.elements > 0) {
        dim(alone.differing == 0
                ? fmt::format("Token {} alone: the same bits as in its batch.", alone.token)
                : fmt::format("Token {} alone: {} of {} elements differ from those in its batch.",
                              alone.token, alone.differing, alone.elements));
      }
    }
    const Place& at = ui.bench.cursor();
    if (what_if_ == nullptr || what_if_->place != at) {
      if (ImGui::Button(fmt::format("Ask about {}###ask", format_place(at)).c_str())) {
        ui.run("why.what_if");
      }
    }
  }

  static TableCell share(const std::optional<Held>& held) {
    if (!held) return {"–", theme().text_dim};
    const double percent = 100 * held->budget_used;
    return {fmt::format("{:.3g} %", percent), held->right() ? ImU32{0} : theme().bad, percent,
            true};
  }

  // The change that removes the error stands out.
  void fill_what_if() {
    table_.columns(
        {{"change", false, 1.6f},
         {"what is changed", false, 3},
         {"ref.sim", true, 0.8f, "Against ref.sim with the same change, % of the tolerance."},
         {"ref.exact", true, 0.8f, "Against ref.exact on rows never quantised."},
         {"history", true, 0.8f, "1-cos from ref.sim on its own history."},
         {"error", false, 1.6f}});
    const bool wrong = !what_if_->changes.front().right();
    for (std::size_t i = 0; i < what_if_->changes.size(); ++i) {
      const WhatIf& w = what_if_->changes[i];
      const bool cures = wrong && w.introduced && w.right();
      std::string said = cures ? "goes away" : w.introduced && !w.right() ? "stays" : "";
      if (i == 0) said = wrong ? "wrong" : "none";
      if (!w.error.empty()) said = w.error;
      table_.row({{w.change, cures ? theme().good : 0},
                  {w.sentence},
                  share(w.introduced),
                  share(w.from_exact),
                  number(w.from_history.value_or(std::nan(""))),
                  {said, cures                                ? theme().good
                         : said == "stays" || said == "wrong" ? theme().bad
                                                              : 0}},
                 static_cast<std::int64_t>(i));
    }
  }

  // The snapshot keeps the steps alive, so that equal pointers mean equal data.
  struct Key {
    const StepTrace* step = nullptr;
    const OpTrace* attention = nullptr;
    int layer = -1;
    std::int64_t row = -1;
    Selection selection;
    std::size_t traces = 0;
    friend bool operator==(const Key&, const Key&) = default;
  };

  void refresh(const Workbench& bench, const StepTrace& step) {
    if (what_if_ != bench.what_if()) {
      what_if_ = bench.what_if();
      ++version_;
    }
    const Snapshot& snapshot = *bench.snapshot();
    const SinkLayer shown = sink_layer(*snapshot.info, step, bench.cursor());
    const bool more = bench.capture() != nullptr && read_rows(bench, shown.layer, step.step);
    const Key key{&step,
                  step.find_role(shown.layer, AS_ROLE_ATTENTION),
                  shown.layer,
                  bench.selected_row(),
                  bench.selection(),
                  snapshot.traces.size()};
    const bool same = held_ && key == key_;
    if (same && !more) return;
    key_ = key;
    held_ = bench.shared_snapshot();
    ++version_;
    note_ = shown.note;
    const Selection& s = key.selection;
    view_ = why_view({*held_->info, step, shown.layer, key.row, s.head, s.dim,
                      bench.capture() != nullptr ? &rows_ : nullptr, held_->trace(step.step - 1)});
    if (same) return;
    writes_.clear();
    known_writes_.clear();
    scan_.restart();
    slot_ = -1;
    if (s.block < 0 || s.row < 0 || s.group < 0) return;
    for (const CacheSpec& spec : held_->info->layout.specs) {
      const int layer = held_->info->config.layers[static_cast<std::size_t>(spec.layer)];
      if (spec.group != s.group || layer != shown.layer) continue;
      slot_ = std::int64_t{s.block} * spec.rows_per_block + s.row;
      if (bench.capture() == nullptr) writes_ = writes_of_slot(*held_, layer, s.group, slot_);
      break;
    }
  }

  // What steps of a capture up to the cursor's wrote: those at hand are not all. True: it changed.
  bool read_rows(const Workbench& bench, int layer, std::int64_t step) {
    const std::shared_ptr<const SessionInfo>& info = bench.snapshot()->info;
    const int place = layer_index(*info, layer);
    if (place < 0) return false;
    const RowsOf of{info, layer, bench.selected_request(), step};
    const bool on = rows_of_ && rows_of_->info == of.info && rows_of_->layer == of.layer &&
                    rows_of_->request == of.request && rows_of_->step <= of.step;
    if (on && rows_of_->step == of.step && !rows_scan_.reading()) return false;
    if (!on) {
      rows_ = WrittenRows(layer, tokens_per_entry(*info, place), of.request);
      rows_scan_.restart();
    }
    rows_of_ = of;
    rows_scan_.read_on(
        *bench.capture(), [&](const StepTrace& read) { rows_.add(read); }, step);
    return true;
  }

  // In a capture all steps are read: those at hand around the cursor are not all that wrote.
  void read_writes(const Capture& capture) {
    if (slot_ < 0 || (!known_writes_.empty() && !scan_.reading())) return;
    scan_.read_on(capture, [&](const StepTrace& step) {
      add_recorded_writes(step, view_.layer, key_.selection.group, slot_, writes_);
    });
    known_writes_ = fmt::format("In {}.{}", scan_.steps(), scan_.rest());
    ++version_;
  }

  // Tokens an entry of the layer that is shown.
  int ratio() const {
    const int layer = layer_index(*held_->info, view_.layer);
    return layer < 0 ? 0 : tokens_per_entry(*held_->info, layer);
  }
  // The selected entry, where it is one of the request and of layers like the one that is shown.
  std::int64_t picked() const { return key_.selection.entry_of(view_.request, ratio()); }

  // Of the selected entry, in the channel of the selected dim.
  void ask_pooled(Workbench& bench, const StepTrace& step) {
    const std::int64_t entry = picked();
    bench.request_pooled({view_.layer, view_.request, entry, key_.selection.dim, false});
    auto now = entry >= 0 ? bench.pooled() : nullptr;
    if (now == pooled_ && asked_of_ == &step && asked_row_ == key_.row && asked_entry_ == entry) {
      return;
    }
    asked_entry_ = entry;
    asked_of_ = &step;
    asked_row_ = key_.row;
    pooled_ = std::move(now);
    boundaries_ =
        boundary_view(*held_->info, step, view_.layer, view_.request, view_.position, entry);
    terms_ = {};
    if (pooled_ != nullptr && !pooled_->index_key.empty()) {
      terms_ = score_terms(step, view_.layer, key_.row, entry, pooled_->record, pooled_->index_key);
    }
    ++version_;
  }

  // Cells of tokens, the entry's own and the older half coloured, a mark where one is completed.
  void draw_boundaries() const {
    if (!boundaries_.why_empty.empty()) return dim(boundaries_.why_empty);
    sentence(boundaries_.sentence);
    const Theme& t = theme();
    LegendRow row;
    row.swatch(t.compressed_part, "its own window");
    row.swatch(t.window_part, "the window before");
    row.swatch(t.grid, "computed");
    row.swatch(t.accent, "completes an entry in this step");
    const ImVec2 at = ImGui::GetCursorScreenPos();
    const float width = ImGui::GetContentRegionAvail().x;
    const float line = ImGui::GetTextLineHeight(), cell_height = std::max(px(18), line + px(4));
    ImGui::InvisibleButton("##boundaries", {width, cell_height + line + px(10)});
    const auto count = static_cast<float>(boundaries_.cells.size());
    const float step = std::min(width / count, px(48));
    ImDrawList* list = ImGui::GetWindowDrawList();
    for (std::size_t i = 0; i < boundaries_.cells.size(); ++i) {
      const BoundaryCell& cell = boundaries_.cells[i];
      const ImVec2 min(at.x + static_cast<float>(i) * step, at.y);
      const ImVec2 max(min.x + step - px(1), at.y + cell_height);
      const ImU32 fill = cell.own ? t.compressed_part : cell.older ? t.window_part : t.grid;
      if (cell.computed) list->AddRectFilled(min, max, fill);
      list->AddRect(min, max, cell.in_step ? t.accent : t.border);
      const std::string name = std::to_string(cell.first);
      draw_cell_text(list, min, max, cell.computed ? text_on(fill) : t.text_dim, name);
      if (boundaries_.token >= cell.first && boundaries_.token < cell.end) {
        draw_selected(list, min, max);
      }
      if (cell.completes >= 0) {
        const ImU32 mark = cell.slot >= 0 ? t.accent : cell.computed ? t.text : t.text_faint;
        const ImVec2 tip(max.x, max.y + px(1));
        list->AddTriangleFilled({tip.x - px(4), tip.y + px(6)}, {tip.x + px(4), tip.y + px(6)}, tip,
                                mark);
        const std::string entry = fmt::format("e{}", cell.completes);
        list->AddText({max.x - ImGui::CalcTextSize(entry.c_str()).x, max.y + px(7)}, mark,
                      entry.c_str());
      }
      if (ImGui::IsItemHovered() && ImGui::IsMouseHoveringRect(min, max)) {
        std::string text = cell.end - cell.first == 1
                               ? fmt::format("token {}", cell.first)
                               : fmt::format("tokens {}-{}", cell.first, cell.end - 1);
        if (!cell.computed) text += ", still to come";
        if (cell.completes >= 0) {
          text += fmt::format("\ncompletes entry {}", cell.completes);
          if (cell.slot >= 0) text += fmt::format(", written to slot {} in this step", cell.slot);
        }
        tooltip(text);
      }
    }
  }

  void fill_terms() {
    if (picked() < 0) {
      empty_part_ = "Select an entry: a line of those not selected, or a place of Top-k.";
    } else if (pooled_ == nullptr) {
      empty_part_ = "The session is asked for the entry's key.";
    } else if (pooled_->index_key.empty()) {
      empty_part_ = pooled_->why_empty.empty()
                        ? "This layer selects no entries: it has no index scores."
                        : pooled_->why_empty.c_str();
    } else if (!terms_.why_empty.empty()) {
      empty_part_ = terms_.why_empty.c_str();
    }
    table_.columns(
        {{"head", true, 0.5f, "Of the indexer."},
         {"q.k", true, 1, "Dot product of query and key, before the FP8 scales."},
         {"ReLU", true, 1, "The same, 0 where it is negative."},
         {"raw weight", true, 1, "Of the head, before scales."},
         {"q scale", true, 0.8f, "Of the FP8 query, folded into the weight; a power of two."},
         {"weight", true, 1, "As the op takes it: raw x q scale / sqrt(d J)."},
         {"key scale", true, 0.8f, "Of the FP8 key."},
         {"term", true, 1, "Weight x ReLU x key scale; they sum to the score."}});
    for (const ScoreTerm& term : terms_.heads) {
      table_.row(
          {whole(term.head), number(term.dot), number(term.relu), number(term.raw),
           number(term.q_scale), number(term.weight), number(terms_.key_scale), number(term.term)},
          term.head);
    }
  }

  void fill_pooled() {
    if (pooled_ == nullptr) {
      empty_part_ = picked() < 0
                        ? "Select an entry: a line of the contributions or of those not selected."
                        : "The session is asked for the entry's tokens.";
    } else if (!pooled_->why_empty.empty()) {
      empty_part_ = pooled_->why_empty.c_str();
    }
    table_.columns(
        {{"position", true},
         {"half", false, 1, "Of an entry that pools two windows: the one before, or its own."},
         {"gate", true, 1, "Of the channel of the selected dim, before the position bias."},
         {"ape", true, 1, "The bias of the token's place in its window, of this half."},
         {"weight", true, 1, "Softmax of gate + ape over these tokens; they sum to 1."},
         {"mean weight", true, 1, "Over all channels."},
         {"value", true, 1, "Of this channel, before pooling."},
         {"part", true, 1, "Weight x value; they sum to the pooled channel, before its norm."}});
    if (pooled_ == nullptr) return;
    for (const PooledToken& token : pooled_->tokens) {
      table_.row({whole(token.position),
                  {token.older_half ? "older" : "own"},
                  number(token.score - token.ape),
                  number(token.ape),
                  number(token.weight),
                  number(token.mean_weight),
                  number(token.value),
                  number(token.weight * token.value)},
                 token.position);
    }
  }

  void fill() {
    empty_part_ = nullptr;
    if (shown_ == 0) return fill_contributions();
    if (shown_ == kLeftOut) return fill_left_out();
    if (shown_ == kPooled) return fill_pooled();
    if (shown_ == kScore) return fill_terms();
    if (shown_ == kWhatIf) return fill_what_if();
    fill_writes();
  }

  void fill_contributions() {
    table_.columns({{"kind", false, 0.7f},
                    {view_.has_entries ? "position / entry" : "position", true},
                    {"block:row", false, 0.9f},
                    {"slot", true, 0.8f},
                    {"value", true, 0.9f, "Of this dim, as the cache row holds it."},
                    {"logit", true, 0.9f, "Before the softmax."},
                    {"weight", true, 0.9f, "Share of the attention, the sink included."},
                    {"partial", true, 0.9f, "Weight x value; they sum to the output."},
                    {"written", true, 0.7f, "The step that wrote the row."},
                    {"bytes", false, 2}});
    for (std::size_t i = 0; i < view_.rows.size(); ++i) {
      const WhyRow& row = view_.rows[i];
      const bool sink = row.kind == WhyRow::Kind::kSink;
      const char* kind = sink                               ? "sink"
                         : row.kind == WhyRow::Kind::kEntry ? "entry"
                         : view_.windowed                   ? "window"
                                                            : "row";
      table_.row({{kind},
                  whole(row.at),
                  {sink ? "–" : fmt::format("{}:{}", row.block, row.row)},
                  whole(row.slot),
                  number(row.value),
                  number(row.logit),
                  number(row.weight),
                  number(row.partial),
                  whole(row.written),
                  {row.bytes}},
                 static_cast<std::int64_t>(i));
    }
  }

  void fill_left_out() {
    if (view_.left_out.empty()) empty_part_ = "Every entry that the token sees was read.";
    table_.columns({{"entry", true},
                    {"rank", true, 1, "Among all that the token sees, 0 = best."},
                    {"score", true},
                    {"below", true, 1, "How far its score is below the lowest selected one."},
                    {"last in", true, 1, "The entry that has the last place of those selected."},
                    {"pushed out by", false, 2,
                     "Of an entry that the request's last token selected: those that were not "
                     "selected then and are now."}});
    for (const WhyRow& row : view_.left_out) {
      std::string by = row.was_in ? "" : "–";
      constexpr std::size_t kNamed = 4;
      for (std::size_t i = 0; i < std::min(row.pushed_by.size(), kNamed); ++i) {
        by += fmt::format("{}{}", i > 0 ? ", " : "", row.pushed_by[i]);
      }
      if (row.pushed_by.size() > kNamed) {
        by += fmt::format(" and {} more", row.pushed_by.size() - kNamed);
      }
      table_.row({whole(row.at),
                  whole(row.rank),
                  number(row.score),
                  number(row.margin),
                  whole(row.last_in),
                  {by}},
                 row.at);
    }
  }

  void fill_writes() {
    if (slot_ < 0) {
      empty_part_ = "Select a row of a block of this layer: a line of the contributions does it.";
    } else if (writes_.empty()) {
      empty_part_ = "No step wrote this slot in this layer.";
    }
    table_.columns(
        {{"step", true}, {"op", false, 2}, {"request", false, 1.5f}, {"position", true}});
    for (std::size_t i = 0; i < writes_.size(); ++i) {
      const SlotWrite& write = writes_[i];
      table_.row({whole(write.step),
                  {as_op_find(write.op)->name},
                  {request_name(*held_->info, write.request)},
                  whole(write.position)},
                 static_cast<std::int64_t>(i));
    }
  }

  void select(Workbench& bench, std::int64_t key) const {
    if (shown_ == kWrites) {
      const SlotWrite& write = writes_[static_cast<std::size_t>(key)];
      bench.go_to({write.step, view_.layer, write.op});
      return;
    }
    Selection selection = bench.selection();
    if (shown_ == kLeftOut) {
      selection.pick_entry(view_.request, ratio(), key);
    } else {
      const WhyRow& row = view_.rows[static_cast<std::size_t>(key)];
      if (row.kind == WhyRow::Kind::kSink) return;
      const auto& layers = held_->info->config.layers;
      const auto running = std::ranges::find(layers, view_.layer) - layers.begin();
      const bool entry = row.kind == WhyRow::Kind::kEntry;
      const CacheSpec* spec = entry ? entries_of(held_->info->layout, static_cast<int>(running))
                                    : value_rows(held_->info->layout, static_cast<int>(running));
      selection.block = row.block;
      selection.row = row.row;
      selection.group = spec->group;
      if (entry) selection.pick_entry(view_.request, ratio(), row.at);
    }
    bench.select(selection);
  }

  std::shared_ptr<const WhatIfOf> what_if_;  // the last one that was asked
  WhyView view_;
  std::vector<SlotWrite> writes_;
  std::string known_writes_;  // of a capture: the steps that they are of
  struct RowsOf {
    std::shared_ptr<const SessionInfo> info;
    int layer = -1;
    std::int32_t request = -1;
    std::int64_t step = -1;
  };
  std::optional<RowsOf> rows_of_;  // what rows_ are of, in a capture
  WrittenRows rows_;
  CaptureScan rows_scan_;
  CaptureScan scan_;
  std::int64_t slot_ = -1;
  std::shared_ptr<const PooledTokens> pooled_;
  const StepTrace* asked_of_ = nullptr;  // what boundaries and terms are of
  std::int64_t asked_row_ = -1, asked_entry_ = -1;
  BoundaryView boundaries_;
  ScoreTerms terms_;
  std::string note_;
  DataTable table_;
  Key key_;
  std::shared_ptr<const Snapshot> held_;
  std::uint64_t version_ = 0;  // of view_ and shown_
  int part_ = 0;               // chosen
  int shown_ = 0;              // of the parts that the layer has
  const char* empty_part_ = nullptr;
};

}  // namespace

std::unique_ptr<Panel> make_why_panel() { return std::make_unique<WhyPanel>(); }

}  // namespace attnscope::gui
