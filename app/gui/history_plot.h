// One element of a tap from step to step, as a curve beside the reference's.
#pragma once

#include <imgui.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "app/views/element_history.h"
#include "app/workbench/capture_scan.h"
#include "app/workbench/workbench.h"

namespace attnscope::gui {

class HistoryPlot {
 public:
  // Of a session the steps whose traces are kept, of a capture all, read in slices of time.
  // what: the element in words. Returns a step that was clicked.
  std::optional<std::int64_t> draw(const Workbench& bench, const FollowedElement& element,
                                   const std::string& what, ImVec2 size);
  bool reading() const { return scan_.reading(); }  // there are more steps, for the next call

 private:
  void refresh(const Workbench& bench, const FollowedElement& element);
  std::optional<std::int64_t> pick() const;

  FollowedElement element_;
  std::shared_ptr<const Snapshot> held_;
  CaptureScan scan_;  // of a capture
  ElementHistory history_;
};

}  // namespace attnscope::gui
