// The block manager from inside: the life of the selected block, the free list, the prefix map, the
// blocks that all requests share, requests with hits and preemptions, the pool's use over time,
// dead entries of the ops' tables, the slab with its pages.
#include <fmt/format.h>

#include <algorithm>

#include "app/gui/cache_stream.h"
#include "app/gui/colour.h"
#include "app/gui/data_table.h"
#include "app/gui/legend_row.h"
#include "app/gui/slab_map.h"
#include "app/gui/tables_state.h"
#include "app/gui/theme.h"
#include "app/gui/widgets.h"
#include "app/panels/panels.h"
#include "app/text/format.h"
#include "app/views/cache_view.h"
#include "app/views/common_prefix_view.h"
#include "app/views/pool_view.h"
#include "app/workbench/capture_scan.h"

namespace attnscope::gui {
namespace {

enum CacheTab {
  kLife,
  kFree,
  kPrefixes,
  kCommon,
  kRequests,
  kUsage,
  kDead,
  kChecks,
  kStream,
  kSlab,
  kCacheTabCount
};
constexpr const char* kCacheTabs[] = {"Life",  "Free", "Prefixes", "Common", "Requests",
                                      "Usage", "Dead", "Checks",   "Stream", "Slab"};
constexpr const char* kCacheTabIds[] = {"life",  "free", "prefixes", "common", "requests",
                                        "usage", "dead", "checks",   "stream", "slab"};
constexpr const char* kCacheTabIdList =
    "life, free, prefixes, common, requests, usage, dead, checks, stream, slab";

class CachePanel : public Panel {
 public:
  CachePanel() : Panel("cache", "Cache") {}
  bool scrolls() const override { return false; }
  void register_commands(Ui& ui) override;
  void draw(Ui& ui) override;
  bool animating() const override {
    return stream_.animating() || (tab_ == kLife && scan_.reading());
  }

 private:
  void refresh(Ui& ui, const StepTrace& step);
  bool read_events(const Workbench& bench);
  void fill();
  void draw_tabs(Ui& ui) const;
  static void draw_levels(Ui& ui);
  void draw_usage(Ui& ui);
  void draw_usage_axes(ImVec2 min, ImVec2 size, std::int64_t first, float width) const;
  void draw_why() const;

