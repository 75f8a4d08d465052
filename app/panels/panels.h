// All panels, in the order of the View menu.
#pragma once

#include "app/gui/panel.h"

namespace attnscope::gui {

std::vector<std::unique_ptr<Panel>> make_panels();

// One factory a panel; each lives in a file of its own name.
std::unique_ptr<Panel> make_timeline_panel();      // id "timeline"
std::unique_ptr<Panel> make_pipeline_panel();      // id "pipeline"
std::unique_ptr<Panel> make_block_tables_panel();  // id "block_tables"
std::unique_ptr<Panel> make_pool_panel();          // id "pool"
std::unique_ptr<Panel> make_cache_panel();         // id "cache"
std::unique_ptr<Panel> make_window_panel();        // id "window"
std::unique_ptr<Panel> make_top_k_panel();         // id "top_k"
std::unique_ptr<Panel> make_sink_panel();          // id "sink"
std::unique_ptr<Panel> make_plan_panel();          // id "plan"
std::unique_ptr<Panel> make_row_pool_panel();      // id "row_pool"
std::unique_ptr<Panel> make_row_sweep_panel();     // id "row_sweep"
std::unique_ptr<Panel> make_cache_study_panel();   // id "cache_study"
std::unique_ptr<Panel> make_key_energy_panel();    // id "index_keys"
std::unique_ptr<Panel> make_backends_panel();      // id "backends"
std::unique_ptr<Panel> make_error_panel();         // id "error"
std::unique_ptr<Panel> make_tensor_panel();        // id "tensor"
std::unique_ptr<Panel> make_bytes_panel();         // id "bytes"
std::unique_ptr<Panel> make_row_error_panel();     // id "row_error"
std::unique_ptr<Panel> make_events_panel();        // id "events"
std::unique_ptr<Panel> make_notes_panel();         // id "notes"
std::unique_ptr<Panel> make_history_panel();       // id "history"
std::unique_ptr<Panel> make_training_panel();      // id "training"
std::unique_ptr<Panel> make_scenario_panel();      // id "scenario"
std::unique_ptr<Panel> make_selection_panel();     // id "selection"
std::unique_ptr<Panel> make_review_panel();        // id "review"
std::unique_ptr<Panel> make_compare_panel();       // id "compare"
std::unique_ptr<Panel> make_coverage_panel();      // id "coverage"
std::unique_ptr<Panel> make_why_panel();           // id "why"
std::unique_ptr<Panel> make_time_panel();          // id "time"

}  // namespace attnscope::gui
