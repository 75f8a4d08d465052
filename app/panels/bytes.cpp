// Bytes: one cache row decoded, written by the op under the cursor or lying in the selected block.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <span>

#include "app/gui/data_table.h"
#include "app/gui/theme.h"
#include "app/gui/widgets.h"
#include "app/panels/panels.h"
#include "app/text/format.h"
#include "app/views/bytes_view.h"
#include "app/views/linkage.h"
#include "app/views/state_row.h"
#include "app/views/tensor_view.h"
#include "engine/model/numbers.h"
#include "kernels/params/row_format.h"

namespace attnscope::gui {
namespace {

constexpr const char* kSources[] = {"rows of this op", "selected block"};
constexpr const char* kForms[] = {"hex", "codes", "values"};

// Ops of the model's layers that write cache rows, in their order.
std::vector<std::string> row_writers(const SessionInfo& info) {
  std::vector<std::string> names;
  for (const std::vector<as_op_id>& layer : info.ops) {
    for (const as_op_id op : layer) {
      const std::string name = as_op_find(op)->name;
      if (as_op_role(op) == AS_ROLE_CACHE_WRITE && std::ranges::count(names, name) == 0) {
        names.push_back(name);
      }
    }
  }
  return names;
}

class BytesPanel : public Panel {
 public:
  BytesPanel() : Panel("bytes", "Bytes") { scales_.least_width = 480; }
  void register_commands(Ui& ui) override;
  void draw(Ui& ui) override;
  bool scrolls() const override { return false; }

 private:
  // One row with all that is known about it.
  struct Row {
    std::vector<std::uint8_t> bytes, reference;
    std::vector<double> before;
    std::vector<float> beside;  // scales beside the cache
    std::int32_t record = AS_RECORD_NONE, width = 0, heads = 1;
    int entries = 0;  // of a state: into which a token is pooled
    std::string place;
    RecordBytes view() const { return {record, width, bytes, heads, beside}; }
    RecordBytes reference_view() const { return {record, width, reference, heads, beside}; }
  };

  void follow(const Ui& ui, const OpTrace* op);
  void find_in_op(const Ui& ui, const StepTrace* step, const OpTrace* op);
  void find_in_block(const Ui& ui);
  // needs: of a capture; what it does not hold is said in its place.
  void say_why(std::string why, std::string command = {},
               CaptureLevel needs = CaptureLevel::kFull) {
    why_ = std::move(why);
    help_ = std::move(command);
    needs_ = needs;
  }
  std::string page_name(const SessionInfo& info, int page) const;
  void choose_token(Ui& ui, const StepTrace& step);
  void choose_page(Ui& ui);
  void set(Row row);
  void element_line(Ui& ui);
  struct Grid {
    ImVec2 origin;
    float gutter = 0, wide = 0, high = 0;          // of the places at the left, of a cell
    std::int64_t count = 0, line = 64, lines = 0;  // cells, cells a line
    ImVec2 corner(std::int64_t i) const {
      const std::int64_t above = i / line;
      return {origin.x + gutter + static_cast<float>(i % line) * wide,
              origin.y + static_cast<float>(above) * high};
    }
    ImVec2 far_corner(std::int64_t i) const { return {corner(i).x + wide, corner(i).y + high}; }
  };

  Grid grid() const;
  void draw_cells(Ui& ui, ImVec2 size);
  void draw_lines(const Grid& g) const;
  void hover_cell(Ui& ui, const Grid& g);
  void draw_cell(std::int64_t dim_or_byte, ImVec2 min, ImVec2 max, double largest) const;
  bool differs(std::int64_t first, std::int64_t length) const;
  void draw_scales(Ui& ui, ImVec2 size);
  void draw_parts(Ui& ui, ImVec2 size);
  static void select_dim(Ui& ui, std::int64_t dim);

