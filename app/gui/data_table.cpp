#include "app/gui/data_table.h"

#include <fmt/format.h>
#include <imgui_internal.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <utility>

#include "app/gui/icons.h"
#include "app/gui/widgets.h"
#include "app/text/format.h"
#include "engine/io/letters.h"

namespace attnscope::gui {
namespace {

constexpr ImGuiTableFlags kTableFlags =
    ImGuiTableFlags_Sortable | ImGuiTableFlags_SortTristate | ImGuiTableFlags_RowBg |
    ImGuiTableFlags_BordersInnerV | ImGuiTableFlags_BordersOuter | ImGuiTableFlags_Resizable |
    ImGuiTableFlags_Reorderable | ImGuiTableFlags_Hideable | ImGuiTableFlags_ScrollY |
    ImGuiTableFlags_SizingStretchProp | ImGuiTableFlags_NoSavedSettings;

// By the window's id; tables of panels live as long as these.
std::map<ImGuiID, const DataTable*>& drawn_tables() {
  static std::map<ImGuiID, const DataTable*> tables;
  return tables;
}

const std::string& exact_text(const TableCell& cell) {
  return cell.exact.empty() ? cell.text : cell.exact;
}

// "layer 2" before "layer 10": runs of digits compare as numbers.
int natural_order(std::string_view a, std::string_view b) {
  const auto digit = [](char c) { return c >= '0' && c <= '9'; };
  std::size_t i = 0, j = 0;
  while (i < a.size() && j < b.size()) {
    if (digit(a[i]) && digit(b[j])) {
      while (i + 1 < a.size() && a[i] == '0' && digit(a[i + 1])) ++i;
      while (j + 1 < b.size() && b[j] == '0' && digit(b[j + 1])) ++j;
      std::size_t m = i, n = j;
      while (m < a.size() && digit(a[m])) ++m;
      while (n < b.size() && digit(b[n])) ++n;
      if (m - i != n - j) return m - i < n - j ? -1 : 1;
      if (const int order = a.substr(i, m - i).compare(b.substr(j, n - j)); order != 0) {
        return order;
      }
      i = m;
      j = n;
      continue;
    }
    const char x = lower(a[i++]), y = lower(b[j++]);
    if (x != y) return static_cast<unsigned char>(x) < static_cast<unsigned char>(y) ? -1 : 1;
  }
  return static_cast<int>(i < a.size()) - static_cast<int>(j < b.size());
}

// Without a number, or NaN: neither small nor large.
bool has_order(const TableCell& cell) { return cell.has_number && !std::isnan(cell.number); }

struct Words {
  std::vector<std::string> wanted, unwanted;
};

Words split(std::string_view filter) {
  Words words;
  const std::string text = lower(filter);
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find(' ', at), text.size());
    if (const std::string word = text.substr(at, end - at); word.size() > 1 && word[0] == '-') {
      words.unwanted.push_back(word.substr(1));
    } else if (!word.empty()) {
      words.wanted.push_back(word);
    }
    at = end + 1;
  }
  return words;
}

// What the filter looks at: shown and exact texts of all cells.
std::string row_text(const std::vector<TableCell>& cells) {
  std::string text;
  for (const TableCell& cell : cells) {
    text += lower(cell.text) + '\n';
    if (!cell.exact.empty()) text += lower(cell.exact) + '\n';
  }
  return text;
}

constexpr float kLongText = -1;  // the width of a column whose cells say most with their beginning

float text_wide(std::string_view text) {
  return ImGui::CalcTextSize(text.data(), text.data() + text.size()).x;
}

// A title on two lines, broken where the wider of them is narrowest; one that has no space is on
// the first alone.
struct TitleLines {
  std::string_view first, second;
  float width = 0;
};

TitleLines two_lines(std::string_view title) {
  TitleLines best{title, {}, text_wide(title)};
  for (std::size_t at = title.find(' '); at != title.npos; at = title.find(' ', at + 1)) {
    const std::string_view first = title.substr(0, at), second = title.substr(at + 1);
    const float width = std::max(text_wide(first), text_wide(second));
    if (width < best.width) best = {first, second, width};
  }
  return best;
}

