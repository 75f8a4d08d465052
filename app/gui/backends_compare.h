// Part of the panel Backends: the model that is open, run by every backend that takes it.
#pragma once

#include <cstdint>
#include <string>

#include "app/gui/data_table.h"
#include "app/gui/panel.h"
#include "app/workbench/backend_compare_run.h"

namespace attnscope::gui {

class BackendsCompare {
 public:
  BackendsCompare() { table_.least_width = 720; }
  // gpu: that backends are asked for; it must outlive the commands.
  void register_commands(Ui& ui, const std::string& gpu);
  void draw(Ui& ui);
  bool runs() const { return run_.running().has_value(); }
  const std::string& error() const { return run_.error(); }

 private:
  void fill_table();

  BackendCompareRun run_;
  DataTable table_;
};

}  // namespace attnscope::gui
