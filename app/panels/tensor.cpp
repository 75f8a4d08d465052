// Tensor inspector: any tap of the op under the cursor as heat map, numbers or histogram; its
// value, the reference, their difference, or the row of the step before.
#include <fmt/format.h>
#include <implot.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>

#include "app/gui/heat_map.h"
#include "app/gui/history_plot.h"
#include "app/gui/icons.h"
#include "app/gui/number_grid.h"
#include "app/gui/tables_state.h"
#include "app/gui/theme.h"
#include "app/gui/widgets.h"
#include "app/panels/panels.h"
#include "app/text/format.h"
#include "app/views/bytes_view.h"
#include "app/views/tensor_view.h"
#include "app/views/worst_element.h"
#include "app/workbench/followed_history.h"
#include "engine/io/old_names.h"
#include "engine/model/numbers.h"
#include "kernels/params/tensor_view.h"

namespace attnscope::gui {
namespace {

constexpr std::array<const char*, 4> kShapes = {"heat map", "numbers", "histogram", "history"};
constexpr std::array<const char*, 4> kShapeNames = {"heat", "numbers", "histogram", "history"};
constexpr auto kScanTime = std::chrono::microseconds(2500);
constexpr std::int64_t kMostCopied = 1 << 18;  // cells of one CSV

class TensorPanel : public Panel {
 public:
  TensorPanel() : Panel("tensor", "Tensor") {}
  void register_commands(Ui& ui) override;
  void draw(Ui& ui) override;
  bool animating() const override { return working_; }
  bool scrolls() const override { return false; }

 private:
  struct Shown {  // what the cached numbers are of
    const OpTrace* op = nullptr;
    const TapCopy* tap = nullptr;
    const OpTrace* before = nullptr;
    friend bool operator==(const Shown&, const Shown&) = default;
  };

  void refresh(const Ui& ui, const StepTrace& step, const OpTrace& op, const TapCopy& tap);
  TapIndex focus(const Ui& ui, const StepTrace& step, const OpTrace& op) const;
  void select(Workbench& bench, const StepTrace& step, const OpTrace& op,
              const TapIndex& index) const;
  void register_tap_commands(Ui& ui);
  Result<void> go_to_largest(Workbench& bench);
  void chips(Ui& ui, const StepTrace& step, const OpTrace& op) const;
  void axis_choosers(Ui& ui, const StepTrace& step, const OpTrace& op);
  void draw_slice(Ui& ui, const StepTrace& step, const OpTrace& op, ImVec2 size);
  void draw_histogram(const HeatMapData& data, ImVec2 size);
  void draw_history(Ui& ui, const StepTrace& step, ImVec2 size);
  HeatMapData slice_data(const StepTrace& step, const OpTrace& op) const;
  std::string row_name(const StepTrace& step, const OpTrace& op, int axis, std::int64_t i) const;
  std::string note(const StepTrace& step, const OpTrace& op, const TapIndex& index) const;