// Shares of a room by weight, of which none is below its least: those that would be have that, and
// the others share the rest.
std::vector<float> shares(float room, const std::vector<TableColumn>& columns,
                          const std::vector<float>& least) {
  std::vector<float> widths(columns.size(), 0);
  for (std::size_t settled = 0; settled < columns.size();) {
    float weights = 0;
    for (std::size_t i = 0; i < columns.size(); ++i) {
      if (widths[i] == 0) weights += columns[i].weight;
    }
    const std::size_t before = settled;
    float taken = 0;
    for (std::size_t i = 0; i < columns.size(); ++i) {
      if (widths[i] > 0 || room * columns[i].weight / weights >= least[i]) continue;
      taken += widths[i] = least[i];
      ++settled;
    }
    room -= taken;
    if (settled > before) continue;
    for (std::size_t i = 0; i < columns.size(); ++i) {
      if (widths[i] == 0) widths[i] = room * columns[i].weight / weights;
    }
    break;
  }
  return widths;
}

}  // namespace

const DataTable* drawn_table(const char* window) {
  const ImGuiWindow* found = ImGui::FindWindowByName(window);
  const auto at = drawn_tables().find(found != nullptr ? found->ID : 0);
  return at == drawn_tables().end() ? nullptr : at->second;
}

void forget_drawn_table(const ImGuiWindow* window) {
  if (window != nullptr) drawn_tables().erase(window->ID);
}

std::string csv_field(const std::string& text) {
  if (text.find_first_of(",\"\r\n") == std::string::npos) return text;
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"') out += '"';
    out += c;
  }
  return out + '"';
}

void DataTable::begin(std::uint64_t version) {
  stale_ = version != version_ || theme_ != theme_version() || columns_.empty();
  if (!stale_) return;
  version_ = version;
  theme_ = theme_version();
  rows_.clear();
  keys_.clear();
  order_.clear();
  order_stale_ = true;
}

void DataTable::columns(std::vector<TableColumn> columns) {
  if (sort_column_ >= static_cast<int>(columns.size())) sort_column_ = -1;
  const auto same = [](const TableColumn& a, const TableColumn& b) {
    return a.title == b.title && a.weight == b.weight;
  };
  if (!std::ranges::equal(columns_, columns, same)) fitted_room_ = -1;
  columns_ = std::move(columns);
}

void DataTable::row(std::vector<TableCell> cells, std::int64_t key) {
  cells.resize(columns_.size());
  order_.push_back(rows_.size());
  rows_.push_back(std::move(cells));
  keys_.push_back(key);
  order_stale_ = true;
}

void DataTable::refilter() {
  const Words words = split(filter_);
  order_.clear();
  for (std::size_t i = 0; i < rows_.size(); ++i) {
    if (!words.wanted.empty() || !words.unwanted.empty()) {
      const std::string text = row_text(rows_[i]);
      const auto in = [&](const std::string& word) { return text.find(word) != text.npos; };
      if (!std::ranges::all_of(words.wanted, in) || std::ranges::any_of(words.unwanted, in)) {
        continue;
      }
    }
    order_.push_back(i);
  }
  sort(sort_column_, ascending_);
  order_stale_ = false;
}

void DataTable::sort(int column, bool ascending) {
  sort_column_ = column;
  ascending_ = ascending;
  if (column < 0 || column >= static_cast<int>(columns_.size())) return;
  const auto c = static_cast<std::size_t>(column);
  const bool numeric = columns_[c].numeric;
  std::stable_sort(order_.begin(), order_.end(), [&](std::size_t i, std::size_t j) {
    const TableCell &a = rows_[i][c], &b = rows_[j][c];
    if (numeric) {
      if (has_order(a) != has_order(b)) return has_order(a);  // what has no value comes last
      if (!has_order(a)) return false;
      return ascending ? a.number < b.number : b.number < a.number;
    }
    const int order = natural_order(a.text, b.text);
    return ascending ? order < 0 : order > 0;
  });
}

std::string DataTable::csv() const {
  std::string out;
  for (std::size_t i = 0; i < columns_.size(); ++i) {
    out += (i > 0 ? "," : "") + csv_field(columns_[i].title);
  }
  out += '\n';
  for (const std::size_t r : order_) {
    for (std::size_t i = 0; i < rows_[r].size(); ++i) {
      out += (i > 0 ? "," : "") + csv_field(exact_text(rows_[r][i]));
    }
    out += '\n';
  }
  return out;
}

