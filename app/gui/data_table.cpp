#include "app/gui/data_table.h"

#include <algorithm>
#include <cctype>
#include <numeric>
#include <sstream>

#include "app/gui/icons.h"
#include "app/gui/theme.h"
#include "app/gui/widgets.h"

namespace attnscope::gui {
namespace {

std::string lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return text;
}

// All words occur; those after '-' do not.
bool matches(const std::vector<std::string>& words, const std::vector<TableCell>& cells) {
  std::string all;
  for (const TableCell& cell : cells) all += lower(cell.text) + '\n';
  return std::all_of(words.begin(), words.end(), [&](const std::string& word) {
    const bool exclude = word.size() > 1 && word[0] == '-';
    const bool found = all.find(exclude ? word.substr(1) : word) != std::string::npos;
    return found != exclude;
  });
}

}  // namespace

std::string csv_field(const std::string& text) {
  if (text.find_first_of(",\"\n\r") == std::string::npos) return text;
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"') quoted += '"';
    quoted += c;
  }
  return quoted + '"';
}

void DataTable::begin(std::uint64_t version) {
  stale_ = version != version_;
  if (!stale_) return;
  version_ = version;
  rows_.clear();
  keys_.clear();
  columns_.clear();
  order_stale_ = true;
}

void DataTable::columns(std::vector<TableColumn> columns) { columns_ = std::move(columns); }

void DataTable::row(std::vector<TableCell> cells, std::int64_t key) {
  cells.resize(columns_.size());
  rows_.push_back(std::move(cells));
  keys_.push_back(key);
}

void DataTable::refilter() {
  std::vector<std::string> words;
  std::istringstream stream(lower(filter_));
  for (std::string word; stream >> word;) words.push_back(word);
  order_.clear();
  for (std::size_t i = 0; i < rows_.size(); ++i) {
    if (words.empty() || matches(words, rows_[i])) order_.push_back(i);
  }
  if (sort_column_ >= 0 && static_cast<std::size_t>(sort_column_) < columns_.size()) {
    sort(sort_column_, ascending_);
  }
  order_stale_ = false;
}

void DataTable::sort(int column, bool ascending) {
  const auto c = static_cast<std::size_t>(column);
  const auto before = [&](std::size_t a, std::size_t b) {
    const TableCell& x = rows_[a][c];
    const TableCell& y = rows_[b][c];
    if (x.has_number != y.has_number) return x.has_number > y.has_number;
    if (x.has_number) return ascending ? x.number < y.number : y.number < x.number;
    return ascending ? x.text < y.text : y.text < x.text;
  };
  std::stable_sort(order_.begin(), order_.end(), before);
}

std::string DataTable::csv() const {
  std::string text;
  for (std::size_t c = 0; c < columns_.size(); ++c) {
    text += (c > 0 ? "," : "") + csv_field(columns_[c].title);
  }
  text += '\n';
  for (const std::size_t i : order_) {
    for (std::size_t c = 0; c < rows_[i].size(); ++c) {
      const TableCell& cell = rows_[i][c];
      text += (c > 0 ? "," : "") + csv_field(cell.exact.empty() ? cell.text : cell.exact);
    }
    text += '\n';
  }
  return text;
}

