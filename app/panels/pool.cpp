// Every block of the pool, coloured by its owner.
#include <fmt/format.h>

#include <algorithm>

#include "app/gui/legend_row.h"
#include "app/gui/pool_map.h"
#include "app/gui/tables_state.h"
#include "app/gui/widgets.h"
#include "app/panels/panels.h"
#include "app/text/format.h"
#include "app/views/pool_view.h"

namespace attnscope::gui {
namespace {

class PoolPanel : public Panel {
 public:
  PoolPanel() : Panel("pool", "Pool map") {}
  bool scrolls() const override { return false; }
  void draw(Ui& ui) override;

 private:
  void refresh(const Ui& ui, const StepTrace& step);
  void draw_legend(Ui& ui, const StepTrace& step);

  PoolMap map_;
  PoolView view_;
  std::shared_ptr<const Snapshot> held_;  // keeps step_ alive, so that its address is a key
  const StepTrace* step_ = nullptr;
  std::uint64_t version_ = 0;      // of view_
  std::int32_t emphasis_ = -1;     // request whose blocks stand out
  std::int32_t under_mouse_ = -1;  // owner of the block that was under the mouse
  std::int32_t hovered_ = -1;      // block that text_ is of
  std::string text_;
};

void PoolPanel::refresh(const Ui& ui, const StepTrace& step) {
  if (&step == step_) return;
  held_ = ui.bench.shared_snapshot();
  step_ = &step;
  view_ = pool_view(*held_->info, step);
  ++version_;
  hovered_ = -1;
}

void PoolPanel::draw_legend(Ui& ui, const StepTrace& step) {
  emphasis_ = under_mouse_;
  LegendRow row;
  for (const PoolOwner& owner : view_.owners) {
    if (!row.swatch(owner_colour(owner.request),
                    fmt::format("{} {}", owner.name, format_count(owner.blocks)))) {
      continue;
    }
    emphasis_ = owner.request;
    tooltip(fmt::format("request {} \"{}\": {}\nclick: selects the request", owner.request,
                        owner.name, plural(owner.blocks, "block", "blocks")));
    if (ImGui::IsMouseClicked(ImGuiMouseButton_Left)) ui.bench.select_token(owner.request, -1);
  }
  row.outlined("free " + format_count(view_.free));
  row.hatched("null");
  if (!step.fresh.empty()) row.mark(LegendMark::kFresh, "taken now");
  if (!step.freed.empty()) row.mark(LegendMark::kFreed, "freed now");
  if (std::ranges::find(view_.on_host, true) != view_.on_host.end()) {
    row.mark(LegendMark::kHost, "in host memory");
  }
  // Shades by group, in the colour of the selected request.
  for (const PoolOwner& owner : view_.owners) {
    if (owner.request != ui.bench.selection().request) continue;
    LegendRow shades;
    const auto& groups = held_->info->layout.groups;
    for (std::size_t g = 0; g < owner.by_group.size(); ++g) {
      shades.swatch(
          group_colour(owner.request, static_cast<int>(g), static_cast<int>(groups.size())),
          fmt::format("{} {}", groups[g].name, format_count(owner.by_group[g])));
    }
  }
}

void PoolPanel::draw(Ui& ui) {
  Workbench& bench = ui.bench;
  const StepTrace* step = step_with_tables(ui, "The owners of the blocks");
  if (step == nullptr) return;
  refresh(ui, *step);
  const SessionInfo& info = *held_->info;
  sentence(view_.sentence);
  draw_legend(ui, *step);
  PoolMapData data;
  data.owners = &step->owners;
  data.fresh = &step->fresh;
  data.freed = &step->freed;
  data.free_list = &step->free_list;
  data.on_host = &view_.on_host;
  data.groups = static_cast<int>(info.layout.groups.size());
  data.free_order = ui.settings.free_list_order;
  data.emphasis = emphasis_;
  data.selected = bench.selection().block;
  data.version = version_;
  ImGui::Spacing();
  const PoolMapEvents events = map_.draw("##pool map", data, ImGui::GetContentRegionAvail());
  under_mouse_ = -1;
  if (events.hovered < 0) return;
  under_mouse_ = step->owners[static_cast<std::size_t>(events.hovered)].request;
  if (events.hovered != hovered_) {
    hovered_ = events.hovered;
    text_ = describe_block(info, *step, hovered_);
  }
  tooltip(text_);
  if (events.clicked) bench.select(block_selection(info, *step, bench.selection(), hovered_));
  if (events.double_clicked) ui.run("panel.bytes");
}

}  // namespace

std::unique_ptr<Panel> make_pool_panel() { return std::make_unique<PoolPanel>(); }

}  // namespace attnscope::gui
