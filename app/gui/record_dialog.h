// Recording a capture: how much of every step, where to, and how large it will be.
#pragma once

#include <future>
#include <optional>
#include <string>

#include "app/gui/dialog.h"
#include "app/gui/overlay.h"
#include "app/reports/record_estimate.h"

namespace attnscope::gui {

class RecordDialog : public Overlay {
 public:
  void register_commands(Ui& ui) override;
  void draw(Ui& ui) override;
  bool animating() const override { return estimating_.valid(); }

 private:
  void start(const Ui& ui);
  void estimate(const Ui& ui);
  void draw_size() const;
  void record(Ui& ui);

  Dialog dialog_;
  int level_ = static_cast<int>(CaptureLevel::kTables);
  std::string folder_, error_;
  std::future<Result<RecordEstimate>> estimating_;
  int estimating_level_ = -1, estimated_level_ = -1;
  std::optional<Result<RecordEstimate>> estimate_;
};

}  // namespace attnscope::gui
