// The table behind a picture: sortable, filterable, copied as CSV with Ctrl+C.
//
//   table_.begin(version);                       // rebuilds only when the version changed
//   if (table_.stale()) { table_.columns({{"block", true}, {"owner"}}); table_.row({"41",
//   "manual"}, key); } if (auto key = table_.draw("##blocks", size, selected_key)) select(*key);
#pragma once

#include <imgui.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

struct ImGuiWindow;

namespace attnscope::gui {

struct TableColumn {
  std::string title;      // with unit: "time (µs)"
  bool numeric = false;   // right-aligned, monospaced, sorted by number
  float weight = 1;       // share of the width, where all titles have room
  std::string help = {};  // tooltip of the header
};

struct TableCell {
  std::string text;
  ImU32 colour = 0;   // 0 = the text colour
  double number = 0;  // sort key of numeric columns; when has_number
  bool has_number = false;
  std::string exact = {};  // full precision for hover and copy; empty = text
};

// A count or an id; below 0 it has no value.
TableCell whole_cell(std::int64_t n, const char* none = "");

class DataTable {
 public:
  void begin(std::uint64_t version);
  bool stale() const { return stale_; }
  void columns(std::vector<TableColumn> columns);
  void row(std::vector<TableCell> cells, std::int64_t key);
  // Draws the rows that are visible (a clipper: fine with 100,000). Returns the key of a row that
  // was clicked. Items: rows are "##row KEY" (key < 0: "##line INDEX", never selected), the rest
  // "##filter" and "##copy". size.y 0: as tall as its rows, as far as there is room. filter: shows
  // a filter field above (words: all must occur; -word excludes).
  std::optional<std::int64_t> draw(const char* id, ImVec2 size, std::int64_t selected_key,
                                   bool filter = true);
  // Of a list that grows: stays at its end while nobody scrolled up or sorted.
  bool follow_end = false;
  // Of many columns: where there is less room, and it cuts cells, the table scrolls to the side.
  // 0 = columns shrink.
  float least_width = 0;
  // Visible rows in their order, header first.
  std::string csv() const;
  // Titles that the last frame had no room for, on two lines either.
  const std::vector<std::string>& cut_titles() const { return cut_titles_; }
  std::int64_t visible_rows() const { return static_cast<std::int64_t>(order_.size()); }

 private:
  void refilter();
  void sort(int column, bool ascending);
  void copy() const;
  void draw_bar(bool filter);
  std::vector<float> cells_widths() const;
  bool fit_columns(float room);
  void set_up_columns(bool fitted);
  void draw_headers();
  void draw_header(const TableColumn& column, int index);
  void draw_cell(const TableColumn& column, const TableCell& cell) const;
  std::optional<std::int64_t> draw_rows(std::int64_t selected_key);

  std::uint64_t version_ = ~std::uint64_t{0}, theme_ = 0;  // what the rows are of
  bool stale_ = true, order_stale_ = true;
  std::vector<TableColumn> columns_;
  // Of the columns, in pixels, for a room and a size of text; ImGui's weights.
  std::vector<float> widths_, widths_before_;
  float fitted_room_ = -1, fitted_font_ = 0, table_width_ = 0;
  bool fitted_empty_ = true;  // without rows
  bool two_lines_ = false;    // of titles
  std::vector<std::string> cut_titles_;
  std::vector<std::vector<TableCell>> rows_;
  std::vector<std::int64_t> keys_;
  std::vector<std::size_t> order_;
  std::string filter_;
  int sort_column_ = -1;
  bool ascending_ = true;
};

// The table that a window shows, drawn last in it; null: it drew none. window:
// its name, as ImGui::Begin had it.
const DataTable* drawn_table(const char* window);
// It is about to be drawn anew, or no longer; null: there is no such window.
void forget_drawn_table(const ImGuiWindow* window);

// CSV field: quoted when it holds a comma, quote or line break.
std::string csv_field(const std::string& text);

}  // namespace attnscope::gui
