#include "app/reports/scale_fit.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

namespace attnscope {

bool LinearFit::meaningful() const {
  return slope_error.has_value() && r2.has_value() && std::abs(slope) > 2 * *slope_error;
}

LinearFit fit_line(std::span<const double> x, std::span<const double> y) {
  const auto n = static_cast<double>(x.size());
  double mean_x = 0, mean_y = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    mean_x += x[i] / n;
    mean_y += y[i] / n;
  }
  double xx = 0, xy = 0, yy = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double dx = x[i] - mean_x, dy = y[i] - mean_y;
    xx += dx * dx;
    xy += dx * dy;
    yy += dy * dy;
  }
  LinearFit fit;
  fit.slope = xy / xx;
  fit.intercept = mean_y - fit.slope * mean_x;
  double rest = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double r = y[i] - fit.intercept - fit.slope * x[i];
    rest += r * r;
  }
  if (x.size() > 2) fit.slope_error = std::sqrt(rest / (n - 2) / xx);
  if (yy > 0) fit.r2 = 1 - rest / yy;
  fit.spread = *std::max_element(y.begin(), y.end()) / *std::min_element(y.begin(), y.end());
  return fit;
}

}  // namespace attnscope
