// Lessons of planted bugs in the ops of dense attention.
#pragma once

#include "app/workbench/lessons.h"

namespace attnscope {

std::span<const Lesson> dense_lessons();

}  // namespace attnscope
