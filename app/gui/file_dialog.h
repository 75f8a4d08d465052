// Opening and saving scenarios: folders, typed paths, recent and shipped ones. Errors are said in
// place; what exists is overwritten only after asking.
#pragma once

#include <string>
#include <vector>

#include "app/gui/dialog.h"
#include "app/gui/overlay.h"
#include "app/text/folder_list.h"

namespace attnscope::gui {

// What is open now, by name or path: it comes back at the next start. Files are listed as recent,
// newest first; names of shipped scenarios are listed anyway.
void remember(Settings& settings, const std::string& path);

// What opens a file or folder that was dropped or chosen: a scenario, a capture, or a folder of
// goldens.
std::string opening_command(const std::string& path);

class FileDialog : public Overlay {
 public:
  void register_commands(Ui& ui) override;
  void draw(Ui& ui) override;

 private:
  void start(const Ui& ui, bool saving);
  void enter(const std::string& folder);
  void activate(Ui& ui, const std::string& path);
  void finish(Ui& ui, const std::string& path);
  void draw_places(Ui& ui);
  void draw_items(Ui& ui);
  void draw_bottom(Ui& ui);
  void handle_keys();
  bool is_listed(const std::string& name) const;
  std::string listed_path(const std::string& name) const;

  Dialog dialog_;
  bool saving_ = false;
  FolderList list_;
  std::vector<bool> opened_;  // by item: a folder that is opened, not entered
  std::string typed_, error_;
  std::string overwrite_;  // path that exists, while it is asked about
  std::vector<std::string> shipped_;
  int chosen_ = -1;  // item of the list; -1 = what is typed counts
  bool focus_ = false, scroll_ = false;
};

}  // namespace attnscope::gui