void DataTable::draw_bar(bool filter) {
  const float button = ImGui::GetFrameHeight() * 1.15f;
  const std::string count =
      order_.size() == rows_.size()
          ? format_count(visible_rows())
          : fmt::format("{} of {}", format_count(visible_rows()),
                        format_count(static_cast<std::int64_t>(rows_.size())));
  const float spacing = ImGui::GetStyle().ItemSpacing.x;
  const float text = ImGui::CalcTextSize(count.c_str()).x;
  const float room = ImGui::GetContentRegionAvail().x - button - text - 2 * spacing;
  if (filter) {
    ImGui::SetNextItemWidth(std::max(px(60), std::min(room, px(260))));
    char buffer[256];
    const std::size_t length = filter_.copy(buffer, sizeof buffer - 1);
    buffer[length] = '\0';
    if (ImGui::InputTextWithHint("##filter", "filter", buffer, sizeof buffer)) {
      filter_ = buffer;
      refilter();
    }
    if (ImGui::IsItemHovered(ImGuiHoveredFlags_ForTooltip)) {
      tooltip("Rows that contain every word; -word leaves out rows that contain it.");
    }
    ImGui::SameLine();
  }
  ImGui::AlignTextToFramePadding();
  ImGui::TextDisabled("%s", count.c_str());
  ImGui::SameLine();
  if (ImGui::Button(fmt::format("{}##copy", icon::kCopy).c_str(), {button, 0})) copy();
  if (ImGui::IsItemHovered(ImGuiHoveredFlags_ForTooltip)) {
    tooltip("Copy these rows as CSV, in full precision   Ctrl+C");
  }
}

void DataTable::copy() const { ImGui::SetClipboardText(csv().c_str()); }

// Of the first rows; kLongText where one of them is long.
std::vector<float> DataTable::cells_widths() const {
  constexpr std::size_t kLookedAt = 64;
  const float longest = px(96);
  std::vector<float> widths(columns_.size(), 0);
  for (std::size_t i = 0; i < columns_.size(); ++i) {
    if (columns_[i].numeric) ImGui::PushFont(numbers(), 0);
    for (std::size_t r = 0; r < std::min(kLookedAt, rows_.size()); ++r) {
      widths[i] = std::max(widths[i], text_wide(rows_[r][i].text));
    }
    if (columns_[i].numeric) ImGui::PopFont();
    if (widths[i] > longest) widths[i] = kLongText;
  }
  return widths;
}

// Widths with which neither titles nor short cells are cut, as far as there is room; titles on two
// lines where it is needed. False: they are known.
bool DataTable::fit_columns(float room) {
  if (room == fitted_room_ && ImGui::GetFontSize() == fitted_font_ &&
      rows_.empty() == fitted_empty_) {
    return false;
  }
  fitted_room_ = room;
  fitted_font_ = ImGui::GetFontSize();
  fitted_empty_ = rows_.empty();
  const float between =
      (2 * ImGui::GetStyle().CellPadding.x + 1) * static_cast<float>(columns_.size() + 1);
  const std::vector<float> cells = cells_widths(), none(columns_.size(), 0);
  const auto least = [&](bool two, const std::vector<float>& of_cells) {
    std::vector<float> widths;
    for (std::size_t i = 0; i < columns_.size(); ++i) {
      const std::string& title = columns_[i].title;
      const float wide = two ? two_lines(title).width : text_wide(title);
      widths.push_back(std::max(1.0f, std::ceil(std::max(wide, of_cells[i]))));
    }
    return widths;
  };
  const auto sum = [](const std::vector<float>& widths) {
    return std::accumulate(widths.begin(), widths.end(), 0.0f);
  };
  std::vector<float> widths = least(false, cells);
  float inside = std::max(1.0f, room - ImGui::GetStyle().ScrollbarSize - 2 - between);
  const bool scrolls = room < px(least_width) && (std::ranges::count(cells, kLongText) > 0 ||
                                                  sum(least(true, cells)) > inside);
  table_width_ = scrolls ? std::max(px(least_width), sum(widths) + between) : 0;
  if (scrolls) inside = table_width_ - between;
  two_lines_ = false;
  if (sum(widths) > inside) widths = least(two_lines_ = true, cells);
  if (sum(widths) > inside) widths = least(two_lines_ = false, none);
  if (sum(widths) > inside) widths = least(two_lines_ = true, none);
  if (sum(widths) < inside) widths = shares(inside, columns_, widths);
  widths_before_ = std::exchange(widths_, widths);
  return true;
}

