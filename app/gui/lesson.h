// Try it: plants a bug, then leads from the red cell to the op, the element and the reason.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "app/gui/bubble.h"
#include "app/gui/dialog.h"
#include "app/gui/overlay.h"
#include "app/workbench/lessons.h"

namespace attnscope::gui {

class LessonCard : public Overlay {
 public:
  void register_commands(Ui& ui) override;
  void draw(Ui& ui) override;

 private:
  Result<void> plant(Ui& ui, std::string_view name, bool secret);
  void remove(Ui& ui);
  void turn(Ui& ui, int page);
  void refresh(Ui& ui);
  void draw_list(Ui& ui);
  void draw_card(Ui& ui);
  void draw_page(Ui& ui);

  Dialog list_;
  Bubble bubble_;
  const Lesson* lesson_ = nullptr;  // planted now
  bool secret_ = false;             // its name is told at the end
  bool hidden_ = false;
  int page_ = -1;  // -1 = before the first one
  std::vector<LessonPage> pages_;
  std::uint64_t version_ = ~std::uint64_t{0};
  std::shared_ptr<const Snapshot> searched_;  // for the first wrong tap; null = none
};

}  // namespace attnscope::gui
