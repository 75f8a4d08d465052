// Planted bugs as lessons: what a mutant changes, why its op alone shows it, what a serving engine
// would have shown; and the facts of the failure as it was measured.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/session/snapshot.h"

namespace attnscope {

struct Lesson {
  const char* name;        // of the lane, without "mutant:"
  as_op_id op;             // that it replaces
  const char* symptom;     // what goes wrong, without saying why
  const char* change;      // what was changed
  const char* why_here;    // why this op shows it and no other
  const char* in_service;  // what a serving engine would have shown
  // Whether a model that runs the op has what it takes; null = every such model does.
  bool (*shows)(const ModelConfig& config) = nullptr;
};
// Of a family of models (Family::name), in the order of the mutants; nothing of one without.
std::span<const Lesson> lessons(std::string_view family);
// Those of its family whose bug a model can show.
std::vector<const Lesson*> lessons(const ModelConfig& config);
std::vector<const Lesson*> all_lessons();
const Lesson* find_lesson(std::string_view name);  // of any family

// Page of the card that leads to a planted bug.
struct LessonPage {
  std::string title;
  std::string text;
  std::string panel;                  // where to look: id of a panel
  std::vector<std::string> commands;  // that bring it into view
};

// Four pages: the cell, the op, the element, the reason. The bug must have shown itself.
std::vector<LessonPage> lesson_pages(const Lesson& lesson, const Snapshot& snapshot,
                                     const TapResult& wrong);

}  // namespace attnscope