// Widths that somebody dragged stay in proportion.
void DataTable::set_up_columns(bool fitted) {
  for (std::size_t i = 0; i < columns_.size(); ++i) {
    ImGui::TableSetupColumn(columns_[i].title.c_str(), 0, widths_[i]);
  }
  ImGuiTable* table = ImGui::GetCurrentTable();
  if (!fitted || widths_before_.size() != columns_.size()) return;
  for (std::size_t i = 0; i < columns_.size(); ++i) {
    const float weight = table->Columns[static_cast<int>(i)].StretchWeight;
    if (weight != widths_before_[i] && weight != widths_[i]) return;
  }
  for (std::size_t i = 0; i < columns_.size(); ++i) {
    table->Columns[static_cast<int>(i)].StretchWeight = widths_[i];
  }
}

// Titles of numbers stand on the right, above them; the arrow of the sorted one takes its place.
void DataTable::draw_header(const TableColumn& column, int index) {
  const ImVec2 at = ImGui::GetCursorScreenPos();
  const float arrow = index == sort_column_ ? ImGui::GetFontSize() : 0;
  const float room = ImGui::GetContentRegionAvail().x;
  ImGui::TableHeader(("##" + column.title).c_str());
  const TitleLines lines = two_lines_ ? two_lines(column.title) : TitleLines{column.title, {}, 0};
  bool cut = false;
  float y = at.y;
  for (const std::string_view line : {lines.first, lines.second}) {
    if (line.empty()) continue;
    const float wide = text_wide(line), left = room - arrow - wide;
    cut = cut || wide > room + 0.5f;
    const float x = column.numeric && left > 0 ? std::floor(at.x + left) : at.x;
    if (left >= -0.5f) {
      ImGui::RenderText({x, y}, line.data(), line.data() + line.size(), false);
    } else {
      text_cut(ImGui::GetWindowDrawList(), {x, y}, room - arrow, ImGui::GetColorU32(ImGuiCol_Text),
               std::string(line));
    }
    y += ImGui::GetTextLineHeight();
  }
  if (cut) cut_titles_.push_back(column.title);
  if ((cut || !column.help.empty()) && ImGui::IsItemHovered(ImGuiHoveredFlags_ForTooltip)) {
    const bool both = cut && !column.help.empty();
    tooltip((cut ? column.title : "") + (both ? "\n" : "") + column.help);
  }
}

void DataTable::draw_headers() {
  const int lines = two_lines_ ? 2 : 1;
  ImGui::TableNextRow(
      ImGuiTableRowFlags_Headers,
      static_cast<float>(lines) * ImGui::GetTextLineHeight() + 2 * ImGui::GetStyle().CellPadding.y);
  cut_titles_.clear();
  for (int i = 0; i < static_cast<int>(columns_.size()); ++i) {
    if (!ImGui::TableSetColumnIndex(i)) continue;
    ImGui::PushID(i);
    ImGui::PushStyleColor(ImGuiCol_Text, theme().text_dim);
    draw_header(columns_[static_cast<std::size_t>(i)], i);
    ImGui::PopStyleColor();
    ImGui::PopID();
  }
}

void DataTable::draw_cell(const TableColumn& column, const TableCell& cell) const {
  bool shortened = false;
  if (column.numeric) {
    number_text(cell.text, 0, cell.colour);
  } else {
    if (cell.colour != 0) ImGui::PushStyleColor(ImGuiCol_Text, cell.colour);
    // Of one word the ends are kept, of a sentence the beginning.
    const bool name = cell.text.find(' ') == std::string::npos;
    const float room = ImGui::GetContentRegionAvail().x;
    const float wide = name ? ImGui::CalcTextSize(cell.text.c_str()).x : 0;
    ImGui::TextUnformatted(wide > room ? middle_cut(cell.text, room).c_str() : cell.text.c_str());
    if (cell.colour != 0) ImGui::PopStyleColor();
    shortened = wide > room;
  }
  const bool cut =
      shortened || ImGui::GetItemRectMax().x > ImGui::GetWindowDrawList()->GetClipRectMax().x;
  const bool more = !cell.exact.empty() && cell.exact != cell.text;
  if ((cut || more) && ImGui::IsItemHovered(ImGuiHoveredFlags_DelayShort)) {
    tooltip(exact_text(cell));
  }
}

