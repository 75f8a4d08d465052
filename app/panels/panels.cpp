#include "app/panels/panels.h"

namespace attnscope::gui {

std::vector<std::unique_ptr<Panel>> make_panels() {
  std::vector<std::unique_ptr<Panel>> panels;
  for (const auto make : {make_timeline_panel,     make_pipeline_panel,   make_time_panel,
                          make_block_tables_panel, make_pool_panel,       make_cache_panel,
                          make_window_panel,       make_top_k_panel,      make_sink_panel,
                          make_plan_panel,         make_row_pool_panel,   make_row_sweep_panel,
                          make_cache_study_panel,  make_key_energy_panel, make_tensor_panel,
                          make_bytes_panel,        make_row_error_panel,  make_error_panel,
                          make_selection_panel,    make_events_panel,     make_notes_panel,
                          make_history_panel,      make_scenario_panel,   make_review_panel,
                          make_coverage_panel,     make_why_panel,        make_compare_panel,
                          make_backends_panel,     make_training_panel}) {
    panels.push_back(make());
  }
  return panels;
}

}  // namespace attnscope::gui
