#include "app/gui/overlay.h"

namespace attnscope::gui {

std::vector<std::unique_ptr<Overlay>> make_overlays() {
  std::vector<std::unique_ptr<Overlay>> overlays;
  for (const auto make : {make_file_dialog, make_record_dialog, make_settings_dialog, make_lesson,
                          make_tour, make_keys_sheet, make_about, make_palette}) {
    overlays.push_back(make());
  }
  return overlays;
}

}  // namespace attnscope::gui