std::optional<std::int64_t> DataTable::draw_rows(std::int64_t selected_key) {
  std::optional<std::int64_t> clicked;
  ImGuiListClipper clipper;
  clipper.Begin(static_cast<int>(order_.size()));
  while (clipper.Step()) {
    for (int i = clipper.DisplayStart; i < clipper.DisplayEnd; ++i) {
      const std::size_t r = order_[static_cast<std::size_t>(i)];
      ImGui::TableNextRow();
      bool first = true;
      for (int c = 0; c < static_cast<int>(columns_.size()); ++c) {
        if (!ImGui::TableSetColumnIndex(c)) continue;
        if (first) {
          const std::string label =
              keys_[r] >= 0 ? fmt::format("##row {}", keys_[r]) : fmt::format("##line {}", r);
          if (ImGui::Selectable(
                  label.c_str(), keys_[r] == selected_key && keys_[r] >= 0,
                  ImGuiSelectableFlags_SpanAllColumns | ImGuiSelectableFlags_AllowOverlap)) {
            clicked = keys_[r];
          }
          if (picked_for_menu()) clicked = keys_[r];
          ImGui::SameLine(0, 0);
          first = false;
        }
        const auto column = static_cast<std::size_t>(c);
        draw_cell(columns_[column], rows_[r][column]);
      }
    }
  }
  return clicked;
}

TableCell whole_cell(std::int64_t n, const char* none) {
  return {n < 0 ? std::string(none) : std::to_string(n), 0, static_cast<double>(n), true};
}

std::optional<std::int64_t> DataTable::draw(const char* id, ImVec2 size, std::int64_t selected_key,
                                            bool filter) {
  if (columns_.empty()) return std::nullopt;
  drawn_tables()[ImGui::GetCurrentWindow()->RootWindow->ID] = this;
  std::optional<std::int64_t> clicked;
  if (order_stale_) refilter();
  ImGui::PushID(id);
  draw_bar(filter);
  const float room = size.x > 0 ? size.x : ImGui::GetContentRegionAvail().x;
  const bool fitted = fit_columns(room);
  const bool wide = table_width_ > 0;
  if (size.y == 0) {  // no taller than its rows, no shorter than a few of them
    const float line = ImGui::GetTextLineHeight() + 2 * ImGui::GetStyle().CellPadding.y;
    const float titles = two_lines_ ? ImGui::GetTextLineHeight() : 0;
    const float all = line * static_cast<float>(order_.size() + 1) + titles + px(4) +
                      (wide ? ImGui::GetStyle().ScrollbarSize : 0);
    size.y = std::min(all, std::max(ImGui::GetContentRegionAvail().y, 6 * line));
  }
  const ImGuiTableFlags flags = kTableFlags | (wide ? ImGuiTableFlags_ScrollX : 0);
  if (ImGui::BeginTable("##table", static_cast<int>(columns_.size()), flags, size, table_width_)) {
    ImGui::TableSetupScrollFreeze(0, 1);
    set_up_columns(fitted);
    if (ImGuiTableSortSpecs* specs = ImGui::TableGetSortSpecs(); specs && specs->SpecsDirty) {
      const bool any = specs->SpecsCount > 0;
      sort_column_ = any ? specs->Specs[0].ColumnIndex : -1;
      ascending_ = !any || specs->Specs[0].SortDirection != ImGuiSortDirection_Descending;
      specs->SpecsDirty = false;
      refilter();  // from the order of the rows, so that equal ones keep it
    }
    draw_headers();
    clicked = draw_rows(selected_key);
    if (follow_end && sort_column_ < 0 && ImGui::GetScrollY() >= ImGui::GetScrollMaxY()) {
      ImGui::SetScrollHereY(1);
    }
    const bool here = ImGui::IsWindowHovered() || ImGui::IsWindowFocused();
    if (here && !ImGui::GetIO().WantTextInput &&
        ImGui::IsKeyChordPressed(ImGuiMod_Ctrl | ImGuiKey_C)) {
      copy();
    }
    ImGui::EndTable();
  }
  ImGui::PopID();
  return clicked;
}

}  // namespace attnscope::gui
