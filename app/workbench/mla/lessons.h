// Lessons of planted bugs in the ops of absorbed MLA.
#pragma once

#include "app/workbench/lessons.h"

namespace attnscope {

std::span<const Lesson> mla_lessons();

}  // namespace attnscope
