// Every block of the pool, coloured by its owner.
#include <fmt/format.h>

#include "app/common/format.h"
#include "app/common/views/linkage.h"
#include "app/common/views/pool_view.h"
#include "app/gui/pool_map.h"
#include "app/gui/widgets.h"
#include "app/panels/panels.h"

namespace attnscope::gui {
namespace {

class PoolPanel : public Panel {
 public:
  PoolPanel() : Panel("pool", "Pool map") {}
  bool scrolls() const override { return false; }

  void register_commands(Ui& ui) override {
    ui.commands.add({.id = "pool.free_order",
                     .title = "Order of the free list",
                     .group = "View",
                     .help = "Free blocks of the pool map show when their turn comes.",
                     .run = [&ui](std::string_view) -> Result<void> {
                       ui.settings.free_list_order = !ui.settings.free_list_order;
                       return {};
                     },
                     .checked = [&ui] { return ui.settings.free_list_order; }});
  }

  void draw(Ui& ui) override {
    Workbench& bench = ui.bench;
    const StepTrace* step = bench.step();
    if (step == nullptr || step->owners.empty()) {
      empty_state(ui,
                  bench.snapshot() == nullptr ? "No session yet."
                                              : "The tables of this step are not kept. Run or "
                                                "replay it to see who holds which block.",
                  "step.forward");
      return;
    }
    const SessionInfo& info = *bench.snapshot()->info;
    if (bench.version() != version_) {
      version_ = bench.version();
      view_ = pool_view(info, *step);
      hovered_ = -1;
    }
    sentence(view_.sentence);
    bool first = true;
    for (const PoolOwner& owner : view_.owners) {
      const std::string text = fmt::format("{} {}", owner.name, format_count(owner.blocks));
      if (!first) ImGui::SameLine(0, px(12));
      legend(owner_colour(owner.request), text.c_str());
      first = false;
    }
    ImGui::SameLine(0, px(12));
    legend(theme().grid, "free", false, true);
    ImGui::SameLine(0, px(12));
    legend(theme().hatch, "null", true);
    PoolMapData data;
    data.owners = &step->owners;
    data.fresh = &step->fresh;
    data.freed = &step->freed;
    if (ui.settings.free_list_order) data.free_list = &step->free_list;
    data.version = version_ * 2 + (ui.settings.free_list_order ? 1 : 0);
    bool clicked = false;
    const std::int32_t block = map_.draw("##pool map", data, ImGui::GetContentRegionAvail(),
                                         bench.selection().block, clicked);
    if (block < 0) return;
    if (block != hovered_) {
      hovered_ = block;
      text_ = describe_block(info, *step, block);
    }
    tooltip(text_);
    if (clicked) select(bench, info, *step, block);
  }

 private:
  static void select(Workbench& bench, const SessionInfo& info, const StepTrace& step,
                     std::int32_t block) {
    Selection selection = bench.selection();
    selection.block = block;
    selection.row = -1;
    if (const auto contents = contents_of_block(info, step, block)) {
      selection.group = contents->group;
      selection.request = contents->request;
    }
    bench.select(selection);
  }

  PoolMap map_;
  PoolView view_;
  std::uint64_t version_ = ~std::uint64_t{0};
  std::int32_t hovered_ = -1;
  std::string text_;
};

}  // namespace

std::unique_ptr<Panel> make_pool_panel() { return std::make_unique<PoolPanel>(); }

}  // namespace attnscope::gui
