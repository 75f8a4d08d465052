// Index keys: the energy of each dim before and after the Hadamard transform.
#include <fmt/format.h>
#include <implot.h>

#include <algorithm>
#include <cmath>
#include <memory>

#include "app/gui/tables_state.h"
#include "app/gui/theme.h"
#include "app/gui/widgets.h"
#include "app/panels/panels.h"
#include "app/views/key_energy_view.h"
#include "engine/model/numbers.h"

namespace attnscope::gui {
namespace {

class KeyEnergyPanel : public Panel {
 public:
  KeyEnergyPanel() : Panel("index_keys", "Index keys") {}
  void draw(Ui& ui) override;

 private:
  void plot(const char* id, const char* caption, const KeyForm& form, ImU32 colour,
            double top) const;

  std::shared_ptr<const Snapshot> held_;  // keeps step_ alive, so that its address is a key
  const StepTrace* step_ = nullptr;
  int layer_ = -1;
  KeyEnergyView view_;
};

void KeyEnergyPanel::plot(const char* id, const char* caption, const KeyForm& form, ImU32 colour,
                          double top) const {
  dim(caption);
  const float tall = std::max(px(90), (ImGui::GetContentRegionAvail().y - px(40)) * 0.5f);
  if (!ImPlot::BeginPlot(id, {-1, std::min(tall, px(220))}, ImPlotFlags_CanvasOnly)) return;
  const auto dims = static_cast<int>(form.energy.size());
  ImPlot::SetupAxis(ImAxis_X1, "dim");
  ImPlot::SetupAxis(ImAxis_Y1, nullptr, ImPlotAxisFlags_LockMin);
  ImPlot::SetupAxesLimits(-1, dims, 0, top, ImPlotCond_Always);
  ImPlotSpec spec;
  spec.FillColor = ImGui::ColorConvertU32ToFloat4(colour);
  spec.LineColor = spec.FillColor;
  ImPlot::PlotBars("##energy", form.energy.data(), dims, 0.8, 0, spec);
  if (ImPlot::IsPlotHovered()) {
    const int i = static_cast<int>(std::lround(ImPlot::GetPlotMousePos().x));
    if (i >= 0 && i < dims) {
      tooltip(fmt::format("dim {}: {:.3g} times the mean", i, form.energy[to_size(i)]));
    }
  }
  ImPlot::EndPlot();
}

void KeyEnergyPanel::draw(Ui& ui) {
  const StepTrace* step = kept_step(ui, "The index keys of this step are not kept.");
  if (step == nullptr) return;
  const int layer = ui.bench.cursor().layer;
  // A step that runs on has more ops, in another snapshot.
  if (step != step_ || layer != layer_ || held_ != ui.bench.shared_snapshot()) {
    held_ = ui.bench.shared_snapshot();
    step_ = step;
    layer_ = layer;
    view_ = key_energy_view(*held_->info, *step, layer);
  }
  if (!view_.why_empty.empty()) return empty_state(ui, view_.why_empty, "op.forward");
  sentence(view_.sentence);
  double top = 1;
  for (const KeyForm* form : {&view_.before, &view_.after}) {
    top = std::max(top, *std::ranges::max_element(form->energy));
  }
  plot("##before", "energy / mean, before the transform", view_.before, theme().text_dim,
       1.1 * top);
  plot("##after", "energy / mean, after the transform", view_.after, theme().accent, 1.1 * top);
}

}  // namespace

std::unique_ptr<Panel> make_key_energy_panel() { return std::make_unique<KeyEnergyPanel>(); }

}  // namespace attnscope::gui