  TensorMode mode_ = TensorMode::kValue;
  int shape_ = 0;
  std::uint64_t landed_ = 0;  // Workbench::landed() that was followed
  bool beyond_rounding_ = true;
  bool copy_ = false;  // asked for by the command
  std::shared_ptr<const Snapshot> held_;
  Shown shown_;
  TapReader reader_;
  std::vector<TapAxis> axes_;
  std::string axes_text_;
  TapSlice slice_;
  TapScan scan_;
  TapIndex worst_;  // rank 0: no kept element differs from the reference
  HeatMap map_;
  NumberGrid grid_;
  FollowedHistory history_;
  HistoryPlot plot_;
  MatrixScan counts_;  // of the histogram
  std::uint64_t version_ = 0, counted_ = ~std::uint64_t{0};
  bool working_ = false;
};

// Place of a command's value among the allowed ones.
template <class Names>
Result<int> choose(std::string_view value, const Names& names, const char* id) {
  std::string allowed;
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (value == names[i]) return static_cast<int>(i);
    allowed += fmt::format("{}{}", i == 0 ? "" : ", ", names[i]);
  }
  return usage_error(fmt::format("{}: unknown value '{}'", id, value), "allowed: " + allowed);
}

void TensorPanel::register_commands(Ui& ui) {
  ui.commands.add({.id = "tensor.view",
                   .title = "Tensor: show ..",
                   .group = "View",
                   .help = "Which numbers of a tap the tensor panel shows.",
                   .shortcut = "",
                   .argument = "value|reference|difference|before",
                   .run = [this](std::string_view value) -> Result<void> {
                     auto mode = choose(value, kTensorModes, "tensor.view");
                     if (!mode) return mode.error();
                     mode_ = static_cast<TensorMode>(*mode);
                     return {};
                   },
                   .in_menu = false});
  ui.commands.add({.id = "tensor.as",
                   .title = "Tensor: draw as ..",
                   .group = "View",
                   .help = "How the tensor panel shows them.",
                   .shortcut = "",
                   .argument = "heat|numbers|histogram|history",
                   .run = [this](std::string_view value) -> Result<void> {
                     auto shape = choose(value, kShapeNames, "tensor.as");
                     if (!shape) return shape.error();
                     shape_ = *shape;
                     return {};
                   },
                   .in_menu = false});
  register_tap_commands(ui);
}

void TensorPanel::register_tap_commands(Ui& ui) {
  Workbench& bench = ui.bench;
  ui.commands.add({.id = "tensor.tap",
                   .title = "Tensor: tap ..",
                   .group = "Selection",
                   .help = "Selects a tap of the op under the cursor by name.",
                   .shortcut = "",
                   .argument = "NAME",
                   .run = [&bench](std::string_view value) -> Result<void> {
                     const OpTrace* op = bench.op();
                     const std::string name(tap_name_now(op->place.op, value));
                     if (op->tap(name) == nullptr && op->cache_rows(name) == nullptr) {
                       std::string allowed;
                       for (const TapCopy& t : op->taps) allowed += " " + t.name;
                       for (const RowsCopy& r : op->rows) allowed += " " + r.name;
                       return usage_error(fmt::format("tensor.tap: no tap '{}'", name),
                                          "allowed:" + allowed);
                     }
                     Selection selection = bench.selection();
                     selection.tap = name;
                     selection.element.clear();
                     bench.select(selection);
                     return {};
                   },
                   .enabled = [&bench] { return bench.op() != nullptr; },
                   .why_disabled = "the op under the cursor has no kept trace",
                   .in_menu = false});
  ui.commands.add({.id = "tensor.largest",
                   .title = "Go to the worst element",
                   .group = "Selection",
                   .help = "Selects the element of the tap that used most of its tolerance, the "
                           "one that the error panel names.",
                   .shortcut = "",
                   .argument = "",
                   .run = [this, &bench](std::string_view) { return go_to_largest(bench); },
                   .enabled = [&bench] { return bench.selected_tap() != nullptr; },
                   .why_disabled = "no tap is shown"});
  ui.commands.add({.id = "tensor.copy",
                   .title = "Copy the tensor slice as CSV",
                   .group = "Selection",
                   .help = "The two axes that are drawn, in full precision.",
                   .shortcut = "",
                   .argument = "",
                   .run = [this](std::string_view) -> Result<void> {
                     copy_ = true;
                     return {};
                   },
                   .enabled = [&bench] { return bench.selected_tap() != nullptr; },
                   .why_disabled = "no tap is shown"});
}

Result<void> TensorPanel::go_to_largest(Workbench& bench) {
  const StepTrace* step = bench.step();
  const OpTrace* op = bench.op();
  if (worst_.rank == 0 || op != shown_.op || bench.selected_tap() != shown_.tap) {
    return usage_error("tensor.largest: the tap shown has no difference",
                       "pick a tap whose elements differ from ref.sim");
  }
  map_.zoom_to_selected();
  select(bench, *step, *op, worst_);
  return {};
}

void TensorPanel::refresh(const Ui& ui, const StepTrace& step, const OpTrace& op,
                          const TapCopy& tap) {
  const StepTrace* before = ui.bench.step_before();
  const OpTrace* op_before = before ? before->find(op.place.layer, op.place.op) : nullptr;
  held_ = ui.bench.shared_snapshot();
  const Shown now{&op, &tap, op_before};
  if (now == shown_) return;
  const bool other_tap = now.op != shown_.op || now.tap != shown_.tap;
  shown_ = now;
  ++version_;
  const auto shared = [](const StepTrace* trace, const OpTrace* wanted) {
    for (const auto& held : trace->ops) {
      if (held.get() == wanted) return held;
    }
    return std::shared_ptr<const OpTrace>();
  };
  reader_ = {};
  reader_.op = shared(&step, &op);
  reader_.tap = &tap;
  reader_.gaps = gaps_of(op, tap);
  axes_ = axes_of(step, op, tap);
  for (std::size_t i = 0; i < axes_.size(); ++i) {
    if (axes_[i].link == AxisLink::kToken) reader_.token_axis = static_cast<int>(i);
  }
  if (op_before != nullptr) {
    reader_.op_before = shared(before, op_before);
    reader_.tap_before = op_before->tap(tap.name);
    if (reader_.tap_before != nullptr) {
      reader_.gaps_before = gaps_of(*op_before, *reader_.tap_before);
    }
    // After the layers a row is a request, so rows follow by request.
    reader_.before = as_op_find(op.place.op)->phase == AS_PHASE_AFTER
                         ? sampled_rows_before(step, *before)
                         : rows_before(step, *before);
  }
  if (!other_tap) return;
  const TapSlice fresh = default_slice(tap);
  const std::string axes_text = tap.axes + fmt::format("/{}", tap.value.rank);
  if (axes_text != axes_text_) {
    slice_ = fresh;
    map_.reset_range();
  } else {
    slice_.shape = fresh.shape;
  }
  axes_text_ = axes_text;
  scan_.start(reader_.op, &tap);
  const TapResult* result = tap.output ? op.result(tap.name) : nullptr;
  worst_ =
      result != nullptr ? worst_index(step, op, tap, shown_result(step, op, *result)) : TapIndex();
}

// The element in the middle of things: the selection where it names one, else along each axis the
// selected token, head or dim.
TapIndex TensorPanel::focus(const Ui& ui, const StepTrace& step, const OpTrace& op) const {
  const Selection& selection = ui.bench.selection();
  TapIndex index;
  index.rank = reader_.tap->value.rank;
  const bool named = selection.tap == reader_.tap->name && selection.element.size() == axes_.size();
  for (int i = 0; i < index.rank; ++i) {
    const TapAxis& axis = axes_[to_size(i)];
    index[i] = named ? selection.element[to_size(i)] : -1;
    if (axis.link == AxisLink::kToken) {
      index[i] = index_of_token_row(step, op, ui.bench.selected_row());
    } else if (axis.link == AxisLink::kHead) {
      index[i] = selection.head;
    } else if (axis.link == AxisLink::kDim) {
      index[i] = selection.dim;
    }
    if (index[i] >= axis.size) index[i] = -1;
  }
  return index;
}

void TensorPanel::select(Workbench& bench, const StepTrace& step, const OpTrace& op,
                         const TapIndex& index) const {
  Selection selection = bench.selection();
  selection.tap = reader_.tap->name;
  selection.element = index.vector();
  for (int i = 0; i < index.rank; ++i) {
    const TapAxis& axis = axes_[to_size(i)];
    if (axis.link == AxisLink::kToken) {
      const std::int64_t row = token_row_at(step, op, index[i]);
      selection.element[to_size(i)] = row;
      if (row >= 0) {
        selection.request = step.request_of(row);
        selection.position = step.metadata.positions[to_size(row)];
      }
    } else if (axis.link == AxisLink::kHead) {
      selection.head = static_cast<int>(std::max<std::int64_t>(index[i], 0));
    } else if (axis.link == AxisLink::kDim) {
      selection.dim = std::max<std::int64_t>(index[i], 0);
    }
  }
  bench.select(selection);
}

// Inputs, then outputs: what a click would show, with shape and type.
void TensorPanel::chips(Ui& ui, const StepTrace& step, const OpTrace& op) const {
  const float end = ImGui::GetCursorScreenPos().x + ImGui::GetContentRegionAvail().x;
  bool first = true;
  const auto flow = [&](const std::string& label) {
    const float width = ImGui::CalcTextSize(label.c_str()).x + ImGui::GetStyle().FramePadding.x * 2;
    if (!first && ImGui::GetItemRectMax().x + ImGui::GetStyle().ItemSpacing.x + width < end) {
      ImGui::SameLine();
    }
    first = false;
  };
  const auto word = [&](const char* text) {
    flow(text);
    ImGui::AlignTextToFramePadding();
    ImGui::TextDisabled("%s", text);
  };
  const auto chip = [&](const std::string& name, bool chosen, Verdict verdict) {
    const bool compared = verdict != Verdict::kNotCompared;
    const std::string label = compared ? fmt::format("{} {}", verdict_glyph(verdict), name) : name;
    flow(label);
    if (chosen) ImGui::PushStyleColor(ImGuiCol_Button, with_alpha(theme().accent, 0.35f));
    if (verdict == Verdict::kWrong) ImGui::PushStyleColor(ImGuiCol_Text, theme().bad);
    const bool clicked = ImGui::Button(fmt::format("{}##tap_{}", label, name).c_str());
    if (verdict == Verdict::kWrong) ImGui::PopStyleColor();
    if (chosen) ImGui::PopStyleColor();
    return clicked;
  };
  for (const bool output : {false, true}) {
    bool any = false;
    for (const TapCopy& tap : op.taps) {
      if (tap.output != output) continue;
      if (!any) word(output ? "out" : "in");
      any = true;
      const TapResult* result = op.result(tap.name);
      if (chip(tap.name, &tap == reader_.tap,
               result && output ? result->verdict : Verdict::kNotCompared)) {
        ui.run("tensor.tap=" + tap.name);
      }
      if (ImGui::IsItemHovered()) {
        tooltip(fmt::format("{} {} {}{}{}", tap.name, shape_text(step, op, tap),
                            as_dtype_name(tap.value.dtype), output ? ", lane " + op.lane : "",
                            tap.rule.empty() ? "" : "\ntolerance class " + tap.rule));
      }
    }
  }
  for (const RowsCopy& rows : op.rows) {
    const TapResult* result = op.result(rows.name);
    if (chip(rows.name + " (bytes)", false, result ? result->verdict : Verdict::kNotCompared)) {
      ui.run("tensor.tap=" + rows.name);
      ui.run("panel.bytes");
    }
    if (ImGui::IsItemHovered()) {
      tooltip(fmt::format("{}, each a {} of {} bytes\nopens the bytes panel",
                          plural(std::ssize(rows.slots), "cache row", "cache rows"),
                          record_name(rows.record), rows.row_bytes));
    }
  }
}

std::string TensorPanel::row_name(const StepTrace& step, const OpTrace& op, int axis,
                                  std::int64_t i) const {
  if (axis >= 0 && axes_[to_size(axis)].link == AxisLink::kToken) {
    return token_label(step, token_row_at(step, op, i));
  }
  return std::to_string(i);
}

// Which axes are drawn, and where the others stand.
void TensorPanel::axis_choosers(Ui& ui, const StepTrace& step, const OpTrace& op) {
  const int rank = reader_.tap->value.rank;
  TapIndex index = focus(ui, step, op);
  if (rank >= 3) {
    std::vector<std::string> names;
    std::vector<std::pair<int, int>> pairs;
    for (int row = 0; row < rank; ++row) {
      for (int column = row + 1; column < rank; ++column) {
        pairs.emplace_back(row, column);
        names.push_back(
            fmt::format("{} \xc3\x97 {}", axes_[to_size(row)].name, axes_[to_size(column)].name));
      }
    }
    const auto chosen =
        std::find(pairs.begin(), pairs.end(), std::pair(slice_.row_axis, slice_.column_axis));
    const auto current = static_cast<std::size_t>(chosen - pairs.begin());
    ImGui::SetNextItemWidth(ImGui::CalcTextSize(names[current].c_str()).x +
                            ImGui::GetFrameHeight() + px(14));
    if (ImGui::BeginCombo("##axes", names[current].c_str())) {
      for (std::size_t i = 0; i < pairs.size(); ++i) {
        if (ImGui::Selectable(names[i].c_str(), i == current)) {
          std::tie(slice_.row_axis, slice_.column_axis) = pairs[i];
          ++version_;
        }
      }
      ImGui::EndCombo();
    }
    if (ImGui::IsItemHovered()) tooltip("the two axes that are drawn");
  }
  for (int i = 0; i < rank; ++i) {
    if (i == slice_.row_axis || i == slice_.column_axis || rank < 2) continue;
    const TapAxis& axis = axes_[to_size(i)];
    const std::int64_t last = axis.size - 1;
    std::int64_t place = index[i] >= 0 ? index[i] : axis.link == AxisLink::kToken ? last : 0;
    if (place != slice_.fixed[i]) ++version_;
    slice_.fixed[i] = place;
    ImGui::SameLine();
    ImGui::TextDisabled("%s", axis.name.c_str());
    ImGui::SameLine();
    if (last == 0) {
      ImGui::TextUnformatted(row_name(step, op, i, 0).c_str());
      continue;
    }
    const std::int64_t zero = 0;
    const std::string format = row_name(step, op, i, place);
    ImGui::SetNextItemWidth(px(110));
    if (ImGui::SliderScalar(fmt::format("##axis_{}", i).c_str(), ImGuiDataType_S64, &place, &zero,
                            &last, format.c_str(), ImGuiSliderFlags_AlwaysClamp)) {
      index[i] = place;
      select(ui.bench, step, op, index);
    }
  }
}

std::string TensorPanel::note(const StepTrace& step, const OpTrace& op,
                              const TapIndex& index) const {
  const TapCopy& tap = *reader_.tap;
  if (index.rank == 0) return {};
  std::vector<std::string> lines;
  if (index.rank > 2 || slice_.row_axis < 0) lines.push_back(element_text(step, op, tap, index));
  if (const char* why = reader_.gaps.why(tap, index)) {
    lines.emplace_back(why);
  } else {
    const double value = element_at(tap.value, index);
    if (tap.value.dtype == AS_U8) lines.push_back(fmt::format("0x{:02x}", static_cast<int>(value)));
    if (mode_ != TensorMode::kValue) lines.push_back("value " + format_exact(value));
    if (present(tap.reference) && mode_ != TensorMode::kReference) {
      const double reference = element_at(tap.reference, index);
      const bool rounds =
          value != reference && same_when_rounded(value, reference, tap.value.dtype);
      lines.push_back(fmt::format(
          "reference {}{}", format_exact(reference),
          rounds ? fmt::format(" (rounds to the same {})", as_dtype_name(tap.value.dtype)) : ""));
    }
  }
  std::string text;
  for (const std::string& line : lines) text += (text.empty() ? "" : "\n") + line;
  return text;
}

HeatMapData TensorPanel::slice_data(const StepTrace& step, const OpTrace& op) const {
  HeatMapData data;
  data.rows = slice_.rows();
  data.columns = slice_.columns();
  TapReader reader = reader_;
  reader.mode = mode_;
  reader.beyond_rounding = beyond_rounding_;
  const auto shared = std::make_shared<const TapReader>(std::move(reader));
  const TapSlice slice = slice_;
  data.value = [shared, slice](std::int64_t r, std::int64_t c) {
    return shared->value(slice.index(r, c));
  };
  const bool wrapped = slice.row_axis < 0;
  if (wrapped || mode_ == TensorMode::kBefore || reader_.gaps.any()) {
    data.absent = [shared, slice](std::int64_t r, std::int64_t c) {
      return shared->absent(slice.index(r, c));
    };
  }
  // Magnitudes alone (norms' weights, LSE) need no second hue.
  const bool floats = is_float_tensor(reader_.tap->value) && !(scan_.done() && scan_.min >= 0);
  data.is_signed = floats || mode_ == TensorMode::kDifference;
  const TapAxis& columns = axes_[to_size(slice.column_axis)];
  data.column_axis = columns.name;
  if (wrapped) {
    data.row_axis = columns.name;
    data.column_axis = "+";
    data.row_name = [](std::int64_t r) { return std::to_string(r * TapSlice::kWrap); };
  } else {
    data.row_axis = axes_[to_size(slice.row_axis)].name;
    data.row_name = [this, &step, &op, slice](std::int64_t r) {
      return row_name(step, op, slice.row_axis, r);
    };
    data.column_name = [this, &step, &op, slice](std::int64_t c) {
      return row_name(step, op, slice.column_axis, c);
    };
  }
  data.value_name = kTensorModes[to_size(static_cast<int>(mode_))];
  data.note = [this, &step, &op, slice](std::int64_t r, std::int64_t c) {
    return note(step, op, slice.index(r, c));
  };
  data.version = version_ * 16 + static_cast<std::uint64_t>(mode_) * 2 + (beyond_rounding_ ? 1 : 0);
  return data;
}

void TensorPanel::draw_histogram(const HeatMapData& data, ImVec2 size) {
  const bool differences = mode_ == TensorMode::kDifference;
  // Sizes of differences span decades: their logarithm is counted, zeros apart.
  const CellValue value = differences ? CellValue([&](std::int64_t r, std::int64_t c) {
    return std::log10(std::fabs(data.value(r, c)));
  })
                                      : data.value;
  if (counted_ != data.version || counts_.rows() != data.rows ||
      counts_.columns() != data.columns) {
    counts_.start(data.rows, data.columns);
    counted_ = data.version;
  }
  working_ |= !counts_.advance(value, data.absent, ScanClock::now() + kScanTime);
  const MatrixStats& stats = counts_.stats();
  const std::int64_t zeros = stats.negative_inf;
  if (differences) {
    ImGui::TextDisabled("%s", fmt::format("{} cells differ, {} do not", format_count(stats.finite),
                                          format_count(zeros))
                                  .c_str());
    size.y -= ImGui::GetTextLineHeightWithSpacing();
  }
  if (stats.finite == 0) {
    ImGui::TextWrapped("%s", differences ? "No difference to draw: the slice equals the reference."
                                         : "No finite value in this slice.");
    return;
  }
  const double span = std::max(stats.max - stats.min, 1e-9);
  const double bin = span / MatrixScan::kBins;
  std::vector<double> x, y;
  for (int i = 0; i < MatrixScan::kBins; ++i) {
    x.push_back(stats.min + bin * (i + 0.5));
    y.push_back(static_cast<double>(counts_.histogram()[to_size(i)]));
  }
  if (!ImPlot::BeginPlot("##histogram", size, ImPlotFlags_CanvasOnly)) return;
  ImPlot::SetupAxis(ImAxis_X1, differences ? "|difference|, power of ten" : "value");
  ImPlot::SetupAxis(ImAxis_Y1, "elements", ImPlotAxisFlags_LockMin);
  const double most = *std::max_element(y.begin(), y.end());
  ImPlot::SetupAxesLimits(stats.min - bin, stats.max + bin, 0.5, most * 1.6, ImPlotCond_Always);
  ImPlot::SetupAxisScale(ImAxis_Y1, ImPlotScale_Log10);
  ImPlotSpec spec;
  spec.FillColor = ImGui::ColorConvertU32ToFloat4(differences ? theme().warn : theme().accent);
  spec.LineColor = spec.FillColor;
  ImPlot::PlotBars("##bars", x.data(), y.data(), MatrixScan::kBins, bin * 0.9, spec);
  if (ImPlot::IsPlotHovered()) {
    const int i = static_cast<int>((ImPlot::GetPlotMousePos().x - stats.min) / bin);
    if (i >= 0 && i < MatrixScan::kBins) {
      const auto end = [&](double v) { return format_number(differences ? std::pow(10, v) : v); };
      tooltip(fmt::format("{} to {}: {} elements", end(x[to_size(i)] - bin / 2),
                          end(x[to_size(i)] + bin / 2),
                          format_count(counts_.histogram()[to_size(i)])));
    }
  }
  ImPlot::EndPlot();
}

// The picked element from step to step; a click goes to one.
void TensorPanel::draw_history(Ui& ui, const StepTrace& step, ImVec2 size) {
  const auto number = followed_number(NumberKind::kElement,
                                      {*ui.bench.snapshot()->info, &step, ui.bench.cursor(),
                                       ui.bench.selection(), ui.bench.selected_row(), reader_.tap});
  if (!number) {
    empty_state(ui, number.error().text());
    return;
  }
  history_.refresh(ui.bench, *number);
  ImGui::TextWrapped("%s", history_.sentence(ui.bench).c_str());
  command_button(ui, "history.element", "Show in History");
  size.y = std::max(px(60), ImGui::GetContentRegionAvail().y);
  if (const auto chosen = plot_.draw(history_.values(), history_.version(), NumberKind::kElement,
                                     ui.bench.cursor().step, size)) {
    ui.bench.go_to({*chosen, number->place.layer, number->place.op});
  }
  working_ |= history_.reading();
}

void TensorPanel::draw_slice(Ui& ui, const StepTrace& step, const OpTrace& op, ImVec2 size) {
  const HeatMapData data = slice_data(step, op);
  if (copy_) {
    copy_ = false;
    const auto name = [](const auto& f, std::int64_t i) { return f ? f(i) : std::to_string(i); };
    const std::string csv = slice_csv(
        data.rows, data.columns, data.value, data.absent,
        [&](std::int64_t r) { return name(data.row_name, r); },
        [&](std::int64_t c) { return name(data.column_name, c); }, kMostCopied);
    ImGui::SetClipboardText(csv.c_str());
    const std::int64_t rows =
        std::min(data.rows,
                 std::max<std::int64_t>(1, kMostCopied / std::max<std::int64_t>(1, data.columns)));
    ui.bench.say(Message::Kind::kInfo,
                 fmt::format("copied {} of {} of {} {} as CSV", format_count(rows),
                             plural(data.rows, "row", "rows"), reader_.tap->name, data.value_name));
  }
  const CellAt chosen = slice_.cell(focus(ui, step, op));
  HeatMapEvents events;
  if (shape_ == 0) {
    events = map_.draw("##heat", data, size, chosen.row, chosen.column);
    working_ |= map_.busy();
  } else if (shape_ == 1) {
    events = grid_.draw("##numbers", data, size, chosen.row, chosen.column);
  } else if (shape_ == 2) {
    draw_histogram(data, size);
  } else {
    draw_history(ui, step, size);
  }
  if (!events.clicked) return;
  const TapIndex index = slice_.index(events.row, events.column);
  if (index.rank > 0) select(ui.bench, step, op, index);
}

void TensorPanel::draw(Ui& ui) {
  working_ = false;
  const Snapshot* snapshot = ui.bench.snapshot();
  if (snapshot == nullptr) {
    empty_state(ui, "No session yet: its first picture has not arrived.");
    return;
  }
  const StepTrace* step = ui.bench.step();
  const OpTrace* op = ui.bench.op();
  if (step == nullptr || op == nullptr) {
    empty_state(ui,
                step == nullptr ? no_trace(ui.bench, "there is no tensor to show")
                                : "The tensors of this op are not kept.",
                "op.forward");
    return;
  }
  if (ui.bench.landed() != landed_) {  // on something wrong: its difference, at the element
    landed_ = ui.bench.landed();
    mode_ = TensorMode::kDifference;
    shape_ = 0;
    map_.zoom_to_selected();
  }
  const TapCopy* tap = ui.bench.selected_tap();
  if (tap == nullptr || tap->value.rank == 0) {
    empty_state(ui, fmt::format("{} has no tensor taps.", as_op_find(op->place.op)->name),
                "op.forward");
    return;
  }
  refresh(ui, *step, *op, *tap);
  working_ |= !scan_.advance(ScanClock::now() + kScanTime);
  const TapResult* result = tap->output ? op->result(tap->name) : nullptr;
  std::string text = tensor_sentence(*step, *op, *tap, scan_, worst_);
  const std::string heads = kv_head_text(*snapshot->info, *op, *tap, ui.bench.selection().head);
  if (!heads.empty() && text.ends_with('.')) text.pop_back();
  sentence(heads.empty() ? text : text + heads + ".",
           result ? result->verdict : Verdict::kNotCompared);
  chips(ui, *step, *op);

  int mode = static_cast<int>(mode_);
  if (segmented("##view", &mode, kTensorModes.data(), static_cast<int>(kTensorModes.size()))) {
    ui.run(fmt::format("tensor.view={}", kTensorModes[to_size(mode)]));
  }
  same_line_for(button_width(kShapes[0]), px(14));
  int shape = shape_;
  if (segmented("##as", &shape, kShapes.data(), static_cast<int>(kShapes.size()))) {
    ui.run(fmt::format("tensor.as={}", kShapeNames[to_size(shape)]));
  }
  same_line_for(button_width(icon::kCopy), px(14));
  command_button(ui, "tensor.copy", icon::kCopy);
  // What follows stays on the line where there is room.
  const auto flow = [](float width) {
    const float used = ImGui::GetItemRectMax().x - ImGui::GetWindowPos().x;
    if (ImGui::GetWindowWidth() - used > width) ImGui::SameLine(0, px(14));
  };
  if (mode_ == TensorMode::kDifference) {
    flow(px(160));
    ImGui::Checkbox("beyond rounding", &beyond_rounding_);
    if (ImGui::IsItemHovered()) {
      tooltip(
          "Elements that are the reference rounded to their type count as no difference.\n"
          "Off: the plain difference to the float64 reference.");
    }
    if (worst_.rank > 0) {
      flow(px(90));
      command_button(ui, "tensor.largest", "Worst");
    }
  }
  if (tap->value.rank > 2) flow(px(320));
  axis_choosers(ui, *step, *op);
  if (const std::string why = why_not(reader_, ui.bench.step_before(), mode_); !why.empty()) {
    empty_state(ui, why);
    return;
  }
  const ImVec2 space = ImGui::GetContentRegionAvail();
  draw_slice(ui, *step, *op, {space.x, std::max(space.y, px(60))});
}

}  // namespace

std::unique_ptr<Panel> make_tensor_panel() { return std::make_unique<TensorPanel>(); }

}  // namespace attnscope::gui
