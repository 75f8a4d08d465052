// Pictures of studies from the shell, in builds that can draw.
#pragma once

#include <functional>
#include <string>

#include "app/reports/cache_study.h"

namespace attnscope {

// Writes a study's plots as PNG into a file.
using StudyPainter = std::function<Result<void>(const CacheStudy& study, const std::string& path)>;

// AS_NO_ENVIRONMENT where nothing can be drawn: asked before a study that takes minutes.
Result<StudyPainter> study_painter();

}  // namespace attnscope
