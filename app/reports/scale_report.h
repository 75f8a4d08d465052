// What measure_scale() found: a text to read, JSON, a drawing.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "app/reports/scale.h"

namespace attnscope {

std::string scale_text(const ScaleResult& result);
// Format "attnscope-scale", version 1. Times in microseconds, slopes in nanoseconds, sizes in
// bytes: each key says it.
nlohmann::ordered_json scale_json(const ScaleResult& result);
// Microseconds over context, both axes logarithmic, a polyline an op; for light and dark pages. At
// least one line needs a point.
std::string scale_svg(const ScaleResult& result);

// "sparse_attention, C4A"
std::string scale_title(const ScaleLine& line);
// What slopes of its fit are of: "row", or "1K tokens" of a line that should be flat.
std::string slope_unit(const ScaleLine& line);
// Of its fit, which it has, in nanoseconds of that unit.
double slope_ns(const ScaleLine& line);
// From the numbers of its fit to those.
double slope_scale(const ScaleLine& line);
// "NVIDIA H200, driver 580.82.07, CUDA 13.0", or the processor, its threads and SIMD level.
std::string scale_machine(const ScaleHow& how);
// "median of 15 rounds", "best of 3 passes, each a median of 11 rounds"
std::string scale_statistic(const LaneTimer::Rounds& rounds);
// "4K", "1M"
std::string short_count(std::int64_t n);

}  // namespace attnscope