std::optional<std::int64_t> DataTable::draw(const char* id, ImVec2 size, std::int64_t selected_key,
                                            bool filter) {
  std::optional<std::int64_t> clicked;
  ImGui::PushID(id);
  if (filter) {
    ImGui::SetNextItemWidth(std::max(px(60), ImGui::GetContentRegionAvail().x - px(36)));
    char buffer[256] = {};
    filter_.copy(buffer, sizeof(buffer) - 1);
    if (ImGui::InputTextWithHint("##filter", "filter: words, -word leaves out", buffer,
                                 sizeof(buffer))) {
      filter_ = buffer;
      order_stale_ = true;
    }
    ImGui::SameLine(0, px(4));
    if (ImGui::Button(icon::kCopy)) ImGui::SetClipboardText(csv().c_str());
    if (ImGui::IsItemHovered()) tooltip("Copies the visible rows as CSV  (Ctrl+C)");
  }
  if (order_stale_) refilter();
  const int count = static_cast<int>(columns_.size());
  const ImGuiTableFlags flags = ImGuiTableFlags_Sortable | ImGuiTableFlags_SortTristate |
                                ImGuiTableFlags_RowBg | ImGuiTableFlags_BordersInnerV |
                                ImGuiTableFlags_Resizable | ImGuiTableFlags_ScrollY |
                                ImGuiTableFlags_SizingStretchProp | ImGuiTableFlags_Hideable;
  if (count > 0 && ImGui::BeginTable("##table", count, flags, size)) {
    ImGui::TableSetupScrollFreeze(0, 1);
    for (const TableColumn& column : columns_) {
      ImGui::TableSetupColumn(column.title.c_str(), ImGuiTableColumnFlags_None, column.weight);
    }
    ImGui::TableNextRow(ImGuiTableRowFlags_Headers);
    for (int c = 0; c < count; ++c) {
      if (!ImGui::TableSetColumnIndex(c)) continue;
      ImGui::TableHeader(columns_[static_cast<std::size_t>(c)].title.c_str());
      const std::string& help = columns_[static_cast<std::size_t>(c)].help;
      if (!help.empty() && ImGui::IsItemHovered(ImGuiHoveredFlags_DelayShort)) tooltip(help);
    }
    if (ImGuiTableSortSpecs* specs = ImGui::TableGetSortSpecs(); specs && specs->SpecsDirty) {
      sort_column_ = specs->SpecsCount > 0 ? specs->Specs[0].ColumnIndex : -1;
      ascending_ =
          specs->SpecsCount == 0 || specs->Specs[0].SortDirection == ImGuiSortDirection_Ascending;
      specs->SpecsDirty = false;
      refilter();
    }
    ImGuiListClipper clipper;
    clipper.Begin(static_cast<int>(order_.size()));
    while (clipper.Step()) {
      for (int line = clipper.DisplayStart; line < clipper.DisplayEnd; ++line) {
        const std::size_t i = order_[static_cast<std::size_t>(line)];
        ImGui::TableNextRow();
        for (int c = 0; c < count; ++c) {
          if (!ImGui::TableSetColumnIndex(c)) continue;
          const TableCell& cell = rows_[i][static_cast<std::size_t>(c)];
          if (c == 0) {
            ImGui::PushID(static_cast<int>(i));
            if (ImGui::Selectable(
                    "##row", keys_[i] == selected_key,
                    ImGuiSelectableFlags_SpanAllColumns | ImGuiSelectableFlags_AllowOverlap)) {
              clicked = keys_[i];
            }
            ImGui::PopID();
            ImGui::SameLine(0, 0);
          }
          if (columns_[static_cast<std::size_t>(c)].numeric) {
            number_text(cell.text, 0, cell.colour);
          } else if (cell.colour != 0) {
            ImGui::PushStyleColor(ImGuiCol_Text, cell.colour);
            ImGui::TextUnformatted(cell.text.c_str());
            ImGui::PopStyleColor();
          } else {
            ImGui::TextUnformatted(cell.text.c_str());
          }
          if (!cell.exact.empty() && ImGui::IsItemHovered()) tooltip(cell.exact);
        }
      }
    }
    const bool here = ImGui::IsWindowHovered(ImGuiHoveredFlags_ChildWindows) ||
                      ImGui::IsWindowFocused(ImGuiFocusedFlags_ChildWindows);
    if (here && ImGui::IsKeyChordPressed(ImGuiMod_Ctrl | ImGuiKey_C)) {
      ImGui::SetClipboardText(csv().c_str());
    }
    ImGui::EndTable();
  }
  ImGui::PopID();
  return clicked;
}

}  // namespace attnscope::gui
