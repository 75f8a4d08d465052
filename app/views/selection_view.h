// The selection in all of its names at once: the token and its slots in every group, the entries
// that pool it, the block and who reads it, the element and both of its values. Every line can name
// a selection that a click on it makes.
//
//   SelectionView view = selection_view({info, *step, before, cursor, selection, row, op, tap});
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "app/views/selection.h"
#include "engine/session/snapshot.h"

namespace attnscope {

struct SelectionLine {
  std::string label;  // "SWA-a"
  std::string text;   // "block 570 row 0"
  bool null = false;  // nothing is there: drawn hatched
  bool here = false;  // this is what is selected
  std::optional<Selection> to;
};

struct SelectionPart {
  std::string title;  // "Token 2 112 'w'"
  std::vector<SelectionLine> lines;
};

struct SelectionView {
  std::string sentence;
  std::vector<SelectionPart> parts;  // token, entry, block, element: those that are picked
};

struct SelectionInput {
  const SessionInfo& info;
  const StepTrace& step;
  Place cursor{};
  Selection selection{};
  std::int64_t row = -1;         // token row that the other panels look at
  const OpTrace* op = nullptr;   // under the cursor
  const TapCopy* tap = nullptr;  // the selected one of it
};
SelectionView selection_view(const SelectionInput& input);

}  // namespace attnscope
