// What only the theme's own files need.
#pragma once

#include "app/gui/theme.h"

namespace attnscope::gui {

Theme dark_theme();
Theme light_theme();
void set_current_theme(const Theme& theme);

}  // namespace attnscope::gui
