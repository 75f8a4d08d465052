// Backends: which attention backend vLLM would take for the layers of the model that is shown, as
// the tree of rules with the path taken, under what is asked by the controls below it.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <memory>
#include <optional>
#include <span>

#include "app/gui/backends_compare.h"
#include "app/gui/data_table.h"
#include "app/gui/theme.h"
#include "app/gui/widgets.h"
#include "app/panels/panels.h"
#include "app/text/text.h"
#include "app/views/attention_metadata_view.h"
#include "app/views/backends_view.h"
#include "app/views/op_order.h"
#include "engine/model/numbers.h"

namespace attnscope::gui {
namespace {

constexpr std::array kGpus = {"sm_80",  "sm_89", "sm_90", "sm_100", "sm_103",
                              "sm_120", "rocm",  "xpu",   "cpu"};
constexpr std::array kDtypes = {"model", "float16", "bfloat16", "float32"};
constexpr std::array kBlockSizes = {"model", "8", "16", "32", "64", "128", "256"};

// Controls side by side, the next one in a new line where it does not fit.
class ControlRow {
 public:
  void place(float width) {
    const float right = ImGui::GetCursorScreenPos().x + ImGui::GetContentRegionAvail().x;
    if (!first_ && ImGui::GetItemRectMax().x + px(12) + width <= right) ImGui::SameLine(0, px(12));
    first_ = false;
  }

 private:
  bool first_ = true;
};

class BackendsPanel : public Panel {
 public:
  BackendsPanel() : Panel("backends", "Backends") { table_.least_width = 900; }
  void register_commands(Ui& ui) override;
  void draw(Ui& ui) override;
  bool animating() const override { return compare_.runs(); }
  std::string failure() const override { return compare_.error(); }

 private:
  Result<void> ask_for(const Ui& ui, BackendsAsk ask);
  void refresh(const Ui& ui);
  ImU32 state_colour(const BackendLine& line) const;
  // The centre of its circle on the rail.
  ImVec2 draw_line(Ui& ui, const BackendLine& line);
  void draw_facts(const BackendLine& line, float left) const;
  void draw_lines(Ui& ui, bool tried);
  void draw_tree(Ui& ui);
  void draw_layers(Ui& ui);
  void choose(Ui& ui, ControlRow& row, const char* label, const char* option,
              const std::string& now, std::span<const std::string> values);
  void draw_features(Ui& ui);
  void draw_controls(Ui& ui);
  void draw_metadata(Ui& ui);
  void fill_table();

