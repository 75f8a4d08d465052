// Lessons of planted bugs in the ops of DeepSeek-V4.
#pragma once

#include "app/workbench/lessons.h"

namespace attnscope {

std::span<const Lesson> deepseek_v4_lessons();

}  // namespace attnscope