  int source_ = 0, form_ = 0;
  int page_ = 0;  // of the block's group
  std::shared_ptr<const Snapshot> held_;
  std::string why_;   // nothing can be shown
  std::string help_;  // command that would change that
  CaptureLevel needs_ = CaptureLevel::kFull;
  const RowsCopy* rows_ = nullptr;     // source 0, of held_
  const OpTrace* rows_op_ = nullptr;   // that wrote them
  const CacheGroup* group_ = nullptr;  // source 1, of held_
  std::int64_t index_ = 0;             // row of rows_ or of the block
  std::int32_t seen_block_ = -1;
  std::string seen_tap_;
  Row row_;
  RecordStats stats_;
  double largest_ = 0;  // |value|
  std::vector<ScaleGroup> groups_;
  std::vector<StatePart> parts_;  // of a state row
  std::uint64_t version_ = 0;
  std::int64_t shown_dim_ = -1;
  DataTable scales_;
};

void BytesPanel::register_commands(Ui& ui) {
  const auto add = [&](const char* id, const char* title, const char* help, int* target,
                       const std::vector<std::string>& names, const char* argument) {
    ui.commands.add({.id = id,
                     .title = title,
                     .group = "View",
                     .help = help,
                     .shortcut = "",
                     .argument = argument,
                     .run = [target, names, id](std::string_view value) -> Result<void> {
                       std::string allowed;
                       for (std::size_t i = 0; i < names.size(); ++i) {
                         if (value == names[i]) {
                           *target = static_cast<int>(i);
                           return {};
                         }
                         allowed += (i == 0 ? "" : ", ") + names[i];
                       }
                       return usage_error(fmt::format("{}: unknown value '{}'", id, value),
                                          "allowed: " + allowed);
                     },
                     .in_menu = false});
  };
  add("bytes.source", "Bytes: of ..", "Whose cache rows the bytes panel decodes.", &source_,
      {"op", "block"}, "op|block");
  add("bytes.form", "Bytes: as ..", "How the bytes panel shows a row.", &form_,
      {"hex", "codes", "values"}, "hex|codes|values");
}

void BytesPanel::select_dim(Ui& ui, std::int64_t dim) {
  Selection selection = ui.bench.selection();
  selection.dim = dim;
  ui.bench.select(selection);
}

// A newly picked block or cache tap is what the user wants to see.
void BytesPanel::follow(const Ui& ui, const OpTrace* op) {
  const Selection& selection = ui.bench.selection();
  if (selection.block != seen_block_ && selection.block >= 0) source_ = 1;
  if (selection.tap != seen_tap_ && op != nullptr && op->cache_rows(selection.tap)) source_ = 0;
  seen_block_ = selection.block;
  seen_tap_ = selection.tap;
}

void BytesPanel::set(Row row) {
  if (row.bytes == row_.bytes && row.reference == row_.reference && row.place == row_.place &&
      row.record == row_.record && row.heads == row_.heads &&
      row.before.size() == row_.before.size() && version_ > 0) {
    return;
  }
  row_ = std::move(row);
  ++version_;
  stats_ = record_stats(row_.view(), row_.reference, row_.before);
  groups_ = scale_groups(row_.view());
  parts_ = state_parts(row_.view(), row_.entries);
  largest_ = 0;
  for (std::int64_t d = 0; d < row_.width; ++d) {
    const double value = decode_element(row_.view(), d).value;
    if (std::isfinite(value)) largest_ = std::max(largest_, std::fabs(value));
  }
}

// The row of the selected token, else the last one written before it.
void BytesPanel::find_in_op(const Ui& ui, const StepTrace* step, const OpTrace* op) {
  if (step == nullptr || op == nullptr)
    return say_why("The rows of this op are not kept.", "op.forward");
  const char* name = as_op_find(op->place.op)->name;
  std::string writer;
  if (moves_blocks(op->place.op)) {
    return say_why(fmt::format("{} moves whole blocks, whatever their rows are: pick one in the "
                               "pool map, or see its tap staged.",
                               name),
                   "panel.pool", CaptureLevel::kSummary);
  }
  if (op->rows.empty()) {
    // An op that writes none mostly reads the row that was written for the token in its layer.
    const OpTrace* insert = step->find_role(op->place.layer, AS_ROLE_CACHE_WRITE);
    if (insert != nullptr && !insert->rows.empty() && !insert->rows.front().tokens.empty()) {
      op = insert;
      writer = fmt::format(" (of {})", as_op_find(op->place.op)->name);
    }
  }
  if (op->rows.empty()) {
    const SessionInfo& info = *ui.bench.snapshot()->info;
    const int layer = op->place.layer >= 0 ? op->place.layer : info.config.layers.front();
    const std::vector<std::string> writers = row_writers(info);
    if (writers.empty()) {
      return say_why("The model has no caches: no op writes rows, and no block has bytes.");
    }
    return say_why(fmt::format("{} writes no cache rows. Those that do: {}. Or pick a block in the "
                               "pool map.",
                               name, fmt::join(writers, ", ")),
                   fmt::format("cursor.goto={}/{}/{}", step->step, layer, writers.front()));
  }
  rows_op_ = op;
  rows_ = op->cache_rows(ui.bench.selection().tap);
  if (rows_ == nullptr) rows_ = &op->rows.front();
  if (rows_->tokens.empty()) {
    return say_why(
        fmt::format("{} wrote no row in this step: its tokens completed no entry.", name),
        "step.forward");
  }
  const auto after = std::upper_bound(rows_->tokens.begin(), rows_->tokens.end(),
                                      static_cast<std::int32_t>(ui.bench.selected_row()));
  index_ = std::max<std::int64_t>(0, after - rows_->tokens.begin() - 1);
  const std::int64_t n = rows_->row_bytes, i = index_;
  Row row;
  row.record = rows_->record;
  row.width = rows_->width;
  row.heads = rows_->heads;
  row.entries = entries_of_token(*ui.bench.snapshot()->info, op->place.layer);
  row.bytes.assign(rows_->bytes.begin() + i * n, rows_->bytes.begin() + (i + 1) * n);
  if (!rows_->reference.empty()) {
    row.reference.assign(rows_->reference.begin() + i * n, rows_->reference.begin() + (i + 1) * n);
  }
  row.before = values_before(*step, *op, *rows_, i);
  row.beside = scales_beside_cache(*step, op->place.layer, rows_->name);
  row.place = fmt::format("Row of token {}{}, {}", token_label(*step, rows_->tokens[to_size(i)]),
                          writer, slot_text(rows_->slots[to_size(i)], rows_->rows_per_block));
  set(std::move(row));
}

void BytesPanel::find_in_block(const Ui& ui) {
  const Selection& selection = ui.bench.selection();
  const SessionInfo& info = *ui.bench.snapshot()->info;
  if (selection.block < 0) {
    return say_why("No block is picked: click one in the pool map or in a block table.",
                   "panel.pool");
  }
  if (selection.block == AS_NULL_BLOCK) {
    return say_why("Block 0 is the null block: unmapped, nobody writes or reads it.");
  }
  ui.bench.request_block(selection.block);
  const std::shared_ptr<const BlockBytes> block = ui.bench.block_bytes();
  if (block == nullptr || block->block != selection.block) {
    if (ui.bench.capture() == nullptr) {
      return say_why(fmt::format("Reading block {} ..", selection.block));
    }
    return say_why(
        fmt::format("This capture has no bytes of block {} at or before this step: "
                    "'attnscope record --cache-at STEPS' keeps those of blocks in use.",
                    selection.block));
  }
  // Who holds it is said of the step that is shown, as everywhere; the bytes may be later ones.
  const StepTrace* step = ui.bench.step();
  const bool known = step != nullptr && to_size(selection.block) < step->owners.size();
  const BlockOwner& shown = known ? step->owners[to_size(selection.block)] : block->owner;
  std::string state = known ? block_state(info, *step, selection.block) : owner_state(info, shown);
  if (known && block->after != step->step) {
    state += fmt::format("; bytes as after step {}, when it was {}", block->after,
                         owner_state(info, block->owner));
  }
  const std::int32_t group = block->owner.group >= 0 ? block->owner.group
                             : shown.group >= 0      ? shown.group
                                                     : selection.group;
  if (group < 0 || to_size(group) >= info.layout.groups.size()) {
    return say_why(
        fmt::format("Block {} is {}: it belongs to no group, so its bytes stand for "
                    "nothing.",
                    selection.block, state));
  }
  group_ = &info.layout.groups[to_size(group)];
  page_ = std::clamp(page_, 0, static_cast<int>(group_->specs.size()) - 1);
  const CacheSpec& spec = info.layout.specs[to_size(group_->specs[to_size(page_)])];
  index_ = std::clamp(selection.row, 0, spec.rows_per_block - 1);
  Row row;
  row.record = spec.record;
  row.width = spec.width;
  row.heads = spec.num_kv_heads;
  row.entries = entries_of_token(info, info.config.layers[to_size(spec.layer)]);
  row.bytes = row_of_page(spec, block->bytes, static_cast<std::int32_t>(index_));
  if (step != nullptr) {
    const int layer = info.config.layers[to_size(spec.layer)];
    row.beside = scales_beside_cache(*step, layer, spec.name + "_cache");
  }
  row.place = fmt::format("Block {} ({}, {}), {}, row {}", selection.block, group_->name, state,
                          page_name(info, page_), index_);
  if (row.bytes.empty()) {
    return say_why(fmt::format("Block {} is shorter than this page.", selection.block));
  }
  set(std::move(row));
}

std::string BytesPanel::page_name(const SessionInfo& info, int page) const {
  const CacheSpec& spec = info.layout.specs[to_size(group_->specs[to_size(page)])];
  return fmt::format("layer {} \xc2\xb7 {}", info.config.layers[to_size(spec.layer)], spec.name);
}

void BytesPanel::choose_token(Ui& ui, const StepTrace& step) {
  const std::int64_t zero = 0, last = static_cast<std::int64_t>(rows_->tokens.size()) - 1;
  const std::string label = token_label(step, rows_->tokens[to_size(index_)]);
  same_line_for(ImGui::CalcTextSize("token").x + ImGui::GetStyle().ItemSpacing.x + px(110), px(14));
  ImGui::AlignTextToFramePadding();
  ImGui::TextDisabled("token");
  ImGui::SameLine();
  if (last == 0) return ImGui::TextUnformatted(label.c_str());
  std::int64_t i = index_;
  ImGui::SetNextItemWidth(px(110));
  if (ImGui::SliderScalar("##token", ImGuiDataType_S64, &i, &zero, &last, label.c_str(),
                          ImGuiSliderFlags_AlwaysClamp)) {
    const std::int64_t row = rows_->tokens[to_size(i)];
    ui.bench.select_token(step.request_of(row), step.metadata.positions[to_size(row)]);
  }
}

void BytesPanel::choose_page(Ui& ui) {
  const SessionInfo& info = *ui.bench.snapshot()->info;
  const CacheSpec& spec = info.layout.specs[to_size(group_->specs[to_size(page_)])];
  same_line_for(px(140), px(14));
  ImGui::SetNextItemWidth(px(140));
  if (ImGui::BeginCombo("##page", page_name(info, page_).c_str())) {
    for (int i = 0; i < static_cast<int>(group_->specs.size()); ++i) {
      if (ImGui::Selectable(page_name(info, i).c_str(), i == page_)) page_ = i;
    }
    ImGui::EndCombo();
  }
  if (ImGui::IsItemHovered()) {
    tooltip(fmt::format("whose page: {} bytes from offset {} of the block", spec.page_bytes,
                        spec.offset));
  }
  const std::int64_t zero = 0, last = spec.rows_per_block - 1;
  std::int64_t row = index_;
  same_line_for(px(110));
  ImGui::SetNextItemWidth(px(110));
  if (ImGui::SliderScalar("##row", ImGuiDataType_S64, &row, &zero, &last, "row %lld",
                          ImGuiSliderFlags_AlwaysClamp)) {
    Selection changed = ui.bench.selection();
    changed.row = static_cast<std::int32_t>(row);
    ui.bench.select(changed);
  }
}

void BytesPanel::element_line(Ui& ui) {
  const std::int64_t last = row_.width - 1, zero = 0;
  std::int64_t dim = std::clamp<std::int64_t>(ui.bench.selection().dim, 0, last);
  ImGui::SetNextItemWidth(px(120));
  if (ImGui::SliderScalar("##dim", ImGuiDataType_S64, &dim, &zero, &last, "dim %lld",
                          ImGuiSliderFlags_AlwaysClamp)) {
    select_dim(ui, dim);
  }
  std::string text = element_words(decode_element(row_.view(), dim));
  if (const std::string part = state_words(parts_, dim); !part.empty()) text += ", " + part;
  if (!row_.before.empty()) {
    text += fmt::format("; before quantisation {}", format_number(row_.before[to_size(dim)]));
  }
  if (!row_.reference.empty()) {
    const std::string reference = element_words(decode_element(row_.reference_view(), dim));
    const ElementBytes e = bytes_of_dim(row_.record, row_.width, dim, row_.heads);
    const std::int64_t length =
        field_of_byte(row_.record, row_.width, e.payload, row_.heads).length;
    const bool other = differs(e.payload, length) || (e.scale >= 0 && differs(e.scale, 1));
    text += other ? "; ref.sim " + reference : std::string("; ref.sim the same");
  }
  ImGui::SameLine();
  if (ImGui::GetContentRegionAvail().x < px(260)) ImGui::NewLine();
  ImGui::PushFont(numbers(), 0);
  ImGui::PushTextWrapPos(0);
  ImGui::TextUnformatted(text.c_str());
  ImGui::PopTextWrapPos();
  ImGui::PopFont();
}

bool BytesPanel::differs(std::int64_t first, std::int64_t length) const {
  if (row_.reference.empty()) return false;
  return !std::equal(row_.bytes.begin() + first, row_.bytes.begin() + first + length,
                     row_.reference.begin() + first);
}

// A byte in hex, an element otherwise.
void BytesPanel::draw_cell(std::int64_t i, ImVec2 min, ImVec2 max, double largest) const {
  ImDrawList* list = ImGui::GetWindowDrawList();
  const Theme& t = theme();
  const RecordBytes view = row_.view();
  const std::int64_t byte =
      form_ == 0 ? i : bytes_of_dim(view.record, view.width, i, view.heads).payload;
  const ByteField field = field_of_byte(view.record, view.width, byte, view.heads);
  std::string text;
  ImU32 back = t.surface, colour = t.text;
  if (form_ == 0) text = fmt::format("{:02x}", view.bytes[to_size(i)]);
  if (field.kind == AS_FIELD_PADDING) {
    colour = t.text_faint;
  } else if (field.kind != AS_FIELD_ELEMENT) {
    back = t.raised;
  } else {
    const DecodedElement e = decode_element(view, form_ == 0 ? field.dim : i);
    if (form_ == 1) text = format_number(e.code_value);
    if (form_ == 2) text = format_number(e.value);
    if (std::isnan(e.value)) {
      back = t.nan_cell;
    } else if (e.zero && form_ != 0) {
      colour = t.text_faint;
    } else if (largest > 0 && std::isfinite(e.value)) {
      back = signed_colour(static_cast<float>(e.value / largest));
    }
    if (back != t.surface) colour = text_on(back);
    if (e.saturated) list->AddRect(min, max, t.warn, 0, px(1.5f));
  }
  const ImVec2 low{min.x + 1, min.y + 1}, high{max.x - 1, max.y - 1};
  list->AddRectFilled(low, high, back);
  draw_cell_text(list, low, high, colour, text);
  const std::int64_t length = form_ == 0 ? 1 : field.length;
  if (differs(byte, length)) list->AddRect(low, high, t.bad, 0, px(2));
}

// Where the cells lie, in the window that is being drawn.
BytesPanel::Grid BytesPanel::grid() const {
  Grid g;
  g.count = form_ == 0 ? static_cast<std::int64_t>(row_.bytes.size()) : std::int64_t{row_.width};
  g.wide = ImGui::CalcTextSize(form_ == 0 ? "00" : "-1.234e-05").x + px(8);
  g.high = ImGui::GetTextLineHeight() + px(4);
  g.gutter = ImGui::CalcTextSize("00000").x + px(6);
  const float room = ImGui::GetContentRegionAvail().x;
  while (g.line > 4 && g.gutter + g.wide * static_cast<float>(g.line) > room) g.line /= 2;
  g.lines = (g.count + g.line - 1) / g.line;
  g.origin = ImGui::GetCursorScreenPos();
  return g;
}

void BytesPanel::draw_cells(Ui& ui, ImVec2 size) {
  if (!ImGui::BeginChild("##cells", size)) {
    ImGui::EndChild();
    return;
  }
  ImGui::PushFont(numbers(), 0);
  const Grid g = grid();
  const std::int64_t dim = std::clamp<std::int64_t>(ui.bench.selection().dim, 0, row_.width - 1);
  const ElementBytes chosen = bytes_of_dim(row_.record, row_.width, dim, row_.heads);
  const std::int64_t chosen_cell = form_ == 0 ? chosen.payload : dim;
  if (dim != shown_dim_) {
    const std::int64_t above = chosen_cell / g.line;
    const float y = static_cast<float>(above) * g.high;
    if (y < ImGui::GetScrollY() || y + g.high > ImGui::GetScrollY() + ImGui::GetWindowHeight()) {
      ImGui::SetScrollY(std::max(0.0f, y - ImGui::GetWindowHeight() / 2));
    }
    shown_dim_ = dim;
  }
  draw_lines(g);
  ImDrawList* list = ImGui::GetWindowDrawList();
  draw_selected(list, g.corner(chosen_cell), g.far_corner(chosen_cell));
  if (form_ == 0 && chosen.scale >= 0) {
    draw_selected(list, g.corner(chosen.scale), g.far_corner(chosen.scale));
  }
  ImGui::InvisibleButton("##bytes", {g.gutter + g.wide * static_cast<float>(g.line),
                                     g.high * static_cast<float>(g.lines)});
  if (ImGui::IsItemHovered()) hover_cell(ui, g);
  ImGui::PopFont();
  ImGui::EndChild();
}

// The lines that are scrolled to, each with the place of its first cell.
void BytesPanel::draw_lines(const Grid& g) const {
  const auto first = static_cast<std::int64_t>(std::max(0.0f, ImGui::GetScrollY() / g.high));
  const auto end = std::min<std::int64_t>(
      g.lines, first + static_cast<std::int64_t>(ImGui::GetWindowHeight() / g.high) + 2);
  ImDrawList* list = ImGui::GetWindowDrawList();
  for (std::int64_t y = first; y < end; ++y) {
    const std::string offset =
        form_ == 0 ? fmt::format("{:04x}", y * g.line) : std::to_string(y * g.line);
    const float width = ImGui::CalcTextSize(offset.c_str()).x;
    list->AddText({g.origin.x + g.gutter - px(6) - width, g.corner(y * g.line).y + px(2)},
                  theme().text_faint, offset.c_str());
    for (std::int64_t i = y * g.line; i < std::min(g.count, (y + 1) * g.line); ++i) {
      draw_cell(i, g.corner(i), g.far_corner(i), largest_);
    }
  }
}

void BytesPanel::hover_cell(Ui& ui, const Grid& g) {
  const ImVec2 mouse = ImGui::GetMousePos();
  const auto x = static_cast<std::int64_t>(std::floor((mouse.x - g.origin.x - g.gutter) / g.wide));
  const auto y = static_cast<std::int64_t>((mouse.y - g.origin.y) / g.high);
  const std::int64_t i = y * g.line + x;
  if (x < 0 || x >= g.line || i < 0 || i >= g.count) return;
  draw_hovered(ImGui::GetWindowDrawList(), g.corner(i), g.far_corner(i));
  const std::int64_t byte =
      form_ == 0 ? i : bytes_of_dim(row_.record, row_.width, i, row_.heads).payload;
  const ByteField field = field_of_byte(row_.record, row_.width, byte, row_.heads);
  std::string text = field_words(row_.view(), byte);
  if (const std::string part = state_words(parts_, field.dim); !part.empty()) text += "\n" + part;
  if (!row_.reference.empty()) {
    text += differs(field.first, field.length)
                ? "\nref.sim: " + field_words(row_.reference_view(), byte)
                : "\nref.sim has the same";
  }
  tooltip(text);
  if (ImGui::IsItemClicked() && field.dim >= 0) {
    shown_dim_ = form_ == 0 ? field.dim : i;
    select_dim(ui, shown_dim_);
  }
}

void BytesPanel::draw_scales(Ui& ui, ImVec2 size) {
  scales_.begin(version_);
  if (scales_.stale()) {
    scales_.columns({{"dims", true, 1, "The elements that share this scale."},
                     {"byte", true, 0.7f, "Where the scale lies in the row."},
                     {"scale", true, 0.8f, "A power of two."},
                     {"exact", true, 1.2f},
                     {"largest |value|", true, 1.1f},
                     {"saturated", true, 0.9f, "Codes at the largest magnitude there is."},
                     {"zeros", true, 0.8f, "Elements whose code is 0."}});
    for (const ScaleGroup& g : groups_) {
      const auto number = [](std::int64_t n) {
        return TableCell{format_count(n), 0, static_cast<double>(n), true};
      };
      TableCell saturated = number(g.saturated);
      if (g.saturated > 0) saturated.colour = theme().warn;
      const double scale = std::ldexp(1.0, g.exponent);
      scales_.row({{fmt::format("{}-{}", g.first_dim, g.first_dim + g.dims - 1), 0,
                    static_cast<double>(g.first_dim), true},
                   number(g.byte),
                   {fmt::format("2^{}", g.exponent), 0, static_cast<double>(g.exponent), true},
                   {format_number(scale), 0, scale, true, format_exact(scale)},
                   {format_number(g.largest), 0, g.largest, true, format_exact(g.largest)},
                   saturated,
                   number(g.zeros)},
                  g.first_dim);
    }
  }
  const std::int64_t dim = ui.bench.selection().dim;
  std::int64_t selected = -1;
  for (const ScaleGroup& g : groups_) {
    if (dim >= g.first_dim && dim < g.first_dim + g.dims) selected = g.first_dim;
  }
  if (const auto key = scales_.draw("##scales", size, selected, false)) select_dim(ui, *key);
}

void BytesPanel::draw_parts(Ui& ui, ImVec2 size) {
  scales_.begin(version_);
  if (scales_.stale()) {
    scales_.columns({{"part", false, 2, "C is pooled, weighted by softmax over the scores Z."},
                     {"values", true, 1, "Their place in the row."},
                     {"bytes", true, 1},
                     {"largest |value|", true, 1.1f}});
    for (const StatePart& p : parts_) {
      const auto first = static_cast<double>(p.first);
      scales_.row({{p.name, 0, first, false},
                   {fmt::format("{}-{}", p.first, p.first + p.width - 1), 0, first, true},
                   {fmt::format("{}-{}", 4 * p.first, 4 * (p.first + p.width) - 1), 0, first, true},
                   {format_number(p.largest), 0, p.largest, true, format_exact(p.largest)}},
                  p.first);
    }
  }
  const std::int64_t dim = ui.bench.selection().dim;
  std::int64_t selected = -1;
  for (const StatePart& p : parts_) {
    if (dim >= p.first && dim < p.first + p.width) selected = p.first;
  }
  if (const auto key = scales_.draw("##parts", size, selected, false)) select_dim(ui, *key);
}

void BytesPanel::draw(Ui& ui) {
  if (ui.bench.snapshot() == nullptr) {
    empty_state(ui, "No session yet: its first picture has not arrived.");
    return;
  }
  const StepTrace* step = ui.bench.step();
  const OpTrace* op = ui.bench.op();
  follow(ui, op);
  held_ = ui.bench.shared_snapshot();
  why_.clear();
  const bool no_rows = op == nullptr || op->rows.empty();
  const int source = no_rows && ui.bench.selection().block >= 0 ? 1 : source_;
  source == 0 ? find_in_op(ui, step, op) : find_in_block(ui);
  if (why_.empty()) {
    const TapResult* result = source == 0 ? rows_op_->result(rows_->name) : nullptr;
    const Verdict verdict = result == nullptr || stats_.differing < 0 ? Verdict::kNotCompared
                            : stats_.differing == 0                   ? Verdict::kEqual
                                                                      : result->verdict;
    sentence(bytes_sentence(row_.view(), stats_, row_.place), verdict);
  }
  int chosen = source;
  if (segmented("##source", &chosen, kSources, 2)) {
    ui.run(chosen == 0 ? "bytes.source=op" : "bytes.source=block");
  }
  if (why_.empty()) source == 0 ? choose_token(ui, *step) : choose_page(ui);
  if (!why_.empty()) {
    empty_state(ui, why_, help_, needs_);
    return;
  }
  int form = form_;
  if (segmented("##form", &form, kForms, 3)) {
    ui.run(fmt::format("bytes.form={}", kForms[to_size(form)]));
  }
  ImGui::SameLine(0, px(14));
  element_line(ui);
  const ImVec2 space = ImGui::GetContentRegionAvail();
  const float row = ImGui::GetTextLineHeightWithSpacing() + px(2);
  const std::size_t lines = std::max(groups_.size(), parts_.size());
  const float table = lines == 0 ? 0
                                 : std::min(row * static_cast<float>(lines + 1) +
                                                ImGui::GetFrameHeightWithSpacing() + px(8),
                                            space.y * 0.45f);
  draw_cells(ui, {space.x, std::max(px(60), space.y - table - ImGui::GetStyle().ItemSpacing.y)});
  if (table <= 0) return;
  parts_.empty() ? draw_scales(ui, {space.x, table}) : draw_parts(ui, {space.x, table});
}

}  // namespace

std::unique_ptr<Panel> make_bytes_panel() { return std::make_unique<BytesPanel>(); }

}  // namespace attnscope::gui
