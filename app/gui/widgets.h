// The app's own widgets: what every panel is made of, so that they look and behave alike.
#pragma once

#include <imgui.h>

#include <cfloat>
#include <string>
#include <string_view>

#include "app/gui/panel.h"
#include "app/gui/theme.h"

namespace attnscope::gui {

// First line of a panel: one line, as the picture below it comes first. Where it is longer, a click
// unfolds it and hovering shows the whole. What went wrong is told whole from the start, where
// `room`, a height, holds it. Verdict colours the mark before it (kNotCompared: none).
void sentence(std::string_view text, Verdict verdict = Verdict::kNotCompared, float room = FLT_MAX);
// Sentences begin unfolded.
void unfold_sentences(bool unfolded);
// Wraps, never cut.
void paragraph(std::string_view text, Verdict verdict = Verdict::kNotCompared);
// What needs a look and is not wrong.
void caution(std::string_view text);

// In place of contents: why there are none, and a button that runs the command that would help. Of
// a capture that has not what is needed: how to record it. needs: the lowest level that has it.
void empty_state(Ui& ui, std::string_view why, std::string_view command = {},
                 CaptureLevel needs = CaptureLevel::kFull);

// Glyph and word in the verdict's colour; the colour is never alone.
void verdict_chip(Verdict verdict);

// A button that runs a command: icon or title, shortcut and help in the tooltip, greyed when
// disabled (the tooltip then says why).
bool command_button(Ui& ui, std::string_view id, const char* label = nullptr);
// The last item is what the menu of its panel, which a right click opens, will speak of.
bool picked_for_menu();
// At a place of a draw list, cut with an ellipsis where it is wider.
void text_cut(ImDrawList* list, ImVec2 at, float width, ImU32 colour, const std::string& text);
// The same cut in the middle: the ends of a name tell more than what is between them.
void text_cut_middle(ImDrawList* list, ImVec2 at, float width, ImU32 colour,
                     const std::string& text);
// What of it fits into a width, cut so: "indexer_c..state".
std::string middle_cut(const std::string& text, float width);
// A menu entry for a command, with shortcut, check mark and enabled state.
void command_menu_item(Ui& ui, std::string_view id);

// Small text in the monospaced face, right-aligned in the current column or `width`.
void number_text(std::string_view text, float width = 0, ImU32 colour = 0);
// Dimmed label, then value, on one line.
void field(const char* label, std::string_view value);

// The next item, so wide, stays on the line of the last one where it fits. gap: -1 = as items have.
void same_line_for(float width, float gap = -1);
float button_width(const char* label);
// Dimmed text that wraps; text in a colour on one line.
void dim(const std::string& text);
// How far work is that goes on beside, with a button that stops it.
void running_bar(Ui& ui, double share, const char* doing, const char* stop);
void coloured(ImU32 colour, std::string_view text);

// ---- cells, for ImDrawList
void draw_hatch(ImDrawList* list, ImVec2 min, ImVec2 max);     // null entry
void draw_free(ImDrawList* list, ImVec2 min, ImVec2 max);      // free: outline only
void draw_selected(ImDrawList* list, ImVec2 min, ImVec2 max);  // the selection's frame
void draw_hovered(ImDrawList* list, ImVec2 min, ImVec2 max);
// The same around lines of text: beside them, so that no letter is covered.
void draw_selected_text(ImDrawList* list, ImVec2 min, ImVec2 max);
void draw_hovered_text(ImDrawList* list, ImVec2 min, ImVec2 max);
// Text inside a cell, centred; nothing when it does not fit.
void draw_cell_text(ImDrawList* list, ImVec2 min, ImVec2 max, ImU32 colour, std::string_view text);
// Black or white, whichever reads better on `background`.
ImU32 text_on(ImU32 background);
// The text colour of the theme, where it reads on it.
ImU32 ink_on(ImU32 background);

// A tooltip with lines of text, numbers in the monospaced face; hidden while dragging.
void tooltip(std::string_view text);

// The sign of a lane that is not the usual one: a planted bug, a user's plugin, another lane.
const char* lane_sign(std::string_view lane);

// A legend swatch with a word, on the current line.
void legend(ImU32 colour, const char* text, bool hatched = false, bool outline = false);

// Segmented switch; true when the choice changed. Each segment is an item named by its label.
bool segmented(const char* id, int* current, const char* const* labels, int count);

}  // namespace attnscope::gui
