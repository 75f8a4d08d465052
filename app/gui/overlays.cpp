#include "app/gui/overlay.h"

namespace attnscope::gui {

std::vector<std::unique_ptr<Overlay>> make_overlays() { return {}; }

}  // namespace attnscope::gui