  const AttentionRegistry registry_;
  BackendsAsk ask_;
  std::shared_ptr<const SessionInfo> info_;  // that model_ is of
  BackendsAsk asked_;                        // likewise
  int layer_ = -1;                           // published
  std::uint64_t version_ = 0;                // of model_
  ModelBackends model_;
  std::string problem_;  // why there is no model_
  bool others_open_ = false;
  std::shared_ptr<const Snapshot> held_;  // keeps step_ alive, so that its address is a key
  const StepTrace* step_ = nullptr;       // that metadata_ is of
  std::uint64_t metadata_of_ = 0;         // version_ likewise
  AttentionMetadataView metadata_;
  BackendsCompare compare_;
  DataTable table_;
};

void BackendsPanel::register_commands(Ui& ui) {
  const auto has_session = [&ui] { return ui.bench.snapshot() != nullptr; };
  ui.commands.add({.id = "backends.ask",
                   .title = "Ask of attention backends ..",
                   .group = "View",
                   .help = "What the panel Backends asks besides what the model says: gpu, dtype, "
                           "cache-dtype, block-size, type, with or backend.",
                   .argument = "OPTION=VALUE",
                   .run = [this, &ui](std::string_view value) -> Result<void> {
                     const std::size_t equal = std::min(value.find('='), value.size());
                     BackendsAsk ask = ask_;
                     const std::string_view given = value.substr(std::min(equal + 1, value.size()));
                     if (auto ok = set_option(ask, trimmed(value.substr(0, equal)), trimmed(given));
                         !ok) {
                       return ok;
                     }
                     return ask_for(ui, std::move(ask));
                   },
                   .enabled = has_session,
                   .why_disabled = "no session is open",
                   .in_menu = false});
  ui.commands.add({.id = "backends.reset",
                   .title = "Ask of attention backends what the model says",
                   .group = "View",
                   .help = "Takes back what the panel Backends asks besides.",
                   .run = [this](std::string_view) -> Result<void> {
                     ask_ = {};
                     return {};
                   },
                   .enabled = [this] { return ask_ != BackendsAsk(); },
                   .why_disabled = "nothing else is asked",
                   .in_menu = false});
  compare_.register_commands(ui, ask_.gpu);
}

// Refused where no backend could have it: what was asked before stays.
Result<void> BackendsPanel::ask_for(const Ui& ui, BackendsAsk ask) {
  const SessionInfo& info = *ui.bench.snapshot()->info;
  auto model = model_backends(registry_, info.config, ask, ui.bench.cursor().layer);
  if (!model) return model.error();
  ask_ = std::move(ask);
  return {};
}

void BackendsPanel::refresh(const Ui& ui) {
  const auto& info = ui.bench.snapshot()->info;
  const int layer = ui.bench.cursor().layer;
  if (info_ == info && layer_ == layer && asked_ == ask_) return;
  info_ = info;
  layer_ = layer;
  asked_ = ask_;
  ++version_;
  auto model = model_backends(registry_, info_->config, ask_, layer_);
  problem_ = model ? "" : model.error().text();
  if (!model) return;
  model_ = std::move(*model);
}

ImU32 BackendsPanel::state_colour(const BackendLine& line) const {
  const Theme& t = theme();
  if (line.state == BackendState::kLayerRefuses) return t.warn;
  if (line.taken) return t.accent;
  return line.state == BackendState::kRefused ? t.text_dim : t.good;
}

// Below its name: each rule that it breaks.
void BackendsPanel::draw_facts(const BackendLine& line, float left) const {
  ImGui::Indent(left);
  for (const BrokenRule& broken : line.broken) {
    dim(describe(broken) + (broken.stage == RuleStage::kLayer ? " (when the layer is made)" : ""));
  }
  ImGui::Unindent(left);
}

ImVec2 BackendsPanel::draw_line(Ui& ui, const BackendLine& line) {
  const Theme& t = theme();
  const float left = px(28), tall = ImGui::GetTextLineHeight() + px(4);
  const ImVec2 at = ImGui::GetCursorScreenPos();
  const float right = at.x + ImGui::GetContentRegionAvail().x;
  const bool named = line.name == ask_.backend;
  if (ImGui::Selectable(fmt::format("##backend {}", line.name).c_str(), line.taken,
                        ImGuiSelectableFlags_AllowOverlap, {0, tall})) {
    ui.run(fmt::format("backends.ask=backend={}", named ? "" : line.name));
  }
  const ImVec2 min = ImGui::GetItemRectMin(), max = ImGui::GetItemRectMax();
  if (ImGui::IsItemHovered()) {
    tooltip(fmt::format("{}: {}\nCUDA graphs: {}\nrules: {}\n{}", line.name, line.what, line.graph,
                        line.source,
                        named ? "click: leaves the choice to the selector"
                              : "click: names it, as an override does"));
  }
  if (named) draw_selected(ImGui::GetWindowDrawList(), min, max);
  ImGui::SetCursorScreenPos({at.x + left, at.y + px(2)});
  coloured(line.state == BackendState::kRefused ? t.text_dim : t.text,
           name_and_version(line.name, line.version));
  ImGui::SameLine(0, px(10));
  coloured(state_colour(line), line.word);
  const float wide = ImGui::CalcTextSize(line.here.c_str()).x;
  const bool beside = ImGui::GetItemRectMax().x + px(14) + wide <= right;
  if (beside) {
    ImGui::SameLine(0, px(14));
    coloured(t.text_faint, line.here);
  } else {
    ImGui::Indent(left);
    dim(line.here);
    ImGui::Unindent(left);
  }
  draw_facts(line, left);
  return {at.x + px(12), at.y + px(2) + ImGui::GetTextLineHeight() * 0.5f};
}

// A line a backend; on the rail at the left the path from the first that is tried to the one taken.
void BackendsPanel::draw_lines(Ui& ui, bool tried) {
  const Theme& t = theme();
  ImDrawList* list = ImGui::GetWindowDrawList();
  const float round = px(8);
  std::optional<ImVec2> before;
  // With a name nothing is tried: there is no path.
  bool on_path = tried && ask_.backend.empty();
  for (const BackendLine& line : model_.view.lines) {
    if ((line.order > 0) != tried) continue;
    const ImVec2 centre = draw_line(ui, line);
    if (before && tried) {
      list->AddLine({before->x, before->y + round}, {centre.x, centre.y - round},
                    on_path ? t.accent : t.border, px(on_path ? 2 : 1));
    }
    if (line.taken) {
      list->AddCircleFilled(centre, round, t.accent);
      on_path = false;
    } else {
      list->AddCircle(centre, round, on_path ? t.accent : t.border, 0, px(1.5f));
    }
    draw_cell_text(list, {centre.x - round, centre.y - round}, {centre.x + round, centre.y + round},
                   line.taken ? text_on(t.accent) : t.text_dim,
                   tried ? std::to_string(line.order) : std::string("-"));
    before = centre;
  }
}

void BackendsPanel::draw_tree(Ui& ui) {
  draw_lines(ui, true);
  const auto others =
      std::ranges::count_if(model_.view.lines, [](const BackendLine& l) { return l.order == 0; });
  // What is named among them is to be seen.
  const bool named = std::ranges::any_of(model_.view.lines, [&](const BackendLine& l) {
    return l.order == 0 && l.name == ask_.backend;
  });
  ImGui::SetNextItemOpen(others_open_ || named);
  const bool unfolded = ImGui::TreeNodeEx(
      fmt::format("{} others, tried only where they are named###others", others).c_str(),
      ImGuiTreeNodeFlags_NoTreePushOnOpen | ImGuiTreeNodeFlags_NoAutoOpenOnLog);
  if (!named) others_open_ = unfolded;
  if (unfolded) draw_lines(ui, false);
}

// Which layers the tree is of; a click goes to the first of others.
void BackendsPanel::draw_layers(Ui& ui) {
  if (model_.layers.size() < 2) return;
  std::vector<std::string> names;
  names.reserve(model_.layers.size());
  for (const BackendLayers& one : model_.layers) {
    names.push_back(fmt::format("{}: {}", one.name, one.layers));
  }
  std::vector<const char*> labels;
  labels.reserve(names.size());
  for (const std::string& name : names) labels.push_back(name.c_str());
  int shown = static_cast<int>(model_.shown);
  if (!segmented("layers", &shown, labels.data(), static_cast<int>(labels.size()))) return;
  Place place = ui.bench.cursor();
  const int layer = model_.layers[to_size(shown)].numbers.front();
  place.op = op_seen_in(*info_, to_size(layer_index(*info_, layer)), place);
  place.layer = layer;
  ui.bench.go_to(place);
}

void BackendsPanel::choose(Ui& ui, ControlRow& row, const char* label, const char* option,
                           const std::string& now, std::span<const std::string> values) {
  const float wide = px(118);
  row.place(ImGui::CalcTextSize(label).x + px(6) + wide);
  ImGui::BeginGroup();
  ImGui::AlignTextToFramePadding();
  coloured(theme().text_dim, label);
  ImGui::SameLine(0, px(6));
  ImGui::SetNextItemWidth(wide);
  if (ImGui::BeginCombo(fmt::format("##{}", option).c_str(), now.c_str(),
                        ImGuiComboFlags_HeightLarge)) {
    for (const std::string& value : values) {
      if (ImGui::Selectable(value.c_str(), value == now)) {
        ui.run(fmt::format("backends.ask={}={}", option, value));
      }
    }
    ImGui::EndCombo();
  }
  ImGui::EndGroup();
}

void BackendsPanel::draw_features(Ui& ui) {
  ControlRow row;
  for (const char* feature : backend_features()) {
    row.place(ImGui::CalcTextSize(feature).x + ImGui::GetFrameHeight() + px(6));
    bool on = std::ranges::find(ask_.with, feature) != ask_.with.end();
    if (!ImGui::Checkbox(feature, &on)) continue;
    std::string with;
    for (const char* other : backend_features()) {
      const bool kept = std::ranges::find(ask_.with, other) != ask_.with.end();
      if (other == std::string_view(feature) ? !on : !kept) continue;
      with += (with.empty() ? "" : ",") + std::string(other);
    }
    ui.run("backends.ask=with=" + with);
  }
}

void BackendsPanel::draw_controls(Ui& ui) {
  const auto texts = [](const auto& all) {
    return std::vector<std::string>(all.begin(), all.end());
  };
  const auto or_model = [](const std::string& value) {
    return value.empty() ? std::string("model") : value;
  };
  std::vector<std::string> caches = registry_.cache_dtypes(), names = registry_.names();
  caches.insert(caches.begin(), "model");
  names.insert(names.begin(), "none");
  std::vector<std::string> types = texts(attention_types());
  types.insert(types.begin(), "model");
  ControlRow row;
  choose(ui, row, "GPU", "gpu", ask_.gpu, texts(kGpus));
  choose(ui, row, "dtype", "dtype", or_model(ask_.dtype), texts(kDtypes));
  choose(ui, row, "cache", "cache-dtype", or_model(ask_.cache_dtype), caches);
  choose(ui, row, "block size", "block-size",
         ask_.block_size == 0 ? "model" : std::to_string(ask_.block_size), texts(kBlockSizes));
  choose(ui, row, "type", "type", or_model(ask_.type), types);
  choose(ui, row, "override", "backend", ask_.backend.empty() ? "none" : ask_.backend, names);
  draw_features(ui);
  command_button(ui, "backends.reset", "As the model says");
}

// What the step under the cursor would hand to the backend that is taken.
void BackendsPanel::draw_metadata(Ui& ui) {
  const StepTrace* step = ui.bench.step();
  if (step == nullptr || step->metadata.live.empty()) return;
  if (step != step_ || metadata_of_ != version_ || held_.get() != ui.bench.snapshot()) {
    held_ = ui.bench.shared_snapshot();
    step_ = step;
    metadata_of_ = version_;
    metadata_ = attention_metadata_view(*info_, *step, layer_, model_.form);
  }
  if (!metadata_.why_empty.empty()) return dim("Metadata: " + metadata_.why_empty + ".");
  dim(metadata_.sentence);
  for (const MetadataLine& line : metadata_.lines) field(line.name.c_str(), line.values);
}

void BackendsPanel::fill_table() {
  table_.begin(version_);
  if (!table_.stale()) return;
  table_.columns({{"order", true, 0.5f, "In which it is tried; none: only where it is named."},
                  {"backend", false, 1.8f},
                  {"version", false, 0.7f},
                  {"state", false, 0.9f},
                  {"rules that it breaks", false, 3},
                  {"CUDA graphs", false, 1.1f},
                  {"here", false, 1.8f, "Lanes of this program that compute it."}});
  for (std::size_t i = 0; i < model_.view.lines.size(); ++i) {
    const BackendLine& line = model_.view.lines[i];
    TableCell order = line.order > 0 ? whole_cell(line.order) : TableCell{"–", theme().text_dim};
    table_.row({std::move(order),
                {line.name},
                {line.version},
                {line.word, state_colour(line)},
                {rules_of(line)},
                {line.graph},
                {line.here}},
               static_cast<std::int64_t>(i));
  }
}

void BackendsPanel::draw(Ui& ui) {
  if (ui.bench.snapshot() == nullptr) {
    empty_state(ui, "No session yet: which backend a model gets is shown once one is open.",
                "scenario.open");
    return;
  }
  refresh(ui);
  if (!problem_.empty()) {
    caution(problem_);
    draw_controls(ui);
    return;
  }
  sentence(model_.view.sentence);
  draw_tree(ui);
  ImGui::Spacing();
  draw_layers(ui);
  draw_controls(ui);
  for (const std::string& note : model_.view.notes) caution(note);
  dim("Asked: " + model_.view.asked + ".");
  if (!model_.view.given.empty()) dim("Given: " + model_.view.given + ".");
  dim("Computed: " + model_.computed + ".");
  draw_metadata(ui);
  compare_.draw(ui);
  fill_table();
  std::int64_t taken = -1;
  for (std::size_t i = 0; i < model_.view.lines.size(); ++i) {
    if (model_.view.lines[i].taken) taken = to_count(i);
  }
  if (const auto key = table_.draw("##backends", {-1, px(260)}, taken)) {
    ui.run("backends.ask=backend=" + model_.view.lines[to_size(*key)].name);
  }
}

}  // namespace

std::unique_ptr<Panel> make_backends_panel() { return std::make_unique<BackendsPanel>(); }

}  // namespace attnscope::gui
