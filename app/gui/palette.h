// The palette: every command by a few letters of its name, places by number.
#pragma once

#include <string>
#include <vector>

#include "app/gui/overlay.h"
#include "app/workbench/palette_list.h"

namespace attnscope::gui {

class Palette : public Overlay {
 public:
  void register_commands(Ui& ui) override;
  void draw(Ui& ui) override;

 private:
  void start();
  void refresh(const Ui& ui);
  bool draw_field();
  void draw_rows(Ui& ui);
  void draw_row(const Ui& ui, const PaletteItem& item, bool chosen, float width, float height);
  void draw_footer(const Ui& ui);
  void handle_keys();
  void choose(Ui& ui, const PaletteItem& item);
  void ask_value(const std::string& id);

  bool wanted_ = false, closing_ = false, open_ = false;
  bool focus_ = false, to_end_ = false, scroll_ = false;
  std::string text_, error_;
  std::vector<std::string> recent_;  // ids, newest first
  std::vector<PaletteItem> items_;
  std::string items_text_;
  std::uint64_t items_version_ = ~std::uint64_t{0};
  int chosen_ = 0;
};

}  // namespace attnscope::gui