  int tab_ = 0;
  std::shared_ptr<const Snapshot> held_;
  const StepTrace* step_ = nullptr;
  std::int32_t block_ = -2;
  int shown_ = -1;
  std::uint64_t version_ = 0;
  std::string sentence_, why_;
  UsageView usage_;
  BlockEvents events_;  // of the steps of what is shown
  std::shared_ptr<const SessionInfo> events_of_;
  CaptureScan scan_;  // that they come from, of a capture
  CacheStream stream_;
  SlabMap slab_;
  DataTable table_;
};

void CachePanel::register_commands(Ui& ui) {
  stream_.register_commands(ui);
  ui.commands.add({.id = "cache.tab",
                   .title = "Cache: show ..",
                   .group = "View",
                   .help = "Brings the cache panel to the front, with what it is to show.",
                   .shortcut = {},
                   .argument = kCacheTabIdList,
                   .run = [this, &ui](std::string_view value) -> Result<void> {
                     for (int i = 0; i < kCacheTabCount; ++i) {
                       if (value != kCacheTabIds[i]) continue;
                       tab_ = i;
                       return ui.commands.run("panel.cache");
                     }
                     return usage_error(
                         fmt::format("cache.tab: there is no '{}'", value.substr(0, 40)),
                         std::string("allowed: ") + kCacheTabIdList);
                   },
                   .in_menu = false});
}

void CachePanel::refresh(Ui& ui, const StepTrace& step) {
  const std::int32_t block = ui.bench.selection().block;
  const bool more = tab_ == kLife && read_events(ui.bench);
  const bool same = &step == step_ && held_.get() == ui.bench.snapshot() && shown_ == tab_ &&
                    (block == block_ || tab_ != kLife) && !more;
  block_ = block;
  if (same) return;
  held_ = ui.bench.shared_snapshot();
  step_ = &step;
  shown_ = tab_;
  ++version_;
  fill();
}

// Of all steps whose events are known. Captures of before have them with the tables of each step
// alone, which are read on for a while. True: they changed.
bool CachePanel::read_events(const Workbench& bench) {
  const std::shared_ptr<const Snapshot> now = bench.shared_snapshot();
  const bool other = now->info != events_of_;
  events_of_ = now->info;
  if (other) {
    events_ = {};
    scan_.restart();
  }
  if (bench.capture() == nullptr) {
    if (!other && now == held_ && shown_ == kLife) return false;
    events_ = kept_block_events(now->steps);
    return true;
  }
  const auto without = [](const auto& summary) { return summary->cache_events == nullptr; };
  if (std::ranges::none_of(now->steps, without)) {
    if (other) events_ = kept_block_events(now->steps);
    return other;
  }
  if (!other && !scan_.reading()) return false;
  if (other) events_ = kept_block_events(now->steps);
  scan_.read_on(*bench.capture(), [&](const StepTrace& step) {
    const StepSummary* summary = now->summary(step.step);
    if (summary != nullptr && summary->cache_events == nullptr) {
      add_block_events(step.step, step.cache_events, events_);
    }
  });
  std::ranges::stable_sort(events_.events, {}, [](const auto& event) { return event.first; });
  events_.steps = scan_.steps();
  return true;
}

void CachePanel::fill() {
  const SessionInfo& info = *held_->info;
  why_.clear();
  table_.begin(version_);
  switch (tab_) {
    case kLife: {
      const BlockLife life = block_life(info, *step_, block_, events_);
      sentence_ = life.sentence + scan_.rest();
      table_.columns({{"step", true, 0.5f},
                      {"event", false, 0.7f},
                      {"holders", true, 0.6f, "Requests that hold the block afterwards."},
                      {"stage", false, 0.8f,
                       "Of the allocation: 1 gives back what left the windows, 2 takes over what a "
                       "lookup found, 3 takes new blocks and gives full ones their keys."},
                      {"what", false, 4}});
      for (std::size_t i = 0; i < life.events.size(); ++i) {
        const LifeEvent& e = life.events[i];
        table_.row({whole_cell(e.step),
                    {cache_event_name(e.kind)},
                    whole_cell(e.refs),
                    {allocation_stage_name(e.stage)},
                    {e.text}},
                   static_cast<std::int64_t>(i));
      }
      return;
    }
    case kFree: {
      const FreeListView view = free_list_view(info, *step_);
      sentence_ = view.sentence;
      table_.columns({{"turn", true, 0.5f, "1 is taken next."},
                      {"block", true, 0.6f},
                      {"a lookup still finds in it", false, 4}});
      std::int64_t turn = 0;
      for (const FreeEntry& e : view.entries) {
        table_.row({whole_cell(++turn), block_cell(*step_, e.block), {e.holds}}, e.block);
      }
      return;
    }
    case kPrefixes: {
      const PrefixView view = prefix_view(info, *step_);
      sentence_ = view.sentence;
      table_.columns({{"key", false, 1.2f, "Low half of the prefix's hash."},
                      {"block", true, 0.6f},
                      {"tokens", true, 0.6f, "Length of the prefix that ends here."},
                      {"holders", true, 0.6f},
                      {"holds", false, 2.4f},
                      {"ends with", false, 2}});
      for (const PrefixEntry& e : view.entries) {
        table_.row({{e.hash},
                    block_cell(*step_, e.block),
                    whole_cell(e.tokens),
                    whole_cell(e.refs),
                    {e.holds},
                    {e.text}},
                   e.block);
      }
      return;
    }
    case kCommon: {
      const CommonPrefixView view = common_prefix_view(info, *step_);
      sentence_ = view.sentence;
      table_.columns({{"group", false, 1},
                      {"blocks", true, 0.5f,
                       "At the head of the tables of all requests, num_common_prefix_blocks of the "
                       "scheduler."},
                      {"tokens", true, 0.6f, "Whose rows or entries these blocks hold."},
                      {"last", true, 0.5f, "The last of these blocks."},
                      {"next", true, 0.5f, "The block behind them in one of the tables."},
                      {"ends because", false, 3}});
      for (const CommonPrefix& e : view.groups) {
        table_.row({{e.name},
                    whole_cell(e.blocks),
                    whole_cell(e.tokens),
                    block_cell(*step_, e.last),
                    block_cell(*step_, e.next),
                    {e.why}},
                   e.last >= 0 ? e.last : e.next);
      }
      return;
    }
    case kRequests: {
      const CacheRequestsView view = cache_requests_view(info, *step_);
      sentence_ = view.sentence;
      why_ = view.waiting;
      table_.columns({{"request", false, 1.2f},
                      {"state", false, 0.8f},
                      {"prompt", true, 0.6f},
                      {"computed", true, 0.7f, "Tokens whose rows are in the caches."},
                      {"found", true, 0.6f, "Tokens that its last admission found computed."},
                      {"blocks", true, 0.6f},
                      {"shared", true, 0.6f, "Of its blocks, those that others hold too."},
                      {"null", true, 0.5f, "Entries that have left a window."},
                      {"preempted", true, 0.9f},
                      {"again", true, 0.6f, "Tokens computed again after preemptions."}});
      for (const CacheRequest& r : view.rows) {
        table_.row({{r.name, owner_colour(r.request)},
                    {r.state},
                    whole_cell(r.prompt),
                    whole_cell(r.computed),
                    whole_cell(r.hit),
                    whole_cell(r.blocks),
                    whole_cell(r.shared),
                    whole_cell(r.nulls),
                    whole_cell(r.preemptions),
                    whole_cell(r.recomputed)},
                   r.request);
        if (!r.why.empty()) why_ += (why_.empty() ? "" : "\n") + r.name + ": " + r.why;
      }
      return;
    }
    case kUsage:
      usage_ = usage_view(*held_);
      sentence_ = usage_.sentence;
      return;
    case kDead: {
      const DeadEntriesView view = dead_entries_view(info, *step_);
      sentence_ = view.sentence;
      table_.columns({{"request", false, 1},
                      {"group", false, 1},
                      {"entry", true, 0.5f},
                      {"block", true, 0.5f},
                      {"read", true, 0.5f, "Tokens of the request that read it in this step."},
                      {"the block is now", false, 2.5f}});
      for (const DeadEntry& e : view.entries) {
        table_.row({{info.request_names[static_cast<std::size_t>(e.request)]},
                    {info.layout.groups[static_cast<std::size_t>(e.group)].name},
                    whole_cell(e.index),
                    block_cell(*step_, e.block),
                    whole_cell(e.reads),
                    {e.now}},
                   e.block);
      }
      return;
    }
    default: {
      const ChecksView view = checks_view(*held_);
      sentence_ = view.sentence;
      table_.columns({{"invariant", false, 1.2f}, {"checked", false, 1}, {"what holds", false, 3}});
      for (std::size_t i = 0; i < view.rows.size(); ++i) {
        const CheckedInvariant& row = view.rows[i];
        const bool on = held_->invariants >= row.least;
        const char* when = !on                                      ? "no"
                           : held_->invariants == Invariants::kCall ? "every call"
                           : row.full_walk                          ? "every 1,000 steps"
                                                                    : "every step";
        const bool broken = view.broken == row.name;
        table_.row({{row.name, broken ? verdict_colour(Verdict::kWrong) : 0},
                    {broken ? "broken" : when, on ? 0 : theme().text_faint},
                    {row.holds}},
                   static_cast<std::int64_t>(i));
      }
    }
  }
}

// Blocks at the left, from 0 to all of them; numbers of steps below, as many as there is room for.
// min, size: of the bars, from step index `first` on.
void CachePanel::draw_usage_axes(ImVec2 min, ImVec2 size, std::int64_t first, float width) const {
  const Theme& t = theme();
  ImDrawList* list = ImGui::GetWindowDrawList();
  const float line = ImGui::GetTextLineHeight();
  const std::int64_t total = held_->info->usable_blocks();
  for (const std::int64_t blocks : {std::int64_t{0}, total / 2, total}) {
    const float share = static_cast<float>(blocks) / static_cast<float>(total);
    const float y = std::floor(min.y + size.y * (1 - share));
    const std::string text = format_count(blocks);
    list->AddText({min.x - px(4) - ImGui::CalcTextSize(text.c_str()).x, y - line / 2}, t.text_dim,
                  text.c_str());
    list->AddLine({min.x, y}, {min.x + size.x, y}, t.grid);
  }
  float free_from = min.x;
  for (std::size_t i = to_size(first); i < usage_.steps.size(); ++i) {
    const std::string text = std::to_string(usage_.steps[i]);
    const float wide = ImGui::CalcTextSize(text.c_str()).x;
    const float middle = min.x + (static_cast<float>(i - to_size(first)) + 0.5f) * width;
    const float x = std::max(min.x, middle - wide / 2);
    if (x < free_from || x + wide > min.x + size.x) continue;
    list->AddText({x, min.y + size.y + px(2)}, t.text_dim, text.c_str());
    free_from = x + wide + px(8);
  }
}

// One bar a step: held at the bottom, then free and findable, then free and empty.
void CachePanel::draw_usage(Ui& ui) {
  const Theme& t = theme();
  const ImU32 colours[] = {t.owners[0], t.owners[1], t.grid};
  LegendRow row;
  row.swatch(colours[0], "held");
  row.swatch(colours[1], "free, findable");
  row.swatch(colours[2], "free, empty");
  dim("blocks, step by step");
  const float line = ImGui::GetTextLineHeight();
  const std::int64_t usable = std::max<std::int64_t>(1, held_->info->usable_blocks());
  const float left = ImGui::CalcTextSize(format_count(usable).c_str()).x + px(6);
  ImVec2 at = ImGui::GetCursorScreenPos();
  ImVec2 room = ImGui::GetContentRegionAvail();
  room.x = std::max(room.x, px(40));
  room.y = std::max(room.y, px(40) + 2 * line);
  at = {at.x + left, at.y + line / 2};
  room = {std::max(room.x - left, px(40)), room.y - 1.5f * line - px(4)};
  ImGui::SetCursorScreenPos(at);
  ImGui::InvisibleButton("##usage", room);
  const auto count = static_cast<std::int64_t>(usage_.steps.size());
  if (count == 0) return;
  ImDrawList* list = ImGui::GetWindowDrawList();
  const float width = std::min(room.x / static_cast<float>(count), px(24));
  // The newest ones, where a bar would be thinner than a pixel.
  const auto fits = static_cast<std::int64_t>(room.x / std::max(width, 1.0f));
  const std::int64_t first = std::max<std::int64_t>(0, count - fits);
  const auto total = static_cast<float>(usable);
  draw_usage_axes(at, room, first, std::max(width, 1.0f));
  for (std::int64_t i = first; i < count; ++i) {
    const PoolUsage& u = usage_.usage[static_cast<std::size_t>(i)];
    const float x = at.x + static_cast<float>(i - first) * std::max(width, 1.0f);
    float bottom = at.y + room.y;
    const std::int64_t parts[] = {u.held, u.free_keyed, u.free_empty};
    for (int part = 0; part < 3; ++part) {
      const float height = room.y * static_cast<float>(parts[part]) / total;
      list->AddRectFilled({x, bottom - height}, {x + std::max(width - px(1), 1.0f), bottom},
                          colours[part]);
      bottom -= height;
    }
    const ImVec2 min(x, at.y), max(x + width, at.y + room.y);
    if (usage_.steps[static_cast<std::size_t>(i)] == ui.bench.cursor().step) {
      list->AddRect(min, max, t.accent);
    }
    if (!ImGui::IsItemHovered() || !ImGui::IsMouseHoveringRect(min, max)) continue;
    const std::int64_t step = usage_.steps[static_cast<std::size_t>(i)];
    tooltip(fmt::format(
        "step {}: {} held, {} free and findable, {} free and empty, 1 null\n{}, {}\n"
        "click: goes there",
        step, u.held, u.free_keyed, u.free_empty,
        plural(usage_.hit_tokens[static_cast<std::size_t>(i)], "token found", "tokens found"),
        plural(usage_.preemptions[static_cast<std::size_t>(i)], "preemption", "preemptions")));
    if (ImGui::IsMouseClicked(ImGuiMouseButton_Left)) {
      ui.run(fmt::format("cursor.goto={}/-/schedule", step));
    }
  }
}

void CachePanel::draw_why() const {
  if (why_.empty()) return;
  ImGui::SeparatorText("Why");
  ImGui::PushStyleColor(ImGuiCol_Text, theme().text_dim);
  ImGui::TextWrapped("%s", why_.c_str());
  ImGui::PopStyleColor();
}

void CachePanel::draw_tabs(Ui& ui) const {
  for (int i = 0; i < kCacheTabCount; ++i) {
    const float width = ImGui::CalcTextSize(kCacheTabs[i]).x + 2 * ImGui::GetStyle().FramePadding.x;
    if (i > 0) ImGui::SameLine();
    if (i > 0 && ImGui::GetContentRegionAvail().x < width) ImGui::NewLine();
    const bool on = i == tab_;
    ImGui::PushStyleColor(ImGuiCol_Button, on ? theme().raised : 0);
    ImGui::PushStyleColor(ImGuiCol_Text, on ? theme().text : theme().text_dim);
    if (ImGui::SmallButton(kCacheTabs[i])) ui.run(fmt::format("cache.tab={}", kCacheTabIds[i]));
    ImGui::PopStyleColor(2);
  }
}

// Which invariants are checked: the same choice as in the settings.
void CachePanel::draw_levels(Ui& ui) {
  constexpr const char* kLevels[] = {"off", "step", "call"};
  int level = static_cast<int>(ui.settings.invariants);
  if (segmented("invariants", &level, kLevels, 3)) {
    ui.run(std::string("settings.invariants=") + kLevels[level]);
  }
}

void CachePanel::draw(Ui& ui) {
  draw_tabs(ui);
  if (tab_ == kStream) return stream_.draw(ui);
  if (tab_ == kSlab) return slab_.draw(ui);
  const StepTrace* step = step_with_tables(ui, "The blocks");
  if (step == nullptr) return;
  refresh(ui, *step);
  sentence(sentence_);
  if (tab_ == kUsage) return draw_usage(ui);
  if (tab_ == kChecks) draw_levels(ui);
  const float room =
      why_.empty() ? -1 : -std::min(ImGui::GetContentRegionAvail().y * 0.5f, px(170));
  // Other columns are another table to ImGui, which keeps their order and widths.
  const std::string table = std::string("##") + kCacheTabIds[tab_];
  const auto clicked = table_.draw(table.c_str(), ImVec2(-1, room),
                                   tab_ == kRequests ? ui.bench.selection().request
                                   : tab_ == kChecks ? -1
                                                     : block_);
  if (clicked && tab_ == kRequests) {
    ui.bench.select_token(static_cast<std::int32_t>(*clicked), -1);
  } else if (clicked && *clicked >= 0 && tab_ != kLife && tab_ != kChecks) {
    ui.bench.select(block_selection(*held_->info, *step, ui.bench.selection(),
                                    static_cast<std::int32_t>(*clicked)));
  }
  draw_why();
}

}  // namespace

std::unique_ptr<Panel> make_cache_panel() { return std::make_unique<CachePanel>(); }

}  // namespace attnscope::gui
