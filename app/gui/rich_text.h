// Text with numbers in the monospaced face.
#pragma once

#include <string_view>

namespace attnscope::gui {

// At the cursor; wraps at `width` pixels; keeps line breaks.
void rich_text(std::string_view text, float width);

}  // namespace attnscope::gui
